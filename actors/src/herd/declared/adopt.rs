//! A declared machine adopts a guest that is there: after `machine forget`, a restore, or when its marks
//! were lost.
//!
//! ```text
//! asked ── is the machine without a guest, or is its guest lost? ──▶ list ─▶ looks ─▶ judge
//!            marks prove it ─────────────────────────▶ the keeper takes it over
//!            an operator says so ─▶ marks are written ─▶ the keeper takes it over
//! ```
//!
//! - Marks prove a guest that drover made for the machine and that is where it was made. Any other guest
//!   needs its VMID and the operator's word, and one that is somebody else's is refused in any case.
//! - Marks are written before the journal knows of them. A service that stops in between finds a guest
//!   whose marks prove it, and nothing of it was changed but name and description.

use std::time::Duration;

use actix::{ActorFutureExt, AsyncContext, Context, WrapFuture};
use drover_model::ambient::mint_agent;
use drover_model::container::GuestType;
use drover_model::fault::{Fault, FaultKind};
use drover_model::id::{AgentId, CloudId, ClusterId, DeclaredName, Installation, NodeName, VmId};
use drover_model::marks::{Kind, Marks, Reading, parse_name};
use drover_model::phase::DeclaredPhase;
use drover_model::ports::{Listed, SealCall, Survey, VmObservation, VmRef};

use crate::herd::Herd;
use crate::keeper::KeeperCommand;
use crate::message::{AdoptAsk, MachineAdopted, Refusal};

/// The most guests of a machine's name that are looked at.
const LOOKS_MOST: usize = 16;

/// What is asked for.
struct Wanted {
    machine: DeclaredName,
    installation: Installation,
    cloud: CloudId,
    cluster: ClusterId,
    vmid: Option<VmId>,
    confirmed: bool,
    dry_run: bool,
    /// The marks of a guest that has none, without its VMID.
    fresh: Marks,
}

/// A guest that may be adopted.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Adoptable {
    node: NodeName,
    called: String,
    /// The marks that it carries, or is to carry.
    marks: Marks,
    proven: bool,
}

fn conflict<T>(text: String) -> Result<T, Refusal> {
    Err(Refusal::Conflict(text))
}

fn refusal(fault: Fault) -> Refusal {
    match fault.kind {
        FaultKind::Gone => Refusal::Unknown(fault.text),
        FaultKind::Broken | FaultKind::Foreign | FaultKind::Locked { .. } => {
            Refusal::Conflict(fault.text)
        }
        FaultKind::Contention
        | FaultKind::Unreachable
        | FaultKind::UnknownOutcome
        | FaultKind::Denied { .. }
        | FaultKind::IdTaken
        | FaultKind::Capacity
        | FaultKind::KeyRejected
        | FaultKind::Impostor => Refusal::Unavailable(fault.text),
    }
}

impl Wanted {
    /// The guests to look at, of all of the cluster.
    fn candidates(&self, survey: Survey) -> Result<Vec<Listed>, Refusal> {
        if !survey.quorate {
            let text = "the cluster has no quorum: its list of guests proves nothing";
            return Err(Refusal::Unavailable(text.to_owned()));
        }
        let mut guests = survey.guests;
        let Some(vmid) = self.vmid else {
            // A new guest has no name in the list for some seconds (book: proxmox).
            let own = |one: &Listed| {
                !one.container
                    && one.name.as_deref().is_none_or(|name| {
                        parse_name(name).is_some_and(|(whose, _)| whose == self.installation)
                            && name.starts_with(self.machine.as_str())
                    })
            };
            guests.retain(own);
            guests.truncate(LOOKS_MOST);
            return Ok(guests);
        };
        guests.retain(|one| one.vmid == vmid);
        let Some(guest) = guests.first() else {
            let text = format!("cloud `{}` lists no guest `{vmid}`", self.cloud);
            return Err(Refusal::Unknown(text));
        };
        if guest.container || guest.template {
            let what = if guest.container { "a container" } else { "a template image" };
            return conflict(format!(
                "guest `{vmid}` is {what}: a machine adopts virtual machines only"
            ));
        }
        Ok(guests)
    }

    /// Whether marks prove that drover made a guest for this machine, and that it is where it was made.
    fn proves(&self, marks: &Marks, vmid: VmId) -> bool {
        self.is_its(marks) && marks.vmid == vmid && marks.cluster == self.cluster
    }

    fn is_its(&self, marks: &Marks) -> bool {
        marks.kind == Kind::Machine
            && marks.installation == self.installation
            && marks.template == self.machine.as_str()
    }

