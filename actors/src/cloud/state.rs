//! The cloud's mind: its cap over all templates, kept by reservations, and its health. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::fact::What;
use crate::fault::Fault;
use crate::id::{CloudId, ClusterId, TemplateId};
use crate::message::Standing;
use crate::ports::ClusterSight;
use crate::spec::CloudSpec;
use crate::template::{TemplateNews, permits};

const RETRY_FIRST: Duration = Duration::from_secs(1);
const RETRY_LONGEST: Duration = Duration::from_secs(60);
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
    Degraded(String),
}

/// A cloud's cap and health.
#[derive(Debug, Clone)]
pub struct CloudMind {
    id: CloudId,
    spec: Option<Arc<CloudSpec>>,
    pinned: Option<ClusterId>,
    version: Option<String>,
    health: Health,
    retries: u32,
    stopping: bool,
    live: BTreeMap<TemplateId, u32>,
    reserved: BTreeMap<TemplateId, u32>,
    warm: BTreeMap<TemplateId, u32>,
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
            retries: 0,
            stopping: false,
            live: BTreeMap::new(),
            reserved: BTreeMap::new(),
            warm: BTreeMap::new(),
        }
    }

    /// The same cloud, not tried and without agents; templates may still use what was reserved.
    pub fn anew(&self) -> Self {
        let mut mind = Self::new(self.id.clone(), self.spec.clone(), self.pinned.clone());
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
        self.spec = spec;
        if other_way {
            self.health = Health::Connecting;
            self.retries = 0;
        }
        other_way
    }

    /// The service stops: nothing is begun any more.
    pub fn stop(&mut self) {
        self.stopping = true;
    }

    /// Why it can not be worked with, or its version.
    pub fn state(&self) -> Result<String, String> {
        match &self.health {
            Health::Well => Ok(self.version.clone().unwrap_or_default()),
            Health::Connecting => Err("not answered yet".into()),
            Health::Degraded(why) => Err(why.clone()),
        }
    }

    /// Whether it can be worked with, as far as is known.
    pub fn is_well(&self) -> bool {
        self.health == Health::Well
    }

    /// The cloud said who it is, or failed to.
    pub fn identified(&mut self, sight: Result<ClusterSight, Fault>) -> Vec<Effect> {
        let sight = match sight {
            Ok(sight) => sight,
            Err(fault) => return self.degrade(fault.text),
        };
        self.version = Some(sight.version);
        match &self.pinned {
            Some(pinned) if *pinned != sight.cluster => {
                let why = format!(
                    "cloud `{}` leads to cluster `{}`, not to `{pinned}` as before: nothing is \
                     done there; restore its endpoint, or give the new cluster a new cloud key",
                    self.id, sight.cluster
                );
                let elsewhere = Effect::Elsewhere(sight.cluster);
                self.degrade(why).into_iter().chain([elsewhere]).collect()
            }
            _ if !sight.quorate => {
                self.degrade(format!("cluster `{}` is not quorate", sight.cluster))
            }
            None => vec![Effect::Pin(sight.cluster)],
            Some(_) => self.well(),
        }
    }

    /// The pin is durable, or could not be made so.
    pub fn pin_written(&mut self, cluster: ClusterId, written: Result<(), String>) -> Vec<Effect> {
        match written {
            Ok(()) => {
                self.pinned = Some(cluster);
                self.well()
            }
            Err(why) => self.degrade(why),
        }
    }

    fn well(&mut self) -> Vec<Effect> {
        self.health = Health::Well;
        self.retries = 0;
        let leads = self.pinned.clone().map(Effect::Leads);
        leads.into_iter().chain([Effect::AskAgain(WELL)]).collect()
    }

    fn degrade(&mut self, why: String) -> Vec<Effect> {
        self.health = Health::Degraded(why);
        let wait = RETRY_FIRST.saturating_mul(1 << self.retries.min(6)).min(RETRY_LONGEST);
        self.retries = self.retries.saturating_add(1);
        vec![Effect::AskAgain(wait)]
    }

    /// Agents that count against the cap.
    pub fn live(&self) -> u32 {
        self.live.values().sum()
    }

    /// Agents that may be begun under the cap at this moment.
    pub fn room(&self) -> u32 {
        let Some(spec) = &self.spec else { return 0 };
        if self.health != Health::Well || self.stopping {
            return 0;
        }
        let reserved: u32 = self.reserved.values().sum();
        permits::room(spec.cap, self.live().saturating_add(reserved))
    }

    /// Why there is no room, in words for people.
    pub fn shortage(&self) -> String {
        let id = &self.id;
        match (&self.spec, &self.health) {
            _ if self.stopping => "the service is stopping".into(),
            (None, _) => format!("cloud {id} is not configured any more"),
            (Some(_), Health::Connecting) => format!("cloud {id}: not answered yet"),
            (Some(_), Health::Degraded(why)) => format!("cloud {id}: {why}"),
            (Some(spec), Health::Well) => {
                let reserved: u32 = self.reserved.values().sum();
                let (held, cap) = (self.live().saturating_add(reserved), spec.cap.unwrap_or(0));
                format!("cloud {id} is full: {held} of {cap}")
            }
        }
    }

    /// Reserves slots for a template and gives how many; they are held until its news settles
    /// them.
    pub fn reserve(&mut self, template: &TemplateId, count: u32) -> u32 {
        let granted = count.min(self.room());
        if granted > 0 {
            *self.reserved.entry(template.clone()).or_default() += granted;
        }
        granted
    }

    /// A template's agents changed.
    pub fn news(&mut self, news: &TemplateNews) {
        self.live.insert(news.template.clone(), news.live);
        if let Some(reserved) = self.reserved.get_mut(&news.template) {
            *reserved = reserved.saturating_sub(news.released);
        }
        if news.empty && !news.configured {
            self.live.remove(&news.template);
            self.warm.remove(&news.template);
        }
    }

    /// An agent lives: found when this actor was started anew, ahead of its template's news.
    pub fn found(&mut self, template: &TemplateId, standing: Standing) {
        if permits::holds_slot(standing) {
            *self.live.entry(template.clone()).or_default() += 1;
        }
    }

    /// A template's warm pool lacks agents.
    pub fn warm_need(&mut self, template: &TemplateId, count: u32) {
        self.warm.insert(template.clone(), count);
    }

    /// Reserves slots for warm pools while there is room, in turn by name.
    pub fn warm_grants(&mut self) -> Vec<(TemplateId, u32)> {
        let needs: Vec<(TemplateId, u32)> =
            self.warm.iter().map(|(id, count)| (id.clone(), *count)).collect();
        let grants = needs.into_iter().filter_map(|(template, count)| {
            let granted = self.reserve(&template, count);
            if let Some(left) = self.warm.get_mut(&template) {
                *left -= granted;
            }
            (granted > 0).then_some((template, granted))
        });
        grants.collect()
    }

    /// Its health for the read side.
    pub fn picture(&self) -> What {
        let (health, detail) = match (&self.spec, &self.health) {
            (None, _) => ("degraded", "not configured: its last agents are being retired".into()),
            (Some(_), Health::Connecting) => ("connecting", String::new()),
            (Some(_), Health::Well) => ("well", String::new()),
            (Some(_), Health::Degraded(why)) => ("degraded", why.clone()),
        };
        What::Cloud {
            cloud: self.id.clone(),
            cluster: self.pinned.clone(),
            health: health.into(),
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
