//! From the beginning of a build to its guest: whose turn it is, the template that is copied, the
//! VMID, and what the call that makes the guest comes to.

use drover_model::container::GuestType;
use drover_model::fault::{Fault, FaultKind};
use drover_model::id::{AgentId, TemplateId, Upid, VmId};
use drover_model::image::{ImageSource, IsoImage};
use drover_model::marks::{Kind, Marks};
use drover_model::record::Body;
use drover_model::seed;
use drover_model::spec::TemplateSpec;
use drover_model::template_image::Found;
use drover_model::time::Now;

use super::{Mind, Out};
use crate::builder::event::Effect;
use crate::builder::state::{Create, State, Task};

/// Why a build ended that a start of the service found in its midst.
const STOPPED: &str = "drover stopped while it ran";

impl Mind {
    pub(super) fn begin(&mut self, now: Now, out: Out<'_>) {
        (self.since, self.entered) = (now.wall, now.mono);
        if matches!(self.state, State::Removing(_)) {
            if !self.made {
                self.asked = Some(now.mono);
            }
            if self.failure.is_none() && !self.pruned {
                // No failure to write down: it begins again after the next restart too.
                self.failure = Some((now.wall, STOPPED.to_owned()));
            }
            return self.act(now, out);
        }
        let Some(recipe) = self.birth.recipe.clone() else {
            return self.over(State::Failed, now, out);
        };
        let limits = &recipe.spec.limits;
        self.deadline = Some(now.mono + limits.build);
        match recipe.spec.source {
            Some(ImageSource::Iso { iso: IsoImage::Volume(_), .. }) => {
                self.want_id(None, now, out);
            }
            Some(ImageSource::Url { .. } | ImageSource::Iso { .. }) => {
                self.limit = Some(now.mono + limits.lock);
                out.push(Effect::WantTurn);
                self.arm(out);
            }
            Some(ImageSource::Template(_)) => {
                self.enter(State::Creating(Create::Locate), now, out);
            }
            None => self.fail("the image has no source", now, out),
        }
    }

    pub(super) fn turn(&mut self, now: Now, out: Out<'_>) {
        if self.state != State::Queued {
            return;
        }
        self.enter(State::Pulling(Task::Call), now, out);
        let pull = self.birth.recipe.as_ref().map(|recipe| recipe.spec.limits.pull);
        self.limit = pull.map(|pull| now.mono + pull);
        self.arm(out);
    }

    /// Says which build has the turn.
    pub(super) fn behind(&mut self, image: &TemplateId, build: &AgentId) {
        if self.state == State::Queued {
            self.detail = format!("waits for the build of `{image}` ({build})");
        }
    }

    pub(super) fn want_id(&mut self, taken: Option<VmId>, now: Now, out: Out<'_>) {
        self.enter(State::Creating(Create::Id), now, out);
        out.push(Effect::WantId(taken));
    }

    pub(super) fn id(&mut self, id: Result<VmId, Fault>, now: Now, out: Out<'_>) {
        if self.state != State::Creating(Create::Id) {
            if let Ok(vmid) = id {
                out.push(Effect::IdBack { vmid, burned: false });
            }
            return;
        }
        let vmid = match id {
            Ok(vmid) => vmid,
            Err(fault) => return self.fail(&fault.text, now, out),
        };
        let marks = Marks {
            installation: self.birth.installation.clone(),
            agent: self.birth.build.clone(),
            vmid,
            cluster: self.birth.cluster.clone(),
            kind: Kind::Builder,
            guest: GuestType::Vm,
            seq: 0,
            cloud: self.birth.image.cloud.as_str().to_owned(),
            template: self.birth.image.name.to_string(),
            born: now.wall.rfc3339(),
        };
        let given = self.birth.recipe.as_ref().map(|recipe| recipe.given.clone());
        // From here on it may be on its storage, whatever becomes of the guest.
        let disc = self.machine().and_then(|machine| machine.cloud_init.seed.as_ref());
        let iso = disc.map(|disc| seed::volume(&disc.storage, &marks));
        self.volumes = iso.iter().cloned().collect();
        out.push(Effect::Record(Body::ImageIntended {
            iso,
            marks: Box::new(marks.clone()),
            node: self.birth.node.clone(),
            version: self.birth.version.clone(),
            given: given.unwrap_or_default(),
        }));
        self.marks = Some(marks);
        self.enter(State::Creating(Create::Call), now, out);
    }

    pub(super) fn located(&mut self, found: Result<Found, Fault>, now: Now, out: Out<'_>) {
        let found = match found {
            Ok(found) => found,
            Err(fault) => return self.failed(&fault, now, out),
        };
        let node = &self.birth.node;
        let mut all: Vec<_> = found.candidates.iter().collect();
        all.sort_by_key(|one| std::cmp::Reverse((one.created, one.vmid)));
        let reached = all
            .into_iter()
            .find(|one| one.node == *node || found.is_shared(&one.storages))
            .map(|one| (one.vmid, one.node.clone()));
        let machine = self.birth.recipe.as_ref().map(|recipe| recipe.spec.machine.clone());
        let Some(((vmid, home), machine)) = reached.zip(machine) else {
            let text = format!("no template image of its source is on node `{node}`");
            return self.fail(&text, now, out);
        };
        self.copied = Some(TemplateSpec { source: vmid, node: Some(home), ..machine });
        self.want_id(None, now, out);
    }

    /// The call to make the guest was answered.
    pub(super) fn create_accepted(
        &mut self,
        result: Result<Option<Upid>, Fault>,
        now: Now,
        out: Out<'_>,
    ) {
        match result {
            Ok(Some(upid)) => self.enter(State::Creating(Create::Await(upid)), now, out),
            Ok(None) => self.enter(State::Creating(Create::Look), now, out),
            Err(fault) => match fault.kind {
                // Refused: the guest of that id is somebody else's.
                FaultKind::IdTaken => {
                    let build = self.birth.build.clone();
                    out.push(Effect::Record(Body::ImageGone { build, burned: true }));
                    let taken = self.marks.take().map(|marks| marks.vmid);
                    self.want_id(taken, now, out);
                }
                FaultKind::UnknownOutcome => {
                    self.detail = fault.text;
                    self.enter(State::Creating(Create::Look), now, out);
                }
                FaultKind::Contention | FaultKind::Locked { .. } | FaultKind::Unreachable => {
                    self.back_off(&fault, now, out);
                }
                FaultKind::Denied { .. }
                | FaultKind::Gone
                | FaultKind::Capacity
                | FaultKind::Foreign
                | FaultKind::KeyRejected
                | FaultKind::Impostor
                | FaultKind::Broken => {
                    if self.tries == 0 {
                        // The only call was refused: nothing comes of it later.
                        self.asked = None;
                    }
                    self.fail(&fault.text, now, out);
                }
            },
        }
    }
}
