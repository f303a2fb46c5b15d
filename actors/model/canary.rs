//! What a template with `canary` knows of its versions: which of them made agents that got ready, and
//! which failed.
//!
//! A version is a digest of the spec that agents are made by, and what they are cloned from.
//!
//! ```text
//! unknown ── an agent of it gets ready ─────────────────▶ proven
//!    │ ▲
//!    │ └──── an operator resets the template's breaker ───┐
//!    └── TRIES of its agents fail before they are ready ─▶ failed
//! ```

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::spec::TemplateSpec;

/// How many agents of a version fail before they are ready until none is started of it any more.
pub const TRIES: u32 = 3;
/// Versions that are remembered of each sort: the oldest is forgotten first.
const REMEMBERED: usize = 32;
/// The longest cause that is kept, in characters.
const CAUSE_MAX: usize = 500;

/// A version of a template.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Version {
    /// What its agents are cloned from (`Candidate::version`).
    pub image: String,
    /// A digest of the spec that they are made by.
    pub spec: String,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.image, self.spec)
    }
}

/// As what an agent of a template with `canary` is made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MadeAs {
    /// The digest of its spec.
    pub spec: String,
    /// Whether it is cloned from proven versions alone, where there are some.
    pub steady: bool,
}

/// A spec by which agents got ready, as it was configured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GoodSpec {
    /// Its digest in versions. Another release of drover may compute another one of the same spec.
    pub digest: String,
    pub spec: Box<TemplateSpec>,
}

/// What a template knows of its versions.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Canary {
    /// Versions of which an agent got ready, the latest at the end.
    pub proven: Vec<Version>,
    /// Versions of which agents failed since, and none got ready.
    pub failing: Vec<FailingVersion>,
    /// The spec that was configured last of those that are proven.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub good: Option<GoodSpec>,
}

/// A version of which agents failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FailingVersion {
    pub version: Version,
    /// How many of its agents failed.
    pub failures: u32,
    /// Why the last one did.
    pub cause: String,
}

impl FailingVersion {
    /// Whether no agent is started of it any more.
    pub fn is_given_up(&self) -> bool {
        self.failures >= TRIES
    }
}

impl Canary {
    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether an agent of this version got ready.
    pub fn is_proven(&self, version: &Version) -> bool {
        self.proven.contains(version)
    }

    /// Whether no agent is started of this version any more.
    pub fn is_given_up(&self, version: &Version) -> bool {
        self.given_up().any(|failed| failed.version == *version)
    }

    /// The versions of which no agent is started any more.
    pub fn given_up(&self) -> impl Iterator<Item = &FailingVersion> {
        self.failing.iter().filter(|failing| failing.is_given_up())
    }

    /// Whether an agent got ready by the spec of this digest, whatever it was cloned from.
    pub fn is_spec_proven(&self, digest: &str) -> bool {
        self.proven.iter().any(|version| version.spec == digest)
    }

    /// Whether no agent is made by this spec any more: none got ready, and its tries are used up.
    pub fn is_spec_given_up(&self, digest: &str) -> bool {
        let failing = self.failing.iter().filter(|failing| failing.version.spec == digest);
        let failures = failing.map(|failing| failing.failures).fold(0, u32::saturating_add);
        !self.is_spec_proven(digest) && failures >= TRIES
    }

    /// An agent of this version got ready. Says whether that was new.
    pub fn succeeded(&mut self, version: &Version) -> bool {
        let failed = self.failing.iter().any(|failing| failing.version == *version);
        if self.is_proven(version) && !failed {
            return false;
        }
        self.failing.retain(|failing| failing.version != *version);
        self.proven.retain(|proven| proven != version);
        self.proven.push(version.clone());
        forget(&mut self.proven);
        true
    }

    /// An agent of this version failed before it was ready, by no fault of anything around it.
    pub fn failed(&mut self, version: &Version, cause: &str) {
        let cause: String = cause.chars().take(CAUSE_MAX).collect();
        let known = self.failing.iter().position(|failing| failing.version == *version);
        let before = known.map(|at| self.failing.remove(at).failures).unwrap_or_default();
        let failures = before.saturating_add(1);
        self.failing.push(FailingVersion { version: version.clone(), failures, cause });
        forget(&mut self.failing);
    }

    /// Everything that failed may be tried again. Says whether anything had.
    pub fn forgive(&mut self) -> bool {
        !std::mem::take(&mut self.failing).is_empty()
    }
}

/// Forgets the oldest of too many.
fn forget<T>(all: &mut Vec<T>) {
    all.drain(..all.len().saturating_sub(REMEMBERED));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(n: usize) -> Version {
        Version { image: format!("v{n}"), spec: "s".into() }
    }

    // Invariant: a version is given up after its last try, and only an operator or its success changes
    // that.

    #[test]
    fn a_version_is_given_up_after_its_tries_and_may_be_tried_again_once_it_is_forgiven() {
        let mut canary = Canary::default();
        for n in 1..=TRIES {
            assert!(!canary.is_given_up(&version(1)));
            canary.failed(&version(1), &format!("try {n}"));
        }
        assert!(canary.is_given_up(&version(1)) && !canary.is_given_up(&version(2)));
        assert_eq!(canary.given_up().map(|one| &*one.cause).collect::<Vec<_>>(), ["try 3"]);
        assert!(canary.forgive() && !canary.forgive());
        assert!(!canary.is_given_up(&version(1)));
    }

    #[test]
    fn an_agent_that_got_ready_proves_its_version_once() {
        let mut canary = Canary::default();
        canary.failed(&version(1), "slow");
        assert!(canary.succeeded(&version(1)) && !canary.succeeded(&version(1)));
        assert!(canary.is_proven(&version(1)) && canary.failing.is_empty());
    }

    // Invariant: the tries of a spec are those of all its versions, until one of them is proven.

    #[test]
    fn a_spec_is_given_up_after_the_tries_of_all_its_versions() {
        let mut canary = Canary::default();
        for n in 1..=TRIES {
            assert!(!canary.is_spec_given_up("s"));
            canary.failed(&version(n as usize), "no address");
        }
        assert!(canary.is_spec_given_up("s") && !canary.is_spec_given_up("other"));
        canary.succeeded(&version(9));
        assert!(canary.is_spec_proven("s") && !canary.is_spec_given_up("s"));
    }

    // Invariant: whatever happens, a bounded number of versions is remembered, the latest ones.

    #[test]
    fn of_many_versions_the_latest_are_remembered() {
        let mut canary = Canary::default();
        for n in 0..100 {
            canary.failed(&version(n), &"x".repeat(10_000));
            canary.succeeded(&version(n + 1000));
        }
        assert_eq!((canary.proven.len(), canary.failing.len()), (REMEMBERED, REMEMBERED));
        assert!(canary.is_proven(&version(1099)) && !canary.is_proven(&version(1000)));
        assert!(canary.failing.iter().all(|failing| failing.cause.len() == CAUSE_MAX));
    }
}
