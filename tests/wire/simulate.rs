//! `drover simulate` as a process: the same bytes for the same input, and faults with their line.

use std::path::Path;

use drover_history::{Demand, DemandKind, FORMAT, Header, How, Line, Writer};
use drover_model::record::Want;
use drover_model::time::WallTime;
use serde_json::Value;

use crate::harness::world;

const FROM: i64 = 1_795_000_000_000;

/// Writes a trace of an hour into a folder: thirty leases of a label, one every two minutes.
pub fn trace(folder: &Path) -> String {
    let (from, to) = (WallTime(FROM), WallTime(FROM + 3_600_000));
    let drover = "0.1.0".to_owned();
    let (left_out, nodes) = (Vec::new(), Vec::new());
    let header = Header { format: FORMAT, drover, from, to, names: false, left_out, nodes };
    let mut writer = Writer::begin(Vec::new(), header).unwrap();
    for number in 0..30 {
        let arrived = FROM + number * 120_000;
        let demand = Demand {
            id: format!("l-{number}"),
            kind: DemandKind::Lease,
            source: None,
            owner: Some("4f1c".into()),
            group: None,
            name: None,
            wants: Some(Want::Labels(["linux".to_owned()].into())),
            priority: 0,
            whole: false,
            arrived: WallTime(arrived),
            served: Some(WallTime(arrived + 30_000)),
            agent: None,
            template: None,
            cores: None,
            memory_mib: None,
            ended: Some(WallTime(arrived + 300_000)),
            how: Some(How::Done),
            granted: None,
            used_ms: None,
        };
        writer.put(&Line::Demand(Box::new(demand))).unwrap();
    }
    let file = folder.join("trace.jsonl");
    std::fs::write(&file, writer.finish(None, 0).unwrap()).unwrap();
    file.display().to_string()
}

// Invariant: equal input gives equal output, byte for byte.

#[test]
fn the_same_trace_and_configuration_give_the_same_bytes() {
    let (dir, _sim, site) = world();
    let trace = trace(dir.path());
    let (own, wide) = (site.config(), dir.path().join("wide.yaml"));
    let yaml = std::fs::read_to_string(&own).unwrap();
    std::fs::write(&wide, yaml.replace("instanceCap:", "idleMin: 1\n    instanceCap:")).unwrap();
    let (own, wide) = (own.display().to_string(), wide.display().to_string());
    let said = |seed: &str, form: &str| {
        let words = ["--config", &own, "--output", form, "simulate", "--trace", &trace];
        let more = ["--compare", &wide, "--wait", "5s", "--seed", seed];
        let out = site.cli(&[&words[..], &more[..]].concat());
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap()
    };
    for form in ["table", "json"] {
        assert_eq!(said("1", form), said("1", form));
    }
    let out: Value = serde_json::from_str(&said("1", "json")).unwrap();
    assert_eq!(out["configurations"].as_array().unwrap().len(), 2, "{out}");
    let all = &out["configurations"][0]["report"]["all"];
    assert_eq!((&all["demands"], &all["served"]), (&Value::from(30), &Value::from(30)), "{out}");
    assert!(out["pools"]["pools"][0]["template"].is_string(), "{out}");
}

// Invariant: what is wrong with the input is said with its place, and the code is 2.

#[test]
fn faults_of_the_input_name_their_line() {
    let (dir, _sim, site) = world();
    let trace = trace(dir.path());
    let own = site.config().display().to_string();
    let torn = dir.path().join("torn.jsonl");
    let text = std::fs::read_to_string(&trace).unwrap();
    std::fs::write(&torn, text.replacen("\"kind\":\"lease\"", "\"kind\":\"wizard\"", 3)).unwrap();
    let torn = torn.display().to_string();
    let said = |trace: &str, more: &[&str]| {
        let words = ["--config", &own, "simulate", "--trace", trace];
        let out = site.cli(&[&words[..], more].concat());
        (out.status.code(), String::from_utf8(out.stderr).unwrap())
    };
    let (code, text) = said(&torn, &[]);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.starts_with(&format!("drover: `{torn}`, line 2, column ")), "{text}");
    let (code, text) = said("/nowhere.jsonl", &[]);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.starts_with("drover: cannot read `/nowhere.jsonl`"), "{text}");
    let many = ["--compare", &own].repeat(9);
    let (code, text) = said(&trace, &many);
    assert_eq!(
        (code, text.as_str()),
        (Some(2), "drover: --compare takes at most 8 configurations\n")
    );
}
