//! The configuration keys: each key is said once, in one entry of one table.
//!
//! A [`Table`] describes the keys of one mapping of the YAML. The macro `table!` takes its
//! entries:
//!
//! ```text
//! "callTimeoutSec" => call_timeout_sec: u64, whole(5..=3600).or(60), "seconds for one …";
//!  the YAML key       field and type           what is checked, the    help, one line
//!                                              default, the example
//! ```
//!
//! What follows from an entry, and from nothing else:
//! - the field of the `Raw…` struct, which `Layer::typed` fills. An
//!   entry without `=> field: type` has none: its module reads the key from the layers.
//! - the check of type, range, words and form, with file, line and column (`layer.rs`);
//! - the rules of the key in its mapping: required, filled, at most another key's number, one of
//!   several ways (`rules.rs`);
//! - the default, and the environment variable that may give the key (`environment.rs`);
//! - where the key applies: its table, and in `demand` the kinds of sources ([`Key::only`]);
//! - whether the value may be shown in a fault (`mask.rs`);
//! - the JSON Schema (`schema.rs`), `configs/full.yaml` and the book's reference
//!   `src/book/reference/configuration.md` (`tests/reference.rs` compares both files with the
//!   tables; `DROVER_WRITE=1 cargo test -p drover-config reference` writes them).
//!
//! A new key takes one entry here, the use of its field where the spec is built, and one row in
//! `tests/cases`. Checks that no rule says are in the module of their section.
//!
//! Files: `cloud`, `agent` (with `placement` and `guest`), `image`, `demand`, `service`, `credential`,
//! `shared` (mappings, pools, sizes). [`SECTIONS`] lists the top level.

