//! Limits for clones, destroys and starts: how many run at once on each storage and each node of a
//! cluster.
//!
//! [`ConcurrencyLimits`] holds who runs and who waits. Callers line up with `enqueue`, ask who may
//! start with `admit`, and report each end with `release`. Those that wait are served in the order
//! in which they came; an operation whose storage or node is busy does not hold up one that needs
//! others. Pure: time is an argument.
//!
//! ```text
//! enqueue ──> waiting ──admit──> running: counts on its storages and its node ──release──> gone
//!                │                                                                │
//!                └── release: left the queue             widths learn from its end <┘
//! ```
//!
//! Each storage and each node has an `AdaptiveLimit`. The configuration ([`MaxConcurrent`]) sets
//! the most; [`AdaptRules`] says whether the limit learns from durations, from faults, or not at
//! all.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use drover_model::container::GuestType;
use drover_model::id::{AgentId, NodeName};
use drover_model::spec::{CloneStrategy, CloudSpec, TemplateSpec};
use drover_model::time::Moment;

use crate::adaptive::{Adapt, AdaptiveLimit, RunningWork, Work, WorkEnd};

/// How long a full clone is expected to hold its storage's lock: Proxmox holds the lock while it
/// allocates the volumes, not while it copies them (book: proxmox, section 6).
const FULL_CLONE_LOCK_TIME: Duration = Duration::from_millis(500);

/// What an operation keeps busy while it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Footprint {
    /// The storages whose locks it takes. A storage that is local to a node has the node's name in
    /// front of it. As long as nobody has read which storages a template has, one name stands for
    /// all of them.
    pub storages: BTreeSet<String>,
    /// The node that it runs on.
    pub node: NodeName,
    /// The kind of work, for the limits that learn from durations.
    pub work: Work,
    /// What no other operation may use meanwhile: Proxmox locks a container's template during the
    /// whole clone, and refuses a second one at once (book: proxmox, section 18).
    pub alone: Option<String>,
}

impl Footprint {
    /// The footprint of a clone of this template when the template image is on `node`.
    pub fn of(spec: &TemplateSpec, node: NodeName) -> Self {
        let origin = spec.origin.as_ref();
        let place = |storage: &String| match origin {
            Some(origin) if origin.local.contains(storage) => format!("{}/{storage}", origin.home),
            Some(_) | None => storage.clone(),
        };
        let own = || format!("the storage of template {}", spec.source);
        let read = origin.map(|origin| &origin.storages).filter(|read| !read.is_empty());
        let storages = match (&spec.target_storage, read) {
            (Some(target), _) => BTreeSet::from([place(target)]),
            (None, Some(read)) => read.iter().map(place).collect(),
            (None, None) => BTreeSet::from([own()]),
        };
        let (kind, holds) = match spec.clone {
            CloneStrategy::Full => ("full", Some(FULL_CLONE_LOCK_TIME)),
            CloneStrategy::Linked => ("linked", None),
        };
        let (name, alone) = match (spec.create(), spec.guest()) {
            (Some(create), _) => (format!("create {}", create.template.volume()), None),
            (None, GuestType::Vm) => (format!("{kind} {}", spec.source), None),
            (None, GuestType::Container) => {
                let template = format!("container template {}", spec.source);
                (format!("{kind} {}", spec.source), Some(template))
            }
        };
        Self { storages, node, work: Work { name, holds }, alone }
    }
}

/// The most operations at once, as configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MaxConcurrent {
    /// For each storage.
    pub per_storage: u32,
    /// For each node.
    pub per_node: u32,
    /// Whether the limits go lower by themselves where more operations would only wait or fail
    /// (`adaptLanes`).
    pub adapts: bool,
}

impl MaxConcurrent {
    /// Reads the limits from a cloud's configuration.
    pub fn of(spec: &CloudSpec) -> Self {
        Self {
            per_storage: spec.clones_per_storage,
            per_node: spec.operations_per_node,
            adapts: spec.adapt_lanes,
        }
    }

    /// Combines the limits of two clouds that lead to one cluster: the lower number counts.
    pub fn narrower(self, other: Self) -> Self {
        Self {
            per_storage: self.per_storage.min(other.per_storage),
            per_node: self.per_node.min(other.per_node),
            adapts: self.adapts || other.adapts,
        }
    }
}

