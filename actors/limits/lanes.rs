//! How many clones, destroys or starts run at once on each storage and each node of a cluster; who
//! waits is served in the order of asking, past those that wait for another storage or node. Pure.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use drover_model::id::{AgentId, NodeName};
use drover_model::spec::{CloneStrategy, CloudSpec, TemplateSpec};
use drover_model::time::Moment;

use crate::throttle::{End, Rule, Throttle, Turn, Work};

/// How long a full copy is expected to keep a storage's lock, which it does for making its volumes
/// and not for copying them (behaviour section 6).
const ALLOCATE: Duration = Duration::from_millis(500);

/// What an operation keeps busy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Track {
    /// The storages whose locks it takes, with their node's name before them where they are its own;
    /// one name for each template's own storages while nobody has read what those are.
    pub storages: BTreeSet<String>,
    /// The node it runs on.
    pub node: NodeName,
    /// What it does.
    pub work: Work,
}

impl Track {
    /// What a clone of this template keeps busy when the template is on this node.
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
            CloneStrategy::Full => ("full", Some(ALLOCATE)),
            CloneStrategy::Linked => ("linked", None),
        };
        Self { storages, node, work: Work { name: format!("{kind} {}", spec.source), holds } }
    }
}

/// How many at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Width {
    /// The most at once per storage.
    pub per_storage: u32,
    /// The most at once per node.
    pub per_node: u32,
    /// Whether fewer run where more would only wait, or fail.
    pub adapts: bool,
}

impl Width {
    /// What a cloud's configuration says.
    pub fn of(spec: &CloudSpec) -> Self {
        Self {
            per_storage: spec.clones_per_storage,
            per_node: spec.operations_per_node,
            adapts: spec.adapt_lanes,
        }
    }

    /// What several ways to one cluster agree on.
    pub fn narrower(self, other: Self) -> Self {
        Self {
            per_storage: self.per_storage.min(other.per_storage),
            per_node: self.per_node.min(other.per_node),
            adapts: self.adapts || other.adapts,
        }
    }
}

/// How a place in the lanes was made use of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LaneEnd {
    /// It was done.
    Done,
    /// It waited in vain for a storage's lock.
    StorageBusy,
    /// Its node did not answer in time.
    NodeBusy,
    /// It says nothing of either.
    Void,
    /// It says nothing of either, and what came of it is not known yet.
    InDoubt,
}

impl LaneEnd {
    fn for_storage(self) -> End {
        match self {
            Self::Done => End::Done,
            Self::StorageBusy => End::Contended,
            Self::NodeBusy | Self::Void | Self::InDoubt => End::Void,
        }
    }

    fn for_node(self) -> End {
        match self {
            Self::Done => End::Done,
            Self::NodeBusy => End::Contended,
            Self::StorageBusy | Self::Void | Self::InDoubt => End::Void,
        }
    }
}

/// By what the lanes of one kind of operation adapt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// Those of storages.
    pub storage: Rule,
    /// Those of nodes.
    pub node: Rule,
}

impl Default for Rules {
    /// Of a time, what was its node's doing can not be told from what was its storage's.
    fn default() -> Self {
        Self { storage: Rule::Timed, node: Rule::Faults }
    }
}

/// An operation that runs, and its turns.
#[derive(Debug, Clone, Default)]
struct Run {
    /// Whether it was begun here: how long others took nobody saw.
    seen: bool,
    storages: BTreeMap<String, Turn>,
    node: Option<(NodeName, Turn)>,
}

/// Who runs and who waits.
#[derive(Debug, Clone)]
pub struct Lanes<Who = AgentId> {
    rules: Rules,
    running: BTreeMap<Who, Run>,
    waiting: VecDeque<(Who, Track)>,
    storages: BTreeMap<String, Throttle>,
    nodes: BTreeMap<NodeName, Throttle>,
}

impl<Who: Ord + Clone> Default for Lanes<Who> {
    fn default() -> Self {
        Self::new(Rules::default())
    }
}

