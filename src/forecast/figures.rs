//! What a trace or a replay comes to, in numbers. Both are counted by the same rules.

use std::collections::BTreeMap;

use drover_history::{DemandKind, Trace};
use drover_model::spec::HerdSpec;
use drover_model::time::WallTime;
use serde::Serialize;

/// Something that was wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    pub arrived: WallTime,
    pub served: Option<WallTime>,
    pub ended: Option<WallTime>,
    pub agent: Option<String>,
    /// The template that served it.
    pub template: Option<String>,
    pub outcome: Outcome,
}

/// What became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It was served, or waited to the end.
    Kept,
    /// It ended before it was served: somebody called it off, or it waited too long.
    CalledOff,
    /// No template serves it, or a limit refused it.
    Refused,
}

/// An agent as far as it is counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    pub id: String,
    pub cloud: String,
    pub template: String,
    pub made: WallTime,
    pub machine: Option<WallTime>,
    pub ready: Option<WallTime>,
    pub gone: Option<WallTime>,
    pub failed: bool,
}

/// Everything that is counted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Counted {
    pub wanted: Vec<Wanted>,
    pub machines: Vec<Machine>,
    /// The first moment that counts, and the first that does not.
    pub from: WallTime,
    pub to: WallTime,
}

/// Waits of those who were served, or still wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Waits {
    pub p50_ms: u64,
    pub p95_ms: u64,
    pub longest_ms: u64,
}

impl Waits {
    fn of(mut waits: Vec<u64>) -> Self {
        waits.sort_unstable();
        Self {
            p50_ms: percentile(&waits, 50),
            p95_ms: percentile(&waits, 95),
            longest_ms: waits.last().copied().unwrap_or(0),
        }
    }
}

/// The smallest value that so many of a hundred do not exceed; zero of none.
pub fn percentile(sorted: &[u64], hundredths: usize) -> u64 {
    let rank = (sorted.len() * hundredths).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or(0)
}

/// The numbers of a template, or of all.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Figures {
    pub demands: u64,
    pub served: u64,
    /// Those that waited at the end.
    pub waiting: u64,
    pub called_off: u64,
    pub refused: u64,
    pub wait: Waits,
    /// Those that found an agent ready.
    pub pool_hits: u64,
    /// Those that waited while a cap was full; none where the caps are not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cap_hits: Option<u64>,
    pub agents: u64,
    pub failed: u64,
    /// The time that machines were there, in milliseconds.
    pub machine_ms: u64,
}

impl Figures {
    /// The time that machines were there, in hours.
    pub fn machine_hours(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
        let ms = self.machine_ms as f64;
        ms / 3_600_000.0
    }
}

/// The numbers of all templates.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    pub all: Figures,
    /// By `cloud/template`. Those that nobody served are in `all` alone.
    pub templates: BTreeMap<String, Figures>,
}

/// How many agents there were at each change of that number.
struct Steps(Vec<(WallTime, i64)>);

impl Steps {
    fn of<'a>(machines: impl Iterator<Item = &'a Machine>) -> Self {
        let mut changes: BTreeMap<WallTime, i64> = BTreeMap::new();
        for machine in machines {
            *changes.entry(machine.made).or_default() += 1;
            if let Some(gone) = machine.gone {
                *changes.entry(gone).or_default() -= 1;
            }
        }
        let mut count = 0;
        let steps = changes.into_iter().map(|(at, change)| {
            count += change;
            (at, count)
        });
        Self(steps.collect())
    }

    /// Whether there were so many at any moment from one to before another.
    fn reach(&self, cap: u32, from: WallTime, to: WallTime) -> bool {
        let cap = i64::from(cap);
        let first = self.0.partition_point(|(at, _)| *at <= from);
        let before = first.checked_sub(1).and_then(|at| self.0.get(at));
        let within = self.0.iter().skip(first).take_while(|(at, _)| *at < to);
        from < to && before.into_iter().chain(within).any(|(_, count)| *count >= cap)
    }
}

