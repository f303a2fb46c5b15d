//! A runner in its guest: a folder of its own, started once, ended with all it began.

use drover_model::id::RunnerName;
use drover_shell::EXIT_ALREADY_DONE;
use drover_ssh::quote;

use crate::connector::Kit;

/// How much of the end of a runner's log is read.
pub const LOG_BYTES: usize = 8192;

/// Where runners have their folders, beneath the login user's home.
const FOLDER: &str = ".drover-runners";

/// The path of a file in a runner's folder, relative to the home.
pub fn path(runner: &RunnerName, name: &str) -> String {
    format!("{FOLDER}/{runner}/{name}")
}

fn folder(runner: &RunnerName) -> String {
    format!("\"$HOME\"/{FOLDER}/{}", quote(runner.as_str()))
}

/// Ends with [`EXIT_ALREADY_DONE`] when the runner was started already, else with 0 and its folder made.
pub fn begun(runner: &RunnerName) -> String {
    let folder = folder(runner);
    format!(
        "test -d {folder}/begun && exit {EXIT_ALREADY_DONE}; umask 077; mkdir -p {folder} || exit 2"
    )
}

/// Starts the runner, once: whoever makes the mark starts it. Ends with 127 when none of its programs is
/// in the guest.
pub fn start(runner: &RunnerName, kit: &Kit) -> String {
    let folder = folder(runner);
    let found = kit.programs.iter().map(|program| format!("command -v {}", quote(program)));
    let found = found.collect::<Vec<_>>().join(" || ");
    let found = if found.is_empty() { ":" } else { &found };
    let well = if kit.leaves { "left" } else { "ended" };
    let watched = quote(&format!(
        "echo $$ > pid && [ -s pid ] || exit 1; sh -c \"$1\"; code=$?; life=ended; \
         [ $code != 0 ] || life={well}; \
         echo \"$life $code $(( $(date +%s) - $(cat since) ))\" > end.new; mv end.new end"
    ));
    let command = quote(&kit.command);
    format!(
        "cd {folder} || exit 2; {{ {found}; }} >/dev/null || exit 127; \
         {{ date +%s > since.new && [ -s since.new ]; }} 2>/dev/null || \
         {{ echo \"its disk takes no file: $(df -P . | tail -n 1)\"; exit 3; }}; \
         if ! mkdir begun 2>/dev/null; then [ -d begun ] && exit 0; \
         echo 'its disk takes no folder'; exit 3; fi; mv since.new since; \
         setsid sh -c {watched} drover-runner {command} >log 2>&1 </dev/null & \
         tries=0; until [ -s pid ] || [ -s end ] || [ $tries -ge 250 ]; do tries=$((tries+1)); \
         sleep 0.02 2>/dev/null || sleep 1; done; [ -s pid ] || [ -s end ] && exit 0; \
         rm -rf begun pid; cat log; echo 'its disk took no file'; exit 3"
    )
}

