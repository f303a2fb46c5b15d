//! The machine the journal belongs to. One that was copied to a second machine makes two drovers
//! with one installation, each of which would retire the other's agents.

use actix::Context;
use drover_model::fact::What;
use drover_model::journal_state::JournalState;
use drover_model::machine::Machine;
use drover_model::record::Body;

use super::Herd;
use crate::reconciler::restrained;
use crate::restraint::Cause;

/// Why agents are not destroyed on another machine than before.
const MOVED: &str = "this state directory was last used on another machine: drover destroys none of \
                     the agents that it knows from there, and hands out none; if the directory was moved, run `drover \
                     resync --confirm-machine`; if it was copied, stop one of the two drovers, and \
                     give that one an empty state directory";

impl Herd {
    /// Compares this machine with the journal's, and holds back what another drover may own.
    pub(super) fn know_machine(
        &mut self,
        journal_state: &JournalState,
        machine: Option<Machine>,
        ctx: &mut Context<Self>,
    ) {
        let restraint = &self.common.restraint;
        for (cluster, (vmid, _)) in &journal_state.ahead {
            let cause = Cause::Guests(cluster.clone());
            restraint.hold(cause, &restrained(*vmid), journal_state.agents.keys().cloned());
        }
        let Some(machine) = machine else { return self.show_signs_if_any() };
        match &journal_state.machine {
            Some(before) if !before.may_be(&machine) => {
                tracing::error!(agents = journal_state.agents.len(), "{MOVED}");
                restraint.hold(Cause::Machine, MOVED, journal_state.agents.keys().cloned());
                self.unbound = Some(machine);
            }
            Some(before) if *before == machine => {}
            Some(_) | None => self.bind(machine, ctx),
        }
        self.show_signs_if_any();
    }

    fn show_signs_if_any(&self) {
        if self.common.restraint.why().is_some() {
            self.show_signs();
        }
    }

    /// Shows people what speaks for another drover.
    fn show_signs(&self) {
        self.observe(What::OtherDrover { why: self.common.restraint.signs() });
    }

    /// An operator says that this machine alone has the state directory.
    pub(super) fn confirm_machine(&mut self, ctx: &mut Context<Self>) {
        if let Some(machine) = self.unbound.clone() {
            self.bind(machine, ctx);
        }
    }

    fn bind(&mut self, machine: Machine, ctx: &mut Context<Self>) {
        let body = Body::MachineBound { machine };
        self.append(body, ctx, |herd, done, _| match done {
            Ok(_) => {
                herd.unbound = None;
                let held = herd.common.restraint.why().is_some();
                herd.common.restraint.lift(&Cause::Machine);
                // What was shown goes; where nothing was, there is nothing to say.
                if held {
                    herd.show_signs();
                }
                tracing::info!("the journal belongs to this machine");
            }
            Err(fault) => tracing::warn!(error = %fault, "the machine was not written down"),
        });
    }
}
