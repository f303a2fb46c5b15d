//! How many leases may be asked for, how large their machines may be, and how long they may wait.

use std::sync::Arc;
use std::time::Duration;

use drover_model::id::{AgentId, LeaseId};
use drover_model::record::{LeaseAsk, WAITED};
use drover_model::size::Size;
use drover_model::spec::TemplateSpec;
use drover_model::tenant::{By, LeaseLimits, Quota, Whose};
use drover_model::time::WallTime;

use super::book::Stand;
use super::state::Scheduler;
use super::{Effect, describe};
use crate::message::Refusal;

/// When the end of a wait is written down again that could not be written.
const AGAIN: Duration = Duration::from_secs(10);

impl Scheduler {
    /// Takes limits into force; leases that wait already stay, and wait as long as it says now.
    pub(super) fn limit(&mut self, limits: LeaseLimits) {
        self.book.wait_for(limits.wait);
        self.limits = limits;
    }

    /// Why an ask goes beyond a limit; none when it does not.
    pub(super) fn beyond(
        &self,
        ask: &LeaseAsk,
        configured: &[Arc<TemplateSpec>],
    ) -> Option<Refusal> {
        let all = self.book.waits();
        if all >= self.limits.waiting {
            return Some(Refusal::TooMany(format!(
                "{all} leases wait, and `service.leases.maxWaiting` is {}: ask again later, or \
                 end some of them (`drover leases --state waiting`)",
                self.limits.waiting
            )));
        }
        let whose = Whose::Principal(ask.principal.clone());
        let own = self.book.tally(&whose).waiting;
        if own >= self.limits.waiting_each {
            return Some(Refusal::TooMany(format!(
                "{own} leases of {whose} wait, and `service.leases.maxWaitingPerPrincipal` is {}: \
                 ask again later, or end some of them (`drover leases --state waiting`)",
                self.limits.waiting_each
            )));
        }
        let quotas = self.limits.quotas.iter().filter(|quota| quota.whose.counts(ask));
        quotas.filter_map(|quota| self.beyond_quota(quota, ask, configured)).next()
    }

    /// Why somebody may not hold an agent, which gives them a machine as a lease does; none where they
    /// hold it already.
    pub fn hold_beyond(&self, agent: &AgentId, by: &By) -> Option<Refusal> {
        let own = By { all: false, ..by.clone() };
        if self.held.get(agent).is_some_and(|owner| own.may_change_hold(Some(owner))) {
            return None;
        }
        let spec = self.agents.get(agent).map(|view| view.spec.clone())?;
        self.one_more(&spec, by, |quota| !self.has_lease(&quota.whose, agent))
    }

    /// Why somebody may not have the next agent of a template held that fails.
    pub fn hold_next_beyond(&self, spec: &TemplateSpec, by: &By) -> Option<Refusal> {
        self.one_more(spec, by, |_| true)
    }

    /// Why somebody may not have one more agent of a template, by those of their quotas that count.
    fn one_more(
        &self,
        spec: &TemplateSpec,
        by: &By,
        counts: impl Fn(&Quota) -> bool,
    ) -> Option<Refusal> {
        let (principal, group) = (&by.principal, by.group.as_deref());
        let quotas = self.limits.quotas.iter();
        let mut quotas = quotas.filter(|quota| quota.whose.is(principal, group) && counts(quota));
        quotas.find_map(|quota| self.full(quota).or_else(|| too_large(quota, spec)))
    }

    /// Whether a lease on an agent counts for somebody.
    fn has_lease(&self, whose: &Whose, agent: &AgentId) -> bool {
        self.book
            .at(agent)
            .iter()
            .any(|(lease, _)| self.book.get(lease).is_some_and(|entry| whose.counts(&entry.ask)))
    }

    /// How many agents somebody holds on which none of their leases is.
    fn held_by(&self, whose: &Whose) -> u32 {
        let held = self.held.iter().filter(|(agent, owner)| {
            whose.is(&owner.principal, owner.group.as_deref()) && !self.has_lease(whose, agent)
        });
        u32::try_from(held.count()).unwrap_or(u32::MAX)
    }

    /// Why nobody of a quota may have one machine more.
    fn full(&self, quota: &Quota) -> Option<Refusal> {
        let (whose, most) = (&quota.whose, quota.leases?);
        let (leases, held) = (self.book.tally(whose).live, self.held_by(whose));
        if leases + held < most {
            return None;
        }
        let beside = if held > 0 { format!(" and holds {held} agents") } else { String::new() };
        Some(Refusal::TooMany(format!(
            "{whose} has {leases} leases{beside}, and `maxLeases` of its quota is {most}: release \
             one, or ask again later"
        )))
    }