    /// The guest to adopt of those that were looked at.
    fn judge(&self, seen: Vec<(Listed, VmObservation)>) -> Result<Adoptable, Refusal> {
        let machine = &self.machine;
        match self.vmid {
            Some(_) => match seen.into_iter().next() {
                Some((listed, look)) => self.judge_named(listed, look),
                None => Err(Refusal::Unavailable("the guest could not be looked at".to_owned())),
            },
            None => {
                let proven = seen.into_iter().filter_map(|(listed, look)| match look.marks {
                    Some(Reading::Marked(marks)) if self.proves(&marks, listed.vmid) => {
                        Some((listed, *marks))
                    }
                    Some(_) | None => None,
                });
                let mut proven: Vec<_> = proven.collect();
                match (proven.pop(), proven.is_empty()) {
                    (Some((listed, marks)), true) => Ok(adoptable(listed, marks, true)),
                    (Some(_), false) => conflict(format!(
                        "several guests carry the marks of machine `{machine}`: name one with `--vmid`"
                    )),
                    (None, _) => conflict(format!(
                        "no guest carries sound marks of machine `{machine}` with its own VMID: name the \
                         guest with `--vmid`; `drover machine show {machine}` says which one stands in its \
                         way"
                    )),
                }
            }
        }
    }

    /// The guest whose VMID the operator named.
    fn judge_named(&self, listed: Listed, look: VmObservation) -> Result<Adoptable, Refusal> {
        let (machine, vmid, node) = (&self.machine, listed.vmid, &listed.node);
        let why = match look.marks {
            None => {
                let text = format!("guest `{vmid}` on {node} could not be read: try again");
                return Err(Refusal::Unavailable(text));
            }
            Some(Reading::Marked(marks)) if self.proves(&marks, vmid) => {
                return Ok(adoptable(listed, *marks, true));
            }
            Some(Reading::Marked(marks)) if !self.is_its(&marks) => {
                return conflict(format!(
                    "guest `{vmid}` on {node} carries the marks of `{}` of drover installation `{}`: it is \
                     somebody else's",
                    marks.template, marks.installation
                ));
            }
            Some(Reading::Marked(marks)) => format!(
                "its marks name VMID {} of cluster `{}`, so it is a copy or was restored",
                marks.vmid, marks.cluster
            ),
            Some(Reading::Damaged(why)) => why,
            Some(Reading::Unmarked) => "it carries no marks of drover".to_owned(),
        };
        if let Some(lock) = look.lock {
            return conflict(format!("guest `{vmid}` on {node} is locked by Proxmox ({lock})"));
        }
        if !self.confirmed && !self.dry_run {
            let called = listed.name.as_deref().unwrap_or("without a name");
            return conflict(format!(
                "drover cannot prove that guest `{vmid}` ({called}, on {node}) is machine `{machine}`: \
                 {why}. `--dry-run` shows what would be adopted; `--confirm` says that it is the machine, \
                 and drover writes its name and marks"
            ));
        }
        let marks = Marks { vmid, ..self.fresh.clone() };
        Ok(adoptable(listed, marks, false))
    }
}

fn adoptable(listed: Listed, marks: Marks, proven: bool) -> Adoptable {
    let Listed { node, name, .. } = listed;
    let by_marks = if proven { marks.name("") } else { String::new() };
    Adoptable { node, called: name.unwrap_or(by_marks), marks, proven }
}

impl Herd {
    /// Has a machine adopt a guest, unless something stands against it.
    pub(in crate::herd) fn adopt_machine(&mut self, ask: AdoptAsk, ctx: &mut Context<Self>) {
        let AdoptAsk { name, vmid, confirmed, dry_run, reply } = ask;
        let wanted = match self.may_adopt(&name, vmid, (confirmed, dry_run)) {
            Ok(wanted) => wanted,
            Err(refusal) => return reply.send(Err(refusal)),
        };
        let hypervisor = self.common.ports.hypervisor.clone();
        let looks = async move {
            let survey = hypervisor.survey(&wanted.cloud, Duration::ZERO).await.map_err(refusal)?;
            let mut seen = Vec::new();
            for listed in wanted.candidates(survey)? {
                let (cloud, node) = (wanted.cloud.clone(), listed.node.clone());
                let vm = VmRef { cloud, node, vmid: listed.vmid, guest: GuestType::Vm };
                let look = hypervisor.look(&vm).await.map_err(refusal)?;
                seen.push((listed, look));
            }
            let found = wanted.judge(seen)?;
            if !found.proven && !wanted.dry_run {
                let vm = VmRef {
                    cloud: wanted.cloud.clone(),
                    node: found.node.clone(),
                    vmid: found.marks.vmid,
                    guest: GuestType::Vm,
                };
                let to = found.marks.clone();
                let call =
                    SealCall { vm, from: None, to, description: String::new(), dry_run: false };
                hypervisor.seal(call).await.map_err(refusal)?;
            }
            Ok::<_, Refusal>((wanted, found))
        };
        ctx.spawn(looks.into_actor(self).map(move |found, herd, _| {
            let done = found.and_then(|(wanted, found)| herd.adopt_found(wanted, found));
            reply.send(done);
        }));
    }

