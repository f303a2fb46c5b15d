//! The way in.

use askama::Template;

use crate::assets;

/// The form that asks for a token, and the button that leads to the provider.
#[derive(Template)]
#[template(path = "login.html")]
pub struct LoginPage {
    /// Where the way goes on.
    next: String,
    /// The provider at which people log in.
    provider: Option<String>,
    /// Whether a token can log in.
    takes_tokens: bool,
    /// Why the last try failed.
    fault: Option<String>,
}

impl LoginPage {
    /// Goes on to `next`, a path of this page.
    pub fn new(
        next: &str,
        provider: Option<&str>,
        takes_tokens: bool,
        fault: Option<String>,
    ) -> Self {
        let provider = provider.map(str::to_owned);
        Self { next: next.to_owned(), provider, takes_tokens, fault }
    }

    fn style(&self) -> String {
        assets::address("page.css")
    }

    fn icon(&self) -> String {
        assets::address("icon.svg")
    }
}
