//! Herds whose configuration lies in the store of their members: no member has YAML of its own.

use std::any::Any;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use drover_members::{ConfigStore, ShardConfig};
use drover_stores::StoreAddress;
use drover_stores::testing::{Cluster, ObjectServer};
use drover_vault::ClusterKey;
use serde_json::Value;

use crate::harness::{Lines, Service, Sim, Site, WAIT_LIMIT, drover, world};

pub const KEY: &str = "0123456789abcdef0123456789abcdef";

/// A herd of one store, and the processes that serve it.
struct Herd {
    dir: PathBuf,
    address: String,
    members: Vec<Member>,
}

struct Member {
    name: String,
    service: Option<Service>,
    /// Somebody reads it, so that the member never waits.
    _log: Lines,
}

/// The YAML of a member, without what the store and the member say.
pub fn yaml(site: &Site, sim: &Sim, cap: u32) -> String {
    let yaml = site.yaml(sim, "").replace("instanceCap: 4", &format!("instanceCap: {cap}"));
    let lines = yaml.lines().filter(|line| !line.contains("stateDirectory:"));
    let yaml: String = lines.map(|line| format!("{line}\n")).collect();
    yaml.replace("service:\n", "service:\n  listen: \"127.0.0.1:0\"\n  leaderLeaseSec: 3\n")
}

fn text(out: &Output) -> String {
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    text + &String::from_utf8_lossy(&out.stderr)
}

impl Herd {
    fn new(site: &Site, address: String) -> Self {
        site.write_secret("cluster.key", KEY);
        Self { dir: site.dir.path().to_owned(), address, members: Vec::new() }
    }

    fn key(&self) -> PathBuf {
        self.dir.join("cluster.key")
    }

    fn socket(&self, name: &str) -> PathBuf {
        self.dir.join(format!("{name}.sock"))
    }

    /// A command about the configuration in the store.
    fn shard_config(&self, words: &[&str]) -> (Option<i32>, String) {
        let mut command = drover();
        command.args(words).args(["--store", &self.address, "--cluster-key-file"]).arg(self.key());
        let out = command.output().unwrap();
        (out.status.code(), text(&out))
    }

    fn put(&self, path: &Path) -> String {
        let (code, text) = self.shard_config(&["shard-config", "put", path.to_str().unwrap()]);
        assert_eq!(code, Some(0), "{text}");
        text
    }

    fn get(&self, folder: &str) -> PathBuf {
        let folder = self.dir.join(folder);
        let (code, text) = self.shard_config(&["shard-config", "get", folder.to_str().unwrap()]);
        assert_eq!(code, Some(0), "{text}");
        folder
    }

    /// How a member is started; with an empty folder, or with the option that asks for the store.
    fn run(&self, name: &str, by_option: bool) -> Command {
        let mut command = drover();
        let empty = self.dir.join(format!("{name}.etc"));
        std::fs::create_dir_all(&empty).unwrap();
        command.arg("--config").arg(&empty).arg("--socket").arg(self.socket(name)).arg("run");
        command.args(["--id", name, "--store", &self.address, "--state-dir"]);
        command.arg(self.dir.join(format!("state-{name}")));
        if by_option {
            command.arg("--config-from-store");
        }
        command.env("DROVER_CLUSTER_KEY_FILE", self.key());
        command
    }

    /// Starts a member, and waits until it stands by or leads.
    fn launch(&mut self, name: &str) {
        let mut command = self.run(name, name == "a");
        command.stderr(Stdio::piped());
        let mut service = Service::launch(command);
        let _log = Lines::of(name, service.child.0.stderr.take().unwrap());
        service.hear("READY=1");
        service.drain();
        self.members.retain(|member| member.name != name);
        self.members.push(Member { name: name.to_owned(), service: Some(service), _log });
    }

    /// Starts a member that waits for a configuration, and what it says of that.
    fn waits(&self, mut command: Command) -> ((Service, Lines), String) {
        command.stderr(Stdio::piped());
        let mut service = Service::launch(command);
        let mut log = Lines::of("a member", service.child.0.stderr.take().unwrap());
        let said = log.until(|line| line.contains("waiting for a configuration"));
        ((service, log), said)
    }

    fn kill(&mut self, name: &str) {
        let member = self.members.iter_mut().find(|member| member.name == name).unwrap();
        member.service.as_ref().unwrap().child.signal("KILL");
        member.service = None;
    }

