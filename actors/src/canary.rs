//! Which versions of an image a template's agents are cloned from, while a newer one must prove itself
//! (`canary`).
//!
//! | of the versions that a template's agents may be cloned from | the next agent is cloned from |
//! |---|---|
//! | none is proven | any that was not given up; any at all where all were |
//! | some are proven, and no agent tries another | any that was not given up; it tries it where that is not proven |
//! | some are proven, and an agent tries another | a proven one |
//!
//! A version is proven once an agent of it gets ready (`drover_model::canary`). Clusters choose
//! versions and begin trials; templates write what came of them.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeMap;

use drover_model::canary::Canary;
use drover_model::id::{AgentId, TemplateId};
use drover_model::journal_state::JournalState;
use drover_model::marks::parse_name;
use drover_model::record::Body;
use drover_model::spec::TemplateSpec;
use drover_model::status::CanaryStatus;
use drover_model::template_image::{Candidate, Found, Sought};

use crate::shared::{Shared, role};

/// What is known of every template's versions, and which agents try some.
#[derive(Debug, Default)]
pub struct Canaries(RefCell<BTreeMap<TemplateId, Entry>>);

#[derive(Debug, Default)]
struct Entry {
    known: Canary,
    /// The agent that tries a version, and that version.
    trial: Option<(AgentId, AgentId)>,
}

/// The version of an image that a template's guest is.
fn version_of(candidate: &Candidate) -> Option<AgentId> {
    parse_name(&candidate.name).map(|(_, version)| version)
}

/// Whether versions must prove themselves before a template's agents are cloned from them.
fn is_watched(spec: &TemplateSpec) -> bool {
    spec.canary && matches!(spec.search, Some(Sought::Image(_)))
}

/// What an agent may be cloned from now. Pure.
fn usable<'a>(known: &Canary, tries: bool, found: &'a Found) -> Cow<'a, Found> {
    let all = &found.candidates;
    let given_up = |one: &Candidate| version_of(one).is_some_and(|v| known.is_given_up(&v));
    let proven = |one: &Candidate| version_of(one).is_some_and(|v| known.is_proven(&v));
    let any_proven = all.iter().any(|one| proven(one) && !given_up(one));
    let may = |one: &&Candidate| !given_up(one) && (!tries || !any_proven || proven(one));
    let candidates: Vec<Candidate> = all.iter().filter(may).cloned().collect();
    if candidates.is_empty() || candidates.len() == all.len() {
        return Cow::Borrowed(found);
    }
    Cow::Owned(Found { candidates, ..found.clone() })
}

/// What keeps newer versions from being used, for people; nothing where nothing does.
fn note(template: &TemplateId, entry: &Entry, found: &Found) -> String {
    let vmids = |version: &AgentId| {
        let of = found.candidates.iter().filter(|one| version_of(one).as_ref() == Some(version));
        of.map(|one| one.vmid.to_string()).collect::<Vec<_>>().join(", ")
    };
    let there = |version: &AgentId| !vmids(version).is_empty();
    let mut text = String::new();
    for failed in entry.known.given_up().filter(|failed| there(&failed.version)) {
        let (version, failures, cause) = (&failed.version, failed.failures, &failed.cause);
        text += &format!(
            "; canary: version {version} (VMID {}) is not used, {failures} of its agents failed: \
             {cause}; `drover breakers reset {template}` has it tried again",
            vmids(version)
        );
    }
    if let Some((agent, version)) = entry.trial.as_ref().filter(|(_, version)| there(version)) {
        text +=
            &format!("; canary: agent {agent} tries version {version} (VMID {})", vmids(version));
    }
    text
}

