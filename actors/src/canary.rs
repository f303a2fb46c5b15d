//! Of which version the agents of a template are made while a newer one must prove itself (`canary`).
//!
//! A version is a spec and what is cloned (`drover_model::canary`). It is proven once an agent of it gets
//! ready. The template chooses the spec of an agent ([`Canaries::proving`]):
//!
//! | the template's own spec | the next agent is made by |
//! |---|---|
//! | is proven, or no other is | it |
//! | no agent is made by it at this moment | it: the agent tries it |
//! | an agent tries it, it was given up, or the breaker is not closed | the good spec: the last that is proven |
//!
//! The cluster chooses what is cloned ([`Canaries::usable`]), among what was found for that spec:
//!
//! | with that spec | the agent is cloned from |
//! |---|---|
//! | nothing is proven | any that was not given up; any at all where all were |
//! | some are proven, and no agent tries a version | any that was not given up; it tries it where that is not proven |
//! | some are proven; an agent tries a version, or the breaker is not closed | a proven one |
//!
//! Clusters begin trials; templates write what came of them. While the breaker is not closed, something
//! else than a version may be broken: no failure counts against one then.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use drover_model::canary::{Canary, FailingVersion, GoodSpec, MadeAs, Version};
use drover_model::id::{AgentId, TemplateId};
use drover_model::journal_state::JournalState;
use drover_model::record::Body;
use drover_model::spec::TemplateSpec;
use drover_model::status::CanaryStatus;
use drover_model::template_image::{Candidate, Found};

use crate::shared::{Shared, role};

/// What an agent is cloned from that never had a place.
const NOTHING: &str = "-";

/// What is known of every template's versions, and which agents try some.
#[derive(Debug, Default)]
pub struct Canaries(RefCell<BTreeMap<TemplateId, Entry>>);

#[derive(Debug, Default)]
struct Entry {
    known: Canary,
    good: Option<Good>,
    /// Agents that try a version, with that version.
    trials: BTreeMap<AgentId, Version>,
    /// Versions that were given up and would be cloned otherwise, when that was looked at last.
    kept_back: Vec<Version>,
}

/// The good spec, ready for use.
#[derive(Debug)]
struct Good {
    /// Its digest as this release of drover computes it.
    now: String,
    spec: Arc<TemplateSpec>,
}

/// By which spec the agents of a template with `canary` are made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proving {
    /// The digest of the template's own spec.
    pub digest: String,
    /// What stands in for it; none where it is proven, or nothing else is.
    pub stand_in: Option<StandIn>,
}

/// The good spec, while another one must prove itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StandIn {
    pub spec: Arc<TemplateSpec>,
    pub digest: String,
    /// Whether the other one is not tried any more.
    pub given_up: bool,
}

impl Entry {
    fn new(known: Canary) -> Self {
        let good = known
            .good
            .as_ref()
            .map(|good| Good { now: good.spec.version(), spec: Arc::new((*good.spec).clone()) });
        Self { known, good, ..Self::default() }
    }

    /// The digest of a spec in versions.
    fn digest(&self, spec: &TemplateSpec) -> String {
        if let Some(made) = &spec.made_as {
            return made.spec.clone();
        }
        let now = spec.version();
        match (&self.good, &self.known.good) {
            (Some(good), Some(known)) if good.now == now => known.digest.clone(),
            _ => now,
        }
    }

    fn proving(&self, spec: &TemplateSpec) -> Proving {
        let digest = self.digest(spec);
        let stand_in = match (&self.good, &self.known.good) {
            (Some(good), Some(known)) if !self.known.is_spec_proven(&digest) => Some(StandIn {
                spec: Arc::clone(&good.spec),
                digest: known.digest.clone(),
                given_up: self.known.is_spec_given_up(&digest),
            }),
            _ => None,
        };
        Proving { digest, stand_in }
    }

    fn judging<'a>(&'a self, spec: &'a TemplateSpec) -> Judging<'a> {
        Judging { known: &self.known, spec, digest: self.digest(spec) }
    }

