//! From nothing to a guest that runs: whether its name is free, the template image, the VMID, what the
//! clone comes to, the configuration and the first start.

use std::time::Duration;

use drover_model::container::GuestType;
use drover_model::fault::{Culprit, Fault, FaultKind};
use drover_model::id::{AgentId, ClusterId, Upid, VmId};
use drover_model::marks::{Kind, Marks, Reading, parse_name, slug};
use drover_model::phase::Power;
use drover_model::ports::{Carried, Configured, IdStatus, Listed, Survey, TaskEnd, VmObservation};
use drover_model::record::Body;
use drover_model::template_image::{Found, Sought};
use drover_model::time::Now;

use super::event::Effect;
use super::mind::{Guest, Mind, Out, Seen};
use super::state::{Check, Create, Namesake, Standing, State, Watch};
use crate::ran::can_pass;
use crate::removal::{Came, HORIZON};

/// In place of the template image of a guest that is made new.
pub(super) const NO_TEMPLATE: VmId = VmId(0);
/// The pause between two looks at a guest that is unclear.
pub(super) const LOOK_PAUSE: Duration = Duration::from_secs(5);

fn unclear(text: impl Into<String>) -> Fault {
    Fault::new(FaultKind::UnknownOutcome, Culprit::Guest, text.into())
}

impl Mind {
    /// The making came to nothing: it begins again after a pause.
    pub(super) fn failed(&mut self, text: &str, now: Now, out: Out<'_>) {
        self.failures += 1;
        let pause = Self::pause_after(self.failures);
        if !self.is_declared() {
            return self.enter(State::Removed, now, out);
        }
        self.enter(State::Waiting, now, out);
        text.clone_into(&mut self.detail);
        self.again_in(pause, now, out);
    }

    /// A guest of its name is there that drover did not make for it.
    fn blocked(&mut self, text: String, now: Now, out: Out<'_>) {
        self.enter(State::Blocked, now, out);
        self.detail = text;
        self.again_in(super::mind::LOOK_EVERY, now, out);
    }

    /// The herd says which cluster the cloud leads to.
    pub(super) fn clustered(&mut self, cluster: Result<ClusterId, Fault>, now: Now, out: Out<'_>) {
        if self.state != State::Checking(Check::Cluster) {
            self.leads = cluster.ok();
            return;
        }
        match cluster {
            Ok(cluster) => {
                self.cluster = Some(cluster);
                self.enter(State::Checking(Check::List), now, out);
            }
            Err(fault) => self.failed(&fault.text, now, out),
        }
    }

    pub(super) fn surveyed(&mut self, result: Result<Survey, Fault>, now: Now, out: Out<'_>) {
        if let State::Resting(standing, _) = self.state {
            return self.listed(standing, result, now, out);
        }
        let survey = match result {
            Ok(survey) if survey.quorate => survey,
            Ok(_) => {
                let fault = unclear("the cluster has no quorum: its list of guests proves nothing");
                return self.back_off(&fault, now, out);
            }
            Err(fault) => return self.back_off(&fault, now, out),
        };
        let name = self.birth.name.as_str();
        if let Some(guest) = survey.guests.iter().find(|one| one.name.as_deref() == Some(name)) {
            let (vmid, node) = (guest.vmid, &guest.node);
            let text = format!(
                "guest {vmid} on {node} is called `{name}` and has no marks of drover: drover leaves it \
                 alone and makes no other one; rename that guest, or this machine; where it is this \
                 machine, `drover machine adopt {name} --vmid {vmid} --confirm` takes it over"
            );
            return self.blocked(text, now, out);
        }
        let prefix = slug("", name);
        let alike = |text: &&str| {
            parse_name(text).is_some()
                && text.len() == prefix.len() + 26
                && text.starts_with(&prefix)
        };
        let may_be = |one: &&Listed| one.name.as_deref().is_none_or(|name| alike(&name));
        let namesake = |one: &Listed| {
            let (vmid, node, named) = (one.vmid, one.node.clone(), one.name.is_some());
            Namesake { vmid, node, named }
        };
        let namesakes = survey.guests.iter().filter(may_be).map(namesake).collect();
        self.checked(namesakes, now, out);
    }