    fn may_adopt(
        &self,
        name: &str,
        vmid: Option<VmId>,
        (confirmed, dry_run): (bool, bool),
    ) -> Result<Wanted, Refusal> {
        let (kept, machine) = self.machine_named(name)?;
        let Some(spec) = self.spec.declared.get(&machine) else {
            return conflict(format!(
                "machine `{machine}` left the configuration: declare it first"
            ));
        };
        self.is_without_guest(&machine)?;
        if let Some(why) = self.common.restraint.why() {
            return conflict(why);
        }
        let cloud = spec.template.id.cloud.clone();
        let cluster = self.cluster_of_image(&cloud)?;
        if kept.cluster.as_ref().is_some_and(|former| *former != cluster && kept.id.is_some()) {
            return conflict(format!(
                "cloud `{cloud}` leads to another cluster than the one that machine `{machine}` was made \
                 on: forget it first (`drover machine forget {machine}`)"
            ));
        }
        let ambient = &self.common.ports.ambient;
        let id: AgentId = mint_agent(|| ambient.draw());
        let installation = self.common.run.installation.clone();
        let fresh = Marks {
            installation: installation.clone(),
            agent: id,
            vmid: VmId(0),
            cluster: cluster.clone(),
            kind: Kind::Machine,
            guest: GuestType::Vm,
            seq: self.common.ports.journal.last_seq(),
            cloud: cloud.as_str().to_owned(),
            template: machine.to_string(),
            born: ambient.now().wall.rfc3339(),
        };
        Ok(Wanted { machine, installation, cloud, cluster, vmid, confirmed, dry_run, fresh })
    }

    /// Refuses a machine that has its guest, or is being made.
    fn is_without_guest(&self, machine: &DeclaredName) -> Result<(), Refusal> {
        let kept = self.declared.kept.get(machine);
        let phase = kept.and_then(|kept| kept.status.as_ref()).map(|status| status.phase);
        match phase {
            Some(DeclaredPhase::Blocked | DeclaredPhase::Missing | DeclaredPhase::Foreign) => {
                Ok(())
            }
            Some(phase) => conflict(format!(
                "machine `{machine}` is {phase}: it adopts a guest only while it is blocked, missing or \
                 foreign"
            )),
            None => {
                let text = format!("machine `{machine}` was not looked at yet: try again");
                Err(Refusal::Unavailable(text))
            }
        }
    }

    /// Passes the guest on to the keeper.
    fn adopt_found(&mut self, wanted: Wanted, found: Adoptable) -> Result<MachineAdopted, Refusal> {
        let Adoptable { node, called, marks, proven } = found;
        let machine = wanted.machine;
        self.is_without_guest(&machine)?;
        let Some(spec) = self.spec.declared.get(&machine) else {
            return conflict(format!("machine `{machine}` left the configuration meanwhile"));
        };
        let adopted = MachineAdopted {
            vmid: marks.vmid,
            node: node.clone(),
            called,
            name: marks.name(&spec.template.name_prefix),
            proven,
            on_removal: spec.on_removal,
            machine: machine.clone(),
        };
        if wanted.dry_run {
            return Ok(adopted);
        }
        tracing::info!(
            machine = %machine, vmid = marks.vmid.0, proven, "machine adopts a guest by command"
        );
        if let Some(kept) = self.declared.kept.get_mut(&machine) {
            kept.id = Some(marks.agent.clone());
            kept.cluster = Some(wanted.cluster);
        }
        // The reconciler must know of it before the journal does.
        self.show_builds(&self.images.known());
        if let Some(kept) = self.declared.kept.get(&machine) {
            kept.address.do_send(KeeperCommand::TakeOver(Box::new(marks), node));
        }
        Ok(adopted)
    }
}

#[cfg(test)]
mod tests;