/// The caps of a configuration with how full they were.
struct Caps<'a> {
    spec: &'a HerdSpec,
    templates: BTreeMap<&'a str, Steps>,
    clouds: BTreeMap<&'a str, Steps>,
}

impl<'a> Caps<'a> {
    fn of(spec: &'a HerdSpec, machines: &'a [Machine]) -> Self {
        let of = |name: fn(&'a Machine) -> &'a str| {
            let mut by: BTreeMap<&str, Vec<&Machine>> = BTreeMap::new();
            for machine in machines {
                by.entry(name(machine)).or_default().push(machine);
            }
            let steps = by.into_iter().map(|(name, all)| (name, Steps::of(all.into_iter())));
            steps.collect::<BTreeMap<_, _>>()
        };
        let (templates, clouds) = (of(|one| &one.template), of(|one| &one.cloud));
        Self { spec, templates, clouds }
    }

    /// Whether the cap of a template, or of its cloud, was full for a while.
    fn were_full(&self, template: &str, from: WallTime, to: WallTime) -> bool {
        let spec = self.spec.templates.values().find(|spec| spec.id.to_string() == template);
        let Some(spec) = spec else { return false };
        let cloud = self.spec.clouds.get(&spec.id.cloud);
        let own = spec.cap.zip(self.templates.get(template));
        let whole = cloud.and_then(|one| one.cap).zip(self.clouds.get(spec.id.cloud.as_str()));
        let full = |limit: Option<(u32, &Steps)>| {
            limit.is_some_and(|(cap, steps)| steps.reach(cap, from, to))
        };
        full(own) || full(whole)
    }

    /// The same of any template.
    fn any_was_full(&self, from: WallTime, to: WallTime) -> bool {
        let all = self.spec.templates.values();
        all.map(|spec| spec.id.to_string()).any(|name| self.were_full(&name, from, to))
    }
}

impl Counted {
    /// What a trace has, and what was refused at these times.
    pub fn of(trace: &Trace, refused: &[WallTime]) -> Self {
        let (from, to) = (trace.header.from, trace.header.to);
        let wanted = trace.demands.iter().filter(|one| one.kind != DemandKind::Runner);
        let wanted = wanted.map(|demand| Wanted {
            arrived: demand.arrived,
            served: demand.served,
            ended: demand.ended,
            agent: demand.agent.clone(),
            template: demand.template.clone().filter(|_| demand.served.is_some()),
            outcome: match demand.ended {
                Some(_) if demand.served.is_none() => Outcome::CalledOff,
                Some(_) | None => Outcome::Kept,
            },
        });
        let refused = refused.iter().map(|at| Wanted {
            arrived: *at,
            served: None,
            ended: Some(*at),
            agent: None,
            template: None,
            outcome: Outcome::Refused,
        });
        let wanted = wanted.chain(refused);
        let machines = trace.agents.iter().map(|agent| Machine {
            id: agent.id.clone(),
            cloud: agent.cloud.clone(),
            template: agent.template.clone(),
            made: agent.made,
            machine: agent.machine,
            ready: agent.ready,
            gone: agent.gone,
            failed: agent.has_failed() && agent.ready.is_none() && agent.machine.is_some(),
        });
        Self { wanted: wanted.collect(), machines: machines.collect(), from, to }
    }

