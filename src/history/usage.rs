//! Usage of a range: how long machines were there and how large they were, what was served and how long
//! it waited, and what failed.
//!
//! Each record counts with its part of the range alone, so ranges that touch add up. A report takes one
//! record after the other: its memory is that of its rows, of which there are [`ROWS_MAX`] at most.

use std::collections::BTreeMap;

use drover_model::tenant;
use serde::{Deserialize, Serialize};

use crate::{Agent, Demand, DemandKind, How, Line, Range};

/// Rows of a report; what is beyond them is in one row.
pub const ROWS_MAX: usize = 1000;
/// The row of what is beyond [`ROWS_MAX`].
pub const OTHERS: &str = "(others)";
/// The row of agents' time that nobody used: boots, idle agents, their ends.
pub const UNUSED: &str = "(unused)";
/// The row of leases that people asked for, among sources.
pub const LEASES: &str = "(leases)";
/// The row of leases, among owners, of which the reader may not know for whom they are.
pub(crate) const OF_OTHERS: &str = "(leases of others)";
/// The row of what no agent served.
pub const NOT_SERVED: &str = "(not served)";

const HOUR_MS: f64 = 3_600_000.0;
const MIB_OF_GIB: f64 = 1024.0;
/// So many parts has a unit of cost: a price is of a GiB, and memory is in MiB.
const COST_PARTS: u128 = 1024;

/// By what the rows of a report are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum By {
    #[default]
    Template,
    Source,
    Owner,
    Cloud,
}

impl By {
    pub const ALL: [Self; 4] = [Self::Template, Self::Source, Self::Owner, Self::Cloud];

    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Template => "template",
            Self::Source => "source",
            Self::Owner => "owner",
            Self::Cloud => "cloud",
        }
    }

    /// The one of that name.
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|by| by.name() == name)
    }
}

/// What an hour of a core and of a GiB of memory costs, in millionths of a unit of money.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Prices {
    pub core_hour: u64,
    pub gib_hour: u64,
}

/// The prices of all machines, and those of some clouds and templates.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PriceList {
    pub all: Prices,
    /// By `cloud` or `cloud/template`; a template's outweighs its cloud's.
    pub of: BTreeMap<String, Prices>,
}

impl PriceList {
    /// The prices of a machine of this template, where that is known.
    fn of(&self, template: Option<&str>) -> Prices {
        let of_template = template.and_then(|template| self.of.get(template));
        let cloud = || self.of.get(cloud_of(template?));
        of_template.or_else(cloud).copied().unwrap_or(self.all)
    }
}

/// The cloud of a template, `cloud/template`.
fn cloud_of(template: &str) -> &str {
    template.split('/').next().unwrap_or(template)
}

/// One row of a report.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Row {
    pub name: String,
    /// Agents with any part in the range; none in a report by source or owner.
    pub agents: u64,
    pub vm_hours: f64,
    pub core_hours: f64,
    pub gib_hours: f64,
    /// Leases and jobs that were served in the range.
    pub leases: u64,
    pub jobs: u64,
    /// How long these had waited, in milliseconds: the median, and what 95 of 100 did not exceed.
    pub wait_p50_ms: Option<u64>,
    pub wait_p95_ms: Option<u64>,
    /// Agents that failed in the range, and leases and jobs that were lost or waited too long.
    pub failures: u64,
    /// Hours of machines whose size is not known: they have no part in core-hours and GiB-hours.
    pub unsized_hours: f64,
    /// What it costs, in units of money; none without prices.
    pub price: Option<f64>,
}

/// Waits, counted in classes whose bounds are 2.2 % apart: enough for a percentile, whatever their number.
#[derive(Debug, Clone, Default)]
struct Waits {
    classes: BTreeMap<u32, u64>,
    count: u64,
}

/// Classes for each doubling.
const CLASSES: f64 = 32.0;

impl Waits {
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a class is a small number, and a wait is shorter than 2^52 ms"
    )]
    fn add(&mut self, ms: u64) {
        let class = ((ms as f64 + 1.0).log2() * CLASSES).round() as u32;
        *self.classes.entry(class).or_default() += 1;
        self.count += 1;
    }

    /// What so many of 100 do not exceed, by the nearest rank.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "waits are positive and far below 2^52 ms"
    )]
    fn percentile(&self, percent: u64) -> Option<u64> {
        let rank = (self.count * percent).div_ceil(100).max(1);
        let mut below = 0;
        let class = self.classes.iter().find(|(_, count)| {
            below += *count;
            below >= rank
        });
        class.map(|(class, _)| ((f64::from(*class) / CLASSES).exp2() - 1.0).round() as u64)
    }
}

