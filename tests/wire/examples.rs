//! The examples that people copy, each run as it stands against the service on the simulated cluster;
//! and user data, which they are made of.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Instant;

use serde_json::{Value, json};

use crate::api;
use crate::harness::{Events, Kept, Lines, Service, Sim, Site, WAIT_LIMIT, drover, world};
use crate::open::Open;

/// An example, to be run.
pub fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("configs/examples").join(name)
}

/// Writes the YAML of a service that is reached over TCP, with more keys of its template.
pub fn opened(sim: &Sim, site: &Site, template: &str) -> Open {
    let (open, yaml) = Open::of(site, &site.yaml(sim, template));
    site.write_yaml(&yaml);
    open
}

/// A program with what it needs to reach the service, and drover on its PATH.
fn command(open: &Open, program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    let own = PathBuf::from(drover().get_program());
    let path = std::env::var("PATH").unwrap();
    let path = format!("{}:{path}", own.parent().unwrap().display());
    command.env("PATH", path).env("DROVER_URL", &open.url);
    command.env("DROVER_TOKEN_FILE", &open.token).stdin(Stdio::null());
    command
}

/// What a program said on both of its streams.
fn said(out: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&out.stdout), text(&out.stderr))
}

/// States of all leases.
fn leases(site: &Site) -> Vec<String> {
    let all = api::call(site, "GET", "/v1/leases", None).1["leases"].clone();
    let state = |lease: &Value| lease["state"].as_str().unwrap().to_owned();
    all.as_array().unwrap().iter().map(state).collect()
}

/// Runs a command in the guest of a lease that is ready, as drover itself would.
pub fn inside(site: &Site, lease: &Value, command: &str) -> String {
    let mut ssh = Command::new("ssh");
    for option in ["StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "BatchMode=yes"] {
        ssh.args(["-o", option]);
    }
    let at = format!("debian@{}", lease["ssh"]["host"].as_str().unwrap());
    let out = ssh.arg("-i").arg(site.dir.path().join("key")).args(["-p", "2222", &at, command]);
    said(&out.output().unwrap()).0
}

/// Whether a text stands anywhere in a folder's files.
fn holds(folder: &Path, text: &str) -> bool {
    fs::read_dir(folder).unwrap().map(Result::unwrap).any(|entry| {
        let path = entry.path();
        if path.is_dir() {
            return holds(&path, text);
        }
        // Files go while they are looked at.
        let bytes = fs::read(&path).unwrap_or_default();
        bytes.windows(text.len()).any(|part| part == text.as_bytes())
    })
}

/// What an ended lease brought is removed beside the answer that it has ended.
fn goes(site: &Site, text: &str) {
    let (state, end) = (site.dir.path().join("state"), Instant::now() + WAIT_LIMIT);
    while holds(&state, text) {
        assert!(Instant::now() < end, "`{text}` stays in the state directory");
    }
}

// Invariant: user data is on the machine while the lease is ready, as a file and as variables, and
// nowhere when it is over.

#[test]
fn user_data_is_a_file_and_variables_of_the_command_and_goes_with_its_lease() {
    let (_dir, _sim, site) = world();
    let _service = Service::start(&site);
    let data = site.dir.path().join("data");
    fs::write(&data, "TOKEN=hunter2 $HOME\nEMPTY=\n").unwrap();
    let look = "stat -c %a ~/.drover-lease/*/user-data; cat \"$DROVER_USER_DATA\"; \
                echo \"$TOKEN\"; basename \"$(dirname \"$DROVER_USER_DATA\")\" | grep -cx \"$DROVER_LEASE_ID\"";
    let data = data.display().to_string();
    let out = site.cli(&["lease", "--labels", "linux", "--user-data", &data, "--", look]);
    let (stdout, stderr) = said(&out);
    assert_eq!(stdout, "600\nTOKEN=hunter2 $HOME\nEMPTY=\nhunter2 $HOME\n1\n", "{stderr}");
    let out =
        site.cli(&["lease", "--labels", "linux", "--", "ls -A ~ | grep drover-lease; hostname"]);
    let agents = site.json(&["agents"]);
    assert_eq!(agents["agents"].as_array().unwrap().len(), 1, "the same machine: {agents}");
    assert!(!said(&out).0.contains("drover-lease"), "{out:?}");
    goes(&site, "hunter2");
}

