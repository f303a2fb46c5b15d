//! The plan of the next reconciliation.

use std::collections::BTreeMap;

use askama::Template;
use drover_api::{FoundOut, ResyncPlanOut, UnreadOut};

use crate::frame::Frame;

/// What a reconciliation would do now.
#[derive(Template)]
#[template(path = "plan.html")]
pub struct PlanPage {
    frame: Frame,
    clusters: BTreeMap<String, Vec<FoundOut>>,
    unread: Vec<UnreadOut>,
}

impl PlanPage {
    pub fn new(frame: Frame, out: ResyncPlanOut) -> Self {
        let ResyncPlanOut { clusters, unread } = out;
        Self { frame, clusters: clusters.into_iter().collect(), unread }
    }
}
