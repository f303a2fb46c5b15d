//! `drover demo` as a new user sees it.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use crate::harness::{Kept, Lines, WAIT_LIMIT, drover, note};

// Invariant: the demo runs its batch to the end and leaves nothing behind.

/// Runs the whole batch, with folders in front of the programs' search path.
fn once(first: &Path) -> String {
    let dir = tempfile::tempdir().unwrap();
    once_in(dir.path(), first)
}

/// The same with its files in `dir`, which is empty at the end.
fn once_in(dir: &Path, first: &Path) -> String {
    let path = format!("{}:{}", first.display(), std::env::var("PATH").unwrap());
    let mut demo = drover();
    demo.args(["demo", "--once"]).env("TMPDIR", dir).env("PATH", path);
    let out = demo.output().unwrap();
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    let erred = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{said}{erred}");
    for word in ["hello", "fails", "Cloning", "Booting", "█"] {
        assert!(said.contains(word), "`{word}` in:\n{said}{erred}");
    }
    // The story, in its order.
    let mut rest = said.as_str();
    for word in [
        "writing `instanceCap: three` into line 45",
        "refused edit: line 45: agentConfigurations.linux.instanceCap: expected a whole number",
        "putting the file right again",
        "kill -9",
        "the service ended (signal: 9 (SIGKILL)); starting it again",
        "the service is ready again after",
        "agents, with the same VMIDs",
        "job compile   exit 0 (as expected): linked",
        "killing VM",
        "job loses-vm  exit 75 (as expected)",
    ] {
        let found = rest.split_once(word);
        rest = found.unwrap_or_else(|| panic!("`{word}` in:\n{said}{erred}")).1;
    }
    ends_well(&said);
    let left: Vec<_> = std::fs::read_dir(dir).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
    said + &erred
}

/// The last lines say what happened, what to try, and that nothing is left.
fn ends_well(said: &str) {
    // Without the ends of the agents that the service retires meanwhile.
    let lines: Vec<&str> =
        said.lines().map(str::trim_end).filter(|line| !line.contains(" s  rack/")).collect();
    let last = &lines[lines.len().saturating_sub(7)..];
    let starts = [
        "jobs     8 of 8 as expected; on purpose, 1 failed and 1 lost its VM",
        "edit     refused with its line, 45; the old configuration stayed in force",
        "kill -9  back after ",
        "lost VM  VM 1000",
        "next     try drover demo without --once; on your own cluster: drover init",
        "stopping: drover retires all agents",
        "nothing is left: no guest, no volume, no process, no file",
    ];
    assert_eq!(last.len(), starts.len(), "{said}");
    for (line, start) in last.iter().zip(starts) {
        assert!(line.starts_with(start), "`{start}` in:\n{said}");
    }
    let adopted = last[2].split_once(" s; ").unwrap().1;
    let (count, rest) = adopted.split_once(" of ").unwrap();
    assert!(count != "0" && rest.starts_with(&format!("{count} agents adopted, same VMIDs; ")));
    assert!(rest.ends_with(" jobs ran on"), "{said}");
    assert!(last[3].ends_with("(exit 75)"), "{said}");
}

#[test]
fn demo_once_runs_its_batch_draws_waterfalls_and_leaves_nothing_behind() {
    let nothing = tempfile::tempdir().unwrap();
    once(nothing.path());
}

/// A demo with plain lines, its files in `dir`.
fn plain(dir: &Path, options: &[&str]) -> (Kept, Lines) {
    let mut demo = drover();
    demo.args(["demo", "--plain"]).args(options).env("TMPDIR", dir);
    demo.stdout(Stdio::piped()).stderr(Stdio::null());
    let mut demo = Kept(demo.spawn().unwrap());
    let out = Lines::of("the demo", demo.0.stdout.take().unwrap());
    (demo, out)
}

/// Waits until this is so.
fn until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + WAIT_LIMIT;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::yield_now();
    }
}

/// A process: its id, that of its parent, and its words. Another one with its id has other words.
#[derive(Debug, Clone, PartialEq)]
struct Process {
    id: u32,
    parent: u32,
    words: String,
}

/// The processes that run.
fn processes() -> Vec<Process> {
    let folders = std::fs::read_dir("/proc").unwrap().flatten();
    let ids = folders.filter_map(|folder| folder.file_name().to_str()?.parse::<u32>().ok());
    let read = |id: u32| {
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        // One that is dead waits for its parent to look.
        let alive = fields.next().is_some_and(|state| state != "Z" && state != "X");
        let parent = fields.next()?.parse().ok().filter(|_| alive)?;
        let words = std::fs::read(format!("/proc/{id}/cmdline")).ok()?;
        let words = String::from_utf8_lossy(&words).replace('\0', " ");
        Some(Process { id, parent, words })
    };
    ids.filter_map(read).collect()
}

