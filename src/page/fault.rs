//! A refusal, where a page was asked for.

use askama::Template;
use drover_api::Problem;

use crate::assets;

/// What is wrong, and what to do.
#[derive(Template)]
#[template(path = "fault.html")]
pub struct FaultPage {
    problem: Problem,
}

impl FaultPage {
    pub fn new(problem: Problem) -> Self {
        Self { problem }
    }

    fn style(&self) -> String {
        assets::address("page.css")
    }
}
