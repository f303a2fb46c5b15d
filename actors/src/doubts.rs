//! What holds new clones back: clouds that do not work, and clones of unknown outcome.
//!
//! A clone of unknown outcome says that the next clone may end the same way. Each such clone holds
//! a slot until a cluster with quorum reports its result. So the first one holds back all others on
//! the narrowest spot that its fault names:
//!
//! ```text
//!            doubt                    pause is over,            accepted
//!   open ──────────────▶ closed ──▶ or the doubt is resolved ──▶ one probe ──▶ open
//!                          ▲                                        │ doubt
//!                          └──────── twice the pause ───────────────┘
//! ```
//!
//! Agents write their doubts. The herd writes which clouds work. Clusters ask before they let a
//! clone start.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use drover_model::ambient::jittered;
use drover_model::fault::{Culprit, Fault, FaultKind};
use drover_model::id::{AgentId, CloudId, ClusterId, NodeName};
use drover_model::time::{Moment, Now, WallTime};

use drover_runtime::notifier::ChangeNotifier;

use crate::shared::{Shared, role};

/// The pause after the first doubt, before one clone is tried.
const PAUSE_FIRST: Duration = Duration::from_secs(5);
const PAUSE_LONGEST: Duration = Duration::from_secs(60);

/// What a doubt holds back.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Spot {
    Cluster(ClusterId),
    Cloud(CloudId),
    Node(ClusterId, NodeName),
}

impl Spot {
    /// The narrowest spot that a clone's fault names. `None` where the fault says nothing of other
    /// clones.
    pub fn of(fault: &Fault, cluster: &ClusterId, cloud: &CloudId) -> Option<Self> {
        let contended = fault.kind == FaultKind::Contention;
        match &fault.culprit {
            Culprit::Node(node) => Some(Self::Node(cluster.clone(), node.clone())),
            // A lost quorum and the cluster's own locks affect every cloud of the cluster.
            Culprit::Cloud(_) if contended => Some(Self::Cluster(cluster.clone())),
            Culprit::Cloud(cloud) => Some(Self::Cloud(cloud.clone())),
            // The task ended, or the id was somebody else's.
            Culprit::Guest => None,
            Culprit::Template | Culprit::Storage(_) | Culprit::Source(_) => {
                Some(Self::Cloud(cloud.clone()))
            }
        }
    }
}

/// Where a clone is made, and through which cloud.
#[derive(Debug, Clone, Copy)]
pub struct Path<'a> {
    pub cluster: &'a ClusterId,
    pub cloud: &'a CloudId,
    /// The node of the template image and the node of the clone.
    pub nodes: [Option<&'a NodeName>; 2],
}

impl Path<'_> {
    fn leads_over(&self, spot: &Spot) -> bool {
        match spot {
            Spot::Cluster(cluster) => cluster == self.cluster,
            Spot::Cloud(cloud) => cloud == self.cloud,
            Spot::Node(cluster, node) => {
                cluster == self.cluster && self.nodes.iter().flatten().any(|one| *one == node)
            }
        }
    }
}

#[derive(Debug, Clone)]
struct Doubt {
    since: WallTime,
    why: String,
    /// Agents whose clone's outcome is unknown.
    doubters: BTreeSet<AgentId>,
    /// Failures in a row: the first clone, and probes that ended in doubt too.
    failures: u32,
    /// When one clone may be tried.
    until: (Moment, WallTime),
    /// The agent of the clone that is tried.
    probe: Option<AgentId>,
}

impl Doubt {
    fn closed(&self, now: Moment, agent: Option<&AgentId>) -> Option<String> {
        let Self { since, why, .. } = self;
        let since = since.rfc3339();
        if let Some(probe) = &self.probe {
            let own = agent == Some(probe);
            let text = || {
                format!(
                    "the outcome of a clone is unknown since {since} ({why}); drover waits for \
                     one clone that it tries now"
                )
            };
            return (!own).then(text);
        }
        (now < self.until.0).then(|| {
            format!(
                "the outcome of a clone is unknown since {since} ({why}); drover tries one clone \
                 at {}",
                self.until.1.rfc3339()
            )
        })
    }

    fn pause(&self) -> Duration {
        let doublings = self.failures.saturating_sub(1).min(6);
        PAUSE_FIRST.saturating_mul(1 << doublings).min(PAUSE_LONGEST)
    }
}

#[derive(Debug, Default)]
struct All {
    /// Clouds that do not work, each with the reason.
    down: BTreeMap<CloudId, String>,
    spots: BTreeMap<Spot, Doubt>,
}

/// The doubts of one herd.
#[derive(Debug, Default)]
pub struct Doubts {
    all: RefCell<All>,
    changes: ChangeNotifier,
}

