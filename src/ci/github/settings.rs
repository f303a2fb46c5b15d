//! What is configured of a GitHub.

use std::collections::BTreeSet;
use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::Url;
use secrecy::{ExposeSecret, SecretString};

use super::app::AppSpec;

/// Whose runners and jobs are meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// A repository's, by owner and name.
    Repository(String, String),
    /// An organisation's.
    Organisation(String),
    /// An enterprise's.
    Enterprise(String),
}

/// All but what names on GitHub are made of.
const FOREIGN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.');

/// A name as a part of a path.
pub(super) fn plain(text: &str) -> String {
    utf8_percent_encode(text, FOREIGN).to_string()
}

impl Scope {
    /// Its path in the REST API.
    pub fn path(&self) -> String {
        match self {
            Self::Repository(owner, name) => repository(&format!("{owner}/{name}")),
            Self::Organisation(name) => format!("orgs/{}", plain(name)),
            Self::Enterprise(name) => format!("enterprises/{}", plain(name)),
        }
    }

    /// Where people find it, by the API's URL.
    pub fn page(&self, api: &Url) -> String {
        let mut page = api.clone();
        page.set_path("");
        let host = api.host_str().unwrap_or_default();
        // GitHub's own API has a host of its own, a server's a path.
        if let Some(site) = host.strip_prefix("api.") {
            // A host's name without its first part is one, too.
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
pub fn repository(full_name: &str) -> String {
    let parts: Vec<String> = full_name.split('/').map(plain).collect();
    format!("repos/{}", parts.join("/"))
}

/// What drover logs in with.
#[derive(Debug, Clone)]
pub enum Login {
    /// A personal access token, of either kind.
    Token(SecretString),
    /// A GitHub App.
    App(AppSpec),
}

/// How runners come to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Registration {
    /// drover makes each and hands over its own login.
    Jit,
    /// The guest registers with a token that registers any number; for servers without the other.
    Token,
}

/// A scale set, in place of lists of jobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScaleSetSpec {
    /// Its name.
    pub name: String,
    /// The most jobs that may be assigned to it.
    pub capacity: u32,
}

/// What is configured of it.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Whose jobs are meant.
    pub scope: Scope,
    /// What drover logs in with.
    pub login: Login,
    /// Repositories whose jobs are read, `OWNER/NAME`; none for all that the login sees.
    pub repositories: Option<Vec<String>>,
    /// The runners' group, by name or number; none for the default one.
    pub group: Option<String>,
    /// How runners come to be.
    pub registration: Registration,
    /// The scale set that tells of jobs; none to read lists of them.
    pub scale_set: Option<ScaleSetSpec>,
    /// Labels that its jobs may want; none for those that say `self-hosted`.
    pub labels: Option<BTreeSet<String>>,
    /// Time between two looks at everything.
    pub poll: Duration,
}

impl Settings {
    /// Everything of it, secrets included, for its fingerprint.
    pub fn parts(&self) -> Vec<String> {
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

    // Invariant: what guests register at is the page of what is configured.

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
    fn names_can_not_leave_their_place_in_a_path() {
        assert_eq!(Scope::Organisation("a/../b".into()).path(), "orgs/a%2F..%2Fb");
    }
}