    /// Counts; cap hits where a configuration says what the caps are.
    pub fn report(&self, spec: Option<&HerdSpec>) -> Report {
        let mut report = Report::default();
        let caps = spec.map(|spec| Caps::of(spec, &self.machines));
        let machines: BTreeMap<&str, &Machine> =
            self.machines.iter().map(|one| (one.id.as_str(), one)).collect();
        let uses = self.uses();
        let places = self.places(&uses);
        let mut waits: BTreeMap<Option<&str>, Vec<u64>> = BTreeMap::new();
        let counts = |wanted: &&Wanted| wanted.arrived >= self.from && wanted.arrived < self.to;
        for wanted in self.wanted.iter().filter(counts) {
            let machine = wanted.agent.as_deref().and_then(|agent| machines.get(agent)).copied();
            let machine = machine.filter(|_| wanted.served.is_some());
            let pool = machine.is_some_and(|machine| {
                let ready = machine.ready.is_some_and(|ready| ready <= wanted.arrived);
                let uses = uses.get(machine.id.as_str()).map(Vec::as_slice);
                let most = places.get(machine.template.as_str()).copied().unwrap_or(1);
                ready && had_room(uses.unwrap_or_default(), wanted, most)
            });
            let full = caps.as_ref().map(|caps| !pool && is_capped(caps, wanted, machine, self.to));
            let waited = wanted.served.unwrap_or(self.to) - wanted.arrived;
            let waited = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
            // Its agent may be of before the trace.
            let name = wanted.template.as_deref();
            let own = name.map(|name| report.templates.entry(name.to_owned()).or_default());
            for figures in [&mut report.all].into_iter().chain(own) {
                figures.note(wanted, pool, full);
            }
            if wanted.outcome == Outcome::Kept {
                waits.entry(None).or_default().push(waited);
                if name.is_some() {
                    waits.entry(name).or_default().push(waited);
                }
            }
        }
        for machine in &self.machines {
            let own = report.templates.entry(machine.template.clone()).or_default();
            for figures in [&mut report.all, own] {
                figures.add(machine, self.from, self.to);
            }
        }
        for (name, waits) in waits {
            let figures = match name {
                None => Some(&mut report.all),
                Some(name) => report.templates.get_mut(name),
            };
            if let Some(figures) = figures {
                figures.wait = Waits::of(waits);
            }
        }
        report
    }

    /// The uses of each agent, each from when on and until when.
    fn uses(&self) -> BTreeMap<&str, Vec<Use>> {
        let mut uses: BTreeMap<&str, Vec<Use>> = BTreeMap::new();
        for wanted in &self.wanted {
            if let (Some(agent), Some(served)) = (&wanted.agent, wanted.served) {
                let ended = wanted.ended.unwrap_or(self.to.max(served));
                uses.entry(agent).or_default().push((served, ended));
            }
        }
        uses
    }

    /// How many uses an agent of each template has room for. A trace does not say it, so it is the most that one
    /// of them had at a time.
    fn places(&self, uses: &BTreeMap<&str, Vec<Use>>) -> BTreeMap<&str, usize> {
        let mut places = BTreeMap::new();
        for machine in &self.machines {
            let own = uses.get(machine.id.as_str()).map_or(0, |uses| most_at_a_time(uses));
            let known: &mut usize = places.entry(machine.template.as_str()).or_insert(1);
            *known = own.max(*known);
        }
        places
    }
}

/// A use of an agent: from when on and until when.
type Use = (WallTime, WallTime);

/// Whether an agent had room for a demand as it came: it was in nobody's use; or fewer uses than it takes were on, and
/// the demand did not wait until one of them ended, as those that want a whole agent do.
fn had_room(uses: &[Use], wanted: &Wanted, most: usize) -> bool {
    let (came, served) = (wanted.arrived, wanted.served.unwrap_or(wanted.arrived));
    let own = uses.iter().position(|(from, to)| {
        Some(*from) == wanted.served && wanted.ended.is_none_or(|ended| *to == ended)
    });
    let others = uses.iter().enumerate().filter(|(at, _)| Some(*at) != own);
    let mut on = others.map(|(_, one)| one).filter(|(from, to)| *from <= came && came < *to);
    let count = on.clone().count();
    count == 0 || (count < most && on.all(|(_, to)| served < *to))
}

/// The most uses that an agent had at a time.
fn most_at_a_time(uses: &[Use]) -> usize {
    let lasting = || uses.iter().filter(|(from, to)| from < to);
    let begins = lasting().map(|(from, _)| (*from, true));
    let ends = lasting().map(|(_, to)| (*to, false));
    let mut moments: Vec<_> = begins.chain(ends).collect();
    // An end makes room for what begins at the same moment.
    moments.sort_unstable();
    let mut now = 0_usize;
    let counted = moments.into_iter().map(|(_, begins)| {
        now = if begins { now + 1 } else { now.saturating_sub(1) };
        now
    });
    counted.max().unwrap_or(0)
}

/// Whether a demand waited while a cap was full: before its agent was made, or was free.
fn is_capped(caps: &Caps<'_>, wanted: &Wanted, machine: Option<&Machine>, to: WallTime) -> bool {
    if wanted.outcome == Outcome::Refused {
        return false;
    }
    let served = wanted.served.or(wanted.ended).unwrap_or(to);
    match machine {
        Some(machine) if machine.made > wanted.arrived => {
            caps.were_full(&machine.template, wanted.arrived, machine.made)
        }
        Some(machine) => caps.were_full(&machine.template, wanted.arrived, served),
        None => caps.any_was_full(wanted.arrived, served),
    }
}

impl Figures {
    fn note(&mut self, wanted: &Wanted, pool: bool, full: Option<bool>) {
        self.demands += 1;
        self.pool_hits += u64::from(pool);
        if let Some(full) = full {
            *self.cap_hits.get_or_insert(0) += u64::from(full);
        }
        match wanted.outcome {
            Outcome::Kept if wanted.served.is_some() => self.served += 1,
            Outcome::Kept => self.waiting += 1,
            Outcome::CalledOff => self.called_off += 1,
            Outcome::Refused => self.refused += 1,
        }
    }

