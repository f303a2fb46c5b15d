//! Whether the guest is alive: what lists of its cluster show of it, whether its SSH answers, and what
//! follows.
//!
//! A list is ten seconds old at best and may show what was before a start, so that nothing is decided
//! by it: where it shows the guest stopped, the guest itself is looked at, and that answer decides.
//! A machine that stands still, an SSH server that is silent and a node that is offline prove nothing
//! either. They are shown, nothing more is handed out there, and whoever holds a lease on it keeps it
//! (design rule 15). Two things end sooner: an idle agent whose SSH stays silent while its cluster
//! shows it running, and leases on a node that is offline beyond its grace while SSH is silent too.

use std::net::IpAddr;
use std::time::Duration;

use drover_model::ambient::jittered;
use drover_model::fault::{Fault, FaultKind};
use drover_model::id::Attempt;
use drover_model::phase::AgentPhase;
use drover_model::record::Reason;
use drover_model::time::Moment;

use crate::agent::event::{Answer, Call, Effect};
use crate::agent::mind::{Mind, Out};
use crate::agent::state::{Stage, State};
use crate::message::{Observed, Shown};

/// How far what a list shows may be behind its guest: the status daemon's cycle, and what the worker
/// that answers keeps.
const BEHIND: Duration = Duration::from_secs(15);
/// The longest pause between two looks at a guest that runs while lists show it stopped.
const BELIEVED_LONGEST: Duration = Duration::from_secs(300);
/// How long an agent may be handed out after its SSH answered.
pub const FRESH: Duration = Duration::from_secs(15);
/// The pause between two probes of SSH; up to half as much is added by chance, so that probes of
/// many agents spread. With [`PROBE_LIMIT`] it stays within [`FRESH`].
const PROBE_PAUSE: Duration = Duration::from_secs(8);
/// The pause after a probe without an answer.
const PROBE_AGAIN: Duration = Duration::from_secs(2);
/// How long SSH may take to say that it is there.
const PROBE_LIMIT: Duration = Duration::from_secs(3);
/// Probes without an answer in a row that make SSH silent: at most 25 s after its last answer.
const SILENT_AFTER: u32 = 3;
/// A guest whose SSH is silent is looked at once in so many probes.
const LOOK_EVERY: u32 = 6;
/// How long the SSH of an idle agent may be silent while its cluster shows that it runs: a network
/// that was away for less costs no machine.
const SILENT_IDLE: Duration = Duration::from_secs(120);
/// The age of a list that still says something of this moment.
const LISTED: Duration = Duration::from_secs(30);

/// What is known of the guest's being alive.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Alive {
    /// When the guest was last known to have started, or was seen running directly.
    proven: Moment,
    /// Whether a list has shown it running since then: one that shows it stopped is news then.
    shown: bool,
    /// How long lists are not believed that contradict that.
    pause: Duration,
    /// Whether its node is offline, by the last list.
    offline: bool,
    /// What its machine does in place of running, by the last list, and under which lock.
    still: Option<(String, Option<String>)>,
    /// The trouble that its holders were told.
    told: Option<String>,
    /// When a list that showed it running was asked for last.
    listed: Option<Moment>,
    /// When its SSH answered last.
    answered: Option<Moment>,
    /// The probe under way.
    probe: Option<Attempt>,
    /// When SSH is probed next.
    probe_at: Moment,
    /// Probes without an answer in a row.
    unanswered: u32,
    /// When the first of them ended.
    unanswered_since: Moment,
    /// Whether uses may be given out on it, by the end of the last step.
    pub(super) usable: bool,
}

impl Alive {
    /// A guest that runs from this moment on, as is known directly.
    pub(super) fn since(now: Moment) -> Self {
        Self {
            proven: now,
            shown: false,
            pause: BEHIND,
            offline: false,
            still: None,
            told: None,
            listed: None,
            answered: None,
            probe: None,
            probe_at: now,
            unanswered: 0,
            unanswered_since: now,
            usable: false,
        }
    }

    /// The guest runs although a list showed it stopped: the list is behind, perhaps for long.
    fn contradicted(&mut self, now: Moment) {
        self.proven = now;
        self.shown = false;
        self.pause = (self.pause * 2).min(BELIEVED_LONGEST);
    }

    /// Whether a list that was asked for then can show something newer than what is known.
    fn is_news(&self, at: Moment) -> bool {
        at >= self.proven && (self.shown || at - self.proven >= self.pause)
    }

    /// Whether the probe under way is this one.
    pub(super) fn awaits(&self, attempt: Attempt) -> bool {
        self.probe == Some(attempt)
    }

