//! From a place in the concurrency limits to a guest with a working login: configuring, booting,
//! connecting.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use drover_model::fault::{Culprit, Fault, FaultKind};
use drover_model::id::{ClusterId, NodeName, Upid, VmId};
use drover_model::marks::{Kind, Marks};
use drover_model::os::Os;
use drover_model::ports::{AddressObservation, Configured, Greeting, TaskEnd, VmObservation};
use drover_model::record::{Body, Reason};
use drover_model::spec::TemplateSpec;

use crate::agent::event::{Call, CloneProof, Effect, Guest};
use crate::agent::mind::{Mind, Out};
use crate::agent::state::{BootStep, CloneStep, ConnectStep, State};
use crate::ran::can_pass;
use drover_limits::concurrency::OperationEnd;

/// The limit of one try to log in.
const GREET_LIMIT: Duration = Duration::from_secs(10);
/// The limit for Windows: its sshd may be silent while it starts, and its PowerShell starts slowly.
const GREET_LIMIT_WINDOWS: Duration = Duration::from_secs(30);
/// The pause between two tries to log in. A refused try costs nothing.
pub(super) const GREET_PAUSE: Duration = Duration::from_millis(500);
/// A refusal that took this long was a wait for the guest agent. The next question may follow soon.
const ADDRESS_BLOCKED: Duration = Duration::from_secs(2);
/// The pause between such a refusal and the next question.
const ADDRESS_SOON: Duration = Duration::from_millis(500);
/// How often the guest agent is asked for host keys before drover trusts the key of the first
/// connection.
const HOST_KEY_TRIES: u32 = 3;
/// How many more tries once the guest has greeted: its guest agent is up by then, or there is none.
const HOST_KEY_TRIES_LATE: u32 = 1;

impl Mind {
    pub(super) fn granted(
        &mut self,
        vmid: VmId,
        node: NodeName,
        cluster: ClusterId,
        spec: Option<Arc<TemplateSpec>>,
        out: &mut Out,
    ) {
        if let Some(spec) = spec {
            self.spec = spec;
        }
        let marks = Marks {
            installation: self.installation.clone(),
            agent: self.agent.clone(),
            vmid,
            cluster,
            kind: Kind::Agent,
            guest: self.spec.guest(),
            seq: 0,
            cloud: self.spec.id.cloud.as_str().to_owned(),
            template: self.spec.id.name.to_string(),
            born: out.now.wall.rfc3339(),
        };
        self.timers.start_clone(out.now.mono, self.spec.limits.clone);
        out.record(Body::CloneIntended {
            marks: Box::new(marks.clone()),
            node: node.clone(),
            spec: Box::new((*self.spec).clone()),
        });
        self.guest = Some(Guest {
            marks,
            node,
            upid: None,
            clone: CloneProof::None,
            mac: None,
            address: None,
            host_keys: Vec::new(),
            volumes: Vec::new(),
            image_unsent: false,
        });
        self.enter(State::Cloning { step: CloneStep::Call, cancelled: None }, out);
        self.act(out);
    }

    /// The guest is proven to exist and to be ours.
    pub(super) fn settle(&mut self, out: &mut Out) {
        let Some(guest) = &mut self.guest else { return };
        guest.clone = CloneProof::Ours;
        let node = guest.node.clone();
        out.record(Body::CloneSettled { agent: self.agent.clone(), node });
        // The time that the proof took says nothing about the storage.
        let cloned = matches!(self.state, State::Cloning { .. });
        self.lane_back(if cloned { OperationEnd::Done } else { OperationEnd::Inconclusive }, out);
    }

    pub(super) fn configured(&mut self, result: Result<Configured, Fault>, out: &mut Out) {
        let done = match result {
            Ok(Configured { image_refused: Some(fault), .. }) => {
                self.forget_image(out);
                return self.failed(fault, out);
            }
            Ok(done) => done,
            Err(fault) => {
                if let Some(guest) = &mut self.guest {
                    guest.image_unsent = false;
                }
                return self.failed(fault, out);
            }
        };
        if let Some(guest) = &mut self.guest {
            guest.mac.clone_from(&done.mac);
            guest.volumes.clone_from(&done.volumes);
        }
        let (agent, volumes) = (self.agent.clone(), done.volumes);
        out.record(Body::VolumesKnown { agent, volumes, mac: done.mac });
        self.enter(State::Booting(BootStep::Start), out);
        if let Some(refusal) = done.tags_refused {
            self.report.say(format!("its tags were refused and left out: {refusal}"));
        }
        self.act(out);
    }

