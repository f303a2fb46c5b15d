//! The cloud's mind: its cap over all templates, kept by reservations, and its health.
//!
//! ```text
//! connecting ── pinned, quorate ──▶ well ── no answer, no quorum, login refused, ──▶ degraded
//!                                    ▲      another cluster                            │
//!                                    └──────────────── it answers again ───────────────┘
//! ```
//!
//! Agents start only on a cloud that is well. `inquiry.rs` has when it is asked.

use std::sync::Arc;
use std::time::Duration;

use drover_model::fault::{Fault, FaultKind};
use drover_model::id::{CloudId, ClusterId, TemplateId};
use drover_model::phase::CloudHealth;
use drover_model::ports::ClusterObservation;
use drover_model::size::Size;
use drover_model::spec::CloudSpec;
use drover_model::state_machine::{StateMachine, Turn};
use drover_model::status::CloudStatus;
use drover_model::time::{Now, WallTime};

use super::counts::Counts;
pub use super::event::{Effect, Event};
use super::inquiry::Inquiry;
use crate::template::permits;

const RETRY_FIRST: Duration = Duration::from_secs(1);
/// How often a cloud that does not work is asked: people must see its return within seconds.
const RETRY_LONGEST: Duration = Duration::from_secs(4);
/// The same where the login is refused, since sites shut out hosts that fail to log in too often.
const LOGIN_RETRY_LONGEST: Duration = Duration::from_secs(15);
/// How often a cloud that is well is asked all the same: its health is shown to people.
const WELL: Duration = Duration::from_secs(30);

/// Whether a cloud can be worked with.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Health {
    Connecting,
    Well,
    Degraded { why: Why, since: WallTime },
}

/// Why it cannot be worked with.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Why {
    /// Its cluster has no quorum.
    NoQuorum(ClusterId),
    /// Proxmox refused the login.
    Login(String),
    /// No endpoint can be used.
    Silent(String),
    /// Anything else, in words for people.
    Other(String),
}

pub(super) fn refuses_login(fault: &Fault) -> bool {
    matches!(fault.kind, FaultKind::Denied { privilege: None, .. })
}

impl Why {
    fn reported(&self, since: WallTime) -> String {
        let since = since.rfc3339();
        match self {
            Self::NoQuorum(cluster) => {
                format!(
                    "cluster `{cluster}` has no quorum since {since}: nothing is started (`pvecm status` on a node says who is missing)"
                )
            }
            Self::Silent(text) => format!("nothing has been started since {since}: {text}"),
            Self::Login(text) | Self::Other(text) => {
                format!("{text}; nothing has been started since {since}")
            }
        }
    }
}

/// A cloud's cap and health.
#[derive(Debug, Clone)]
pub struct CloudMind {
    id: CloudId,
    spec: Option<Arc<CloudSpec>>,
    pinned: Option<ClusterId>,
    version: Option<String>,
    health: Health,
    /// Since when it is degraded; also from before this start, until it is known to be well.
    since: Option<WallTime>,
    retries: u32,
    pub(super) inquiry: Inquiry,
    stopping: bool,
    live: Counts,
    reserved: Counts,
    /// Agents that warm pools lack.
    warm: Counts,
}

impl CloudMind {
    /// A cloud that was not tried yet; no spec when only its agents are left of it.
    pub fn new(id: CloudId, spec: Option<Arc<CloudSpec>>, pinned: Option<ClusterId>) -> Self {
        Self {
            id,
            spec,
            pinned,
            version: None,
            health: Health::Connecting,
            since: None,
            retries: 0,
            inquiry: Inquiry::default(),
            stopping: false,
            live: Counts::default(),
            reserved: Counts::default(),
            warm: Counts::default(),
        }
    }

    /// The same cloud, which was degraded since then when it was heard of last.
    #[must_use]
    pub fn degraded_from(self, since: Option<WallTime>) -> Self {
        Self { since, ..self }
    }

    /// Since when it is degraded, or was when it was heard of last.
    pub fn degraded_since(&self) -> Option<WallTime> {
        self.since
    }

    /// The same cloud, not tried and without agents; templates may still use what was reserved.
    pub fn fresh(&self) -> Self {
        let mind = Self::new(self.id.clone(), self.spec.clone(), self.pinned.clone());
        let mut mind = mind.degraded_from(self.since);
        mind.reserved.clone_from(&self.reserved);
        mind.warm.clone_from(&self.warm);
        mind.stopping = self.stopping;
        mind.inquiry = self.inquiry.clone();
        mind
    }

    pub(super) fn is(&self, cloud: &CloudId) -> bool {
        self.id == *cloud
    }

