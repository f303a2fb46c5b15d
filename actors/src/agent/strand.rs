//! Stranded: what only an administrator can finish, and how drover notices that it is finished.

use std::time::Duration;

use drover_model::fact::What;
use drover_model::fault::{Culprit, Fault};
use drover_model::ports::VmObservation;
use drover_model::record::{Body, Reason};

use crate::agent::event::Guest;
use crate::agent::mind::{Mind, Out};
use crate::agent::state::State;
use crate::agent::verify_clone::Verdict;
use drover_limits::concurrency::OperationEnd;

/// The pause between two reads of a stranded guest.
const STRANDED_PAUSE: Duration = Duration::from_secs(60);
impl Mind {
    pub(super) fn stranded_looked(
        &mut self,
        observation: &VmObservation,
        reason: Option<Reason>,
        out: &mut Out,
    ) {
        let settled = self.guest.as_ref().is_some_and(Guest::is_settled);
        match self.judge(observation) {
            Verdict::Free => {
                if let Some(guest) = &mut self.guest {
                    guest.prove_never_made();
                }
                self.list_remains(out);
            }
            Verdict::Ours if settled => self.retire(reason.unwrap_or(Reason::Cancelled), out),
            // The time for the doubt may be over. The marks are proof enough.
            Verdict::Ours => self.clone_is_ours(reason, None, out),
            // Volumes of this id cannot be distinguished from those of its new owner any more.
            Verdict::Foreign(_) if self.guest.as_ref().is_some_and(Guest::is_never_made) => {
                self.gone(reason.unwrap_or(Reason::Vanished), true, out);
            }
            Verdict::Copying | Verdict::Foreign(_) | Verdict::Damaged(_) | Verdict::Unclear => {
                self.retry_about(STRANDED_PAUSE, out);
            }
        }
    }

    pub(super) fn list_remains(&mut self, out: &mut Out) {
        if let State::Stranded { listing, .. } = &mut self.state {
            *listing = true;
        }
        self.act(out);
    }

    pub(super) fn stranded_listed(&mut self, result: Result<Vec<String>, Fault>, out: &mut Out) {
        let State::Stranded { reason, listing, .. } = &mut self.state else { return };
        *listing = false;
        match result {
            Ok(volumes) if volumes.is_empty() => {
                let reason = reason.clone().unwrap_or(Reason::Vanished);
                self.gone(reason, false, out);
            }
            Ok(_) | Err(_) => self.retry_about(STRANDED_PAUSE, out),
        }
    }

    /// Strands the agent: only an administrator can finish it.
    pub(super) fn strand(&mut self, why: &str, out: &mut Out) {
        let command = self.remedy_command(&[]);
        self.strand_with(why, command, out);
    }

    pub(super) fn strand_with(&mut self, why: &str, command: String, out: &mut Out) {
        let reason = self.state.leaving().cloned();
        self.adoption.finish();
        self.lane_back(OperationEnd::Inconclusive, out);
        self.lose_leases(why, out);
        out.record(Body::Stranded {
            agent: self.agent.clone(),
            why: why.to_owned(),
            command: command.clone(),
        });
        self.alarm(why, &command, out);
        let why = why.to_owned();
        self.enter(State::Stranded { why: why.clone(), command, reason, listing: false }, out);
        self.report.say(why);
        self.retry_about(STRANDED_PAUSE, out);
    }

    /// Sends an alarm with the command that helps. Where no cloud leads to the guest, that comes
    /// first.
    pub(super) fn alarm(&self, why: &str, command: &str, out: &mut Out) {
        let agent = self.agent.clone();
        let command = self.way_back().unwrap_or_else(|| command.to_owned());
        out.observe(What::Alarm { agent, text: why.to_owned(), command });
    }

    fn way_back(&self) -> Option<String> {
        let guest = self.guest.as_ref().filter(|_| self.reachability.is_cut_off())?;
        Some(format!(
            "no cloud leads to cluster `{cluster}`: `drover status` shows why cloud `{cloud}` does not, \
             where the configuration has it; else put it back, or another cloud that leads there. drover \
             then goes on with VMID {vmid} by itself",
            cluster = guest.marks.cluster,
            cloud = self.spec.id.cloud,
            vmid = guest.marks.vmid
        ))
    }

    /// The last way to the guest is lost, or there is one again. An agent in use needs none.
    pub(super) fn way(&mut self, cut_off: bool, out: &mut Out) {
        self.reachability.cut_off(cut_off);
        match &self.state {
            State::Retiring { .. } if cut_off => self.alarm_cut_off(out),
            State::Retiring { .. } => {
                if let State::Retiring { alarmed, .. } = &mut self.state {
                    *alarmed = false;
                }
                self.start_deadline(out.now.mono);
            }
            State::Stranded { why, command, .. } => self.alarm(why, command, out),
            State::Queued
            | State::Cloning { .. }
            | State::InDoubt { .. }
            | State::Configuring
            | State::Booting(_)
            | State::Connecting { .. }
            | State::Preparing(_)
            | State::Ready
            | State::Leased
            | State::Draining(_)
            | State::Resetting { .. }
            | State::Held { .. }
            | State::Gone { .. } => {}
        }
    }

    /// Alarms that the retirement cannot start.
    pub(super) fn alarm_cut_off(&mut self, out: &mut Out) {
        let State::Retiring { alarmed, .. } = &mut self.state else { return };
        if self.reachability.is_cut_off() && !std::mem::replace(alarmed, true) {
            self.alarm("no configured cloud leads to its guest any more", "", out);
        }
    }

    /// The administrator's command where drover could not list what remains of a guest.
    pub(super) fn list_command(&self) -> String {
        let Some(guest) = &self.guest else { return String::new() };
        let (vmid, node) = (guest.marks.vmid, &guest.node);
        let culprit = self.tries.fault().map(|fault| &fault.culprit);
        let storage = match culprit {
            Some(Culprit::Storage(storage)) => storage,
            Some(
                Culprit::Guest
                | Culprit::Template
                | Culprit::Node(_)
                | Culprit::Cloud(_)
                | Culprit::Source(_),
            )
            | None => "STORAGE",
        };
        format!(
            "pvesm list {storage} --vmid {vmid} # on node {node}, once the storage is back; what \
             is left there and nobody's: pvesm free VOLUME"
        )
    }

    /// The administrator's command on the guest's node.
    pub(super) fn remedy_command(&self, volumes: &[String]) -> String {
        let Some(guest) = &self.guest else { return String::new() };
        let vmid = guest.marks.vmid;
        if volumes.is_empty() {
            let tool = guest.marks.guest.tool();
            return format!(
                "{tool} config {vmid} # on node {}; if it is a machine of drover's: \
                 {tool} unlock {vmid}; {tool} stop {vmid}; {tool} destroy {vmid} --purge",
                guest.node
            );
        }
        let frees: Vec<String> =
            volumes.iter().map(|volume| format!("pvesm free {volume}")).collect();
        format!("{} # on node {}", frees.join("; "), guest.node)
    }
}