    /// Versions that are not used, since their agents failed: by the template's own spec, or kept back.
    fn given_up(&self, proving: &Proving) -> Vec<FailingVersion> {
        let stand_in = proving.stand_in.as_ref();
        let failing = self.known.failing.iter().filter(|one| {
            let own = one.version.spec == proving.digest;
            let stands_in = stand_in.is_some_and(|good| good.digest == one.version.spec);
            let kept_back = one.is_given_up() && self.kept_back.contains(&one.version);
            let spec_is = own && stand_in.is_some_and(|good| good.given_up);
            spec_is || (kept_back && (own || stands_in))
        });
        failing.cloned().collect()
    }
}

/// How the versions of one spec are judged.
struct Judging<'a> {
    known: &'a Canary,
    spec: &'a TemplateSpec,
    digest: String,
}

impl Judging<'_> {
    fn version(&self, candidate: &Candidate) -> Option<Version> {
        let image = candidate.version(&self.spec.sought())?;
        Some(Version { image, spec: self.digest.clone() })
    }

    fn is_proven(&self, candidate: &Candidate) -> bool {
        self.version(candidate).is_some_and(|version| self.known.is_proven(&version))
    }

    fn is_given_up(&self, candidate: &Candidate) -> bool {
        self.version(candidate).is_some_and(|version| self.known.is_given_up(&version))
    }

    /// What an agent may be cloned from now.
    fn usable<'a>(&self, tries: bool, found: &'a Found) -> Cow<'a, Found> {
        let all = &found.candidates;
        let any_proven = all.iter().any(|one| self.is_proven(one) && !self.is_given_up(one));
        let may = |one: &&Candidate| {
            !self.is_given_up(one) && (!tries || !any_proven || self.is_proven(one))
        };
        let candidates: Vec<Candidate> = all.iter().filter(may).cloned().collect();
        if candidates.is_empty() || candidates.len() == all.len() {
            return Cow::Borrowed(found);
        }
        Cow::Owned(Found { candidates, ..found.clone() })
    }

    /// What was given up, and would be cloned otherwise: nothing newer on its node is proven.
    fn kept_back(&self, found: &Found) -> Vec<Version> {
        let age = |one: &Candidate| (one.created, one.vmid);
        let newer = |than: &Candidate| {
            let here = found.candidates.iter().filter(|one| one.node == than.node);
            here.filter(|one| age(one) > age(than)).any(|one| self.is_proven(one))
        };
        let given_up = found.candidates.iter().filter(|one| self.is_given_up(one));
        let versions: BTreeSet<Version> =
            given_up.filter(|one| !newer(one)).filter_map(|one| self.version(one)).collect();
        versions.into_iter().collect()
    }

    /// The VMIDs of a version, in brackets.
    fn vmids(&self, version: &Version, found: &Found) -> String {
        let of = found.candidates.iter().filter(|one| self.version(one).as_ref() == Some(version));
        let of: Vec<String> = of.map(|one| format!("VMID {}", one.vmid)).collect();
        if of.is_empty() { String::new() } else { format!(" ({})", of.join(", ")) }
    }

    /// What keeps newer versions from being used, for people; nothing where nothing does.
    fn note(&self, entry: &Entry, found: &Found) -> String {
        let template = &self.spec.id;
        let mut text = String::new();
        let proving = entry.proving(self.spec);
        for failed in entry.given_up(&proving) {
            let FailingVersion { version, failures, cause } = &failed;
            let vmids = self.vmids(version, found);
            text += &format!(
                "; canary: version {version}{vmids} is not used, {failures} of its agents failed: \
                 {cause}; `drover breakers reset {template}` has it tried again"
            );
        }
        for (agent, version) in &entry.trials {
            let vmids = self.vmids(version, found);
            text += &format!("; canary: agent {agent} tries version {version}{vmids}");
        }
        text
    }
}

