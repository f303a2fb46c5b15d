//! How long agents take to be ready, to be handed out and to go: the lengths that a trace measured,
//! drawn for each new agent.
//!
//! Whole ways are drawn, not single parts: a guest that boots slowly may be prepared slowly too, and
//! failures come as often as they did. Each template deals its ways like cards, all of them before one
//! comes again, so that few draws already have the mean of many.

use std::collections::BTreeMap;
use std::time::Duration;

use drover_history::{Agent, DemandKind, Trace};
use drover_model::ambient::{Dice, fnv1a};
use drover_model::id::TemplateId;
use drover_model::phase::AgentPhase;

/// The way of one agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Way {
    pub cloning: Duration,
    pub configuring: Duration,
    pub booting: Duration,
    pub connecting: Duration,
    pub preparing: Duration,
    /// From the decision that it goes until its machine is gone.
    pub retiring: Duration,
    /// One reset after a use.
    pub resetting: Duration,
    /// The phase that fails at its end; none where the agent gets ready.
    pub fails: Option<AgentPhase>,
}

impl Way {
    /// Where no agent was ever seen.
    pub const ASSUMED: Self = Self {
        cloning: Duration::from_secs(10),
        configuring: Duration::from_secs(2),
        booting: Duration::from_secs(25),
        connecting: Duration::from_secs(1),
        preparing: Duration::from_secs(7),
        retiring: Duration::from_secs(10),
        resetting: Duration::from_secs(10),
        fails: None,
    };

    /// The way of an agent of a trace; none where its end says nothing of its template: it is not
    /// ready yet, or was not wanted any more.
    fn of(agent: &Agent) -> Option<Self> {
        agent.machine?;
        let fails = agent.failed_in.as_deref().filter(|_| agent.ready.is_none());
        let fails = fails.map(|phase| phase.parse::<AgentPhase>().ok()).unwrap_or_default();
        if agent.ready.is_none() && fails.is_none_or(|phase| !can_fail(phase)) {
            return None;
        }
        let spent = |phases: &[AgentPhase]| {
            let all = agent.boot.iter().chain(&agent.after);
            let of = all.filter(|part| {
                AgentPhase::of_part(&part.name).is_some_and(|phase| phases.contains(&phase))
            });
            Duration::from_millis(of.map(|part| part.ms).sum())
        };
        Some(Self {
            cloning: spent(&[AgentPhase::Cloning, AgentPhase::InDoubt]),
            configuring: spent(&[AgentPhase::Configuring]),
            booting: spent(&[AgentPhase::Booting]),
            connecting: spent(&[AgentPhase::Connecting]),
            preparing: spent(&[AgentPhase::Preparing]),
            retiring: spent(&[AgentPhase::Retiring]),
            resetting: spent(&[AgentPhase::Resetting]) / agent.uses.max(1),
            fails,
        })
    }
}

/// Whether a failure of this phase is one of the way to ready.
fn can_fail(phase: AgentPhase) -> bool {
    matches!(
        phase,
        AgentPhase::Cloning
            | AgentPhase::Configuring
            | AgentPhase::Booting
            | AgentPhase::Connecting
            | AgentPhase::Preparing
    )
}

/// Cards that are dealt in random order, again and again.
struct Deck {
    dice: Dice,
    left: Vec<usize>,
}

impl Deck {
    fn new(seed: u64, of: &str) -> Self {
        Self { dice: Dice::from_number(seed ^ fnv1a(of)), left: Vec::new() }
    }

    fn deal(&mut self, cards: usize) -> usize {
        if self.left.is_empty() {
            self.left = (0..cards).collect();
        }
        let many = u64::try_from(self.left.len()).unwrap_or(u64::MAX);
        let at = usize::try_from(self.dice.below(many)).unwrap_or(0);
        if at < self.left.len() { self.left.swap_remove(at) } else { 0 }
    }
}

/// All lengths of a trace.
#[derive(Debug, Clone, Default)]
pub struct Measured {
    /// The ways of the agents of each `cloud/template`.
    ways: BTreeMap<String, Vec<Way>>,
    /// From the grant of a lease until it was ready, by `cloud/template`.
    hand_outs: BTreeMap<String, Vec<Duration>>,
}

impl Measured {
    /// What a trace measured.
    pub fn of(trace: &Trace) -> Self {
        let mut measured = Self::default();
        for agent in &trace.agents {
            if let Some(way) = Way::of(agent) {
                measured.ways.entry(agent.template.clone()).or_default().push(way);
            }
        }
        for demand in trace.demands.iter().filter(|one| one.kind == DemandKind::Lease) {
            let (Some(template), Some(granted), Some(served)) =
                (&demand.template, demand.granted, demand.served)
            else {
                continue;
            };
            measured.hand_outs.entry(template.clone()).or_default().push(served - granted);
        }
        measured
    }

    /// The template whose lengths a template has: its own, those of one of the same name on another
    /// cloud, or those of the template that has the most.
    pub fn lender(&self, template: &TemplateId) -> Option<&str> {
        let own = template.to_string();
        let alike = || {
            let name = format!("/{}", template.name);
            self.ways.keys().find(|one| one.ends_with(&name))
        };
        let most = || {
            let most = self.ways.iter().max_by_key(|(_, ways)| ways.len());
            most.map(|(template, _)| template)
        };
        let lender = self.ways.get_key_value(&own).map(|(own, _)| own).or_else(alike);
        lender.or_else(most).map(String::as_str)
    }
}

/// Deals lengths. Equal seeds deal the same, and each template has dice of its own.
pub struct Dealer {
    measured: Measured,
    seed: u64,
    ways: BTreeMap<TemplateId, Deck>,
    hand_outs: BTreeMap<TemplateId, Deck>,
}

impl Dealer {
    pub fn new(measured: Measured, seed: u64) -> Self {
        Self { measured, seed, ways: BTreeMap::new(), hand_outs: BTreeMap::new() }
    }

    /// The way of the next agent of a template.
    pub fn way(&mut self, template: &TemplateId) -> Way {
        let known = self.measured.lender(template).and_then(|one| self.measured.ways.get(one));
        let Some(ways) = known else { return Way::ASSUMED };
        let deck = self.ways.entry(template.clone());
        let deck = deck.or_insert_with(|| Deck::new(self.seed, &format!("ways of {template}")));
        ways.get(deck.deal(ways.len())).cloned().unwrap_or(Way::ASSUMED)
    }

    /// How long the next agent of a template takes to be handed out.
    pub fn hand_out(&mut self, template: &TemplateId) -> Duration {
        let lender = self.measured.lender(template);
        let known = lender.and_then(|one| self.measured.hand_outs.get(one));
        let Some(spans) = known.filter(|spans| !spans.is_empty()) else {
            return crate::ssh::LOGIN + crate::ssh::CHANGE;
        };
        let deck = self.hand_outs.entry(template.clone());
        let deck =
            deck.or_insert_with(|| Deck::new(self.seed, &format!("hand-outs of {template}")));
        spans.get(deck.deal(spans.len())).copied().unwrap_or_default()
    }
}
