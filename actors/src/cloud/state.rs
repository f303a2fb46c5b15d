//! The cloud's mind: its cap over all templates, kept by reservations, and its health. Pure.

use std::sync::Arc;
use std::time::Duration;

use drover_model::fact::What;
use drover_model::fault::{Culprit, Fault, FaultKind};
use drover_model::id::{CloudId, ClusterId, TemplateId};
use drover_model::phase::CloudHealth;
use drover_model::ports::ClusterObservation;
use drover_model::spec::CloudSpec;
use drover_model::status::Standing;
use drover_model::time::WallTime;

use super::counts::Counts;
use crate::template::{TemplateNews, permits};

const RETRY_FIRST: Duration = Duration::from_secs(1);
/// How often a cloud that does not work is asked: its return is to be known in seconds.
const RETRY_LONGEST: Duration = Duration::from_secs(4);
/// The same where the login is refused, since sites shut out hosts that fail to log in too often.
const LOGIN_RETRY_LONGEST: Duration = Duration::from_secs(15);
/// How often a cloud that is well is asked all the same: its health is shown to people.
const WELL: Duration = Duration::from_secs(30);

/// What the body is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Record which cluster the cloud leads to, and say when it is durable.
    Pin(ClusterId),
    /// The cloud leads to this cluster and works.
    Leads(ClusterId),
    /// The cloud leads to this cluster, and not to its own.
    Elsewhere(ClusterId),
    /// Ask the cloud who it is again after a while.
    AskAgain(Duration),
}

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
    /// Anything else, in words for people.
    Other(String),
}

fn refuses_login(fault: &Fault) -> bool {
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
            Self::Login(text) | Self::Other(text) => {
                format!("{text}; nothing is started since {since}")
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
        mind
    }

    /// The spec in force.
    pub fn spec(&self) -> Option<&Arc<CloudSpec>> {
        self.spec.as_ref()
    }

    /// The cluster it is known to lead to.
    pub fn pinned(&self) -> Option<&ClusterId> {
        self.pinned.as_ref()
    }

    /// A spec comes into force. Says whether the cloud must be asked who it is at once.
    pub fn apply(&mut self, spec: Option<Arc<CloudSpec>>) -> bool {
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
        }
        other_way
    }

    /// The service stops: nothing is started any more.
    pub fn stop(&mut self) {
        self.stopping = true;
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

    /// An answer speaks against the cloud while it is well: a refused login needs no second
    /// question before it is told, which Proxmox would answer 3 s late as well
    /// (book: proxmox, section 2).
    pub fn suspected(&mut self, fault: &Fault, now: WallTime) -> Vec<Effect> {
        let own = matches!(&fault.culprit, Culprit::Cloud(cloud) if *cloud == self.id);
        if !self.is_well() || !own || !refuses_login(fault) {
            return Vec::new();
        }
        let since = *self.since.get_or_insert(now);
        self.health = Health::Degraded { why: Why::Login(fault.text.clone()), since };
        vec![Effect::AskAgain(Duration::ZERO)]
    }

    /// The cloud said who it is, or failed to.
    pub fn identified(
        &mut self,
        observation: Result<ClusterObservation, Fault>,
        now: WallTime,
    ) -> Vec<Effect> {
        let observation = match observation {
            Ok(observation) => observation,
            Err(fault) => {
                let why = if refuses_login(&fault) { Why::Login } else { Why::Other };
                return self.degrade(why(fault.text), now);
            }
        };
        self.version = Some(observation.version);
        match &self.pinned {
            Some(pinned) if *pinned != observation.cluster => {
                let id = &self.id;
                let why = format!(
                    "cloud `{id}` leads to cluster `{}`, not to `{pinned}` as before: nothing is \
                     done there; if it is the same cluster with a new root CA, run `drover cluster \
                     confirm {id}`; else restore its endpoint, or give the new cluster a new cloud \
                     key",
                    observation.cluster
                );
                let elsewhere = Effect::Elsewhere(observation.cluster);
                self.degrade(Why::Other(why), now).into_iter().chain([elsewhere]).collect()
            }
            _ if !observation.quorate => self.degrade(Why::NoQuorum(observation.cluster), now),
            None => vec![Effect::Pin(observation.cluster)],
            Some(_) => self.well(),
        }
    }

    /// The pin is durable, or could not be made so.
    pub fn pin_written(
        &mut self,
        cluster: ClusterId,
        written: Result<(), String>,
        now: WallTime,
    ) -> Vec<Effect> {
        match written {
            Ok(()) => {
                self.pinned = Some(cluster);
                self.well()
            }
            Err(why) => self.degrade(Why::Other(why), now),
        }
    }

    fn well(&mut self) -> Vec<Effect> {
        self.health = Health::Well;
        self.since = None;
        self.retries = 0;
        let leads = self.pinned.clone().map(Effect::Leads);
        leads.into_iter().chain([Effect::AskAgain(WELL)]).collect()
    }

    fn degrade(&mut self, why: Why, now: WallTime) -> Vec<Effect> {
        let longest = match &why {
            Why::Login(_) => LOGIN_RETRY_LONGEST,
            Why::NoQuorum(_) | Why::Other(_) => RETRY_LONGEST,
        };
        let since = *self.since.get_or_insert(now);
        self.health = Health::Degraded { why, since };
        let wait = RETRY_FIRST.saturating_mul(1 << self.retries.min(6)).min(longest);
        self.retries = self.retries.saturating_add(1);
        vec![Effect::AskAgain(wait)]
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

    /// Reserves slots for a template and gives how many; they are held until its news settles
    /// them.
    pub fn reserve(&mut self, template: &TemplateId, count: u32) -> u32 {
        let granted = count.min(self.room());
        if granted > 0 {
            self.reserved.add(template, granted);
        }
        granted
    }

    /// A template's agents changed.
    pub fn news(&mut self, news: &TemplateNews) {
        self.live.set(&news.template, news.live);
        self.reserved.take(&news.template, news.released);
        if news.empty && !news.configured {
            self.live.set(&news.template, 0);
            self.warm.set(&news.template, 0);
        }
    }

    /// An agent lives: found when this actor was started again, ahead of its template's news.
    pub fn found(&mut self, template: &TemplateId, standing: Standing) {
        if permits::holds_slot(standing) {
            self.live.add(template, 1);
        }
    }

    /// A template's warm pool lacks agents.
    pub fn warm_need(&mut self, template: &TemplateId, count: u32) {
        self.warm.set(template, count);
    }

    /// Reserves slots for warm pools while there is room, in turn by name.
    pub fn warm_grants(&mut self) -> Vec<(TemplateId, u32)> {
        let mut grants = Vec::new();
        while self.room() > 0
            && let Some((template, count)) = self.warm.pop()
        {
            let granted = self.reserve(&template, count);
            self.warm.set(&template, count - granted);
            grants.push((template, granted));
        }
        grants
    }

    /// Its health for the read side, with what keeps clones back while it works.
    pub fn status(&self, doubt: Option<String>) -> What {
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
        What::Cloud {
            cloud: self.id.clone(),
            cluster: self.pinned.clone(),
            health,
            version: self.version.clone(),
            detail,
            agents: self.live(),
            cap: self.spec.as_ref().and_then(|spec| spec.cap),
        }
    }
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
