//! The machine of agent `a1` in the scripted herd: it runs, and every order is done at once.

use std::sync::Arc;

use drover_actors::message::{
    AdoptAsk, Copied, CopyAsk, HerdCommand, MachineAdopted, MachineSeen, Ordered, Refusal, Target,
};
use drover_model::declared::OnRemoval;
use drover_model::fact::What;
use drover_model::id::{
    AgentId, CloudId, ClusterId, DeclaredName, NodeName, OrderId, TemplateId, VmId,
};
use drover_model::order::{
    ConfigValue, MachineView, Order, OrderEnd, OrderStatus, SnapshotView, Work,
};
use drover_model::phase::{OrderPhase, Power};
use drover_model::status::AgentStatus;

use super::{THEN, reported};
use crate::view::View;

fn meant(view: &View, target: &Target) -> Result<Arc<AgentStatus>, Refusal> {
    let agent = match target {
        Target::Agent(agent) => agent.clone(),
        Target::Lease(lease) => match view.lease(lease).and_then(|lease| lease.agent) {
            Some(agent) => agent,
            None => AgentId::new("none"),
        },
    };
    let missing = || Refusal::Unknown(format!("no agent `{agent}` lives"));
    view.agent(&agent).ok_or_else(missing)
}

/// The one declared machine.
pub(super) fn declared(name: &str) -> Result<(), Refusal> {
    let missing = || Refusal::Unknown(format!("no machine is called `{name}`"));
    (name == "gitea").then_some(()).ok_or_else(missing)
}

pub(super) fn answer(view: &View, command: HerdCommand) {
    if let HerdCommand::AdoptMachine(ask) = command {
        let AdoptAsk { name, vmid, reply, .. } = *ask;
        reply.send(declared(&name).map(|()| MachineAdopted {
            machine: DeclaredName::new(&name),
            vmid: vmid.unwrap_or(VmId(300)),
            node: NodeName::new("pve1"),
            called: "gitea".to_owned(),
            name: "gitea-7k2m9qxw-4f8z1c3px9t2vkab".to_owned(),
            proven: vmid.is_none(),
            on_removal: OnRemoval::Keep,
        }));
    } else if let HerdCommand::Copy(CopyAsk { target, reply, .. }) = command {
        reply.send(meant(view, &target).map(|status| Copied {
            agent: AgentId::new("a2"),
            of: status.agent.clone(),
            template: TemplateId::new(CloudId::new("lab"), "linux"),
        }));
    } else if let HerdCommand::Order { target, work, key, by, reply } = command {
        reply.send(meant(view, &target).map(|mut status| {
            let agent = status.agent.clone();
            let id = OrderId::new(format!("order-{}", status.machine.past.len() + 1));
            let order = Order { id: id.clone(), work, by: by.principal, asked: THEN, key };
            let machine = &mut Arc::make_mut(&mut status).machine;
            machine.begin(order.clone());
            let refused = matches!(&order.work, Work::Revert { name } if name == "gone");
            let phase = if refused { OrderPhase::Failed } else { OrderPhase::Done };
            let text = if refused { "guest `101` has no snapshot `gone`" } else { "" };
            let power = order.work.leaves(machine.power);
            machine.end(
                &id,
                &OrderEnd { phase, text: text.into(), power, snapshot_taken: None },
                THEN,
            );
            reported(view, What::Agent(status));
            let phase = OrderPhase::Running;
            let status = OrderStatus { order, phase, ended: None, text: String::new() };
            Ordered { agent, status }
        }));
    } else if let HerdCommand::MachineOf { target, by, reply } = command {
        let forbidden = || Refusal::Forbidden("agent `a1` is not leased by you".into());
        let found = meant(view, &target).map(|status| status.agent.clone());
        reply.send(found.and_then(|agent| by.all.then_some(agent).ok_or_else(forbidden)));
    } else if let HerdCommand::Machine { target, reply, .. } = command {
        reply.send(meant(view, &target).map(|status| MachineSeen {
            agent: status.agent.clone(),
            template: TemplateId::new(CloudId::new("lab"), "linux"),
            cluster: ClusterId::new("9f31c0aa52e7d410"),
            cloud: CloudId::new("lab"),
            view: a_machine(status.machine.power),
        }));
    }
}

fn a_machine(power: Power) -> MachineView {
    let value = |key: &str, now: &str, after: Option<&str>| ConfigValue {
        key: key.into(),
        value: Some(now.into()),
        pending: after.map(str::to_owned),
        deleted: false,
    };
    let snapshot = |name: &str, parent: Option<&str>, taken| SnapshotView {
        name: name.into(),
        description: String::new(),
        taken: Some(taken),
        memory: false,
        parent: parent.map(str::to_owned),
        unfinished: None,
    };
    MachineView {
        node: NodeName::new("pve1"),
        vmid: VmId(10417),
        power,
        word: power.name().into(),
        lock: None,
        uptime_secs: 90,
        cpu: Some(0.25),
        cpus: Some(2.0),
        memory_used: Some(536_870_912.0),
        memory: Some(2_147_483_648.0),
        addresses: vec!["10.0.0.5".parse().unwrap(), "fd00::5".parse().unwrap()],
        no_address: None,
        console_url: "https://pve1:8006/?console=kvm&novnc=1&vmid=10417".into(),
        config: vec![value("cores", "2", Some("4")), value("memory", "2048", None)],
        given: Vec::new(),
        disk: Some(20 << 30),
        snapshots: vec![
            snapshot("after", Some("before"), 1_795_248_700),
            snapshot("drover-clean", None, 1_795_248_600),
            snapshot("before", Some("drover-clean"), 1_795_248_650),
        ],
        parent: Some("after".into()),
    }
}
