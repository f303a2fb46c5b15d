//! Images: from an empty cluster to the first template, over real HTTPS and SSH.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::harness::{Events, Kept, Lines, Service, Sim, Site, WAIT_LIMIT, world_of};

/// Between two bytes of a file that comes slowly, and what the gate is meanwhile.
const PAUSE: Duration = Duration::from_secs(1);
const CLOSED: RecvTimeoutError = RecvTimeoutError::Timeout;

/// A cluster without templates, and a site with an image and a template that names it.
pub(super) fn world() -> (tempfile::TempDir, Sim, Site) {
    let (dir, sim, site) = world_of(include_str!("images_cluster.yaml"));
    let yaml = site.yaml(&sim, "").replace("templateVmId: 9000", "image: debian");
    let images = format!(
        "images:\n  debian:\n    cloudIds: [lab]\n    credentialsId: agents\n    \
         storage: local-lvm\n    source:\n      url: https://cloud.example/debian-13.qcow2\n      \
         checksum: {sum}\n    packages: [git]\n    commands: [\"echo ${{word}} > ~/built\"]\n    \
         variables: {{word: one}}\n    keep: 0\n    sshPort: 2222\n    \
         guestNetworks: [\"127.77.0.0/16\"]\n",
        sum = "ab".repeat(32),
    );
    site.write_yaml(&format!("{yaml}{images}"));
    (dir, sim, site)
}

/// What a command that must succeed says.
pub(super) fn says(site: &Site, args: &[&str]) -> String {
    let out = site.cli(args);
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.success(), "{args:?}: {said}{}", String::from_utf8_lossy(&out.stderr));
    said
}

/// The VMIDs of the templates.
pub(super) fn templates(sim: &Sim) -> Vec<u64> {
    let answer = sim.call("GET", "/cluster/resources?type=vm");
    let all = answer["data"].as_array().cloned().unwrap_or_default();
    let templates = all.iter().filter(|guest| guest["template"] == 1);
    templates.filter_map(|guest| guest["vmid"].as_u64()).collect()
}

/// Waits until Proxmox's list, which is seconds behind, has these templates.
pub(super) fn until_templates(site: &Site, sim: &Sim, wanted: &[u64]) {
    let mut events = Events::follow(site);
    while templates(sim) != wanted {
        site.cli(&["resync"]);
        events.until("reconciled", |_| true);
    }
}

// Invariant: an image is built once, leased from, and goes when a newer version is there and nobody
// uses it.

#[test]
fn an_image_is_built_listed_leased_from_and_pruned() {
    let (_dir, sim, site) = world();
    let _service = Service::start(&site);
    let planned = says(&site, &["image", "build", "debian", "--dry-run"]);
    assert!(planned.starts_with("pve1: a build of version "), "{planned}");
    let built = says(&site, &["image", "build", "debian"]);
    assert!(built.trim_end().ends_with("pve1 (VMID 9000)  Done"), "{built}");
    let again = says(&site, &["image", "build", "debian"]);
    assert!(again.contains("is up to date (VMID 9000): nothing to build"), "{again}");
    let listed = site.json(&["image", "list"]);
    let version = &listed["versions"][0];
    assert_eq!((&version["image"], &version["vmid"]), (&json!("lab/debian"), &json!(9000)));
    assert_eq!((&version["kept"], &listed["unread"]), (&json!("it is the newest"), &json!([])));

    let config = sim.config("pve1", 9000);
    let text = |key: &str| config[key].as_str().unwrap_or_default().to_owned();
    assert!(text("name").starts_with("debian-"), "{config}");
    assert!(text("scsi0").starts_with("local-lvm:base-9000-disk-"), "{config}");
    assert_eq!((text("machine"), text("bios")), ("q35".to_owned(), "ovmf".to_owned()));
    assert!(text("scsi1").contains("cloudinit") && text("sshkeys").is_empty(), "{config}");
    let lease = ["lease", "--template", "linux", "--owner", "ann", "--"];
    let said =
        says(&site, &[&lease[..], &["cat ~/built; grep -c . ~/.ssh/authorized_keys"]].concat());
    let (word, keys) = said.trim_end().split_once('\n').unwrap();
    assert_eq!(word, "one");
    assert!(keys.parse::<u32>().unwrap() > 0, "the agent has keys of its own: {said}");

    let other = says(&site, &["image", "build", "debian", "--var", "word=two"]);
    assert!(other.contains("Done"), "{other}");
    // The agent is a linked clone of the first one.
    let shown = says(&site, &["image", "prune", "--dry-run"]);
    assert!(shown.contains("agents were cloned from it"), "{shown}");
    says(&site, &["reap", "--all"]);
    site.until_empty();
    until_templates(&site, &sim, &[9000, 9001]);
    let pruned = says(&site, &["image", "prune"]);
    assert!(pruned.contains("9000"), "{pruned}");
    until_templates(&site, &sim, &[9001]);
}

