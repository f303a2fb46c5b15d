//! How many leases may be asked for, how large their machines may be, and how long they may wait.

use std::sync::Arc;
use std::time::Duration;

use super::book::Stand;
use super::state::Broker;
use super::{Order, describe};
use crate::id::LeaseId;
use crate::message::Refusal;
use crate::record::{LeaseAsk, WAITED};
use crate::spec::TemplateSpec;
use crate::tenant::{LeaseLimits, Quota, Whose};
use crate::time::WallTime;

/// When the end of a wait is written down again that could not be written.
const AGAIN: Duration = Duration::from_secs(10);

impl Broker {
    /// Takes limits into force; leases that wait already stay, and wait as long as it says now.
    pub fn limit(&mut self, limits: LeaseLimits) {
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

    fn beyond_quota(
        &self,
        quota: &Quota,
        ask: &LeaseAsk,
        configured: &[Arc<TemplateSpec>],
    ) -> Option<Refusal> {
        let (whose, tally) = (&quota.whose, self.book.tally(&quota.whose));
        for (count, most, key, what) in [
            (tally.live, quota.leases, "maxLeases", "has"),
            (tally.waiting, quota.waiting, "maxWaiting", "waits for"),
        ] {
            if let Some(most) = most.filter(|most| count >= *most) {
                return Some(Refusal::TooMany(format!(
                    "{whose} {what} {count} leases, and `{key}` of its quota is {most}: release \
                     one, or ask again later"
                )));
            }
        }
        // Whichever template serves it in the end must be within the quota.
        let stands_in =
            |spec: &TemplateSpec| self.routing.fallback(spec, &ask.want, |_| true).is_some();
        let serves = |spec: &TemplateSpec| self.routing.serves(spec, &ask.want) || stands_in(spec);
        let serving = configured.iter().filter(|spec| serves(spec));
        for spec in serving {
            for (size, most, key, unit) in [
                (spec.cores, quota.cores, "maxCores", "cores"),
                (spec.memory_mb, quota.memory_mb, "maxMemoryMB", "MiB of memory"),
                (spec.disk_gb, quota.disk_gb, "maxDiskGB", "GiB of disk"),
            ] {
                let Some(most) = most else { continue };
                let why = match size {
                    Some(size) if size <= most => continue,
                    Some(size) => format!("has {size} {unit}"),
                    None => format!("does not say how many {unit} it has"),
                };
                return Some(Refusal::Forbidden(format!(
                    "template `{}` serves {} and {why}, and `{key}` of the quota of {whose} is \
                     {most}: ask by a template within the quota, or by labels that only such \
                     templates carry",
                    spec.id,
                    describe(&ask.want)
                )));
            }
        }
        None
    }

    /// Ends the leases that have waited as long as they may.
    pub fn waited(&mut self, now: WallTime) -> Vec<Order> {
        if self.stopping() {
            return Vec::new();
        }
        self.book.clock_was_ahead(now);
        let over = self.book.overdue(now);
        let each = over.into_iter().map(|lease| {
            self.book.stand(&lease, Stand::Cancelling);
            Order::Cancel { lease, why: WAITED }
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