/// A table of keys, and the struct that its values are read into where entries name a field.
macro_rules! table {
    (@names) => { &[] };
    (@names $names:ident) => { &$names };
    (@shared) => { &[] };
    (@shared $keys:ident) => { $keys };
    (@raw $table:ident,) => {};
    (@raw $table:ident $raw:ident, $($name:literal $field:ident $type:ty,)*) => {
        /// The values of a mapping with these keys, defaults filled in.
        #[derive(Debug, Clone, serde::Deserialize)]
        pub(crate) struct $raw {
            $(#[serde(rename = $name)] pub(crate) $field: $type,)*
        }
        impl Raw for $raw {
            fn table() -> &'static Table {
                &$table
            }
        }
    };
    (
        $(#[$doc:meta])*
        $table:ident $(, one_of: $one_of:ident)? $(, shared: $shared:ident)?
        $(, ways: $ways:ident)? $(=> $raw:ident)? {
            $($name:literal $(=> $field:ident: $type:ty)?, $key:expr, $help:expr;)*
        }
    ) => {
        $(#[$doc])*
        pub(crate) static $table: Table = Table {
            keys: &[$(Key { name: $name, help: $help, ..$key }),*],
            one_of: table!(@names $($one_of)?),
            shared: table!(@shared $($shared)?),
            ways: table!(@names $($ways)?),
        };
        table!(@raw $table $($raw)?, $($($name $field $type,)?)*);
    };
}

mod agent;
mod cloud;
mod credential;
mod demand;
mod guest;
mod hardware;
mod history;
mod image;
mod machine;
mod notify;
mod openid;
mod placement;
mod service;
mod shared;
mod sync;
mod traces;

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::LazyLock;

use serde_yaml::{Mapping, Value as Yaml};

use super::value::{self, Check};

pub(super) use agent::{
    AGENT, AddressFrom, OS_TEMPLATE, OsType, RawAgent, RawStep, RawUpload, RawWindow, Reset,
    SELECTION, SOUGHT, STORAGES, TEXTS,
};
pub(super) use cloud::{CLOUD, RawCloud};
pub(super) use credential::{CREDENTIALS, CredentialKind, KEY_SOURCES};
pub(super) use demand::{DEMAND, FORGES, Launch, Mode, RawDemand, SourceKind};
pub(super) use guest::RawNic;
pub(super) use hardware::{RawAgentHardware, RawDisk};
pub(super) use history::{HISTORY_KEEP, RawHistory, RawPrice, RawPrices};
pub(super) use image::{HARDWARE, IMAGE, RawHardware, RawImage, RawImageRunner, RawSource};
pub(super) use machine::{MACHINE, RawMachine};
pub(super) use notify::{NOTIFY_TIMES, RawMail, RawMailLogin, RawNotify, RawNtfy, RawWebhook};
pub(super) use openid::{RawOpenId, RawOpenIdGroup};
pub(super) use placement::{
    RawCoresLabel, RawDiskLabel, RawHeadroom, RawMemoryLabel, RawTerm, RawWeights, SIZES, Size,
};
pub(super) use service::{
    AUDIT_MIB, BLACK_BOX_KEEP, OnFailure, RawAudit, RawBlackBox, RawLeases, RawPeer, RawQuota,
    RawService, RawToken, SERVICE,
};
pub(super) use shared::{ADDRESS_POOL, MAPPING, RawMapping, RawPool, TRUST};
pub(super) use sync::RawConfigSync;
pub(super) use traces::{RawHeader, RawTraces};

/// The longest duration in seconds or minutes: about three years of seconds.
const LONG: u64 = 100_000_000;
/// The largest VMID of Proxmox.
const LAST_VMID: u64 = 999_999_999;
/// The highest number of agents, VMs or leases that a key can name.
const MANY: u64 = 1_000_000;

/// The keys of one mapping.
#[derive(Debug)]
pub(super) struct Table {
    keys: &'static [Key],
    /// Keys that several tables have; they follow `keys`.
    shared: &'static [Key],
    /// Exactly one of these keys is given; empty where it does not matter.
    pub one_of: &'static [&'static str],
    /// Keys that say the same thing in several ways. One of them in an upper layer replaces all of
    /// them below; two in one layer contradict. A flag counts where it is true.
    pub ways: &'static [&'static [&'static str]],
}

impl Table {
    /// All keys in the order of the reference.
    pub fn iter(&self) -> impl Iterator<Item = &'static Key> + Clone + use<> {
        self.keys.iter().chain(self.shared)
    }

    /// The key of this name or alias.
    pub fn find(&self, name: &str) -> Option<&'static Key> {
        self.iter().find(|key| key.is(name))
    }

    /// The names of the keys that must be given.
    pub fn required(&self) -> impl Iterator<Item = &'static str> + use<> {
        self.iter().filter(|key| key.preset == Preset::Required).map(|key| key.name)
    }

    /// This table and the tables of the mappings in it.
    fn all(&'static self) -> Vec<&'static Self> {
        let nested = self.iter().filter_map(|key| key.kind.table());
        std::iter::once(self).chain(nested.flat_map(Table::all)).collect()
    }
}

/// A struct that the values of a table are read into.
pub(super) trait Raw: serde::de::DeserializeOwned {
    fn table() -> &'static Table;
}

/// What a value must look like.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    /// Text; plain numbers count as text.
    Text,
    /// A whole number in a range.
    Whole(u64, u64),
    /// Zero, or a whole number in a range.
    ZeroOr(u64, u64),
    /// MiB of memory in a range, as a whole number or with a unit such as `4Gi`.
    Memory(u64, u64),
    /// true or false.
    Flag,
    /// One of some words.
    Choice(&'static [&'static str]),
    /// A list of texts.
    Texts,
    /// A list of whole numbers.
    Wholes,
    /// A mapping of any names to texts.
    Names,
    /// A mapping of any names to lists of texts.
    Lists,
    /// A mapping with keys of its own.
    Mapping(&'static Table),
    /// A list of mappings with keys of their own.
    Mappings(&'static Table),
}

impl Kind {
    /// A list or mapping of this kind without entries.
    pub fn empty(self) -> Yaml {
        if matches!(self, Self::Names | Self::Lists) {
            Mapping::new().into()
        } else {
            Yaml::Sequence(Vec::new())
        }
    }

    /// The table of the mappings that a value holds.
    pub fn table(self) -> Option<&'static Table> {
        match self {
            Self::Mapping(table) | Self::Mappings(table) => Some(table),
            Self::Text
            | Self::Whole(..)
            | Self::ZeroOr(..)
            | Self::Memory(..)
            | Self::Flag
            | Self::Choice(_)
            | Self::Texts
            | Self::Wholes
            | Self::Names
            | Self::Lists => None,
        }
    }
}