impl Doubts {
    /// Why no clone may start on this path. `None` when one may. An agent's own probe may go on.
    pub fn closed(&self, path: Path<'_>, agent: Option<&AgentId>, now: Moment) -> Option<String> {
        self.cloud_down(path.cloud).or_else(|| self.in_doubt(path, agent, now))
    }

    /// The doubt that lets no clone start on this path, whether its cloud works or not.
    fn in_doubt(&self, path: Path<'_>, agent: Option<&AgentId>, now: Moment) -> Option<String> {
        let all = self.all.borrow();
        let mut on_path = all.spots.iter().filter(|(spot, _)| path.leads_over(spot));
        on_path.find_map(|(_, doubt)| doubt.closed(now, agent))
    }

    /// Why no clone may start on a node. `None` when one may.
    pub fn node_closed(&self, cluster: &ClusterId, node: &NodeName, now: Moment) -> Option<String> {
        let spot = Spot::Node(cluster.clone(), node.clone());
        self.all.borrow().spots.get(&spot)?.closed(now, None)
    }

    /// Why a cloud does not work. `None` when it works.
    pub fn cloud_down(&self, cloud: &CloudId) -> Option<String> {
        self.all.borrow().down.get(cloud).cloned()
    }

    /// Why no cloud that leads to a cluster works, for people.
    pub fn no_way<'a>(&self, clouds: impl Iterator<Item = &'a CloudId>) -> String {
        let ways = clouds.map(|cloud| match self.cloud_down(cloud) {
            Some(why) => format!("cloud {cloud}: {why}"),
            None => format!("cloud {cloud}: not tried yet, or not configured any more"),
        });
        let ways: Vec<String> = ways.collect();
        if ways.is_empty() { "no cloud leads here".to_owned() } else { ways.join("; ") }
    }

    /// Whether nothing is in doubt and no cloud is down.
    pub fn is_clear(&self) -> bool {
        let all = self.all.borrow();
        all.down.is_empty() && all.spots.is_empty()
    }

    /// Why nothing starts through a cloud, whatever the node. `None` when something may start.
    pub fn trouble(
        &self,
        cloud: &CloudId,
        cluster: Option<&ClusterId>,
        now: Moment,
    ) -> Option<String> {
        self.cloud_down(cloud).or_else(|| self.held_back(cloud, cluster, now))
    }

    /// What holds clones back through a cloud that works. The herd may not know yet that the cloud
    /// works again.
    pub fn held_back(
        &self,
        cloud: &CloudId,
        cluster: Option<&ClusterId>,
        now: Moment,
    ) -> Option<String> {
        let unknown = ClusterId::new("");
        let cluster = cluster.unwrap_or(&unknown);
        self.in_doubt(Path { cluster, cloud, nodes: [None, None] }, None, now)
    }

    /// When the next pause is over.
    pub fn due(&self, now: Moment) -> Option<Moment> {
        let all = self.all.borrow();
        all.spots.values().map(|doubt| doubt.until.0).filter(|at| *at > now).min()
    }

    /// Resolves when something has changed since this call.
    pub fn change(&self) -> impl Future<Output = ()> + use<> {
        self.changes.changed()
    }
}

impl Shared<Doubts, role::Herd> {
    /// A cloud does not work: nothing starts through it.
    pub fn down(&self, cloud: &CloudId, why: &str) {
        let before = self.all.borrow_mut().down.insert(cloud.clone(), why.to_owned());
        if before.as_deref() != Some(why) {
            self.changes.notify();
        }
    }

    /// A cloud works and leads to a cluster. Where only one clone ended in doubt there, the next
    /// one may be tried at once.
    pub fn up(&self, cloud: &CloudId, cluster: Option<&ClusterId>, now: Now) {
        let mut changed = self.all.borrow_mut().down.remove(cloud).is_some();
        for (spot, doubt) in &mut self.all.borrow_mut().spots {
            let here = match spot {
                Spot::Cloud(of) => of == cloud,
                Spot::Cluster(of) => Some(of) == cluster,
                Spot::Node(..) => false,
            };
            if here && doubt.failures <= 1 && doubt.until.0 > now.mono {
                doubt.until = (now.mono, now.wall);
                changed = true;
            }
        }
        if changed {
            self.changes.notify();
        }
    }

    /// Removes a cloud that is not used any more.
    pub fn forget(&self, cloud: &CloudId) {
        let mut all = self.all.borrow_mut();
        all.down.remove(cloud);
        all.spots.remove(&Spot::Cloud(cloud.clone()));
        drop(all);
        self.changes.notify();
    }
}

