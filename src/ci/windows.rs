//! A runner in a guest of Windows: the same folder, with the command as a batch file in it.

use bytes::Bytes;
use drover_model::id::RunnerName;
use drover_scripts::windows::{Script, runner_watch};
use drover_shell::EXIT_ALREADY_DONE;
use secrecy::SecretString;
use serde_json::{Map, Value};

use crate::connector::{Kit, KitFile, program_of};
use crate::guest::LOG_BYTES;

/// What sets the console to UTF-8 before a command, and shows nothing of it.
const BEFORE: &str = "@echo off\r\n@chcp 65001 >nul\r\n";

/// Ends with [`EXIT_ALREADY_DONE`] when the runner was started already, else with 0 and its folder made.
pub fn begun(runner: &RunnerName) -> String {
    Script::RunnerStarted.command(&[runner.as_str(), &EXIT_ALREADY_DONE.to_string()])
}

/// Starts the runner, once. Ends with 127 when none of its programs is in the guest.
pub fn start(runner: &RunnerName, kit: &Kit) -> String {
    let well = if kit.leaves { "left" } else { "ended" };
    let programs = kit.programs.iter().map(String::as_str);
    let arguments: Vec<&str> = [runner.as_str(), well].into_iter().chain(programs).collect();
    Script::RunnerStart.command(&arguments)
}

/// Tells how the runner stands, as [`crate::guest::words`] does.
pub fn words(runner: &RunnerName) -> String {
    Script::RunnerStatus.command(&[runner.as_str(), &LOG_BYTES.to_string()])
}

/// Ends the runner with everything it began, and removes its folder.
pub fn end(runner: &RunnerName) -> String {
    Script::RunnerEnd.command(&[runner.as_str()])
}

/// The files that a runner is started by, beside those of its kit.
pub fn files(kit: &Kit) -> [KitFile; 2] {
    let lines = kit.command.lines().flat_map(|line| [line, "\r\n"]);
    let command: String = std::iter::once(BEFORE).chain(lines).collect();
    [
        KitFile { name: "run.cmd", content: Bytes::from(command) },
        KitFile { name: "watch.ps1", content: Bytes::from(runner_watch()) },
    ]
}

/// A kit of variables and files for the operator's own command, or for this one.
pub fn kit(
    (command, own): (Option<&str>, &str),
    variables: &[(&str, &str)],
    mut files: Vec<KitFile>,
    secrets: Vec<SecretString>,
) -> Kit {
    if !variables.is_empty() {
        let all = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).into()));
        let all = Value::Object(all.collect::<Map<String, Value>>());
        files.push(KitFile { name: "env.json", content: Bytes::from(all.to_string()) });
    }
    // Which program a line of the operator's begins with is for `cmd.exe` to say.
    let programs = if command.is_some() { Vec::new() } else { program_of(own) };
    let leaves = command.is_some();
    Kit { files, programs, command: command.unwrap_or(own).to_owned(), leaves, secrets }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name() -> RunnerName {
        RunnerName::new("drover-a1b2c3d4-0123456789abcdef")
    }

    // Invariant: a runner's command is a file, its secrets are in files, and no command shows them.

    #[test]
    fn a_runner_is_started_by_files_and_scripts_of_windows() {
        let secrets = vec!["s3cret".to_owned().into()];
        let variables = [("TOKEN", "s3cret"), ("URL", "https://ci \"x\"")];
        let kit = kit((None, "runner.exe run"), &variables, Vec::new(), secrets);
        assert_eq!((kit.programs.as_slice(), kit.leaves), (&["runner.exe".to_owned()][..], false));
        let text = |file: &KitFile| String::from_utf8_lossy(&file.content).into_owned();
        let env: Value = serde_json::from_str(&text(&kit.files[0])).unwrap_or_default();
        assert_eq!(env, serde_json::json!({"TOKEN": "s3cret", "URL": "https://ci \"x\""}));
        let [run, watched] = files(&kit);
        assert_eq!(text(&run), "@echo off\r\n@chcp 65001 >nul\r\nrunner.exe run\r\n");
        assert!(text(&watched).contains("call run.cmd >log 2>&1 <nul"));
        let start = start(&name(), &kit);
        let wanted = [name().as_str(), "ended", "runner.exe"].map(str::to_owned);
        let wanted: Vec<&str> = wanted.iter().map(String::as_str).collect();
        assert_eq!(start, Script::RunnerStart.command(&wanted));
    }

    #[test]
    fn a_command_of_the_operators_own_may_be_several_lines_and_leave_its_runner_running() {
        let own = kit((Some("cd x\nrunner %%i"), "runner"), &[], Vec::new(), Vec::new());
        assert!(own.leaves && own.programs.is_empty() && own.files.is_empty());
        let [run, _] = files(&own);
        assert!(run.content.ends_with(b"nul\r\ncd x\r\nrunner %%i\r\n"), "{:?}", run.content);
        let begun = Script::RunnerStarted.command(&[name().as_str(), "33"]);
        assert_eq!(super::begun(&name()), begun);
        assert_eq!(words(&name()), Script::RunnerStatus.command(&[name().as_str(), "8192"]));
        assert_eq!(end(&name()), Script::RunnerEnd.command(&[name().as_str()]));
    }
}
