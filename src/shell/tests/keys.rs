//! The commands that change keys in guests, run by the shells that guests have.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use drover_model::ports::Sessions;

use crate::{CARDS, admit_command, expel_command};

/// The lines of drover's own key and of other people's keys.
const OWN: &str = "ssh-ed25519 DROVER drover\nssh-rsa CCCC somebody@else\n";

/// A login user's home, whose `sh` is the shell under test.
struct Home {
    dir: tempfile::TempDir,
}

/// One home for each shell of this machine.
fn homes() -> impl Iterator<Item = Home> {
    let shells = [vec!["dash"], vec!["busybox", "sh"], vec!["bash"]];
    let there = |words: &Vec<&str>| {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).args(["-c", "true"]);
        command.status().is_ok_and(|status| status.success())
    };
    let mut found = shells.into_iter().filter(there).peekable();
    assert!(found.peek().is_some(), "this machine has no shell");
    found.map(|words| Home::of(&words))
}

/// Homes in which a test may put other programs in place of the machine's own. A busybox that is built
/// to run alone, as in Debian's busybox-static, looks for none on PATH.
fn homes_with_tools() -> impl Iterator<Item = Home> {
    let mut found = homes().filter(Home::runs_tools).peekable();
    assert!(found.peek().is_some(), "no shell of this machine looks on PATH");
    found
}

impl Home {
    fn of(words: &[&str]) -> Self {
        let home = Self { dir: tempfile::tempdir().unwrap() };
        fs::create_dir(home.path("bin")).unwrap();
        home.tool("sh", &format!("exec {} \"$@\"", words.join(" ")));
        fs::create_dir(home.path(".ssh")).unwrap();
        fs::write(home.keys(), OWN).unwrap();
        home
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn keys(&self) -> PathBuf {
        self.path(".ssh/authorized_keys")
    }

    fn read(&self) -> String {
        fs::read_to_string(self.keys()).unwrap()
    }

    /// Puts a program in front of the machine's own on PATH.
    fn tool(&self, name: &str, script: &str) {
        let path = self.path("bin").join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
    }

    fn runs_tools(&self) -> bool {
        self.tool("sleep", "exit 7");
        let ran = self.run("sh -c 'sleep 0'");
        fs::remove_file(self.path("bin/sleep")).unwrap();
        ran.code() == Some(7)
    }

    fn command(&self, text: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        let path = format!("{}:{}", self.path("bin").display(), std::env::var("PATH").unwrap());
        // It keeps the pid of the script, because it must outlive the kill of the script.
        command.args(["-c", &format!("export SCRIPT=$$; exec {text}")]);
        command.env("HOME", self.dir.path()).env("PATH", path);
        command.stdin(Stdio::null());
        command
    }

    fn start(&self, text: &str) -> Child {
        self.command(text).spawn().unwrap()
    }

    /// Runs a command until everything that it started has ended: a process that outlives a killed
    /// script still holds its output open.
    fn run(&self, text: &str) -> ExitStatus {
        self.command(text).stderr(Stdio::null()).output().unwrap().status
    }

    /// Runs commands at the same time, all of which must succeed.
    fn all(&self, commands: impl IntoIterator<Item = String>) {
        let all: Vec<Child> = commands.into_iter().map(|text| self.start(&text)).collect();
        for mut child in all {
            assert!(child.wait().unwrap().success());
        }
    }

    /// The leases whose keys are in the file, sorted.
    fn leases(&self) -> Vec<String> {
        let text = self.read();
        let of = |line: &str| line.split_once(" drover-lease-").map(|(_, lease)| lease.to_owned());
        let mut leases: Vec<String> = text.lines().filter_map(of).collect();
        leases.sort();
        leases
    }

    /// What drover leaves beside the keys.
    fn left_over(&self) -> Vec<String> {
        let all = fs::read_dir(self.path(".ssh")).unwrap();
        let names = all.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name != "authorized_keys" && name != ".drover-ended").collect()
    }
}

