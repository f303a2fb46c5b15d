//! Looks at a guest that was made, and what follows from them.
//!
//! ```text
//! Pause ─▶ Describe ── it carries the marks ─▶ drift ─▶ Correcting, or Pause
//!             │ it cannot be described
//!             ▼
//!           Look ── other marks ─▶ foreign;  unclear ─▶ Pause
//!             │ its id is free
//!             ▼
//!           List ── nobody in it has the id or the name ─▶ gone once; twice ─▶ missing
//! ```

use std::time::Duration;

use drover_model::declared::{DeclaredSpec, Drift, OnRemoval};
use drover_model::fault::{Culprit, Fault, FaultKind};
use drover_model::marks::Reading;
use drover_model::order::{MachineView, Work};
use drover_model::phase::{DriftKind, Power};
use drover_model::ports::{Carried, Survey};
use drover_model::record::Body;
use drover_model::time::Now;

use super::drift::{NEVER_MOVES, drift, remedy};
use super::event::Effect;
use super::mind::{Guest, LOOK_EVERY, Mind, Out, Seen};
use super::remove::REMOVAL_GRACE;
use super::state::{Check, Standing, State, Watch};

/// The rounds in which a guest must be gone before that counts.
const GONE_ROUNDS: u32 = 2;
/// The pause between two such rounds.
const GONE_PAUSE: Duration = Duration::from_secs(30);
/// A machine that was put right and stays so for this long begins to count again.
const CALM: Duration = Duration::from_secs(600);
/// The longest pause between two corrections of a machine that does not stay right.
const CORRECT_LONGEST: Duration = Duration::from_secs(3600);
/// What the drift of a machine that is gone says.
const NOT_AGAIN: &str = "`correct` does not name it";

/// The kind of difference that a work puts right.
fn kind_of(work: &Work) -> DriftKind {
    match work {
        Work::Resize(_) => DriftKind::Size,
        Work::Start
        | Work::Stop
        | Work::Shutdown
        | Work::Reboot
        | Work::Reset
        | Work::Suspend
        | Work::Resume
        | Work::Snapshot { .. }
        | Work::Revert { .. }
        | Work::DeleteSnapshot { .. } => DriftKind::Power,
    }
}

impl Mind {
    fn rest(&mut self, standing: Standing, now: Now, out: Out<'_>) {
        let detail = std::mem::take(&mut self.detail);
        self.enter(State::Resting(standing, Watch::Pause), now, out);
        self.detail = detail;
    }

    fn go_on(&mut self, standing: Standing, watch: Watch, now: Now, out: Out<'_>) {
        let detail = std::mem::take(&mut self.detail);
        self.enter(State::Resting(standing, watch), now, out);
        self.detail = detail;
    }

    pub(super) fn described(&mut self, result: Result<MachineView, Fault>, now: Now, out: Out<'_>) {
        let State::Resting(standing, _) = self.state else { return };
        let view = match result {
            Ok(view) => view,
            Err(fault) => {
                self.detail = fault.text;
                return self.go_on(standing, Watch::Look, now, out);
            }
        };
        self.gone_rounds = 0;
        self.detail.clear();
        if let Some(guest) = &mut self.guest {
            guest.node = view.node.clone();
        }
        (self.last_seen, self.unseen) = (Some(now.wall), false);
        self.power = view.power;
        self.addresses.clone_from(&view.addresses);
        self.drift = drift(&self.spec, &view);
        self.drift.extend(self.on_another_cluster());
        if !self.is_declared() {
            return self.left(&view, now, out);
        }
        let work = remedy(&self.spec, &view, &self.drift);
        let Some(work) = work else {
            self.corrections.retain(|_, (_, last)| now.mono - *last < CALM);
            return self.rest(Standing::Kept, now, out);
        };
        self.correct_in_time(work, &view, now, out);
    }

    /// The declaration names a cloud that leads to another cluster than the guest's.
    fn on_another_cluster(&self) -> Option<Drift> {
        let Guest { marks, .. } = self.guest.as_ref()?;
        let cloud = self.cloud().as_str();
        if marks.cloud == cloud || *self.leads.as_ref()? == marks.cluster {
            return None;
        }
        Some(Drift {
            kind: DriftKind::Place,
            what: "cloud".to_owned(),
            declared: cloud.to_owned(),
            found: marks.cloud.clone(),
            stays: Some(NEVER_MOVES.into()),
        })
    }