/// How an operation ended, as far as it says something about its storage and its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OperationEnd {
    Done,
    /// It timed out while it waited for a storage's lock.
    StorageBusy,
    /// Its node did not answer in time.
    NodeBusy,
    /// Its end says nothing about storage or node.
    Inconclusive,
    /// Its end says nothing about storage or node, and its outcome is not known yet.
    InDoubt,
}

impl OperationEnd {
    fn for_storage(self) -> WorkEnd {
        match self {
            Self::Done => WorkEnd::Done,
            Self::StorageBusy => WorkEnd::Contended,
            Self::NodeBusy | Self::Inconclusive | Self::InDoubt => WorkEnd::Inconclusive,
        }
    }

    fn for_node(self) -> WorkEnd {
        match self {
            Self::Done => WorkEnd::Done,
            Self::NodeBusy => WorkEnd::Contended,
            Self::StorageBusy | Self::Inconclusive | Self::InDoubt => WorkEnd::Inconclusive,
        }
    }
}

/// How the limits of one kind of operation adapt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdaptRules {
    pub storage: Adapt,
    pub node: Adapt,
}

impl Default for AdaptRules {
    /// A duration does not show whether the node or the storage was slow, so only the storage's
    /// limit learns from durations.
    fn default() -> Self {
        Self { storage: Adapt::ByTimes, node: Adapt::ByFaults }
    }
}

/// An operation that runs, with the work it counts as on each storage and on its node.
#[derive(Debug, Clone, Default)]
struct Operation {
    /// Whether `admit` started it. The duration of an adopted operation is not known.
    started_here: bool,
    storages: BTreeMap<String, RunningWork>,
    node: Option<(NodeName, RunningWork)>,
    alone: Option<String>,
}

/// Who runs and who waits on the storages and nodes of one cluster.
#[derive(Debug, Clone)]
pub struct ConcurrencyLimits<Who = AgentId> {
    rules: AdaptRules,
    running: BTreeMap<Who, Operation>,
    waiting: VecDeque<(Who, Footprint)>,
    storages: BTreeMap<String, AdaptiveLimit>,
    nodes: BTreeMap<NodeName, AdaptiveLimit>,
}

impl<Who: Ord + Clone> Default for ConcurrencyLimits<Who> {
    fn default() -> Self {
        Self::new(AdaptRules::default())
    }
}

impl<Who: Ord + Clone> ConcurrencyLimits<Who> {
    /// Limits without a running or waiting operation.
    pub fn new(rules: AdaptRules) -> Self {
        Self {
            rules,
            running: BTreeMap::new(),
            waiting: VecDeque::new(),
            storages: BTreeMap::new(),
            nodes: BTreeMap::new(),
        }
    }

    /// Counts an operation that runs already, even where this exceeds the limits.
    pub fn adopt(&mut self, who: Who, footprint: Footprint, now: Moment) {
        self.run(who, footprint, false, now);
    }

    fn run(&mut self, who: Who, footprint: Footprint, started_here: bool, now: Moment) {
        let Footprint { storages, node, work, alone } = footprint;
        let works = storages.into_iter().map(|storage| {
            let running_work =
                self.storages.entry(storage.clone()).or_default().begin(work.clone(), now);
            (storage, running_work)
        });
        let storages = works.collect();
        let running_work = self.nodes.entry(node.clone()).or_default().begin(work, now);
        self.running.insert(
            who,
            Operation { started_here, storages, node: Some((node, running_work)), alone },
        );
    }

    /// Those that run, in order.
    pub fn running(&self) -> impl Iterator<Item = &Who> {
        self.running.keys()
    }

    /// Puts an operation into the queue. Nothing changes when it waits or runs already.
    pub fn enqueue(&mut self, who: Who, footprint: Footprint) {
        let waits = self.waiting.iter().any(|(other, _)| *other == who);
        if !waits && !self.running.contains_key(&who) {
            self.waiting.push_back((who, footprint));
        }
    }

    /// Removes an operation, whether it runs or waits, and learns from its end.
    pub fn release(&mut self, who: &Who, end: OperationEnd, now: Moment) {
        let Operation { started_here, storages, node, alone: _ } =
            self.running.remove(who).unwrap_or_default();
        let end = if started_here { end } else { OperationEnd::Inconclusive };
        for (storage, running_work) in storages {
            if let Some(limit) = self.storages.get_mut(&storage) {
                limit.end(running_work, end.for_storage(), now);
            }
        }
        if let Some((node, running_work)) = node
            && let Some(limit) = self.nodes.get_mut(&node)
        {
            limit.end(running_work, end.for_node(), now);
        }
        self.waiting.retain(|(other, _)| other != who);
    }