fn admit(lease: &str) -> String {
    admit_command(lease, &format!("ssh-ed25519 KEY{lease}"))
}

fn expel(lease: &str) -> String {
    // The part that removes the user data comes after the key, in a shell of its own.
    format!("sh -c {}", drover_ssh::quote(&expel_command(lease, Sessions::Stay)))
}

/// Ends a watch, also when its test fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Reads a file of keys over and over: it never lacks the lines that belong to no lease.
fn watch(keys: &Path, over: &AtomicBool) {
    while !over.load(Ordering::Relaxed) {
        let text = fs::read_to_string(keys).unwrap();
        assert!(text.starts_with(OWN), "{text:?}");
        assert!(text.contains(" drover-lease-kept\n"), "{text:?}");
    }
}

// Invariant: whatever changes at the same time, no key is lost, no ended one is left, and the file
// is never empty.

#[test]
fn keys_that_come_and_go_at_once_are_there_and_gone() {
    for home in homes() {
        assert!(home.run(&admit("kept")).success());
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let watcher = scope.spawn(|| watch(&home.keys(), &over));
            let _end = Over(&over);
            home.all((0..7).map(|n| admit(&format!("0x{n}"))));
            for round in 1..5 {
                let before = round - 1;
                let ended = (0..7).map(|n| expel(&format!("{before}x{n}")));
                let added = (0..7).map(|n| admit(&format!("{round}x{n}")));
                home.all(ended.zip(added).flat_map(|(one, other)| [one, other]));
                let mut leases: Vec<String> = (0..7).map(|n| format!("{round}x{n}")).collect();
                leases.push("kept".into());
                assert_eq!(home.leases(), leases);
            }
            over.store(true, Ordering::Relaxed);
            watcher.join().unwrap();
        });
        assert_eq!(home.left_over(), Vec::<String>::new());
    }
}

/// The programs that the scripts run.
const TOOLS: [&str; 11] =
    ["ln", "readlink", "mkdir", "grep", "sed", "tail", "cp", "dd", "mv", "rm", "tr"];

/// Kills the script at its call number `at` of any tool, or at the next one where two ran at the
/// same time: before the tool works, or while it runs.
fn deadly(home: &Home, at: usize, late: bool) {
    let (count, machine) = (home.path("count"), std::env::var("PATH").unwrap());
    fs::write(&count, "").unwrap();
    let end = if late { "" } else { "exit 1" };
    for tool in TOOLS {
        let script = format!(
            "export PATH='{machine}'; echo >>'{count}'; \
             if [ \"$(wc -l <'{count}')\" -ge {at} ]; then kill -9 $SCRIPT 2>/dev/null; {end}\nfi\n\
             exec {tool} \"$@\"",
            count = count.display(),
        );
        home.tool(tool, &script);
    }
}

fn harmless(home: &Home) {
    for tool in TOOLS {
        fs::remove_file(home.path("bin").join(tool)).unwrap();
    }
}

// Invariant: wherever a change of keys is killed, the file is complete and the next change works.

fn killed_at_each_step(home: &Home, late: bool) {
    assert!(home.run(&admit("kept")).success());
    let (mut steps, mut finished) = (0, false);
    while !finished {
        steps += 1;
        finished = true;
        let lease = format!("n{steps}");
        for (command, there) in [(admit(&lease), true), (expel(&lease), false)] {
            deadly(home, steps, late);
            finished &= home.run(&command).success();
            harmless(home);
            let text = home.read();
            assert!(text.starts_with(OWN) && text.ends_with('\n'), "step {steps}: {text:?}");
            assert!(text.contains(" drover-lease-kept\n"), "step {steps}: {text:?}");
            assert!(home.run(&command).success(), "step {steps}");
            assert_eq!(home.leases().contains(&lease), there, "step {steps}");
        }
        assert_eq!((home.leases(), home.left_over()), (vec!["kept".to_owned()], vec![]));
    }
    assert!(steps > 20, "only {steps} steps");
}

