//! Replaces drover's token while drover runs. At every moment one of the two tokens works and is
//! the one in use. Where a step fails, the text says which.
//!
//! The order: make the new token with the same rights, log in with it and compare what both may do,
//! put it in use, remove the old one. Up to the last step a failure removes the new token again.

use std::fmt;
use std::future::Future;
use std::io;

use drover_hypervisor::Client;
use drover_model::fault::FaultKind;
use proxmox_client::admin::User;
use proxmox_client::transport::Dialer;
use proxmox_client::{Connection, Login, PveError};
use secrecy::SecretString;
use serde_json::Value;

use super::leftover::numbered;

/// What a rotation works with.
pub struct Rotation<'a> {
    /// A client with an administrator's login.
    pub admin: &'a Client,
    /// Connects to the nodes' API.
    pub dialer: &'a dyn Dialer,
    /// The connection of the service; its login is the old token.
    pub connection: &'a Connection,
    /// The comment of the new token.
    pub comment: &'a str,
}

/// Why a rotation ended early, and where that leaves things.
#[derive(Debug)]
pub struct RotationError {
    pub what: String,
    /// Which token is in use, and what is left to do.
    pub state: String,
}

impl fmt::Display for RotationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n  {}", self.what, self.state)
    }
}

/// The name of the next token: `ci`, `ci-2`, `ci-3`, and so on; the first that is free.
fn next_name(name: &str, own: &User) -> String {
    let (bare, mut next) = numbered(name);
    loop {
        next = next.saturating_add(1);
        let name = format!("{bare}-{next}");
        if own.tokens.iter().all(|token| token.tokenid != name) {
            return name;
        }
    }
}

/// Replaces the token of a connection. `swap` receives the new token's name and secret and puts the
/// token in use: it returns whether a running service took it up, and leaves the old token in use
/// where it fails. Where no service took it up, somebody may still use the old token, so it stays.
///
/// # Errors
/// What failed, and where that leaves things.
pub async fn rotate<S, F>(
    rotation: Rotation<'_>,
    swap: S,
    mut reported: impl FnMut(&str) -> io::Result<()>,
) -> Result<RotationResult, RotationError>
where
    S: FnOnce(String, SecretString) -> F,
    F: Future<Output = Result<bool, String>>,
{
    let Rotation { admin, dialer, connection, comment } = rotation;
    let old = connection.login.name().to_owned();
    let in_use = format!("the old token `{old}` is in use and works; nothing is left over");
    let early = |what: String| RotationError { what, state: in_use.clone() };
    let (user, name) =
        old.split_once('!').ok_or_else(|| early(format!("`{old}` is not a token")))?;
    let explain = |error: &PveError| admin.fault(error).text;
    let users = admin.users().await.map_err(|error| early(explain(&error)))?;
    let own = users.iter().find(|one| one.userid == user);
    let own = own.ok_or_else(|| early(format!("there is no user `{user}`")))?;
    let found = own.tokens.iter().find(|token| token.tokenid == name);
    let privsep = found.ok_or_else(|| early(format!("there is no token `{old}`")))?.privsep;
    let entries = admin.acl_entries().await.map_err(|error| early(explain(&error)))?;
    let next = next_name(name, own);
    let new = format!("{user}!{next}");
    let secret = admin.create_token(user, &next, privsep, comment).await;
    let secret = match secret {
        Ok(secret) => secret,
        Err(error) => {
            let fault = admin.fault(&error);
            // Proxmox may have made the token although the answer was lost.
            let doubt = fault.kind == FaultKind::UnknownOutcome;
            let state = if doubt && !is_certainly_missing(admin, user, &next).await {
                remove_new_token(admin, user, &next, in_use, &old).await
            } else {
                in_use
            };
            return Err(RotationError { what: fault.text, state });
        }
    };
    let mut say = |text: String| reported(&text).map_err(|error| error.to_string());
    let tried = async {
        say(format!("made {new}"))?;
        for entry in entries.iter().filter(|entry| privsep && entry.ugid == old) {
            let given = admin.grant(&entry.path, &new, &entry.roleid).await;
            given.map_err(|error| explain(&error))?;
        }
        compare_rights(admin, dialer, connection, (&old, &new), &secret).await?;
        say(format!("{new} works and has the same rights as {old}"))?;
        let taken = swap(next.clone(), secret.clone()).await?;
        say(if taken {
            format!("{new} is in use")
        } else {
            format!("{new} is in the YAML, but no running service took it up")
        })?;
        Ok(taken)
    };
    let taken = match tried.await {
        Ok(taken) => taken,
        Err(what) => {
            return Err(RotationError {
                what,
                state: remove_new_token(admin, user, &next, in_use, &old).await,
            });
        }
    };
    if !taken {
        let remove = format!("pveum user token remove {user} {name}");
        return Ok(RotationResult::BothExist { new, old, remove });
    }
    match admin.remove_token(user, name).await {
        Ok(()) => Ok(RotationResult::Replaced { new }),
        Err(error) => Err(RotationError {
            what: explain(&error),
            state: format!(
                "the new token `{new}` is in use and works; the old one still exists; remove it: \
                 pveum user token remove {user} {name}"
            ),
        }),
    }
}

