//! The history of a real service: `drover trace` and `drover usage` agree with what ran, over a kill too.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::PathBuf;

use drover_history::{Agent, Demand, DemandKind, How, Limits, MadeFor, Range, Trace};
use drover_model::time::WallTime;
use serde_json::Value;

use crate::harness::{Events, Service, Site, world};

/// The trace of the service, as a file of `drover trace`.
fn trace(site: &Site, more: &[&str]) -> (Trace, String) {
    let file = site.dir.path().join("trace.jsonl");
    let shown = file.display().to_string();
    let words: Vec<&str> =
        ["trace", "--file", &shown].into_iter().chain(more.iter().copied()).collect();
    let said = site.json(&words);
    let text = fs::read_to_string(&file).unwrap();
    let trace = Trace::read(text.as_bytes(), Limits::default()).unwrap();
    assert_eq!(said["records"], (text.lines().count() - 2) as u64);
    assert!(!file.with_added_extension("part").exists());
    (trace, text)
}

fn leases(trace: &Trace) -> Vec<&Demand> {
    trace.demands.iter().filter(|one| one.kind == DemandKind::Lease).collect()
}

fn usage(site: &Site, more: &[&str]) -> Value {
    let words: Vec<&str> = ["usage"].into_iter().chain(more.iter().copied()).collect();
    site.json(&words)
}

/// Hours of machines by a trace, up to this moment.
fn hours(agents: &[Agent], range: Range) -> f64 {
    let machines = agents.iter().filter_map(|one| Some((one.machine?, one.gone)));
    let ms: u64 = machines.map(|(machine, gone)| range.part_ms(machine, gone)).sum();
    ms as f64 / 3_600_000.0
}

fn newest(site: &Site) -> PathBuf {
    let folder = site.dir.path().join("state/history");
    let mut files: Vec<PathBuf> =
        fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    files.pop().unwrap()
}

// Invariant: what ran is in the trace, once, and usage adds up the same.

#[test]
fn trace_and_usage_agree_with_the_leases_that_ran() {
    let (_dir, _sim, site) = world();
    let _service = Service::start(&site);
    for _ in 0..2 {
        let out = site.cli(&["lease", "--template", "linux", "--owner", "anna", "--", "true"]);
        assert!(out.status.success(), "{out:?}");
    }
    site.json(&["reap"]);
    site.until_empty();
    let (trace, text) = trace(&site, &[]);
    let served = leases(&trace);
    assert_eq!(served.len(), 2, "{text}");
    for one in &served {
        assert_eq!(one.how, Some(How::Done), "{one:?}");
        assert!(one.wants.is_some() && one.waited_ms().is_some() && one.ran_ms().is_some());
        let agent =
            trace.agents.iter().find(|agent| Some(&agent.id) == one.agent.as_ref()).unwrap();
        assert_eq!(agent.made_for, MadeFor::Demand, "{agent:?}");
        assert!(agent.machine >= Some(agent.made) && agent.ready >= agent.machine, "{agent:?}");
        assert!(agent.gone > agent.ready && !agent.has_failed(), "{agent:?}");
        assert!(agent.boot.iter().any(|part| part.name == "Cloning"), "{agent:?}");
        assert_eq!(one.template.as_deref(), Some(&*agent.template));
    }
    assert!(!text.contains("anna"), "{text}");
    let names = self::trace(&site, &["--names"]).1;
    assert!(names.contains("anna"), "{names}");
    assert_eq!((trace.configurations.len(), trace.services.len()), (1, 1));

    let by_template = usage(&site, &["--from", "1h"]);
    assert_eq!(
        (&by_template["total"]["leases"], &by_template["total"]["failures"]),
        (&2.into(), &0.into())
    );
    let range = Range { from: WallTime(0), to: WallTime(i64::MAX) };
    let summed = by_template["total"]["vmHours"].as_f64().unwrap();
    assert!((summed - hours(&trace.agents, range)).abs() < 1e-5, "{summed} {text}");
    let by_owner = usage(&site, &["--from", "1h", "--by", "owner"]);
    let rows = by_owner["rows"].as_array().unwrap();
    let of = |row: &Value| row["vmHours"].as_f64().unwrap();
    let anna = rows.iter().find(|row| row["name"].as_str().unwrap().starts_with("anna")).unwrap();
    assert_eq!(anna["leases"], 2);
    assert!(of(anna) > 0.0 && (rows.iter().map(of).sum::<f64>() - summed).abs() < 1e-4, "{rows:?}");
    // A range that ends before they ran has none of them.
    let before = usage(&site, &["--from", "2h", "--to", "1h"]);
    assert_eq!((&before["total"]["leases"], &before["total"]["vmHours"]), (&0.into(), &0.0.into()));
    let row = format!("\r\nlab/linux,{},", trace.agents.len());
    let csv = site.cli(&["usage", "--from", "1h", "--csv"]);
    let csv = String::from_utf8(csv.stdout).unwrap();
    assert!(csv.starts_with("template,agents,vm_hours,") && csv.contains(&row), "{csv}");
}

// Invariant: a service that dies loses nothing that was written, and what it goes on with is counted once.

#[test]
fn an_agent_that_lives_over_a_kill_is_one_agent() {
    let (_dir, _sim, site) = world();
    let mut service = Service::start(&site);
    let lease = site.json(&["lease", "--template", "linux"])["id"].as_str().unwrap().to_owned();
    let before = trace(&site, &[]).0;
    let held = leases(&before)[0].clone();
    assert!(held.served.is_some() && held.ended.is_none(), "{held:?}");

    service.child.signal("KILL");
    service.child.wait();
    // As if it had died while it wrote.
    let mut file = OpenOptions::new().append(true).open(newest(&site)).unwrap();
    file.write_all(b"{\"closed\":{\"agent\":{\"id\":\"").unwrap();
    let _service = Service::start(&site);
    let mut events = Events::follow(&site);
    site.json(&["release", &lease]);
    let agent = held.agent.clone().unwrap();
    // It may be on its way already.
    let _ = site.cli(&["retire", &agent]);
    events.until("agentGone", |fact| {
        fact["agent"]["id"] == agent.as_str()
            || fact["id"] == agent.as_str()
            || fact["agent"] == agent.as_str()
    });
    let (after, text) = trace(&site, &[]);
    assert_eq!(after.cut.as_deref(), Some("lines of the history that cannot be read: 1"));
    let ended: Vec<&Demand> = leases(&after).into_iter().filter(|one| one.id == lease).collect();
    assert_eq!(ended.len(), 1, "{text}");
    assert_eq!((ended[0].served, ended[0].how), (held.served, Some(How::Done)), "{text}");
    let lives: Vec<&Agent> = after.agents.iter().filter(|one| one.id == agent).collect();
    assert_eq!(lives.len(), 1, "{text}");
    assert_eq!(lives[0].made, before.agents[0].made, "{text}");
    assert!(lives[0].gone.is_some() && lives[0].ready == before.agents[0].ready, "{text}");
    assert_eq!(after.services.len(), 2, "{text}");
    assert_eq!(usage(&site, &["--from", "1h"])["total"]["leases"], 1);
    let notes = usage(&site, &["--from", "1h"])["notes"].to_string();
    assert!(notes.contains("cannot be read: 1"), "{notes}");
    let file = site.dir.path().join("noted.jsonl");
    let out = site.cli(&["trace", "--file", &file.display().to_string()]);
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(said, "note: lines of the history that cannot be read: 1\n");
}
