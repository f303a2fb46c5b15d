//! Many provisions at once: how long they took, what they asked for, what they cost.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::figure::{Figure, Report, percentile};
use crate::herd::Herd;
use crate::naive::Naive;
use crate::process::Usage;
use crate::record::Piece;
use crate::site::{Cluster, Lanes};

/// Provisions in lanes that hold nobody up, beside the script.
pub fn beside_script(report: &mut Report, agents: u32) {
    // One after the other: both at once would measure each other.
    let (_, provision) = Herd::provisioned(agents, Lanes::Wide);
    let cluster = Cluster::start(agents, true);
    let script = Naive::play(&cluster);
    provision.report(report, Some(&script));
}

/// Provisions them all at once, beside a tenth of them: what one costs must not depend on how many
/// there are.
pub fn beside_tenth(report: &mut Report, agents: u32) {
    let tenth = {
        let (_, provision) = Herd::provisioned(agents / 10, Lanes::Wide);
        provision
    };
    let (_, all) = Herd::provisioned(agents, Lanes::Wide);
    let name = format!("provision-{agents}");
    let each = |one: &Provision, of: f64| of / one.took.len() as f64;
    let (cpu, memory) = (each(&all, all.used.cpu), each(&all, all.used.memory));
    let beside = "one of a tenth of them";
    let figure = Figure::alone(format!("{name}.cost.cpu"), cpu / 1e-3, "ms an agent");
    report.add(figure.against(beside, each(&tenth, tenth.used.cpu) / 1e-3));
    let figure = Figure::alone(format!("{name}.cost.memory"), memory / 1024.0, "KiB an agent");
    report.add(figure.against(beside, each(&tenth, tenth.used.memory) / 1024.0));
    let times = |one: &Provision| one.took.values().copied().collect::<Vec<f64>>();
    for (word, share) in [("p50", 0.5), ("p99", 0.99)] {
        let took = percentile(&times(&all), share);
        let figure = Figure::alone(format!("{name}.ready.{word}"), took, "s");
        report.add(figure.against(beside, percentile(&times(&tenth), share)));
    }
}

/// Provisions beside the script where each node has the workers that Proxmox has, and where calls
/// have no bound: a lead that shrinks by the workers is a flood of calls.
pub fn beside_workers(report: &mut Report, agents: u32) {
    for (word, workers) in [("three", None), ("unbound", Some(0))] {
        let cluster = || Cluster::start_with(agents, true, workers);
        let (_, provision) = Herd::provisioned_on(cluster(), Lanes::Wide);
        let script = Naive::play(&cluster());
        let name = format!("workers-{agents}.{word}");
        report_times(report, &format!("{name}.ready"), &provision.took, &provision.piece);
        report_times(report, &format!("{name}.script.ready"), &script.took, &script.piece);
        for (percent, share) in [("p50", 0.5), ("p99", 0.99)] {
            let of = |took: &BTreeMap<u32, f64>| {
                percentile(&took.values().copied().collect::<Vec<_>>(), share)
            };
            let ours = Figure::alone(format!("{name}.lead.{percent}"), of(&provision.took), "s");
            report.add(ours.against("the script", of(&script.took)));
        }
    }
}

/// What came of many provisions at once.
pub struct Provision {
    /// Seconds until ready, by VMID.
    took: BTreeMap<u32, f64>,
    /// The same without the wait for a lane.
    past_queue: BTreeMap<u32, f64>,
    /// Seconds in each state, by its name.
    phases: BTreeMap<String, Vec<f64>>,
    piece: Piece,
    used: Usage,
}

impl Provision {
    /// Reads the list of agents that are ready, which must be so many.
    pub fn read(list: &Value, agents: u32, (piece, used): (Piece, Usage)) -> Self {
        let (mut took, mut past_queue) = (BTreeMap::new(), BTreeMap::new());
        let mut phases: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        for agent in list["agents"].as_array().unwrap() {
            let id = agent["vmid"].as_u64().unwrap() as u32;
            for phase in agent["phases"].as_array().unwrap() {
                let state = phase["state"].as_str().unwrap();
                if state == "Ready" {
                    break;
                }
                let seconds = phase["ms"].as_f64().unwrap() / 1000.0;
                *took.entry(id).or_default() += seconds;
                let counted = if state == "Queued" { 0.0 } else { seconds };
                *past_queue.entry(id).or_default() += counted;
                phases.entry(state.to_owned()).or_default().push(seconds);
            }
        }
        assert_eq!(took.len(), agents as usize, "agents that are ready of those asked for");
        Self { took, past_queue, phases, piece, used }
    }

