//! The specs of templates and of living agents, each once, and which of them serve a want: by agents of
//! that very spec, or by agents of another size that a template starts.
//!
//! There are as many agents as machines and as many wants as somebody may push; a few specs stand
//! between them. Candidates for a want are found by name and by label, and what was found is kept
//! until a spec, a mapping or the state of a template changes.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use drover_model::id::TemplateId;
use drover_model::record::Want;
use drover_model::size::Size;
use drover_model::spec::{Mode, TemplateSpec};

use super::routing::Routing;
use crate::effort;

/// Wants that are remembered at most.
const REMEMBERED: usize = 8192;

/// Names a spec that is in use.
pub(super) type SpecId = usize;

/// What may serve: agents of a spec, or where a size is named, agents of that size which its template
/// starts. Those have a spec of their own once they are there.
pub(super) type Kind = (SpecId, Size);

/// Memory in MiB and cores; none for those of the template it is cloned from.
pub(super) type Bulk = (Option<u32>, Option<u32>);

/// The specs that serve a want, those tried first in front, each with how early it is tried.
#[derive(Debug, Clone)]
pub(super) struct Servers {
    /// The same for all wants that the same specs serve in the same order.
    pub(super) class: usize,
    /// How early it is tried, and what it is.
    pub(super) all: Arc<[(usize, Kind)]>,
}

impl Servers {
    /// All kinds, those tried first in front.
    pub(super) fn kinds(&self) -> impl Iterator<Item = Kind> {
        self.all.iter().map(|(_, kind)| *kind)
    }

    /// The specs whose agents serve as they are, those tried first in front.
    pub(super) fn specs(&self) -> impl Iterator<Item = SpecId> {
        self.kinds().filter(|(_, size)| size.is_none()).map(|(spec, _)| spec)
    }
}

/// What was found of wants.
#[derive(Debug, Clone, Default)]
struct Found {
    of: BTreeMap<Want, Servers>,
    classes: BTreeMap<Arc<[(usize, Kind)]>, usize>,
}

/// Every spec in use, once.
#[derive(Debug, Clone, Default)]
pub(super) struct Specs {
    /// With the count of those who use it.
    all: BTreeMap<SpecId, (Arc<TemplateSpec>, usize)>,
    next: SpecId,
    of: BTreeMap<TemplateId, BTreeSet<SpecId>>,
    /// By the name of its template, bare and with its cloud.
    named: BTreeMap<String, BTreeSet<SpecId>>,
    labelled: BTreeMap<String, BTreeSet<SpecId>>,
    /// By the keys of labels of size.
    sized: BTreeMap<String, BTreeSet<SpecId>>,
    /// Those that serve who asks for no label.
    normal: BTreeSet<SpecId>,
    found: RefCell<Found>,
}

impl Specs {
    /// Enters one more user of a spec.
    pub(super) fn enter(&mut self, spec: &Arc<TemplateSpec>) -> SpecId {
        let own = self.of.get(&spec.id).into_iter().flatten();
        let same = |id: &&SpecId| {
            self.all.get(id).is_some_and(|(known, _)| Arc::ptr_eq(known, spec) || known == spec)
        };
        if let Some(id) = own.into_iter().find(same).copied() {
            if let Some((_, users)) = self.all.get_mut(&id) {
                *users += 1;
            }
            return id;
        }
        let id = self.next;
        self.next += 1;
        self.all.insert(id, (Arc::clone(spec), 1));
        self.index(id, spec, true);
        id
    }

    /// A user of a spec is gone; the last one takes it along.
    pub(super) fn leave(&mut self, id: SpecId) {
        let Some((spec, users)) = self.all.get_mut(&id) else { return };
        *users -= 1;
        if *users == 0 {
            let spec = Arc::clone(spec);
            self.all.remove(&id);
            self.index(id, &spec, false);
        }
    }

    fn index(&mut self, id: SpecId, spec: &TemplateSpec, add: bool) {
        self.changed();
        enter(&mut self.of, spec.id.clone(), id, add);
        for name in [spec.id.to_string(), spec.id.name.to_string()] {
            enter(&mut self.named, name, id, add);
        }
        for label in &spec.labels {
            enter(&mut self.labelled, label.clone(), id, add);
        }
        for key in spec.size_labels.keys() {
            enter(&mut self.sized, key.to_owned(), id, add);
        }
        if add && spec.mode == Mode::Normal {
            self.normal.insert(id);
        } else {
            self.normal.remove(&id);
        }
    }

