//! Adoption: how an agent that the journal knows goes on after a start of the service or a panic.
//!
//! Whatever the journal says, drover reads the guest before it does anything to it (book: agents,
//! Restart and adoption).
//!
//! ```text
//! journal entry ──▶ adopt ──▶ begin ──▶ first observation ──▶ resume
//!                     │          │            │ free: vanished; foreign or damaged: Stranded
//!                     │          │            └ unclear: again after a pause
//!                     │          └ no entry: the agent ends and gives its id back
//!                     └ stranded: Stranded; clone not settled: InDoubt; retiring: the fence
//! ```
//!
//! - In: the `AgentEntry` of the journal, how long the service was down, the clock.
//! - Out: a [`Mind`] whose [`Adoption`] lasts while its guest must still be inspected.
//! - Time: the deadline of the state starts again, once. The downtime is credited to leases. No
//!   lease and no hold gets longer than it was granted for, however the clock was set.
//! - A guest that does not run restarts at `Booting` if it was never ready, and is retired
//!   otherwise.
//! - A reset that was cut short, and a lease whose end was cut short, end in retirement.
//! - An agent whose actor panicked before its clone was durable ends (`give_up_unborn`).
//!
//! Beside it: `journal_view.rs` keeps the journal's view across a panic, `verify_clone.rs` makes the
//! observation, `leasing.rs` and `keys.rs` take up leases.

use std::sync::Arc;
use std::time::Duration;

use drover_model::id::{LeaseId, Upid, VmId};
use drover_model::journal_state::{AgentEntry, GrantedLease, Pass};
use drover_model::phase::{AgentPhase, LoginPhase};
use drover_model::record::{Body, Reason};
use drover_model::time::Now;

use crate::agent::address::Addresses;
use crate::agent::adoption::{Adoption, Unborn};
use crate::agent::concurrency_place::ConcurrencyPlace;
use crate::agent::event::{CloneProof, Effect, Guest};
use crate::agent::holding::Holding;
use crate::agent::leases::{Lease, Stage};
use crate::agent::machine::Machine;
use crate::agent::mind::{Mind, Out};
use crate::agent::report::Waterfall;
use crate::agent::retire::is_courteous;
use crate::agent::state::{BootStep, ConnectStep, PrepareStep, ResetStep, RetireStep, State};
use crate::agent::usage::Usage;
use crate::agent::verify_clone::horizon;

/// The reason of a retirement whose lease end was cut short with the service.
const LEASE_CUT: &str = "the end of a lease was cut short";

/// How often drover reads a guest that does not run before it starts the guest: the start may have
/// been accepted before the service ended.
const START_LOOKS: u32 = 2;
/// How long a start may take to show.
const START_SHOWS: Duration = Duration::from_secs(2);

