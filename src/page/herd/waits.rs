//! What waits, and why.

use std::collections::BTreeMap;

use drover_api::{AccountOut, GoneOut, KindOut, UntriedOut};

use super::alarms::{Alarm, alarm_of};
use crate::{said, show};

/// Labels of the ends that are failures on the way to a ready agent.
const FAILURES: [&str; 2] = ["failed", "too-slow"];

/// What of a kind waits, and for whom.
pub(super) struct Wait {
    pub(super) source: String,
    pub(super) kind: KindOut,
    /// The alarm that has the cause, where one has.
    pub(super) see: Option<(usize, String)>,
    /// Where the nodes are looked at for it.
    pub(super) why: String,
    /// What lists it.
    pub(super) list: String,
    pub(super) when: String,
    /// What the cause is about, where that is one thing.
    pub(super) about: String,
    /// The agent that went last of those that failed for it, where the cause does not say so.
    pub(super) failed: Option<GoneOut>,
    /// Nodes that its templates never try, where the cause is about nodes.
    pub(super) untried: Vec<(String, String)>,
}

/// What of each kind waits at a source.
pub(super) fn waits_of(
    account: AccountOut,
    alarms: &[Alarm],
    gone: &[GoneOut],
    untried: &BTreeMap<String, Vec<UntriedOut>>,
) -> impl Iterator<Item = Wait> {
    let source = account.source;
    let list = match source.as_str() {
        "leases" => "/leases?q=state:waiting".to_owned(),
        source => format!("/jobs?q=source:{}", said::encoded(source)),
    };
    let waiting = account.kinds.into_iter().filter(|kind| kind.count > kind.open);
    waiting.map(move |kind| Wait {
        see: cloud_of(&kind).and_then(|cloud| alarm_of(alarms, cloud)),
        why: format!("/why?of={}", said::encoded(&source)),
        list: list.clone(),
        when: show::served(&kind),
        about: match &*kind.serve {
            [one] => format!("template {}", one.template),
            _ => format!("source {source}"),
        },
        failed: failed(&kind, gone).cloned(),
        untried: left_out(&kind, untried),
        source: source.clone(),
        kind,
    })
}

/// The newest failure of an agent that would have served a kind; none where its text is the cause already.
fn failed<'a>(kind: &KindOut, gone: &'a [GoneOut]) -> Option<&'a GoneOut> {
    let serves = |agent: &&GoneOut| kind.serve.iter().any(|one| one.template == agent.template);
    let last =
        gone.iter().filter(serves).find(|agent| FAILURES.contains(&agent.reason.as_str()))?;
    let cause = last.detail.rsplit(": ").next().unwrap_or_default();
    let cause = cause.split(';').next().unwrap_or_default();
    (!kind.why.contains(cause)).then_some(last)
}

/// Nodes that no template tries for a kind which a node keeps from being served.
fn left_out(kind: &KindOut, untried: &BTreeMap<String, Vec<UntriedOut>>) -> Vec<(String, String)> {
    let [one] = kind.serve.as_slice() else { return Vec::new() };
    let is_of_nodes = one.obstacle.as_ref().is_some_and(|text| text.contains("node `"));
    let nodes = untried.get(&one.template).filter(|_| is_of_nodes);
    nodes.map(|nodes| UntriedOut::together(nodes)).unwrap_or_default()
}

/// The cloud that alone keeps a kind from being served.
fn cloud_of(kind: &KindOut) -> Option<&str> {
    let (cloud, _) = kind.why.strip_prefix("cloud ")?.split_once(": ")?;
    let is_there = |template: &str| template.split('/').next() == Some(cloud);
    kind.serve.iter().all(|one| is_there(&one.template)).then_some(cloud)
}