    /// The specs of a template and its agents.
    pub(super) fn of<'a>(
        &'a self,
        template: &TemplateId,
    ) -> impl Iterator<Item = SpecId> + use<'a> {
        self.of.get(template).into_iter().flatten().copied()
    }

    pub(super) fn get(&self, id: SpecId) -> Option<&Arc<TemplateSpec>> {
        self.all.get(&id).map(|(spec, _)| spec)
    }

    /// How large agents are: memory in MiB, then cores. One that leaves them as its template has them
    /// is the smallest: they are set to make larger ones of it.
    pub(super) fn bulk(&self, (id, size): Kind) -> Bulk {
        let sized = self.get(id).map(|spec| spec.own_size().under(size)).unwrap_or_default();
        (sized.memory_mb, sized.cores)
    }

    /// What serves wants may be another than before.
    pub(super) fn changed(&mut self) {
        *self.found.get_mut() = Found::default();
    }

    /// What serves a want while `fails` holds of these templates; only specs of which `starts` holds
    /// may serve it by agents of another size.
    pub(super) fn servers(
        &self,
        want: &Want,
        routing: &Routing,
        fails: impl Fn(&TemplateId) -> bool,
        starts: impl Fn(SpecId) -> bool,
    ) -> Servers {
        effort::spend(1);
        let mut found = self.found.borrow_mut();
        if let Some(known) = found.of.get(want) {
            return known.clone();
        }
        let candidates = self.candidates(want, routing, &fails);
        effort::spend(candidates.len());
        let ranked = candidates.into_iter().filter_map(|id| {
            let spec = self.get(id)?;
            let own = routing.fit(spec, want);
            let fit = own.or_else(|| routing.fallback(spec, want, &fails))?;
            (fit.size.is_none() || starts(id)).then_some((fit.rank, (id, fit.size)))
        });
        let mut all: Vec<(usize, Kind)> = ranked.collect();
        all.sort_unstable();
        if found.of.len() >= REMEMBERED {
            *found = Found::default();
        }
        let all: Arc<[(usize, Kind)]> = all.into();
        let next = found.classes.len();
        let class = *found.classes.entry(Arc::clone(&all)).or_insert(next);
        let servers = Servers { class, all };
        found.of.insert(want.clone(), servers.clone());
        servers
    }

    /// The specs that may serve a want: none that does is left out.
    fn candidates(
        &self,
        want: &Want,
        routing: &Routing,
        fails: &impl Fn(&TemplateId) -> bool,
    ) -> BTreeSet<SpecId> {
        let of = |id: &TemplateId| self.of(id);
        let mut candidates: BTreeSet<SpecId> = match (routing.mapped(want), want.plain()) {
            (Some(templates), _) => templates.iter().flat_map(of).collect(),
            (None, Want::Template(name)) => self.named.get(name).cloned().unwrap_or_default(),
            (None, Want::Labels(labels)) if labels.is_empty() => self.normal.clone(),
            (None, Want::Labels(labels)) => self.with_all(labels),
            (None, Want::Expression(expression)) => match expression.conjunction() {
                Some(labels) => self.with_all(&labels),
                None => self.all.keys().copied().collect(),
            },
            // None is behind `plain`.
            (None, Want::Sized(..)) => BTreeSet::new(),
        };
        candidates.extend(routing.stand_ins(want, fails).flat_map(of));
        candidates
    }

    /// Specs that have, or read as a size, the rarest of some labels.
    fn with_all(&self, labels: &BTreeSet<String>) -> BTreeSet<SpecId> {
        let none = BTreeSet::new();
        let each = labels.iter().map(|label| {
            let key = label.split_once('=').map(|(key, _)| key);
            let sized = key.and_then(|key| self.sized.get(key)).unwrap_or(&none);
            (self.labelled.get(label).unwrap_or(&none), sized)
        });
        let rarest = each.min_by_key(|(having, sized)| having.len() + sized.len());
        rarest.map(|(having, sized)| having | sized).unwrap_or_default()
    }
}

fn enter<K: Ord>(index: &mut BTreeMap<K, BTreeSet<SpecId>>, key: K, id: SpecId, add: bool) {
    if add {
        index.entry(key).or_default().insert(id);
    } else if let Some(ids) = index.get_mut(&key) {
        ids.remove(&id);
        if ids.is_empty() {
            index.remove(&key);
        }
    }
}
