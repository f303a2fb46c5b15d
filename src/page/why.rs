//! What keeps a template from each node, apart from what keeps the template itself.

use drover_api::{FailedOut, KindOut, ServingOut, UntriedOut, WhyNodeOut, WhyOut, WhySubjectOut};

/// What keeps a template from beginning agents.
pub(crate) struct Held {
    pub(crate) template: String,
    pub(crate) waits: Option<String>,
    /// What would be cloned where, and whether an agent can really begin there now.
    pub(crate) next: Option<String>,
    pub(crate) can_start: bool,
    pub(crate) refused: Option<String>,
    pub(crate) nodes: Vec<WhyNodeOut>,
    /// Nodes that it never tries, those of one reason together.
    pub(crate) untried: Vec<(String, String)>,
    pub(crate) keys: Vec<String>,
    pub(crate) failed: Option<FailedOut>,
    pub(crate) idle: u32,
}

impl Held {
    /// Of what was found, and what else keeps the template back, such as its cap.
    pub(crate) fn new(out: WhyOut, is_held_back: bool) -> Self {
        let WhyOut { template, waits, next, refused, nodes, untried, keys, failed, idle } = out;
        Self {
            can_start: next.is_some() && waits.is_none() && !is_held_back,
            untried: UntriedOut::together(&untried),
            template,
            waits,
            next,
            refused,
            nodes,
            keys,
            failed,
            idle,
        }
    }

    /// What keeps each template of an answer back.
    pub(crate) fn all(why: &WhySubjectOut) -> Vec<Self> {
        let kinds = why.account.iter().flat_map(|account| &account.kinds);
        let serve: Vec<&ServingOut> = kinds.flat_map(|kind| &kind.serve).collect();
        let is_held_back = |one: &WhyOut| {
            serve.iter().any(|of| of.template == one.template && of.obstacle.is_some())
        };
        why.templates.iter().map(|one| Self::new(one.clone(), is_held_back(one))).collect()
    }
}

/// How many agents of a template come, in words.
pub(crate) fn coming(kind: &KindOut, one: &ServingOut) -> String {
    match kind.coming(one) {
        (coming, 0) => coming.to_string(),
        (coming, held) => format!("{coming}, {held} held up"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::out;

    fn held(waits: Option<&str>, is_held_back: bool) -> Held {
        let why = json!({
            "template": "lab/linux", "waits": waits, "next": "node pve1: VMID 9000", "refused": null,
            "nodes": [{ "node": "pve1", "refused": null }],
            "untried": [{ "node": "pve2", "why": "no" }, { "node": "pve3", "why": "no" },
                        { "node": "pve4", "why": "other" }],
        });
        Held::new(out(why), is_held_back)
    }

    // Invariant: that a node has room is no promise while the template may not start.

    #[test]
    fn an_agent_can_start_where_nothing_else_keeps_its_template() {
        assert!(held(None, false).can_start);
        assert!(!held(Some("cloud lab is full"), false).can_start);
        assert!(!held(None, true).can_start);
        let nodes = [("pve2, pve3", "no"), ("pve4", "other")].map(|(a, b)| (a.into(), b.into()));
        assert_eq!(held(None, false).untried, nodes);
    }
}
