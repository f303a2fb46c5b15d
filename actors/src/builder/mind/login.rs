//! The guest of a build, from its start to its last step: its address, its host keys, the login and
//! what is run in it.

use drover_model::addresses::AddressSource;
use drover_model::fault::{Fault, FaultKind};
use drover_model::ports::{AddressObservation, Greeting, Ran};
use drover_model::time::Now;

use super::{HOST_KEY_TRIES, Mind, Out, POLL, millis};
use crate::builder::event::{Effect, StepEnd};
use crate::builder::state::{Boot, Shut, State};
use crate::ran::{can_pass, describe_failure};

impl Mind {
    /// The guest runs.
    pub(super) fn booted(&mut self, now: Now, out: Out<'_>) {
        let startup = self.machine().map(|machine| machine.limits.startup);
        self.limit = startup.map(|startup| now.mono + startup);
        let fixed = self.machine().and_then(|machine| match &machine.address {
            AddressSource::Fixed(address) => Some(*address),
            AddressSource::GuestAgent | AddressSource::Call | AddressSource::Pools(_) => None,
        });
        match fixed {
            Some(address) => {
                self.address = Some(address);
                self.enter(State::Connecting, now, out);
            }
            None => self.enter(State::Booting(Boot::Address), now, out),
        }
    }

    pub(super) fn addressed(
        &mut self,
        result: Result<AddressObservation, Fault>,
        now: Now,
        out: Out<'_>,
    ) {
        match result {
            Ok(AddressObservation::At(address)) => {
                self.address = Some(address);
                self.enter(State::Booting(Boot::HostKeys), now, out);
            }
            Ok(AddressObservation::NotYet(text)) => {
                self.detail = text;
                self.again_in(POLL, now, out);
            }
            Err(fault) => self.failed(&fault, now, out),
        }
    }

    pub(super) fn keys_read(&mut self, result: Result<Vec<String>, Fault>, now: Now, out: Out<'_>) {
        match result {
            Err(fault) if can_pass(&fault.kind) && self.tries < HOST_KEY_TRIES => {
                return self.back_off(&fault, now, out);
            }
            Ok(keys) => self.host_keys = keys,
            Err(_) => self.host_keys.clear(),
        }
        let limit = self.limit;
        self.enter(State::Connecting, now, out);
        self.limit = limit;
        self.arm(out);
    }

    /// The machine that answers is the guest: it has the guest's network card.
    pub(super) fn greeted(&mut self, result: Result<Greeting, Fault>, now: Now, out: Out<'_>) {
        let greeting = match result {
            Ok(greeting) => greeting,
            // Cloud-init may have just made new host keys (book: safety, rule 12).
            Err(fault) if can_pass(&fault.kind) || fault.kind == FaultKind::Impostor => {
                self.detail = fault.text;
                if fault.kind == FaultKind::Impostor {
                    self.host_keys.clear();
                    self.state = State::Booting(Boot::HostKeys);
                }
                return self.again_in(POLL, now, out);
            }
            // Cloud-init puts the key there while the guest boots.
            Err(fault) if fault.kind == FaultKind::KeyRejected => {
                self.detail = fault.text;
                return self.again_in(POLL, now, out);
            }
            Err(fault) => return self.fail(&fault.text, now, out),
        };
        let is_guest = |mac: &String| {
            greeting.cards.is_empty()
                || greeting.cards.iter().any(|card| card.eq_ignore_ascii_case(mac))
        };
        if self.mac.as_ref().is_some_and(|mac| !is_guest(mac)) {
            let text = "another machine answers at the address that the guest named";
            return self.fail(text, now, out);
        }
        if self.host_keys.is_empty() {
            self.host_keys = vec![greeting.host_key];
        }
        self.enter(State::Provisioning(0), now, out);
    }

    pub(super) fn ran(&mut self, result: Result<Ran, Fault>, now: Now, out: Out<'_>) {
        let name = self.running_step().unwrap_or_else(|| self.part());
        let ran = match result {
            Ok(ran) => ran,
            Err(fault) => return self.failed(&fault, now, out),
        };
        let ms = millis(now.mono - self.entered);
        out.push(Effect::Stepped(StepEnd { step: name.clone(), ms, ran: ran.clone() }));
        if ran.exit != Some(0) {
            let text = describe_failure(&name, &ran);
            return self.fail(&text, now, out);
        }
        let steps = self.machine().map_or(0, |machine| machine.steps.len());
        let State::Provisioning(step) = self.state else {
            return self.enter(State::ShuttingDown(Shut::Call), now, out);
        };
        if step == steps {
            return self.enter(State::Cleaning, now, out);
        }
        let next = step + 1;
        self.enter(State::Provisioning(next), now, out);
        self.detail = format!("step {next} of {steps}: {}", self.step_name(next));
    }
}
