//! When a cloud is asked who it is: in its time, and at once where an answer speaks against it.

use std::time::Duration;

use drover_model::fault::{Culprit, Fault};
use drover_model::ports::ClusterObservation;
use drover_model::state_machine::Turn;
use drover_model::time::{Moment, Now};

use super::event::Effect;
use super::state::{CloudMind, refuses_login};

/// How soon a suspicion has it asked again after an earlier one did.
const SUSPICION: Duration = Duration::from_secs(2);

/// The question that is under way, and what came up meanwhile.
#[derive(Debug, Clone, Default)]
pub(super) struct Inquiry {
    /// Stamps questions: answers to older ones are dropped.
    stamp: u64,
    is_open: bool,
    /// Whether it was suspected meanwhile: the answer may be older than the cause.
    suspected: bool,
    /// When a suspicion had it asked last.
    suspected_at: Option<Moment>,
}

impl CloudMind {
    /// The stamp of the last question.
    pub fn stamp(&self) -> u64 {
        self.inquiry.stamp
    }

    pub(super) fn ask(&mut self, turn: &mut Turn<Effect>) {
        if self.spec().is_none() {
            return;
        }
        self.inquiry.stamp += 1;
        self.inquiry.is_open = true;
        self.inquiry.suspected = false;
        turn.push(Effect::Ask);
    }

    pub(super) fn ask_due(&mut self, stamp: u64, turn: &mut Turn<Effect>) {
        if stamp == self.inquiry.stamp {
            self.ask(turn);
        }
    }

    pub(super) fn answer(
        &mut self,
        stamp: u64,
        observation: Result<ClusterObservation, Fault>,
        now: Now,
        turn: &mut Turn<Effect>,
    ) {
        if stamp != self.inquiry.stamp || self.spec().is_none() {
            return;
        }
        self.inquiry.is_open = false;
        let fine = observation.as_ref().is_ok_and(|observation| observation.quorate);
        if std::mem::take(&mut self.inquiry.suspected) && fine && self.is_well() {
            return self.ask_soon(now, turn);
        }
        self.identify(observation, now.wall, turn);
    }

    /// An answer speaks against the cloud.
    ///
    /// A refused login needs no second question, which Proxmox would answer 3 s late
    /// (book: proxmox, section 2). For anything else a cloud that works is asked at once, or soon
    /// after an earlier suspicion. One that does not work is asked every few seconds anyway.
    pub(super) fn suspect(&mut self, fault: Fault, now: Now, turn: &mut Turn<Effect>) {
        let own = matches!(&fault.culprit, Culprit::Cloud(cloud) if self.is(cloud));
        if self.is_well() && own && refuses_login(&fault) {
            self.refuse_login(fault.text, now.wall);
            // The answer that is under way may be older than this.
            self.inquiry.stamp += 1;
            return turn.push(Effect::AskAgain(Duration::ZERO));
        }
        self.ask_soon(now, turn);
    }

    fn ask_soon(&mut self, now: Now, turn: &mut Turn<Effect>) {
        if !self.is_well() {
            return;
        }
        if self.inquiry.is_open {
            self.inquiry.suspected = true;
            return;
        }
        let since = self.inquiry.suspected_at.map_or(SUSPICION, |at| now.mono - at);
        if since >= SUSPICION {
            self.inquiry.suspected_at = Some(now.mono);
            return self.ask(turn);
        }
        turn.push(Effect::AskIn(SUSPICION - since));
    }
}