impl Canaries {
    /// By which spec the agents of a template are made; none where nothing must prove itself.
    pub fn proving(&self, spec: &TemplateSpec) -> Option<Proving> {
        let new = || Entry::default().proving(spec);
        let all = self.0.borrow();
        spec.canary.then(|| all.get(&spec.id).map_or_else(new, |entry| entry.proving(spec)))
    }

    /// What an agent of a template may be cloned from now, and what is to be said of the rest.
    pub fn usable<'a>(&self, spec: &TemplateSpec, found: &'a Found) -> (Cow<'a, Found>, String) {
        let all = self.0.borrow();
        match all.get(&spec.id).filter(|_| spec.canary) {
            Some(entry) => {
                let judging = entry.judging(spec);
                let steady = spec.made_as.as_ref().is_some_and(|made| made.steady);
                let usable = judging.usable(steady || !entry.trials.is_empty(), found);
                (usable, judging.note(entry, found))
            }
            None => (Cow::Borrowed(found), String::new()),
        }
    }

    /// Whether an agent tries a version.
    pub fn tries(&self, template: &TemplateId, agent: &AgentId) -> bool {
        let all = self.0.borrow();
        all.get(template).is_some_and(|entry| entry.trials.contains_key(agent))
    }

    /// What people see of a template's versions; none where they need not prove themselves.
    pub fn status(&self, spec: &TemplateSpec) -> Option<CanaryStatus> {
        let all = self.0.borrow();
        let shown = |entry: &Entry| CanaryStatus {
            proven: entry.known.proven.last().cloned(),
            trial: entry.trials.iter().next().map(|(agent, of)| (agent.clone(), of.clone())),
            given_up: entry.given_up(&entry.proving(spec)),
        };
        spec.canary.then(|| all.get(&spec.id).map(shown).unwrap_or_default())
    }

    /// The versions that a template has proven.
    pub fn proven(&self, template: &TemplateId) -> Vec<Version> {
        self.0.borrow().get(template).map(|entry| entry.known.proven.clone()).unwrap_or_default()
    }

    /// The record of what is known of a template's versions.
    pub fn record(&self, template: &TemplateId) -> Body {
        let all = self.0.borrow();
        let canary = all.get(template).map(|entry| entry.known.clone()).unwrap_or_default();
        Body::CanaryMoved { template: template.clone(), canary }
    }
}

impl Shared<Canaries, role::Herd> {
    /// Restores what the journal knows.
    ///
    /// Trials are not recorded. An agent of an unproven version that has not reported a result yet is
    /// one, where something else is proven.
    pub fn restore(&self, journal_state: &JournalState) {
        let mut all = self.0.borrow_mut();
        for (template, known) in &journal_state.canaries {
            all.insert(template.clone(), Entry::new(known.clone()));
        }
        for (agent, entry) in journal_state.agents.iter().filter(|(_, entry)| entry.is_unproven()) {
            let image = entry.spec.origin.as_ref().and_then(|origin| origin.version.clone());
            let spec = entry.spec.made_as.as_ref().map(|made| made.spec.clone());
            let (Some(image), Some(spec)) = (image, spec) else { continue };
            let Some(known) = all.get_mut(&entry.spec.id) else { continue };
            let version = Version { image, spec };
            if !known.known.proven.is_empty() && !known.known.is_proven(&version) {
                known.trials.insert(agent.clone(), version);
            }
        }
    }
}

impl Shared<Canaries, role::Cluster> {
    /// An agent gets a place, as a clone of this version of what was found. It tries it where that is
    /// not proven and something else is.
    pub fn started(&self, spec: &TemplateSpec, agent: &AgentId, image: &str, found: &Found) {
        let mut all = self.0.borrow_mut();
        let Some(entry) = all.get_mut(&spec.id).filter(|_| spec.canary) else { return };
        let judging = entry.judging(spec);
        let other_image = found.candidates.iter().any(|one| judging.is_proven(one));
        let other_spec = entry.proving(spec).stand_in.is_some();
        let version = Version { image: image.to_owned(), spec: judging.digest };
        if !entry.known.is_proven(&version) && (other_image || other_spec) {
            entry.trials.insert(agent.clone(), version);
        }
    }

