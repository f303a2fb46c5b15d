//! The trait that every CI system implements, and what a runner's guest receives.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use causes::chain;
use drover_model::demand::words::Words;
use drover_model::id::RunnerName;
use drover_model::ports::{Known, ShellTarget, SourceObservation};
use drover_model::record::Want;
use drover_model::spec::TemplateSpec;
use futures_util::future::BoxFuture;
use secrecy::SecretString;
use tokio::sync::oneshot;

use crate::error::DemandError;
use crate::finding::Finding;
use crate::finding::Severity;
use crate::state_file::StateFile;

/// A file for a runner's folder in the guest.
pub struct RunnerFile {
    /// The file name in that folder.
    pub name: &'static str,
    /// The content, which may be secret.
    pub content: Bytes,
}

/// What a guest receives to start one runner; it serves this runner and nothing else.
pub struct RunnerBundle {
    /// Files that only the login user can read.
    pub files: Vec<RunnerFile>,
    /// Programs of which one must be in the guest, so that a missing one is reported by name; empty
    /// where the program is not known.
    pub programs: Vec<String>,
    /// A shell command that runs the runner to its end, in its folder.
    pub command: String,
    /// Whether the command may succeed and leave the runner running, for example as a service. A
    /// command of the operator's own may.
    pub may_detach: bool,
    /// Secrets in the files, to be masked in the runner's log.
    pub secrets: Vec<SecretString>,
}

/// The program that a shell command starts, without the assignments before it; empty where the
/// command sets a `PATH` of its own.
pub(crate) fn program_of(command: &str) -> Vec<String> {
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

/// A runner to be registered.
#[derive(Debug, Clone, Copy)]
pub struct RegisterRequest<'a> {
    /// The name of its row.
    pub runner: &'a RunnerName,
    /// The template of its agent, as it was when the agent was created.
    pub spec: &'a TemplateSpec,
    /// The demand that the agent was created for.
    pub want: &'a Want,
    /// The guest that the runner runs in.
    pub target: &'a ShellTarget,
}

impl RegisterRequest<'_> {
    /// The labels that the runner offers: those of its template, and those of the demand, which a
    /// label mapping may have added or which say how large its agent is.
    pub fn labels(&self) -> BTreeSet<String> {
        let mut labels = self.spec.labels.clone();
        match self.want.plain() {
            Want::Labels(wanted) => labels.extend(wanted.iter().cloned()),
            Want::Expression(wanted) => {
                let names = wanted.names().into_iter();
                let sizes = self.spec.size_labels.had_by(self.spec, names);
                labels.extend(sizes.map(str::to_owned));
            }
            Want::Template(_) | Want::Sized(..) => {}
        }
        labels
    }
}

/// Requests a poll of the source.
pub type Wake = Arc<dyn Fn() + Send + Sync>;

/// Resolves when a connector is replaced or removed, or when the service stops.
pub type StopSignal = oneshot::Receiver<()>;

/// The future that a call to a CI system returns.
pub(crate) type ConnectorFuture<'a, T> = BoxFuture<'a, Result<T, DemandError>>;