/// Tells how the runner stands, as `runs`, `ended`, `left` or `died` with its exit status and its
/// seconds, and on further lines the end of its log.
pub fn words(runner: &RunnerName) -> String {
    let folder = folder(runner);
    // Whether it lives is looked at first: its end is there before it is gone. One that has no pid for
    // minutes was cut off between the mark and its start.
    format!(
        "cd {folder} 2>/dev/null || exit 2; lives=yes; \
         if [ -s pid ]; then kill -0 \"$(cat pid)\" 2>/dev/null || lives=no; \
         elif [ -n \"$(find begun -prune -mmin +1 2>/dev/null)\" ]; then lives=no; fi; \
         began=$(cat since 2>/dev/null || date +%s); span=$(( $(date +%s) - began )); \
         if [ -s end ]; then read -r life code ran < end; \
         ago=$(( $(date +%s) - began - ran )); [ \"$ago\" -ge 0 ] || ago=0; \
         echo \"$life $code $ran $ago\" | head -c 64; \
         elif [ $lives = no ]; then echo died 0 $span; else echo runs 0 $span; fi; \
         tail -c {LOG_BYTES} log 2>/dev/null; exit 0"
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

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

    use std::path::Path;
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

    /// Starts a runner and gives what is told of it once that begins so.
    fn told(command: &str, leaves: bool, life: &str) -> String {
        let home = tempfile::tempdir().unwrap();
        let home = home.path();
        let (programs, command) = (vec!["sh".to_owned()], command.to_owned());
        let (files, secrets) = (Vec::new(), Vec::new());
        let kit = Kit { files, secrets, programs, command, leaves };
        assert_eq!(shell(home, &begun(&name())).0, Some(0));
        assert_eq!(shell(home, &start(&name(), &kit)).0, Some(0));
        assert_eq!(shell(home, &begun(&name())).0, i32::try_from(EXIT_ALREADY_DONE).ok());
        let words = loop {
            let (code, words) = shell(home, &words(&name()));
            assert_eq!(code, Some(0));
            if words.starts_with(life) {
                break words;
            }
        };
        shell(home, &end(&name()));
        assert_eq!(shell(home, &super::words(&name())).0, Some(2), "nothing is left");
        words
    }

    // Invariant: how a runner ended is known for as long as its folder is there.

    #[test]
    fn a_runner_that_ended_is_told_with_its_status_and_its_log() {
        let words =
            told("set -- a; echo \"$@\" it\\'s; exec sh -c 'echo old >&2; exit 7'", false, "e");
        let (first, log) = words.split_once('\n').unwrap();
        assert!(first.starts_with("ended 7 "), "{first}");
        assert_eq!(log, "a it's\nold\n");
    }

    #[test]
    fn one_that_runs_and_one_whose_shell_was_killed_are_told_apart() {
        let words = told("echo here; exec sleep 1000", false, "runs");
        assert!(words.starts_with("runs 0 "), "{words}");
        let words = told("kill -KILL $(cat pid)", false, "died");
        assert!(words.starts_with("died 0 "), "{words}");
    }

    #[test]
    fn one_that_was_cut_off_before_it_started_has_died() {
        let home = tempfile::tempdir().unwrap();
        let home = home.path();
        shell(home, &begun(&name()));
        let mark = format!("{}/begun", folder(&name()));
        assert_eq!(shell(home, &format!("mkdir {mark}")).0, Some(0));
        assert!(shell(home, &words(&name())).1.starts_with("runs 0 "), "it starts this moment");
        assert_eq!(shell(home, &format!("touch -d '5 minutes ago' {mark}")).0, Some(0));
        assert!(shell(home, &words(&name())).1.starts_with("died 0 "));
    }

    // Invariant: a runner whose guest cannot keep how it stands is not started, and that is said.

    #[test]
    fn a_runner_is_not_started_in_a_guest_whose_disk_takes_no_file() {
        let home = tempfile::tempdir().unwrap();
        let home = home.path();
        let (files, secrets) = (Vec::new(), Vec::new());
        let (programs, command) = (vec!["sh".to_owned()], "mkdir ../../ran".to_owned());
        let kit = Kit { files, secrets, programs, command, leaves: false };
        shell(home, &begun(&name()));
        let full = format!("trap '' XFSZ; ulimit -f 0; {}", start(&name(), &kit));
        let (code, said) = shell(home, &full);
        assert_eq!(code, Some(3), "{said}");
        assert!(said.contains("its disk takes no file"), "{said}");
        assert!(!home.join("ran").exists());
        // Once there is room it is started as if nothing had been.
        assert_eq!(shell(home, &begun(&name())).0, Some(0));
        assert_eq!(shell(home, &start(&name(), &kit)).0, Some(0));
        while !shell(home, &words(&name())).1.starts_with("ended 0 ") {}
        assert!(home.join("ran").exists());
    }

    #[test]
    fn a_command_that_takes_its_own_mark_away_is_started() {
        let words = told("rm -f pid", true, "left 0 ");
        let fields: Vec<&str> = words.lines().next().unwrap().split(' ').collect();
        assert_eq!((fields.len(), fields[3].len()), (4, 1), "{words}");
    }

    #[test]
    fn a_command_that_may_leave_its_runner_running_has_not_ended_when_it_ends_well() {
        assert!(told("true", true, "l").starts_with("left 0 "));
        assert!(told("exit 3", true, "e").starts_with("ended 3 "));
        assert!(told("true", false, "e").starts_with("ended 0 "));
    }
}
