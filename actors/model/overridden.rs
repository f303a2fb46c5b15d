//! What operators say of templates and clouds against the configuration, until they take it back or a
//! sync with git undoes it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::id::{CloudId, TemplateId};
use crate::keyed;
use crate::overrides::Change;
use crate::record::Body;
use crate::spec::{CloudSpec, HerdSpec, TemplateSpec};

/// What holds for a template instead of what the configuration says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TemplateOverrides {
    /// The most agents, 0 for no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cap: Option<u32>,
    /// Agents kept, in use or not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub minimum: Option<u32>,
    /// Idle agents kept beside those in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_minimum: Option<u32>,
    /// Minutes of idling after which an agent goes, 0 for never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_minutes: Option<u32>,
    /// Uses after which an agent goes, 0 for no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_uses: Option<u32>,
    /// Whether agents of an older version stay until they go by themselves. No value of the
    /// configuration: a sync leaves it alone.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub rollout_paused: bool,
}

/// What holds for a cloud instead of what the configuration says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CloudOverrides {
    /// The most agents over all its templates, 0 for no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cap: Option<u32>,
}

/// Everything that operators say against the configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Overridden {
    #[serde(with = "keyed")]
    pub templates: BTreeMap<TemplateId, TemplateOverrides>,
    pub clouds: BTreeMap<CloudId, CloudOverrides>,
}

/// A change of what operators say of a template.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TemplateChange {
    pub cap: Change,
    pub minimum: Change,
    pub idle_minimum: Change,
    pub idle_minutes: Change,
    pub max_uses: Change,
    /// Whether the roll-out pauses from now on; none to leave that.
    pub rollout_paused: Option<bool>,
}

const fn limit(number: u32) -> Option<u32> {
    if number == 0 { None } else { Some(number) }
}

impl TemplateOverrides {
    /// Whether the configuration holds in all.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Those alone that are no value of the configuration.
    pub fn without_values(&self) -> Self {
        Self { rollout_paused: self.rollout_paused, ..Self::default() }
    }

    /// The same after a change.
    #[must_use]
    pub fn changed(&self, change: &TemplateChange) -> Self {
        Self {
            cap: change.cap.to(self.cap),
            minimum: change.minimum.to(self.minimum),
            idle_minimum: change.idle_minimum.to(self.idle_minimum),
            idle_minutes: change.idle_minutes.to(self.idle_minutes),
            max_uses: change.max_uses.to(self.max_uses),
            rollout_paused: change.rollout_paused.unwrap_or(self.rollout_paused),
        }
    }

    /// The spec with these values in place of its own.
    pub fn over(&self, spec: &TemplateSpec) -> TemplateSpec {
        let minutes = |minutes: u32| Duration::from_secs(u64::from(minutes) * 60);
        let roll = if self.rollout_paused { Some(0) } else { spec.roll_at_once };
        TemplateSpec {
            cap: self.cap.map_or(spec.cap, limit),
            minimum: self.minimum.unwrap_or(spec.minimum),
            idle_minimum: self.idle_minimum.unwrap_or(spec.idle_minimum),
            idle: self.idle_minutes.map_or(spec.idle, |own| limit(own).map(minutes)),
            max_uses: self.max_uses.map_or(spec.max_uses, limit),
            roll_at_once: roll,
            overrides: *self,
            ..spec.clone()
        }
    }

    /// Each value with the key of the configuration that it stands against.
    pub fn values(&self) -> impl Iterator<Item = (&'static str, u32)> {
        let all = [
            ("instanceCap", self.cap),
            ("instanceMin", self.minimum),
            ("idleMin", self.idle_minimum),
            ("idleTerminationMinutes", self.idle_minutes),
            ("maxTotalUses", self.max_uses),
        ];
        all.into_iter().filter_map(|(key, value)| Some((key, value?)))
    }
}

impl fmt::Display for TemplateOverrides {
    /// What is overridden, in the words of the configuration; nothing where nothing is.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values = self.values().map(|(key, value)| format!("{key} {value}"));
        let paused = self.rollout_paused.then(|| "roll-out paused".to_owned());
        f.write_str(&values.chain(paused).collect::<Vec<_>>().join(", "))
    }
}

impl CloudOverrides {
    /// Whether the configuration holds in all.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The spec with these values in place of its own.
    pub fn over(&self, spec: &CloudSpec) -> CloudSpec {
        CloudSpec { cap: self.cap.map_or(spec.cap, limit), overrides: *self, ..spec.clone() }
    }
}

impl fmt::Display for CloudOverrides {
    /// What is overridden, in the words of the configuration; nothing where nothing is.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.cap.map_or(Ok(()), |cap| write!(f, "instanceCap {cap}"))
    }
}

impl Overridden {
    /// Whether the configuration holds in all.
    pub fn is_empty(&self) -> bool {
        self.templates.is_empty() && self.clouds.is_empty()
    }

