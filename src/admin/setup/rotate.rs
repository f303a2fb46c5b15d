//! A token replaced by another one while drover runs. At every moment one of the two works and is
//! the one in use; where a step fails it is said which.

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
    /// An administrator.
    pub admin: &'a Client,
    /// The way to the nodes.
    pub dialer: &'a dyn Dialer,
    /// How drover reaches the cluster; its login is the old token.
    pub connection: &'a Connection,
    /// What is written beside the new token.
    pub comment: &'a str,
}

/// Why a rotation ended early, and where it stands.
#[derive(Debug)]
pub struct Stand {
    /// What failed.
    pub what: String,
    /// Which token is in use, and what is left to do.
    pub stands: String,
}

impl fmt::Display for Stand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n  {}", self.what, self.stands)
    }
}

/// The name of the next token: `ci`, `ci-2`, `ci-3`, and so on, that no token has.
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

/// Replaces the token of a connection. `swap` puts the new one in use: it is given the new token's
/// name and secret, tells whether a running service took it up, and leaves the old one in use when it
/// fails. Where none took it up, somebody may still use the old one: it stays.
///
/// # Errors
/// What failed, and where that leaves things.
pub async fn rotate<S, F>(
    rotation: Rotation<'_>,
    swap: S,
    mut told: impl FnMut(&str) -> io::Result<()>,
) -> Result<Rotated, Stand>
where
    S: FnOnce(String, SecretString) -> F,
    F: Future<Output = Result<bool, String>>,
{
    let Rotation { admin, dialer, connection, comment } = rotation;
    let old = connection.login.name().to_owned();
    let in_use = format!("the old token `{old}` is in use and works; nothing is left over");
    let early = |what: String| Stand { what, stands: in_use.clone() };
    let (user, name) = old.split_once('!').ok_or_else(|| early(format!("`{old}` is no token")))?;
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
            // Whoever got no answer may have made it all the same.
            let doubt = fault.kind == FaultKind::UnknownOutcome;
            let stands = if doubt && !is_missing(admin, user, &next).await {
                withdraw(admin, user, &next, in_use, &old).await
            } else {
                in_use
            };
            return Err(Stand { what: fault.text, stands });
        }
    };
    let mut say = |text: String| told(&text).map_err(|error| error.to_string());
    let tried = async {
        say(format!("made {new}"))?;
        for entry in entries.iter().filter(|entry| privsep && entry.ugid == old) {
            let given = admin.grant(&entry.path, &new, &entry.roleid).await;
            given.map_err(|error| explain(&error))?;
        }
        try_out(admin, dialer, connection, (&old, &new), &secret).await?;
        say(format!("{new} works and may do the same as {old}"))?;
        let taken = swap(next.clone(), secret.clone()).await?;
        say(if taken {
            format!("{new} is in use")
        } else {
            format!("{new} is in the YAML, and no running service took it up")
        })?;
        Ok(taken)
    };
    let taken = match tried.await {
        Ok(taken) => taken,
        Err(what) => {
            return Err(Stand { what, stands: withdraw(admin, user, &next, in_use, &old).await });
        }
    };
    if !taken {
        let remove = format!("pveum user token remove {user} {name}");
        return Ok(Rotated::Beside { new, old, remove });
    }
    match admin.remove_token(user, name).await {
        Ok(()) => Ok(Rotated::Instead { new }),
        Err(error) => Err(Stand {
            what: explain(&error),
            stands: format!(
                "the new token `{new}` is in use and works; the old one is still there: \
                 pveum user token remove {user} {name}"
            ),
        }),
    }
}

/// What came of a rotation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rotated {
    /// The old token is gone.
    Instead {
        /// The new token's full id.
        new: String,
    },
    /// The old token is still there: nobody took the new one up.
    Beside {
        /// The new token's full id.
        new: String,
        /// The old one's.
        old: String,
        /// The command that removes it.
        remove: String,
    },
}

/// Whether a token is surely not there.
async fn is_missing(admin: &Client, user: &str, name: &str) -> bool {
    let Ok(users) = admin.users().await else { return false };
    let tokens = users.iter().filter(|one| one.userid == user).flat_map(|one| &one.tokens);
    tokens.into_iter().all(|token| token.tokenid != name)
}

/// Removes a new token that came to nothing, and says where that leaves things.
async fn withdraw(admin: &Client, user: &str, next: &str, in_use: String, old: &str) -> String {
    match admin.remove_token(user, next).await {
        Ok(()) => in_use,
        Err(error) => format!(
            "the old token `{old}` is in use and works; the new one is left over ({}): \
             pveum user token remove {user} {next}",
            admin.fault(&error).text
        ),
    }
}

/// Logs in as the new token, and compares what both may do.
async fn try_out(
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
        return Err(format!("`{new}` may not do the same as `{old}`"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proxmox_client::admin::Token;

    // Invariant: a rotation never takes a name that somebody has.

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