impl Mind {
    /// Makes the mind of an agent that the journal knows. `down` is credited to its leases.
    ///
    /// The deadline of the present state starts again, once (book: safety, rule 13).
    pub fn adopt(
        entry: &AgentEntry,
        down: Duration,
        epoch: u64,
        incarnation: u32,
        now: Now,
    ) -> Self {
        let agent = entry.marks.agent.clone();
        let spec = Arc::new((*entry.spec).clone());
        let installation = entry.marks.installation.clone();
        let mut mind = Self::new(agent, installation, spec, epoch, incarnation, now);
        let earlier = now.wall - entry.intended;
        let lifetime = mind.spec.limits.lifetime;
        mind.timers.live_until(lifetime.map(|life| now.mono + life.saturating_sub(earlier)));
        *mind.report.waterfall_mut() =
            Waterfall::resumed(u64::try_from(earlier.as_millis()).unwrap_or(u64::MAX), now);
        mind.usage = Usage::of_entry(entry);
        mind.machine = Machine::of_entry(entry.machine.clone());
        mind.holding = Holding::new(entry.commands.hold.clone(), entry.commands.held_why.clone());
        mind.addresses = Addresses::recorded(entry.addresses.clone(), entry.called);
        if !entry.settled {
            mind.place = ConcurrencyPlace::Held;
        }
        mind.guest = Some(Guest {
            marks: entry.marks.clone(),
            node: entry.node.clone(),
            upid: entry.upid.as_ref().map(Upid::new),
            clone: if entry.settled { CloneProof::Ours } else { CloneProof::None },
            mac: entry.mac.clone(),
            address: entry.address.as_deref().and_then(|text| text.parse().ok()),
            host_keys: entry.host_keys.clone(),
            volumes: entry.volumes.clone(),
            image_unsent: false,
        });
        let lease = |id: &LeaseId, granted: &GrantedLease, stage| {
            let mut granted = granted.clone();
            granted.expires = granted.expires + down;
            let left = granted.left(now.wall);
            if granted.expires > now.wall + left {
                granted.renew(now.wall + left, now.wall);
            }
            (id.clone(), Lease::new(granted, now.mono, now.mono + left, stage))
        };
        let held = entry.leases.iter().map(|(id, granted)| {
            let admitting = !granted.is_ready();
            let stage = if admitting { Stage::Admitting } else { Stage::Ready };
            let (id, mut lease) = lease(id, granted, stage);
            lease.unseen = !admitting;
            lease.unsure = admitting && lease.is_runners();
            (id, lease)
        });
        let over = entry.expelling.iter().map(|(id, granted)| lease(id, granted, Stage::Expelling));
        mind.leases = over.chain(held).collect();
        let moved = mind.leases.all().filter(|(id, lease)| {
            let known = entry.leases.get(*id);
            known.is_some_and(|known| known.expires != lease.granted.expires)
        });
        let moved = moved.map(|(id, _)| id.clone()).collect();
        mind.state = adopted_state(entry, now);
        if mind.state.is_alive() {
            mind.adoption = Adoption::unseen(moved, entry.unswept);
        }
        if let Some(since) = entry.since.filter(|_| entry.state == Some(mind.state.phase())) {
            mind.report.waterfall_mut().shown_since(since.min(now.wall));
        }
        if let (State::Held { .. }, Some(why)) = (&mind.state, mind.holding.why()) {
            mind.report.say(why);
        }
        mind
    }

    /// Makes a mind that only ends, because the journal does not know the agent.
    ///
    /// Either the actor panicked before the intent to clone was durable. Then nothing was cloned,
    /// and a second try would be a second agent (book: safety, rule 3). Or the agent was `Gone`
    /// already, with that reason and perhaps a burned id, and only must be reported.
    pub fn give_up_unborn(&mut self, granted: Option<VmId>, gone: Option<(Reason, bool)>) {
        self.place = ConcurrencyPlace::Held;
        self.adoption = Adoption::unborn(Unborn { granted, gone });
    }

    /// Carries out what adoption changed. Runs once, before anything else.
    pub(super) fn begin(&mut self, out: &mut Out) {
        if let Some(Unborn { granted, gone }) = self.adoption.take_unborn() {
            if let Some(vmid) = granted {
                let burned = gone.as_ref().is_some_and(|(_, burned)| *burned);
                out.effects.push(Effect::IdBack { vmid, burned });
            }
            if let Some((reason, burned)) = gone {
                return self.gone(reason, burned, out);
            }
            let text = "its actor panicked before it was cloned".to_owned();
            let reason = Reason::Failed { state: AgentPhase::Queued, kind: "broken".into(), text };
            return self.gone(reason, false, out);
        }
        if self.adoption.is_unseen() {
            self.intend_missing_runner(out);
            for lease in self.leases.running() {
                let id = lease.granted.ask.lease.clone();
                let expires = lease.granted.expires;
                if self.adoption.has_moved(&id) {
                    out.record(Body::LeaseRenewed { lease: id, expires });
                }
                self.show_lease(lease, "adopted", out);
            }
        } else {
            self.start_deadline(out.now.mono);
            let cause = self.state.leaving().map(Reason::to_string).unwrap_or_default();
            self.lose_leases(&cause, out);
        }
        self.say_doubt(out.now);
        if let State::Stranded { why, command, .. } = &self.state {
            let (why, command) = (why.clone(), command.clone());
            self.alarm(&why, &command, out);
            self.report.say(why);
        }
        self.act(out);
    }

    /// Reports the runner of a ready lease, which is in the guest already.
    fn runner_started_before(&self, id: &LeaseId, out: &mut Out) {
        let ready = self.leases.get(id).filter(|lease| lease.stage == Stage::Ready);
        if let Some(Pass::Runner(source, runner, _)) = ready.and_then(|l| l.granted.pass()) {
            out.effects.push(Effect::RunnerStarted(source, runner));
        }
    }

