//! The choice of a clone: which template images of the cluster fit, and which image, node and
//! storage the next agent takes. Pure.

mod passed;
mod standing;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use drover_model::id::{NodeName, TemplateId, VmId};
use drover_model::placement::{Refusal, Sizes, Strategy, Thickness};
use drover_model::spec::{CloneStrategy, TemplateSpec};
use drover_model::template_image::{Candidate, Found, Origin, Sought};

use crate::placement::rank::{self, Seat};
use crate::placement::{Claim, Crowds, Scene};
use passed::in_a_sentence;
pub use standing::Standing;

/// What closes nodes and storages, and what drover's own agents take of them.
pub trait Ground {
    /// Why nothing may start on a node. `None` when something may.
    fn node_closed(&self, node: &NodeName) -> Option<String>;
    /// Why nothing may start on a storage, which belongs to one node or is shared. `None` when
    /// something may.
    fn storage_closed(&self, storage: &str, own: Option<&NodeName>) -> Option<String>;
    /// The resources that drover's own agents take on the cluster.
    fn claims(&self) -> &[Claim];
}

/// What the next agent is cloned from, and where to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// The VMID of the template image.
    pub vmid: VmId,
    /// The node of the clone.
    pub node: NodeName,
    /// The storage of a full clone's disks. `None` for that of the template image.
    pub storage: Option<String>,
    pub origin: Origin,
}

impl Choice {
    /// The spec of an agent that is cloned this way.
    pub fn apply(&self, spec: &TemplateSpec) -> TemplateSpec {
        TemplateSpec {
            node: Some(self.node.clone()),
            source: self.vmid,
            target_storage: self.storage.clone(),
            origin: Some(self.origin.clone()),
            ..spec.clone()
        }
    }
}

/// How the reason begins for which nothing is cloned of an image that has no version.
pub(crate) fn lacks_version(image: &TemplateId) -> String {
    format!("image `{}` has no version on cloud `{}`", image.name, image.cloud)
}

/// Chooses the template image, node and storage of the next clone, or says why nothing can be
/// cloned now.
///
/// - Of several nodes with room, [`rank`] picks one.
/// - Each node takes the newest image that it can reach. When images are sought by name, a node
///   prefers its own, of which there must be exactly one.
/// - The age is the creation time that Proxmox reports. Of several images with equal or unknown age
///   the highest VMID wins.
/// - Where no node is named, the newest image of all is taken on its own node, and an older one
///   only where nothing can start there.
/// - Where nodes are preferred and none is named, every node that reaches an image may be taken.
pub fn choose(spec: &TemplateSpec, found: &Found, ground: &dyn Ground) -> Result<Choice, String> {
    if found.candidates.is_empty() {
        let cloud = &spec.id.cloud;
        return Err(match spec.image() {
            Some(image) => {
                let (lacks, name) = (lacks_version(&image), &image.name);
                format!("{lacks}: `drover image build {name}` builds one")
            }
            None => format!("no template {} on cloud `{cloud}`", spec.sought()),
        });
    }
    let choosing = Choosing::new(spec, found, ground);
    let mut passed: Vec<String> = Vec::new();
    let named = choosing.nodes();
    let mut fit: Vec<(Seat, Choice)> = Vec::new();
    if named.is_empty() {
        for candidate in &choosing.best {
            match choosing.take(candidate, &candidate.node) {
                Ok(choice) => {
                    fit.push((Seat { at: 0, agents: 0, left: None }, choice));
                    break;
                }
                Err(why) => note(&mut passed, why),
            }
        }
    }
    for (at, node) in named.iter().enumerate() {
        match choosing.reach(node) {
            Ok(choice) => fit.push((choosing.seat(at, &choice), choice)),
            Err(why) => note(&mut passed, why),
        }
    }
    let (seats, mut choices): (Vec<Seat>, Vec<Choice>) = fit.into_iter().unzip();
    let nodes: Vec<&NodeName> = choices.iter().map(|choice| &choice.node).collect();
    let Some(first) = rank::order_on(&spec.placement, &seats, &nodes).first().copied() else {
        return Err(in_a_sentence(&passed));
    };
    let mut choice = choices.swap_remove(first);
    choice.origin.why = choosing.explain(&choice, &passed);
    Ok(choice)
}

