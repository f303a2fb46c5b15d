//! A real Buildbot whose builds run on agents of the simulated cluster: master, worker and the
//! latent worker of the examples.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::examples::{example, opened};
use crate::harness::{Events, Kept, Lines, Service, Sim, Site};
use crate::open::{Open, free_port};

/// A program of the environment that `tests/all` has made.
fn tool(name: &str) -> PathBuf {
    let python = std::env::var_os("DROVER_TEST_PYTHON").map(PathBuf::from);
    let python = python.unwrap_or_else(|| panic!("DROVER_TEST_PYTHON is not set: run tests/all"));
    python.parent().unwrap().join(name)
}

/// A master of its own for one test.
struct Master {
    child: Kept,
    lines: Lines,
    port: u16,
    dir: tempfile::TempDir,
}

impl Master {
    /// Starts one whose leases last this long unless it renews them, in seconds.
    fn start(open: &Open, ttl: u64) -> Self {
        let (dir, port) = (tempfile::tempdir().unwrap(), free_port());
        let base = dir.path().join("master");
        let mut create = Command::new(tool("buildbot"));
        let made = create.args(["create-master", "--quiet"]).arg(&base).output().unwrap();
        assert!(made.status.success(), "{made:?}");
        let config = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/wire/buildbot_master.py");
        fs::copy(config, base.join("master.cfg")).unwrap();
        // Its own would write the log into a file.
        let tac = "from buildbot.master import BuildMaster\nfrom twisted.application import service\n\
                   application = service.Application('buildmaster')\n\
                   BuildMaster('.', 'master.cfg', 0o077).setServiceParent(application)\n";
        fs::write(base.join("own.tac"), tac).unwrap();
        let given = json!({ "url": open.url, "token": open.token, "port": port, "ttl": ttl });
        let mut command = Command::new(tool("twistd"));
        command.args(["--nodaemon", "--no_save", "--pidfile=", "-y", "own.tac"]);
        command.env("MASTER", given.to_string());
        command.env("EXAMPLES", example("").as_os_str()).current_dir(&base);
        let mut child = Kept(command.stdout(Stdio::piped()).spawn().unwrap());
        let mut lines = Lines::of("buildbot", child.0.stdout.take().unwrap());
        lines.until(|line| line.contains("BuildMaster is running"));
        Self { child, lines, port, dir }
    }

    /// Submits a change, whose build runs this.
    fn change(&self, command: &str) {
        let mut send = Command::new(tool("buildbot"));
        send.args(["sendchange", "--auth", "change:test-only", "--who", "me", "--branch", "main"]);
        send.args(["--master", &format!("127.0.0.1:{}", self.port)]);
        send.args(["--property", &format!("command:{command}"), "file.c"]);
        let out = send.current_dir(self.dir.path()).output().unwrap();
        assert!(out.status.success(), "{out:?}");
    }

    /// How the next build ended.
    fn result(&mut self) -> String {
        let line = self.lines.until(|line| line.ends_with(": build finished"));
        let (_, end) = line.split_once("results:").unwrap();
        end.split_once('>').unwrap().0.to_owned()
    }
}

/// A cluster whose machines see the environment with the worker.
fn world() -> (tempfile::TempDir, Sim, Site) {
    let dir = tempfile::tempdir().unwrap();
    let prefixes = "import sys; print(sys.prefix); print(sys.base_prefix)";
    let reported = Command::new(tool("python")).args(["-c", prefixes]).output().unwrap();
    let reported = String::from_utf8(reported.stdout).unwrap();
    // Of this machine's own Python they see everything already.
    let folders = reported.lines().filter(|folder| !folder.starts_with("/usr"));
    let share = folders.flat_map(|folder| ["--share", folder]);
    let options: Vec<&str> = ["--guests", "process"].into_iter().chain(share).collect();
    let sim = Sim::start_with(dir.path(), &options);
    let site = Site::new(&sim);
    (dir, sim, site)
}

/// A service whose machines have the worker of the example, waiting for user data as its unit does.
fn site(sim: &Sim, site: &Site) -> Open {
    let (worker, tools) = (example("buildbot-worker.sh"), tool(""));
    let path = format!("PATH={}:\\\"$PATH\\\"", tools.display());
    let wait = "until test -e .drover-lease/*/env; do sleep 0.1; done";
    let begin = format!("{path} setsid sh -c '{wait}; exec sh worker.sh' >log 2>&1 </dev/null &");
    let upload = format!("{{upload: {{from: \"{}\", to: worker.sh}}}}", worker.display());
    let keys = format!("    singleUse: true\n    prepare: [{upload}, {{run: \"{begin}\"}}]\n");
    opened(sim, site, &keys)
}

/// The next end of an agent.
fn gone(events: &mut Events) -> Value {
    events.until("agentGone", |_| true)["agent"]["reason"].clone()
}

// Invariant: each build has a machine of its own, and nothing is left of it.

#[test]
fn builds_of_a_real_buildbot_run_on_machines_of_their_own_and_leave_nothing_behind() {
    let (_dir, sim, place) = world();
    let open = site(&sim, &place);
    let service = Service::start(&place);
    service.drain();
    let mut events = Events::follow(&place);
    let mut master = Master::start(&open, 60);
    // The second finds nothing of the first.
    for (command, result) in [("touch ~/been", "success"), ("test -e ~/been", "failure")] {
        master.change(command);
        assert_eq!(master.result(), result);
        let ended = events.until("lease", |fact| fact["lease"]["state"] == "ended");
        assert_eq!(ended["lease"]["detail"], "released", "{ended}");
        assert_eq!(gone(&mut events), "used-up");
    }
    assert_eq!(sim.guests(), Vec::<u64>::new());
    assert_eq!(place.json(&["status"])["leases"], json!([]));
}

// Invariant: a machine outlives its master by no more than the time of its lease.

#[test]
fn the_machine_of_a_build_whose_master_was_killed_goes_by_the_time_of_its_lease() {
    let (_dir, sim, place) = world();
    let open = site(&sim, &place);
    let service = Service::start(&place);
    service.drain();
    let mut events = Events::follow(&place);
    let mut master = Master::start(&open, 20);
    master.change("echo started; sleep 600");
    // It is renewed for as long as the build goes on, also by a service that was started again.
    let renewed = |fact: &Value| fact["lease"]["state"] == "ready" && fact["lease"]["detail"] == "";
    let first = events.until("lease", renewed)["lease"]["expiresAt"].clone();
    master.lines.until(|line| line.contains("Worker ci substantiated"));
    events.until("lease", |fact| renewed(fact) && fact["lease"]["expiresAt"] != first);
    drop((events, service));
    let service = Service::start(&place);
    service.drain();
    let mut events = Events::follow(&place);
    events.until("lease", renewed);
    master.child.0.kill().unwrap();
    assert_eq!(gone(&mut events), "lease-expired");
    assert_eq!(sim.guests(), Vec::<u64>::new());
    assert_eq!(place.json(&["status"])["leases"], json!([]));
}
