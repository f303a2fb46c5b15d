//! What a template's agents are cloned from: which guests of the cluster it may be, and which of
//! them, on which node and onto which storage, the next agent takes. Pure.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ambient::fnv1a;
use crate::id::{NodeName, VmId};
use crate::spec::{CloneStrategy, TemplateSpec};

/// By what a template's guest is found.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Sought {
    /// By its VMID (`templateVmId`).
    Id(VmId),
    /// By its name (`templateName`).
    Name(String),
    /// By a regular expression that its whole name matches (`templateNamePattern`).
    Pattern(String),
    /// By a tag (`templateTag`).
    Tag(String),
}

impl fmt::Display for Sought {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Id(vmid) => write!(f, "has VMID {vmid}"),
            Self::Name(name) => write!(f, "is called `{name}`"),
            Self::Pattern(pattern) => write!(f, "has a name that matches `{pattern}`"),
            Self::Tag(tag) => write!(f, "carries the tag `{tag}`"),
        }
    }
}

/// Where a clone comes from, as it was chosen when its place was granted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Origin {
    /// The node the template is on; the clone may be meant for another one.
    pub home: NodeName,
    /// Storages that the clone reads or writes.
    pub storages: BTreeSet<String>,
    /// Those of them that are its home's own: other nodes have others of that name.
    #[serde(default)]
    pub local: BTreeSet<String>,
    /// Why this one, for people.
    pub why: String,
}

/// A guest that clones may be made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Its VMID.
    pub vmid: VmId,
    /// The node it is on.
    pub node: NodeName,
    /// Its name.
    pub name: String,
    /// When it was created, in Unix seconds; none when Proxmox does not tell (`meta`).
    pub created: Option<u64>,
    /// Storages of its volumes.
    pub storages: BTreeSet<String>,
    /// A digest of its configuration.
    pub digest: String,
}

/// What was found for a template.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    /// Templates that fit.
    pub candidates: Vec<Candidate>,
    /// Nodes that are offline.
    pub offline: BTreeSet<NodeName>,
    /// Storages that every node sees as the same one.
    pub shared: BTreeSet<String>,
    /// Whether every template that fits could be read.
    pub whole: bool,
}

impl Found {
    /// Which version of the templates it is: changes when one comes, goes or is changed; none while
    /// one could not be read.
    pub fn version(&self) -> Option<String> {
        let mut all: Vec<String> =
            self.candidates.iter().map(|one| format!("{} {}", one.vmid, one.digest)).collect();
        all.sort();
        self.whole.then(|| format!("{:016x}", fnv1a(&all.join("\n"))))
    }

    fn is_shared(&self, storages: &BTreeSet<String>) -> bool {
        // None are known of one that was not read.
        !storages.is_empty() && storages.is_subset(&self.shared)
    }
}

/// What stands in the way of nodes and storages, and what they carry.
pub trait Ground {
    /// Why nothing may be begun on a node; none when it may.
    fn node_closed(&self, node: &NodeName) -> Option<String>;
    /// Why nothing may be begun on a storage, which is one node's own or shared; none when it may.
    fn storage_closed(&self, storage: &str, own: Option<&NodeName>) -> Option<String>;
    /// Drover's own agents on a node.
    fn load(&self, node: &NodeName) -> usize;
}

/// What the next agent is cloned from, and where to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// The template's VMID.
    pub vmid: VmId,
    /// The node the clone is to run on.
    pub node: NodeName,
    /// Storage of a full clone's disks; none for the template's own.
    pub storage: Option<String>,
    /// The rest of it.
    pub origin: Origin,
}