    /// The adopted guest exists and is ours: goes on from the journal's state.
    pub(super) fn resume(&mut self, running: bool, out: &mut Out) {
        let unswept = self.adoption.see();
        self.start_deadline(out.now.mono);
        self.resume_order(running, out);
        match self.state.clone() {
            State::Configuring => {
                self.tries.calm();
                self.act(out);
            }
            // The start may still run: drover does not start the guest twice.
            State::Booting(BootStep::Start) if !running && self.tries.count() < START_LOOKS => {
                self.adoption.look_again();
                self.tries.add();
                self.retry_in(START_SHOWS, out);
            }
            State::Booting(_) | State::Connecting { .. } | State::Preparing(_) => {
                if running {
                    return self.find_address(out);
                }
                self.enter(State::Booting(BootStep::Start), out);
                self.act(out);
            }
            State::Ready | State::Leased | State::Draining(_)
                if !running && self.machine.expects_running() =>
            {
                self.retire(Reason::PoweredOff, out);
            }
            // How far the reset came is unknown: the last user may still be in the guest.
            State::Resetting { .. } => {
                self.retire(cut_short(AgentPhase::Resetting, "a reset was cut short"), out)
            }
            State::Held { .. } if !self.holding.is_wanted() => self.retire(Reason::HoldOver, out),
            State::Held { .. } => {
                self.tries.calm();
                self.act(out);
            }
            State::Ready => {
                self.tries.calm();
                self.lease_over(out);
            }
            State::Leased if self.leases.is_empty() => {
                self.retire(cut_short(AgentPhase::Leased, LEASE_CUT), out)
            }
            State::Draining(reason) if self.leases.is_empty() => self.retire(reason, out),
            State::Leased | State::Draining(_) => {
                self.tries.calm();
                if unswept {
                    self.drain(cut_short(AgentPhase::Leased, LEASE_CUT), out);
                }
                for id in self.leases.in_line() {
                    self.runner_started_before(&id, out);
                    self.lease_go_on(&id, out);
                }
            }
            State::Queued
            | State::Cloning { .. }
            | State::InDoubt { .. }
            | State::Retiring { .. }
            | State::Stranded { .. }
            | State::Gone { .. } => {}
        }
    }
}

/// The reason where drover cannot know who is still in the guest.
fn cut_short(state: AgentPhase, text: &str) -> Reason {
    Reason::Failed { state, kind: "broken".into(), text: text.into() }
}

fn adopted_state(entry: &AgentEntry, now: Now) -> State {
    if let Some((why, command)) = entry.stranded.clone() {
        let reason = entry.retiring.clone();
        return State::Stranded { why, command, reason, listing: false };
    }
    if !entry.settled {
        let horizon = now.mono + horizon(&entry.spec.limits);
        return State::InDoubt { horizon, dead: None, cancelled: entry.retiring.clone() };
    }
    if let Some(reason) = entry.retiring.clone() {
        let graceful = is_courteous(&entry.spec, entry.address.is_some());
        return State::Retiring {
            reason,
            step: RetireStep::Fence,
            graceful,
            alarmed: false,
            since: now.mono,
        };
    }
    match entry.phase() {
        AgentPhase::Held => {
            let span = entry.commands.hold.as_ref().map_or(0, |hold| hold.span_ms);
            let fresh = now.wall + Duration::from_millis(span);
            let until = entry.commands.held_until.unwrap_or(fresh);
            // A hold never lasts longer than it was asked for, however the clock was set.
            let left = (until - now.wall).min(Duration::from_millis(span));
            State::Held {
                until: now.wall + left,
                ends: now.mono + left,
                login: LoginPhase::Opening,
            }
        }
        AgentPhase::Draining => State::Draining(Reason::Asked),
        AgentPhase::Resetting => State::Resetting { step: ResetStep::Rollback, since: now.mono },
        _ if entry.is_entered() => State::Leased,
        AgentPhase::Leased => State::Leased,
        AgentPhase::Ready => State::Ready,
        AgentPhase::Preparing => State::Preparing(PrepareStep::first(&entry.spec)),
        AgentPhase::Connecting => State::Connecting { step: ConnectStep::Greet },
        AgentPhase::Booting => State::Booting(BootStep::Start),
        // The clone is settled and the journal has no later state. `Retiring`, `Stranded` and
        // `Gone` are in the journal with their reasons, which are handled above. Configuring the
        // guest again does no harm.
        AgentPhase::Queued
        | AgentPhase::Cloning
        | AgentPhase::InDoubt
        | AgentPhase::Configuring
        | AgentPhase::Retiring
        | AgentPhase::Stranded
        | AgentPhase::Gone => State::Configuring,
    }
}
