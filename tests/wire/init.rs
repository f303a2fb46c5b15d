//! `drover init` on real sockets: from an administrator's password to the first lease, again, and in
//! every way in which it must refuse, by options; on a terminal in `init/terminal.rs`.

mod terminal;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

pub use terminal::TERMINAL;

use super::harness::{Service, Sim, drover};
use crate::ci::Server;
use crate::proxies::tls_before;
use crate::woodpecker::Woodpecker;

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
        let text = text.replace(self.sim.fact("fingerprint"), "FINGERPRINT");
        let days = regex_lite::Regex::new(r"\d+ days left").unwrap();
        let text = days.replace_all(&text, "N days left");
        // Who runs the tests, and whether the machine has the unit's group, is not what they are about.
        let of_here = ["note: there is no group `drover`", "note: you are not root"];
        let lines = text.lines().filter(|line| !of_here.iter().any(|own| line.starts_with(own)));
        lines.map(|line| format!("{line}\n")).collect()
    }

    /// Types a command that init printed, where nothing else says where drover is.
    fn types(&self, line: &str) -> Command {
        let own = drover();
        let folder = Path::new(own.get_program()).parent().unwrap();
        let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
        let mut command = Command::new("sh");
        command.args([
            "-c",
            &format!("exec {}", line.replace("SCENE", self.dir.path().to_str().unwrap())),
        ]);
        for (name, value) in own.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.env("PATH", path).env("XDG_RUNTIME_DIR", self.dir.path()).stdin(Stdio::null());
        command
    }

    /// Runs the service by the command that init printed.
    fn service(&self, said: &str) -> Service {
        let line = said.lines().find(|line| line.starts_with("drover ") && line.contains(" run "));
        let mut service = Service::launch(self.types(line.unwrap_or_else(|| panic!("{said}"))));
        service.hear("READY=1");
        assert!(self.etc().join("state/journal.redb").exists());
        service
    }

    /// What a command says that asks the service.
    fn asks(&self, line: &str) -> Output {
        self.types(&format!("drover --config SCENE/etc {line}")).output().unwrap()
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
    assert!(yaml.lines().count() <= 31, "{yaml}");
    let credentials = scene.etc().join("credentials");
    for name in ["proxmox-token", "agent-ssh-key"] {
        assert_eq!(mode(&credentials.join(name)) & 0o037, 0, "{name}");
    }
    let secret = fs::read_to_string(credentials.join("proxmox-token")).unwrap();
    for word in [secret.trim(), scene.sim.fact("adminPassword")] {
        assert!(!said.contains(word) && !yaml.contains(word));
    }

    let mut service = scene.service(&said);
    let out = scene.asks("lease --labels linux -- id -un");
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

// Invariant: what cannot be done is refused with what helps, and leaves nothing behind, here or there.

#[test]
fn what_cannot_be_done_is_refused_and_leaves_nothing() {
    let scene = Scene::new();
    let untrusted = scene.command(&["--yes"]).output().unwrap();
    let mut all = scene.said(&untrusted);
    assert_eq!(untrusted.status.code(), Some(2), "{all}");
    let asked = scene.trusted(&[]);
    all += &scene.said(&asked);
    assert_eq!(asked.status.code(), Some(2), "{all}");
    let mut nameless = drover();
    let named = nameless.arg("init").arg("--dir").arg(scene.etc()).arg("--yes").output().unwrap();
    all += &scene.said(&named);
    assert_eq!(named.status.code(), Some(2), "{all}");
    let other = "00:".repeat(31) + "00";
    let pinned = scene.command(&["--yes", "--fingerprint", &other]).output().unwrap();
    let said = scene.said(&pinned);
    assert_eq!(pinned.status.code(), Some(1), "{said}");
    assert!(said.contains("saw SHA-256 `FINGERPRINT`"), "{said}");
    fs::write(scene.dir.path().join("admin"), "wrong").unwrap();
    all += &scene.refuses(&[], 1);
    fs::write(scene.dir.path().join("admin"), scene.sim.fact("adminPassword")).unwrap();
    all += &scene.refuses(&["--vmids", "9000-9999"], 1);
    all += &scene.refuses(&["--template", "make"], 1);
    all += &scene.refuses(&["--template", "100"], 1);
    scene.is_untouched();
    let all = all.split(" (subject `").map(|part| part.split_once("UTC").map_or(part, |two| two.1));
    insta::assert_snapshot!("refusals", all.collect::<Vec<_>>().join(" …"));
}

#[test]
fn a_cluster_without_a_storage_for_disks_is_refused() {
    let scene = Scene::of(
        "nodes: [{name: pve1}]\nstorages:\n  - {name: local, type: dir, content: [iso]}\n",
    );
    let image = ["--image-url", "https://x.example/a.qcow2", "--image-checksum", &"0".repeat(64)];
    let said = scene.refuses(&[&["--template", "make"], &image[..]].concat(), 1);
    assert!(said.contains("no storage of pve1 takes disk images"), "{said}");
    let said = scene.refuses(&[], 1);
    assert!(said.contains("no template fits\nlet drover build one"), "{said}");
}

// Invariant: an administrator whose password is not enough is led to a token, which serves once.

#[test]
fn an_administrator_with_a_second_factor_is_led_to_a_token() {
    let users = "users: [{userid: ann@pve, password: geheim, secondFactor: true}]\n\
                 acl: [{path: /, who: ann@pve, role: Administrator}]\n";
    let scene = Scene::of(&format!("{}{users}", include_str!("images_cluster.yaml")));
    fs::write(scene.dir.path().join("admin"), "geheim").unwrap();
    let (url, sum) = ("https://cloud.example/debian-13.qcow2", "ab".repeat(32));
    let image = ["--template", "make", "--image-url", url, "--image-checksum", &sum];
    let said = scene.refuses(&[&["--user", "ann@pve"], &image[..]].concat(), 1);
    assert!(said.contains("ann@pve needs a second factor"), "{said}");
    // What it says to type on a node, by the API.
    assert!(said.contains("`pveum user token add ann@pve setup --privsep 0`"), "{said}");
    let token = "/access/users/ann@pve/token/setup";
    let made = scene.sim.admin("POST", token, &[("privsep", "0")]);
    fs::write(scene.dir.path().join("admin"), made["data"]["value"].as_str().unwrap()).unwrap();
    assert!(said.contains("give --user 'ann@pve!setup' and that secret"), "{said}");
    let out = scene.trusted(&[&["--user", "ann@pve!setup", "--yes"], &image[..]].concat());
    assert!(out.status.success(), "{}", scene.said(&out));
    assert!(!scene.yaml().contains("ann@pve"), "{}", scene.yaml());
}

// Invariant: where the cluster's own authority did not sign what its nodes show, their certificates are
// pinned, and nothing else is trusted.

#[test]
fn certificates_of_an_unknown_authority_are_pinned_for_every_node() {
    let scene = Scene::with(&["--guests", "none", "--all-nodes"]);
    let answer = scene.sim.order("replace-certificate");
    let pin = answer["fingerprint"].as_str().unwrap();
    let old = scene.trusted(&["--yes"]);
    assert_eq!(old.status.code(), Some(1), "{}", scene.said(&old));
    scene.is_untouched();
    let out = scene.command(&["--yes", "--fingerprint", pin]).output().unwrap();
    let said = scene.said(&out);
    assert!(out.status.success(), "{said}");
    let yaml = scene.yaml();
    assert!(yaml.contains(&format!("    pinSha256: [\"{pin}\"]\n")), "{yaml}");
    assert!(!yaml.contains("caFile") && !scene.etc().join("pve-root-ca.pem").exists(), "{yaml}");
    for url in scene.sim.facts["urls"].as_object().unwrap().values() {
        assert!(yaml.contains(url.as_str().unwrap()), "{yaml}");
    }
    let again = scene.command(&["--yes", "--fingerprint", pin]).output().unwrap();
    assert!(!scene.said(&again).contains("done: "), "{}", scene.said(&again));
}

// Invariant: what is written has its rights whatever the shell's mask is, and the service's user reads it.

#[test]
fn the_mask_of_the_shell_changes_no_right() {
    let scene = Scene::with(&["--guests", "none", "--all-nodes"]);
    let init = scene.command(&["--yes", "--fingerprint", scene.sim.fact("fingerprint")]);
    let mut masked = Command::new("sh");
    masked.args(["-c", "umask 077; exec \"$@\"", "sh"]).arg(init.get_program());
    masked.args(init.get_args()).stdin(Stdio::null());
    let out = masked.output().unwrap();
    assert!(out.status.success(), "{}", scene.said(&out));
    assert_eq!(mode(&scene.etc()), 0o755);
    for name in ["drover.yaml", "pve-root-ca.pem"] {
        assert_eq!(mode(&scene.etc().join(name)), 0o644, "{name}");
    }
    let others = fs::read_dir(scene.etc()).unwrap().count();
    assert_eq!(others, 3, "YAML, authority and secrets, and nothing that was on its way");
}

// Invariant: somebody's configuration is never overwritten, and never lost.

#[test]
fn a_configuration_that_differs_is_left_alone_and_kept_when_it_is_replaced() {
    let scene = Scene::with(&["--guests", "none", "--all-nodes"]);
    let file = scene.etc().join("drover.yaml");
    fs::create_dir(scene.etc()).unwrap();
    fs::write(&file, "cloudConfigurations: {}\n").unwrap();
    let out = scene.trusted(&["--yes"]);
    let said = scene.said(&out);
    assert_eq!(out.status.code(), Some(1), "{said}");
    assert!(said.contains("exists and differs (line 1 is `cloudConfigurations: {}`"), "{said}");
    assert_eq!(fs::read_dir(scene.etc()).unwrap().count(), 1);
    let out = scene.trusted(&["--yes", "--replace"]);
    assert!(out.status.success(), "{}", scene.said(&out));
    let old = fs::read_to_string(scene.etc().join("drover.yaml.old")).unwrap();
    assert_eq!(old, "cloudConfigurations: {}\n");
    // Another file there is somebody's configuration as well.
    fs::rename(&file, scene.etc().join("site.yaml")).unwrap();
    let out = scene.trusted(&["--yes"]);
    let said = scene.said(&out);
    assert_eq!(out.status.code(), Some(1), "{said}");
    assert!(said.contains("has a configuration already: SCENE/etc/site.yaml;"), "{said}");
}

// Invariant: what an option says is checked as what is typed, and before anything is written.

#[test]
fn options_that_cannot_be_meant_are_refused_with_what_helps() {
    let scene = Scene::with(&["--guests", "none", "--all-nodes"]);
    let said = scene.refuses(&["--node", "pve22"], 1);
    let known = "the cluster has no node `pve22`; it has pve1, pve2, pve3";
    assert!(said.contains(known), "{said}");
    for odd in ["a&&b", "a||b", "!a", "(a)", "a b"] {
        let said = scene.refuses(&["--labels", &format!("linux,{odd}")], 1);
        assert!(said.contains(&format!("`{odd}` is no label")), "{said}");
    }
    let (url, sum) = ("https://cloud.example/debian-13.qcow2", "ab".repeat(32));
    for (url, sum, says) in [
        ("ftp://cloud.example/debian-13.qcow2", sum.as_str(), "is no URL: write https://"),
        (url, "abc", "a sum has 64 or 128 hexadecimal digits"),
    ] {
        let image = ["--template", "make", "--image-url", url, "--image-checksum", sum];
        let said = scene.refuses(&image, 2);
        assert!(said.contains(says), "{said}");
    }
}

// Invariant: a failure on the way says so, and the same command goes on from there.

#[test]
fn a_folder_that_is_named_is_meant_whatever_the_shell_says_of_configurations() {
    let scene = Scene::with(&["--guests", "none", "--all-nodes"]);
    let run = |variable: &str, args: &[&str]| {
        let pin = scene.sim.fact("fingerprint");
        let mut command = scene.command(&[&["--dry-run", "--fingerprint", pin], args].concat());
        let out = command.env("DROVER_CONFIG", variable).output().unwrap();
        (out.status.code(), scene.said(&out))
    };
    let (code, said) = run("/nowhere", &[]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("SCENE/etc/drover.yaml"), "{said}");
    let (code, said) = run("/nowhere", &["--config", "/elsewhere"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("--dir and --config both name"), "{said}");
}

#[test]
fn an_administrator_who_may_not_make_it_all_is_refused_before_anything_is_written() {
    let scene = Scene::new();
    scene.sim.send("POST", "/access/users", &[("userid", "eve@pve"), ("password", "long-enough")]);
    let audit = [("path", "/"), ("users", "eve@pve"), ("roles", "PVEAuditor")];
    scene.sim.send("PUT", "/access/acl", &audit);
    fs::write(scene.dir.path().join("admin"), "long-enough").unwrap();
    let said = scene.refuses(&["--user", "eve@pve"], 1);
    assert!(said.contains("drover: eve@pve lacks "), "{said}");
    assert!(said.contains(": nothing was done; log in as an administrator with --user"), "{said}");
    assert!(!said.contains("what is done above stays"), "{said}");
}

#[test]
fn a_run_that_failed_half_way_is_finished_by_the_next() {
    let scene = Scene::with(&["--guests", "none", "--all-nodes"]);
    // Something else is where the key goes.
    let key = scene.etc().join("credentials/agent-ssh-key");
    fs::create_dir_all(&key).unwrap();
    let out = scene.trusted(&["--yes"]);
    let said = scene.said(&out);
    assert_eq!(out.status.code(), Some(1), "{said}");
    assert!(said.contains("the same command goes on from there"), "{said}");
    fs::remove_dir(&key).unwrap();
    let out = scene.trusted(&["--yes"]);
    let said = scene.said(&out);
    assert!(out.status.success(), "{said}");
    assert!(said.contains("already there: SCENE/etc/pve-root-ca.pem\n"), "{said}");
    assert!(said.contains("done: pveum user token add drover@pve ci"), "{said}");
}

// Invariant: a token whose secret is elsewhere ends it before anything is written, and each way that is
// named leads on as it is printed.

/// Makes drover's token, whose secret nobody keeps.
fn take_token(scene: &Scene) {
    scene.sim.admin("POST", "/access/users", &[("userid", "drover@pve")]);
    scene.sim.admin("POST", "/access/users/drover@pve/token/ci", &[]);
}

#[test]
fn a_token_whose_secret_is_elsewhere_is_left_alone_until_somebody_chooses() {
    let scene = Scene::with(&["--guests", "none", "--all-nodes"]);
    take_token(&scene);
    let before = scene.sim.call("GET", "/access/acl")["data"].to_string();
    let mut all = String::new();
    for args in [&["--yes"][..], &["--dry-run"]] {
        let out = scene.trusted(args);
        all = scene.said(&out);
        assert_eq!(out.status.code(), Some(1), "{all}");
        assert!(!scene.etc().exists(), "{all}");
        assert_eq!(scene.sim.call("GET", "/access/acl")["data"].to_string(), before);
    }
    let out = scene.trusted(&["--yes", "--token", "drover2@pve!ci"]);
    let said = scene.said(&out);
    assert!(out.status.success() && !said.contains("drover@pve"), "{said}");
    // The file is lost: what is printed then renews the secret of what the YAML names.
    fs::remove_file(scene.etc().join("credentials/proxmox-token")).unwrap();
    let out = scene.trusted(&["--yes"]);
    let lost = scene.said(&out);
    assert_eq!(out.status.code(), Some(1), "{lost}");
    assert!(!lost.contains("done: "), "{lost}");
    let line = lost.lines().find(|line| line.contains("setup rights")).unwrap();
    let renewed = scene.types(line.trim()).output().unwrap();
    assert!(renewed.status.success(), "{}", scene.said(&renewed));
    let again = scene.trusted(&["--yes"]);
    let said = scene.said(&again);
    assert!(again.status.success() && !said.contains("done: "), "{said}");
    insta::assert_snapshot!("taken_token", format!("{all}---\n{lost}"));
}

#[test]
fn a_token_gets_another_secret_only_where_that_is_asked_for() {
    let scene = Scene::with(&["--guests", "none", "--all-nodes"]);
    take_token(&scene);
    let out = scene.trusted(&["--yes", "--renew"]);
    let said = scene.said(&out);
    assert!(out.status.success(), "{said}");
    assert!(said.contains("ok: drover@pve!ci logs in"), "{said}");
}

// Invariant: a second drover of a cluster can have roles of its own from the first run on.

#[test]
fn roles_of_its_own_are_made_for_a_second_drover() {
    let scene = Scene::with(&["--guests", "none", "--all-nodes"]);
    // The first one has no guest yet.
    let first = scene.trusted(&["--yes"]);
    assert!(scene.said(&first).contains("VMIDs: 10000-10999 "), "{}", scene.said(&first));
    fs::remove_dir_all(scene.etc()).unwrap();
    let token = ["--token", "drover2@pve!ci"];
    let out = scene.trusted(&[&["--yes", "--role-prefix", "Second"], &token[..]].concat());
    let said = scene.said(&out);
    assert!(out.status.success(), "{said}");
    assert!(scene.yaml().contains("startVmId: 11000 "), "{}", scene.yaml());
    assert!(
        said.contains("pveum role add SecondReader") && !said.contains("DroverReader"),
        "{said}"
    );
    assert!(said.contains("# pool: drover-second ("), "each has a pool of its own: {said}");
}