// Invariant: a job alone has its image built where the YAML says so; an image that left the YAML stays
// until somebody asks for its end.

#[test]
fn a_job_waits_for_the_image_that_it_has_built_and_runs_on_it() {
    let (_dir, sim, site) = world();
    let yaml = std::fs::read_to_string(site.config()).unwrap();
    site.write_yaml(&yaml.replace("    keep: 0\n", "    keep: 0\n    buildWhenMissing: true\n"));
    let _service = Service::start(&site);
    let said =
        says(&site, &["lease", "--template", "linux", "--owner", "ann", "--", "cat ~/built"]);
    assert_eq!(said.trim_end(), "one");
    says(&site, &["reap", "--all"]);
    site.until_empty();
    until_templates(&site, &sim, &[9000]);

    let (without, _) = yaml.split_once("images:\n").unwrap();
    site.write_yaml(&without.replace("image: debian", "templateVmId: 9000"));
    says(&site, &["reload"]);
    let listed = site.json(&["image", "list"]);
    assert_eq!(listed["images"], json!([]));
    let why =
        "its image is not in the YAML any more; `drover image prune --unconfigured` removes it";
    assert_eq!(listed["versions"][0]["kept"], why);
    let stays = says(&site, &["image", "prune", "--unconfigured"]);
    assert!(stays.contains("stays: a template names its VMID"), "{stays}");
    site.write_yaml(&without.replace("image: debian", "templateVmId: 9001"));
    says(&site, &["reload"]);
    let goes = says(&site, &["image", "prune", "--unconfigured", "--dry-run"]);
    assert!(goes.contains("(VMID 9000) would be removed"), "{goes}");
    says(&site, &["image", "prune", "--unconfigured"]);
    until_templates(&site, &sim, &[]);
}

/// A disk image full of a byte, and its SHA-256.
pub(super) fn disk(byte: u8) -> (Vec<u8>, String) {
    let mut content = b"QFI\xfb".to_vec();
    content.resize(700_000, byte);
    let digest = Sha256::digest(&content);
    let sum = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    (content, sum)
}

/// A web server on loopback with one file, and how often it was asked. While the gate is closed, which its
/// sender does by living, a file comes byte by byte.
pub(super) fn publish(content: Vec<u8>, gate: Option<Receiver<()>>) -> (String, Arc<AtomicU32>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/disk.qcow2", listener.local_addr().unwrap());
    let asked = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&asked);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            count.fetch_add(1, Ordering::Relaxed);
            let mut line = String::new();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            while reader.read_line(&mut line).is_ok_and(|length| length > 2) {
                line.clear();
            }
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", content.len());
            let _sent = stream.write_all(head.as_bytes());
            let mut rest = content.iter().copied();
            while gate.as_ref().is_some_and(|gate| gate.recv_timeout(PAUSE) == Err(CLOSED)) {
                let Some(byte) = rest.next() else { break };
                if stream.write_all(&[byte]).is_err() {
                    break;
                }
            }
            // One that does not read it all has seen enough.
            let _sent = stream.write_all(&rest.collect::<Vec<u8>>());
        }
    });
    (url, asked)
}

// Invariant: drover downloads a source itself where the YAML says so, and uploads it in one form.