/// What holds when a key is not given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Preset {
    /// The key must be given.
    Required,
    /// Nothing; the help says what that means.
    Unset,
    Whole(u64),
    Flag(bool),
    Text(&'static str),
    /// The empty list or mapping.
    Empty,
}

/// One entry of a [`Table`].
#[derive(Debug, Clone, Copy)]
pub(super) struct Key {
    pub name: &'static str,
    pub kind: Kind,
    pub preset: Preset,
    /// One line for people, with the meaning of zero or blank.
    pub help: &'static str,
    /// Checks each text of the value further.
    pub check: Option<Check>,
    /// Another spelling of the key.
    pub alias: Option<&'static str>,
    /// A value as YAML, for a key without a default.
    pub example: &'static str,
    /// The environment variable that gives the key where no layer of the YAML does.
    pub variable: Option<&'static str>,
    /// The kinds of sources that have the key; empty: all.
    pub only: &'static [SourceKind],
    /// The value is a secret.
    pub secret: bool,
    /// What is wrong with an empty list or a blank text, and what to do.
    pub filled: Option<(&'static str, &'static str)>,
    /// The key of the number that this one must not exceed, unless that is 0.
    pub at_most: Option<&'static str>,
}

const fn key(kind: Kind) -> Key {
    Key {
        name: "",
        kind,
        preset: Preset::Unset,
        help: "",
        check: None,
        alias: None,
        example: "",
        variable: None,
        only: &[],
        secret: false,
        filled: None,
        at_most: None,
    }
}

const fn text() -> Key {
    key(Kind::Text)
}

const fn whole(range: RangeInclusive<u64>) -> Key {
    key(Kind::Whole(*range.start(), *range.end()))
}

const fn zero_or(range: RangeInclusive<u64>) -> Key {
    key(Kind::ZeroOr(*range.start(), *range.end()))
}

const fn flag() -> Key {
    key(Kind::Flag)
}

const fn choice(words: &'static [&'static str]) -> Key {
    key(Kind::Choice(words))
}

const fn texts() -> Key {
    key(Kind::Texts)
}

const fn names() -> Key {
    key(Kind::Names)
}

const fn lists() -> Key {
    key(Kind::Lists)
}

const fn mapping(table: &'static Table) -> Key {
    key(Kind::Mapping(table))
}

const fn mappings(table: &'static Table) -> Key {
    key(Kind::Mappings(table)).or_empty()
}

impl Key {
    const fn required(self) -> Self {
        Self { preset: Preset::Required, ..self }
    }

    const fn or(self, number: u64) -> Self {
        Self { preset: Preset::Whole(number), ..self }
    }

    const fn or_flag(self, flag: bool) -> Self {
        Self { preset: Preset::Flag(flag), ..self }
    }

    const fn or_text(self, text: &'static str) -> Self {
        Self { preset: Preset::Text(text), ..self }
    }

    const fn or_empty(self) -> Self {
        Self { preset: Preset::Empty, ..self }
    }

    const fn check(self, check: Check) -> Self {
        Self { check: Some(check), ..self }
    }

    const fn alias(self, name: &'static str) -> Self {
        Self { alias: Some(name), ..self }
    }

    const fn eg(self, example: &'static str) -> Self {
        Self { example, ..self }
    }

    const fn variable(self, name: &'static str) -> Self {
        Self { variable: Some(name), ..self }
    }