    /// Starts the operations that have room now. A limit of zero counts as one, or nothing could
    /// ever run.
    pub fn admit(&mut self, width: MaxConcurrent, now: Moment) -> Vec<(Who, Footprint)> {
        self.admit_where(width, now, |_| true)
    }

    /// Like [`Self::admit`], but starts only those that `may` allows. `may` is called only for an
    /// operation that has room.
    pub fn admit_where(
        &mut self,
        width: MaxConcurrent,
        now: Moment,
        mut may: impl FnMut(&Who) -> bool,
    ) -> Vec<(Who, Footprint)> {
        let mut admitted = Vec::new();
        let mut left = VecDeque::new();
        for (who, footprint) in std::mem::take(&mut self.waiting) {
            if self.fits(&footprint, width, now) && may(&who) {
                self.run(who.clone(), footprint.clone(), true, now);
                admitted.push((who, footprint));
            } else {
                left.push_back((who, footprint));
            }
        }
        self.waiting = left;
        admitted
    }

    fn fits(&self, footprint: &Footprint, width: MaxConcurrent, now: Moment) -> bool {
        let fixed = AdaptRules { storage: Adapt::Fixed, node: Adapt::Fixed };
        let rules = if width.adapts { self.rules } else { fixed };
        let fresh = AdaptiveLimit::default();
        let fits = |limit: Option<&AdaptiveLimit>, rule, most| {
            let limit = limit.unwrap_or(&fresh);
            limit.running() < limit.width(&footprint.work, rule, most, now)
        };
        let taken = |alone| self.running.values().any(|other| other.alone.as_ref() == Some(alone));
        !footprint.alone.as_ref().is_some_and(taken)
            && footprint
                .storages
                .iter()
                .all(|one| fits(self.storages.get(one), rules.storage, width.per_storage))
            && fits(self.nodes.get(&footprint.node), rules.node, width.per_node)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const WIDTH: MaxConcurrent = MaxConcurrent { per_storage: 2, per_node: 1, adapts: false };
    const NOW: Moment = Moment(0);

    fn agent(n: usize) -> AgentId {
        AgentId::new(format!("a{n}"))
    }

    fn footprint(storage: &str, node: &str) -> Footprint {
        Footprint {
            storages: BTreeSet::from([storage.to_owned()]),
            node: NodeName::new(node),
            work: Work { name: "linked 9000".into(), holds: None },
            alone: None,
        }
    }

    fn names(admitted: Vec<(AgentId, Footprint)>) -> Vec<String> {
        admitted.into_iter().map(|(agent, _)| agent.to_string()).collect()
    }

    // Invariant: no more operations run at once than the limits allow, and the first to come is
    // served first.

    #[test]
    fn a_busy_node_makes_the_next_wait_and_another_node_does_not() {
        let mut limits = ConcurrencyLimits::default();
        limits.enqueue(agent(1), footprint("nfs", "pve1"));
        limits.enqueue(agent(2), footprint("nfs", "pve1"));
        limits.enqueue(agent(3), footprint("nfs", "pve2"));
        assert_eq!(names(limits.admit(WIDTH, NOW)), ["a1", "a3"]);
        limits.release(&agent(1), OperationEnd::Inconclusive, NOW);
        assert_eq!(names(limits.admit(WIDTH, NOW)), ["a2"]);
    }

    #[test]
    fn what_is_used_alone_is_used_by_one_at_a_time() {
        let alone = |node: &str, template: u32| {
            let alone = Some(format!("container template {template}"));
            Footprint { alone, ..footprint(node, node) }
        };
        let mut limits = ConcurrencyLimits::default();
        limits.enqueue(agent(1), alone("pve1", 9100));
        limits.enqueue(agent(2), alone("pve2", 9100));
        limits.enqueue(agent(3), alone("pve3", 9101));
        assert_eq!(names(limits.admit(WIDTH, NOW)), ["a1", "a3"]);
        limits.release(&agent(1), OperationEnd::Done, NOW);
        assert_eq!(names(limits.admit(WIDTH, NOW)), ["a2"]);
    }

    #[test]
    fn a_busy_storage_holds_all_its_nodes_back() {
        let mut limits = ConcurrencyLimits::default();
        for n in 1..4 {
            limits.enqueue(agent(n), footprint("nfs", &format!("pve{n}")));
        }
        assert_eq!(names(limits.admit(WIDTH, NOW)), ["a1", "a2"]);
        limits.release(&agent(3), OperationEnd::Inconclusive, NOW);
        limits.release(&agent(1), OperationEnd::Inconclusive, NOW);
        assert!(limits.admit(WIDTH, NOW).is_empty());
    }

    #[test]
    fn asking_twice_takes_one_place() {
        let mut limits = ConcurrencyLimits::default();
        limits.enqueue(agent(1), footprint("nfs", "pve1"));
        limits.enqueue(agent(1), footprint("nfs", "pve1"));
        assert_eq!(names(limits.admit(WIDTH, NOW)), ["a1"]);
        limits.enqueue(agent(1), footprint("nfs", "pve1"));
        limits.release(&agent(1), OperationEnd::Inconclusive, NOW);
        assert!(limits.admit(WIDTH, NOW).is_empty());
    }

    // Invariant: what is learned about one storage applies to that storage only.

    #[test]
    fn a_storage_whose_lock_was_waited_for_in_vain_takes_fewer_and_another_does_not() {
        let width = MaxConcurrent { per_storage: 16, per_node: 16, adapts: true };
        let mut limits = ConcurrencyLimits::default();
        for n in 0..8 {
            limits.run(agent(n), footprint("nfs", "pve1"), true, NOW);
            limits.run(agent(n + 20), footprint("ceph", "pve1"), true, NOW);
        }
        for n in 0..8 {
            limits.release(&agent(n), OperationEnd::StorageBusy, Moment(10_000));
            limits.release(&agent(n + 20), OperationEnd::Done, Moment(10_000));
        }
        for n in 40..60 {
            limits.enqueue(agent(n), footprint("nfs", "pve1"));
            limits.enqueue(agent(n + 20), footprint("ceph", "pve1"));
        }
        let admitted = limits.admit(width, Moment(11_000));
        let on = |storage: &str| {
            admitted.iter().filter(|(_, footprint)| footprint.storages.contains(storage)).count()
        };
        assert_eq!((on("nfs"), on("ceph")), (2, 3));
    }

    #[test]
    fn two_templates_on_one_storage_share_its_lane_and_equal_names_on_two_nodes_do_not() {
        let on = |source: u32, home: &str, local: bool| {
            let id = drover_model::testing::template("c/t", &[]).id;
            let mut spec = TemplateSpec::bare(id, drover_model::id::VmId(source));
            let storages = BTreeSet::from(["lvm".to_owned()]);
            let local = if local { storages.clone() } else { BTreeSet::new() };
            let home = NodeName::new(home);
            let why = String::new();
            let (target, sizes, from) =
                (None, drover_model::placement::Sizes::default(), home.clone());
            let origin = drover_model::template_image::Origin {
                home: from,
                storages,
                local,
                target,
                sizes,
                version: None,
                why,
            };
            spec.origin = Some(origin);
            Footprint::of(&spec, home).storages
        };
        assert_eq!(on(9000, "pve1", true), on(9001, "pve1", true));
        assert_ne!(on(9000, "pve1", true), on(9000, "pve2", true));
        assert_eq!(on(9000, "pve1", false), on(9000, "pve2", false));
    }

    proptest! {
        #[test]
        fn the_widths_hold_under_any_order(
            steps in prop::collection::vec((0usize..12, 0u8..3, 0u8..3, any::<bool>()), 1..120)
        ) {
            let mut limits = ConcurrencyLimits::default();
            for (n, storage, node, release) in steps {
                if release {
                    limits.release(&agent(n), OperationEnd::Inconclusive, NOW);
                } else {
                    limits.enqueue(agent(n), footprint(&format!("s{storage}"), &format!("n{node}")));
                }
                limits.admit(WIDTH, NOW);
                for name in 0..3 {
                    let storage = format!("s{name}");
                    let runs = limits.running.values();
                    let writing = runs.filter(|run| run.storages.contains_key(&storage)).count();
                    prop_assert!(writing <= 2);
                    let node = NodeName::new(format!("n{name}"));
                    let on_node = |run: &&Operation| run.node.as_ref().is_some_and(|(at, _)| *at == node);
                    let cloning = limits.running.values().filter(on_node).count();
                    prop_assert!(cloning <= 1);
                }
            }
        }
    }
}
