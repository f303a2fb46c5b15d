//! The settings of a GitHub source.

use std::collections::BTreeSet;
use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::Url;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;

use super::app::AppSpec;

/// The part of GitHub whose runners and jobs drover serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// A repository, by owner and name.
    Repository(String, String),
    Organisation(String),
    Enterprise(String),
}

/// All characters but those of names on GitHub.
const FOREIGN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.');

/// A name as a part of a path.
pub(super) fn plain(text: &str) -> String {
    utf8_percent_encode(text, FOREIGN).to_string()
}

impl Scope {
    /// The path in the REST API.
    pub fn path(&self) -> String {
        match self {
            Self::Repository(owner, name) => repository(&format!("{owner}/{name}")),
            Self::Organisation(name) => format!("orgs/{}", plain(name)),
            Self::Enterprise(name) => format!("enterprises/{}", plain(name)),
        }
    }

    /// The page for people, by the URL of the API.
    pub fn page(&self, api: &Url) -> String {
        let mut page = api.clone();
        page.set_path("");
        let host = api.host_str().unwrap_or_default();
        // GitHub's own API has its own host name; a server's API has a path.
        if let Some(site) = host.strip_prefix("api.") {
            // Cannot fail: a host name without its first part is a host name.
            let _ = page.set_host(Some(site));
        }
        let page = page.as_str().trim_end_matches('/');
        match self {
            Self::Repository(owner, name) => format!("{page}/{owner}/{name}"),
            Self::Organisation(name) => format!("{page}/{name}"),
            Self::Enterprise(name) => format!("{page}/enterprises/{name}"),
        }
    }
}

impl std::fmt::Display for Scope {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Repository(owner, name) => write!(f, "repository {owner}/{name}"),
            Self::Organisation(name) => write!(f, "organisation {name}"),
            Self::Enterprise(name) => write!(f, "enterprise {name}"),
        }
    }
}

/// The path of a repository, `OWNER/NAME`, in the REST API.
pub(super) fn repository(full_name: &str) -> String {
    let parts: Vec<String> = full_name.split('/').map(plain).collect();
    format!("repos/{}", parts.join("/"))
}

/// How drover logs in.
#[derive(Debug, Clone)]
pub enum Login {
    /// A personal access token, classic or fine-grained.
    Token(SecretString),
    App(AppSpec),
}

/// How runners are registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Registration {
    /// drover registers each runner and gives the guest that runner's login alone.
    Jit,
    /// The guest registers itself with a token that can register any number of runners; for servers
    /// without just-in-time configurations.
    Token,
}

/// A scale set, which reports jobs in place of lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScaleSetSpec {
    pub name: String,
    /// The most jobs that GitHub may assign to the set.
    pub capacity: u32,
}

/// The settings of a GitHub source.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The part of GitHub that drover serves.
    pub scope: Scope,
    pub login: Login,
    /// Repositories whose jobs are read, `OWNER/NAME`; none for all that the login can see.
    pub repositories: Option<Vec<String>>,
    /// The runner group, by name or number; none for the default group.
    pub group: Option<String>,
    /// How runners are registered.
    pub registration: Registration,
    /// The scale set that reports jobs; none to read lists of jobs.
    pub scale_set: Option<ScaleSetSpec>,
    /// Labels that jobs may demand; none for jobs with the label `self-hosted`.
    pub labels: Option<BTreeSet<String>>,
    /// The time between two polls of everything.
    pub poll: Duration,
}

impl Settings {
    /// All settings, secrets included, for the fingerprint of the source.
    pub(crate) fn parts(&self) -> Vec<String> {
        let (login, secret) = match &self.login {
            Login::Token(token) => ("token".to_owned(), token),
            Login::App(app) => (format!("app {} {:?}", app.id, app.installation), &app.key),
        };
        let Self { scope, repositories, group, registration, scale_set, labels, poll, .. } = self;
        let shown = format!(
            "{scope:?} {repositories:?} {group:?} {registration:?} {scale_set:?} {labels:?} {poll:?}"
        );
        vec![shown, login, secret.expose_secret().to_owned()]
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    // Invariant: guests register at the page of the configured scope.

    #[test]
    fn pages_follow_from_the_url_of_the_api() {
        let page = |api: &str, scope: Scope| scope.page(&api.parse().unwrap());
        let repository = Scope::Repository("NREL".into(), "EnergyPlus".into());
        let own = "https://api.github.com/";
        assert_eq!(page(own, repository.clone()), "https://github.com/NREL/EnergyPlus");
        let server = "https://git.lan:8443/api/v3/";
        assert_eq!(page(server, repository), "https://git.lan:8443/NREL/EnergyPlus");
        assert_eq!(page(server, Scope::Organisation("o".into())), "https://git.lan:8443/o");
        let enterprise = Scope::Enterprise("e".into());
        assert_eq!(page(own, enterprise), "https://github.com/enterprises/e");
    }

    #[test]
    fn names_cannot_leave_their_place_in_a_path() {
        assert_eq!(Scope::Organisation("a/../b".into()).path(), "orgs/a%2F..%2Fb");
    }
}