    fn add(&mut self, machine: &Machine, from: WallTime, to: WallTime) {
        let Some(began) = machine.machine else { return };
        let (began, gone) = (began.max(from), machine.gone.unwrap_or(to).min(to));
        if machine.made >= from && machine.made < to {
            self.agents += 1;
            self.failed += u64::from(machine.failed);
        }
        self.machine_ms += u64::try_from((gone - began).as_millis()).unwrap_or(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(arrived: i64, until: i64) -> Wanted {
        Wanted {
            arrived: WallTime(arrived),
            served: Some(WallTime(arrived)),
            ended: Some(WallTime(until)),
            agent: Some("a1".to_owned()),
            template: Some("lab/linux".to_owned()),
            outcome: Outcome::Kept,
        }
    }

    fn hits(wanted: Vec<Wanted>) -> u64 {
        let machine = Machine {
            id: "a1".to_owned(),
            cloud: "lab".to_owned(),
            template: "lab/linux".to_owned(),
            made: WallTime(0),
            machine: Some(WallTime(0)),
            ready: Some(WallTime(10)),
            gone: None,
            failed: false,
        };
        let (from, to) = (WallTime(0), WallTime(1_000));
        Counted { wanted, machines: vec![machine], from, to }.report(None).all.pool_hits
    }

    // Invariant: a demand is a hit of the pool when an agent had room for it as it came.

    #[test]
    fn an_agent_with_two_executors_takes_two_at_a_time() {
        assert_eq!(hits(vec![used(20, 100), used(30, 90), used(100, 110)]), 3);
    }

    #[test]
    fn a_demand_that_waits_for_the_one_executor_of_an_agent_is_no_hit() {
        let waited = Wanted { arrived: WallTime(30), ..used(100, 200) };
        assert_eq!(hits(vec![used(20, 100), waited, used(200, 200)]), 2);
    }

    #[test]
    fn a_demand_that_waits_for_a_whole_agent_is_no_hit() {
        let whole = Wanted { arrived: WallTime(30), ..used(120, 200) };
        assert_eq!(hits(vec![used(20, 100), used(25, 110), whole]), 2);
    }

    #[test]
    fn a_demand_that_comes_before_the_agent_is_ready_is_no_hit() {
        assert_eq!(hits(vec![used(5, 50)]), 0);
    }
}