impl Shared<Doubts, role::Agent> {
    /// The outcome of an agent's clone is unknown.
    pub fn doubt(&self, agent: &AgentId, spot: Spot, why: &str, now: Now, draw: u64) {
        let mut all = self.all.borrow_mut();
        let doubt = all.spots.entry(spot).or_insert_with(|| Doubt {
            since: now.wall,
            why: String::new(),
            doubters: BTreeSet::new(),
            failures: 0,
            until: (now.mono, now.wall),
            probe: None,
        });
        // Clones that ran together count as one failure.
        if doubt.failures == 0 || doubt.probe.as_ref() == Some(agent) {
            doubt.failures = doubt.failures.saturating_add(1);
            let pause = jittered(doubt.pause(), draw);
            doubt.until = (now.mono + pause, now.wall + pause);
            doubt.probe = None;
        }
        why.clone_into(&mut doubt.why);
        doubt.doubters.insert(agent.clone());
        drop(all);
        self.changes.notify();
    }

    /// Proxmox accepted a clone on this path, so other clones may start there.
    pub fn accepted(&self, path: Path<'_>) {
        let mut all = self.all.borrow_mut();
        let before = all.spots.len();
        all.spots.retain(|spot, _| !path.leads_over(spot));
        let changed = all.spots.len() != before;
        drop(all);
        if changed {
            self.changes.notify();
        }
    }
}

impl Shared<Doubts, role::Cluster> {
    /// Lets an agent's clone start where that is allowed, as the probe of every doubt on its path.
    pub fn admit(&self, path: Path<'_>, agent: &AgentId, now: Moment) -> bool {
        if self.closed(path, Some(agent), now).is_some() {
            return false;
        }
        let mut all = self.all.borrow_mut();
        let mut probes = false;
        for (_, doubt) in all.spots.iter_mut().filter(|(spot, _)| path.leads_over(spot)) {
            probes |= doubt.probe.replace(agent.clone()).as_ref() != Some(agent);
        }
        drop(all);
        if probes {
            self.changes.notify();
        }
        true
    }

