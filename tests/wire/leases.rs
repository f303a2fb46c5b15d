//! Leases that wait: for as long as they may, as many as may be, and seen and ended by those whose
//! they are; and the keys of those that are kept.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use serde_json::{Value, json};

use crate::api::{ask, call, ready, release};
use crate::harness::{Service, drover, world};
use crate::parity::yaml;

// Invariant: anyone who waits for a lease hears of its end, and a command ends with a code of its own.

#[test]
fn a_lease_that_waits_too_long_ends_and_is_asked_to_all_who_wait() {
    let (_dir, sim, site) = world();
    let limits = "service:\n  leases: {maxWaiting: 3}\n";
    let text = yaml(&site, &sim, &[], &[("linux", "instanceCap: 1")]);
    site.write_yaml(&text.replace("service:\n", limits));
    let mut service = Service::start(&site);
    let held = ask(&site, "linux", "wire");
    ready(&site, &held);
    let waits = |seconds: u32| {
        let body = json!({"template": "linux", "owner": "wire", "maxWaitSeconds": seconds});
        call(&site, "POST", "/v1/leases", Some(&body))
    };
    let (status, short) = waits(2);
    assert_eq!(status, 201, "{short}");
    let path = format!("/v1/leases/{}?waitSeconds=60", short["id"].as_str().unwrap());
    let (_, reported) = call(&site, "GET", &path, None);
    assert_eq!(
        (&reported["state"], &reported["detail"]),
        (&json!("ended"), &json!("waited-too-long"))
    );
    let out = site.cli(&["lease", "--template", "linux", "--wait", "2s", "--", "true"]);
    assert_eq!(out.status.code(), Some(75), "{out:?}");
    // Its time goes on while the service is away.
    let (_, long) = waits(4);
    service.child.signal("KILL");
    service.child.wait();
    let _service = Service::start(&site);
    let path = format!("/v1/leases/{}?waitSeconds=60", long["id"].as_str().unwrap());
    let (_, reported) = call(&site, "GET", &path, None);
    assert_eq!(
        (&reported["state"], &reported["detail"]),
        (&json!("ended"), &json!("waited-too-long"))
    );
    let mut waiting = Vec::new();
    for _ in 0..3 {
        let (status, lease) = waits(600);
        assert_eq!(status, 201, "{lease}");
        waiting.push(lease["id"].clone());
    }
    let (status, problem) = waits(600);
    assert_eq!(status, 429, "{problem}");
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.starts_with("3 leases wait, and `service.leases.maxWaiting` is 3"), "{detail}");
    let listed = site.json(&["leases", "--state", "waiting"])["leases"].clone();
    assert_eq!(listed.as_array().unwrap().len(), 3);
    let out = site.cli(&["leases", "--state", "waiting", "--end"]);
    assert!(out.status.success(), "{out:?}");
    assert_eq!(site.json(&["leases", "--state", "waiting"])["leases"], json!([]));
    release(&site, &held);
}

// Invariant: nobody finds what the holder before left running.

#[test]
fn a_program_of_a_lease_that_is_over_is_not_there_for_the_next_holder() {
    let (_dir, sim, site) = world();
    site.write_yaml(&yaml(&site, &sim, &[], &[("linux", "instanceCap: 1")]));
    let _service = Service::start(&site);
    // Between the shell's fork and the program itself there is no `sleep` yet.
    let starts = "setsid sleep 1000 >/dev/null 2>&1 </dev/null & until pgrep -x sleep; do :; done";
    let agents = [starts, "! pgrep -x sleep"].map(|command| {
        let out = site.cli(&["lease", "--template", "linux", "--", command]);
        assert!(out.status.success(), "{command}: {out:?}");
        site.json(&["agents"])["agents"][0]["id"].clone()
    });
    assert_eq!(agents[0], agents[1], "they had the same machine");
}

// Invariant: the key of a lease that is kept is in a folder for its user alone, and goes when the lease is
// over, whatever ended it.