#[test]
fn a_script_killed_before_any_of_its_steps_hurts_nobody() {
    killed_at_each_step(&homes_with_tools().next().unwrap(), false);
}

#[test]
fn a_script_killed_while_a_step_goes_on_hurts_nobody() {
    killed_at_each_step(&homes_with_tools().take(2).last().unwrap(), true);
}

// Invariant: on a full disk no line is lost, a missing key is not reported as added, and the key of
// an ended lease lets nobody in.

#[test]
fn a_full_disk_costs_no_line_and_keeps_no_ended_lease_in() {
    let Ok(bwrap) = Command::new("bwrap").arg("--version").output() else { return };
    assert!(bwrap.status.success());
    let quote = drover_ssh::quote;
    let script = format!(
        "cd; mkdir .ssh; printf %s {own} >.ssh/authorized_keys; {old}; {other}; \
         cat /dev/zero >filler 2>/dev/null; \
         {new} 2>/dev/null; echo $?; {gone} 2>/dev/null; echo $?; cat .ssh/authorized_keys; \
         rm filler; {new} && {last} && cat .ssh/authorized_keys; ls -A .ssh",
        own = quote(OWN),
        old = admit("old"),
        other = admit("kept"),
        new = admit("new"),
        gone = expel("old"),
        last = expel("other"),
    );
    for home in homes() {
        let mut command = Command::new("bwrap");
        let (root, path) = (["--dev-bind", "/", "/"], home.path("bin").display().to_string());
        command.args(root).args(["--size", "65536", "--tmpfs", "/mnt", "--setenv", "HOME", "/mnt"]);
        command.args(["sh", "-c", &format!("PATH='{path}':$PATH; {script}")]);
        let out = command.output().unwrap();
        let said = String::from_utf8_lossy(&out.stdout).into_owned();
        let lease = |name: &str| format!("ssh-ed25519 KEY{name} drover-lease-{name}\n");
        let spent = lease("old").replacen('s', "#", 1);
        let expected = format!(
            "75\n0\n{OWN}{spent}{kept}{OWN}{kept}{new}.drover-ended\nauthorized_keys\n",
            kept = lease("kept"),
            new = lease("new"),
        );
        assert_eq!(said, expected, "{}", String::from_utf8_lossy(&out.stderr));
    }
}

// Invariant: other people's lines, the file's mode and its place do not change.

#[test]
fn the_mode_and_a_last_line_without_its_end_stay() {
    for home in homes() {
        fs::write(home.keys(), "# mine\n\nssh-rsa CCCC me").unwrap();
        fs::set_permissions(home.keys(), Permissions::from_mode(0o440)).unwrap();
        assert!(home.run(&admit("l1")).success());
        assert_eq!(home.leases(), ["l1"]);
        assert!(home.run(&expel("l1")).success());
        assert_eq!(home.read(), "# mine\n\nssh-rsa CCCC me\n");
        let mode = fs::metadata(home.keys()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o440);
    }
}

#[test]
fn keys_behind_a_symbolic_link_are_changed_where_they_are() {
    for home in homes() {
        fs::create_dir(home.path("etc")).unwrap();
        fs::rename(home.keys(), home.path("etc/keys")).unwrap();
        symlink("../etc/keys", home.path(".ssh/one")).unwrap();
        symlink("one", home.keys()).unwrap();
        assert!(home.run(&admit("l1")).success());
        assert!(fs::symlink_metadata(home.keys()).unwrap().is_symlink());
        let there = fs::read_to_string(home.path("etc/keys")).unwrap();
        assert_eq!(there, format!("{OWN}ssh-ed25519 KEYl1 drover-lease-l1\n"));
        assert!(home.run(&expel("l1")).success());
        assert_eq!(home.read(), OWN);
        // A link to itself, and a link to nothing.
        fs::remove_file(home.keys()).unwrap();
        symlink("authorized_keys", home.keys()).unwrap();
        assert_eq!(home.run(&admit("l2")).code(), Some(1));
        fs::remove_file(home.keys()).unwrap();
        symlink("../nowhere/keys", home.keys()).unwrap();
        assert_eq!(home.run(&admit("l2")).code(), Some(1));
    }
}