impl Canaries {
    /// What an agent of a template may be cloned from now, and what is to be said of the rest.
    pub fn usable<'a>(&self, spec: &TemplateSpec, found: &'a Found) -> (Cow<'a, Found>, String) {
        let all = self.0.borrow();
        match all.get(&spec.id).filter(|_| is_watched(spec)) {
            Some(entry) => {
                let usable = usable(&entry.known, entry.trial.is_some(), found);
                (usable, note(&spec.id, entry, found))
            }
            None => (Cow::Borrowed(found), String::new()),
        }
    }

    /// Whether an agent tries a version.
    pub fn tries(&self, template: &TemplateId, agent: &AgentId) -> bool {
        let all = self.0.borrow();
        let trial = all.get(template).and_then(|entry| entry.trial.as_ref());
        trial.is_some_and(|(trial, _)| trial == agent)
    }

    /// What people see of a template's versions; none where they need not prove themselves.
    pub fn status(&self, spec: &TemplateSpec) -> Option<CanaryStatus> {
        let all = self.0.borrow();
        let shown = |entry: &Entry| CanaryStatus {
            proven: entry.known.proven.last().cloned(),
            trial: entry.trial.clone(),
            given_up: entry.known.given_up().cloned().collect(),
        };
        is_watched(spec).then(|| all.get(&spec.id).map(shown).unwrap_or_default())
    }

    /// The versions that each template has proven.
    pub fn proven(&self, template: &TemplateId) -> Vec<AgentId> {
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
    /// A trial is not recorded. An agent of an unproven version that has not reported a result yet is
    /// one, the first by its id.
    pub fn restore(&self, journal_state: &JournalState) {
        let mut all = self.0.borrow_mut();
        for (template, known) in &journal_state.canaries {
            all.insert(template.clone(), Entry { known: known.clone(), trial: None });
        }
        for (agent, entry) in journal_state.agents.iter().filter(|(_, entry)| entry.is_unproven()) {
            let version = entry.spec.origin.as_ref().and_then(|origin| origin.version.clone());
            let known = all.get_mut(&entry.spec.id).filter(|_| is_watched(&entry.spec));
            let (Some(version), Some(known)) = (version, known) else { continue };
            if !known.known.proven.is_empty() && !known.known.is_proven(&version) {
                known.trial.get_or_insert((agent.clone(), version));
            }
        }
    }
}

impl Shared<Canaries, role::Cluster> {
    /// An agent gets a place, as a clone of this version among what was found. It tries the version where
    /// others are proven and this one is not.
    pub fn started(&self, spec: &TemplateSpec, agent: &AgentId, version: &AgentId, found: &Found) {
        if !is_watched(spec) {
            return;
        }
        let mut all = self.0.borrow_mut();
        let Some(entry) = all.get_mut(&spec.id) else { return };
        let known = &entry.known;
        let proven = |one: &Candidate| version_of(one).is_some_and(|v| known.is_proven(&v));
        if !known.is_proven(version) && found.candidates.iter().any(proven) {
            entry.trial.get_or_insert_with(|| (agent.clone(), version.clone()));
        }
    }

    /// An agent has no place any more, or another one.
    pub fn displaced(&self, template: &TemplateId, agent: &AgentId) {
        self.end(template, agent);
    }
}

impl<R> Shared<Canaries, R> {
    fn end(&self, template: &TemplateId, agent: &AgentId) {
        if let Some(entry) = self.0.borrow_mut().get_mut(template) {
            entry.trial.take_if(|(trial, _)| trial == agent);
        }
    }
}

/// The results of agents are their template's to write.
impl Shared<Canaries, role::Template> {
    /// An agent of this version got ready. Says whether that was new.
    pub fn succeeded(&self, spec: &TemplateSpec, agent: &AgentId, version: &AgentId) -> bool {
        self.end(&spec.id, agent);
        let mut all = self.0.borrow_mut();
        is_watched(spec) && all.entry(spec.id.clone()).or_default().known.succeeded(version)
    }

    /// The agent that tries a version failed, by no fault of anything around it. Says which version that
    /// is, and whether it is given up.
    pub fn failed(
        &self,
        template: &TemplateId,
        agent: &AgentId,
        cause: &str,
    ) -> Option<(AgentId, bool)> {
        let mut all = self.0.borrow_mut();
        let entry = all.get_mut(template)?;
        let (_, version) = entry.trial.take_if(|(trial, _)| trial == agent)?;
        entry.known.failed(&version, cause);
        let given_up = entry.known.is_given_up(&version);
        Some((version, given_up))
    }

    /// An agent goes: if it tried a version, another may.
    pub fn left(&self, template: &TemplateId, agent: &AgentId) {
        self.end(template, agent);
    }

    /// Only these agents live: another one tries nothing.
    pub fn sweep(&self, template: &TemplateId, lives: impl Fn(&AgentId) -> bool) {
        if let Some(entry) = self.0.borrow_mut().get_mut(template) {
            entry.trial.take_if(|(trial, _)| !lives(trial));
        }
    }

    /// An operator has every version tried again. Says whether any had failed.
    pub fn forgive(&self, template: &TemplateId) -> bool {
        self.0.borrow_mut().get_mut(template).is_some_and(|entry| entry.known.forgive())
    }
}

#[cfg(test)]
mod tests;
