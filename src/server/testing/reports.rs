//! What the scripted herd reports of CI systems and of a node.

use std::sync::Arc;
use std::time::Duration;

use drover_actors::message::{NodeOrdered, Refusal};
use drover_api::{BlackBoxOut, GuestCallOut, GuestTaskOut, MomentOut, PhaseOut, ValueOut};
use drover_model::demand::report::{
    Account, Estimate, Kind, Outage, RowlessRunner, RunningJob, Serving, SourceJobs, Unoffered,
};
use drover_model::demand::spec::ShareSpec;
use drover_model::id::{
    AgentId, CloudId, ClusterId, LeaseId, NodeName, RunnerName, SourceId, TemplateId,
};
use drover_model::phase::{NodeOrder, NodeStatus, OrderedBy};
use drover_model::placement::StorageObservation;
use drover_model::placement::report::{NodeKeptOut, NodeOffline, NodeReport, NodesKnown};
use drover_model::ports::JobObservation;
use drover_model::record::Want;
use drover_notify::{Delivered, Failure, Tested};

use super::{Served, THEN, book};
use crate::house::Limits;
use crate::state::{Doors, HistoryDoor, NotifyDoor};
use crate::view::View;

/// What waits at a source, runs there, and is left alone.
pub(super) fn jobs_of_git() -> SourceJobs {
    let job = |id: &str, name: &str, wanted: &str| JobObservation {
        id: id.into(),
        name: name.into(),
        want: Want::Labels([wanted.to_owned()].into()),
        since: THEN,
        origin: None,
    };
    let gpu = Unoffered {
        want: Want::Labels(["gpu".to_owned()].into()),
        lacks: "no template has `gpu`".into(),
    };
    let (source, agent) = (SourceId::new("git"), AgentId::new("a1"));
    let running = RunningJob {
        id: "40".into(),
        waited: None,
        runner: RunnerName::new("drover-lab-a1"),
        agent: agent.clone(),
    };
    let (runner, lease) = (RunnerName::new("drover-lab-a1"), LeaseId::new("l7"));
    let rowless = RowlessRunner { runner, agent, lease };
    SourceJobs {
        source,
        waiting: vec![
            job("41", "build", "linux"),
            job("42", "build", "linux"),
            job("44", "train", "gpu"),
        ],
        unoffered: vec![gpu],
        ignored: vec![job("43", "sign", "vault")],
        unread: Vec::new(),
        running: vec![running],
        rowless: vec![rowless],
        outage: None,
        unserved: 0,
        refused: None,
    }
}

/// What runs still at a source that left the configuration, and cannot be polled.
pub(super) fn jobs_of_old() -> SourceJobs {
    let text = "source `old` refuses the login: GET /api: 401".into();
    let running = RunningJob {
        id: "90".into(),
        waited: None,
        runner: RunnerName::new("drover-lab-a9"),
        agent: AgentId::new("a9"),
    };
    SourceJobs {
        source: SourceId::new("old"),
        waiting: Vec::new(),
        unoffered: Vec::new(),
        ignored: Vec::new(),
        unread: Vec::new(),
        running: vec![running],
        rowless: Vec::new(),
        outage: Some(Outage { since: THEN, text }),
        unserved: 0,
        refused: None,
    }
}

pub(super) fn an_account(source: SourceId) -> Account {
    let serving = Serving {
        template: TemplateId::new(CloudId::new("lab"), "linux"),
        live: 4,
        cap: Some(4),
        coming: 1,
        free: 0,
        busy: 3,
        room: 0,
        obstacle: Some("lab/linux is full: 4 of 4".into()),
        until_ready: Some(Duration::from_secs(42)),
        of_uses: Some(Duration::from_secs(300)),
    };
    let estimate = "3 agents are busy, uses last 300 s and 1 of them must end first; agents take \
                    42 s to be ready";
    let kind = Kind {
        want: Want::Labels(["linux".to_owned()].into()),
        count: 2,
        since: Some(THEN),
        open: 1,
        ahead: Some(2),
        serve: vec![serving],
        others: vec![(TemplateId::new(CloudId::new("lab"), "windows"), "lacks `linux`".into())],
        why: "lab/linux is full: 4 of 4".into(),
        estimate: Estimate::In(Duration::from_secs(342), estimate.into()),
    };
    let share = ShareSpec { weight: 3, priority: 0, cap: Some(9) };
    Account { source: Some(source), share, has: 3, all: 4, weights: 4, kinds: vec![kind] }
}

/// What comes of an order about a node: the second of two is used, and stays so.
pub(super) fn ordered(node: &NodeName, order: NodeOrder) -> Result<NodeOrdered, Refusal> {
    let changed = node.as_str() == "pve1";
    if !changed && node.as_str() != "pve2" {
        return Err(Refusal::Unknown(format!("no node is called `{node}`")));
    }
    let (cluster, node) = (ClusterId::new("9f31c0aa52e7d410"), node.clone());
    Ok(NodeOrdered { cluster, node, order, changed, agents: 2 })
}