/// What a row adds up.
#[derive(Debug, Clone, Default)]
struct Sums {
    agents: u64,
    vm_ms: u64,
    core_ms: u64,
    mib_ms: u64,
    unsized_ms: u64,
    /// Millionths of a unit of money for an hour, times milliseconds, times [`COST_PARTS`].
    cost: u128,
    leases: u64,
    jobs: u64,
    failures: u64,
    waits: Waits,
}

impl Sums {
    fn time(&mut self, ms: u64, (cores, memory_mib): (Option<u32>, Option<u32>), prices: Prices) {
        self.vm_ms += ms;
        match (cores, memory_mib) {
            (Some(cores), Some(memory)) => {
                self.core_ms = self.core_ms.saturating_add(ms.saturating_mul(cores.into()));
                self.mib_ms = self.mib_ms.saturating_add(ms.saturating_mul(memory.into()));
                let of_cores = u128::from(cores) * u128::from(prices.core_hour) * COST_PARTS;
                let an_hour = of_cores + u128::from(memory) * u128::from(prices.gib_hour);
                self.cost = self.cost.saturating_add(an_hour.saturating_mul(ms.into()));
            }
            (None, _) | (_, None) => self.unsized_ms += ms,
        }
    }

    fn less(&mut self, used: &Self) {
        self.vm_ms = self.vm_ms.saturating_sub(used.vm_ms);
        self.core_ms = self.core_ms.saturating_sub(used.core_ms);
        self.mib_ms = self.mib_ms.saturating_sub(used.mib_ms);
        self.unsized_ms = self.unsized_ms.saturating_sub(used.unsized_ms);
        self.cost = self.cost.saturating_sub(used.cost);
    }

    fn add_time(&mut self, other: &Self) {
        self.vm_ms += other.vm_ms;
        self.core_ms += other.core_ms;
        self.mib_ms += other.mib_ms;
        self.unsized_ms += other.unsized_ms;
        self.cost = self.cost.saturating_add(other.cost);
    }

    #[expect(clippy::cast_precision_loss, reason = "figures for people, far below 2^52")]
    fn row(&self, name: String, has_prices: bool) -> Row {
        let hours = |ms: u64| ms as f64 / HOUR_MS;
        let (core_hours, gib_hours) = (hours(self.core_ms), hours(self.mib_ms) / MIB_OF_GIB);
        let price = self.cost as f64 / (COST_PARTS as f64 * HOUR_MS * 1e6);
        Row {
            name,
            agents: self.agents,
            vm_hours: hours(self.vm_ms),
            core_hours,
            gib_hours,
            leases: self.leases,
            jobs: self.jobs,
            wait_p50_ms: self.waits.percentile(50),
            wait_p95_ms: self.waits.percentile(95),
            failures: self.failures,
            unsized_hours: hours(self.unsized_ms),
            price: has_prices.then_some(price),
        }
    }
}

/// A report that takes one record after the other.
pub struct Tally {
    range: Range,
    by: By,
    prices: Option<PriceList>,
    /// Who reads it; none for somebody who may see all.
    who: Option<tenant::By>,
    rows: BTreeMap<String, Sums>,
    total: Sums,
    /// Time of agents that leases and runners used.
    used: Sums,
}

impl Tally {
    /// A report, with what it costs where there are prices.
    pub fn new(range: Range, by: By, prices: Option<PriceList>) -> Self {
        let (rows, total, used) = (BTreeMap::new(), Sums::default(), Sums::default());
        Self { range, by, prices, who: None, rows, total, used }
    }

    /// With leases of owners in rows of their own only where these may know for whom a lease is.
    #[must_use]
    pub fn seen_by(mut self, who: tenant::By) -> Self {
        self.who = Some(who);
        self
    }

