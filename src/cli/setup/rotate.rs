//! `drover setup rights --rotate`: the token of a running service is replaced, and what an earlier
//! rotation left is found.

use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use drover_api::{Nothing, ReloadOut, StatusOut};
use drover_hypervisor::Client;
use proxmox_client::WireDialer;
use secrecy::SecretString;

use super::super::client::{CALL_LIMIT, Client as Service};
use super::super::config::replace;
use super::super::error::{CallError, CliError, failed};
use super::output::SetupOutput;
use super::rights::{Work, refuse_without};
use drover_admin::setup::{
    Action, LeftToken, Leftovers, READ_PRIVILEGES, Rotation, RotationResult, rotate,
    rotation_comment, secrets_beside, write_secret,
};
use drover_config::{Environment, TokenPlace, token_place};

/// How long a service may take to bring the new token into force.
const RELOAD_LIMIT: Duration = Duration::from_secs(60);

impl Work<'_> {
    pub(super) async fn rotate(
        &self,
        admin: &Client,
        out: &mut SetupOutput<'_>,
    ) -> Result<(), CliError> {
        let place = self.token_place()?;
        let (Some(old_file), Some(_)) = (place.secret_file.clone(), place.file_for("")) else {
            let text = format!(
                "the secret of credential `{}` is not in a secretFile, so that drover cannot put \
                 another one there: rotate it where it comes from",
                place.credential
            );
            return Err(CliError::Usage(text));
        };
        let _lock = self.lock()?;
        let remove = Action::RemoveToken(self.user.clone(), self.token.clone());
        let reads = READ_PRIVILEGES.first().map(|(path, any)| ((*path).to_owned(), *any));
        refuse_without(admin, remove.needs().into_iter().chain(reads)).await?;
        let before = self.leftovers(admin).await?;
        for left in before.tokens.iter().filter(|left| left.was_never_used()) {
            self.take_away(admin, left, out).await?;
        }
        // One without a token's name may be another's.
        let bare = place.bare_file().map(|name| place.resolve(&self.environment, name));
        for file in before.files.iter().filter(|file| Some(*file) != bare.as_ref()) {
            take_file_away(file, out)?;
        }
        let comment = self.comment();
        let rotation = Rotation {
            admin,
            dialer: &WireDialer,
            connection: &self.connection,
            comment: &comment,
        };
        let swap = |name: String, secret: SecretString| self.swap(&place, name, secret);
        let new = rotate(rotation, swap, |text| out.did(text)).await;
        let new = match new.map_err(|stand| failed(stand.to_string()))? {
            RotationResult::Replaced { new } => new,
            RotationResult::BothExist { new, old, remove } => {
                let file = old_file.display();
                out.note(format!("{old} and {file} are left for their users"))?;
                out.note(format!("once nothing does: {remove}"))?;
                let left = self.leftovers_beside(admin, &new).await?;
                for left in left.tokens.iter().filter(|left| left.id() != old) {
                    out.note(left)?;
                }
                out.stands(format!("{new} works"))?;
                return Ok(());
            }
        };
        out.did(format!("removed {}", self.connection.login.name()))?;
        if let Err(error) = std::fs::remove_file(&old_file) {
            out.note(format!("{} cannot be removed: {error}", old_file.display()))?;
        }
        // The service works with the new one: it needs none that was made for this configuration before.
        for left in self.leftovers_beside(admin, &new).await?.tokens {
            if left.proven {
                self.take_away(admin, &left, out).await?;
            } else {
                out.note(&left)?;
            }
        }
        out.stands(format!("{new} is in use"))?;
        Ok(())
    }

    /// What rotations that were cut short have left beside the token in the YAML.
    pub(super) async fn leftovers(&self, admin: &Client) -> Result<Leftovers, CliError> {
        self.leftovers_beside(admin, self.connection.login.name()).await
    }

    async fn leftovers_beside(&self, admin: &Client, token: &str) -> Result<Leftovers, CliError> {
        let users = admin.users().await.map_err(|error| failed(admin.fault(&error).text))?;
        let own = users.iter().find(|one| one.userid == self.user);
        let (Some(own), Some((_, name))) = (own, token.split_once('!')) else {
            return Ok(Leftovers::default());
        };
        // Where the secret comes from elsewhere there are no files of rotations.
        let place = token_place(&self.path, &self.environment, token).ok();
        let secrets = place.and_then(|place| {
            let bare = place.resolve(&self.environment, place.bare_file()?);
            let current = place.secret_file.clone()?;
            secrets_beside(&current, &bare, name).ok()
        });
        Ok(Leftovers::find(own, name, &self.comment(), secrets.unwrap_or_default()))
    }

    /// What is written beside the tokens that rotations of this configuration make.
    fn comment(&self) -> String {
        let path = self.path.canonicalize().unwrap_or_else(|_| self.path.clone());
        rotation_comment(&crate::host::host_name(), &path)
    }

    /// Keeps other rotations of this configuration from running: one would take the other's new token
    /// for something left over.
    fn lock(&self) -> Result<File, CliError> {
        let path = self.path.canonicalize().unwrap_or_else(|_| self.path.clone());
        let folder = if path.is_dir() { &*path } else { path.parent().unwrap_or(&path) };
        let reported =
            |error: io::Error| failed(format!("{} cannot be locked: {error}", folder.display()));
        let lock = File::open(folder).map_err(reported)?;
        match lock.try_lock() {
            Ok(()) => Ok(lock),
            Err(TryLockError::WouldBlock) => Err(failed(
                "another rotation of this configuration is under way: run this again once it is over",
            )),
            Err(TryLockError::Error(error)) => Err(reported(error)),
        }
    }

    async fn take_away(
        &self,
        admin: &Client,
        left: &LeftToken,
        out: &mut SetupOutput<'_>,
    ) -> Result<(), CliError> {
        if let Err(error) = admin.remove_token(&left.user, &left.name).await {
            out.note(format!("{left}: {}", admin.fault(&error).text))?;
            return Ok(());
        }
        out.did(format!("removed {}, left by an interrupted rotation", left.id()))?;
        match &left.file {
            Some(file) => take_file_away(file, out),
            None => Ok(()),
        }
    }

    /// Puts a token in use: its secret in a file of its own, then both keys of the YAML at once, and
    /// a reload where a service runs, which says whether it took that up. Whatever fails, the YAML is
    /// as it was.
    async fn swap(
        &self,
        place: &TokenPlace,
        name: String,
        secret: SecretString,
    ) -> Result<bool, String> {
        let written = place.file_for(&name).unwrap_or_default();
        let file = place.resolve(&self.environment, &written);
        let shown = |path: &Path, error: io::Error| {
            format!("{} cannot be written: {error}", path.display())
        };
        let before =
            std::fs::read_to_string(&place.file).map_err(|error| shown(&place.file, error))?;
        write_secret(&file, &secret).map_err(|error| shown(&file, error))?;
        let token = format!("{}!{name}", self.user);
        let undo = |why: String| {
            // The old token's file is still there; this one is of no use any more.
            let _ = std::fs::remove_file(&file);
            why
        };
        let environment = Environment::of_process();
        let text = place
            .replaced(&self.path, &environment, &token, &written)
            .map_err(|error| undo(error.render()))?;
        self.is_there().await.map_err(undo)?;
        replace(&place.file, &text, None).map_err(|error| undo(shown(&place.file, error)))?;
        match self.reload().await {
            Ok(read) => {
                // A service that reads other files has nothing of this.
                let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
                let taken = read.is_some_and(|read| real(&read) == real(&self.path));
                if taken {
                    tokio::time::sleep(Duration::from_secs(self.options.grace)).await;
                }
                Ok(taken)
            }
            Err(why) => {
                let back = replace(&place.file, &before, None);
                // It is running with what was there before, or takes that up again.
                let _ = self.reload().await;
                match back {
                    Ok(()) => Err(undo(why)),
                    Err(error) => Err(format!("{why}; {}", shown(&place.file, error))),
                }
            }
        }
    }

    /// Before the YAML changes: a service that does not answer would not take the new token up.
    async fn is_there(&self) -> Result<(), String> {
        let service = Service::new(self.global).map_err(|error| error.to_string())?;
        let status: Result<StatusOut, _> = service.get("/v1/status", CALL_LIMIT).await;
        match status {
            // One that refuses this says at the reload why.
            Ok(_) | Err(CallError::NoService { .. } | CallError::Refused(_)) => Ok(()),
            Err(error) => Err(format!("the running service does not answer: {error}")),
        }
    }

    /// Has a running service read the YAML, and gives what it read; none where no service runs.
    async fn reload(&self) -> Result<Option<PathBuf>, String> {
        let service = Service::new(self.global).map_err(|error| error.to_string())?;
        let answer = service.post("/v1/reload", &Nothing {}, RELOAD_LIMIT.max(CALL_LIMIT)).await;
        let answer: Result<ReloadOut, _> = answer;
        match answer {
            Ok(out) => Ok(Some(out.path)),
            Err(CallError::NoService { .. }) => Ok(None),
            Err(error) => Err(format!("the running service did not take it: {error}")),
        }
    }
}

fn take_file_away(file: &Path, out: &mut SetupOutput<'_>) -> Result<(), CliError> {
    let shown = file.display();
    match std::fs::remove_file(file) {
        Ok(()) => {
            out.did(format!("removed {shown}, left by an interrupted rotation"))?;
        }
        Err(error) => out.note(format!("{shown} cannot be removed: {error}"))?,
    }
    Ok(())
}