    /// The outcome of an agent's clone is known, or the agent is gone.
    pub fn left(&self, agent: &AgentId) {
        let mut all = self.all.borrow_mut();
        let mut changed = false;
        all.spots.retain(|_, doubt| {
            if doubt.probe.as_ref() == Some(agent) {
                doubt.probe = None;
                changed = true;
            }
            let resolved = doubt.doubters.remove(agent) && doubt.doubters.is_empty();
            changed |= resolved;
            !resolved || doubt.probe.is_some()
        });
        drop(all);
        if changed {
            self.changes.notify();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::{CLUSTER, at};

    type OfHerd = Shared<Doubts, role::Herd>;

    fn agent(n: u32) -> AgentId {
        AgentId::new(format!("a{n}"))
    }

    fn cluster() -> ClusterId {
        ClusterId::new(CLUSTER)
    }

    /// Asks about a node, through a cloud.
    fn ask<T>(cloud: &str, node: &str, then: impl FnOnce(Path<'_>) -> T) -> T {
        let (cluster, cloud, node) = (cluster(), CloudId::new(cloud), NodeName::new(node));
        then(Path { cluster: &cluster, cloud: &cloud, nodes: [Some(&node), None] })
    }

    fn admit(doubts: &OfHerd, n: u32, second: u64) -> bool {
        ask("c", "pve1", |path| {
            doubts.playing::<role::Cluster>().admit(path, &agent(n), at(second).mono)
        })
    }

    fn doubt(doubts: &OfHerd, n: u32, spot: Spot, second: u64) {
        doubts.playing::<role::Agent>().doubt(&agent(n), spot, "no answer", at(second), 0);
    }

    fn on_cluster() -> Spot {
        Spot::Cluster(cluster())
    }

    // Invariant: after a doubt one clone at a time is tried, after a growing pause.

    #[test]
    fn one_clone_is_tried_after_the_pause_and_all_once_it_is_accepted() {
        let doubts = OfHerd::default();
        assert!(admit(&doubts, 1, 0) && admit(&doubts, 2, 0));
        doubt(&doubts, 1, on_cluster(), 0);
        doubt(&doubts, 2, on_cluster(), 1);
        assert!(!admit(&doubts, 3, 2));
        let due = doubts.due(at(2).mono).map_or(0, |due| due.0 / 1000 + 1);
        assert!((3..=8).contains(&due), "{due}");
        assert!(admit(&doubts, 3, due) && admit(&doubts, 3, due), "it is the probe");
        assert!(!admit(&doubts, 4, due + 600), "it is under way");
        ask("c", "pve2", |path| doubts.playing::<role::Agent>().accepted(path));
        assert!(admit(&doubts, 4, due) && admit(&doubts, 5, due));
    }

    #[test]
    fn a_probe_that_comes_to_doubt_doubles_the_pause_and_a_cloud_that_works_does_not_end_it() {
        let doubts = OfHerd::default();
        doubt(&doubts, 1, on_cluster(), 0);
        let (cloud, cluster) = (CloudId::new("c"), cluster());
        doubts.up(&cloud, Some(&cluster), at(1));
        assert!(admit(&doubts, 2, 1), "the first doubt may have been an endpoint's");
        doubt(&doubts, 2, on_cluster(), 2);
        doubts.up(&cloud, Some(&cluster), at(3));
        assert!(!admit(&doubts, 3, 6));
        assert!(admit(&doubts, 3, 20));
        doubts.playing::<role::Cluster>().left(&agent(3));
        assert!(admit(&doubts, 4, 20), "a probe without a result is followed by another");
    }

    #[test]
    fn a_resolved_doubt_holds_nothing_back() {
        let doubts = OfHerd::default();
        doubt(&doubts, 1, on_cluster(), 0);
        doubt(&doubts, 2, on_cluster(), 0);
        doubts.playing::<role::Cluster>().left(&agent(1));
        assert!(!admit(&doubts, 3, 1));
        doubts.playing::<role::Cluster>().left(&agent(2));
        assert!(admit(&doubts, 3, 1) && admit(&doubts, 4, 1));
    }

    // Invariant: only the narrowest spot that the fault names is held.

    #[test]
    fn a_doubt_holds_the_narrowest_spot_that_its_fault_names() {
        let (cluster, cloud) = (cluster(), CloudId::new("c"));
        let of = |kind, culprit| Spot::of(&Fault::new(kind, culprit, "x"), &cluster, &cloud);
        let node = NodeName::new("pve1");
        let on_node = of(FaultKind::UnknownOutcome, Culprit::Node(node.clone()));
        assert_eq!(on_node, Some(Spot::Node(cluster.clone(), node)));
        let by_cloud = || Culprit::Cloud(cloud.clone());
        assert_eq!(of(FaultKind::Contention, by_cloud()), Some(on_cluster()));
        let through = of(FaultKind::UnknownOutcome, by_cloud());
        assert_eq!(through, Some(Spot::Cloud(cloud.clone())));
        assert_eq!(of(FaultKind::UnknownOutcome, Culprit::Guest), None);
        let doubts = OfHerd::default();
        doubts.playing::<role::Agent>().doubt(
            &agent(1),
            through.unwrap_or_else(on_cluster),
            "x",
            at(0),
            0,
        );
        let closed = |cloud, node| ask(cloud, node, |path| doubts.closed(path, None, at(1).mono));
        assert!(closed("c", "pve1").is_some());
        assert_eq!(closed("other", "pve1"), None);
    }

    #[test]
    fn a_cloud_that_does_not_work_starts_nothing_until_it_does() {
        let (doubts, cloud) = (OfHerd::default(), CloudId::new("c"));
        doubts.down(&cloud, "no quorum");
        assert!(!admit(&doubts, 1, 9999));
        assert_eq!(doubts.trouble(&cloud, None, at(0).mono), Some("no quorum".into()));
        doubts.up(&cloud, None, at(0));
        assert!(admit(&doubts, 1, 0));
    }

    proptest! {
        /// Invariant, in any order of events: between a doubt and its end, no two clones that
        /// started after the doubt run at once.
        #[test]
        fn two_probes_are_never_under_way(steps in prop::collection::vec((0u8..4, 0u32..6), 1..80)) {
            let doubts = OfHerd::default();
            let mut probes: BTreeSet<u32> = BTreeSet::new();
            let mut open = true;
            for (second, (what, n)) in (0u64..).step_by(3).zip(steps) {
                match what {
                    0 => if admit(&doubts, n, second) && !open { probes.insert(n); },
                    1 => {
                        doubt(&doubts, n, on_cluster(), second);
                        probes.remove(&n);
                        open = false;
                    }
                    2 if probes.contains(&n) => {
                        ask("c", "pve1", |path| doubts.playing::<role::Agent>().accepted(path));
                        probes.clear();
                        open = true;
                    }
                    2 => {}
                    _ => {
                        doubts.playing::<role::Cluster>().left(&agent(n));
                        probes.remove(&n);
                    }
                }
                if doubts.all.borrow().spots.is_empty() {
                    open = true;
                    probes.clear();
                }
                prop_assert!(probes.len() <= 1, "{probes:?}");
            }
        }
    }
}