fn names(folder: &Path) -> Vec<String> {
    let files = std::fs::read_dir(folder).unwrap().flatten();
    let mut names: Vec<String> =
        files.map(|file| file.file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn an_expired_leases_key_is_gone() {
    let (dir, _sim, site) = world();
    let _service = Service::start(&site);
    let id = |lease: &Value| lease["id"].as_str().unwrap().to_owned();
    let lease = site.json(&["lease", "--template", "linux"]);
    let other = site.json(&["lease", "--template", "linux"]);
    let folder = site.dir.path().join("drover");
    assert_eq!(std::fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
    let files =
        |lease: &Value| ["hosts", "key", "place"].map(|end| format!("drover-{}.{end}", id(lease)));
    let has = |lease: &Value| files(lease).map(|name| folder.join(name).exists());
    assert_eq!((has(&lease), has(&other)), ([true; 3], [true; 3]));
    let path = format!("/v1/leases/{}", id(&lease));
    let (status, reported) =
        call(&site, "POST", &format!("{path}/renew"), Some(&json!({"ttlSeconds": 1})));
    assert_eq!(status, 200, "{reported}");
    let (_, reported) = call(&site, "GET", &format!("{path}?waitSeconds=60&until=ended"), None);
    assert_eq!((&reported["state"], &reported["detail"]), (&json!("ended"), &json!("expired")));
    let out = site.cli(&["leases"]);
    assert!(out.status.success(), "{out:?}");
    assert_eq!((has(&lease), has(&other)), ([false; 3], [true; 3]));

    // Where the system names no folder of the user's own one is made.
    let mut command = site.command(["lease", "--template", "linux"]);
    let base = dir.path().join("temporary");
    std::fs::create_dir(&base).unwrap();
    let out = command.env_remove("XDG_RUNTIME_DIR").env("TMPDIR", &base).output().unwrap();
    assert!(out.status.success(), "{out:?}");
    let made = names(&base);
    assert_eq!(made.len(), 1, "{made:?}");
    let own = base.join(&made[0]);
    assert_eq!(std::fs::metadata(&own).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(names(&own).len(), 3);
    release(&site, &id(&other));
    assert!(site.cli(&["leases"]).status.success());
    assert_eq!(names(&folder), Vec::<String>::new());
}

// Invariant: a command has the standard input of `drover lease`, every byte and its end, and waits for
// no more of it than it reads.

#[test]
fn a_command_has_the_standard_input_and_does_not_wait_for_what_it_does_not_read() {
    let (_dir, sim, site) = world();
    site.write_yaml(&yaml(&site, &sim, &[], &[("linux", "instanceCap: 1")]));
    let _service = Service::start(&site);
    let lease = ["lease", "--template", "linux", "--"];
    let on_machine = |command: &str| {
        let mut drover = site.command(lease);
        drover.arg(command).stdin(Stdio::piped()).stdout(Stdio::piped());
        drover
    };
    let bytes: Vec<u8> = (0..=u8::MAX).cycle().take(1_000_000).collect();
    let mut reads = on_machine("cat; exit 5").spawn().unwrap();
    let (mut input, sent) = (reads.stdin.take().unwrap(), bytes.clone());
    let writes = thread::spawn(move || input.write_all(&sent));
    let out = reads.wait_with_output().unwrap();
    writes.join().unwrap().unwrap();
    assert_eq!((out.status.code(), out.stdout == bytes), (Some(5), true));

    let mut open = on_machine("exit 3").spawn().unwrap();
    let input = open.stdin.take();
    assert_eq!(open.wait().unwrap().code(), Some(3), "nobody ends its input");
    drop(input);

    let drover = on_machine("cat; exit 4");
    let args = || drover.get_args().map(ToOwned::to_owned);
    let environment = |command: &mut Command| {
        command.env("XDG_RUNTIME_DIR", site.dir.path()).stdin(Stdio::null());
    };
    let mut closed = Command::new("sh");
    closed.args(["-c", "exec \"$0\" \"$@\" <&-"]).arg(drover.get_program()).args(args());
    environment(&mut closed);
    assert_eq!(closed.output().unwrap().status.code(), Some(4), "it is closed");

    // A terminal in which nobody types.
    let spawn = "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))";
    let mut terminal = Command::new("python3");
    let drover = on_machine("exit 6");
    let args = drover.get_args().map(ToOwned::to_owned);
    terminal.args(["-c", spawn]).arg(drover.get_program()).args(args);
    environment(&mut terminal);
    assert_eq!(terminal.output().unwrap().status.code(), Some(6), "nobody types");

    // The file for the machine was the standard input: the command has none.
    let mut counts = site.command(["lease", "--template", "linux", "--user-data", "-", "--"]);
    counts.arg("cat | wc -c; echo $GREETING").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut counts = counts.spawn().unwrap();
    counts.stdin.take().unwrap().write_all(b"GREETING=hello\n").unwrap();
    let out = counts.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&out.stdout), "0\nhello\n");
}

// Invariant: a command ends with its lease, whatever ended that.

#[test]
fn a_command_whose_lease_somebody_releases_ends_with_75_and_says_so() {
    let (_dir, _sim, site) = world();
    let _service = Service::start(&site);
    let mut runs = site.command(["lease", "--template", "linux", "--", "echo runs; sleep 300"]);
    let mut runs = runs.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(runs.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "runs\n");
    let lease = site.json(&["leases"])["leases"][0]["id"].as_str().unwrap().to_owned();
    assert!(site.cli(&["lease", "release", &lease]).status.success());
    let out = runs.wait_with_output().unwrap();
    let said = String::from_utf8(out.stderr).unwrap();
    assert_eq!(out.status.code(), Some(75), "{said}");
    let ends = "drover: the lease ended while the command ran: it was released\n";
    assert!(said.ends_with(ends), "{said}");
}

// Invariant: the service is found by options and variables in any mix.

#[test]
fn an_address_from_the_environment_goes_with_a_token_from_an_option_and_the_other_way_round() {
    let directory = tempfile::tempdir().unwrap();
    let token = directory.path().join("token");
    std::fs::write(&token, "secret").unwrap();
    let token = token.to_str().unwrap();
    // Nobody listens there.
    let (address, nobody) =
        ("http://127.0.0.1:1", "no drover is listening on `http://127.0.0.1:1`");
    let said = |line: &[&str], variables: &[(&str, &str)]| {
        let out = drover().args(line).envs(variables.iter().copied()).output().unwrap();
        (out.status.code(), String::from_utf8(out.stderr).unwrap())
    };
    let (url, file) = (("DROVER_URL", address), ("DROVER_TOKEN_FILE", token));
    for (line, variables) in [
        (&["status", "--token-file", token][..], &[url][..]),
        (&["status", "--url", address], &[file]),
        (&["status"], &[url, file]),
        (&["status", "--url", address, "--token-file", token], &[]),
    ] {
        let (code, text) = said(line, variables);
        assert_eq!(code, Some(69), "{line:?}: {text}");
        assert!(text.contains(nobody), "{text}");
    }
    let (code, text) = said(&["status"], &[url]);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("--token-file or DROVER_TOKEN_FILE"), "{text}");
}