    /// The spec in force; none when only its agents are left of it.
    pub fn spec(&self) -> Option<&Arc<CloudSpec>> {
        self.spec.as_ref()
    }

    /// The cluster it is known to lead to.
    pub fn pinned(&self) -> Option<&ClusterId> {
        self.pinned.as_ref()
    }

    /// Another way in is asked at once who it is.
    fn apply(&mut self, spec: Option<Arc<CloudSpec>>, turn: &mut Turn<Effect>) {
        let other_way = match (&self.spec, &spec) {
            (Some(old), Some(new)) => old.connection != new.connection,
            (None, Some(_)) => true,
            (_, None) => false,
        };
        // Of another way in, or none, nothing of that is known.
        if self.spec.is_some() && (other_way || spec.is_none()) {
            self.since = None;
        }
        self.spec = spec;
        if other_way {
            self.health = Health::Connecting;
            self.retries = 0;
            self.ask(turn);
        }
    }

    /// Why it cannot be worked with, or its version.
    pub fn state(&self) -> Result<String, String> {
        match &self.health {
            Health::Well => Ok(self.version.clone().unwrap_or_default()),
            Health::Connecting => Err("not answered yet".into()),
            Health::Degraded { why, since } => Err(why.reported(*since)),
        }
    }

    /// Whether it can be worked with, as far as is known.
    pub fn is_well(&self) -> bool {
        self.health == Health::Well
    }

    pub(super) fn refuse_login(&mut self, text: String, now: WallTime) {
        let since = *self.since.get_or_insert(now);
        self.health = Health::Degraded { why: Why::Login(text), since };
    }

    pub(super) fn identify(
        &mut self,
        observation: Result<ClusterObservation, Fault>,
        now: WallTime,
        turn: &mut Turn<Effect>,
    ) {
        let observation = match observation {
            Ok(observation) => observation,
            Err(fault) => {
                let is_silent = fault.kind == FaultKind::Unreachable;
                let why = if is_silent { Why::Silent } else { Why::Other };
                let why = if refuses_login(&fault) { Why::Login } else { why };
                return self.degrade(why(fault.text), now, turn);
            }
        };
        self.version = Some(observation.version);
        match &self.pinned {
            Some(pinned) if *pinned != observation.cluster => {
                let id = &self.id;
                let why = format!(
                    "cloud `{id}` leads to cluster `{}` now, and led to `{pinned}` before: drover does \
                     nothing there. Where it is the same cluster with a new root CA, run `drover \
                     cluster confirm {id}`, which checks that drover's guests are there. Where it is \
                     another cluster, put the old endpoint back, configure the new cluster as a cloud of \
                     its own, or start drover with an empty state directory (`drover run --state-dir \
                     DIR`), where it knows nothing of `{pinned}` and its guests",
                    observation.cluster
                );
                self.degrade(Why::Other(why), now, turn);
                turn.push(Effect::Elsewhere(observation.cluster));
            }
            _ if !observation.quorate => {
                self.degrade(Why::NoQuorum(observation.cluster), now, turn);
            }
            None => turn.push(Effect::Pin(observation.cluster)),
            Some(_) => self.recover(turn),
        }
    }

    fn pin(
        &mut self,
        cluster: ClusterId,
        written: Result<(), String>,
        now: WallTime,
        turn: &mut Turn<Effect>,
    ) {
        match written {
            Ok(()) => {
                self.pinned = Some(cluster);
                self.recover(turn);
            }
            Err(why) => self.degrade(Why::Other(why), now, turn),
        }
    }

    fn recover(&mut self, turn: &mut Turn<Effect>) {
        self.health = Health::Well;
        self.since = None;
        self.retries = 0;
        if let Some(cluster) = self.pinned.clone() {
            turn.push(Effect::Leads(cluster));
        }
        turn.push(Effect::AskAgain(WELL));
    }

    fn degrade(&mut self, why: Why, now: WallTime, turn: &mut Turn<Effect>) {
        let longest = match &why {
            Why::Login(_) => LOGIN_RETRY_LONGEST,
            Why::NoQuorum(_) | Why::Silent(_) | Why::Other(_) => RETRY_LONGEST,
        };
        let since = *self.since.get_or_insert(now);
        self.health = Health::Degraded { why, since };
        let wait = RETRY_FIRST.saturating_mul(1 << self.retries.min(6)).min(longest);
        self.retries = self.retries.saturating_add(1);
        turn.push(Effect::AskAgain(wait));
    }

    /// Agents that count against the cap.
    pub fn live(&self) -> u32 {
        self.live.sum()
    }

    /// Slots that are taken or promised.
    fn held(&self) -> u32 {
        self.live().saturating_add(self.reserved.sum())
    }