/// What closes each node that a template's agents may be on. `None` where nothing does.
pub fn survey(
    spec: &TemplateSpec,
    found: &Found,
    ground: &dyn Ground,
) -> Vec<(NodeName, Option<String>)> {
    let choosing = Choosing::new(spec, found, ground);
    let nodes = choosing.places().into_iter();
    nodes
        .map(|node| {
            let why = choosing.reach(&node).err().map(|why| of_itself(&node, &why));
            (node, why)
        })
        .collect()
}

/// The nodes of the cluster that a template never tries, each with why.
pub fn untried(spec: &TemplateSpec, found: &Found, ground: &dyn Ground) -> Vec<(NodeName, String)> {
    let by_name = spec.untried(found.fleet.nodes().keys());
    if !by_name.is_empty() {
        return by_name;
    }
    let choosing = Choosing::new(spec, found, ground);
    let places = choosing.places();
    let homes: Vec<&str> = choosing.homes.keys().map(|node| node.as_str()).collect();
    if homes.is_empty() {
        return Vec::new();
    }
    let others = found.fleet.nodes().keys().filter(|node| !places.contains(node));
    let why = format!("what is cloned is on {}, and no node is named", homes.join(", "));
    others.map(|node| (node.clone(), why.clone())).collect()
}

/// The keys of the configuration without whose change no node ever takes an agent; empty where one may.
pub fn lasting_keys(
    spec: &TemplateSpec,
    found: &Found,
    ground: &dyn Ground,
) -> BTreeSet<&'static str> {
    let choosing = Choosing::new(spec, found, ground);
    let places = choosing.places().into_iter();
    let keys = places.map(|node| match choosing.shut(&node) {
        Some(_) => None,
        None => choosing.lasting_key(&node),
    });
    keys.collect::<Option<BTreeSet<_>>>().unwrap_or_default()
}

/// The text without the node's name, for use behind that name.
fn of_itself(node: &NodeName, why: &str) -> String {
    why.replace(&format!("node `{node}`: "), "")
}

/// How many more agents of a template there is room for now. `None` where that is unknown.
pub fn room(spec: &TemplateSpec, found: &Found, ground: &dyn Ground) -> Option<u64> {
    let choosing = Choosing::new(spec, found, ground);
    let mut all = 0;
    for node in choosing.places() {
        if let Ok(choice) = choosing.reach(&node) {
            all += choosing.scene.fits(spec, choice.origin.sizes, &node)?;
        }
    }
    Some(all)
}

/// Adds a reason once.
fn note(passed: &mut Vec<String>, why: String) {
    if !passed.contains(&why) {
        passed.push(why);
    }
}

struct Choosing<'a> {
    spec: &'a TemplateSpec,
    found: &'a Found,
    ground: &'a dyn Ground,
    scene: Scene<'a>,
    crowds: Crowds<'a>,
    sought: Sought,
    /// The candidates, newest first.
    best: Vec<&'a Candidate>,
    /// The number of candidates on each node.
    homes: BTreeMap<&'a NodeName, usize>,
    /// The candidates that other nodes reach over shared storage, newest first.
    shared: Vec<&'a Candidate>,
}

impl<'a> Choosing<'a> {
    fn new(spec: &'a TemplateSpec, found: &'a Found, ground: &'a dyn Ground) -> Self {
        let mut best: Vec<&Candidate> = found.candidates.iter().collect();
        best.sort_by_key(|one| Reverse((one.created, one.vmid)));
        let mut homes: BTreeMap<&NodeName, usize> = BTreeMap::new();
        for one in &best {
            *homes.entry(&one.node).or_default() += 1;
        }
        let shared = best.iter().copied().filter(|one| found.is_shared(&one.storages)).collect();
        let scene = Scene::new(&found.fleet, ground.claims());
        let crowds = scene.crowds(spec);
        Self { spec, found, ground, scene, crowds, sought: spec.sought(), best, homes, shared }
    }

    /// The nodes an agent may be on, preferred ones first. Empty where only the nodes of the images
    /// count.
    fn nodes(&self) -> Vec<NodeName> {
        let placement = &self.spec.placement;
        let mut nodes: Vec<NodeName> = if placement.anywhere {
            self.found.fleet.nodes().keys().cloned().collect()
        } else if self.spec.roams() {
            self.reaching()
        } else {
            self.spec.nodes()
        };
        nodes.sort_by_key(|node| placement.preference(node));
        nodes
    }

