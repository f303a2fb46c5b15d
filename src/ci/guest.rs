//! Scripts for a runner in a Linux guest: a folder of its own, a start that happens once, a status,
//! and an end that stops everything the runner started.
//!
//! The folder is `~/.drover-runners/NAME`. It holds the runner's files and these marks:
//!
//! - `started`, a directory: made by the one caller that starts the runner,
//! - `since`: the Unix time of the start,
//! - `pid`: the process group of the runner,
//! - `end`: `ended` or `left`, the exit status and the seconds, once the command has ended,
//! - `log`: the output of the command.
//!
//! The `windows` module does the same with PowerShell.

use drover_model::id::RunnerName;
use drover_shell::EXIT_ALREADY_DONE;
use drover_ssh::quote;

use crate::connector::RunnerBundle;

/// How many bytes of the end of a runner's log are read.
pub(crate) const LOG_TAIL_BYTES: usize = 8192;

/// The folder of all runners, relative to the login user's home.
const RUNNERS_FOLDER: &str = ".drover-runners";

/// The path of a file in a runner's folder, relative to the home.
pub(crate) fn path(runner: &RunnerName, name: &str) -> String {
    format!("{RUNNERS_FOLDER}/{runner}/{name}")
}

fn folder(runner: &RunnerName) -> String {
    format!("\"$HOME\"/{RUNNERS_FOLDER}/{}", quote(runner.as_str()))
}

/// Exits with [`EXIT_ALREADY_DONE`] where the runner was started before, else with 0 and with its folder made.
pub(crate) fn prepare(runner: &RunnerName) -> String {
    let folder = folder(runner);
    format!(
        "test -d {folder}/begun && exit {EXIT_ALREADY_DONE}; umask 077; mkdir -p {folder} || exit 2"
    )
}

/// Starts the runner once: of several callers the one that makes the mark `started` starts it. Exits
/// with 127 where none of its programs is in the guest, and with 3 where the disk takes no file.
pub(crate) fn start(runner: &RunnerName, bundle: &RunnerBundle) -> String {
    let folder = folder(runner);
    let found = bundle.programs.iter().map(|program| format!("command -v {}", quote(program)));
    let found = found.collect::<Vec<_>>().join(" || ");
    let found = if found.is_empty() { ":" } else { &found };
    let success = if bundle.may_detach { "left" } else { "ended" };
    let watched = quote(&format!(
        "echo $$ > pid && [ -s pid ] || exit 1; sh -c \"$1\"; code=$?; life=ended; \
         [ $code != 0 ] || life={success}; \
         echo \"$life $code $(( $(date +%s) - $(cat since) ))\" > end.new; mv end.new end"
    ));
    let command = quote(&bundle.command);
    format!(
        "cd {folder} || exit 2; {{ {found}; }} >/dev/null || exit 127; \
         {{ date +%s > since.new && [ -s since.new ]; }} 2>/dev/null || \
         {{ echo \"cannot write a file in the guest: $(df -P . | tail -n 1)\"; exit 3; }}; \
         if ! mkdir begun 2>/dev/null; then [ -d begun ] && exit 0; \
         echo 'cannot make a folder in the guest'; exit 3; fi; mv since.new since; \
         setsid sh -c {watched} drover-runner {command} >log 2>&1 </dev/null & \
         tries=0; until [ -s pid ] || [ -s end ] || [ $tries -ge 250 ]; do tries=$((tries+1)); \
         sleep 0.02 2>/dev/null || sleep 1; done; [ -s pid ] || [ -s end ] && exit 0; \
         rm -rf begun pid; cat log; echo 'cannot write a file in the guest'; exit 3"
    )
}

