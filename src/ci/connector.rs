//! What every CI system is asked for.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use causes::chain;
use drover_model::demand::words::Words;
use drover_model::id::RunnerName;
use drover_model::ports::{Known, ShellTarget, SourceSight};
use drover_model::record::Want;
use drover_model::spec::TemplateSpec;
use futures_util::future::BoxFuture;
use secrecy::SecretString;
use tokio::sync::oneshot;

use crate::error::DemandError;
use crate::keepsake::Keepsake;
use crate::proof::Mark;
use crate::proof::Proof;

/// A file for a runner's folder in the guest.
pub struct KitFile {
    /// Its name there.
    pub name: &'static str,
    /// Its content; may be secret.
    pub content: Bytes,
}

/// What a runner is started with: it serves this one runner and nothing else.
pub struct Kit {
    /// Files, only its user can read.
    pub files: Vec<KitFile>,
    /// Programs of which one must be in the guest, for a clear message where none is; empty where that
    /// can not be told.
    pub programs: Vec<String>,
    /// A shell command that runs the runner to its end, in its folder.
    pub command: String,
    /// Whether the command may end well and leave the runner running, as one that starts a service;
    /// a command of the operator's own may.
    pub leaves: bool,
    /// What of it nobody is to read.
    pub secrets: Vec<SecretString>,
}

/// The program that a shell command begins with, whatever is set before it; none where it is looked for
/// on a path of its own.
pub fn program_of(command: &str) -> Vec<String> {
    let mut words = command.split_whitespace();
    loop {
        match words.next() {
            Some("exec" | "env") => {}
            Some(word) if word.trim_start_matches(['"', '\'']).starts_with("PATH=") => {
                return Vec::new();
            }
            Some(word) if word.contains('=') => {}
            program => return program.into_iter().map(str::to_owned).collect(),
        }
    }
}

/// A runner that is wanted.
#[derive(Debug, Clone, Copy)]
pub struct Enlist<'a> {
    /// Its name.
    pub runner: &'a RunnerName,
    /// What its agent was born with.
    pub spec: &'a TemplateSpec,
    /// What it was begun for.
    pub want: &'a Want,
    /// The guest it runs in.
    pub target: &'a ShellTarget,
}

impl Enlist<'_> {
    /// The labels it offers: its template's, and those it was wanted for, which a label mapping may
    /// have lent.
    pub fn labels(&self) -> BTreeSet<String> {
        let mut labels = self.spec.labels.clone();
        if let Want::Labels(wanted) = self.want {
            labels.extend(wanted.iter().cloned());
        }
        labels
    }
}

/// Makes drover look at a source.
pub type Wake = Arc<dyn Fn() + Send + Sync>;

/// Comes when a connector is replaced, forgotten, or the service stops.
pub type Ended = oneshot::Receiver<()>;

/// What a call of a CI system comes to.
pub type Done<'a, T> = BoxFuture<'a, Result<T, DemandError>>;

/// One CI system, as configured.
pub trait Connector: Send + Sync {
    /// Reads drover's runners, then the jobs that wait. Each of the `known` runners that no list shows
    /// is asked for by itself, so that only what is gone for certain is told as gone.
    fn look<'a>(&'a self, known: &'a Known) -> Done<'a, SourceSight>;
    /// Makes the runner's row, in the place of any other of that name.
    fn enlist<'a>(&'a self, wish: Enlist<'a>) -> Done<'a, Kit>;
    /// Lets a runner take no further job.
    fn quiet<'a>(&'a self, runner: &'a RunnerName) -> Done<'a, ()>;
    /// Removes every row of exactly that name.
    fn strike<'a>(&'a self, runner: &'a RunnerName) -> Done<'a, ()>;
    /// Takes up what a webhook that was proven speaks of, for the look that it wakes it for.
    fn hint(&self, _body: &[u8]) {}
    /// What goes on between looks, until `ended`; it wakes the source where there is news, and keeps
    /// what it must know again after a cut. None where there is nothing of that kind.
    fn watch(
        self: Arc<Self>,
        _wake: Wake,
        _ended: Ended,
        _kept: Keepsake,
    ) -> Option<BoxFuture<'static, ()>> {
        None
    }

    /// Where it puts what is drover's own and shared by all sources of that place; none where it puts
    /// nothing.
    fn place(&self) -> Option<&str> {
        None
    }

    /// Removes what drover put there for itself, once no source of that place is configured any more.
    fn part(&self) -> Done<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Where a runner's program is too old for its source, by how it ended and what it logged: its version,
    /// the last day of that where it is known, and what mends it.
    fn too_old<'a>(&'a self, _words: &'a Words) -> BoxFuture<'a, Option<String>> {
        Box::pin(std::future::ready(None))
    }

    /// Proves, changing nothing, that its login may do what the others need; what only writing would
    /// prove is said to be so. What was found before an error stands.
    fn prove<'a>(&'a self, found: &'a mut Vec<Proof>) -> Done<'a, ()> {
        Box::pin(async move {
            found.push(Proof::seen(&self.look(&Known::new()).await?));
            Ok(())
        })
    }

    /// What keeps its login from making runners, as far as that can be told without making one; none
    /// where nothing is known against it.
    fn obstacle(&self) -> Done<'_, Option<String>> {
        Box::pin(async move {
            let mut found = Vec::new();
            barrier(self.prove(&mut found).await).map(|refusal| {
                let failed = found.into_iter().find(|proof| proof.mark == Mark::Fail);
                refusal.or(failed.map(|proof| format!("{}: {}", proof.about, proof.text)))
            })
        })
    }
}

/// What a call says that needs the right to make runners: nothing, a refusal, or nothing of that.
pub fn barrier<T>(asked: Result<T, DemandError>) -> Result<Option<String>, DemandError> {
    match asked {
        Ok(_) => Ok(None),
        Err(error @ DemandError::Status { status: 401 | 403 | 404 | 410, .. }) => {
            Ok(Some(chain(&error)))
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Invariant: what must be in the guest is the program, and not what stands before it.

    #[test]
    fn the_program_of_a_command_is_found_behind_what_is_set_for_it() {
        let commands = [
            ("act_runner daemon", "act_runner"),
            ("exec env A=b C=d /opt/run --env x=y", "/opt/run"),
            ("WOODPECKER_BACKEND=docker exec woodpecker-agent", "woodpecker-agent"),
        ];
        for (command, program) in commands {
            assert_eq!(program_of(command), [program]);
        }
        assert!(program_of("").is_empty());
        for path in ["PATH=/opt/x:$PATH", "\"PATH=/opt/x:$PATH\""] {
            let elsewhere = program_of(&format!("exec env {path} woodpecker-agent"));
            assert!(elsewhere.is_empty(), "it is looked for where the command says");
        }
    }
}