    fn is_silent(&self) -> bool {
        self.unanswered >= SILENT_AFTER
    }

    /// Until when its last answer lets uses be given out.
    fn fresh_until(&self) -> Option<Moment> {
        self.answered.filter(|_| self.unanswered == 0).map(|at| at + FRESH)
    }
}

impl Mind {
    /// A list shows something of the guest.
    pub(super) fn observed_in_list(&mut self, seen: &Observed, out: &mut Out) {
        if !self.is_watched() || seen.at < self.alive.proven {
            return;
        }
        self.alive.offline = seen.offline;
        match &seen.status {
            Shown::Running if !seen.offline => {
                self.alive.shown = true;
                self.alive.pause = BEHIND;
                self.alive.still = None;
                self.alive.listed = Some(seen.at);
            }
            Shown::Still(word) if self.alive.is_news(seen.at) => {
                self.alive.still = Some((word.clone(), seen.lock.clone()));
            }
            Shown::Stopped if seen.lock.is_none() && self.alive.is_news(seen.at) => {
                self.seen_stopped(out);
            }
            Shown::Running | Shown::Stopped | Shown::Still(_) | Shown::Unknown => {}
        }
    }

    /// Whether the guest should run, and nothing else finds that out at this moment.
    pub(super) fn is_watched(&self) -> bool {
        self.should_run() && !self.observing
    }

    /// What keeps uses from being given out on the guest, in words for people.
    pub(super) fn trouble(&self) -> Option<String> {
        if !self.is_watched() {
            return None;
        }
        if let Some((word, lock)) = &self.alive.still {
            let lock = lock.as_ref().map(|lock| format!(" (lock: {lock})")).unwrap_or_default();
            return Some(format!("its machine does not run: {word}{lock}"));
        }
        let node = self.guest.as_ref().map(|guest| &guest.node);
        match node.filter(|_| self.alive.offline) {
            Some(node) => Some(format!("node {node} is offline")),
            None => self.alive.is_silent().then(|| "its SSH does not answer".into()),
        }
    }

    /// Tells those who hold it what is wrong with the guest, whenever that changed.
    pub(super) fn tell_trouble(&mut self, out: &mut Out) {
        let trouble = self.trouble();
        if self.alive.told == trouble {
            return;
        }
        self.alive.told.clone_from(&trouble);
        let detail = trouble.unwrap_or_default();
        for lease in self.leases.values().filter(|lease| lease.stage == Stage::Ready) {
            self.show_lease(lease, &detail, out);
        }
    }

    /// A look found the guest running.
    pub(super) fn seen_running(&mut self, out: &Out) {
        self.alive.contradicted(out.now.mono);
    }

    /// Whatever SSH was asked, it answered.
    pub(super) fn ssh_answered(&mut self, out: &Out) {
        let now = out.now.mono;
        self.alive.answered = Some(now);
        self.alive.unanswered = 0;
        self.alive.probe_at = now + jittered(PROBE_PAUSE, out.draw);
    }

    /// A probe came back.
    pub(super) fn probed(&mut self, result: Result<(), Fault>, out: &mut Out) {
        self.alive.probe = None;
        let Err(fault) = result else { return self.ssh_answered(out) };
        let now = out.now.mono;
        self.alive.probe_at = now + PROBE_AGAIN;
        // Where the probe itself could not be made, nothing is known of the guest.
        if fault.kind != FaultKind::Unreachable {
            return;
        }
        self.alive.unanswered = self.alive.unanswered.saturating_add(1);
        if self.alive.unanswered == 1 {
            self.alive.unanswered_since = now;
        }
        if !self.alive.is_silent() {
            return;
        }
        self.alive.probe_at = now + jittered(PROBE_PAUSE, out.draw);
        // Lists may be behind, or not show this guest at all.
        if (self.alive.unanswered - SILENT_AFTER).is_multiple_of(LOOK_EVERY) {
            self.seen_stopped(out);
        }
        self.lose_where_parked(out);
        self.retire_silent(out);
    }

    /// An idle agent whose SSH stays silent goes: nobody loses anything by it. Where its cluster does
    /// not show it running, the network may be at fault, and it stays.
    fn retire_silent(&mut self, out: &mut Out) {
        let now = out.now.mono;
        let idle = matches!(self.state, State::Ready) && !self.observing && !self.parked;
        let listed = self.alive.listed.is_some_and(|at| now - at <= LISTED);
        if idle && listed && now - self.alive.unanswered_since >= SILENT_IDLE {
            let text = format!("its SSH did not answer for {} s", SILENT_IDLE.as_secs());
            let reason =
                Reason::Failed { state: AgentPhase::Ready, kind: "unreachable".into(), text };
            self.retire(reason, out);
        }
    }