    /// What a member answers; none where nobody leads.
    fn asked(&self, name: &str, path: &str) -> Option<Value> {
        let mut curl = Command::new("curl");
        curl.args(["-sSf", "--max-time", "5", "--unix-socket"]).arg(self.socket(name));
        let out = curl.arg(format!("http://drover{path}")).output().unwrap();
        out.status.success().then(|| serde_json::from_slice(&out.stdout).unwrap())
    }

    fn cap(&self, name: &str) -> Option<Value> {
        Some(self.asked(name, "/v1/templates")?["templates"][0]["cap"].clone())
    }

    fn until(&self, what: &str, mut done: impl FnMut() -> bool) {
        let deadline = Instant::now() + WAIT_LIMIT;
        while !done() {
            assert!(Instant::now() < deadline, "it does not come to this: {what}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn status(&self, name: &str) -> String {
        let mut command = drover();
        text(&command.arg("--socket").arg(self.socket(name)).arg("status").output().unwrap())
    }
}

fn write(folder: &Path, text: &str) {
    std::fs::create_dir_all(folder).unwrap();
    std::fs::write(folder.join("drover.yaml"), text).unwrap();
}

fn edit(folder: &Path, from: &str, to: &str) {
    let file = folder.join("drover.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains(from), "{text}");
    std::fs::write(file, text.replace(from, to)).unwrap();
}

/// Puts a text past the command that checks.
fn put_by_hand(address: &str, text: &str) {
    let address: StoreAddress = address.parse().unwrap();
    let key = ClusterKey::new(&KEY.into()).unwrap();
    let store = ConfigStore::new(address.patient_register(true).unwrap(), &key);
    let before = store.read().unwrap();
    let files = [("drover.yaml".to_owned(), text.to_owned())].into();
    let by = (String::new(), "somebody".to_owned());
    store.put(before.as_ref(), &ShardConfig::after(before.as_ref(), files, by).unwrap()).unwrap();
}

/// Writes what nobody sealed over the configuration.
fn damage(address: &str) {
    let address: StoreAddress = address.parse().unwrap();
    let register = address.patient_register(true).unwrap();
    let there = register.read("configuration").unwrap().unwrap();
    register.write("configuration", Some(&there.version), b"instanceCap: 9").unwrap().unwrap();
}

// Invariant: members without YAML of their own have what the store has, once it is checked.

#[test]
fn members_without_yaml_take_every_edit_from_a_real_etcd() {
    if let Some(cluster) = Cluster::start(3) {
        let address = cluster.text("herd");
        members_take_edits((Box::new(cluster), address));
    }
}

#[test]
fn members_without_yaml_take_every_edit_from_a_real_s3_server() {
    if let Some(server) = ObjectServer::start() {
        let address = server.text("herd");
        members_take_edits((Box::new(server), address));
    }
}

fn members_take_edits((_store, address): (Box<dyn Any>, String)) {
    let (_dir, sim, site) = world();
    let mut herd = Herd::new(&site, address);
    // Nobody has put one: a member says what to do.
    let (waiting, said) = herd.waits(herd.run("a", true));
    assert!(said.contains("drover shard-config put"), "{said}");
    drop(waiting);

    let first = herd.dir.join("first.yaml");
    std::fs::write(&first, yaml(&site, &sim, 4)).unwrap();
    let (code, said) = herd.shard_config(&["create-shard-config", first.to_str().unwrap()]);
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains("first.yaml: added") && said.contains("configuration 1 is put"),
        "{said}"
    );
    let empty = herd.dir.join("fresh");
    write(&empty, &yaml(&site, &sim, 4));
    let said = herd.put(&empty);
    assert!(said.contains("drover.yaml: added\nfirst.yaml: removed"), "{said}");
    ["a", "b", "c"].iter().for_each(|name| herd.launch(name));
    herd.until("the first configuration", || herd.cap("b") == Some(4.into()));

    // An edit reaches all, and one of an older configuration is refused.
    let (one, two) = (herd.get("one"), herd.get("two"));
    edit(&one, "instanceCap: 4", "instanceCap: 3");
    let said = herd.put(&one);
    assert!(said.contains("agentConfigurations.linux.instanceCap: 4 -> 3"), "{said}");
    assert!(herd.put(&one).contains("has these files already"));
    edit(&two, "instanceCap: 4", "instanceCap: 2");
    let (code, said) = herd.shard_config(&["shard-config", "put", two.to_str().unwrap()]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("configuration 000003-") && said.contains("based on 000002-"), "{said}");
    herd.until("the edit", || herd.cap("a") == Some(3.into()));
    herd.until("all have it", || {
        let all = herd.asked("a", "/v1/members");
        let all = all.and_then(|all| all["members"].as_array().cloned()).unwrap_or_default();
        all.len() == 3 && all.iter().all(|one| one["config"] == all[0]["config"])
    });

    // The command refuses a broken one as `drover check` does.
    edit(&one, "instanceCap: 3", "instnaceCap: 1");
    let (code, said) = herd.shard_config(&["shard-config", "put", one.to_str().unwrap()]);
    let mut check = drover();
    check.arg("check").arg(&one).env("DROVER_STORE", &herd.address);
    let checked = check.env("DROVER_CLUSTER_KEY_FILE", herd.key()).output().unwrap();
    assert_eq!((code, &*said), (checked.status.code(), &*text(&checked)));
    assert!(code == Some(2) && said.contains("instnaceCap"), "{said}");

    // One that came past the command is refused too, and a member starts with the one before.
    put_by_hand(&herd.address, &yaml(&site, &sim, 1).replace("instanceCap", "instnaceCap"));
    herd.until("a refusal", || herd.status("a").contains("instnaceCap"));
    assert_eq!(herd.cap("a"), Some(3.into()));
    herd.kill("b");
    herd.launch("b");
    assert_eq!(herd.cap("b"), Some(3.into()));
    put_by_hand(&herd.address, &yaml(&site, &sim, 3));
    herd.until("one without faults", || !herd.status("a").contains("instnaceCap"));
    damage(&herd.address);
    herd.until("what is said of it", || herd.status("a").contains("cannot be opened"));
    assert_eq!(herd.cap("a"), Some(3.into()));
    // Neither a reload of files that are well takes that back, nor another leader.
    let mut command = drover();
    let out = command.arg("--socket").arg(herd.socket("a")).arg("reload").output().unwrap();
    assert!(out.status.success(), "{}", text(&out));
    assert!(herd.status("a").contains("cannot be opened"), "{}", herd.status("a"));
    let leader = || herd.asked("a", "/v1/members").unwrap_or_default()["leader"].clone();
    let before = leader();
    let mut command = drover();
    command.arg("--socket").arg(herd.socket("a")).arg("transfer-leadership").output().unwrap();
    herd.until("another leader that says the same", || {
        !leader().is_null() && leader() != before && herd.status("a").contains("cannot be opened")
    });
    edit(&one, "instnaceCap: 1", "instanceCap: 2");
    let (code, said) = herd.shard_config(&["shard-config", "put", one.to_str().unwrap()]);
    assert!(code == Some(1) && said.contains("--force"), "{said}");
    let force = ["shard-config", "put", one.to_str().unwrap(), "--force"];
    let (code, said) = herd.shard_config(&force);
    assert_eq!(code, Some(0), "{said}");
    herd.until("the repair", || herd.cap("c") == Some(2.into()));
    herd.until("all is well", || !herd.status("a").contains("cannot be opened"));
    // The number begins again by that, and an older copy with the same number is refused.
    let (old, _) = (herd.get("three"), edit(&one, "instanceCap: 2", "instanceCap: 1"));
    damage(&herd.address);
    assert_eq!(herd.shard_config(&force).0, Some(0));
    let (code, said) = herd.shard_config(&["shard-config", "put", old.to_str().unwrap()]);
    assert!(code == Some(1) && said.contains("yours is based on 000001-"), "{said}");
}

#[test]
fn a_member_without_a_configuration_that_can_be_used_waits_for_one() {
    let Some(cluster) = Cluster::start(1) else { return };
    let (_dir, sim, site) = world();
    let herd = Herd::new(&site, cluster.text("herd"));
    put_by_hand(&herd.address, &yaml(&site, &sim, 4).replace("instanceCap", "instnaceCap"));
    let ((mut service, _log), said) = herd.waits(herd.run("a", true));
    assert!(said.contains("is refused"), "{said}");
    let good = herd.dir.join("good");
    write(&good, &yaml(&site, &sim, 4));
    herd.put(&good);
    service.hear("READY=1");
    service.drain();
    herd.until("the configuration", || herd.cap("a") == Some(4.into()));
}

// Invariant: herds of one store do not see each other.

#[test]
fn two_herds_of_one_store_have_their_own_members_and_configurations() {
    let Some(cluster) = Cluster::start(1) else { return };
    let [(_one, sim, site), (_two, other_sim, other_site)] = [world(), world()];
    let mut one = Herd::new(&site, cluster.text("ci/one"));
    let mut two = Herd::new(&other_site, cluster.text("ci/two"));
    for (herd, site, sim, cap) in [(&one, &site, &sim, 4), (&two, &other_site, &other_sim, 3)] {
        write(&herd.dir.join("first"), &yaml(site, sim, cap));
        herd.put(&herd.dir.join("first"));
    }
    one.launch("a");
    two.launch("a");
    for (herd, cap) in [(&one, 4), (&two, 3)] {
        herd.until("its own configuration", || herd.cap("a") == Some(cap.into()));
        let all = herd.asked("a", "/v1/members").unwrap();
        assert_eq!(all["members"].as_array().map(Vec::len), Some(1), "{all}");
    }
    let folder = one.get("edit");
    edit(&folder, "instanceCap: 4", "instanceCap: 1");
    one.put(&folder);
    one.until("the edit", || one.cap("a") == Some(1.into()));
    assert_eq!(two.cap("a"), Some(3.into()));
    let (code, shown) = two.shard_config(&["--json", "shard-config", "show"]);
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!((code, &shown["number"]), (Some(0), &Value::from(1)));
}

// Invariant: what the YAML, the options and the files say together is clear, or refused.

#[test]
fn what_does_not_go_together_is_refused_with_what_to_do() {
    let Some(cluster) = Cluster::start(1) else { return };
    let (_dir, sim, site) = world();
    let herd = Herd::new(&site, cluster.text("herd"));
    let folder = herd.dir.join("own");
    let good = yaml(&site, &sim, 4);
    let put = |text: &str| {
        write(&folder, text);
        herd.shard_config(&["shard-config", "put", folder.to_str().unwrap()])
    };
    let service = |line: &str| good.replace("service:\n", &format!("service:\n  {line}\n"));
    for (line, said) in [
        ("store: \"etcd://127.0.0.1:1/other\"", "names another store"),
        ("stateDirectory: /var/lib/drover", "--state-dir or DROVER_STATE_DIR"),
        ("clusterKey: {secretFile: cluster.key}", "give an absolute path"),
    ] {
        let (code, text) = put(&service(line));
        assert!(code == Some(2) && text.contains(said), "{line}: {text}");
    }
    site.write_secret("other.key", &"k".repeat(40));
    let other = herd.dir.join("other.key");
    let (code, text) =
        put(&service(&format!("clusterKey: {{secretFile: \"{}\"}}", other.display())));
    assert!(code == Some(2) && text.contains("another key than that of"), "{text}");
    assert_eq!(put(&good).0, Some(0));

    let mut command = herd.run("a", true);
    command.env("DROVER_CLUSTER_KEY_FILE", &other);
    let (_waiting, said) = herd.waits(command);
    let of = format!("another service.clusterKey than that in `{}`", other.display());
    assert!(said.contains(&of), "{said}");
    write(&herd.dir.join("a.etc"), &good);
    let out = herd.run("a", true).output().unwrap();
    let said = self::text(&out);
    assert!(out.status.code() == Some(2) && said.contains("move the files away"), "{said}");
    // Files that cannot be used, where the configuration could be in the store.
    write(&herd.dir.join("b.etc"), "a: b\n");
    let out = herd.run("b", false).output().unwrap();
    let said = self::text(&out);
    assert!(out.status.code() == Some(2) && said.contains("--config-from-store"), "{said}");
    let parts =
        ["shard-config", "put", "own", "--storage", "s3", "--bucket", "ci", "--shard", "a b"];
    let mut command = drover();
    command.args(parts).arg("--cluster-key-file").arg(herd.key()).current_dir(&herd.dir);
    let said = self::text(&command.output().unwrap());
    assert!(said.contains("DROVER_STORE") && !said.contains("drover.yaml"), "{said}");
}
