//! Scripts for a runner in a Windows guest: the same folder and marks as in the module `guest`,
//! with the command as a batch file.

use bytes::Bytes;
use drover_model::id::RunnerName;
use drover_scripts::windows::{Script, runner_watch};
use drover_shell::EXIT_ALREADY_DONE;
use secrecy::SecretString;
use serde_json::{Map, Value};

use crate::connector::{RunnerBundle, RunnerFile, program_of};
use crate::guest::LOG_TAIL_BYTES;

/// The lines before a command: they set the console to UTF-8 and print nothing.
const BATCH_PROLOGUE: &str = "@echo off\r\n@chcp 65001 >nul\r\n";

/// Exits with [`EXIT_ALREADY_DONE`] where the runner was started before, else with 0 and with its folder made.
pub(crate) fn prepare(runner: &RunnerName) -> String {
    Script::RunnerStarted.command(&[runner.as_str(), &EXIT_ALREADY_DONE.to_string()])
}

/// Starts the runner once. Exits with 127 where none of its programs is in the guest.
pub(crate) fn start(runner: &RunnerName, bundle: &RunnerBundle) -> String {
    let success = if bundle.may_detach { "left" } else { "ended" };
    let programs = bundle.programs.iter().map(String::as_str);
    let arguments: Vec<&str> = [runner.as_str(), success].into_iter().chain(programs).collect();
    Script::RunnerStart.command(&arguments)
}

/// Prints the status of the runner, in the form of [`crate::guest::status`].
pub(crate) fn status(runner: &RunnerName) -> String {
    Script::RunnerStatus.command(&[runner.as_str(), &LOG_TAIL_BYTES.to_string()])
}

/// Stops the runner with everything it started, and removes its folder.
pub(crate) fn stop(runner: &RunnerName) -> String {
    Script::RunnerEnd.command(&[runner.as_str()])
}

/// The files that start a runner, beside those of its bundle.
pub(crate) fn files(bundle: &RunnerBundle) -> [RunnerFile; 2] {
    let lines = bundle.command.lines().flat_map(|line| [line, "\r\n"]);
    let command: String = std::iter::once(BATCH_PROLOGUE).chain(lines).collect();
    [
        RunnerFile { name: "run.cmd", content: Bytes::from(command) },
        RunnerFile { name: "watch.ps1", content: Bytes::from(runner_watch()) },
    ]
}

/// A bundle of variables and files for the operator's own command, or else for `own`.
pub(crate) fn bundle(
    (command, own): (Option<&str>, &str),
    variables: &[(&str, &str)],
    mut files: Vec<RunnerFile>,
    secrets: Vec<SecretString>,
) -> RunnerBundle {
    if !variables.is_empty() {
        let all = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).into()));
        let all = Value::Object(all.collect::<Map<String, Value>>());
        files.push(RunnerFile { name: "env.json", content: Bytes::from(all.to_string()) });
    }
    // Only `cmd.exe` can say which program a line of the operator's starts.
    let programs = if command.is_some() { Vec::new() } else { program_of(own) };
    let may_detach = command.is_some();
    RunnerBundle {
        files,
        programs,
        command: command.unwrap_or(own).to_owned(),
        may_detach,
        secrets,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name() -> RunnerName {
        RunnerName::new("drover-a1b2c3d4-0123456789abcdef")
    }

    // Invariant: a runner's command and its secrets are in files, and no command line shows them.

    #[test]
    fn a_runner_is_started_by_files_and_scripts_of_windows() {
        let secrets = vec!["s3cret".to_owned().into()];
        let variables = [("TOKEN", "s3cret"), ("URL", "https://ci \"x\"")];
        let bundle = bundle((None, "runner.exe run"), &variables, Vec::new(), secrets);
        assert_eq!(
            (bundle.programs.as_slice(), bundle.may_detach),
            (&["runner.exe".to_owned()][..], false)
        );
        let text = |file: &RunnerFile| String::from_utf8_lossy(&file.content).into_owned();
        let env: Value = serde_json::from_str(&text(&bundle.files[0])).unwrap_or_default();
        assert_eq!(env, serde_json::json!({"TOKEN": "s3cret", "URL": "https://ci \"x\""}));
        let [run, watched] = files(&bundle);
        assert_eq!(text(&run), "@echo off\r\n@chcp 65001 >nul\r\nrunner.exe run\r\n");
        assert!(text(&watched).contains("call run.cmd >log 2>&1 <nul"));
        let start = start(&name(), &bundle);
        let wanted = [name().as_str(), "ended", "runner.exe"].map(str::to_owned);
        let wanted: Vec<&str> = wanted.iter().map(String::as_str).collect();
        assert_eq!(start, Script::RunnerStart.command(&wanted));
    }

    #[test]
    fn a_command_of_the_operators_own_may_be_several_lines_and_leave_its_runner_running() {
        let own = bundle((Some("cd x\nrunner %%i"), "runner"), &[], Vec::new(), Vec::new());
        assert!(own.may_detach && own.programs.is_empty() && own.files.is_empty());
        let [run, _] = files(&own);
        assert!(run.content.ends_with(b"nul\r\ncd x\r\nrunner %%i\r\n"), "{:?}", run.content);
        let started = Script::RunnerStarted.command(&[name().as_str(), "33"]);
        assert_eq!(super::prepare(&name()), started);
        assert_eq!(status(&name()), Script::RunnerStatus.command(&[name().as_str(), "8192"]));
        assert_eq!(stop(&name()), Script::RunnerEnd.command(&[name().as_str()]));
    }
}