    /// Leases on a node that is offline beyond its grace are lost once SSH is silent too: their
    /// machine goes as soon as its node is back, and nobody waits for that.
    pub(super) fn lose_where_parked(&mut self, out: &mut Out) {
        let in_use = matches!(self.state, State::Leased | State::Draining(_));
        let silent = self.alive.is_silent() || self.address().is_none();
        let Some(guest) = self.guest.as_ref().filter(|_| self.parked && in_use && silent) else {
            return;
        };
        if self.only_expels() {
            return;
        }
        let why = format!("node {} is offline, and its SSH does not answer", guest.node);
        let detail = self.detail.clone();
        self.lose_leases(&why, out);
        self.enter(State::Draining(Reason::ReturnedFromPark), out);
        self.detail = detail;
    }

    /// Settles at the end of a step whether uses may be given out on it.
    pub(super) fn settle_use(&mut self, out: &Out) {
        self.alive.usable = self.is_usable(out.now.mono);
    }

    /// Whether its SSH answered just now, and nothing is known against it.
    fn is_usable(&self, now: Moment) -> bool {
        self.trouble().is_none() && self.alive.fresh_until().is_some_and(|until| now <= until)
    }

    /// Whether uses may be given out on it, by the end of the last step.
    pub(super) fn was_usable(&self) -> bool {
        self.alive.usable
    }

    /// Whether a use may be given out at this moment; if not, SSH is probed at once.
    pub(super) fn may_be_used(&mut self, out: &Out) -> bool {
        let usable = self.is_usable(out.now.mono);
        if !usable && self.alive.unanswered == 0 {
            self.alive.probe_at = out.now.mono;
        }
        usable
    }

    /// Where SSH is probed, while it is.
    fn probe_address(&self) -> Option<IpAddr> {
        let waits = match self.state {
            State::Ready => !self.parked,
            State::Leased | State::Draining(_) => !self.only_expels(),
            State::Queued
            | State::Cloning { .. }
            | State::InDoubt { .. }
            | State::Configuring
            | State::Booting(_)
            | State::Connecting { .. }
            | State::Preparing(_)
            | State::Resetting(_)
            | State::Held { .. }
            | State::Retiring { .. }
            | State::Stranded { .. }
            | State::Gone { .. } => false,
        };
        // After a start of the service its node may be offline: no look at the guest ends then.
        let begun = !self.observing || self.parked;
        self.address().filter(|_| waits && begun)
    }

    /// When SSH is to be probed, or the last answer gets too old to hand the agent out.
    pub(super) fn alive_due(&self) -> Option<Moment> {
        self.probe_address()?;
        let probe = Some(self.alive.probe_at).filter(|_| self.alive.probe.is_none());
        let old = self.alive.fresh_until().filter(|_| self.alive.usable);
        [probe, old.map(|until| until + Duration::from_millis(1))].into_iter().flatten().min()
    }

    /// Probes SSH when that is due.
    pub(super) fn tick_alive(&mut self, out: &mut Out) {
        let due = self.alive.probe.is_none() && self.alive.probe_at <= out.now.mono;
        let Some(address) = self.probe_address().filter(|_| due) else { return };
        let attempt = self.next();
        self.alive.probe = Some(attempt);
        out.effects.push(Effect::Ask(attempt, Call::Probe(address, PROBE_LIMIT)));
    }
}

/// Whether an answer shows that the guest's SSH works.
pub(super) fn is_of_ssh(answer: &Answer) -> bool {
    match answer {
        Answer::Greeted(result) => result.is_ok(),
        Answer::Ran(result) => result.is_ok(),
        Answer::Unlocked(result) | Answer::Expelled(_, result) | Answer::Admitted(_, result) => {
            result.is_ok()
        }
        Answer::Words(_, result) => result.is_ok(),
        Answer::Probed(_)
        | Answer::Cloned(_)
        | Answer::TaskEnded(_)
        | Answer::Looked(_)
        | Answer::IdSeen(_)
        | Answer::Configured(_)
        | Answer::Accepted(_)
        | Answer::Addressed(_)
        | Answer::HostKeys(_)
        | Answer::Snapped(_)
        | Answer::RolledBack(_)
        | Answer::Fenced(_)
        | Answer::Leftovers(_) => false,
    }
}