    /// Goes on with the guests that may be of a machine of this name.
    fn checked(&mut self, rest: Vec<Namesake>, now: Now, out: Out<'_>) {
        if !rest.is_empty() {
            return self.enter(State::Checking(Check::Look(rest)), now, out);
        }
        match (&self.spec.installer, &self.spec.template.node) {
            (Some(_), Some(node)) => {
                self.found = Some((NO_TEMPLATE, node.clone()));
                self.want_id(None, now, out);
            }
            (_, _) => self.enter(State::Creating(Create::Locate), now, out),
        }
    }

    /// The marks of a guest with this name were read.
    fn checked_one(&mut self, observation: &VmObservation, now: Now, out: Out<'_>) {
        let State::Checking(Check::Look(guests)) = &self.state else { return };
        let Some((first, rest)) = guests.split_first() else { return };
        let (Namesake { vmid, node, named }, rest) = (first.clone(), rest.to_vec());
        let name = &self.birth.name;
        match (&observation.marks, observation.id) {
            (_, IdStatus::Free) => self.checked(rest, now, out),
            (None, _) | (_, IdStatus::Unknown) => {
                let text = format!("guest {vmid} on {node} could not be read, which may be it");
                self.back_off(&unclear(text), now, out);
            }
            (Some(Reading::Marked(marks)), _)
                if marks.kind != Kind::Machine || marks.template != name.as_str() =>
            {
                self.checked(rest, now, out);
            }
            (Some(Reading::Marked(marks)), _) => {
                let as_made = marks.vmid == vmid && Some(&marks.cluster) == self.cluster.as_ref();
                let whose = match (marks.installation == self.birth.installation, as_made) {
                    (true, true) => format!(
                        "drover made it before, and its journal knows nothing of it, as after `drover \
                         machine forget`; `drover machine adopt {name}` takes it over"
                    ),
                    (true, false) => format!(
                        "its marks name VMID {} of cluster `{}`, so it is a copy or was restored; where it \
                         is this machine, `drover machine adopt {name} --vmid {vmid} --confirm` takes it \
                         over",
                        marks.vmid, marks.cluster
                    ),
                    (false, _) => format!(
                        "drover installation `{}` made it; rename that guest, or this machine",
                        marks.installation
                    ),
                };
                let text = format!(
                    "guest {vmid} on {node} is a machine `{name}` already: {whose}. drover leaves it alone \
                     and makes no other one"
                );
                self.blocked(text, now, out);
            }
            (Some(Reading::Unmarked | Reading::Damaged(_)), _) if !named => {
                let text = format!("guest {vmid} on {node} has no name in the list of guests yet");
                // The next try lists them again.
                self.state = State::Checking(Check::List);
                self.back_off(&unclear(text), now, out);
            }
            (Some(Reading::Unmarked | Reading::Damaged(_)), _) => {
                let text = format!(
                    "guest {vmid} on {node} has the name of a machine `{name}` and no sound marks: \
                     drover leaves it alone and makes no other one; where it is this machine, `drover \
                     machine adopt {name} --vmid {vmid} --confirm` takes it over"
                );
                self.blocked(text, now, out);
            }
        }
    }

    pub(super) fn looked(&mut self, result: Result<VmObservation, Fault>, now: Now, out: Out<'_>) {
        let observation = match result {
            Ok(observation) => observation,
            Err(fault) => match self.state {
                State::Resting(standing, _) => return self.unread(standing, &fault, now, out),
                State::Removing(_) => {
                    return self.removal_went(Came::Accepted(Err(fault)), now, out);
                }
                State::Waiting
                | State::Blocked
                | State::Checking(_)
                | State::Creating(_)
                | State::Configuring
                | State::Starting
                | State::Correcting(_)
                | State::Leaving
                | State::Removed => return self.back_off(&fault, now, out),
            },
        };
        if matches!(self.state, State::Checking(_)) {
            return self.checked_one(&observation, now, out);
        }
        let seen = self.seen(&observation);
        if let (Some(guest), Seen::Ours { .. }, Some(node)) =
            (&mut self.guest, &seen, observation.node)
        {
            guest.node = node;
        }
        match self.state {
            State::Resting(standing, _) => {
                let reading = observation.marks.as_ref();
                self.looked_at_rest(standing, (&seen, reading), now, out);
            }
            State::Removing(_) => self.looked_to_remove(&seen, now, out),
            State::Creating(_) => self.looked_while_creating(&seen, now, out),
            State::Waiting
            | State::Blocked
            | State::Checking(_)
            | State::Configuring
            | State::Starting
            | State::Correcting(_)
            | State::Leaving
            | State::Removed => {}
        }
    }