    /// Puts a difference right, unless that must wait.
    fn correct_in_time(&mut self, work: Work, view: &MachineView, now: Now, out: Out<'_>) {
        if let Some(lock) = view.lock.as_ref().filter(|lock| *lock != "suspended") {
            self.detail =
                format!("Proxmox has it locked ({lock}): drover waits before it corrects");
            return self.rest(Standing::Kept, now, out);
        }
        let kind = kind_of(&work);
        if let Some((many, last)) = self.corrections.get(&kind) {
            let pause = (LOOK_EVERY * 2_u32.saturating_pow((*many).min(10))).min(CORRECT_LONGEST);
            if now.mono - *last < pause {
                self.detail = format!(
                    "it does not stay right ({kind}): drover tries again {} s after the last time",
                    pause.as_secs()
                );
                return self.rest(Standing::Kept, now, out);
            }
        }
        self.correct(work, now, out);
    }

    /// A machine that left the configuration is looked at, and switched off where that was declared.
    fn left(&mut self, view: &MachineView, now: Now, out: Out<'_>) {
        self.drift.clear();
        match (self.spec.on_removal, view.power) {
            (OnRemoval::Stop, Power::Running) => match self.grace_left(now) {
                Some(grace) => {
                    self.detail = format!(
                        "it left the configuration: drover shuts it down in {} s; declare it again to \
                         keep it running",
                        grace.as_secs_f64().ceil()
                    );
                    self.rest(Standing::Kept, now, out);
                    self.again_in(grace, now, out);
                }
                None => self.correct_in_time(Work::Shutdown, view, now, out),
            },
            (OnRemoval::Stop, Power::Stopped) => {
                self.stopped_for_good(out);
                self.rest(Standing::Kept, now, out);
            }
            (OnRemoval::Keep | OnRemoval::Stop | OnRemoval::Delete, _) => {
                self.rest(Standing::Kept, now, out);
            }
        }
    }

    /// The time until drover does what the last declaration wants; none where it is over.
    fn grace_left(&self, now: Now) -> Option<Duration> {
        let passed = now.mono - self.left_at?;
        REMOVAL_GRACE.checked_sub(passed).filter(|left| !left.is_zero())
    }

    /// It was shut down once, as declared: anyone who starts it again keeps it so.
    fn stopped_for_good(&mut self, out: Out<'_>) {
        let spec = DeclaredSpec { on_removal: OnRemoval::Keep, ..DeclaredSpec::clone(&self.spec) };
        if let Some(guest) = &self.guest {
            let machine = guest.marks.agent.clone();
            let spec = self.recorded(&spec);
            out.push(Effect::Record(Body::DeclaredChanged { machine, spec }));
        }
        self.spec = spec.into();
    }

    fn correct(&mut self, work: Work, now: Now, out: Out<'_>) {
        let Some(guest) = &self.guest else { return };
        let machine = guest.marks.agent.clone();
        out.push(Effect::Record(Body::DeclaredCorrecting { machine, work: work.clone() }));
        let (many, last) = self.corrections.entry(kind_of(&work)).or_insert((0, now.mono));
        (*many, *last) = (*many + 1, now.mono);
        self.enter(State::Correcting(work), now, out);
    }

    /// An order was carried out: the first start, or a correction.
    pub(super) fn carried(&mut self, result: Result<Carried, Fault>, now: Now, out: Out<'_>) {
        let work = match &self.state {
            State::Correcting(work) => work.clone(),
            State::Starting => return self.started(result, now, out),
            State::Waiting
            | State::Blocked
            | State::Checking(_)
            | State::Creating(_)
            | State::Configuring
            | State::Resting(..)
            | State::Leaving
            | State::Removing(_)
            | State::Removed => return,
        };
        match result.and_then(|carried| carried.outcome) {
            Ok(said) => {
                let said = if said.is_empty() { String::new() } else { format!(": {said}") };
                self.corrected = Some((now.wall, format!("{work}{said}")));
                self.enter(State::Resting(Standing::Kept, Watch::Describe), now, out);
            }
            Err(fault) => {
                self.enter(State::Resting(Standing::Kept, Watch::Pause), now, out);
                self.detail = format!("{work} failed: {}", fault.text);
            }
        }
    }

    /// The cluster said nothing of its guest: nothing follows.
    pub(super) fn unread(&mut self, standing: Standing, fault: &Fault, now: Now, out: Out<'_>) {
        self.gone_rounds = 0;
        self.unseen = true;
        self.detail.clone_from(&fault.text);
        self.rest(standing, now, out);
    }