/// The processes beneath one.
fn beneath(parent: &Child) -> Vec<Process> {
    let all = processes();
    let mut found: Vec<Process> = Vec::new();
    let mut parents = vec![parent.id()];
    while let Some(parent) = parents.pop() {
        let children: Vec<Process> =
            all.iter().filter(|process| process.parent == parent).cloned().collect();
        parents.extend(children.iter().map(|child| child.id));
        found.extend(children);
    }
    found
}

/// Kills the child of the demo that has these words.
fn kill_child(demo: &Kept, words: &str) {
    let children = beneath(&demo.0);
    let child = children.iter().find(|child| child.words.contains(words));
    let child = child.unwrap_or_else(|| panic!("no `{words}` in {children:?}"));
    let sent = Command::new("kill").args(["-KILL", &child.id.to_string()]).status();
    assert!(sent.is_ok_and(|status| status.success()), "kill {child:?}");
}

// Invariant: no process outlives the demo, however it ends, and the next demo removes the files.

#[test]
fn a_demo_that_is_killed_takes_all_its_processes_along_and_the_next_one_removes_its_files() {
    let dir = tempfile::tempdir().unwrap();
    let (mut demo, mut out) = plain(dir.path(), &[]);
    // Jobs run on guests.
    out.until(|line| line.contains("kill -9"));
    out.until(|line| line.contains("the service is ready again"));
    let all = beneath(&demo.0);
    for words in [" run ", " events ", "--owner compile", "--owner loses-vm", "sleep 60"] {
        assert!(all.iter().any(|one| one.words.contains(words)), "no `{words}` in {all:#?}");
    }
    let folder = std::fs::read_dir(dir.path()).unwrap().next().unwrap().unwrap().path();
    demo.signal("KILL");
    demo.wait();
    until("a process goes on without its demo", || {
        let now = processes();
        !all.iter()
            .any(|one| now.iter().any(|other| (one.id, &one.words) == (other.id, &other.words)))
    });
    // A process that ends loses its words before its files.
    until("the socket of a dead service takes connections", || {
        UnixStream::connect(folder.join("drover.sock")).is_err()
    });
    once_in(dir.path(), dir.path());
}