impl<Who: Ord + Clone> Lanes<Who> {
    /// Lanes in which nobody is.
    pub fn new(rules: Rules) -> Self {
        Self {
            rules,
            running: BTreeMap::new(),
            waiting: VecDeque::new(),
            storages: BTreeMap::new(),
            nodes: BTreeMap::new(),
        }
    }

    /// Counts an operation that is under way already, whatever the widths.
    pub fn hold(&mut self, who: Who, track: Track, now: Moment) {
        self.run(who, track, false, now);
    }

    fn run(&mut self, who: Who, track: Track, seen: bool, now: Moment) {
        let Track { storages, node, work } = track;
        let turns = storages.into_iter().map(|storage| {
            let turn = self.storages.entry(storage.clone()).or_default().begin(work.clone(), now);
            (storage, turn)
        });
        let storages = turns.collect();
        let turn = self.nodes.entry(node.clone()).or_default().begin(work, now);
        self.running.insert(who, Run { seen, storages, node: Some((node, turn)) });
    }

    /// Who runs.
    pub fn running(&self) -> impl Iterator<Item = &Who> {
        self.running.keys()
    }

    /// Lines somebody up; a second ask changes nothing.
    pub fn ask(&mut self, who: Who, track: Track) {
        let waits = self.waiting.iter().any(|(other, _)| *other == who);
        if !waits && !self.running.contains_key(&who) {
            self.waiting.push_back((who, track));
        }
    }

    /// Takes a place away, running or waiting.
    pub fn free(&mut self, who: &Who, end: LaneEnd, now: Moment) {
        let Run { seen, storages, node } = self.running.remove(who).unwrap_or_default();
        let end = if seen { end } else { LaneEnd::Void };
        for (storage, turn) in storages {
            if let Some(throttle) = self.storages.get_mut(&storage) {
                throttle.end(turn, end.for_storage(), now);
            }
        }
        if let Some((node, turn)) = node
            && let Some(throttle) = self.nodes.get_mut(&node)
        {
            throttle.end(turn, end.for_node(), now);
        }
        self.waiting.retain(|(other, _)| other != who);
    }

    /// Lets run whoever may. A width of zero counts as one: nothing could ever run otherwise.
    pub fn admit(&mut self, width: Width, now: Moment) -> Vec<(Who, Track)> {
        self.admit_where(width, now, |_| true)
    }

    /// The same, for those alone that `may` allows; it is asked of who would run then.
    pub fn admit_where(
        &mut self,
        width: Width,
        now: Moment,
        mut may: impl FnMut(&Who) -> bool,
    ) -> Vec<(Who, Track)> {
        let mut admitted = Vec::new();
        let mut left = VecDeque::new();
        for (who, track) in std::mem::take(&mut self.waiting) {
            if self.has_room(&track, width, now) && may(&who) {
                self.run(who.clone(), track.clone(), true, now);
                admitted.push((who, track));
            } else {
                left.push_back((who, track));
            }
        }
        self.waiting = left;
        admitted
    }