    /// The row of an owner.
    fn owned<'a>(&self, owner: &'a str, group: Option<&str>) -> &'a str {
        // `NAME (PRINCIPAL)`, or the principal alone.
        let in_brackets = owner.strip_suffix(')').and_then(|owner| owner.rsplit_once(" ("));
        let principal = in_brackets.map_or(owner, |(_, principal)| principal);
        let may_see = self.who.as_ref().is_none_or(|who| who.owns(principal, group));
        if may_see { owner } else { OF_OTHERS }
    }

    /// Takes in a record.
    pub fn take(&mut self, line: &Line) {
        match line {
            Line::Agent(agent) => self.agent(agent),
            Line::Demand(demand) => self.demand(demand),
            Line::Trace(_) | Line::Configuration(_) | Line::Service(_) | Line::End(_) => {}
        }
    }

    fn prices_of(&self, template: Option<&str>) -> Prices {
        self.prices.as_ref().map(|list| list.of(template)).unwrap_or_default()
    }

    fn sums(&mut self, name: &str) -> &mut Sums {
        let is_full = self.rows.len() >= ROWS_MAX && !self.rows.contains_key(name);
        self.rows.entry(if is_full { OTHERS } else { name }.to_owned()).or_default()
    }

    /// Adds to a row and to the total alike.
    fn both(&mut self, name: &str, add: impl Fn(&mut Sums)) {
        add(self.sums(name));
        add(&mut self.total);
    }

    fn agent(&mut self, agent: &Agent) {
        let Some(machine) = agent.machine else { return };
        if !self.range.meets(machine, agent.gone) {
            return;
        }
        let ms = self.range.part_ms(machine, agent.gone);
        let failed =
            u64::from(agent.has_failed() && agent.gone.is_some_and(|at| self.range.has(at)));
        let prices = self.prices_of(Some(&agent.template));
        let add = |sums: &mut Sums| {
            sums.agents += 1;
            sums.failures += failed;
            sums.time(ms, (agent.cores, agent.memory_mib), prices);
        };
        match self.by {
            By::Template => self.both(&agent.template, add),
            By::Cloud => self.both(&agent.cloud, add),
            // Whose it was is said by what was on it.
            By::Source | By::Owner => {
                add(&mut self.total);
                if failed > 0 {
                    self.sums(UNUSED).failures += failed;
                }
            }
        }
    }

    fn demand(&mut self, demand: &Demand) {
        let name = match self.by {
            By::Template => demand.template.as_deref().unwrap_or(NOT_SERVED),
            By::Cloud => demand.template.as_deref().map_or(NOT_SERVED, cloud_of),
            By::Source => demand.source.as_deref().unwrap_or(LEASES),
            By::Owner => match demand.owner.as_deref() {
                Some(owner) => self.owned(owner, demand.group.as_deref()),
                None => demand.source.as_deref().unwrap_or(LEASES),
            },
        };
        if matches!(self.by, By::Source | By::Owner) {
            self.use_of_agent(name, demand);
        }
        let is_runner = demand.kind == DemandKind::Runner;
        if let (Some(served), Some(waited), false) = (demand.served, demand.waited_ms(), is_runner)
            && self.range.has(served)
        {
            let is_job = demand.kind == DemandKind::Job;
            self.both(name, |sums| {
                *(if is_job { &mut sums.jobs } else { &mut sums.leases }) += 1;
                sums.waits.add(waited);
            });
        }
        let is_failure = matches!(demand.how, Some(How::Lost | How::WaitedTooLong));
        if is_failure && !is_runner && demand.ended.is_some_and(|at| self.range.has(at)) {
            self.both(name, |sums| sums.failures += 1);
        }
    }

    /// The part of an agent that a lease or a runner had, as far as it is in the range.
    fn use_of_agent(&mut self, name: &str, demand: &Demand) {
        let Some(granted) = demand.granted else { return };
        if !self.range.meets(granted, demand.ended) {
            return;
        }
        let part = self.range.part_ms(granted, demand.ended);
        let ms = match (demand.ended, demand.used_ms) {
            (Some(ended), Some(used)) => {
                let whole = u64::try_from(ended.0.saturating_sub(granted.0)).unwrap_or(0).max(1);
                let share = u128::from(used) * u128::from(part) / u128::from(whole);
                u64::try_from(share).unwrap_or(u64::MAX)
            }
            (None, _) | (_, None) => part,
        };
        let size = (demand.cores, demand.memory_mib);
        let prices = self.prices_of(demand.template.as_deref());
        self.sums(name).time(ms, size, prices);
        self.used.time(ms, size, prices);
    }

    /// The rows by name, and what they add up to.
    pub fn finish(mut self) -> (Vec<Row>, Row) {
        if matches!(self.by, By::Source | By::Owner) {
            let mut unused = self.total.clone();
            unused.less(&self.used);
            self.sums(UNUSED).add_time(&unused);
        }
        let is_empty = |sums: &Sums| {
            sums.vm_ms == 0 && sums.agents + sums.leases + sums.jobs + sums.failures == 0
        };
        let rows = self.rows.into_iter().filter(|(_, sums)| !is_empty(sums));
        let has_prices = self.prices.is_some();
        let rows = rows.map(|(name, sums)| sums.row(name, has_prices)).collect();
        (rows, self.total.row("total".to_owned(), has_prices))
    }
}

#[cfg(test)]
mod tests;
