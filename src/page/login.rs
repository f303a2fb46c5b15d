//! The way in.

use askama::Template;

use crate::assets;

/// The form that asks for a token.
#[derive(Template)]
#[template(path = "login.html")]
pub struct LoginPage {
    /// Where the way goes on.
    next: String,
    /// Why the last try failed.
    fault: Option<String>,
}

impl LoginPage {
    /// Goes on to `next`, a path of this page.
    pub fn new(next: &str, fault: Option<String>) -> Self {
        Self { next: next.to_owned(), fault }
    }

    fn style(&self) -> String {
        assets::address("page.css")
    }

    fn icon(&self) -> String {
        assets::address("icon.svg")
    }
}
