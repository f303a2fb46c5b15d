//! What every CI system is asked for.

use std::collections::BTreeSet;

use bytes::Bytes;
use drover_actors::id::RunnerName;
use drover_actors::ports::{ShellTarget, SourceSight};
use drover_actors::record::Want;
use drover_actors::spec::TemplateSpec;
use futures_util::future::BoxFuture;

use super::error::DemandError;

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
    /// The program that must be in the guest, for a clear message where it is not.
    pub program: String,
    /// A shell command that runs the runner to its end, in its folder.
    pub command: String,
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

type Done<'a, T> = BoxFuture<'a, Result<T, DemandError>>;

/// One CI system, as configured.
pub trait Connector: Send + Sync {
    /// Reads drover's runners, then the jobs that wait.
    fn look(&self) -> Done<'_, SourceSight>;
    /// Makes the runner's row, in the place of any other of that name.
    fn enlist<'a>(&'a self, wish: Enlist<'a>) -> Done<'a, Kit>;
    /// Lets a runner take no further job.
    fn quiet<'a>(&'a self, runner: &'a RunnerName) -> Done<'a, ()>;
    /// Removes every row of exactly that name.
    fn strike<'a>(&'a self, runner: &'a RunnerName) -> Done<'a, ()>;
}
