//! Clouds as rows of the herd's page, each with its agents and what is wrong there.

use drover_api::{CloudOut, Counts, StatusOut, standing};

use super::alarms::{Alarm, alarm_of};
use super::asides::NodeOffline;
use super::pools::BAR;
use crate::show;

pub(super) struct Cloud {
    pub(super) out: CloudOut,
    /// Its nodes that are offline.
    pub(super) offline: Vec<NodeOffline>,
    /// Its alarm, which has what is wrong.
    pub(super) see: Option<(usize, String)>,
    pub(super) health: &'static str,
    pub(super) agents: String,
    pub(super) share: u32,
    /// Its breaker, where that is not closed.
    pub(super) breaker: Option<(String, &'static str)>,
}

pub(super) fn cloud(
    out: &CloudOut,
    status: &StatusOut,
    counted: &[Counts],
    alarms: &[Alarm],
    offline: &[NodeOffline],
) -> Cloud {
    let is_own = |node: &&NodeOffline| out.cluster.as_ref() == Some(&node.cluster);
    let breaker = status.breakers.iter().find(|one| one.id == format!("cloud:{}", out.id));
    let templates = status.templates.iter().zip(counted);
    let own = templates.filter(|(one, _)| one.id.split('/').next() == Some(out.id.as_str()));
    let all: u32 = own.map(|(_, of)| of.all()).sum();
    let agents = match out.cap {
        // Those that are stranded, or on a node that is offline, count against no cap.
        Some(cap) if all > out.agents => format!("{all}, of which {} of {cap} count", out.agents),
        cap => show::of_most(all.max(out.agents), cap),
    };
    Cloud {
        see: alarm_of(alarms, &out.id),
        offline: offline.iter().filter(is_own).cloned().collect(),
        health: standing(out),
        agents,
        share: out.cap.filter(|cap| *cap > 0).map_or(0, |cap| (out.agents * BAR / cap).min(BAR)),
        breaker: breaker.map(|one| (one.id.clone(), show::breaker(one.state))),
        out: out.clone(),
    }
}
