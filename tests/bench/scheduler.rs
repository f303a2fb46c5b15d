//! One decision of the scheduler over many different wants, beside the same over a tenth of them.

use std::collections::BTreeSet;
use std::hint::black_box;
use std::sync::Arc;

use drover_actors::scheduler::Event;
use drover_actors::scheduler::state::Scheduler;
use drover_actors::template::{AgentLevel, TemplateNews};
use drover_model::id::{AgentId, CloudId, LeaseId, TemplateId, VmId};
use drover_model::phase::AgentPhase;
use drover_model::record::{LeaseAsk, Want};
use drover_model::spec::TemplateSpec;
use drover_model::state_machine::StateMachine;
use drover_model::status::{AgentStatus, Standing};
use drover_model::time::{Now, WallTime};

use crate::figure::{Figure, Report};
use crate::placement::micros;

const WANTS: usize = 2000;
const AGENTS: usize = 1000;
const NOW: WallTime = WallTime(1_800_000_000_000);

fn now() -> Now {
    Now { wall: NOW, ..Now::default() }
}

/// The n-th set of labels, of those that the template has.
fn set(n: usize) -> BTreeSet<String> {
    (0..16).filter(|bit| n >> bit & 1 == 1).map(|bit| format!("l{bit}")).collect()
}

fn ask(n: usize) -> LeaseAsk {
    LeaseAsk {
        lease: LeaseId::new(format!("lease-{n}")),
        want: Want::Labels(set(n + 1)),
        principal: "bench".into(),
        owner: "bench".into(),
        ttl_ms: 3_600_000,
        public_key: None,
        key_hash: None,
        body_hash: String::new(),
        asked: NOW,
        source: None,
        whole: false,
        user_data: false,
        group: None,
        wait_ms: None,
    }
}

/// A full template of a thousand agents in use, and leases that wait, each for labels of its own.
fn scheduler(wants: usize) -> Scheduler {
    let mut scheduler = Scheduler::default();
    let id = TemplateId::new(CloudId::new("c"), "t");
    let mut spec = TemplateSpec::bare(id, VmId(9000));
    spec.labels = set(usize::MAX);
    let spec = Arc::new(spec);
    let agents = (0..AGENTS).map(|n| AgentLevel {
        status: Arc::new(AgentStatus {
            phase: AgentPhase::Leased,
            standing: Standing::Busy,
            ..AgentStatus::started(AgentId::new(format!("a{n}")), spec.id.clone(), now().wall)
        }),
        spec: Arc::clone(&spec),
        queued: false,
        refused: Vec::new(),
        over: Vec::new(),
        going: false,
    });
    let news = TemplateNews {
        template: spec.id.clone(),
        spec: Arc::clone(&spec),
        configured: true,
        flowing: true,
        tripped: None,
        paused: None,
        live: 0,
        room: 0,
        lack: None,
        kept: spec.minimums(),
        empty: false,
        agents: agents.collect(),
        gone: Vec::new(),
        released: 0,
        answered: std::collections::BTreeMap::new(),
        unplaced: std::collections::BTreeMap::new(),
    };
    let mut take = |event| drop(scheduler.effects_of(event, now(), 0));
    take(Event::Room(spec.id.cloud.clone(), 0));
    take(Event::News(Box::new(news)));
    for ask in (0..wants).map(ask) {
        let lease = ask.lease.clone();
        take(Event::Asked(Box::new(ask)));
        take(Event::Recorded(lease, true));
    }
    scheduler
}

fn decision(wants: usize) -> f64 {
    let mut scheduler = scheduler(wants);
    micros(|| {
        let effects = scheduler.effects_of(Event::Decide, now(), 0);
        assert!(black_box(effects).is_empty(), "nothing is free");
    })
}

/// Reports how long a decision takes.
pub fn report(report: &mut Report) {
    let (tenth, all) = (decision(WANTS / 10), decision(WANTS));
    let figure = Figure::alone("wants-2000.decision", all, "us");
    report.add(figure.against("a tenth of the wants", tenth));
}