#[test]
fn a_home_without_keys_gets_them_and_needs_none_removed() {
    for home in homes() {
        fs::remove_dir_all(home.path(".ssh")).unwrap();
        assert!(home.run(&expel("l1")).success());
        assert!(!home.path(".ssh").exists());
        assert!(home.run(&admit("l2")).success());
        assert_eq!(home.read(), "ssh-ed25519 KEYl2 drover-lease-l2\n");
        let mode = |path: PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(home.path(".ssh")), mode(home.keys())), (0o700, 0o600));
    }
}

// Invariant: a key is reported as removed only when it is, whatever was done to its line.

#[test]
fn lines_that_end_in_blanks_zeros_or_carriage_returns_are_removed_too() {
    for home in homes() {
        for end in ["\r\n", " \n", "\t \r\n", "", "\0\0\0", "\0\n", "\n\0"] {
            let _ = fs::remove_file(home.path(".ssh/.drover-ended"));
            fs::write(home.keys(), format!("{OWN}ssh-ed25519 KEYl1 drover-lease-l1{end}")).unwrap();
            assert!(home.run(&admit("l2")).success(), "{end:?}");
            assert!(home.read().ends_with("\nssh-ed25519 KEYl2 drover-lease-l2\n"), "{end:?}");
            assert!(home.run(&expel("l1")).success(), "{end:?}");
            assert!(home.run(&expel("l2")).success(), "{end:?}");
            assert_eq!(home.read().trim_end_matches('\n'), OWN.trim_end(), "{end:?}");
        }
    }
}

/// A command that runs as a user without any further rights, not even root's.
fn unprivileged(home: &Home, text: &str) -> Option<i32> {
    let mut command = Command::new("bwrap");
    command.args(["--dev-bind", "/", "/", "--unshare-user", "--uid", "1000", "--cap-drop", "ALL"]);
    let path = format!("{}:{}", home.path("bin").display(), std::env::var("PATH").unwrap());
    command.args(["/bin/sh", "-c", text]).env("HOME", home.dir.path()).env("PATH", path);
    command.stdin(Stdio::null()).stderr(Stdio::null()).status().unwrap().code()
}

#[test]
fn keys_that_cannot_be_read_are_not_said_to_be_gone() {
    if Command::new("bwrap").arg("--version").output().is_err() {
        return;
    }
    for home in homes_with_tools() {
        assert!(home.run(&admit("l1")).success());
        fs::set_permissions(home.keys(), Permissions::from_mode(0o000)).unwrap();
        home.tool("chmod", "exit 1");
        assert_eq!(unprivileged(&home, &expel("l1")), Some(75));
        assert_eq!(unprivileged(&home, &admit("l2")), Some(75));
        fs::remove_file(home.path("bin/chmod")).unwrap();
        assert_eq!(unprivileged(&home, &expel("l1")), Some(0));
        assert_eq!(home.read(), OWN);
    }
}

// Invariant: a late call does not let an ended lease in, and the holder of a guest shares it with
// no lease.

#[test]
fn a_key_that_comes_after_the_end_of_its_lease_is_refused() {
    for home in homes() {
        assert!(home.run(&expel("l1")).success());
        assert_eq!(home.run(&admit("l1")).code(), Some(1));
        assert_eq!(home.read(), OWN);
    }
}

#[test]
fn the_key_of_a_hold_takes_the_place_of_all_leases_keys() {
    for home in homes() {
        for lease in ["l1", "l2", "hold", "hold"] {
            assert!(home.run(&admit(lease)).success());
        }
        assert_eq!(home.read(), format!("{OWN}ssh-ed25519 KEYhold drover-lease-hold\n"));
    }
}

