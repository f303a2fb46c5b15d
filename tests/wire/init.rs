//! `drover init` on real sockets: from an administrator's password to the first lease, again, and in
//! every way in which it must refuse; by options, and on a terminal.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use super::harness::{Service, Sim, drover};

/// A cluster, and a machine on which nothing of drover is.
struct Scene {
    dir: tempfile::TempDir,
    sim: Sim,
}

impl Scene {
    fn new() -> Self {
        Self::with(&["--guests", "process", "--all-nodes"])
    }

    fn with(options: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let sim = Sim::start_with(dir.path(), options);
        fs::write(dir.path().join("admin"), sim.fact("adminPassword")).unwrap();
        Self { dir, sim }
    }

    fn of(cluster: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("cluster.yaml");
        fs::write(&file, cluster).unwrap();
        let options = ["--guests", "process", "--cluster", file.to_str().unwrap()];
        let sim = Sim::start_with(dir.path(), &options);
        fs::write(dir.path().join("admin"), sim.fact("adminPassword")).unwrap();
        Self { dir, sim }
    }

    fn etc(&self) -> PathBuf {
        self.dir.path().join("etc")
    }

    fn yaml(&self) -> String {
        fs::read_to_string(self.etc().join("drover.yaml")).unwrap()
    }

    /// The address of each node that is served.
    fn urls(&self) -> Vec<String> {
        let all = self.sim.facts["urls"].as_object().unwrap().values();
        all.flat_map(|url| ["--node-url".to_owned(), url.as_str().unwrap().to_owned()]).collect()
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = drover();
        command.arg("init").args(self.urls()).arg("--dir").arg(self.etc());
        command.arg("--password-file").arg(self.dir.path().join("admin"));
        command.args(["--ssh-port", "2222", "--guest-networks", "127.77.0.0/16"]).args(args);
        command
    }

    fn trusted(&self, args: &[&str]) -> Output {
        let pin = self.sim.fact("fingerprint");
        self.command(&[&["--fingerprint", pin], args].concat()).output().unwrap()
    }

    /// What is said, without what differs in each run.
    fn said(&self, out: &Output) -> String {
        let text = String::from_utf8_lossy(&[&out.stdout[..], &out.stderr].concat()).into_owned();
        let mut text = text.replace(&self.dir.path().display().to_string(), "SCENE");
        for (node, url) in self.sim.facts["urls"].as_object().unwrap() {
            text = text.replace(url.as_str().unwrap(), &format!("https://{node}.example:8006"));
        }
        text.replace(self.sim.fact("fingerprint"), "FINGERPRINT")
    }

    /// That nothing was made here or there.
    fn is_untouched(&self) {
        assert!(!self.etc().exists(), "{:?}", fs::read_dir(self.etc()));
        let users = self.sim.call("GET", "/access/users")["data"].to_string();
        assert!(!users.contains("drover@pve"), "{users}");
    }

    fn refuses(&self, args: &[&str], code: i32) -> String {
        let out = self.trusted(&[&["--yes"], args].concat());
        let said = self.said(&out);
        assert_eq!(out.status.code(), Some(code), "{said}");
        self.is_untouched();
        said
    }
}

fn mode(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt as _;
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

// Invariant: one command leads from a cluster to the first lease, and what it says it would do is what
// it does; the second run finds all of it there, also while agents run.

#[test]
fn one_command_leads_to_the_first_lease_and_finds_everything_the_second_time() {
    let scene = Scene::new();
    let dry = scene.trusted(&["--dry-run"]);
    assert!(dry.status.success(), "{}", scene.said(&dry));
    scene.is_untouched();
    insta::assert_snapshot!("dry_run", scene.said(&dry));
    let done = scene.trusted(&["--yes"]);
    let said = scene.said(&done);
    assert!(done.status.success(), "{said}");
    insta::assert_snapshot!("first_run", said);
    let yaml = scene.yaml();
    assert!(yaml.lines().count() <= 30, "{yaml}");
    let credentials = scene.etc().join("credentials");
    for name in ["proxmox-token", "agent-ssh-key"] {
        assert_eq!(mode(&credentials.join(name)) & 0o037, 0, "{name}");
    }
    let secret = fs::read_to_string(credentials.join("proxmox-token")).unwrap();
    for word in [secret.trim(), scene.sim.fact("adminPassword")] {
        assert!(!said.contains(word) && !yaml.contains(word));
    }

    let (state, run) = (scene.dir.path().join("state"), scene.dir.path().join("run"));
    fs::create_dir(&run).unwrap();
    let mut service = drover();
    service.arg("--config").arg(scene.etc()).arg("run");
    service.env("STATE_DIRECTORY", state).env("RUNTIME_DIRECTORY", &run);
    let mut service = Service::launch(service);
    service.hear("READY=1");
    let mut lease = drover();
    lease.arg("--socket").arg(run.join("drover.sock"));
    lease.args(["lease", "--labels", "linux", "--", "id -un"]);
    let out = lease.env("XDG_RUNTIME_DIR", scene.dir.path()).output().unwrap();
    assert!(out.status.success() && out.stdout == b"debian\n", "{}", scene.said(&out));

    let again = scene.trusted(&["--yes"]);
    let said = scene.said(&again);
    assert!(again.status.success(), "{said}");
    assert!(!said.contains("done: "), "{said}");
    assert!(said.contains("already there: SCENE/etc/drover.yaml\n"), "{said}");
    assert!(said.contains("nothing to do: drover@pve!ci holds what is needed\n"), "{said}");
    assert_eq!(scene.yaml(), yaml);
    service.child.signal("TERM");
    assert_eq!(service.child.wait(), Some(0));
}