/// A node that an operator cordoned, and one that is offline.
pub(super) fn nodes_known() -> NodesKnown {
    let cluster = ClusterId::new("9f31c0aa52e7d410");
    let (kept_out, offline) = (NodeName::new("pve3"), NodeName::new("pve2"));
    NodesKnown {
        kept_out: vec![NodeKeptOut {
            cluster: cluster.clone(),
            node: kept_out,
            order: NodeOrder::Cordon,
            by: Some(OrderedBy { by: "token:ops".to_owned(), at: THEN }),
        }],
        offline: vec![NodeOffline { cluster, node: offline, since: THEN }],
        ..NodesKnown::default()
    }
}

pub(super) fn a_node() -> NodeReport {
    let linux = TemplateId::new(CloudId::new("lab"), "linux");
    NodeReport {
        cluster: ClusterId::new("9f31c0aa52e7d410"),
        node: NodeName::new("pve1"),
        state: NodeStatus::Online,
        agents: 3,
        guests: 1,
        known: true,
        memory_mb: 8192,
        others_mb: 2048,
        own_mb: 6400,
        free_mb: -256,
        used_mb: 3072,
        cpus: 8000,
        busy_cpus: 2500,
        free_cpus: 1500,
        storages: vec![StorageObservation {
            node: NodeName::new("pve1"),
            name: "local-lvm".to_owned(),
            shared: false,
            kind: "lvmthin".to_owned(),
            images: true,
            containers: true,
            reached: true,
            space: Some((48 << 30, 50 << 30)),
        }],
        refuses: vec![(linux, "no room".into())],
        kept_out_by: None,
    }
}

/// What is kept of an agent that failed.
pub fn a_black_box() -> BlackBoxOut {
    let moment = |kind: &str, text: &str| MomentOut {
        at: "2026-11-21T08:11:02Z".to_owned(),
        kind: kind.to_owned(),
        text: text.to_owned(),
    };
    BlackBoxOut {
        agent: "a9".to_owned(),
        template: "lab/linux".to_owned(),
        reason: "failed".to_owned(),
        detail: "Booting failed (unreachable): no address".to_owned(),
        gone_at: "2026-11-21T08:12:02Z".to_owned(),
        vmid: Some(10_417),
        node: Some("pve1".to_owned()),
        address: None,
        phases: vec![PhaseOut { state: "Booting".to_owned(), ms: 4000 }],
        moments: vec![
            moment("state", "Booting: waits for an address"),
            moment("step", "cloud-init: exit 1 after 1.5 s\nE: no network"),
        ],
        moments_left_out: 2,
        tasks: vec![GuestTaskOut {
            upid: "UPID:pve1:0001:0002:6560:qmstart:10417:drover@pve!a:".to_owned(),
            kind: "qmstart".to_owned(),
            status: Some("start failed".to_owned()),
            log: vec!["TASK ERROR: start failed".to_owned()],
        }],
        tasks_unread: None,
        calls: vec![GuestCallOut {
            at: "2026-11-21T08:11:58Z".to_owned(),
            method: "POST".to_owned(),
            path: "/nodes/pve1/qemu/10417/status/start".to_owned(),
            outcome: "200".to_owned(),
            ms: 41,
            times: 2,
        }],
        guest_log: Some("/var/log/cloud-init-output.log\nno network".to_owned()),
        guest_unread: None,
    }
}

impl Served {
    /// Serves the book of a herd with this history.
    pub fn seeing(history: HistoryDoor) -> Self {
        let (view, asks) = (View::new(3), Arc::default());
        let script = book(view.clone(), Arc::clone(&asks));
        let changed = |doors| Doors { history, ..doors };
        Self::changed(view, asks, script, Limits::default(), changed)
    }
}

/// What comes of tests of channels: the phone cannot be reached.
pub(super) fn test_notify() -> NotifyDoor {
    Arc::new(|channel| Box::pin(std::future::ready(tested(channel.as_deref()))))
}

fn tested(channel: Option<&str>) -> Option<Vec<Tested>> {
    let taken = Delivered { answer: "250 2.0.0 Ok".to_owned(), refused: None };
    let failure =
        Failure { text: "no answer within 30 s".to_owned(), retry_after: None, is_final: false };
    let all = [("ops", "mail", Ok(taken)), ("phone", "ntfy", Err(failure))];
    let meant = all.into_iter().filter(|(name, ..)| channel.is_none_or(|one| one == *name));
    let tested = meant.map(|(name, via, result)| Tested { channel: name.to_owned(), via, result });
    Some(tested.collect()).filter(|all: &Vec<Tested>| !all.is_empty())
}

/// The values in force: of a file, of a variable, a secret and a default.
pub fn values() -> Arc<[ValueOut]> {
    let value = |path: &str, value: &str, origin: &str| ValueOut {
        path: path.to_owned(),
        value: value.to_owned(),
        origin: origin.to_owned(),
    };
    Arc::new([
        value("service.logLevel", "debug", "$LOG_LEVEL"),
        value("agentConfigurations.linux.memoryMb", "4096", "drover.yaml:12"),
        value("credentials.key.passphrase", "***", "drover.yaml:20"),
        value("agentConfigurations.linux.cores", "2", "default"),
    ])
}