#[test]
fn an_image_is_built_of_a_source_that_drover_downloads_and_uploads() {
    let (dir, sim, site) = world();
    let (content, sum) = disk(7);
    let (url, asked) = publish(content, None);
    let yaml = std::fs::read_to_string(site.config()).unwrap();
    let yaml = yaml.replace("https://cloud.example/debian-13.qcow2", &url);
    let keys = "storage: local-lvm\n    downloadBy: DROVER\n    downloadProxy: none\n";
    let yaml = yaml.replace("storage: local-lvm\n", keys).replace(&"ab".repeat(32), &sum);
    site.write_yaml(&yaml);
    let _service = Service::start(&site);
    let built = says(&site, &["image", "build", "debian"]);
    assert!(built.trim_end().ends_with("Done"), "{built}");
    let files = sim.call("GET", "/nodes/pve1/storage/local/content?content=import");
    let name = format!("local:import/disk-{}.qcow2", &sum[..12]);
    assert_eq!(files["data"][0]["volid"], json!(name), "{files}");
    assert_eq!(files["data"][0]["size"], json!(700_000), "{files}");
    // The next version asks whether it changed, and sends nothing.
    says(&site, &["image", "build", "debian", "--var", "word=two"]);
    assert_eq!(asked.load(Ordering::Relaxed), 2);
    let log = sim.call("GET", "/cluster/tasks");
    let tasks = log["data"].as_array().cloned().unwrap_or_default();
    // Two discs for cloud-init, and the source.
    assert_eq!(tasks.iter().filter(|task| task["type"] == "imgcopy").count(), 3, "{log}");
    let left = std::fs::read_dir(site.dir.path().join("state/downloads")).unwrap().count();
    assert_eq!(left, 0);
    drop(dir);
}

// Invariant: a build that fails says which step it was and what that said, and leaves nothing.

#[test]
fn a_build_that_fails_shows_its_step_and_ends_the_command_with_an_error() {
    let (_dir, sim, site) = world();
    let yaml = std::fs::read_to_string(site.config()).unwrap();
    site.write_yaml(&yaml.replace("echo ${word} > ~/built", "echo no disk left >&2; exit 3"));
    let _service = Service::start(&site);
    let out = site.cli(&["image", "build", "debian"]);
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    assert_eq!(out.status.code(), Some(1), "{said}");
    assert!(said.contains("the step `command 1` ended with exit status 3"), "{said}");
    assert!(said.contains("no disk left"), "{said}");
    for words in [&["image", "list"][..], &["status"]] {
        let said = says(&site, words);
        let line = said.lines().find(|line| line.contains("image lab/debian on pve1: build"));
        let line = line.unwrap_or_else(|| panic!("{words:?}: {said}"));
        assert!(line.contains(" failed at 20") && line.contains("exit status 3"), "{line}");
    }
    let shown = site.json(&["image", "list"])["builds"][0].clone();
    assert!(shown["failure"].as_str().unwrap().contains("exit status 3"), "{shown}");
    assert!(shown["failedAt"].is_string() && shown["nextTry"].is_null(), "{shown}");
    let left: Value = sim.call("GET", "/cluster/resources?type=vm")["data"].clone();
    assert_eq!(left, json!([]));
}

// Invariant: who follows a build hears of the one that drover begins in its place after a kill.

#[test]
fn a_build_that_is_killed_with_the_service_is_followed_to_the_end_of_the_next_one() {
    let (_dir, _sim, site) = world();
    let yaml = std::fs::read_to_string(site.config()).unwrap();
    site.write_yaml(&yaml.replace("echo ${word}", "sleep 4; echo ${word}"));
    let mut service = Service::start(&site);
    let mut events = Events::follow(&site);
    let mut command = site.command(["image", "build", "debian"]);
    let mut child = Kept(command.stdout(Stdio::piped()).spawn().unwrap());
    let mut said = Lines::of("image build", child.0.stdout.take().unwrap());
    events.until("image", |fact| {
        let detail = fact["image"]["detail"].as_str().unwrap_or_default();
        fact["image"]["state"] == "Provisioning" && detail.contains("command 1")
    });
    service.child.signal("KILL");
    service.child.wait();
    let _service = Service::start(&site);
    let said = said.rest_within(WAIT_LIMIT * 2);
    assert_eq!(child.wait(), Some(0), "{said}");
    assert!(said.contains("goes on in its place") && said.trim_end().ends_with("Done"), "{said}");
    let listed = site.json(&["image", "list"]);
    assert_eq!(listed["versions"].as_array().map(Vec::len), Some(1), "{listed}");
}
