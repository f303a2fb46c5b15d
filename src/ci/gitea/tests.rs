//! What a guest receives for a runner of Gitea or Forgejo.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use drover_model::gate::Gate;
use std::process::Command;

use drover_model::id::{CloudId, TemplateId, VmId};
use drover_model::os::{LoginShell, Os};
use drover_model::ports::ShellTarget;
use drover_model::spec::TemplateSpec;
use proxmox_client::Tls;

use super::*;
use crate::Route;
use crate::connector::tests::{offered_for, started_for};

fn gitea(dialect: Dialect) -> Gitea {
    let http = Http::new(
        &"http://git.lan/ci".parse().unwrap(),
        &Tls::System,
        &Route::Direct,
        Gate::default(),
    )
    .unwrap();
    let (scope, token) = (Scope::Server, "a token".to_owned().into());
    let settings = Settings { dialect, scope, token };
    Gitea::new(http, &settings, None)
}

// Invariant: no list of processes shows the login of a runner.

#[test]
fn a_forgejo_runner_reads_its_token_from_a_file() {
    let forgejo = gitea(Dialect::Forgejo);
    let command = forgejo.one_job("a-uuid", &["linux:host".to_owned(), "x y:host".to_owned()]);
    assert_eq!(
        command,
        "exec forgejo-runner one-job --config config.yaml --url http://git.lan/ci/ --uuid \
         a-uuid --token-url \"file://$PWD/token\" --label linux:host --label 'x y:host' --wait"
    );
    assert_eq!(program_of(&command), ["forgejo-runner"]);
}

#[test]
fn the_number_of_a_version_is_read_whatever_follows() {
    let numbers = ["15.0.1+gitea-1.22.0", "v12", "7-dev", "dev"].map(major);
    assert_eq!(numbers, [Some(15), Some(12), Some(7), None]);
}

/// The bundle for a runner that the server registered with this answer.
fn kit_for(dialect: Dialect, answer: &str) -> RunnerBundle {
    kit_on(Os::Linux, dialect, answer)
}

fn kit_on(os: Os, dialect: Dialect, answer: &str) -> RunnerBundle {
    kit_of(&gitea(dialect), os, answer)
}

fn kit_of(gitea: &Gitea, os: Os, answer: &str) -> RunnerBundle {
    kit_with(gitea, os, &["linux".to_owned()], answer)
}

fn kit_with(gitea: &Gitea, os: Os, labels: &[String], answer: &str) -> RunnerBundle {
    let spec = TemplateSpec::bare(TemplateId::new(CloudId::new("c"), "t"), VmId(9000));
    let want = Want::Labels(labels.iter().cloned().collect());
    let name = RunnerName::new("drover-a-b");
    let address = "10.0.0.9".parse().unwrap();
    let target = ShellTarget { address, ssh: spec.ssh.clone(), os, host_keys: Vec::new() };
    let request = RegisterRequest { runner: &name, spec: &spec, want: &want, target: &target };
    let made: RegisterAnswer = serde_json::from_str(answer).unwrap();
    gitea.bundle(request, &made.runner)
}

/// The answer of Gitea 1.26.0 to `Register`.
const REGISTERED: &str = r#"{"runner":{"id":"2","uuid":"1f0c","token":"t0","name":"drover-a-b"}}"#;

// Invariant: a job says the size of its machine by a label, and its runner has that label.