    pub(super) fn located(&mut self, result: Result<Found, Fault>, now: Now, out: Out<'_>) {
        let found = match result {
            Ok(found) => found,
            Err(fault) => return self.failed(&fault.text, now, out),
        };
        let template = &self.spec.template;
        let own = |name: &str| {
            parse_name(name).is_some_and(|(whose, _)| whose == self.birth.installation)
        };
        let of_image = matches!(template.sought(), Sought::Image(_));
        let mut all: Vec<_> =
            found.candidates.iter().filter(|one| !of_image || own(&one.name)).collect();
        self.lacks_image = all.is_empty();
        all.sort_by_key(|one| std::cmp::Reverse((one.created, one.vmid)));
        let reached = all.into_iter().find(|one| match &template.node {
            Some(node) => one.node == *node || found.is_shared(&one.storages),
            None => !found.fleet.is_offline(&one.node),
        });
        let Some(reached) = reached else {
            if let (Sought::Image(image), true) = (template.sought(), self.lacks_image) {
                let text = format!(
                    "image `{image}` has no version on cloud `{}`: `drover image build {image}` builds one; \
                     with `buildWhenMissing` drover does",
                    self.cloud()
                );
                return self.failed(&text, now, out);
            }
            let on = match &template.node {
                Some(node) => format!(" that node `{node}` reaches"),
                None => String::new(),
            };
            let text = format!("no template image{on} {}", template.sought());
            return self.failed(&text, now, out);
        };
        self.found = Some((reached.vmid, reached.node.clone()));
        self.want_id(None, now, out);
    }

    fn want_id(&mut self, taken: Option<VmId>, now: Now, out: Out<'_>) {
        self.enter(State::Creating(Create::Id), now, out);
        out.push(Effect::WantId(taken));
    }

    pub(super) fn id(&mut self, id: Result<(VmId, AgentId), Fault>, now: Now, out: Out<'_>) {
        let place = self.found.clone().zip(self.cluster.clone());
        let (State::Creating(Create::Id), Some(((source, home), cluster))) = (&self.state, place)
        else {
            if let Ok((vmid, _)) = id {
                out.push(Effect::IdBack { vmid, burned: false });
            }
            return;
        };
        let (vmid, agent) = match id {
            Ok(id) => id,
            Err(fault) => return self.failed(&fault.text, now, out),
        };
        let marks = Marks {
            installation: self.birth.installation.clone(),
            agent,
            vmid,
            cluster,
            kind: Kind::Machine,
            guest: GuestType::Vm,
            seq: 0,
            cloud: self.cloud().as_str().to_owned(),
            template: self.birth.name.to_string(),
            born: now.wall.rfc3339(),
        };
        let node = self.spec.template.node.clone().unwrap_or(home);
        self.guest = Some(Guest {
            marks: marks.clone(),
            node: node.clone(),
            source,
            made: false,
            configured: false,
        });
        let spec = self.recorded(&self.spec);
        let marks = Box::new(marks);
        out.push(Effect::Record(Body::DeclaredIntended { marks, node, spec, adopted: false }));
        self.enter(State::Creating(Create::Call), now, out);
    }

    pub(super) fn accepted(&mut self, result: Result<Option<Upid>, Fault>, now: Now, out: Out<'_>) {
        if matches!(self.state, State::Removing(_)) {
            return self.removal_went(Came::Accepted(result), now, out);
        }
        match result {
            Ok(Some(upid)) => self.enter(State::Creating(Create::Await(upid)), now, out),
            Ok(None) => self.enter(State::Creating(Create::Look), now, out),
            // Refused: the guest of that id is somebody else's.
            Err(fault) if fault.kind == FaultKind::IdTaken => {
                let taken = self.vmid();
                let found = self.found.clone();
                self.let_go(true, out);
                self.found = found;
                self.want_id(taken, now, out);
            }
            Err(fault) => {
                if !can_pass(&fault.kind) {
                    // It was refused: nothing comes of it later.
                    self.asked = None;
                }
                self.enter(State::Creating(Create::Look), now, out);
                self.detail = fault.text;
            }
        }
    }