    /// The nodes that have an image, or reach one over shared storage.
    fn reaching(&self) -> Vec<NodeName> {
        let others = self.found.fleet.nodes().keys().filter(|_| !self.shared.is_empty());
        let all: BTreeSet<&NodeName> = self.homes.keys().copied().chain(others).collect();
        all.into_iter().cloned().collect()
    }

    /// The nodes an agent may be on. Where no node is named, those of the images.
    fn places(&self) -> Vec<NodeName> {
        match self.nodes() {
            nodes if nodes.is_empty() => self.homes.keys().copied().cloned().collect(),
            nodes => nodes,
        }
    }

    /// What a node has left once it takes a choice.
    fn seat(&self, at: usize, choice: &Choice) -> Seat {
        self.scene.seat(&self.spec.placement, choice.origin.sizes, at, &choice.node)
    }

    /// The choice of the first candidate that a node can take.
    fn reach(&self, node: &NodeName) -> Result<Choice, String> {
        if let Some(why) = self.shut(node) {
            return Err(why);
        }
        let mut passed = Vec::new();
        for candidate in self.order(node) {
            match self.take(candidate, node) {
                Ok(choice) => return Ok(choice),
                Err(why) => note(&mut passed, why),
            }
        }
        if passed.is_empty() {
            let sought = &self.sought;
            passed.push(format!("no template {sought} on node `{node}`, or on storage it shares"));
        }
        Err(passed.join("; "))
    }