    fn has_room(&self, track: &Track, width: Width, now: Moment) -> bool {
        let fixed = Rules { storage: Rule::Fixed, node: Rule::Fixed };
        let rules = if width.adapts { self.rules } else { fixed };
        let fresh = Throttle::default();
        let fits = |throttle: Option<&Throttle>, rule, most| {
            let throttle = throttle.unwrap_or(&fresh);
            throttle.running() < throttle.width(&track.work, rule, most, now)
        };
        track
            .storages
            .iter()
            .all(|one| fits(self.storages.get(one), rules.storage, width.per_storage))
            && fits(self.nodes.get(&track.node), rules.node, width.per_node)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const WIDTH: Width = Width { per_storage: 2, per_node: 1, adapts: false };
    const NOW: Moment = Moment(0);

    fn agent(n: usize) -> AgentId {
        AgentId::new(format!("a{n}"))
    }

    fn track(storage: &str, node: &str) -> Track {
        Track {
            storages: BTreeSet::from([storage.to_owned()]),
            node: NodeName::new(node),
            work: Work { name: "linked 9000".into(), holds: None },
        }
    }

    fn names(admitted: Vec<(AgentId, Track)>) -> Vec<String> {
        admitted.into_iter().map(|(agent, _)| agent.to_string()).collect()
    }

    // Invariant: never more at once than the widths, first come first served.

    #[test]
    fn a_busy_node_makes_the_next_wait_and_another_node_does_not() {
        let mut lanes = Lanes::default();
        lanes.ask(agent(1), track("nfs", "pve1"));
        lanes.ask(agent(2), track("nfs", "pve1"));
        lanes.ask(agent(3), track("nfs", "pve2"));
        assert_eq!(names(lanes.admit(WIDTH, NOW)), ["a1", "a3"]);
        lanes.free(&agent(1), LaneEnd::Void, NOW);
        assert_eq!(names(lanes.admit(WIDTH, NOW)), ["a2"]);
    }

    #[test]
    fn a_busy_storage_holds_all_its_nodes_back() {
        let mut lanes = Lanes::default();
        for n in 1..4 {
            lanes.ask(agent(n), track("nfs", &format!("pve{n}")));
        }
        assert_eq!(names(lanes.admit(WIDTH, NOW)), ["a1", "a2"]);
        lanes.free(&agent(3), LaneEnd::Void, NOW);
        lanes.free(&agent(1), LaneEnd::Void, NOW);
        assert!(lanes.admit(WIDTH, NOW).is_empty());
    }

    #[test]
    fn asking_twice_takes_one_place() {
        let mut lanes = Lanes::default();
        lanes.ask(agent(1), track("nfs", "pve1"));
        lanes.ask(agent(1), track("nfs", "pve1"));
        assert_eq!(names(lanes.admit(WIDTH, NOW)), ["a1"]);
        lanes.ask(agent(1), track("nfs", "pve1"));
        lanes.free(&agent(1), LaneEnd::Void, NOW);
        assert!(lanes.admit(WIDTH, NOW).is_empty());
    }

    // Invariant: what was learned of one storage is that storage's alone.

    #[test]
    fn a_storage_whose_lock_was_waited_for_in_vain_takes_fewer_and_another_does_not() {
        let width = Width { per_storage: 16, per_node: 16, adapts: true };
        let mut lanes = Lanes::default();
        for n in 0..8 {
            lanes.run(agent(n), track("nfs", "pve1"), true, NOW);
            lanes.run(agent(n + 20), track("ceph", "pve1"), true, NOW);
        }
        for n in 0..8 {
            lanes.free(&agent(n), LaneEnd::StorageBusy, Moment(10_000));
            lanes.free(&agent(n + 20), LaneEnd::Done, Moment(10_000));
        }
        for n in 40..60 {
            lanes.ask(agent(n), track("nfs", "pve1"));
            lanes.ask(agent(n + 20), track("ceph", "pve1"));
        }
        let admitted = lanes.admit(width, Moment(11_000));
        let on = |storage: &str| {
            admitted.iter().filter(|(_, track)| track.storages.contains(storage)).count()
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
                why,
            };
            spec.origin = Some(origin);
            Track::of(&spec, home).storages
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
            let mut lanes = Lanes::default();
            for (n, storage, node, free) in steps {
                if free {
                    lanes.free(&agent(n), LaneEnd::Void, NOW);
                } else {
                    lanes.ask(agent(n), track(&format!("s{storage}"), &format!("n{node}")));
                }
                lanes.admit(WIDTH, NOW);
                for name in 0..3 {
                    let storage = format!("s{name}");
                    let runs = lanes.running.values();
                    let writing = runs.filter(|run| run.storages.contains_key(&storage)).count();
                    prop_assert!(writing <= 2);
                    let node = NodeName::new(format!("n{name}"));
                    let on_node = |run: &&Run| run.node.as_ref().is_some_and(|(at, _)| *at == node);
                    let cloning = lanes.running.values().filter(on_node).count();
                    prop_assert!(cloning <= 1);
                }
            }
        }
    }
}
