//! An agent without a guest.

use std::sync::Arc;

use actix::{Actor, AsyncContext, Context, Handler};
use drover_limits::concurrency::OperationEnd;
use drover_model::fault::Fault;
use drover_model::id::{LeaseId, VmId};
use drover_model::overrides::Overrides;
use drover_model::phase::AgentPhase;
use drover_model::ports::{IdStatus, Journal as _};
use drover_model::record::{Body, LOST, Reason};
use drover_model::status::{AgentStatus, Standing};
use drover_model::testing::{at, seconds};

use super::world::World;
use crate::birth::{AgentBirth, Start};

use crate::message::{AgentCommand, AgentReport, IdBack, LaneAsk, LaneFree};

/// An agent that walks its life by the clock: ready after 10 s, gone 5 s after it was asked to go.
pub struct FakeAgent {
    world: World,
    birth: AgentBirth,
    vmid: Option<VmId>,
    leases: Vec<LeaseId>,
    at: AgentPhase,
    overrides: Overrides,
}

impl FakeAgent {
    pub fn new(world: World, birth: AgentBirth) -> Self {
        Self {
            world,
            birth,
            vmid: None,
            leases: Vec::new(),
            at: AgentPhase::Queued,
            overrides: Overrides::default(),
        }
    }

    fn report(&self, fault: Option<Fault>) {
        self.report_with(fault, None);
    }

    fn report_with(&self, fault: Option<Fault>, refused: Option<LeaseId>) {
        let executors = self.birth.spec.executors;
        let used = u32::try_from(self.leases.len()).unwrap();
        let standing = match self.at {
            AgentPhase::Ready | AgentPhase::Leased if used < executors => {
                Standing::Free { executors: executors - used, idle: used == 0 }
            }
            AgentPhase::Ready | AgentPhase::Leased | AgentPhase::Draining | AgentPhase::Held => {
                Standing::Busy
            }
            AgentPhase::Retiring => Standing::Leaving,
            AgentPhase::Gone => Standing::Gone,
            AgentPhase::Queued
            | AgentPhase::Cloning
            | AgentPhase::InDoubt
            | AgentPhase::Configuring
            | AgentPhase::Booting
            | AgentPhase::Connecting
            | AgentPhase::Preparing
            | AgentPhase::Resetting
            | AgentPhase::Stranded => Standing::Coming,
        };
        let (agent, template) = (self.birth.id.clone(), self.birth.spec.id.clone());
        let status = AgentStatus {
            phase: self.at,
            standing,
            leases: self.leases.clone(),
            overrides: self.overrides,
            ..AgentStatus::started(agent, template, at(0).wall)
        };
        self.birth.report.do_send(AgentReport {
            status: Arc::new(status),
            fault,
            refused: refused.into_iter().collect(),
        });
    }

    /// Its guest's id is taken while it exists.
    fn exists(&self, exists: bool) {
        if let Some(vmid) = self.vmid {
            let observation = if exists { IdStatus::Taken } else { IdStatus::Free };
            self.world.with(|script| script.ids.insert(vmid.0, observation));
        }
    }

    fn become_state(&mut self, state: AgentPhase, fault: Option<Fault>) {
        self.at = state;
        self.report(fault);
    }

    fn retire(&mut self, fault: Option<Fault>, ctx: &mut Context<Self>) {
        if matches!(self.at, AgentPhase::Retiring | AgentPhase::Gone) {
            return;
        }
        self.become_state(AgentPhase::Retiring, fault);
        self.birth
            .lanes
            .free
            .do_send(LaneFree { agent: self.birth.id.clone(), end: OperationEnd::Inconclusive });
        ctx.run_later(seconds(5), |agent, _| {
            let (gone, burned) = (Reason::Asked, false);
            let body = Body::Gone { agent: agent.birth.id.clone(), reason: gone, burned };
            drop(agent.world.append(vec![body]));
            agent.exists(false);
            if let Some(vmid) = agent.vmid {
                agent.birth.lanes.id_back.do_send(IdBack { vmid, burned });
            }
            agent.become_state(AgentPhase::Gone, None);
        });
    }