/// One CI system, as configured.
pub trait Connector: Send + Sync {
    /// Reads drover's runners, then the jobs that wait. Each of the `known` runners that no list
    /// shows is asked for by itself, so that a runner is reported as gone only where that is
    /// certain.
    fn poll<'a>(&'a self, known: &'a Known) -> ConnectorFuture<'a, SourceObservation>;
    /// Makes the runner's row; replaces any other row of that name.
    fn register<'a>(&'a self, request: RegisterRequest<'a>) -> ConnectorFuture<'a, RunnerBundle>;
    /// Lets a runner take no further job.
    fn cordon<'a>(&'a self, runner: &'a RunnerName) -> ConnectorFuture<'a, ()>;
    /// Removes every row of exactly this name.
    fn deregister<'a>(&'a self, runner: &'a RunnerName) -> ConnectorFuture<'a, ()>;
    /// Notes what a verified webhook is about, for the poll that follows.
    fn hint(&self, _body: &[u8]) {}
    /// A background task that runs between polls until `ended`. It requests polls by `wake` and
    /// stores in `kept` what it must know after a restart. None where the system needs no such
    /// task.
    fn watch(
        self: Arc<Self>,
        _wake: Wake,
        _ended: StopSignal,
        _kept: StateFile,
    ) -> Option<BoxFuture<'static, ()>> {
        None
    }

    /// The place of objects that drover stores at the source for itself, shared by all sources with
    /// the same place; none where it stores nothing.
    fn place(&self) -> Option<&str> {
        None
    }

    /// Removes these objects, once no source of that place is configured.
    fn clean_up(&self) -> ConnectorFuture<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Says that a runner's program is too old for its source, by how it ended and what it logged:
    /// its version, the last day of that version where it is known, and what to do.
    fn too_old<'a>(&'a self, _words: &'a Words) -> BoxFuture<'a, Option<String>> {
        Box::pin(std::future::ready(None))
    }

    /// Checks without a change that the login may do all that the other calls need. A right that
    /// only a change would show is reported as untested. Findings made before an error stay valid.
    fn check<'a>(&'a self, found: &'a mut Vec<Finding>) -> ConnectorFuture<'a, ()> {
        Box::pin(async move {
            found.push(Finding::listed(&self.poll(&Known::new()).await?));
            Ok(())
        })
    }

    /// Why the login cannot register runners, as far as that can be known without registering one;
    /// none where no reason is known.
    fn obstacle(&self) -> ConnectorFuture<'_, Option<String>> {
        Box::pin(async move {
            let mut found = Vec::new();
            refusal_text(self.check(&mut found).await).map(|refusal| {
                let failed = found.into_iter().find(|finding| finding.severity == Severity::Fail);
                refusal.or(failed.map(|finding| format!("{}: {}", finding.about, finding.text)))
            })
        })
    }
}

/// The reason why a call that needs the right to register runners was refused; none where it
/// succeeded, and the error where it failed for another reason.
pub(crate) fn refusal_text<T>(
    asked: Result<T, DemandError>,
) -> Result<Option<String>, DemandError> {
    match asked {
        Ok(_) => Ok(None),
        Err(error @ DemandError::Status { status: 401 | 403 | 404 | 410, .. }) => {
            Ok(Some(chain(&error)))
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    #![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

    use drover_model::id::{CloudId, TemplateId, VmId};
    use drover_model::labels::LabelExpression;
    use drover_model::os::Os;
    use drover_model::size::{SizeLabel, SizeLabels};

    use super::*;

    /// The agent that is started for a demand: of a template `linux` with two cores, of which labels make
    /// up to sixteen.
    pub(crate) fn started_for(want: &Want) -> TemplateSpec {
        let mut spec = TemplateSpec::bare(TemplateId::new(CloudId::new("c"), "t"), VmId(9000));
        (spec.labels, spec.cores) = (["linux".to_owned()].into(), Some(2));
        let cores = Some(SizeLabel { label: "cpu".into(), min: 1, max: 16 });
        spec.size_labels = SizeLabels { cores, ..SizeLabels::default() };
        let met = spec.size_labels.met(&spec.labels, want, (|_: &str| false, false));
        let asked = met.into_iter().next().unwrap().unwrap();
        spec.sized(spec.size_for(asked).unwrap())
    }

    /// The labels that a runner offers which is started for a demand.
    pub(crate) fn offered_for(want: &Want) -> Vec<String> {
        let spec = started_for(want);
        let target = ShellTarget {
            address: "10.0.0.9".parse().unwrap(),
            ssh: spec.ssh.clone(),
            os: Os::Linux,
            host_keys: Vec::new(),
        };
        let runner = RunnerName::new("drover-a-b");
        let request = RegisterRequest { runner: &runner, spec: &spec, want, target: &target };
        request.labels().into_iter().collect()
    }

    // Invariant: a runner offers what its job wants of the size of its machine, and nothing that its
    // machine is not.

    #[test]
    fn a_runner_offers_the_size_that_it_was_started_for() {
        let set = |text: &str| Want::Labels(text.split(' ').map(str::to_owned).collect());
        let expression = |text: &str| Want::Expression(LabelExpression::parse(text).unwrap());
        for (want, cores, labels) in [
            (set("linux"), 2, "linux"),
            (set("linux cpu=8"), 8, "cpu=8 linux"),
            (set("linux cpu=2"), 2, "cpu=2 linux"),
            (expression("linux && (cpu=8 || cpu=4)"), 4, "cpu=4 linux"),
            (expression("linux && !cpu=8"), 2, "linux"),
        ] {
            assert_eq!(started_for(&want).cores, Some(cores), "{want:?}");
            assert_eq!(offered_for(&want).join(" "), labels, "{want:?}");
        }
    }

    // Invariant: the program of a command is found behind what is set before it.

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
