//! Whether the guest is alive: what lists of its cluster show, whether its SSH answers, and what
//! follows.
//!
//! A list is at least ten seconds old and may show a state from before a start. So a list decides
//! nothing: where a list shows the guest stopped, drover reads the guest itself, and that answer
//! decides.
//!
//! A machine that stands still, a silent SSH server and an offline node prove nothing either.
//! drover shows them and hands out nothing more there. The holder of a lease keeps it (book:
//! safety, rule 15). Two things end sooner: an idle agent whose SSH stays silent while its cluster
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
use crate::agent::leases::Stage;
use crate::agent::mind::{Mind, Out};
use crate::agent::state::State;
use crate::message::{Observed, Shown};

/// How far a list may be behind its guest: the cycle of the status daemon, and what the answering
/// worker caches.
const BEHIND: Duration = Duration::from_secs(15);
/// The longest pause between two reads of a running guest that lists show stopped.
const BELIEVED_LONGEST: Duration = Duration::from_secs(300);
/// How long an agent may be handed out after its SSH answered.
pub const FRESH: Duration = Duration::from_secs(15);
/// The pause between two probes of SSH. Chance adds up to half of it, so that probes of many agents
/// spread. With [`PROBE_LIMIT`] it stays within [`FRESH`].
const PROBE_PAUSE: Duration = Duration::from_secs(8);
/// The pause after a probe without an answer.
const PROBE_AGAIN: Duration = Duration::from_secs(2);
/// How long SSH may take to answer a probe.
const PROBE_LIMIT: Duration = Duration::from_secs(3);
/// Unanswered probes in a row that make SSH silent: at most 25 s after its last answer.
const SILENT_AFTER: u32 = 3;
/// With silent SSH, one in this many probes also reads the guest.
const LOOK_EVERY: u32 = 6;
/// How long the SSH of an idle agent may be silent while its cluster shows it running. A shorter
/// network failure costs no machine.
const SILENT_IDLE: Duration = Duration::from_secs(120);
/// The longest age of a list that still describes the present.
const LISTED: Duration = Duration::from_secs(30);

/// What is known of the guest being alive.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Alive {
    /// When the guest last started, or was last seen running by a read of the guest itself.
    proven: Moment,
    /// Whether a list has shown the guest running since then. A later list that shows it stopped is
    /// new evidence.
    shown: bool,
    /// How long lists that contradict `proven` are ignored.
    pause: Duration,
    /// Whether the guest's node is offline, by the last list.
    offline: bool,
    /// The machine's state where it does not run, and its lock, by the last list.
    still: Option<(String, Option<String>)>,
    /// The problem that was last reported to the holders.
    reported: Option<String>,
    /// When drover asked for the last list that showed the guest running.
    listed: Option<Moment>,
    /// When SSH last answered.
    answered: Option<Moment>,
    /// The running probe.
    probe: Option<Attempt>,
    /// When SSH is probed next.
    probe_at: Moment,
    /// Unanswered probes in a row.
    unanswered: u32,
    /// When the first of them ended.
    unanswered_since: Moment,
    /// Whether leases may be given out, by the end of the last step.
    pub(super) usable: bool,
}

impl Alive {
    /// A guest that is known to run from this moment on.
    pub(super) fn since(now: Moment) -> Self {
        Self {
            proven: now,
            shown: false,
            pause: BEHIND,
            offline: false,
            still: None,
            reported: None,
            listed: None,
            answered: None,
            probe: None,
            probe_at: now,
            unanswered: 0,
            unanswered_since: now,
            usable: false,
        }
    }

    /// A guest that is watched again. Its holders still have what was reported to them.
    pub(super) fn watched_again(&mut self, now: Moment) {
        *self = Self { reported: self.reported.take(), ..Self::since(now) };
    }

    /// The guest runs although a list showed it stopped: the list is behind, perhaps for long.
    fn contradicted(&mut self, now: Moment) {
        self.proven = now;
        self.shown = false;
        self.pause = (self.pause * 2).min(BELIEVED_LONGEST);
    }

    /// Whether a list asked for at this moment can show something newer than what is known.
    fn is_news(&self, at: Moment) -> bool {
        at >= self.proven && (self.shown || at - self.proven >= self.pause)
    }

    /// Whether this is the running probe.
    pub(super) fn awaits(&self, attempt: Attempt) -> bool {
        self.probe == Some(attempt)
    }

    fn is_silent(&self) -> bool {
        self.unanswered >= SILENT_AFTER
    }

    /// Until when the last answer of SSH lets leases be given out.
    fn fresh_until(&self) -> Option<Moment> {
        self.answered.filter(|_| self.unanswered == 0).map(|at| at + FRESH)
    }
}

impl Mind {
    /// A list shows the guest.
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

    /// Whether the guest should run and no other check of that is under way.
    pub(super) fn is_watched(&self) -> bool {
        self.should_run() && !self.adoption.is_unseen()
    }

    /// What keeps leases from being given out, for people.
    pub(super) fn trouble(&self) -> Option<String> {
        self.order_trouble().or_else(|| self.machine_trouble())
    }

    /// What an order does to the machine, or has done.
    fn order_trouble(&self) -> Option<String> {
        self.machine.trouble().filter(|_| self.takes_orders())
    }

    /// Whether the machine may be lost, and nobody ordered it.
    pub(super) fn may_be_lost(&self) -> bool {
        self.order_trouble().is_none() && self.machine_trouble().is_some()
    }

