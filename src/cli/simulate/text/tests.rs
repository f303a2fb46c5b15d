use std::collections::BTreeMap;

use drover_forecast::figures::Waits;

use super::*;
use crate::cli::simulate::{ConfigurationOut, TraceOut};

fn figures(demands: u64, p95_ms: u64, cap_hits: Option<u64>) -> Figures {
    Figures {
        demands,
        served: demands - 2,
        waiting: 1,
        called_off: 1,
        refused: 0,
        wait: Waits { p50_ms: 400, p95_ms, longest_ms: 2 * p95_ms },
        pool_hits: demands / 2,
        cap_hits,
        agents: demands + 3,
        failed: 1,
        machine_ms: demands * 700_000,
    }
}

fn report(figures: &Figures) -> Report {
    let templates = BTreeMap::from([("lab/linux".to_owned(), figures.clone())]);
    Report { all: figures.clone(), templates }
}

fn out() -> SimulateOut {
    let configuration = |file: &str, figures: &Figures, notes: &[&str]| ConfigurationOut {
        file: file.to_owned(),
        report: report(figures),
        breaker_trips: u64::from(file == "wide.yaml"),
        notes: notes.iter().map(|note| (*note).to_owned()).collect(),
    };
    let (tight, wide) = (figures(120, 91_250, Some(40)), figures(120, 30_000, Some(0)));
    let pool = |template: &str, suggested, p95_ms, tried| Pool {
        template: template.to_owned(),
        now: 1,
        suggested,
        p95_ms,
        tried,
    };
    SimulateOut {
        trace: TraceOut {
            file: "week.jsonl".into(),
            from: "2026-11-21T08:00:00Z".into(),
            to: "2026-11-28T08:00:00Z".into(),
            demands: 120,
            agents: 124,
            cut: None,
            left_out: vec!["2 files could not be read".into()],
        },
        seed: 1,
        as_it_was: report(&figures(120, 90_000, None)),
        configurations: vec![
            configuration("drover.yaml", &tight, &["cloud `lab` has one node"]),
            configuration("wide.yaml", &wide, &[]),
        ],
        pools: Some(Pools {
            aim_ms: 10_000,
            pools: vec![
                pool("lab/big", None, 35_000, 4),
                pool("lab/linux", Some(3), 400, 3),
                pool("lab/small", Some(1), 9_900, 1),
            ],
            together: report(&figures(120, 900, Some(0))),
        }),
        sizes: vec![SizeAdvice {
            template: "lab/linux".into(),
            agents: 118,
            cores: Some(4),
            memory_mib: None,
            peak_memory_mib: Some(1900),
            peak_cpu_milli: Some(1500),
            suggested_cores: Some(2),
            suggested_memory_mib: Some(2560),
        }],
    }
}

#[test]
fn people_see_configurations_below_each_other_and_what_they_may_change() {
    insta::assert_snapshot!(text(&out()));
}
