//! Stranded: what only an administrator can finish, and how drover notices that it was.

use std::time::Duration;

use crate::agent::doubt::Verdict;
use crate::agent::mind::{Mind, Out};
use crate::agent::state::State;
use crate::fact::What;
use crate::fault::Fault;
use crate::ports::VmSight;
use crate::record::{Body, Reason};

/// Time between two looks at a stranded guest.
const STRANDED_PAUSE: Duration = Duration::from_secs(60);
impl Mind {
    pub(super) fn stranded_looked(
        &mut self,
        sight: &VmSight,
        reason: Option<Reason>,
        out: &mut Out,
    ) {
        let settled = self.guest.as_ref().is_some_and(|guest| guest.settled);
        match self.judge(sight) {
            Verdict::Free => self.list_remains(out),
            Verdict::Ours if settled => self.retire(reason.unwrap_or(Reason::Cancelled), out),
            // Its time in doubt may well be over: the marks are proof enough.
            Verdict::Ours => self.clone_is_ours(reason, None, out),
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

    /// Only an administrator can finish this one.
    pub(super) fn strand(&mut self, why: &str, out: &mut Out) {
        let command = self.mend_command(&[]);
        self.strand_with(why, command, out);
    }

    pub(super) fn strand_with(&mut self, why: &str, command: String, out: &mut Out) {
        let reason = self.state.leaving().cloned();
        self.observing = false;
        self.lane_back(out);
        self.lose_leases(out);
        out.record(Body::Stranded {
            agent: self.agent.clone(),
            why: why.to_owned(),
            command: command.clone(),
        });
        self.alarm(why, &command, out);
        let why = why.to_owned();
        self.enter(State::Stranded { why: why.clone(), command, reason, listing: false }, out);
        self.detail = why;
        self.retry_about(STRANDED_PAUSE, out);
    }

    pub(super) fn alarm(&self, why: &str, command: &str, out: &mut Out) {
        let agent = self.agent.clone();
        out.observe(What::Alarm { agent, text: why.to_owned(), command: command.to_owned() });
    }

    /// What an administrator must run on the guest's node.
    pub(super) fn mend_command(&self, volumes: &[String]) -> String {
        let Some(guest) = &self.guest else { return String::new() };
        let vmid = guest.marks.vmid;
        if volumes.is_empty() {
            return format!(
                "qm config {vmid} # on node {}; if it is a machine of drover's: \
                 qm unlock {vmid}; qm stop {vmid}; qm destroy {vmid} --purge",
                guest.node
            );
        }
        let frees: Vec<String> =
            volumes.iter().map(|volume| format!("pvesm free {volume}")).collect();
        format!("{} # on node {}", frees.join("; "), guest.node)
    }
}