    /// Why a machine that should run may not.
    fn machine_trouble(&self) -> Option<String> {
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

    /// Reports a changed problem of the guest to the holders of its leases.
    pub(super) fn report_trouble(&mut self, out: &mut Out) {
        let trouble = self.trouble();
        if self.alive.reported == trouble {
            return;
        }
        self.alive.reported.clone_from(&trouble);
        let detail = trouble.unwrap_or_default();
        for lease in self.leases.each().filter(|lease| lease.stage == Stage::Ready) {
            self.show_lease(lease, &detail, out);
        }
    }

    /// A read of the guest found it running.
    pub(super) fn seen_running(&mut self, out: &Out) {
        self.alive.contradicted(out.now.mono);
    }

    /// SSH answered, to a probe or to any other call.
    pub(super) fn ssh_answered(&mut self, out: &Out) {
        let now = out.now.mono;
        self.alive.answered = Some(now);
        self.alive.unanswered = 0;
        self.alive.probe_at = now + jittered(PROBE_PAUSE, out.draw);
    }

    /// The result of a probe.
    pub(super) fn probed(&mut self, result: Result<(), Fault>, out: &mut Out) {
        self.alive.probe = None;
        let Err(fault) = result else { return self.ssh_answered(out) };
        let now = out.now.mono;
        self.alive.probe_at = now + PROBE_AGAIN;
        // Only [`FaultKind::Unreachable`] means silence. Other faults mean that the probe itself
        // could not be made.
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
        // Lists may be behind, or may not show this guest at all.
        if (self.alive.unanswered - SILENT_AFTER).is_multiple_of(LOOK_EVERY) {
            self.seen_stopped(out);
        }
        self.lose_where_parked(out);
        self.retire_silent(out);
    }

    /// Retires an idle agent whose SSH stays silent, which costs no holder anything. Where its cluster
    /// does not show the guest running, the network may be at fault, and the agent stays.
    fn retire_silent(&mut self, out: &mut Out) {
        let now = out.now.mono;
        let idle = matches!(self.state, State::Ready)
            && !self.adoption.is_unseen()
            && !self.reachability.is_parked();
        let listed = self.alive.listed.is_some_and(|at| now - at <= LISTED);
        if idle && listed && now - self.alive.unanswered_since >= SILENT_IDLE {
            let text = format!("its SSH did not answer for {} s", SILENT_IDLE.as_secs());
            let reason =
                Reason::Failed { state: AgentPhase::Ready, kind: "unreachable".into(), text };
            self.retire(reason, out);
        }
    }

    /// Leases on a node that is offline beyond its grace are lost once SSH is silent too: their
    /// machine is retired as soon as its node is back, and their holders should not wait for that.
    pub(super) fn lose_where_parked(&mut self, out: &mut Out) {
        let in_use = matches!(self.state, State::Leased | State::Draining(_));
        let silent = self.alive.is_silent() || self.address().is_none();
        let Some(guest) =
            self.guest.as_ref().filter(|_| self.reachability.is_parked() && in_use && silent)
        else {
            return;
        };
        if self.leases.only_expels() {
            return;
        }
        let why = format!("node {} is offline, and its SSH does not answer", guest.node);
        self.lose_leases(&why, out);
        self.enter(State::Draining(Reason::ReturnedFromPark), out);
        self.report.say(self.parked_text().unwrap_or_default());
    }

    /// Records at the end of a step whether leases may be given out.
    pub(super) fn settle_use(&mut self, out: &Out) {
        self.alive.usable = self.is_usable(out.now.mono);
    }

    /// Whether SSH answered recently and no problem is known.
    fn is_usable(&self, now: Moment) -> bool {
        self.trouble().is_none() && self.alive.fresh_until().is_some_and(|until| now <= until)
    }

    /// Whether leases may be given out, by the end of the last step.
    pub(super) fn was_usable(&self) -> bool {
        self.alive.usable
    }

    /// Whether a lease may be given out now. If not, SSH is probed at once.
    pub(super) fn may_be_used(&mut self, out: &Out) -> bool {
        let usable = self.is_usable(out.now.mono);
        if !usable && self.alive.unanswered == 0 {
            self.alive.probe_at = out.now.mono;
        }
        usable
    }

    /// The address to probe, in states that probe SSH.
    fn probe_address(&self) -> Option<IpAddr> {
        let waits = match self.state {
            State::Ready => !self.reachability.is_parked(),
            State::Leased | State::Draining(_) => !self.leases.only_expels(),
            State::Queued
            | State::Cloning { .. }
            | State::InDoubt { .. }
            | State::Configuring
            | State::Booting(_)
            | State::Connecting { .. }
            | State::Preparing(_)
            | State::Resetting { .. }
            | State::Held { .. }
            | State::Retiring { .. }
            | State::Stranded { .. }
            | State::Gone { .. } => false,
        };
        // After a start of the service the node may be offline. Then no read of the guest ends.
        let started = !self.adoption.is_unseen() || self.reachability.is_parked();
        let waits = waits && self.machine.expects_running();
        self.address().filter(|_| waits && started)
    }

    /// When the next probe is due, or the last answer gets too old for a hand-out.
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
        | Answer::Ordered(_)
        | Answer::Fenced(_)
        | Answer::Leftovers(_) => false,
    }
}