    /// The key that keeps every candidate that a node reaches from it for good.
    fn lasting_key(&self, node: &NodeName) -> Option<&'static str> {
        let keys = self.order(node).into_iter().map(|candidate| {
            let sizes = candidate.sizes.cloned(self.spec);
            self.scene.refusal(self.spec, &self.crowds, sizes, node)?.key()
        });
        keys.collect::<Option<Vec<_>>>()?.first().copied()
    }

    /// The candidates that a node reaches: its own first where images are sought by name, otherwise
    /// newest first.
    fn order(&self, node: &NodeName) -> Vec<&'a Candidate> {
        let own: Vec<&Candidate> = match self.homes.get(node) {
            Some(_) => self.best.iter().copied().filter(|one| one.node == *node).collect(),
            None => Vec::new(),
        };
        let others = self.shared.iter().copied().filter(|one| one.node != *node);
        let mut order: Vec<&Candidate> = own.into_iter().chain(others).collect();
        if !matches!(self.sought.by(), Sought::Name(_)) {
            order.sort_by_key(|one| Reverse((one.created, one.vmid)));
        }
        order
    }

    /// Why nothing can start on a node.
    fn shut(&self, node: &NodeName) -> Option<String> {
        let reported = |why: Refusal| Some(format!("node `{node}`: {why}"));
        let nodes = self.found.fleet.nodes();
        match nodes.get(node) {
            Some(observation) if observation.offline => return reported(Refusal::Offline),
            Some(observation) if observation.maintenance => {
                return reported(Refusal::Maintenance(node.clone()));
            }
            None if !nodes.is_empty() => return reported(Refusal::Unknown),
            Some(_) | None => {}
        }
        self.ground.node_closed(node).and_then(|why| reported(Refusal::Closed(why)))
    }

    /// Several images of one name on one node: drover cannot know which one is meant.
    fn is_doubled(&self, candidate: &Candidate) -> Option<String> {
        let Sought::Name(name) = self.sought.by() else { return None };
        if self.homes.get(&candidate.node).is_none_or(|count| *count < 2) {
            return None;
        }
        let same = self.best.iter().filter(|one| one.node == candidate.node);
        let mut all: Vec<u32> = same.map(|one| one.vmid.0).collect();
        all.sort_unstable();
        let all: Vec<String> = all.iter().map(u32::to_string).collect();
        Some(format!(
            "several templates on node `{}` are called `{name}`: {}; rename all but one, or use \
             templateTag, of which the newest is taken",
            candidate.node,
            all.join(", ")
        ))
    }

    /// A clone of one candidate for a node, where nothing forbids it.
    fn take(&self, candidate: &Candidate, node: &NodeName) -> Result<Choice, String> {
        // The work is done on the image's own node, wherever the clone goes (book: proxmox, section
        // 9).
        for at in [&candidate.node, node] {
            if let Some(why) = self.shut(at) {
                return Err(why);
            }
        }
        if let Some(why) = self.is_doubled(candidate) {
            return Err(why);
        }
        let closed = candidate.storages.iter().find_map(|one| self.storage_closed(candidate, one));
        if let Some(why) = closed {
            return Err(why);
        }
        let sizes = candidate.sizes.cloned(self.spec);
        if let Some(why) = self.scene.refusal(self.spec, &self.crowds, sizes, node) {
            return Err(format!("node `{node}`: {why}"));
        }
        let storage = self.storage(candidate, node, sizes)?;
        let storages: BTreeSet<String> =
            candidate.storages.iter().chain(&storage).cloned().collect();
        let local = storages.iter().filter(|one| !self.found.fleet.is_shared(one));
        let local = local.cloned().collect();
        let own = || (candidate.storages.len() == 1).then(|| candidate.storages.first().cloned());
        let target = storage.clone().or_else(|| own().flatten());
        if let Some(why) = self.lacks_disks(node, target.as_deref(), sizes) {
            return Err(why);
        }
        let home = candidate.node.clone();
        let version = candidate.version(&self.sought);
        let why = String::new();
        let origin = Origin { home, storages, local, target, sizes, version, why };
        Ok(Choice { vmid: candidate.vmid, node: node.clone(), storage, origin })
    }

    fn storage_closed(&self, candidate: &Candidate, storage: &str) -> Option<String> {
        let own = (!self.found.fleet.is_shared(storage)).then_some(&candidate.node);
        let why = self.ground.storage_closed(storage, own)?;
        Some(format!("storage `{storage}`: {why}"))
    }

    /// The storage of a full clone's disks, where it is not the image's: the one with the most free
    /// space, or the first where the free space of any is unknown. `None` for the image's own.
    fn storage(
        &self,
        candidate: &Candidate,
        node: &NodeName,
        sizes: Sizes,
    ) -> Result<Option<String>, String> {
        let placement = &self.spec.placement;
        let fleet = &self.found.fleet;
        let kind = placement.thickness;
        let guest = self.spec.guest();
        let of_kind = || {
            let fit = fleet.for_guests(&candidate.node, guest);
            fit.map(|one| one.name.clone()).collect()
        };
        let wanted: Vec<String> = match (&self.spec.storages[..], self.spec.clone) {
            // A linked clone stays on the image's storage, whatever else is named.
            (_, CloneStrategy::Linked) => Vec::new(),
            ([], CloneStrategy::Full) => match (&self.spec.target_storage, kind) {
                (Some(one), _) => vec![one.clone()],
                (None, Some(_)) => of_kind(),
                (None, None) => Vec::new(),
            },
            (several, CloneStrategy::Full) => several.to_vec(),
        };
        if wanted.is_empty() {
            let copied = self.spec.clone == CloneStrategy::Full;
            let disk = if copied { sizes.disk_gb } else { 0 };
            let lacks = candidate.storages.iter().find_map(|one| self.lacks(candidate, one, disk));
            return lacks.map_or(Ok(None), Err);
        }
        let mut passed = Vec::new();
        let mut fit: Vec<(String, Option<i64>)> = Vec::new();
        for one in wanted {
            let away = candidate.node != *node && !fleet.is_shared(&one);
            let away = away.then(|| {
                format!(
                    "storage `{one}` is not shared, and the template is on `{}`",
                    candidate.node
                )
            });
            let observation = fleet.storage(&one, &candidate.node);
            let other = kind.filter(|kind| observation.is_none_or(|one| one.thickness() != *kind));
            let other = other.map(|kind| format!("storage `{one}` is not {}", kind.word()));
            let why = away
                .or(other)
                .or_else(|| self.storage_closed(candidate, &one))
                .or_else(|| self.lacks(candidate, &one, sizes.disk_gb));
            match why {
                Some(why) => passed.push(why),
                None => fit.push((
                    one,
                    observation.and_then(|observation| self.scene.free_space(observation)),
                )),
            }
        }
        let reported = fit.iter().all(|(_, free)| free.is_some());
        if reported && placement.strategy != Strategy::Fixed {
            fit.sort_by_key(|(_, free)| Reverse(*free));
        }
        match fit.into_iter().next() {
            Some((first, _)) => Ok(Some(first)),
            None if passed.is_empty() => {
                let word = kind.map_or("fit", Thickness::word);
                Err(format!("no storage of node `{}` takes {word} disks", candidate.node))
            }
            None => Err(passed.join("; ")),
        }
    }

    /// Which storage of a node has no room for the disks of `hardware.disks`, beside a clone's own disk
    /// where that is copied to the same one.
    fn lacks_disks(&self, node: &NodeName, target: Option<&str>, sizes: Sizes) -> Option<String> {
        let hardware = &self.spec.hardware;
        let names: BTreeSet<&str> = hardware.disks.iter().map(|disk| &*disk.storage).collect();
        names.into_iter().find_map(|name| {
            let observation = self.found.fleet.storage(name, node)?;
            let copied = self.spec.clone == CloneStrategy::Full && target == Some(name);
            let disk_gb = hardware.disks_on(name) + if copied { sizes.disk_gb } else { 0 };
            let headroom = &self.spec.placement.headroom;
            let why = self.scene.lacks_space(observation, disk_gb, headroom)?;
            let with = if copied { "the clone and hardware.disks" } else { "hardware.disks" };
            Some(format!("node `{node}`: storage `{name}` ({with}): {why}"))
        })
    }

    /// Why a storage has no room for a disk.
    fn lacks(&self, candidate: &Candidate, storage: &str, disk_gb: u64) -> Option<String> {
        let observation = self.found.fleet.storage(storage, &candidate.node)?;
        let headroom = &self.spec.placement.headroom;
        let why = self.scene.lacks_space(observation, disk_gb, headroom)?;
        Some(format!("storage `{storage}`: {why}"))
    }

    /// Describes the choice: from how many, and what was passed over.
    fn explain(&self, choice: &Choice, passed: &[String]) -> String {
        let Choice { vmid, node, origin, .. } = choice;
        if let Sought::Os(template) = &self.sought {
            let mut text = format!("a new container of `{}` on node {node}", template.volume());
            add_passed(&mut text, passed);
            return text;
        }
        let chosen = self.best.iter().find(|one| one.vmid == *vmid);
        let name = chosen.map(|one| one.name.as_str()).filter(|name| !name.is_empty());
        let name = name.map(|name| format!(" `{name}`")).unwrap_or_default();
        let mut text = format!("VMID {vmid}{name} on node {}", origin.home);
        if origin.home != *node {
            text.push_str(&format!(", cloned to node {node} over shared storage"));
        }
        if let [_, _, ..] = self.best[..] {
            let is_own = origin.home == *node && matches!(self.sought.by(), Sought::Name(_));
            text.push_str(&if is_own { self.own_of_each() } else { self.rank_of(choice) });
        }
        let preferred = &self.spec.placement.preferred;
        if !preferred.is_empty() && !preferred.contains(node) {
            let names: Vec<&str> = preferred.iter().map(NodeName::as_str).collect();
            text.push_str(&format!("; none of preferredNodes takes it: {}", names.join(", ")));
        }
        add_passed(&mut text, passed);
        text
    }

    /// What each node clones that has an image of the name. A node with several takes none of them.
    fn own_of_each(&self) -> String {
        let only = |node: &NodeName| self.homes.get(node) == Some(&1);
        let places = self.places().into_iter().filter(only);
        let own = places.filter_map(|node| {
            let image = self.best.iter().find(|one| one.node == node)?;
            Some(format!("{node} VMID {}", image.vmid))
        });
        let all: Vec<String> = own.collect();
        if all.len() < 2 {
            String::new()
        } else {
            format!("; each node its own: {}", all.join(", "))
        }
    }

    /// The place of a choice among the images by their age.
    fn rank_of(&self, choice: &Choice) -> String {
        let Choice { vmid, node, .. } = choice;
        let newer = self.best.iter().take_while(|one| one.vmid != *vmid).count();
        let which = if newer == 0 { String::new() } else { format!(" that node {node} can take,") };
        let mut text =
            format!("; the newest{which} of {} of which each {}", self.best.len(), self.sought);
        let created = self.best.get(newer).and_then(|one| one.created);
        let equal = self.best.iter().filter(|one| one.created == created && one.vmid != *vmid);
        let equal: Vec<String> = equal.map(|one| one.vmid.to_string()).collect();
        if newer == 0 && !equal.is_empty() {
            let age = if created.is_some() { "as old" } else { "of no known age either" };
            let is = if equal.len() == 1 { "is" } else { "are" };
            text.push_str(&format!("; {} {is} {age}: the highest VMID wins", equal.join(", ")));
        }
        text
    }
}

fn add_passed(text: &mut String, passed: &[String]) {
    if !passed.is_empty() {
        text.push_str(&format!("; passed over: {}", passed.join("; ")));
    }
}

#[cfg(test)]
mod tests;