#[test]
fn a_job_names_a_size_by_a_label_that_its_runner_offers() {
    let job = json!({"id": 1, "status": "waiting", "labels": ["linux", "cpu=8"]});
    let jobs = gitea(Dialect::Gitea).waiting(vec![serde_json::from_value(job).unwrap()]);
    let want = &jobs[0].want;
    assert_eq!(started_for(want).cores, Some(8));
    let labels = offered_for(want);
    let bundle = kit_with(&gitea(Dialect::Gitea), Os::Linux, &labels, REGISTERED);
    let file = bundle.files.iter().find(|file| file.name == ".runner").unwrap();
    let state: serde_json::Value = serde_json::from_slice(&file.content).unwrap();
    assert_eq!(state["labels"], json!(["cpu=8:host", "linux:host"]));
    let bundle = kit_with(&gitea(Dialect::Forgejo), Os::Linux, &labels, REGISTERED);
    assert!(
        bundle.command.contains(" --label cpu=8:host --label linux:host"),
        "{}",
        bundle.command
    );
}

// Invariant: the runner's program can read what it is given (`internal/pkg/config/registration.go`
// of gitea-runner 1.0.8).

#[test]
fn the_number_of_a_row_is_a_number_in_the_file_that_its_program_reads() {
    let bundle = kit_for(Dialect::Gitea, REGISTERED);
    let file = bundle.files.iter().find(|file| file.name == ".runner").unwrap();
    let state: serde_json::Value = serde_json::from_slice(&file.content).unwrap();
    assert_eq!((&state["id"], &state["uuid"]), (&json!(2), &json!("1f0c")));
    assert_eq!((&state["labels"], &state["ephemeral"]), (&json!(["linux:host"]), &json!(true)));
}

// Invariant: Forgejo's program receives its connection once, and only labels that it can read
// (`internal/app/cmd/args.go` and `internal/pkg/labels/labels.go` of forgejo-runner 13).

#[test]
fn a_forgejo_runner_has_its_connection_from_its_command_alone_and_an_own_command_from_a_file() {
    let names =
        |bundle: RunnerBundle| bundle.files.into_iter().map(|file| file.name).collect::<Vec<_>>();
    assert_eq!(names(kit_for(Dialect::Forgejo, REGISTERED)), ["config.yaml", "token"]);
    let mut own = gitea(Dialect::Forgejo);
    own.command = Some("exec mine".to_owned());
    assert_eq!(names(kit_of(&own, Os::Linux, REGISTERED)), [".runner", "config.yaml", "token"]);
}

#[test]
fn labels_that_its_program_would_read_as_something_else_are_not_offered() {
    let labels = ["linux", "python:3", "linux?x=1"].map(str::to_owned);
    let bundle = kit_with(&gitea(Dialect::Forgejo), Os::Linux, &labels, REGISTERED);
    assert!(bundle.command.contains(" --label linux:host --wait"), "{}", bundle.command);
}

#[test]
fn a_runner_of_windows_is_reported_the_same_by_the_same_files() {
    let bundle = kit_on(Os::Windows(LoginShell::Auto), Dialect::Gitea, REGISTERED);
    let names: Vec<&str> = bundle.files.iter().map(|file| file.name).collect();
    assert_eq!(names, [".runner", "config.yaml"]);
    let lines: Vec<&str> = bundle.command.lines().collect();
    assert_eq!(lines, GITEA_RUN_BATCH);
    assert!(lines[0].starts_with("where /q gitea-runner && "), "{lines:?}");
    assert_eq!(
        (&bundle.programs[..], bundle.may_detach),
        (&GITEA_PROGRAMS.map(str::to_owned)[..], false)
    );
}

#[test]
fn the_program_is_found_by_the_name_that_it_has_and_by_the_one_that_it_had() {
    let bundle = kit_for(Dialect::Gitea, REGISTERED);
    assert_eq!(bundle.programs, ["gitea-runner", "act_runner"]);
    for name in ["gitea-runner", "act_runner"] {
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/bin/echo", dir.path().join(name)).unwrap();
        let path = format!("{}:/usr/bin:/bin", dir.path().display());
        let out =
            Command::new("sh").args(["-c", &bundle.command]).env("PATH", path).output().unwrap();
        let said = String::from_utf8(out.stdout).unwrap();
        assert_eq!(said, "daemon --config config.yaml\n", "{name}");
    }
}