/// The result of a rotation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RotationResult {
    /// The old token is removed.
    Replaced {
        /// The full id of the new token.
        new: String,
    },
    /// The old token still exists, because no running service took the new one up.
    BothExist {
        /// The full id of the new token.
        new: String,
        /// The full id of the old token.
        old: String,
        /// The command that removes the old token.
        remove: String,
    },
}

/// Whether a token certainly does not exist.
async fn is_certainly_missing(admin: &Client, user: &str, name: &str) -> bool {
    let Ok(users) = admin.users().await else { return false };
    let tokens = users.iter().filter(|one| one.userid == user).flat_map(|one| &one.tokens);
    tokens.into_iter().all(|token| token.tokenid != name)
}

/// Removes a new token after a failure; returns where that leaves things.
async fn remove_new_token(
    admin: &Client,
    user: &str,
    next: &str,
    in_use: String,
    old: &str,
) -> String {
    match admin.remove_token(user, next).await {
        Ok(()) => in_use,
        Err(error) => format!(
            "the old token `{old}` is in use and works; the new one could not be removed ({}); remove it: \
             pveum user token remove {user} {next}",
            admin.fault(&error).text
        ),
    }
}

/// Logs in with the new token and compares the rights of both.
async fn compare_rights(
    admin: &Client,
    dialer: &dyn Dialer,
    connection: &Connection,
    (old, new): (&str, &str),
    secret: &SecretString,
) -> Result<(), String> {
    let login = Login::Token { id: new.to_owned(), secret: secret.clone() };
    let connection = Connection { login, ..connection.clone() };
    let client = Client::new(admin.cloud().clone(), &connection, dialer);
    let client = client.map_err(|error| error.chain())?;
    client.version().await.map_err(|error| client.fault(&error).text)?;
    let mut trees = Vec::new();
    for who in [old, new] {
        let filter = vec![("userid".to_owned(), who.to_owned())];
        let tree: Result<Value, PveError> = admin.get("/access/permissions", filter).await;
        trees.push(tree.map_err(|error| admin.fault(&error).text)?);
    }
    if trees.first() != trees.last() {
        return Err(format!("`{new}` does not have the same rights as `{old}`"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proxmox_client::admin::Token;

    // Invariant: a rotation never takes a name that is in use.

    #[test]
    fn the_next_token_counts_on_and_skips_names_that_are_taken() {
        let own = |names: &[&str]| User {
            userid: "a@pve".into(),
            enable: None,
            expire: None,
            tokens: names
                .iter()
                .map(|name| Token {
                    tokenid: (*name).to_owned(),
                    expire: None,
                    privsep: false,
                    comment: None,
                })
                .collect(),
        };
        assert_eq!(next_name("ci", &own(&["ci"])), "ci-2");
        assert_eq!(next_name("ci-2", &own(&["ci-2"])), "ci-3");
        assert_eq!(next_name("ci", &own(&["ci", "ci-2", "ci-3"])), "ci-4");
        assert_eq!(next_name("my-ci", &own(&["my-ci"])), "my-ci-2");
    }
}
