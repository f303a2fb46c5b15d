//! What a key does to the herd: a command of the command line, which is asked for, parsed and run as it is
//! shown.

use clap::ValueEnum as _;
use drover_api::Role;
use drover_ssh::join;
use serde_json::Value;

use super::super::options::TopNoun;
use super::listing::Entry;

/// An action: the words of its command behind `drover`, and the role that the service wants for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Action {
    pub words: Vec<String>,
    pub least: Role,
}

/// A key that does something to what is shown.
#[derive(Debug, Clone, Copy)]
pub(super) struct ActionKey {
    pub key: char,
    /// The word of the hint.
    pub word: &'static str,
    pub least: Role,
    /// The commands before the name of the thing.
    words: &'static [&'static str],
}

const fn key(
    key: char,
    word: &'static str,
    least: Role,
    words: &'static [&'static str],
) -> ActionKey {
    ActionKey { key, word, least, words }
}

const OF_AGENTS: &[ActionKey] = &[
    key('t', "retire", Role::Operator, &["retire"]),
    key('h', "hold", Role::Operator, &["hold"]),
    key('u', "release hold", Role::Operator, &["release-hold"]),
];
const OF_LEASES: &[ActionKey] = &[key('e', "end", Role::Operator, &["release"])];
const OF_NODES: &[ActionKey] = &[
    key('c', "cordon", Role::Admin, &["cordon"]),
    key('u', "uncordon", Role::Admin, &["uncordon"]),
    key('d', "drain", Role::Admin, &["drain"]),
];
const OF_TEMPLATES: &[ActionKey] = &[
    key('p', "provision", Role::Operator, &["provision"]),
    key('b', "reset breaker", Role::Admin, &["breakers", "reset"]),
];
const OF_BREAKERS: &[ActionKey] = &[key('b', "reset", Role::Admin, &["breakers", "reset"])];
/// Those that need no thing.
const OF_ALL: &[ActionKey] =
    &[key('X', "reap", Role::Admin, &["reap"]), key('Y', "resync", Role::Operator, &["resync"])];

/// The keys that do something to one of these.
pub(super) fn of_one(noun: TopNoun) -> &'static [ActionKey] {
    match noun {
        TopNoun::Agents => OF_AGENTS,
        TopNoun::Leases => OF_LEASES,
        TopNoun::Nodes => OF_NODES,
        TopNoun::Templates => OF_TEMPLATES,
        TopNoun::Breakers => OF_BREAKERS,
        TopNoun::Herd
        | TopNoun::Gone
        | TopNoun::Jobs
        | TopNoun::Clouds
        | TopNoun::Sources
        | TopNoun::Images
        | TopNoun::Machines
        | TopNoun::AddressPools
        | TopNoun::Members
        | TopNoun::Alarms
        | TopNoun::Events => &[],
    }
}

/// The keys that do something wherever they are hit.
pub(super) fn of_all() -> &'static [ActionKey] {
    OF_ALL
}

/// A cloud, and the fingerprint of its cluster.
pub(super) type CloudCluster = (String, String);

impl Action {
    /// What a key does to one thing, or without one; none where it does nothing there.
    pub(super) fn of(key: char, entry: Option<&Entry>, clouds: &[CloudCluster]) -> Option<Self> {
        let is_it = |one: &&ActionKey| one.key == key;
        if let Some(one) = OF_ALL.iter().find(is_it) {
            let words = one.words.iter().map(ToString::to_string).collect();
            return Some(Self { words, least: one.least });
        }
        let entry = entry?;
        let one = of_one(entry.noun).iter().find(is_it)?;
        let mut words: Vec<String> = one.words.iter().map(ToString::to_string).collect();
        words.push(entry.name.clone());
        if entry.noun == TopNoun::Nodes {
            words.extend(cloud_of(&entry.thing, clouds));
        }
        Some(Self { words, least: one.least })
    }

    /// The command line. `program` is how commands that ask the same service begin.
    pub(super) fn command(&self, program: &str) -> String {
        format!("{program} {}", join(&self.words))
    }
}

/// The option that says whose node it is, where drover knows several clusters.
fn cloud_of(node: &Value, clouds: &[CloudCluster]) -> Vec<String> {
    let is_alone =
        clouds.iter().all(|(_, cluster)| Some(cluster) == clouds.first().map(|one| &one.1));
    let own = clouds.iter().find(|(_, cluster)| node["cluster"] == **cluster);
    match own.filter(|_| !is_alone) {
        Some((cloud, _)) => vec!["--cloud".to_owned(), cloud.clone()],
        None => Vec::new(),
    }
}

/// Every key that does something, each with what it is for; none where it needs no thing.
pub(super) fn every() -> impl Iterator<Item = (Option<TopNoun>, &'static ActionKey)> {
    let nouns = TopNoun::value_variants().iter();
    let of_things = nouns.flat_map(|noun| of_one(*noun).iter().map(|one| (Some(*noun), one)));
    of_things.chain(OF_ALL.iter().map(|one| (None, one)))
}
