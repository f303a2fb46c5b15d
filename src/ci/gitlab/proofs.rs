//! What `drover doctor` tests of a GitLab without changing anything there.

use drover_model::ports::Known;
use serde::Deserialize;

use super::{GitLab, Scope, plain};
use crate::error::DemandError;
use crate::proof::Proof;

/// The scope of a token that allows everything.
const ALL: &str = "api";
/// The scopes that a token needs otherwise.
const NEEDED: [&str; 3] = ["read_api", "create_runner", "manage_runner"];
/// The access levels that allow making runners.
const MAINTAINER: u32 = 40;
const OWNER: u32 = 50;

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
    pub(super) async fn proofs(&self, found: &mut Vec<Proof>) -> Result<(), DemandError> {
        let user: User = self.get("user").await?;
        found.push(Proof::ok("token", "is accepted"));
        found.push(match self.get::<Token>("personal_access_tokens/self").await {
            Ok(token) => scopes(&token),
            Err(DemandError::Status { status: 401 | 403 | 404, .. }) => Proof::warn(
                "token's scopes",
                "cannot be read",
                "make sure that the token has `api`, or read_api, create_runner and manage_runner",
            ),
            Err(error) => return Err(error),
        });
        found.push(self.role(&user).await?);
        found.push(Proof::seen(&self.sight(&Known::new()).await?));
        Ok(())
    }

    /// Whether the token's user may make runners in the configured scope.
    async fn role(&self, user: &User) -> Result<Proof, DemandError> {
        let about = "making and removing runners";
        let (list, name, least, role) = match &self.settings.scope {
            Scope::Server if user.is_admin == Some(true) => {
                return Ok(Proof::ok(about, "its user is an administrator"));
            }
            Scope::Server => {
                let mend = "use a token of an administrator, or name a group or project in `scope`";
                return Ok(Proof::fail(about, "its user is not an administrator", mend));
            }
            Scope::Group(group) => ("groups", group, OWNER, "Owner"),
            Scope::Project(project) => ("projects", project, MAINTAINER, "Maintainer"),
        };
        let path = format!("{list}/{}/members/all/{}", plain(name), user.id);
        Ok(match self.get::<Member>(&path).await {
            Ok(member) if member.access_level >= least || user.is_admin == Some(true) => {
                Proof::ok(about, format!("its user is {role} or above"))
            }
            Ok(_) => Proof::fail(
                about,
                format!("its user is less than {role}"),
                format!("make the token's user {role} of {name}"),
            ),
            Err(DemandError::Status { status: 404, .. }) if user.is_admin == Some(true) => {
                Proof::ok(about, "its user is an administrator")
            }
            Err(DemandError::Status { status: 403 | 404, .. }) => Proof::warn(
                about,
                "the role of its user cannot be read; only making a runner would show it",
                format!("make sure that the token's user is {role} of {name}"),
            ),
            Err(error) => return Err(error),
        })
    }
}

fn scopes(token: &Token) -> Proof {
    let about = "token's scopes";
    let has = |scope: &str| token.scopes.iter().any(|one| one == scope);
    let until = token.expires_at.as_deref().map(|day| format!(", until {day}"));
    let until = until.unwrap_or_default();
    if has(ALL) {
        return Proof::ok(about, format!("api{until}"));
    }
    let missing: Vec<&str> = NEEDED.into_iter().filter(|scope| !has(scope)).collect();
    if missing.is_empty() {
        return Proof::ok(about, format!("{}{until}", token.scopes.join(", ")));
    }
    let mend = format!("make a token with `api`, or with {}", NEEDED.join(", "));
    Proof::fail(about, format!("it lacks {}", missing.join(", ")), mend)
}