    const fn only(self, kinds: &'static [SourceKind]) -> Self {
        Self { only: kinds, ..self }
    }

    const fn filled(self, empty: &'static str, help: &'static str) -> Self {
        Self { filled: Some((empty, help)), ..self }
    }

    const fn at_most(self, other: &'static str) -> Self {
        Self { at_most: Some(other), ..self }
    }

    const fn secret(self) -> Self {
        Self { secret: true, ..self }
    }

    /// The value that holds where the key is not given.
    pub(super) fn default(&self) -> Option<Yaml> {
        match self.preset {
            Preset::Required | Preset::Unset => None,
            Preset::Whole(number) => Some(Yaml::from(number)),
            Preset::Flag(flag) => Some(Yaml::from(flag)),
            Preset::Text(text) => Some(Yaml::from(text)),
            Preset::Empty => Some(self.kind.empty()),
        }
    }

    /// The help, with the kinds of sources that have the key.
    pub(super) fn meaning(&self) -> String {
        match self.only {
            [] => self.help.to_owned(),
            demand::SYSTEMS => format!("{}; not for leases", self.help),
            kinds => {
                let kinds: Vec<&str> = kinds.iter().map(|kind| kind.word()).collect();
                format!("{}; only for {}", self.help, kinds.join(", "))
            }
        }
    }

    /// Whether sources of this kind have the key; outside `demand` there is no kind.
    pub(super) fn applies(&self, kind: Option<&str>) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| Some(only.word()) == kind)
    }

    /// Whether the key is written so.
    pub(super) fn is(&self, name: &str) -> bool {
        self.name == name || self.alias == Some(name)
    }
}

