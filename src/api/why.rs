//! Why something waits.

use serde::{Deserialize, Serialize};

use crate::JobOut;

/// Why something waits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WhySubjectOut {
    /// What was asked about, such as `job git/42`.
    pub subject: String,
    /// How it stands; null for a template.
    pub state: Option<String>,
    /// The numbers; null for a template, and for what does not wait.
    pub account: Option<AccountOut>,
    /// What keeps each template that serves it, or that was asked about, from each node.
    pub templates: Vec<WhyOut>,
    /// Of a source that left the configuration, the jobs that still run.
    #[serde(default)]
    pub jobs: Vec<JobOut>,
}

impl WhySubjectOut {
    /// How something stands, and nothing else.
    pub fn of(subject: String, state: Option<String>) -> Self {
        Self { subject, state, account: None, templates: Vec::new(), jobs: Vec::new() }
    }
}

/// What a source wants and has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct AccountOut {
    /// The source; `leases` for those who ask for leases.
    pub source: String,
    /// The weight of its share.
    pub weight: u32,
    /// The weights of all that want or have something.
    pub weights: u32,
    /// The priority; a higher one comes first.
    pub priority: i32,
    /// The most uses it may have; null for no limit.
    pub cap: Option<u32>,
    /// Uses of agents that it has.
    pub has: u32,
    /// Uses of agents that all have.
    pub all: u32,
    /// What it wants, by kind.
    pub kinds: Vec<KindOut>,
}

/// Uses of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct KindOut {
    /// What is wanted.
    pub wants: String,
    /// How many wait.
    pub count: usize,
    /// Since when the one asked about waits, or the oldest (RFC 3339).
    pub since: Option<String>,
    /// Of them, those for which a runner is there or on its way.
    pub open: usize,
    /// Uses that are served before it; null where its source's cap keeps it from being served.
    pub ahead: Option<usize>,
    /// Templates that serve it.
    pub serve: Vec<ServingOut>,
    /// Templates that do not.
    pub others: Vec<OtherOut>,
    /// Why it waits.
    pub why: String,
    /// In how many seconds it is served, about; null where that is not known.
    pub estimate_seconds: Option<u64>,
    /// What the estimate is made from, or why there is none.
    pub estimate: String,
}

/// A template that serves what is wanted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ServingOut {
    /// The template, `cloud/template`.
    pub template: String,
    /// Its living agents.
    pub live: u32,
    /// The most of them; null for no limit.
    pub cap: Option<u32>,
    /// Those on their way.
    pub coming: u32,
    /// Uses that are free on ready ones.
    pub free: u32,
    /// Those that are used in full.
    pub busy: u32,
    /// How many more may be started by its caps.
    pub room: u32,
    /// What keeps it from beginning more.
    pub obstacle: Option<String>,
    /// Seconds its agents take to be ready, by the last of them.
    pub ready_seconds: Option<u64>,
    /// Seconds that uses of its agents last.
    pub use_seconds: Option<u64>,
}

/// A template that does not serve what is wanted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct OtherOut {
    /// The template, `cloud/template`.
    pub template: String,
    /// The reason in words.
    pub why: String,
}

/// What keeps a template from beginning agents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WhyOut {
    /// The template, `cloud/template`.
    pub template: String,
    /// What keeps it that is no matter of nodes, such as a cap; null when nothing does.
    pub waits: Option<String>,
    /// What would be cloned, and where; null when nothing would.
    pub next: Option<String>,
    /// Why nothing would be cloned; null when something would.
    pub refused: Option<String>,
    /// The nodes it may be on.
    pub nodes: Vec<WhyNodeOut>,
    /// The other nodes of its cluster, which it never tries.
    #[serde(default)]
    pub untried: Vec<UntriedOut>,
    /// Keys of the configuration without whose change no node ever takes one, where that is so.
    #[serde(default)]
    pub keys: Vec<String>,
    /// What went wrong with the last of its agents that is gone, if something did.
    #[serde(default)]
    pub failed: Option<FailedOut>,
    /// Its agents that are ready and on which no job or lease is: the next one gets such an agent.
    #[serde(default)]
    pub idle: u32,
}

/// An agent that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FailedOut {
    /// When it was gone (RFC 3339).
    pub at: String,
    /// The reason in words.
    pub why: String,
}

/// A node that a template may be on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WhyNodeOut {
    /// The name of the node.
    pub node: String,
    /// What keeps the template from it; null when nothing does.
    pub refused: Option<String>,
}

/// A node that a template never tries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct UntriedOut {
    /// The name of the node.
    pub node: String,
    /// The reason in words.
    pub why: String,
}

impl UntriedOut {
    /// Nodes by the reason for which they are not tried: their names, and the reason.
    pub fn together(untried: &[Self]) -> Vec<(String, String)> {
        let mut all: Vec<(String, String)> = Vec::new();
        for one in untried {
            match all.iter_mut().find(|(_, why)| *why == one.why) {
                Some((nodes, _)) => *nodes += &format!(", {}", one.node),
                None => all.push((one.node.clone(), one.why.clone())),
            }
        }
        all
    }
}

impl KindOut {
    /// How many agents of a template come, and how many are held up since their cloud cannot be used: one of
    /// the two is 0.
    pub fn coming(&self, one: &ServingOut) -> (u32, u32) {
        let cloud = one.template.split('/').next().unwrap_or_default();
        let about = format!("cloud {cloud}: ");
        let is_down = one.obstacle.as_ref().unwrap_or(&self.why).starts_with(&about);
        if is_down { (0, one.coming) } else { (one.coming, 0) }
    }
}
