//! A refusal, where a page was asked for.

use askama::Template;
use drover_api::Problem;

use crate::assets;

/// What is wrong, and what to do.
#[derive(Template)]
#[template(path = "fault.html")]
pub struct FaultPage {
    problem: Problem,
    /// After how many seconds the browser asks again by itself; none where that helps nobody.
    again: Option<u64>,
}

impl FaultPage {
    /// Of a refusal, which may be over after some seconds.
    pub fn new(problem: Problem, again: Option<u64>) -> Self {
        Self { problem, again: again.map(|seconds| seconds.max(3)) }
    }

    fn style(&self) -> String {
        assets::address("page.css")
    }
}