    pub(super) fn task_ended(&mut self, end: Result<TaskEnd, Fault>, now: Now, out: Out<'_>) {
        if matches!(self.state, State::Removing(_)) {
            return self.removal_went(Came::Ended(end), now, out);
        }
        let text = match end {
            Ok(TaskEnd::Done { .. }) => {
                if let Some(guest) = &mut self.guest {
                    guest.made = true;
                }
                return self.enter(State::Configuring, now, out);
            }
            Ok(TaskEnd::Failed(fault)) => {
                self.asked = None;
                fault.text
            }
            Err(fault) => fault.text,
            Ok(TaskEnd::Unknown(text)) => text,
        };
        // Whatever it says, the guest is looked at before anything else is made.
        self.enter(State::Creating(Create::Look), now, out);
        self.detail = text;
    }

    fn looked_while_creating(&mut self, seen: &Seen, now: Now, out: Out<'_>) {
        let late = self.asked.is_none_or(|asked| now.mono - asked >= HORIZON);
        match seen {
            Seen::Ours { .. } => {
                if let Some(guest) = &mut self.guest {
                    guest.made = true;
                }
                self.enter(State::Configuring, now, out);
            }
            Seen::Free if late => {
                let why = match self.detail.is_empty() {
                    true => "Proxmox did not make the guest".to_owned(),
                    false => std::mem::take(&mut self.detail),
                };
                self.let_go(false, out);
                self.failed(&why, now, out);
            }
            Seen::Free => self.again_in(LOOK_PAUSE * 2, now, out),
            Seen::Unclear(why) => {
                if self.detail.is_empty() {
                    (*why).clone_into(&mut self.detail);
                }
                self.again_in(LOOK_PAUSE, now, out);
            }
            Seen::Foreign => {
                self.let_go(true, out);
                self.failed("its VMID is somebody else's: drover takes another one", now, out);
            }
        }
    }

    pub(super) fn configured(&mut self, result: Result<Configured, Fault>, now: Now, out: Out<'_>) {
        match result {
            Ok(done) => {
                self.volumes = done.volumes;
                match self.spec.power {
                    Power::Stopped => self.made(now, out),
                    Power::Running | Power::Suspended | Power::Unknown => {
                        self.enter(State::Starting, now, out);
                    }
                }
            }
            Err(fault) => self.hindered(&fault, now, out),
        }
    }

    /// A step after the clone failed: it is tried again, unless the guest is not the machine's any more.
    pub(super) fn hindered(&mut self, fault: &Fault, now: Now, out: Out<'_>) {
        match fault.kind {
            FaultKind::Gone | FaultKind::Foreign => {
                self.enter(State::Creating(Create::Look), now, out);
                self.detail.clone_from(&fault.text);
            }
            FaultKind::Contention
            | FaultKind::Locked { .. }
            | FaultKind::Unreachable
            | FaultKind::UnknownOutcome
            | FaultKind::Denied { .. }
            | FaultKind::IdTaken
            | FaultKind::Capacity
            | FaultKind::KeyRejected
            | FaultKind::Impostor
            | FaultKind::Broken => self.back_off(fault, now, out),
        }
    }

    /// The first start was carried out, or came to nothing.
    pub(super) fn started(&mut self, result: Result<Carried, Fault>, now: Now, out: Out<'_>) {
        match result.and_then(|carried| carried.outcome) {
            Ok(_) => self.made(now, out),
            Err(fault) => self.hindered(&fault, now, out),
        }
    }

    fn made(&mut self, now: Now, out: Out<'_>) {
        self.failures = 0;
        if let Some(Guest { marks, node, configured, .. }) = &mut self.guest {
            *configured = true;
            let (machine, node) = (marks.agent.clone(), node.clone());
            out.push(Effect::Record(Body::DeclaredMade { machine, node }));
        }
        self.enter(State::Resting(Standing::Kept, Watch::Describe), now, out);
    }
}