    pub(super) fn boot_call(&self, step: &BootStep) -> Call {
        match step {
            BootStep::Start => Call::Start,
            BootStep::Task(upid) => Call::Await(upid.clone(), self.spec.limits.operation),
            BootStep::Check(_) => Call::Look,
            BootStep::Address => Call::Address,
            BootStep::HostKeys => Call::HostKeys,
        }
    }

    pub(super) fn boot_step(&mut self, step: BootStep, out: &mut Out) {
        self.state = State::Booting(step);
        self.act(out);
    }

    pub(super) fn start_accepted(&mut self, result: Result<Upid, Fault>, out: &mut Out) {
        match result {
            Ok(upid) => {
                let until = out.now.mono + self.spec.limits.startup;
                self.timers.bring_deadline_forward(until);
                self.boot_step(BootStep::Task(upid), out);
            }
            Err(fault) if fault.kind == FaultKind::UnknownOutcome => {
                self.boot_step(BootStep::Check(fault), out);
            }
            Err(fault) => self.failed(fault, out),
        }
    }

    pub(super) fn start_ended(&mut self, result: Result<TaskEnd, Fault>, out: &mut Out) {
        match result {
            Ok(TaskEnd::Done { .. }) => {
                self.tries.calm();
                if let Some(address) = self.own_address() {
                    return self.reach_at(address, out);
                }
                self.state = State::Booting(BootStep::Address);
                if self.awaits_call() {
                    return;
                }
                let first = self.boot.begin(out.now.mono, self.spec.limits.startup);
                self.retry_in(first, out);
            }
            // The fault may mean that the guest runs already. Its status decides.
            Ok(TaskEnd::Failed(fault)) | Err(fault) => {
                self.boot_step(BootStep::Check(fault), out);
            }
            Ok(TaskEnd::Unknown(text)) => {
                let fault = Fault::new(FaultKind::UnknownOutcome, Culprit::Guest, text);
                self.boot_step(BootStep::Check(fault), out);
            }
        }
    }

    /// The observation after a start of unclear outcome.
    pub(super) fn start_checked(
        &mut self,
        observation: &VmObservation,
        fault: Fault,
        out: &mut Out,
    ) {
        match observation.running {
            Some(true) => self.start_ended(Ok(TaskEnd::Done { warnings: Vec::new() }), out),
            Some(false) => {
                self.state = State::Booting(BootStep::Start);
                self.failed(fault, out);
            }
            None => self.back_off(out),
        }
    }

    pub(super) fn addressed(&mut self, result: Result<AddressObservation, Fault>, out: &mut Out) {
        match result {
            Ok(AddressObservation::At(address)) => {
                if let Some(guest) = &mut self.guest {
                    guest.address = Some(address);
                }
                self.tries.start_again();
                out.effects.extend(self.boot.end(out.now.mono).map(Effect::Booted));
                self.boot_step(BootStep::HostKeys, out);
            }
            Ok(AddressObservation::NotYet(text)) => {
                self.report.say(text);
                self.tries.forget_fault();
                self.ask_address_again(out);
            }
            Err(fault) => self.failed(fault, out),
        }
    }

    /// Each question to a guest without a running agent occupies a worker of Proxmox for up to 3 s.
    /// The answer comes sooner when the agent starts meanwhile (book: proxmox, section 17).
    pub(super) fn ask_address_again(&mut self, out: &Out) {
        if self.in_flight.age(out.now.mono) >= ADDRESS_BLOCKED {
            self.boot.blocked();
            return self.retry_in(ADDRESS_SOON, out);
        }
        let pause = self.boot.addressless(out.now.mono);
        self.retry_in(pause, out);
    }

    /// The result of reading host keys, in `Booting` or after a mismatch in `Connecting`.
    pub(super) fn keys_read(&mut self, result: Result<Vec<String>, Fault>, out: &mut Out) {
        let offered = if let State::Connecting { step: ConnectStep::CompareKeys(key) } = &self.state
        {
            Some(key.clone())
        } else {
            None
        };
        let tries = if offered.is_some() { HOST_KEY_TRIES_LATE } else { HOST_KEY_TRIES };
        let keys = match result {
            Ok(keys) => keys,
            Err(fault) if can_pass(&fault.kind) && self.tries.count() < tries => {
                return self.back_off(out);
            }
            Err(_) => Vec::new(),
        };
        if let Some(offered) = offered {
            return self.keys_compared(offered, keys, out);
        }
        if matches!(self.state, State::Connecting { .. }) {
            return self.keys_reread(keys, out);
        }
        if !keys.is_empty() {
            self.pin(keys, out);
        }
        self.enter(State::Connecting { step: ConnectStep::Greet }, out);
        self.act(out);
    }

