//! Kinds of demand that the same agents serve: decisions match these, and not each kind by itself.
//! However many sets of labels somebody thinks of, there are only as many classes as specs make.

use std::collections::{BTreeMap, BTreeSet};

use drover_model::record::Owner;

use super::specs::{Kind, Servers, SpecId};
use super::state::Scheduler;
use super::{Demand, Source};
use crate::effort;

/// What makes a difference to which agents a use can have.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Class {
    servers: usize,
    /// For whom, where an agent is kept for just them.
    pub(super) whose: Option<Owner>,
    /// Whether a use takes its agent whole.
    pub(super) whole: bool,
}

/// The classes of some kinds of demand.
#[derive(Debug, Clone, Default)]
pub(super) struct Classes {
    of: Vec<usize>,
    each: Vec<(Class, Servers)>,
}

impl Classes {
    /// The class of a kind, by the place of that.
    pub(super) fn of(&self, level: usize) -> usize {
        self.of[level]
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.each.len()
    }

    /// Each class with the specs that serve it.
    pub(super) fn each(&self) -> impl Iterator<Item = &(Class, Servers)> {
        self.each.iter()
    }

    /// The specs that serve a class.
    pub(super) fn servers(&self, class: usize) -> &Servers {
        &self.each[class].1
    }

    /// All kinds that serve any.
    pub(super) fn kinds(&self) -> BTreeSet<Kind> {
        self.each.iter().flat_map(|(_, servers)| servers.kinds()).collect()
    }

    /// All specs whose agents serve any as they are.
    pub(super) fn specs(&self) -> BTreeSet<SpecId> {
        self.each.iter().flat_map(|(_, servers)| servers.specs()).collect()
    }
}

impl Scheduler {
    /// The classes of kinds of demand; `whole` says whether uses of a source take agents whole.
    pub(super) fn classes(&self, levels: &[Demand], whole: impl Fn(&Source) -> bool) -> Classes {
        let mut known: BTreeMap<Class, usize> = BTreeMap::new();
        let mut classes = Classes::default();
        for level in levels {
            effort::spend(1);
            let servers = self.servers(&level.want);
            let whose = level.whose.clone();
            let class = Class { servers: servers.class, whose, whole: whole(&level.source) };
            let next = classes.each.len();
            let at = *known.entry(class.clone()).or_insert(next);
            if at == next {
                classes.each.push((class, servers));
            }
            classes.of.push(at);
        }
        classes
    }
}
