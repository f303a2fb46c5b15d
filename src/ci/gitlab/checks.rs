//! What `drover doctor` tests of a GitLab without changing anything there.

use drover_model::ports::Known;
use serde::Deserialize;

use super::{GitLab, Scope, plain};
use crate::error::DemandError;
use crate::finding::Finding;

/// The scope of a token that allows everything.
const FULL_SCOPE: &str = "api";
/// The scopes that a token needs otherwise.
const NEEDED_SCOPES: [&str; 3] = ["read_api", "create_runner", "manage_runner"];
/// The access levels that allow making runners.
const MAINTAINER_LEVEL: u32 = 40;
const OWNER_LEVEL: u32 = 50;

#[derive(Deserialize)]
struct Token {
    #[serde(default)]
    scopes: Vec<String>,
    #[serde(default)]
    expires_at: Option<String>,
}

#[derive(Deserialize)]
struct User {
    #[serde(default)]
    id: u64,
    #[serde(default)]
    is_admin: Option<bool>,
}

#[derive(Deserialize)]
struct Member {
    access_level: u32,
}

impl GitLab {
    pub(super) async fn run_checks(&self, found: &mut Vec<Finding>) -> Result<(), DemandError> {
        let user: User = self.get("user").await?;
        found.push(Finding::ok("token", "is accepted"));
        found.push(match self.get::<Token>("personal_access_tokens/self").await {
            Ok(token) => scopes(&token),
            Err(DemandError::Status { status: 401 | 403 | 404, .. }) => Finding::warn(
                "token's scopes",
                "cannot be read",
                "make sure that the token has `api`, or read_api, create_runner and manage_runner",
            ),
            Err(error) => return Err(error),
        });
        found.push(self.role(&user).await?);
        found.push(Finding::listed(&self.poll_all(&Known::new()).await?));
        Ok(())
    }

    /// Whether the token's user may make runners in the configured scope.
    async fn role(&self, user: &User) -> Result<Finding, DemandError> {
        let about = "making and removing runners";
        let (list, name, least, role) = match &self.settings.scope {
            Scope::Server if user.is_admin == Some(true) => {
                return Ok(Finding::ok(about, "its user is an administrator"));
            }
            Scope::Server => {
                let remedy =
                    "use a token of an administrator, or name a group or project in `scope`";
                return Ok(Finding::fail(about, "its user is not an administrator", remedy));
            }
            Scope::Group(group) => ("groups", group, OWNER_LEVEL, "Owner"),
            Scope::Project(project) => ("projects", project, MAINTAINER_LEVEL, "Maintainer"),
        };
        let path = format!("{list}/{}/members/all/{}", plain(name), user.id);
        Ok(match self.get::<Member>(&path).await {
            Ok(member) if member.access_level >= least || user.is_admin == Some(true) => {
                Finding::ok(about, format!("its user is {role} or above"))
            }
            Ok(_) => Finding::fail(
                about,
                format!("its user is less than {role}"),
                format!("make the token's user {role} of {name}"),
            ),
            Err(DemandError::Status { status: 404, .. }) if user.is_admin == Some(true) => {
                Finding::ok(about, "its user is an administrator")
            }
            Err(DemandError::Status { status: 403 | 404, .. }) => Finding::warn(
                about,
                "the role of its user cannot be read; only making a runner would show it",
                format!("make sure that the token's user is {role} of {name}"),
            ),
            Err(error) => return Err(error),
        })
    }
}

fn scopes(token: &Token) -> Finding {
    let about = "token's scopes";
    let has = |scope: &str| token.scopes.iter().any(|one| one == scope);
    let until = token.expires_at.as_deref().map(|day| format!(", until {day}"));
    let until = until.unwrap_or_default();
    if has(FULL_SCOPE) {
        return Finding::ok(about, format!("api{until}"));
    }
    let missing: Vec<&str> = NEEDED_SCOPES.into_iter().filter(|scope| !has(scope)).collect();
    if missing.is_empty() {
        return Finding::ok(about, format!("{}{until}", token.scopes.join(", ")));
    }
    let remedy = format!("make a token with `api`, or with {}", NEEDED_SCOPES.join(", "));
    Finding::fail(about, format!("it lacks {}", missing.join(", ")), remedy)
}