/// How the keys of a section stand in the YAML.
#[derive(Debug, Clone, Copy)]
pub(super) enum Form {
    /// The section is one mapping of the table's keys.
    One(&'static Table),
    /// Each entry of the section is such a mapping, under a name of its own.
    Many(&'static Table),
    /// Each entry is such a mapping; its `kind` selects the table.
    Kinds(&'static [(&'static str, CredentialKind, &'static Table)]),
}

impl Form {
    /// Whether the section is entries under names of their own.
    pub fn has_entries(self) -> bool {
        match self {
            Self::One(_) => false,
            Self::Many(_) | Self::Kinds(_) => true,
        }
    }

    fn tables(self) -> Vec<&'static Table> {
        match self {
            Self::One(table) | Self::Many(table) => table.all(),
            Self::Kinds(kinds) => kinds.iter().flat_map(|(.., table)| table.all()).collect(),
        }
    }
}

/// A section of the top level.
#[derive(Debug)]
pub(super) struct Section {
    pub name: &'static str,
    pub form: Form,
    /// One sentence for the schema, `full.yaml` and the reference.
    pub help: &'static str,
    /// Holds secrets, so that faults show only values that are known to be harmless.
    pub guarded: bool,
}

const fn section(name: &'static str, form: Form, help: &'static str) -> Section {
    Section { name, form, help, guarded: false }
}

/// Followed by a node's name: a section like `agentDefaults` for the agents of that node.
pub(super) const NODE_DEFAULTS: &str = "agentDefaults-";
/// What those sections are for.
pub(super) const NODE_DEFAULTS_HELP: &str = "Values for all agents on one node (`agentDefaults-` and \
                                             the node's name); they override agentDefaults.";

/// The top level, beside the `agentDefaults-<node>` sections.
pub(super) static SECTIONS: [Section; 12] = [
    section("cloudDefaults", Form::One(&CLOUD), "Values that all clouds inherit."),
    section(
        "cloudConfigurations",
        Form::Many(&CLOUD),
        "One entry for each Proxmox cluster; it may override any key of cloudDefaults.",
    ),
    section("agentDefaults", Form::One(&AGENT), "Values that all agents inherit."),
    section(
        "agentConfigurations",
        Form::Many(&AGENT),
        "One entry for each kind of agent; it may override any key of agentDefaults.",
    ),
    section(
        "images",
        Form::Many(&IMAGE),
        "Template images that drover builds; an agent names one with the key image.",
    ),
    section(
        "machines",
        Form::Many(&MACHINE),
        "Long-lived machines that drover makes once and keeps as they are declared here.",
    ),
    section(
        "labelMappings",
        Form::Many(&MAPPING),
        "Labels that the listed templates serve, in their order; the templates' own labels do not \
         count for them.",
    ),
    section(
        "addressPools",
        Form::Many(&ADDRESS_POOL),
        "Addresses that drover gives to agents one by one, on all clouds.",
    ),
    section(
        "demand",
        Form::Many(&DEMAND),
        "CI systems whose jobs drover starts agents for, and the share of leases.",
    ),
    section("sizes", Form::Many(&SIZES), "Sizes of agents by name, for the key size."),
    Section {
        guarded: true,
        ..section(
            "credentials",
            Form::Kinds(&CREDENTIALS),
            "Logins and keys; credentialsId names one of these entries.",
        )
    },
    Section { guarded: true, ..section("service", Form::One(&SERVICE), "drover itself.") },
];

/// Whether a section holds no secrets, so that its values may be shown.
pub(super) fn is_open(name: &str) -> bool {
    let known = SECTIONS.iter().any(|section| section.name == name && !section.guarded);
    known || name.starts_with(NODE_DEFAULTS)
}

fn keys_of(sections: impl Iterator<Item = &'static Section>) -> impl Iterator<Item = &'static Key> {
    sections.flat_map(|section| section.form.tables()).flat_map(Table::iter)
}

/// Keys of guarded sections whose values faults may show.
static HARMLESS: LazyLock<BTreeSet<&str>> = LazyLock::new(|| {
    let guarded = SECTIONS.iter().filter(|section| section.guarded);
    keys_of(guarded).filter(|key| !key.secret).map(|key| key.name).collect()
});

/// The names of all sections and keys.
static KNOWN: LazyLock<BTreeSet<&str>> = LazyLock::new(|| {
    let names = |key: &'static Key| [Some(key.name), key.alias].into_iter().flatten();
    let keys = keys_of(SECTIONS.iter()).flat_map(names);
    SECTIONS.iter().map(|section| section.name).chain(keys).collect()
});

/// Whether faults may show the value of this key of a guarded section.
pub(super) fn is_harmless(name: &str) -> bool {
    HARMLESS.contains(name)
}

/// Whether a word is the name of a key or of a section.
pub(super) fn is_known(word: &str) -> bool {
    KNOWN.contains(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Invariant: the tables themselves are sound.

    #[test]
    fn every_default_is_of_its_kind_and_in_its_range() {
        for key in keys_of(SECTIONS.iter()) {
            let sound = match (key.kind, key.preset) {
                (_, Preset::Required | Preset::Unset) => true,
                (Kind::Whole(least, most) | Kind::Memory(least, most), Preset::Whole(n)) => {
                    (least..=most).contains(&n)
                }
                (Kind::ZeroOr(least, most), Preset::Whole(n)) => {
                    n == 0 || (least..=most).contains(&n)
                }
                (Kind::Flag, Preset::Flag(_)) | (Kind::Text, Preset::Text(_)) => true,
                (Kind::Choice(words), Preset::Text(word)) => words.contains(&word),
                (Kind::Texts | Kind::Wholes | Kind::Names | Kind::Mappings(_), Preset::Empty) => {
                    true
                }
                _ => false,
            };
            assert!(sound && !key.help.is_empty(), "{}", key.name);
        }
    }

    #[test]
    fn every_rule_names_keys_of_its_table() {
        for table in SECTIONS.iter().flat_map(|section| section.form.tables()) {
            let limits = table.iter().filter_map(|key| key.at_most);
            let ways = table.ways.iter().copied().flatten().chain(table.one_of).copied();
            for name in limits.chain(ways) {
                assert!(table.find(name).is_some(), "{name}");
            }
        }
    }
}
