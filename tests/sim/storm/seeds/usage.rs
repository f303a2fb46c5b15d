//! What must hold of use and retirement: nobody uses an agent more often than it may be, nobody loses
//! one but by a limit of their own or by a harm, and what is kept warm stays while it is idle.

use std::collections::BTreeSet;
use std::time::Duration;

use drover_model::id::{AgentId, TemplateId};
use drover_model::journal_state::AgentEntry;
use drover_model::overrides::{OverrideChange, Overrides};
use drover_model::phase::AgentPhase;
use drover_model::record::Reason;
use drover_model::spec::{HerdSpec, TemplateSpec};

use super::seen::{LeaseSeen, Live, Seen};

/// How long something that happened to agents may be unknown to anyone who decides about others.
const NEWS: Duration = Duration::from_secs(5);

/// What an agent was used for, and may be.
#[derive(Debug, Clone)]
pub(super) struct Used {
    spec: TemplateSpec,
    uses: u32,
    overrides: Overrides,
    /// What held before the last change, and until when it may be believed.
    before: Option<(Duration, Overrides)>,
}

impl Used {
    /// One that is started.
    pub(super) fn started(spec: &TemplateSpec) -> Self {
        Self { spec: spec.clone(), uses: 0, overrides: Overrides::default(), before: None }
    }

    /// One that lived before the service started.
    pub(super) fn adopted(entry: &AgentEntry) -> Self {
        let overrides = entry.commands.overrides;
        Self { uses: entry.uses, overrides, ..Self::started(&entry.spec) }
    }

    /// What it was started with.
    pub(super) fn spec(&self) -> &TemplateSpec {
        &self.spec
    }

    /// An operator changed its limits.
    pub(super) fn change(&mut self, change: OverrideChange, now: Duration) {
        self.before = Some((now + NEWS, self.overrides));
        self.overrides.change(change);
    }

    /// One use more; too many in words, if it is.
    pub(super) fn another(&mut self, now: Duration) -> Option<String> {
        self.uses += 1;
        let before = self.before.filter(|(until, _)| now <= *until).map(|(_, limits)| limits);
        let may =
            |limits: &Overrides| limits.max_uses(&self.spec).is_none_or(|most| self.uses <= most);
        let fits = may(&self.overrides) || before.as_ref().is_some_and(may);
        (!fits).then(|| format!("use {} of {:?}", self.uses, self.overrides.max_uses(&self.spec)))
    }
}

/// What left the agents that are ready of late.
#[derive(Debug, Default)]
pub(super) struct Losses {
    lost: Vec<(Duration, TemplateId, AgentId, Left)>,
    /// Those that were asked to go because they were more than enough.
    spared: BTreeSet<AgentId>,
    /// Whether somebody let the warm minimum go too, ever.
    all_reaped: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Left {
    /// It is not idle any more.
    Idle,
    /// It is not ready any more.
    Ready,
}

impl Losses {
    /// The warm minimum may go too.
    pub(super) fn reap_all(&mut self) {
        self.all_reaped = true;
    }

    /// An agent's state is reported.
    pub(super) fn reported(
        &mut self,
        now: Duration,
        agent: &AgentId,
        live: &Live,
        after: AgentPhase,
    ) {
        self.lost.retain(|(at, ..)| *at + NEWS >= now);
        let left = match live.state {
            before if before.takes_leases() && !after.takes_leases() => Left::Ready,
            // From its first lease on it is its owner's, and none of the pool.
            AgentPhase::Ready if after != AgentPhase::Ready && live.resets => Left::Ready,
            AgentPhase::Ready if after != AgentPhase::Ready => Left::Idle,
            _ => return,
        };
        if !self.spared.contains(agent) {
            self.lost.push((now, live.template.clone(), agent.clone(), left));
        }
    }

    fn of(&self, template: &TemplateId, agent: &AgentId, left: &[Left]) -> usize {
        let counts = |(_, of, other, how): &&(Duration, TemplateId, AgentId, Left)| {
            of == template && other != agent && left.contains(how)
        };
        self.lost.iter().filter(counts).count()
    }
}

/// What is wrong with an agent's going for this reason, under the configurations that may hold.
pub(super) fn going(
    seen: &mut Seen,
    agent: &AgentId,
    reason: &Reason,
    specs: &[HerdSpec],
) -> Option<(&'static str, String)> {
    let user = |lease: &&LeaseSeen| {
        lease.holds && lease.over.is_none() && lease.agent.as_ref() == Some(agent)
    };
    let used = seen.leases.values().any(|lease| user(&lease));
    let fair = match reason {
        Reason::LeaseExpired => true,
        Reason::PoweredOff
        | Reason::Vanished
        | Reason::Stopping
        | Reason::TooSlow { .. }
        | Reason::Failed { .. } => seen.harmed,
        Reason::Idle
        | Reason::UsedUp
        | Reason::Old
        | Reason::AskedBy { .. }
        | Reason::Outdated
        | Reason::Asked
        | Reason::HoldOver
        | Reason::Reaped
        | Reason::Unconfigured
        | Reason::Orphaned
        | Reason::ReturnedFromPark
        | Reason::WindowClosed
        | Reason::TrialOver
        | Reason::Altered
        | Reason::MadeRoom
        | Reason::NodeDrained
        | Reason::Cancelled => false,
    };
    if used && !fair {
        let text = format!("{agent} goes under its user: {reason}");
        return Some(("nobody-loses-an-agent-in-use", text));
    }
    let polite = match reason {
        Reason::Idle | Reason::WindowClosed => true,
        Reason::Reaped => !seen.losses.all_reaped,
        _ => false,
    };
    // The pool makes room too, whatever is kept: who waits for another size comes before who may come.
    if polite || *reason == Reason::MadeRoom {
        seen.losses.spared.insert(agent.clone());
        seen.losses.lost.retain(|(_, _, other, _)| other != agent);
    }
    if !polite {
        return None;
    }
    short(seen, agent, specs).map(|text| ("what-is-kept-stays", text))
}

/// Whether a template keeps less than it is to, once this agent goes.
fn short(seen: &Seen, agent: &AgentId, specs: &[HerdSpec]) -> Option<String> {
    let going = seen.live.get(agent)?;
    // One of a size of its own is none of the pool either.
    let is_sized =
        |agent: &AgentId| seen.used.get(agent).is_some_and(|used| !used.spec.size.is_none());
    let is_apart = |agent: &AgentId, live: &Live| live.is_kept_for_one() || is_sized(agent);
    if is_apart(agent, going) {
        return None;
    }
    let template = &going.template;
    let others = || {
        let live = seen.live.iter();
        let of = live.filter(|(other, live)| *other != agent && live.template == *template);
        of.filter(|(other, live)| !live.retiring && !is_apart(other, live)).map(|(_, live)| live)
    };
    let ready = others().filter(|live| live.state.takes_leases()).count()
        + seen.losses.of(template, agent, &[Left::Ready]);
    let idle = others().filter(|live| live.state == AgentPhase::Ready).count()
        + seen.losses.of(template, agent, &[Left::Ready, Left::Idle]);
    let enough = specs.iter().any(|spec| {
        let kept = spec.templates.get(template);
        kept.is_none_or(|kept| ready >= kept.minimum as usize && idle >= kept.idle_minimum as usize)
    });
    (!enough)
        .then(|| format!("{template} keeps {ready} ready, {idle} of them idle, without {agent}"))
}