#[test]
fn user_data_of_a_lease_that_waits_survives_a_kill_and_no_journal_has_it() {
    let (_dir, sim, site) = world();
    site.write_yaml(&site.yaml(&sim, "").replace("instanceCap: 4", "instanceCap: 1"));
    let service = Service::start(&site);
    let first = api::ask(&site, "linux", "first");
    api::ready(&site, &first);
    let body =
        json!({"template": "linux", "userDataBase64": "AP9odW50ZXIy", "idempotencyKey": "k"});
    let (status, asked) = api::call(&site, "POST", "/v1/leases", Some(&body));
    assert_eq!((status, &asked["state"]), (201, &json!("waiting")), "{asked}");
    let second = asked["id"].as_str().unwrap();
    drop(service);
    let state = site.dir.path().join("state");
    assert!(holds(&state.join("user-data"), "hunter2"));
    assert!(!fs::read(state.join("journal.redb")).unwrap().windows(7).any(|w| w == b"hunter2"));

    let _service = Service::start(&site);
    assert_eq!(api::call(&site, "POST", "/v1/leases", Some(&body)).1["id"], json!(second));
    api::release(&site, &first);
    let ready = api::ready(&site, second);
    assert!(!ready.to_string().contains("hunter2"), "{ready}");
    let bytes = inside(&site, &ready, &format!("od -An -c ~/.drover-lease/{second}/user-data"));
    assert_eq!(bytes.split_whitespace().collect::<Vec<_>>().join(" "), "\\0 377 h u n t e r 2");
    api::release(&site, second);
    api::release(&site, second);
    goes(&site, "hunter2");
}

#[test]
fn the_pages_command_runs_as_it_stands() {
    let (_dir, sim, site) = world();
    let open = opened(&sim, &site, "");
    let _service = Service::start(&site);
    fs::write(site.dir.path().join("build.env"), "GREETING=hello\n").unwrap();
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/book/leases.md");
    let page = fs::read_to_string(page).unwrap();
    let (_, section) = page.split_once("## Machines for anything else").unwrap();
    let (block, _) = section.split_once("```sh\n").unwrap().1.split_once("```").unwrap();
    let out =
        command(&open, "sh").args(["-c", block]).current_dir(site.dir.path()).output().unwrap();
    assert_eq!(said(&out).0, "hello\nLinux\n", "{out:?}");
    assert_eq!(leases(&site), ["ended"]);
}

// Invariant: each example does what it says, and leaves no lease behind.

#[test]
fn the_curl_example_gives_the_commands_status_and_releases_its_lease() {
    let (_dir, sim, site) = world();
    let open = opened(&sim, &site, "");
    let _service = Service::start(&site);
    let data = site.dir.path().join("data");
    fs::write(&data, "A=of mine\n").unwrap();
    let run = |words: &[&str]| command(&open, example("lease.sh")).args(words).output().unwrap();
    let out =
        run(&["echo \"$A\" $(wc -c <\"$DROVER_USER_DATA\"); exit 7", &data.display().to_string()]);
    assert_eq!((out.status.code(), said(&out).0.as_str()), (Some(7), "of mine 10\n"), "{out:?}");
    let out = run(&["echo plain"]);
    assert_eq!((out.status.code(), said(&out).0.as_str()), (Some(0), "plain\n"), "{out:?}");
    assert_eq!(leases(&site), ["ended", "ended"]);
}

#[test]
fn the_curl_example_releases_its_lease_when_it_is_stopped() {
    let (_dir, sim, site) = world();
    let open = opened(&sim, &site, "");
    let _service = Service::start(&site);
    let mut command = command(&open, example("lease.sh"));
    let child = command.arg("echo started; sleep 600").stdout(Stdio::piped()).spawn().unwrap();
    let mut child = Kept(child);
    let mut lines = Lines::of("lease.sh", child.0.stdout.take().unwrap());
    lines.until(|line| line == "started");
    child.signal("TERM");
    assert_eq!(child.wait(), Some(143));
    assert_eq!(leases(&site), ["ended"]);
}

/// A job of a gitlab-runner: what it gives its custom executor.
struct Job<'a> {
    open: &'a Open,
    dir: tempfile::TempDir,
    labels: &'a str,
}