    pub(super) fn looked_at_rest(
        &mut self,
        standing: Standing,
        (seen, reading): (&Seen, Option<&Reading>),
        now: Now,
        out: Out<'_>,
    ) {
        match seen {
            Seen::Free => self.go_on(standing, Watch::List, now, out),
            Seen::Foreign => {
                self.gone_rounds = 0;
                self.power = Power::Unknown;
                self.drift.clear();
                self.enter(State::Resting(Standing::Foreign, Watch::Pause), now, out);
                self.detail = self.not_as_made(reading);
            }
            Seen::Unclear(why) => {
                let fault = Fault::new(FaultKind::Contention, Culprit::Guest, *why);
                self.unread(standing, &fault, now, out);
            }
            // It was busy for a moment, and could not be described.
            Seen::Ours { .. } => {
                self.gone_rounds = 0;
                self.rest(standing, now, out);
            }
        }
    }

    /// What differs on a guest that has the machine's VMID, and what helps.
    fn not_as_made(&self, reading: Option<&Reading>) -> String {
        let Some(Guest { marks, node, .. }) = &self.guest else { return String::new() };
        let (vmid, name) = (marks.vmid, &self.birth.name);
        let made_as = marks.name(&self.spec.template.name_prefix);
        let (differs, helps) = match reading {
            Some(Reading::Marked(found)) => (
                format!(
                    "its marks name `{}` (VMID {}) of installation `{}`",
                    found.template, found.vmid, found.installation
                ),
                "It is another guest".to_owned(),
            ),
            Some(Reading::Unmarked | Reading::Damaged(_)) | None => {
                let differs = match reading {
                    Some(Reading::Damaged(why)) => why.clone(),
                    Some(_) | None => "neither its name nor its description is drover's".to_owned(),
                };
                let helps = format!(
                    "If it is this machine, `qm set {vmid} --name {made_as}` on {node} puts the name back, \
                     and `drover machine adopt {name} --vmid {vmid} --confirm` has drover write name and \
                     marks again"
                );
                (differs, helps)
            }
        };
        format!(
            "guest {vmid} on {node} is not as drover made it: {differs}. drover made it as `{made_as}`, and \
             drover leaves it alone. {helps}. As a last resort rename or remove guest {vmid}, then run `drover \
             machine forget {name}`: drover makes the machine again, with a new disk"
        )
    }

    /// All guests were listed, after its id was found to be free.
    pub(super) fn listed(
        &mut self,
        standing: Standing,
        result: Result<Survey, Fault>,
        now: Now,
        out: Out<'_>,
    ) {
        let survey = match result {
            Ok(survey) if survey.quorate => survey,
            Ok(_) => {
                let text = "the cluster has no quorum: its list of guests proves nothing";
                let fault = Fault::new(FaultKind::Contention, Culprit::Guest, text);
                return self.unread(standing, &fault, now, out);
            }
            Err(fault) => return self.unread(standing, &fault, now, out),
        };
        let Some(Guest { marks, .. }) = &self.guest else { return };
        let name = marks.name(&self.spec.template.name_prefix);
        let there = survey
            .guests
            .iter()
            .any(|one| one.vmid == marks.vmid || one.name.as_deref() == Some(&*name));
        if there {
            let text = "a guest of its name or VMID is in the list of all guests";
            let fault = Fault::new(FaultKind::Contention, Culprit::Guest, text);
            return self.unread(standing, &fault, now, out);
        }
        self.gone_rounds += 1;
        if self.gone_rounds < GONE_ROUNDS {
            "the cluster says that its guest is gone: drover asks once more"
                .clone_into(&mut self.detail);
            self.rest(standing, now, out);
            return self.again_in(GONE_PAUSE, now, out);
        }
        self.gone(now, out);
    }

    /// Its guest is gone for certain.
    fn gone(&mut self, now: Now, out: Out<'_>) {
        self.power = Power::Unknown;
        self.addresses.clear();
        if !self.is_declared() {
            self.let_go(false, out);
            return self.enter(State::Removed, now, out);
        }
        let again = self.spec.correct.contains(&DriftKind::Create);
        if again {
            self.let_go(false, out);
            self.corrected = Some((now.wall, "made again, since its guest was gone".into()));
            return self.enter(State::Checking(Check::Cluster), now, out);
        }
        self.enter(State::Resting(Standing::Missing, Watch::Pause), now, out);
        self.drift = vec![Drift {
            kind: DriftKind::Create,
            what: "guest".to_owned(),
            declared: "there".into(),
            found: "gone".into(),
            stays: Some(NOT_AGAIN.into()),
        }];
        self.detail = format!(
            "its guest is gone from the cluster; `drover machine forget {}` lets drover make it again, with \
             a new disk",
            self.birth.name
        );
    }
}