    fn beyond_quota(
        &self,
        quota: &Quota,
        ask: &LeaseAsk,
        configured: &[Arc<TemplateSpec>],
    ) -> Option<Refusal> {
        if let Some(refusal) = self.full(quota) {
            return Some(refusal);
        }
        let (whose, count) = (&quota.whose, self.book.tally(&quota.whose).waiting);
        if let Some(most) = quota.waiting.filter(|most| count >= *most) {
            return Some(Refusal::TooMany(format!(
                "{whose} waits for {count} leases, and `maxWaiting` of its quota is {most}: release \
                 one, or ask again later"
            )));
        }
        // Whichever template serves it in the end must be within the quota.
        let fit = |spec: &TemplateSpec| {
            let stands_in = || self.routing.fallback(spec, &ask.want, |_| true);
            Some(spec.sized(self.routing.fit(spec, &ask.want).or_else(stands_in)?.size))
        };
        let want = describe(&ask.want);
        configured.iter().filter_map(|spec| fit(spec)).find_map(|spec| {
            let why = larger(quota, &spec)?;
            Some(Refusal::Forbidden(format!(
                "template `{}` serves {want} and {why}: ask by a template within the quota, or by \
                 labels that only such templates carry",
                spec.id
            )))
        })
    }

    /// Ends the leases that have waited as long as they may.
    pub(super) fn waited(&mut self, now: WallTime) -> Vec<Effect> {
        if self.stopping() {
            return Vec::new();
        }
        self.book.clock_was_ahead(now);
        let over = self.book.overdue(now);
        let each = over.into_iter().map(|lease| {
            self.book.stand(&lease, Stand::Cancelling);
            Effect::Cancel { lease, why: WAITED }
        });
        each.collect()
    }

    /// The first moment at which a lease has waited as long as it may.
    pub fn first_end(&self) -> Option<WallTime> {
        self.book.first_end().filter(|_| !self.stopping())
    }

    /// A lease whose end could not be written down waits on, and is not ended at once again.
    pub(super) fn waits_on(&mut self, lease: &LeaseId, now: WallTime) {
        let until = self.book.get(lease).map_or(now, |entry| entry.until);
        self.book.wait_until(lease, until.max(now + AGAIN));
        self.book.stand(lease, Stand::Waiting);
    }
}

impl Scheduler {
    /// Why a machine may not have these sizes, by the quotas of who asks and of who leased it.
    pub fn sizes_beyond(&self, agent: &AgentId, by: &By, sizes: Size) -> Option<Refusal> {
        let asks = |quota: &Quota| quota.whose.is(&by.principal, by.group.as_deref());
        let counts = |quota: &&Quota| asks(quota) || self.has_lease(&quota.whose, agent);
        self.limits.quotas.iter().filter(counts).find_map(|quota| {
            let sizes = [
                (sizes.cores, quota.cores, "maxCores", "cores"),
                (sizes.memory_mb, quota.memory_mb, "maxMemoryMB", "MiB of memory"),
                (sizes.disk_gb, quota.disk_gb, "maxDiskGB", "GiB of disk"),
            ];
            sizes.into_iter().find_map(|(size, most, key, unit)| {
                let (size, most) = (size?, most?);
                (size > most).then(|| {
                    Refusal::Forbidden(format!(
                        "{size} {unit} are too many: `{key}` of the quota of {} is {most}",
                        quota.whose
                    ))
                })
            })
        })
    }
}

/// Why agents of a template are larger than a quota allows.
fn larger(quota: &Quota, spec: &TemplateSpec) -> Option<String> {
    let sizes = [
        (spec.cores, quota.cores, "maxCores", "cores"),
        (spec.memory_mb, quota.memory_mb, "maxMemoryMB", "MiB of memory"),
        (spec.disk_gb, quota.disk_gb, "maxDiskGB", "GiB of disk"),
    ];
    sizes.into_iter().find_map(|(size, most, key, unit)| {
        let most = most?;
        let why = match size {
            Some(size) if size <= most => return None,
            Some(size) => format!("has {size} {unit}"),
            None => format!("does not say how many {unit} it has"),
        };
        Some(format!("{why}, and `{key}` of the quota of {} is {most}", quota.whose))
    })
}

fn too_large(quota: &Quota, spec: &TemplateSpec) -> Option<Refusal> {
    let why = larger(quota, spec)?;
    Some(Refusal::Forbidden(format!("its template `{}` {why}", spec.id)))
}