    /// Agents that may be started under the cap at this moment.
    pub fn room(&self) -> u32 {
        let Some(spec) = &self.spec else { return 0 };
        if self.health != Health::Well || self.stopping {
            return 0;
        }
        permits::room(spec.cap, self.held())
    }

    /// Why there is no room, in words for people.
    pub fn shortage(&self) -> String {
        let id = &self.id;
        match (&self.spec, &self.health) {
            _ if self.stopping => "the service is stopping".into(),
            (None, _) => format!("cloud {id} is not configured any more"),
            (Some(_), Health::Connecting) => format!("cloud {id}: not answered yet"),
            (Some(_), Health::Degraded { why, since }) => {
                format!("cloud {id}: {}", why.reported(*since))
            }
            (Some(spec), Health::Well) => {
                let (held, cap) = (self.held(), spec.cap.unwrap_or(0));
                format!("cloud {id} is full: {held} of {cap}")
            }
        }
    }

    /// Reserves slots for a template and gives how many. They are held until its news settles them.
    fn reserve(&mut self, template: &TemplateId, count: u32) -> u32 {
        let granted = count.min(self.room());
        if granted > 0 {
            self.reserved.add(template, granted);
        }
        granted
    }

    fn want(&mut self, template: TemplateId, size: Size, count: u32, turn: &mut Turn<Effect>) {
        turn.push(match self.reserve(&template, count) {
            0 => Effect::Refuse,
            // What is not reserved is answered with the rest: the herd sees the room left.
            reserved => Effect::Begin { template, reserved, asked: Some((size, count)) },
        });
    }

    fn provision(&mut self, template: TemplateId, count: u32, turn: &mut Turn<Effect>) {
        let reserved = self.reserve(&template, count);
        let short = (reserved < count).then(|| self.shortage());
        turn.push(Effect::Provision { template, reserved, short });
    }

    /// Reserves slots for warm pools while there is room, in turn by name.
    fn serve_warm_pools(&mut self, turn: &mut Turn<Effect>) {
        while self.room() > 0
            && let Some((template, count)) = self.warm.pop()
        {
            let reserved = self.reserve(&template, count);
            self.warm.set(&template, count - reserved);
            turn.push(Effect::Begin { template, reserved, asked: None });
        }
    }

    /// Its health for the read side, with what keeps clones back while it works.
    pub fn status(&self, doubt: Option<String>) -> CloudStatus {
        let (health, detail) = match (&self.spec, &self.health) {
            (None, _) => {
                (CloudHealth::Degraded, "not configured: its last agents are being retired".into())
            }
            (Some(_), Health::Connecting) => (CloudHealth::Connecting, String::new()),
            (Some(_), Health::Well) => (CloudHealth::Well, doubt.unwrap_or_default()),
            (Some(_), Health::Degraded { why, since }) => {
                (CloudHealth::Degraded, why.reported(*since))
            }
        };
        CloudStatus {
            cloud: self.id.clone(),
            cluster: self.pinned.clone(),
            health,
            version: self.version.clone(),
            detail,
            agents: self.live(),
            cap: self.spec.as_ref().and_then(|spec| spec.cap),
            overrides: self.spec.as_ref().map(|spec| spec.overrides).unwrap_or_default(),
        }
    }
}

impl StateMachine for CloudMind {
    type Event = Event;
    type Effect = Effect;

    fn step(&mut self, event: Event, now: Now, turn: &mut Turn<Effect>) {
        match event {
            Event::Applied(spec) => self.apply(spec, turn),
            Event::Stopped => self.stopping = true,
            Event::Ask => self.ask(turn),
            Event::AskDue { stamp } => self.ask_due(stamp, turn),
            Event::Identified { stamp, observation } => self.answer(stamp, observation, now, turn),
            Event::PinWritten { stamp, cluster, written } => {
                if stamp == self.stamp() {
                    self.pin(cluster, written, now.wall, turn);
                }
            }
            Event::Suspected(fault) => self.suspect(fault, now, turn),
            Event::Found { template, standing } => {
                if permits::holds_slot(standing) {
                    self.live.add(&template, 1);
                }
            }
            Event::News { template, live, released, over } => {
                self.live.set(&template, if over { 0 } else { live });
                self.reserved.take(&template, released);
                if over {
                    self.warm.set(&template, 0);
                }
            }
            Event::WarmNeed { template, count } => self.warm.set(&template, count),
            Event::Wanted { template, size, count } => self.want(template, size, count, turn),
            Event::Provisioned { template, count } => self.provision(template, count, turn),
            Event::Settle => self.serve_warm_pools(turn),
        }
    }
}

#[cfg(test)]
mod tests;
