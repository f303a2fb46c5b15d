#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use drover_model::record::Want;

use super::*;
use crate::{DemandKind, How, MadeFor, Part, Peaks, ServiceChange, Writer};

fn header() -> Header {
    let (from, to) = (WallTime(1_000), WallTime(9_000));
    Header {
        format: FORMAT,
        drover: "0.1.0".into(),
        from,
        to,
        names: false,
        left_out: vec![],
        nodes: vec![],
    }
}

fn demand(id: &str, arrived: i64) -> Demand {
    Demand {
        id: id.into(),
        kind: DemandKind::Job,
        source: Some("git".into()),
        owner: None,
        group: None,
        name: Some("build".into()),
        wants: Some(Want::Labels(["linux".to_owned()].into())),
        priority: 2,
        whole: false,
        arrived: WallTime(arrived),
        served: Some(WallTime(arrived + 500)),
        agent: Some("a1".into()),
        template: Some("lab/linux".into()),
        cores: Some(2),
        memory_mib: Some(2048),
        ended: Some(WallTime(arrived + 1500)),
        how: Some(How::Done),
        granted: Some(WallTime(arrived + 400)),
        used_ms: Some(1100),
    }
}

fn agent(id: &str, made: i64) -> Agent {
    Agent {
        id: id.into(),
        template: "lab/linux".into(),
        cloud: "lab".into(),
        node: Some("pve1".into()),
        cores: Some(2),
        memory_mib: Some(2048),
        made_for: MadeFor::Pool,
        made: WallTime(made),
        machine: Some(WallTime(made + 10)),
        ready: Some(WallTime(made + 100)),
        boot: vec![Part { name: "Cloning".into(), ms: 90 }],
        after: vec![Part { name: "Ready".into(), ms: 5 }],
        gone: None,
        reason: None,
        failed_in: None,
        fault: None,
        uses: 1,
        peaks: Peaks { cpu_milli: Some(1500), memory_mib: Some(700), looks: 3 },
    }
}

fn lines() -> Vec<Line> {
    let drover = "0.1.0".to_owned();
    let change = ServiceChange::Started;
    vec![
        Line::Service(Service { at: WallTime(1_000), change, drover }),
        Line::Configuration(Configuration { at: WallTime(1_000), generation: 1, digest: None }),
        Line::Demand(Box::new(demand("late", 3_000))),
        Line::Demand(Box::new(demand("early", 2_000))),
        Line::Agent(Box::new(agent("a1", 1_500))),
    ]
}

fn written(lines: &[Line], cut: Option<&str>) -> String {
    let mut writer = Writer::begin(Vec::new(), header()).unwrap();
    for line in lines {
        writer.put(line).unwrap();
    }
    String::from_utf8(writer.finish(cut.map(str::to_owned), 0).unwrap()).unwrap()
}

fn fault(text: &str) -> String {
    Trace::read(text.as_bytes(), Limits::default()).unwrap_err().to_string()
}

// Invariant: what is written is read again, each kind in order of its start.

#[test]
fn a_trace_is_read_as_it_was_written() {
    let trace = Trace::read(written(&lines(), None).as_bytes(), Limits::default()).unwrap();
    assert_eq!(trace.header, header());
    assert_eq!(trace.demands, [demand("early", 2_000), demand("late", 3_000)]);
    assert_eq!(trace.agents, [agent("a1", 1_500)]);
    assert_eq!((trace.configurations.len(), trace.services.len(), trace.cut), (1, 1, None));
    let demand = &trace.demands[0];
    assert_eq!((demand.waited_ms(), demand.ran_ms()), (Some(500), Some(1000)));
    assert_eq!(trace.agents[0].boot_ms(), Some(100));
}

#[test]
fn why_records_are_missing_is_read_too() {
    let text = written(&lines(), Some("the range has more"));
    let trace = Trace::read(text.as_bytes(), Limits::default()).unwrap();
    assert_eq!(trace.cut.as_deref(), Some("the range has more"));
}

#[test]
fn fields_of_later_versions_are_ignored() {
    let text =
        written(&lines(), None).replace("\"priority\":2", "\"priority\":2,\"colour\":\"red\"");
    assert_eq!(Trace::read(text.as_bytes(), Limits::default()).unwrap().demands.len(), 2);
}

// Invariant: a trace that cannot be used is refused with the line that is wrong.

#[test]
fn each_fault_names_its_line() {
    let whole = written(&lines(), None);
    let rows: Vec<&str> = whole.lines().collect();
    let without_end = rows[..rows.len() - 1].join("\n");
    let torn = &whole[..whole.len() - 30];
    let untimely = whole.replace("\"served\":3500", "\"served\":2999");
    let late = whole
        .replace("\"made\":1500", "\"made\":9001")
        .replace("\"machine\":1510,\"ready\":1600,", "");
    let long = whole.replacen("\"from\":1000", "\"from\":-62135596800000", 1);
    let counted = whole.replace("{\"end\":{\"lines\":5}}", "{\"end\":{\"lines\":6}}");
    let kind = whole.replacen("\"kind\":\"job\"", "\"kind\":\"wizard\"", 1);
    for (text, expected) in [
        ("", "line 1: this is no trace: its first line is no header; `drover trace` writes one"),
        (
            "hello\n",
            "line 1: this is no trace: its first line is no header; `drover trace` writes one",
        ),
        (
            rows[1],
            "line 1: this is no trace: its first line is no header; `drover trace` writes one",
        ),
        (
            "{\"trace\":{\"format\":9,\"other\":true}}\n",
            "line 1: the trace has format 9, and this drover reads format 1",
        ),
        (&without_end, "line 6: the trace is cut off: it has no last line; export it again"),
        (&late, "line 6: it starts after the end of the trace"),
        (&long, "line 1: the range is longer than 3660 days"),
        (&untimely, "line 4: `served` is before `arrived`"),
        (&counted, "line 7: the last line counts 6 lines, and 5 are there"),
        (&format!("{whole}{{}}\n"), "line 8: the trace has ended, and something follows"),
        (&format!("{}\n{}", rows[0], whole), "line 2: a second header"),
    ] {
        assert_eq!(fault(text), expected, "of {text}");
    }
    assert!(fault(torn).starts_with("line 6, column "), "{}", fault(torn));
    assert!(fault(&kind).starts_with("line 4, column "), "{}", fault(&kind));
    assert!(fault(&kind).contains("unknown variant `wizard`"), "{}", fault(&kind));
}

#[test]
fn neither_a_line_nor_a_trace_is_read_without_bound() {
    let text = written(&lines(), None);
    let short = Limits { line_bytes: 120, ..Limits::default() };
    let fault = Trace::read(text.as_bytes(), short).unwrap_err().to_string();
    assert_eq!(fault, "line 4: the line is longer than 120 bytes");
    let few = Limits { lines: 4, ..Limits::default() };
    let fault = Trace::read(text.as_bytes(), few).unwrap_err().to_string();
    assert_eq!(fault, "line 6: the trace has more than 4 lines; export a shorter range");
    assert!(Trace::read(text.as_bytes(), Limits { lines: 5, ..few }).is_ok());
}