    /// Reports all of it, beside the script where it was played.
    pub fn report(&self, report: &mut Report, script: Option<&Naive>) {
        let name = format!("provision-{}", self.took.len());
        report_times(report, &format!("{name}.ready"), &self.took, &self.piece);
        if let Some(script) = script {
            report_times(report, &format!("{name}.script.ready"), &script.took, &script.piece);
        }
        for (phase, times) in &self.phases {
            let name = format!("{name}.phase.{phase}");
            report.add(Figure::alone(format!("{name}.p50"), percentile(times, 0.5), "s"));
            report.add(Figure::alone(format!("{name}.p99"), percentile(times, 0.99), "s"));
        }
        self.report_calls(report, &format!("{name}.calls"), script);
        self.report_cost(report, &format!("{name}.cost"), script);
    }

    /// Reports the outcome of provisions in lanes that hold agents up: that wait is kept apart.
    pub fn report_lanes(&self, report: &mut Report) {
        let name = format!("lanes-{}", self.took.len());
        report_times(report, &format!("{name}.ready"), &self.past_queue, &self.piece);
        let queued = self.phases.get("Queued").map(Vec::as_slice).unwrap_or_default();
        report.add(Figure::alone(format!("{name}.queued.p50"), percentile(queued, 0.5), "s"));
        report.add(Figure::alone(format!("{name}.queued.p99"), percentile(queued, 0.99), "s"));
    }

    fn report_calls(&self, report: &mut Report, name: &str, script: Option<&Naive>) {
        let agents = self.took.len() as f64;
        let (shared, own) = self.piece.shared_and_own();
        let again = self.piece.asked_again();
        let each = f64::from(own - again) / agents;
        report.add(Figure::alone(format!("{name}.each"), each, "an agent").against("the aim", 6.0));
        let again = f64::from(again) / agents;
        report.add(Figure::alone(format!("{name}.asked-again"), again, "an agent"));
        let rate = f64::from(shared) / self.piece.span();
        report.add(Figure::alone(format!("{name}.shared"), rate, "a second"));
        if let Some(script) = script {
            let (also_shared, also_own) = script.piece.shared_and_own();
            let all =
                Figure::alone(format!("{name}.all"), f64::from(shared + own) / agents, "an agent");
            report.add(all.against("the script", f64::from(also_shared + also_own) / agents));
        }
        self.piece.print_calls(agents);
    }

    fn report_cost(&self, report: &mut Report, name: &str, script: Option<&Naive>) {
        let agents = self.took.len() as f64;
        let figures = [
            (
                "memory",
                self.used.memory,
                script.map(|script| script.used.memory),
                1024.0,
                "KiB an agent",
            ),
            ("cpu", self.used.cpu, script.map(|script| script.used.cpu), 1e-3, "ms an agent"),
        ];
        for (what, value, other, unit, word) in figures {
            let figure = Figure::alone(format!("{name}.{what}"), value / agents / unit, word);
            report.add(match other {
                Some(other) => figure.against("the script", other / agents / unit),
                None => figure,
            });
        }
    }
}

/// Times to ready beside the cluster's own delays for the same guests.
fn report_times(report: &mut Report, name: &str, took: &BTreeMap<u32, f64>, piece: &Piece) {
    let delays = piece.own_delays();
    let ratios: Vec<f64> = took.iter().map(|(id, took)| took / delays[id]).collect();
    let (took, delays): (Vec<f64>, Vec<f64>) =
        took.iter().map(|(id, took)| (*took, delays[id])).unzip();
    for (word, share) in [("p50", 0.5), ("p99", 0.99)] {
        let figure = Figure::alone(format!("{name}.{word}"), percentile(&took, share), "s");
        let (delay, ratio) = (percentile(&delays, share), percentile(&ratios, share));
        report.add(figure.with_ratio("the cluster's own delays", delay, ratio));
    }
}