impl Job<'_> {
    fn stage(&self, words: &[&str]) -> Output {
        let mut command = command(self.open, example("gitlab-executor.sh"));
        command.env("TMPDIR", self.dir.path()).env_remove("XDG_RUNTIME_DIR");
        command.env("BUILD_FAILURE_EXIT_CODE", "101").env("SYSTEM_FAILURE_EXIT_CODE", "102");
        command.env("BUILD_EXIT_CODE_FILE", self.dir.path().join("code"));
        command.env("CUSTOM_ENV_CI_JOB_ID", "17").env("CUSTOM_ENV_CI_JOB_TIMEOUT", "600");
        command.env("CUSTOM_ENV_DROVER_LABELS", self.labels);
        command.args(words).output().unwrap()
    }

    /// Runs a script as a stage; its exit code and output.
    fn run(&self, stage: &str, script: &str) -> (Option<i32>, String) {
        let path = self.dir.path().join("script");
        fs::write(&path, format!("#!/usr/bin/env bash\nset -eo pipefail\n{script}\n")).unwrap();
        let out = self.stage(&["run", path.to_str().unwrap(), stage]);
        (out.status.code(), said(&out).0)
    }
}

#[test]
fn the_gitlab_executor_says_a_failed_job_from_a_lost_machine() {
    let (_dir, sim, site) = world();
    let open = opened(&sim, &site, "");
    let service = Service::start(&site);
    service.drain();
    let mut events = Events::follow(&site);
    let job = |labels| Job { open: &open, dir: tempfile::tempdir().unwrap(), labels };

    let good = job("linux,x64");
    let config: Value = serde_json::from_slice(&good.stage(&["config"]).stdout).unwrap();
    assert_eq!(config["builds_dir_is_shared"], false, "{config}");
    let out = good.stage(&["prepare"]);
    assert_eq!(out.status.code(), Some(0), "{out:?}");
    let owner = api::call(&site, "GET", "/v1/leases", None).1["leases"][0]["owner"].clone();
    assert_eq!(owner, "gitlab job 17");
    assert_eq!(good.run("prepare_script", "echo on $(hostname) >made"), (Some(0), String::new()));
    let (code, text) = good.run("build_script", "cat made\nexit 3");
    assert_eq!(code, Some(101), "its own failure: {text}");
    assert_eq!(fs::read_to_string(good.dir.path().join("code")).unwrap(), "3\n");
    assert!(text.starts_with("on "), "the same machine: {text}");
    for _ in 0..2 {
        assert_eq!(good.stage(&["cleanup"]).status.code(), Some(0));
    }
    assert_eq!(leases(&site), ["ended"]);

    let lost = job("linux");
    assert_eq!(lost.stage(&["prepare"]).status.code(), Some(0));
    let vmid = site.json(&["agents"])["agents"][0]["vmid"].as_u64().unwrap();
    sim.call("POST", &format!("/nodes/{}/qemu/{vmid}/status/stop", sim.fact("node")));
    assert_eq!(lost.run("build_script", "true").0, Some(102), "nobody's failure");
    lost.stage(&["cleanup"]);
    events.until("agentGone", |_| true);

    let none = job("solaris");
    assert_eq!(none.stage(&["prepare"]).status.code(), Some(102));
    assert_eq!(none.stage(&["cleanup"]).status.code(), Some(0), "nothing to give back");
}

/// The text behind a key of the Nomad job.
fn said_by<'a>(job: &'a str, key: &str, until: &str) -> &'a str {
    let (_, rest) = job.split_once(key).unwrap();
    rest.split_once(until).unwrap().0
}

#[test]
fn the_nomad_task_runs_its_command_on_a_machine_with_the_template_as_variables() {
    let (dir, sim, site) = world();
    let open = opened(&sim, &site, "");
    let _service = Service::start(&site);
    let job = fs::read_to_string(example("nomad.hcl")).unwrap();
    let program: String =
        serde_json::from_str(said_by(&job, "        command = ", "\n").trim()).unwrap();
    let args: Vec<String> =
        serde_json::from_str(said_by(&job, "        args    = ", "\n").trim()).unwrap();
    // What Nomad would fill in: the folder of secrets, and the two values of the template.
    let secrets = dir.path().display().to_string();
    let args: Vec<String> =
        args.iter().map(|word| word.replace("${NOMAD_SECRETS_DIR}", &secrets)).collect();
    let data: String = said_by(&job, "<<EOT\n", "EOT\n")
        .lines()
        .zip(["main", "hunter2"])
        .map(|(line, value)| format!("{}={value}\n", line.split_once('=').unwrap().0))
        .collect();
    fs::write(dir.path().join("build.env"), data).unwrap();
    assert_eq!(program, "/usr/local/bin/drover");
    let out = command(&open, "drover").args(args).output().unwrap();
    assert_eq!((out.status.code(), said(&out).0.as_str()), (Some(0), "building main\n"), "{out:?}");
    assert_eq!(leases(&site), ["ended"]);
}