impl Choice {
    /// The spec of an agent that is cloned so.
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

/// Chooses; or says why nothing can be cloned at this moment.
///
/// On nodes that are named, the one with the fewest agents goes first, then the one named first.
/// Each takes the newest template it can reach, by name the newest of its own before any other;
/// the age is that of creation as Proxmox tells it, and of several that are equally old, or whose
/// age is not told, the highest VMID wins. Where no node is named the newest of all is taken, on
/// its own node, and an older one only where nothing can be begun there.
pub fn choose(spec: &TemplateSpec, found: &Found, ground: &dyn Ground) -> Result<Choice, String> {
    let sought = spec.sought();
    if found.candidates.is_empty() {
        return Err(format!("no template {sought} on cloud `{}`", spec.id.cloud));
    }
    let mut best: Vec<&Candidate> = found.candidates.iter().collect();
    best.sort_by_key(|one| Reverse((one.created, one.vmid)));
    let named = spec.nodes();
    let mut passed: Vec<String> = Vec::new();
    let mut fit: Vec<(usize, usize, Choice)> = Vec::new();
    if named.is_empty() {
        for candidate in &best {
            match take(spec, found, ground, candidate, &candidate.node) {
                Ok(choice) => {
                    fit.push((0, 0, choice));
                    break;
                }
                Err(why) => note(&mut passed, why),
            }
        }
    }
    for (at, node) in named.iter().enumerate() {
        let mut order = best.clone();
        let own_first = matches!(sought, Sought::Name(_));
        // The sort is stable: what is equal stays in the order of age.
        order.sort_by_key(|one| own_first && one.node != *node);
        match reach(spec, found, ground, &order, node) {
            Ok(choice) => fit.push((ground.load(node), at, choice)),
            Err(why) => note(&mut passed, why),
        }
    }
    let chosen = fit.into_iter().min_by_key(|(load, at, _)| (*load, *at));
    let Some((_, _, mut choice)) = chosen else { return Err(passed.join("; ")) };
    choice.origin.why = explain(&choice, &sought, &best, &passed);
    Ok(choice)
}

/// What stands in the way once is told once.
fn note(passed: &mut Vec<String>, why: String) {
    if !passed.contains(&why) {
        passed.push(why);
    }
}

/// The first of some candidates that a node can take.
fn reach(
    spec: &TemplateSpec,
    found: &Found,
    ground: &dyn Ground,
    order: &[&Candidate],
    node: &NodeName,
) -> Result<Choice, String> {
    if let Some(why) = shut(found, ground, node) {
        return Err(why);
    }
    let mut passed = Vec::new();
    for candidate in order {
        if candidate.node != *node && !found.is_shared(&candidate.storages) {
            continue;
        }
        match take(spec, found, ground, candidate, node) {
            Ok(choice) => return Ok(choice),
            Err(why) => note(&mut passed, why),
        }
    }
    if passed.is_empty() {
        let sought = spec.sought();
        passed.push(format!("no template {sought} on node `{node}`, or on storage it shares"));
    }
    Err(passed.join("; "))
}

/// Why nothing can be done on a node.
fn shut(found: &Found, ground: &dyn Ground, node: &NodeName) -> Option<String> {
    if found.offline.contains(node) {
        return Some(format!("node `{node}` is offline"));
    }
    ground.node_closed(node).map(|why| format!("node `{node}`: {why}"))
}

/// A clone of one candidate for a node, where nothing forbids it.
fn take(
    spec: &TemplateSpec,
    found: &Found,
    ground: &dyn Ground,
    candidate: &Candidate,
    node: &NodeName,
) -> Result<Choice, String> {
    // The work is done on the template's own node, wherever the clone goes (behaviour section 9).
    for at in [&candidate.node, node] {
        if let Some(why) = shut(found, ground, at) {
            return Err(why);
        }
    }
    let closed = |storage: &str| {
        let own = (!found.shared.contains(storage)).then_some(&candidate.node);
        ground.storage_closed(storage, own).map(|why| format!("storage `{storage}`: {why}"))
    };
    if let Some(why) = candidate.storages.iter().find_map(|storage| closed(storage)) {
        return Err(why);
    }
    let wanted: Vec<&String> = match (&spec.storages[..], spec.clone) {
        // It stays on the template's storage, whatever else is named.
        (_, CloneStrategy::Linked) => Vec::new(),
        ([], CloneStrategy::Full) => spec.target_storage.iter().collect(),
        (several, CloneStrategy::Full) => several.iter().collect(),
    };
    let mut storage = None;
    if !wanted.is_empty() {
        let mut passed = Vec::new();
        let fits = wanted.into_iter().find(|one| {
            let local = candidate.node != *node && !found.shared.contains(*one);
            let away = local.then(|| {
                format!(
                    "storage `{one}` is not shared, and the template is on `{}`",
                    candidate.node
                )
            });
            let why = away.or_else(|| closed(one));
            let fits = why.is_none();
            passed.extend(why);
            fits
        });
        match fits {
            Some(fits) => storage = Some(fits.clone()),
            None => return Err(passed.join("; ")),
        }
    }
    let storages: BTreeSet<String> = candidate.storages.iter().chain(&storage).cloned().collect();
    let local = storages.difference(&found.shared).cloned().collect();
    let origin = Origin { home: candidate.node.clone(), storages, local, why: String::new() };
    Ok(Choice { vmid: candidate.vmid, node: node.clone(), storage, origin })
}

/// Says what was chosen, from how many, and what was passed over.
fn explain(choice: &Choice, sought: &Sought, best: &[&Candidate], passed: &[String]) -> String {
    let Choice { vmid, node, origin, .. } = choice;
    let chosen = best.iter().find(|one| one.vmid == *vmid);
    let name = chosen.map(|one| one.name.as_str()).filter(|name| !name.is_empty());
    let name = name.map(|name| format!(" `{name}`")).unwrap_or_default();
    let mut text = format!("VMID {vmid}{name} on node {}", origin.home);
    if origin.home != *node {
        text.push_str(&format!(", cloned to node {node} over shared storage"));
    }
    if let [_, _, ..] = best {
        let newer = best.iter().take_while(|one| one.vmid != *vmid).count();
        let place = if newer == 0 {
            "the newest".to_owned()
        } else {
            format!("newer than the rest it can take; {newer} newer passed over")
        };
        text.push_str(&format!("; {place} of {} of which each {sought}", best.len()));
        let created = chosen.and_then(|one| one.created);
        let equal = best.iter().filter(|one| one.created == created && one.vmid != *vmid);
        let equal: Vec<String> = equal.map(|one| one.vmid.to_string()).collect();
        if newer == 0 && !equal.is_empty() {
            let age = if created.is_some() { "as old" } else { "of no known age either" };
            let is = if equal.len() == 1 { "is" } else { "are" };
            text.push_str(&format!("; {} {is} {age}: the highest VMID wins", equal.join(", ")));
        }
    }
    if !passed.is_empty() {
        text.push_str(&format!("; passed over: {}", passed.join("; ")));
    }
    text
}

#[cfg(test)]
mod tests;
