//! A runner in its guest: a folder of its own, started once, ended with all it began.

use drover_actors::id::RunnerName;

use super::connector::Kit;
use crate::shell::THERE;
use crate::ssh::quote;

/// Where runners have their folders, beneath the login user's home.
const FOLDER: &str = ".drover-runners";

/// The path of a file in a runner's folder, relative to the home.
pub fn path(runner: &RunnerName, name: &str) -> String {
    format!("{FOLDER}/{runner}/{name}")
}

fn folder(runner: &RunnerName) -> String {
    format!("\"$HOME\"/{FOLDER}/{}", quote(runner.as_str()))
}

/// Ends with [`THERE`] when the runner was started already, else with 0 and its folder made.
pub fn begun(runner: &RunnerName) -> String {
    let folder = folder(runner);
    format!("test -d {folder}/begun && exit {THERE}; umask 077; mkdir -p {folder} || exit 2")
}

/// Starts the runner, once: whoever makes the mark starts it. Ends with 127 when its program is not
/// in the guest.
pub fn start(runner: &RunnerName, kit: &Kit) -> String {
    let (folder, program) = (folder(runner), quote(&kit.program));
    let command = quote(&format!("echo $$ > pid; {}", kit.command));
    format!(
        "cd {folder} || exit 2; command -v {program} >/dev/null || exit 127; \
         mkdir begun 2>/dev/null || exit 0; \
         setsid sh -c {command} >log 2>&1 </dev/null & exit 0"
    )
}

/// Ends the runner with everything it began, and removes its folder.
pub fn end(runner: &RunnerName) -> String {
    let folder = folder(runner);
    format!(
        "cd {folder} 2>/dev/null || exit 0; \
         if [ -s pid ]; then kill -TERM -- -\"$(cat pid)\" 2>/dev/null && sleep 1; \
         kill -KILL -- -\"$(cat pid)\" 2>/dev/null; fi; cd && rm -rf {folder}"
    )
}