    fn keys_reread(&mut self, keys: Vec<String>, out: &mut Out) {
        let known = self.guest.as_ref().is_some_and(|guest| guest.host_keys == keys);
        if keys.is_empty() || known {
            let text = "the SSH host key differs from the one that the guest agent reports, twice"
                .to_owned();
            let fault = Fault::new(FaultKind::Impostor, Culprit::Guest, text);
            return self.fail(fault, out);
        }
        self.pin(keys, out);
        self.state = State::Connecting { step: ConnectStep::GreetAgain };
        self.act(out);
    }

    pub(super) fn pin(&mut self, keys: Vec<String>, out: &mut Out) {
        let Some(guest) = &mut self.guest else { return };
        guest.host_keys.clone_from(&keys);
        let address = guest.address.map(|ip| ip.to_string()).unwrap_or_default();
        out.record(Body::HostKeyPinned { agent: self.agent.clone(), keys, address });
    }

    pub(super) fn greeted(&mut self, result: Result<Greeting, Fault>, out: &mut Out) {
        match result.and_then(|greeting| self.proven(greeting)) {
            Ok(key) => {
                if self.guest.as_ref().is_some_and(|guest| guest.host_keys.is_empty()) {
                    if self.own_address().is_some() {
                        return self.ask_for_keys_late(key, out);
                    }
                    self.pin(vec![key], out);
                }
                self.prepare(out);
            }
            // Cloud-init may have just made a new key (book: safety, rule 12).
            Err(fault)
                if fault.kind == FaultKind::Impostor
                    && matches!(self.state, State::Connecting { step: ConnectStep::Greet }) =>
            {
                self.hinder(fault);
                self.state = State::Connecting { step: ConnectStep::ReadKeys };
                self.act(out);
            }
            Err(fault) if can_pass(&fault.kind) => {
                self.hinder(fault);
                self.retry_in(GREET_PAUSE, out);
            }
            Err(fault) => self.fail(fault, out),
        }
    }

    /// The host key of the machine that greeted, unless that machine is not the guest.
    ///
    /// A guest reports its address and host keys itself. It may report those of another machine
    /// that lets drover in. The other machine has no reason to lie about its network cards, and
    /// Proxmox says which card is the guest's.
    pub(super) fn proven(&self, greeting: Greeting) -> Result<String, Fault> {
        let Greeting { host_key, cards } = greeting;
        let Some(mac) = self.guest.as_ref().and_then(|guest| guest.mac.as_ref()) else {
            return Ok(host_key);
        };
        if cards.is_empty() || cards.iter().any(|card| card.eq_ignore_ascii_case(mac)) {
            return Ok(host_key);
        }
        let address = self.address().map(|ip| ip.to_string()).unwrap_or_default();
        let text = format!(
            "another machine answers at {address}, the address that the guest named: it has no \
             network card {mac}"
        );
        Err(Fault::new(FaultKind::Foreign, Culprit::Guest, text))
    }

    pub(super) fn address(&self) -> Option<IpAddr> {
        self.guest.as_ref()?.address
    }

    /// Handles the failed call of an agent that is alive.
    pub(super) fn failed(&mut self, fault: Fault, out: &mut Out) {
        match &fault.kind {
            FaultKind::Contention
            | FaultKind::Locked { .. }
            | FaultKind::Unreachable
            | FaultKind::UnknownOutcome => {
                self.hinder(fault);
                self.back_off(out);
            }
            // Only the id itself proves it. The answer comes back as a look.
            FaultKind::Gone => {
                self.hinder(fault);
                self.ask(Call::Look, out);
            }
            FaultKind::Foreign => self.strand(&fault.text, out),
            FaultKind::Denied { .. }
            | FaultKind::IdTaken
            | FaultKind::Capacity
            | FaultKind::KeyRejected
            | FaultKind::Impostor
            | FaultKind::Broken => self.fail(fault, out),
        }
    }

    /// Ends the agent for a fault that does not pass.
    pub(super) fn fail(&mut self, fault: Fault, out: &mut Out) {
        let reason = self.failure(&fault);
        out.fault = Some(fault);
        self.retire(reason, out);
    }

    pub(super) fn failure(&self, fault: &Fault) -> Reason {
        Reason::Failed {
            state: self.state.phase(),
            kind: fault.kind.label().into(),
            text: fault.text.clone(),
        }
    }
}

pub(super) fn greet_limit(os: Os) -> Duration {
    match os {
        Os::Linux => GREET_LIMIT,
        Os::Windows(_) => GREET_LIMIT_WINDOWS,
    }
}