/// Prints the status of the runner on one line: `runs`, `ended`, `left` or `died`, its exit status,
/// its seconds, and for an ended one the seconds since. The end of its log follows.
pub(crate) fn status(runner: &RunnerName) -> String {
    let folder = folder(runner);
    // The process is checked first: it writes `end` before it goes. A runner without a pid for more
    // than a minute was cut off between the mark and its start.
    format!(
        "cd {folder} 2>/dev/null || exit 2; lives=yes; \
         if [ -s pid ]; then kill -0 \"$(cat pid)\" 2>/dev/null || lives=no; \
         elif [ -n \"$(find begun -prune -mmin +1 2>/dev/null)\" ]; then lives=no; fi; \
         began=$(cat since 2>/dev/null || date +%s); span=$(( $(date +%s) - began )); \
         if [ -s end ]; then read -r life code ran < end; \
         ago=$(( $(date +%s) - began - ran )); [ \"$ago\" -ge 0 ] || ago=0; \
         echo \"$life $code $ran $ago\" | head -c 64; \
         elif [ $lives = no ]; then echo died 0 $span; else echo runs 0 $span; fi; \
         tail -c {LOG_TAIL_BYTES} log 2>/dev/null; exit 0"
    )
}

/// Stops the runner with everything it started, and removes its folder. A group is written as every
/// `kill` reads it: that of dash takes no `--` behind `-TERM`, and busybox takes none at all.
pub(crate) fn stop(runner: &RunnerName) -> String {
    let folder = folder(runner);
    format!(
        "cd {folder} 2>/dev/null || exit 0; \
         if [ -s pid ]; then kill -TERM -\"$(cat pid)\" 2>/dev/null && sleep 1; \
         kill -KILL -\"$(cat pid)\" 2>/dev/null; fi; cd && rm -rf {folder}"
    )
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

    use std::os::unix::process::CommandExt as _;
    use std::path::{Path, PathBuf};
    use std::process::Command;

    use super::*;

    fn name() -> RunnerName {
        RunnerName::new("drover-a1b2c3d4-0123456789abcdef")
    }

    fn shell(home: &Path, command: &str) -> (Option<i32>, String) {
        let mut sh = Command::new("sh");
        let out = sh.args(["-c", command]).env("HOME", home).output().unwrap();
        (out.status.code(), String::from_utf8(out.stdout).unwrap())
    }

    fn folder_of(home: &Path) -> PathBuf {
        home.join(RUNNERS_FOLDER).join(name().as_str())
    }

    /// Whether a process runs. One that ended may wait for its parent.
    fn is_alive(pid: &str) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim()));
        let after_name = |stat: String| Some(stat.rsplit_once(") ")?.1.to_owned());
        stat.ok().and_then(after_name).is_some_and(|rest| !rest.starts_with(['Z', 'X']))
    }

    /// Starts a runner and returns its status once that begins with `life`.
    fn reported(command: &str, may_detach: bool, life: &str) -> String {
        let home = tempfile::tempdir().unwrap();
        let home = home.path();
        let (programs, command) = (vec!["sh".to_owned()], command.to_owned());
        let (files, secrets) = (Vec::new(), Vec::new());
        let bundle = RunnerBundle { files, secrets, programs, command, may_detach };
        assert_eq!(shell(home, &prepare(&name())).0, Some(0));
        assert_eq!(shell(home, &start(&name(), &bundle)).0, Some(0));
        assert_eq!(shell(home, &prepare(&name())).0, i32::try_from(EXIT_ALREADY_DONE).ok());
        let words = loop {
            let (code, words) = shell(home, &status(&name()));
            assert_eq!(code, Some(0));
            if words.starts_with(life) {
                break words;
            }
        };
        // A command may have removed its own mark.
        let pid = std::fs::read_to_string(folder_of(home).join("pid")).ok();
        shell(home, &stop(&name()));
        assert_eq!(shell(home, &super::status(&name())).0, Some(2), "nothing is left");
        assert!(!pid.is_some_and(|pid| is_alive(&pid)), "it still runs");
        words
    }

    // Invariant: how a runner ended is known for as long as its folder exists.

    #[test]
    fn a_runner_that_ended_is_reported_with_its_status_and_its_log() {
        let words =
            reported("set -- a; echo \"$@\" it\\'s; exec sh -c 'echo old >&2; exit 7'", false, "e");
        let (first, log) = words.split_once('\n').unwrap();
        assert!(first.starts_with("ended 7 "), "{first}");
        assert_eq!(log, "a it's\nold\n");
    }

    #[test]
    fn one_that_runs_and_one_whose_shell_was_killed_are_reported_apart() {
        let words = reported("echo here; exec sleep 1000", false, "runs");
        assert!(words.starts_with("runs 0 "), "{words}");
        let words = reported("kill -KILL $(cat pid)", false, "died");
        assert!(words.starts_with("died 0 "), "{words}");
    }

    #[test]
    fn one_that_is_stopped_leaves_no_process_in_any_shell() {
        for shell_of_guest in [&["dash"][..], &["bash"], &["busybox", "sh"]] {
            let with = |command: &str| {
                let mut shell = Command::new(shell_of_guest[0]);
                shell.args(&shell_of_guest[1..]).args(["-c", command]);
                shell
            };
            // A machine need not have all of them.
            if with(":").status().is_err() {
                continue;
            }
            let home = tempfile::tempdir().unwrap();
            let home = home.path();
            let folder = folder_of(home);
            std::fs::create_dir_all(&folder).unwrap();
            let mut run = Command::new("sh");
            let mut runs = run.args(["-c", "sleep 1000; true"]).process_group(0).spawn().unwrap();
            std::fs::write(folder.join("pid"), runs.id().to_string()).unwrap();
            let stopped = with(&stop(&name())).env("HOME", home).status().unwrap();
            assert!(stopped.success(), "{shell_of_guest:?}");
            assert!(!folder.exists());
            let status = runs.try_wait().unwrap();
            assert!(status.is_some(), "{shell_of_guest:?}: it still runs");
        }
    }

    #[test]
    fn one_that_was_cut_off_before_it_started_has_died() {
        let home = tempfile::tempdir().unwrap();
        let home = home.path();
        shell(home, &prepare(&name()));
        let mark = format!("{}/begun", folder(&name()));
        assert_eq!(shell(home, &format!("mkdir {mark}")).0, Some(0));
        assert!(shell(home, &status(&name())).1.starts_with("runs 0 "), "it starts this moment");
        assert_eq!(shell(home, &format!("touch -d '5 minutes ago' {mark}")).0, Some(0));
        assert!(shell(home, &status(&name())).1.starts_with("died 0 "));
    }

    // Invariant: a runner is not started in a guest that cannot store its status, and that is said.

    #[test]
    fn a_runner_is_not_started_in_a_guest_whose_disk_takes_no_file() {
        let home = tempfile::tempdir().unwrap();
        let home = home.path();
        let (files, secrets) = (Vec::new(), Vec::new());
        let (programs, command) = (vec!["sh".to_owned()], "mkdir ../../ran".to_owned());
        let bundle = RunnerBundle { files, secrets, programs, command, may_detach: false };
        shell(home, &prepare(&name()));
        let full = format!("trap '' XFSZ; ulimit -f 0; {}", start(&name(), &bundle));
        let (code, said) = shell(home, &full);
        assert_eq!(code, Some(3), "{said}");
        assert!(said.contains("cannot write a file in the guest"), "{said}");
        assert!(!home.join("ran").exists());
        // Once there is room, the runner is started as if nothing had happened.
        assert_eq!(shell(home, &prepare(&name())).0, Some(0));
        assert_eq!(shell(home, &start(&name(), &bundle)).0, Some(0));
        while !shell(home, &status(&name())).1.starts_with("ended 0 ") {}
        assert!(home.join("ran").exists());
    }

    #[test]
    fn a_command_that_takes_its_own_mark_away_is_started() {
        let words = reported("rm -f pid", true, "left 0 ");
        let fields: Vec<&str> = words.lines().next().unwrap().split(' ').collect();
        assert_eq!((fields.len(), fields[3].len()), (4, 1), "{words}");
    }

    #[test]
    fn a_command_that_may_leave_its_runner_running_has_not_ended_when_it_ends_well() {
        assert!(reported("true", true, "l").starts_with("left 0 "));
        assert!(reported("exit 3", true, "e").starts_with("ended 3 "));
        assert!(reported("true", false, "e").starts_with("ended 0 "));
    }
}
