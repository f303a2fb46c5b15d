//! A herd of ready agents: what it costs to keep, to find again and to end.

use std::time::Duration;

use serde_json::Value;

use crate::figure::{Figure, Report};
use crate::naive;
use crate::provision::Provision;
use crate::site::{Cluster, Lanes, Service};

/// How long the idle herd is watched.
const IDLE: Duration = Duration::from_secs(60);

/// Agents that are ready.
pub struct Herd {
    cluster: Cluster,
    service: Service,
    agents: u32,
}

impl Herd {
    /// Provisions them all at once, and reports the times.
    pub fn provisioned(agents: u32, lanes: Lanes) -> (Self, Provision) {
        Self::provisioned_on(Cluster::start(agents, true), lanes)
    }

    /// The same on a cluster that is there.
    pub fn provisioned_on(cluster: Cluster, lanes: Lanes) -> (Self, Provision) {
        let agents = cluster.agents;
        let service = Service::start(&cluster, lanes);
        let (before, mark) = (service.usage(), cluster.record.mark());
        service.keep(true);
        service.until_ready(agents);
        let used = service.usage().less(&before);
        let list = service.api().get("/v1/agents").unwrap();
        let piece = cluster.record.since(mark);
        let provision = Provision::read(&list, agents, (piece, used));
        (Self { cluster, service, agents }, provision)
    }

    /// What the herd costs while nobody wants anything.
    pub fn report_idle(&self, report: &mut Report) {
        let (before, mark) = (self.service.usage(), self.cluster.record.mark());
        std::thread::sleep(IDLE);
        let (used, piece) = (self.service.usage().less(&before), self.cluster.record.since(mark));
        let minutes = IDLE.as_secs_f64() / 60.0;
        let cpu = used.cpu / minutes;
        let (shared, own) = piece.shared_and_own();
        report.add(Figure::alone("idle.cpu", cpu, "s/min"));
        report.add(Figure::alone("idle.calls", f64::from(shared + own) / minutes, "calls/min"));
        self.report_reconcile(report);
    }

    /// The calls of one look at the whole cluster.
    fn report_reconcile(&self, report: &mut Report) {
        let mark = self.cluster.record.mark();
        self.service.api().post("/v1/resync", &Value::Object(serde_json::Map::new()));
        let piece = self.cluster.record.since(mark);
        let (shared, own) = piece.shared_and_own();
        let all = Figure::alone("reconcile.calls", f64::from(shared + own), "calls");
        report.add(all.against("the aim", 2.0));
        piece.print_calls(1.0);
    }

    /// Kills the service and starts it again: from there until every agent is ready.
    pub fn report_recovery(&mut self, report: &mut Report) {
        let list = self.service.api().wait(naive::time_to_list(&self.cluster));
        self.service.child.signal("KILL");
        self.service.child.wait();
        let read = crate::journal::time_to_read(&self.service.journal());
        let started = self.service.again();
        self.service.until_ready(self.agents);
        let took = started.elapsed().as_secs_f64();
        let name = format!("recovery-{}.ready", self.agents);
        let bound = "reading the journal, one list of the cluster";
        report.add(Figure::alone(name, took, "s").against(bound, read + list));
    }

    /// Retires them all.
    pub fn report_teardown(&self, report: &mut Report) {
        let mark = self.cluster.record.mark();
        self.service.empty();
        let piece = self.cluster.record.since(mark);
        let (_, own) = piece.shared_and_own();
        let each = f64::from(own) / f64::from(self.agents);
        let name = format!("teardown-{}.calls", self.agents);
        report.add(Figure::alone(name, each, "calls").against("the aim", 4.0));
        piece.print_calls(f64::from(self.agents));
    }
}