// Invariant: a caller that waits long for the lock is asked to try again, and nobody waits for a
// lock that no owner can have.

#[test]
fn a_folder_in_place_of_the_lock_is_named_at_once_and_stays_empty() {
    for home in homes_with_tools() {
        home.tool("sleep", "exit 1");
        let lock = home.path(".ssh/.drover-keys.lock");
        fs::create_dir(&lock).unwrap();
        assert_eq!(home.run(&admit("l1")).code(), Some(1));
        assert_eq!(fs::read_dir(&lock).unwrap().count(), 0);
        assert_eq!(home.read(), OWN);
    }
}

#[test]
fn a_folder_that_takes_no_file_is_given_up_soon() {
    if Command::new("bwrap").arg("--version").output().is_err() {
        return;
    }
    for home in homes_with_tools() {
        let turns = home.path("turns");
        home.tool("sleep", &format!("echo >>'{}'", turns.display()));
        let folder = home.path(".ssh");
        fs::set_permissions(&folder, Permissions::from_mode(0o500)).unwrap();
        assert_eq!(unprivileged(&home, &admit("l1")), Some(75));
        fs::set_permissions(&folder, Permissions::from_mode(0o700)).unwrap();
        assert_eq!(fs::read_to_string(&turns).unwrap().lines().count(), 9);
    }
}

#[test]
fn a_lock_that_is_held_is_waited_for_and_one_whose_owner_died_is_not() {
    for home in homes_with_tools() {
        home.tool("sleep", ":");
        let lock = home.path(".ssh/.drover-keys.lock");
        let stat = fs::read_to_string("/proc/self/stat").unwrap();
        let start = stat.rsplit_once(") ").unwrap().1.split(' ').nth(19).unwrap();
        let me = std::process::id();
        symlink(format!("{me}.{start}"), &lock).unwrap();
        assert_eq!(home.run(&admit("l1")).code(), Some(75));
        assert_eq!(home.read(), OWN);
        fs::remove_file(&lock).unwrap();
        // Another process with the same pid.
        symlink(format!("{me}.{start}0"), &lock).unwrap();
        assert!(home.run(&admit("l1")).success());
        assert_eq!(home.left_over(), Vec::<String>::new());
    }
}

// Invariant: a machine lists its network cards in one line, whichever tool it has for that.

#[test]
fn each_shell_shows_the_cards_that_ip_or_ifconfig_names() {
    let shown = |home: &Home| {
        let path = format!("{}:/usr/bin:/bin", home.path("bin").display());
        let sh = home.path("bin/sh");
        let out = Command::new(sh).args(["-c", CARDS]).env("PATH", path).output().unwrap();
        String::from_utf8(out.stdout).unwrap().trim().to_owned()
    };
    for home in homes_with_tools() {
        let card = "2: ens18: <UP>\\n    link/ether BC:24:11:00:00:01 brd ff:ff:ff:ff:ff:ff\\n";
        home.tool("ip", &format!("printf '{card}'"));
        assert_eq!(shown(&home), "BC:24:11:00:00:01 ff:ff:ff:ff:ff:ff");
        home.tool("ip", "exit 127");
        home.tool("cat", "exit 1");
        home.tool("ifconfig", "echo 'vtnet0: flags=1 ether bc:24:11:00:00:02'");
        assert_eq!(shown(&home), "bc:24:11:00:00:02");
    }
}

// Invariant: a lease's key can be added and removed any number of times.

#[test]
fn a_key_is_added_without_its_comment_and_marked_with_the_lease() {
    let command = admit_command("l1", "ssh-ed25519 AAAA it's me");
    assert!(command.contains("'ssh-ed25519 AAAA drover-lease-l1'"), "{command}");
    assert!(!command.contains("it's me"), "{command}");
}