#[test]
fn a_demo_that_is_asked_to_end_leaves_no_process_and_no_file() {
    for signal in ["INT", "TERM", "HUP"] {
        let dir = tempfile::tempdir().unwrap();
        let (mut demo, mut out) = plain(dir.path(), &[]);
        out.until(|line| line.contains("Cloning"));
        let all = beneath(&demo.0);
        demo.signal(signal);
        assert_eq!(demo.wait(), Some(0), "{signal}");
        assert!(out.rest().contains("nothing is left"), "{signal}");
        let now = processes();
        let left: Vec<&Process> = all
            .iter()
            .filter(|one| now.iter().any(|two| (one.id, &one.words) == (two.id, &two.words)))
            .collect();
        assert!(left.is_empty(), "{signal}: {left:#?}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "{signal}");
    }
}

// Invariant: each child of the demo may die; the demo says so and ends its batch.

#[test]
fn a_demo_whose_follower_of_events_is_killed_starts_it_again() {
    let dir = tempfile::tempdir().unwrap();
    let (mut demo, mut out) = plain(dir.path(), &["--once"]);
    out.until(|line| line.contains("Cloning"));
    kill_child(&demo, " events ");
    out.until(|line| line == "the command that follows the events ended; started it again");
    ends_well(&out.rest());
    assert_eq!(demo.wait(), Some(0));
}

#[test]
fn a_demo_whose_job_loses_its_command_releases_the_lease_and_fails() {
    let dir = tempfile::tempdir().unwrap();
    let (mut demo, mut out) = plain(dir.path(), &["--once"]);
    out.until(|line| line.starts_with("kill -9"));
    kill_child(&demo, "--owner compile --");
    let rest = out.rest();
    for word in [
        "job compile   no exit status (NOT as expected)",
        "job compile: its command was killed; releasing its lease",
        "jobs     7 of 8 as expected",
        "nothing is left",
    ] {
        assert!(rest.contains(word), "`{word}` in:\n{rest}");
    }
    assert_eq!(demo.wait(), Some(1));
}

// Most machines of new users have no bubblewrap.
#[test]
fn demo_once_runs_its_batch_where_guests_cannot_be_isolated() {
    let programs = tempfile::tempdir().unwrap();
    let broken = programs.path().join("bwrap");
    std::fs::write(&broken, "#!/bin/sh\necho 'no namespaces here' >&2\nexit 1\n").unwrap();
    std::fs::set_permissions(&broken, Permissions::from_mode(0o755)).unwrap();
    let said = once(programs.path());
    assert!(said.contains("bubblewrap"), "{said}");
}

// Invariant: a terminal is put back as it was, with the end of the story on it.

/// Runs a demo on a terminal of this size, or says that there is none.
fn on_terminal(dir: &Path, size: &str, options: &str) -> Option<Command> {
    let plain = drover();
    let program = plain.get_program().to_str().unwrap();
    let line = format!("stty {size}; exec '{program}' demo {options}");
    let mut script = Command::new("script");
    for (name, _) in plain.get_envs().filter(|(_, value)| value.is_none()) {
        script.env_remove(name);
    }
    script.args(["-qec", &line, "/dev/null"]).env("TMPDIR", dir).env("SHELL", "/bin/sh");
    script.env("TERM", "xterm-256color").env_remove("NO_COLOR").stdin(Stdio::null());
    if Command::new("script").arg("--version").output().is_ok() {
        return Some(script);
    }
    assert!(std::env::var_os("DROVER_TEST_PROGRAMS").is_none(), "script is not installed");
    note("script is not installed: the demo was not looked at on a terminal");
    None
}

const ENTERED: &str = "\x1b[?1049h";
const LEFT: &str = "\x1b[?1049l\x1b[?25h";

/// A text without its colours.
fn uncoloured(text: &str) -> String {
    let mut pieces = text.split("\x1b[");
    let first = pieces.next().unwrap_or_default().to_owned();
    pieces.fold(first, |all, piece| all + piece.split_once('m').map_or(piece, |(_, rest)| rest))
}

#[test]
fn demo_once_on_a_terminal_plays_on_one_screen_and_leaves_its_last_lines_there() {
    let dir = tempfile::tempdir().unwrap();
    let Some(mut script) = on_terminal(dir.path(), "rows 24 cols 80", "--once") else { return };
    let out = script.output().unwrap();
    let printed = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.success(), "{printed}");
    let (before, after) = printed.rsplit_once(LEFT).unwrap_or_else(|| panic!("{printed}"));
    assert_eq!(before.matches(ENTERED).count(), 1, "{printed}");
    let after = uncoloured(after).replace('\r', "");
    for word in ["loses-vm", "10004", "Booting", "what happened", "pve3"] {
        assert!(after.contains(word), "`{word}` in:\n{after}");
    }
    assert!(!after.contains('\x1b'), "{after:?}");
    let trimmed: Vec<&str> = after.lines().map(str::trim).collect();
    ends_well(&trimmed.join("\n"));
}

#[test]
fn a_demo_that_is_ended_on_a_terminal_puts_it_back() {
    let dir = tempfile::tempdir().unwrap();
    let Some(mut script) = on_terminal(dir.path(), "rows 40 cols 120", "") else { return };
    let child = script.stdout(Stdio::piped()).spawn().unwrap();
    let mut script = Kept(child);
    let mut out = Lines::of("the terminal", script.0.stdout.take().unwrap());
    let service = || {
        let all = beneath(&script.0);
        let child = all.iter().find(|one| one.words.contains("--owner compile --"))?;
        Some(child.parent)
    };
    until("no job was started", || service().is_some());
    let demo = service().unwrap_or_default().to_string();
    let sent = Command::new("kill").args(["-TERM", &demo]).status();
    assert!(sent.is_ok_and(|status| status.success()), "kill {demo}");
    let printed = out.rest();
    assert_eq!(script.wait(), Some(0), "{printed}");
    let (before, after) = printed.rsplit_once(LEFT).unwrap_or_else(|| panic!("{printed}"));
    assert!(before.contains(ENTERED), "{printed}");
    assert!(after.contains("nothing is left"), "{printed}");
}

#[test]
fn a_terminal_that_is_too_small_gets_plain_lines() {
    let dir = tempfile::tempdir().unwrap();
    let Some(mut script) = on_terminal(dir.path(), "rows 23 cols 80", "--once --jobs 1") else {
        return;
    };
    let out = script.output().unwrap();
    let printed = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.success() && !printed.contains('\x1b'), "{printed}");
    assert!(printed.contains("jobs     1 of 1 as expected"), "{printed}");
}
