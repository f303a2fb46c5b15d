//! The herd at a glance.

mod alarms;
mod asides;
mod breakers;
mod clouds;
mod pools;
mod tiles;
mod waits;
mod went;

use std::collections::BTreeMap;

use askama::Template;
use drover_api::{
    AgentOut, AlarmOut, BreakerOut, CloudOut, Counts, DrainIn, FaultOut, GoneOut, LeaseOut,
    SourceOut, StatusOut, TemplateOut,
};

use crate::frame::Frame;
use alarms::Alarm;
use breakers::{Tripped, places, tripped};
use clouds::{Cloud, cloud};
use pools::{Pool, pool};
use tiles::{Tile, tiles};
use waits::{Wait, waits_of};
use went::{LAST, Went, went};

pub use alarms::standing_alarms;
pub use asides::{HeldAgent, HerdAsides, KeptOutNode, LeaseCounts, NodeDown, NodeOffline};

/// The herd at a glance.
#[derive(Template)]
#[template(path = "herd.html")]
pub struct HerdPage {
    frame: Frame,
    is_ready: bool,
    trouble: Vec<String>,
    alarms: Vec<Alarm>,
    refused: Option<(String, String)>,
    faults: Vec<FaultOut>,
    tiles: Vec<Tile>,
    waits: Vec<Wait>,
    kept_out: Vec<KeptOut>,
    stuck: Vec<AgentOut>,
    lost_leases: Vec<LeaseOut>,
    down: Vec<NodeDown>,
    /// Breakers of templates and clouds that are not closed.
    tripped: Vec<Tripped>,
    /// How many more need a look than are shown.
    more_looks: usize,
    held: Vec<HeldAgent>,
    /// Breakers of nodes and storages that are not closed.
    breakers: Vec<(BreakerOut, &'static str)>,
    clouds: Vec<Cloud>,
    templates: Vec<Pool>,
    sources: Vec<SourceOut>,
    gone: Vec<Went>,
    lost: Vec<drover_api::LostJobOut>,
    findings: Vec<(String, String, Vec<String>)>,
}

struct KeptOut {
    out: KeptOutNode,
    /// What its button sends: a cloud of its cluster, as several clusters may have such a node.
    use_again: String,
}

impl HerdPage {
    /// Of the status without its agents and leases, which are counted; and of the agents that went last, the
    /// oldest first.
    pub fn new(
        frame: Frame,
        status: StatusOut,
        asides: HerdAsides,
        mut gone: Vec<GoneOut>,
    ) -> Self {
        let counted = counted(&status, &asides.let_go);
        let tiles = tiles(&status, &counted, &asides);
        let HerdAsides { waits, kept_out, stuck, lost_leases, alarms, down, held, .. } = asides;
        let (untried, offline, more_looks) = (asides.untried, asides.offline, asides.more_looks);
        gone.reverse();
        let mut lost = status.lost_jobs.clone();
        lost.reverse();
        lost.truncate(LAST);
        let mut trouble = status.journal.iter().cloned().collect::<Vec<_>>();
        trouble.extend(status.other_drover.iter().cloned());
        let config = &status.config;
        let refused = config.refusal.clone().zip(config.refused_at.clone());
        let is_shown = refused.is_some();
        // A refused configuration is shown above them, with all of its faults.
        let is_refusal = |one: &AlarmOut| {
            is_shown && one.about == "configuration" && one.since == config.refused_at
        };
        let shown = alarms.into_iter().filter(|one| !is_refusal(one));
        let alarms: Vec<Alarm> = shown.map(Alarm::new).collect();
        let found = status.reconciled.iter().map(|one| {
            let mut lines: Vec<String> = one.findings.clone();
            lines.extend(one.unread.iter().map(|why| format!("it was not read: {why}")));
            (one.cluster.clone(), one.at.clone(), lines)
        });
        let all = waits.into_iter().flat_map(|one| waits_of(one, &alarms, &gone, &untried));
        let shown_waits: Vec<Wait> = all.collect();
        let templates = status.templates.iter().zip(&counted);
        let (tripped, more_tripped) = tripped(&status.breakers, &shown_waits);
        let templates = templates.map(|(one, of)| pool(one, *of, &shown_waits, &tripped));
        let templates: Vec<Pool> = templates.collect();
        Self {
            is_ready: status.ready,
            trouble,
            refused,
            faults: config.faults.clone(),
            kept_out: kept_out.into_iter().map(|one| kept_out_of(one, &status.clouds)).collect(),
            stuck,
            lost_leases,
            down,
            more_looks: more_looks + more_tripped,
            held,
            tripped,
            breakers: places(&status.breakers),
            tiles,
            clouds: status
                .clouds
                .iter()
                .map(|one| cloud(one, &status, &counted, &alarms, &offline))
                .collect(),
            templates,
            waits: shown_waits,
            findings: found.collect(),
            sources: status.sources,
            alarms,
            gone: went(gone),
            lost,
            frame,
        }
    }
}

/// The agents of each template, in the order of the status.
fn counted(status: &StatusOut, let_go: &BTreeMap<String, u32>) -> Vec<Counts> {
    let of = |one: &TemplateOut| {
        let cloud = one.id.split('/').next();
        let cloud = status.clouds.iter().find(|known| Some(known.id.as_str()) == cloud);
        let let_go = let_go.get(&one.id).copied().unwrap_or(0);
        Counts::of(&one.states, let_go, cloud.map(|cloud| cloud.health))
    };
    status.templates.iter().map(of).collect()
}

fn kept_out_of(out: KeptOutNode, clouds: &[CloudOut]) -> KeptOut {
    let leads_there = |cloud: &&CloudOut| cloud.cluster.as_ref() == Some(&out.cluster);
    let cloud = clouds.iter().find(leads_there).map(|cloud| cloud.id.clone());
    let use_again = DrainIn { cloud, undrain: true };
    KeptOut { use_again: serde_json::to_string(&use_again).unwrap_or_default(), out }
}