    fn end_lease(&mut self, lease: &LeaseId, why: &str, ctx: &mut Context<Self>) {
        if !self.leases.contains(lease) {
            return;
        }
        self.leases.retain(|other| other != lease);
        let body = Body::LeaseEnded { lease: lease.clone(), why: why.into(), cause: String::new() };
        drop(self.world.append(vec![body]));
        if self.at == AgentPhase::Draining && self.leases.is_empty() {
            self.retire(None, ctx);
        } else {
            self.at = if self.leases.is_empty() { AgentPhase::Ready } else { AgentPhase::Leased };
            self.report(None);
        }
    }
}

impl Actor for FakeAgent {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        self.world.with(|script| script.reported.insert(self.birth.id.clone(), Vec::new()));
        match self.birth.start.clone() {
            Start::Fresh => self.birth.lanes.ask.do_send(LaneAsk {
                agent: self.birth.id.clone(),
                spec: self.birth.spec.clone(),
                reply: ctx.address().recipient(),
            }),
            Start::Adopted { entry, .. } => {
                self.vmid = Some(entry.marks.vmid);
                self.exists(true);
                self.leases = entry.leases.keys().cloned().collect();
                if entry.retiring.is_some() {
                    self.retire(None, ctx);
                } else {
                    self.become_state(
                        if self.leases.is_empty() { AgentPhase::Ready } else { AgentPhase::Leased },
                        None,
                    );
                }
            }
        }
    }
}

impl Handler<AgentCommand> for FakeAgent {
    type Result = ();

    fn handle(&mut self, command: AgentCommand, ctx: &mut Self::Context) {
        let id = self.birth.id.clone();
        self.world.with(|script| script.reported.entry(id).or_default().push(command.clone()));
        match command {
            AgentCommand::Granted { vmid, .. } => {
                self.vmid = Some(vmid);
                self.exists(true);
                self.become_state(AgentPhase::Cloning, None);
                let fail = self.world.with(|script| script.fail_with.clone());
                if self.world.with(|script| script.never_ready) {
                    return;
                }
                ctx.run_later(seconds(10), |agent, ctx| {
                    agent.birth.lanes.free.do_send(LaneFree {
                        agent: agent.birth.id.clone(),
                        end: OperationEnd::Inconclusive,
                    });
                    match fail {
                        Some(fault) => agent.retire(Some(fault), ctx),
                        None if agent.at == AgentPhase::Cloning => {
                            agent.become_state(AgentPhase::Ready, None)
                        }
                        None => {}
                    }
                });
            }
            AgentCommand::NotGranted(fault) => self.retire(Some(fault), ctx),
            AgentCommand::Lease { ask } => {
                if matches!(self.at, AgentPhase::Ready | AgentPhase::Leased) {
                    self.leases.push(ask.lease.clone());
                    let (agent, expires) = (self.birth.id.clone(), at(9_999).wall);
                    drop(self.world.append(vec![Body::LeaseGranted {
                        agent,
                        ask,
                        expires,
                        pending: false,
                    }]));
                    self.become_state(AgentPhase::Leased, None);
                } else {
                    self.report_with(None, Some(ask.lease));
                }
            }
            AgentCommand::EndLease { lease, why } => self.end_lease(&lease, &why, ctx),
            AgentCommand::FailLease { lease, .. } => self.end_lease(&lease, LOST, ctx),
            AgentCommand::Drain(_) | AgentCommand::Retire(_) => {
                if self.leases.is_empty() {
                    self.retire(None, ctx);
                } else {
                    self.become_state(AgentPhase::Draining, None);
                }
            }
            AgentCommand::Withdraw => {
                if self.at == AgentPhase::Queued {
                    self.retire(None, ctx);
                }
            }
            AgentCommand::ForceRetire(_) | AgentCommand::Vanished => {
                self.leases.clear();
                self.retire(None, ctx);
            }
            AgentCommand::Override(change) => {
                self.overrides.change(change);
                self.report(None);
            }
            AgentCommand::Hold(hold) => {
                if hold.is_some() && self.at == AgentPhase::Ready {
                    self.become_state(AgentPhase::Held, None);
                } else if hold.is_none() && self.at == AgentPhase::Held {
                    self.retire(None, ctx);
                }
            }
            AgentCommand::LeaseRenewed { .. }
            | AgentCommand::AskRunner { .. }
            | AgentCommand::Moved(_)
            | AgentCommand::SeenStopped
            | AgentCommand::Observed(_)
            | AgentCommand::CalledIn(_)
            | AgentCommand::Order(_)
            | AgentCommand::NodeDown(_)
            | AgentCommand::Rest => {}
        }
    }
}
