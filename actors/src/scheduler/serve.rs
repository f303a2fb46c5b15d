//! Free agents to those who want them.

use std::collections::{BTreeMap, BTreeSet};

use drover_model::id::{AgentId, LeaseId};
use drover_model::record::{LeaseAsk, Owner};
use drover_model::size::Size;
use drover_model::status::Standing;
use drover_model::time::WallTime;

use super::classes::Classes;
use super::matching::Matching;
use super::specs::{Bulk, SpecId};
use super::state::Scheduler;
use super::uses::{Asker, Use, Uses, owner_of};
use super::{Effect, Source, takes};

/// A free agent with the places left on it.
struct Slot {
    agent: AgentId,
    kind: SpecId,
    owner: Option<Owner>,
    left: u32,
    /// Whether nobody is on it.
    unused: bool,
}

impl Scheduler {
    /// What to do about all demand at this moment; `mint` makes ids for leases of sources.
    ///
    /// Hand-outs first, in the order of fair shares; what they leave is set against agents on their
    /// way, and only the rest is started.
    pub(super) fn decide(
        &mut self,
        now: WallTime,
        mint: &mut dyn FnMut() -> LeaseId,
    ) -> Vec<Effect> {
        self.book.prune(now);
        if self.stopping() {
            return Vec::new();
        }
        let all = self.next_uses(now);
        let mut effects = self.hand_out(&all, now, mint);
        let rest = if effects.is_empty() { all } else { self.next_uses(now) };
        effects.extend(self.start(&rest));
        effects.extend(self.evict(&rest.levels));
        effects.extend(self.evict_sizes(&rest.levels));
        effects.extend(self.withdraw(&rest.levels));
        effects
    }

    /// Free agents of these specs with the places left on them, in the order of preference: agents
    /// already in use first, so that idle ones may go or stay warm, then the smallest, then the
    /// longest ready.
    ///
    /// An agent that is kept for one owner goes before the others, which anybody can have.
    fn free(&self, kinds: &BTreeSet<SpecId>) -> Vec<Slot> {
        let mut free: Vec<(bool, bool, Bulk, u64, Slot)> = Vec::new();
        for (agent, view) in kinds.iter().flat_map(|kind| self.agents.free(*kind)) {
            if let Standing::Free { executors, idle } = view.status.standing
                && !self.barred.contains(agent)
                && !self.restrained.contains(agent)
            {
                let sent = self.book.sent_to(agent);
                let left = executors.saturating_sub(sent);
                if left > 0 {
                    let unused = idle && sent == 0;
                    let (agent, kind, owner) =
                        (agent.clone(), view.kind, view.status.owner.clone());
                    let slot = Slot { agent, kind, owner, left, unused };
                    let bulk = self.specs.bulk((view.kind, Size::NONE));
                    free.push((view.status.owner.is_none(), unused, bulk, view.order, slot));
                }
            }
        }
        free.sort_by(|one, other| {
            let (own, others) = (&one.4.agent, &other.4.agent);
            (one.0, one.1, one.2, one.3, own).cmp(&(other.0, other.1, other.2, other.3, others))
        });
        free.into_iter().map(|(.., slot)| slot).collect()
    }

    fn hand_out(
        &mut self,
        uses: &Uses,
        now: WallTime,
        mint: &mut dyn FnMut() -> LeaseId,
    ) -> Vec<Effect> {
        if uses.turns.is_empty() || !self.agents.any_free() {
            return Vec::new();
        }
        let classes = self.classes(&uses.levels, |source| self.takes_whole(source));
        let free = self.free(&classes.specs());
        let mut effects = Vec::new();
        // Some runners take their agent whole, and all jobs that there is room for.
        let mut taken: BTreeMap<usize, bool> = BTreeMap::new();
        for (one, index) in self.placed(uses, &classes, &free) {
            let (level, slot) = (&uses.levels[one.level], &free[index]);
            let whole = self.takes_whole(&level.source);
            match taken.get(&index) {
                Some(taken_whole) if *taken_whole || whole => continue,
                Some(_) | None => taken.insert(index, whole),
            };
            let ask = match (&one.asker, &level.source) {
                (Asker::Lease(lease), _) => {
                    let Some(entry) = self.book.get(lease) else { continue };
                    let ask = entry.ask.clone();
                    self.book.sent(lease, &slot.agent, now);
                    ask
                }
                (Asker::Job(since), Source::Named(source)) => {
                    let Some(view) = self.sources.get(source) else { continue };
                    let Owner { principal, owner } = owner_of(source);
                    let ask = LeaseAsk {
                        lease: mint(),
                        want: level.want.clone(),
                        principal,
                        owner,
                        ttl_ms: u64::try_from(view.spec.job.as_millis()).unwrap_or(u64::MAX),
                        public_key: None,
                        key_hash: None,
                        body_hash: String::new(),
                        asked: *since,
                        source: Some(source.clone()),
                        whole,
                        user_data: false,
                        group: None,
                        wait_ms: None,
                    };
                    self.book.send(ask.clone(), &slot.agent, now);
                    ask
                }
                (Asker::Job(_), Source::Leases) => continue,
            };
            effects.push(Effect::HandOut { agent: slot.agent.clone(), ask: Box::new(ask) });
        }
        effects
    }

    /// Whether the runners of a source take an agent with all its executors.
    fn takes_whole(&self, source: &Source) -> bool {
        match source {
            Source::Leases => false,
            Source::Named(id) => self.sources.get(id).is_some_and(|view| view.spec.whole),
        }
    }

    /// Which uses find a place, in their order, and on which of the free agents.
    fn placed<'a>(
        &self,
        uses: &'a Uses,
        classes: &Classes,
        free: &[Slot],
    ) -> Vec<(&'a Use, usize)> {
        let mut slots: BTreeMap<SpecId, Vec<usize>> = BTreeMap::new();
        for (index, slot) in free.iter().enumerate() {
            slots.entry(slot.kind).or_default().push(index);
        }
        let kinds = classes.each().map(|(class, servers)| {
            let fits = |index: &usize| {
                let slot = &free[*index];
                takes(slot.owner.as_ref(), class.whose.as_ref()) && (slot.unused || !class.whole)
            };
            let ready = servers.all.iter().filter(|(_, (_, size))| size.is_none());
            let ranks = ready.flat_map(|(rank, (spec, _))| {
                let of = slots.get(spec).into_iter().flatten().copied();
                of.filter(fits).map(|index| (*rank, index))
            });
            let mut fits: Vec<(usize, usize)> = ranks.collect();
            fits.sort_unstable();
            fits.into_iter().map(|(_, index)| index).collect()
        });
        let places = free.iter().map(|slot| slot.left).collect();
        let mut matching = Matching::new(kinds.collect(), places);
        let mut placed: Vec<&Use> = Vec::new();
        for one in &uses.turns {
            if matching.place(classes.of(one.level)) {
                placed.push(one);
            }
        }
        // Places in their order, which all uses of a class may have alike.
        let mut used: Vec<_> =
            (0..classes.count()).map(|class| matching.used_by(class).clone()).collect();
        let each = placed.into_iter().filter_map(|one| {
            let mut first = used[classes.of(one.level)].first_entry()?;
            let index = *first.key();
            *first.get_mut() -= 1;
            if *first.get() == 0 {
                first.remove();
            }
            Some((one, index))
        });
        each.collect()
    }
}