    /// Sets what holds for a template.
    pub fn set_template(&mut self, template: &TemplateId, overrides: TemplateOverrides) {
        if overrides.is_empty() {
            self.templates.remove(template);
        } else {
            self.templates.insert(template.clone(), overrides);
        }
    }

    /// Sets what holds for a cloud.
    pub fn set_cloud(&mut self, cloud: &CloudId, overrides: CloudOverrides) {
        if overrides.is_empty() {
            self.clouds.remove(cloud);
        } else {
            self.clouds.insert(cloud.clone(), overrides);
        }
    }

    /// Takes in a record; one of something else changes nothing.
    pub fn take_in(&mut self, body: &Body) {
        if let Body::TemplateOverridden { template, overrides } = body {
            self.set_template(template, **overrides);
        }
        if let Body::CloudOverridden { cloud, overrides } = body {
            self.set_cloud(cloud, *overrides);
        }
    }

    /// The configuration with what operators say in place of its own values. What is not overridden
    /// stays the same object.
    pub fn over(&self, spec: &Arc<HerdSpec>) -> Arc<HerdSpec> {
        if self.is_empty() {
            return Arc::clone(spec);
        }
        let mut all = HerdSpec::clone(spec);
        for (id, overrides) in &self.templates {
            if let Some(template) = all.templates.get_mut(id) {
                *template = Arc::new(overrides.over(template));
            }
        }
        for (id, overrides) in &self.clouds {
            if let Some(cloud) = all.clouds.get_mut(id) {
                *cloud = Arc::new(overrides.over(cloud));
            }
        }
        Arc::new(all)
    }

    /// What a sync of these clouds with git takes back: templates and clouds with what holds after it.
    pub fn undone_by(
        &self,
        clouds: &BTreeSet<CloudId>,
    ) -> (Vec<(TemplateId, TemplateOverrides)>, Vec<CloudId>) {
        let templates = self
            .templates
            .iter()
            .filter(|(id, own)| clouds.contains(&id.cloud) && **own != own.without_values());
        let templates = templates.map(|(id, own)| (id.clone(), own.without_values())).collect();
        let own = self.clouds.keys().filter(|id| clouds.contains(id)).cloned().collect();
        (templates, own)
    }

    /// Those of templates and clouds that are not configured.
    pub fn unconfigured(&self, spec: &HerdSpec) -> (Vec<TemplateId>, Vec<CloudId>) {
        let templates = self.templates.keys().filter(|id| !spec.templates.contains_key(id));
        let clouds = self.clouds.keys().filter(|id| !spec.clouds.contains_key(id));
        (templates.cloned().collect(), clouds.cloned().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::template;

    // Invariant: what is not overridden is as the configuration says, and zero means no limit.

    #[test]
    fn a_value_stands_in_place_of_the_configured_one_and_zero_means_none() {
        let mut spec = template("c/t", &[]);
        (spec.cap, spec.minimum, spec.max_uses) = (Some(4), 2, Some(9));
        let own = TemplateOverrides { cap: Some(0), max_uses: Some(3), ..Default::default() };
        let over = own.over(&spec);
        assert_eq!((over.cap, over.minimum, over.max_uses), (None, 2, Some(3)));
        assert_eq!(own.to_string(), "instanceCap 0, maxTotalUses 3");
        assert_eq!(over.version(), spec.version());
    }

    #[test]
    fn a_paused_roll_out_replaces_nothing() {
        let spec = template("c/t", &[]);
        let paused = TemplateOverrides { rollout_paused: true, ..Default::default() };
        assert_eq!(paused.over(&spec).roll_at_once, Some(0));
        assert_eq!(paused.to_string(), "roll-out paused");
    }

    // Invariant: a sync takes back values of its own clouds, and no pause.

    #[test]
    fn a_sync_undoes_values_of_its_clouds_alone() {
        let mut all = Overridden::default();
        let of = |text: &str| template(text, &[]).id;
        let own = TemplateOverrides { cap: Some(1), rollout_paused: true, ..Default::default() };
        let paused = own.without_values();
        all.set_template(&of("git/a"), own);
        all.set_template(&of("git/b"), paused);
        all.set_template(&of("here/a"), own);
        all.set_cloud(&CloudId::new("git"), CloudOverrides { cap: Some(2) });
        all.set_cloud(&CloudId::new("here"), CloudOverrides { cap: Some(2) });
        let (templates, clouds) = all.undone_by(&BTreeSet::from([CloudId::new("git")]));
        assert_eq!(templates, [(of("git/a"), paused)]);
        assert_eq!(clouds, [CloudId::new("git")]);
        all.set_template(&of("git/b"), TemplateOverrides::default());
        assert_eq!(all.templates.len(), 2);
    }
}