    /// An agent has no place any more, or another one.
    pub fn displaced(&self, template: &TemplateId, agent: &AgentId) {
        self.end(template, agent);
    }

    /// What was found for a spec.
    pub fn saw(&self, spec: &TemplateSpec, found: &Found) {
        self.look(spec, found);
    }
}

impl<R> Shared<Canaries, R> {
    fn end(&self, template: &TemplateId, agent: &AgentId) {
        if let Some(entry) = self.0.borrow_mut().get_mut(template) {
            entry.trials.remove(agent);
        }
    }

    fn look(&self, spec: &TemplateSpec, found: &Found) {
        if let Some(entry) = self.0.borrow_mut().get_mut(&spec.id).filter(|_| spec.canary) {
            entry.kept_back = entry.judging(spec).kept_back(found);
        }
    }
}

/// The results of agents are their template's to write.
impl Shared<Canaries, role::Template> {
    /// An agent got ready that was made by `made` and cloned from this version. Says whether anything
    /// moved.
    ///
    /// `own` is the template's spec: it is the good one from now on, where the agent was made by it.
    pub fn succeeded(
        &self,
        own: &TemplateSpec,
        made: &TemplateSpec,
        agent: &AgentId,
        image: &str,
    ) -> bool {
        self.end(&own.id, agent);
        let Some(digest) = made.made_as.as_ref().map(|made| &made.spec) else { return false };
        let mut all = self.0.borrow_mut();
        if !own.canary {
            return false;
        }
        let entry = all.entry(own.id.clone()).or_default();
        let of_own = entry.digest(own) == *digest;
        let version = Version { image: image.to_owned(), spec: digest.clone() };
        let mut moved = entry.known.succeeded(&version);
        let is_known = entry.known.good.as_ref().is_some_and(|good| good.digest == *digest);
        if of_own && !is_known {
            let spec = own.clone();
            entry.good = Some(Good { now: spec.version(), spec: Arc::new(spec.clone()) });
            entry.known.good = Some(GoodSpec { digest: digest.clone(), spec: Box::new(spec) });
            moved = true;
        }
        moved
    }

    /// An agent of a new version failed, by no fault of anything around it. Says which version that is,
    /// and whether it is given up.
    pub fn failed(
        &self,
        template: &TemplateId,
        agent: &AgentId,
        made: Option<&MadeAs>,
        cause: &str,
    ) -> Option<(Version, bool)> {
        let mut all = self.0.borrow_mut();
        let entry = all.get_mut(template)?;
        // One that nothing was found for has failed by its spec alone.
        let of_spec = || {
            let spec = made?.spec.clone();
            Some(Version { image: NOTHING.to_owned(), spec })
        };
        let version = entry.trials.remove(agent).or_else(of_spec)?;
        entry.known.failed(&version, cause);
        let given_up = entry.known.is_given_up(&version);
        if given_up && !entry.kept_back.contains(&version) {
            entry.kept_back.push(version.clone());
        }
        Some((version, given_up))
    }

    /// An agent goes: if it tried a version, another may.
    pub fn left(&self, template: &TemplateId, agent: &AgentId) {
        self.end(template, agent);
    }

    /// What was found for a spec.
    pub fn saw(&self, spec: &TemplateSpec, found: &Found) {
        self.look(spec, found);
    }

    /// Only these agents live: another one tries nothing.
    pub fn sweep(&self, template: &TemplateId, lives: impl Fn(&AgentId) -> bool) {
        if let Some(entry) = self.0.borrow_mut().get_mut(template) {
            entry.trials.retain(|trial, _| lives(trial));
        }
    }

    /// An operator has every version tried again. Says whether any had failed.
    pub fn forgive(&self, template: &TemplateId) -> bool {
        self.0.borrow_mut().get_mut(template).is_some_and(|entry| entry.known.forgive())
    }
}

#[cfg(test)]
mod tests;
