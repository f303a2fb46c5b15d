//! `drover setup service` on real sockets: a container or virtual machine is made, drover is put
//! into it over SSH and runs there, and nothing that is not its own is touched.

use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::OnceLock;

use serde_json::Value;

use super::harness::{Sim, Site, drover};

/// The program without what debuggers want, which would take long on its way.
fn program() -> &'static PathBuf {
    static STRIPPED: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    let (_, path) = STRIPPED.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("drover");
        let whole = drover();
        let done = Command::new("strip").arg("-o").arg(&path).arg(whole.get_program()).status();
        assert!(done.unwrap().success());
        (dir, path)
    });
    path
}

/// A site as somebody would keep it: its files beside the YAML, named without a folder.
pub fn site(sim: &Sim) -> Site {
    let site = Site::new(sim);
    let dir = format!("{}/", site.dir.path().display());
    let yaml = site.yaml(sim, "").replace(&dir, "");
    let yaml = yaml.replace("  socket: \"drover.sock\"\n", "");
    let yaml = yaml.replace("  stateDirectory: \"state\"\n", "  logLevel: info\n");
    site.write_yaml(&yaml);
    site.write_secret("admin", sim.fact("adminPassword"));
    site
}

fn setup_as(site: &Site, user: &str, args: &[&str], variables: &[(&str, &str)]) -> (i32, String) {
    let mut command = drover();
    command.arg("--config").arg(site.config()).args(["setup", "service", "--user", user]);
    command.arg("--password-file").arg(site.dir.path().join("admin"));
    command.arg("--program").arg(program()).args(["--ssh-port", "2222"]).args(args);
    for name in ["ID", "HOSTNAME", "STORAGE", "BRIDGE", "CORES", "MEMORY", "DISK", "TEMPLATE"] {
        command.env_remove(format!("CT_{name}"));
    }
    command.envs(variables.iter().copied());
    reported(site, command.output().unwrap())
}

fn setup(site: &Site, args: &[&str]) -> (i32, String) {
    setup_as(site, "root@pam", args, &[])
}

fn reported(site: &Site, out: Output) -> (i32, String) {
    let text = String::from_utf8([out.stdout, out.stderr].concat()).unwrap();
    (out.status.code().unwrap(), text.replace(&site.dir.path().display().to_string(), "SITE"))
}

fn versions(mut test: impl FnMut(&Sim, &str)) {
    for version in ["8.4", "9.2"] {
        let dir = tempfile::tempdir().unwrap();
        let sim = Sim::start_with(dir.path(), &["--guests", "process", "--pve", version]);
        test(&sim, version);
    }
}

/// Leaves out what is another one in every run.
fn steady(text: &str) -> String {
    let mut lines = Vec::new();
    for line in text.lines() {
        let words = line.split(' ').map(|word| match word {
            _ if word.starts_with("SHA256:") => "SHA256:…",
            _ if word.starts_with("AAAA") => "AAAA…",
            _ if word.starts_with("ssh-ed25519%20") => "ssh-ed25519%20…",
            _ if word.starts_with("127.77.") => "127.77.…",
            _ => word,
        });
        let line = words.collect::<Vec<_>>().join(" ");
        let cluster = line.strip_prefix("cluster ").map(|_| "cluster …".to_owned());
        lines.push(cluster.unwrap_or(line));
    }
    lines.join("\n")
}

/// Runs a command in the guest as drover's own key lets one in.
fn inside(site: &Site, address: &str, command: &str) -> String {
    let out = Command::new("ssh")
        .args([
            "-p",
            "2222",
            "-o",
            "StrictHostKeyChecking=no",
            "-o",
            "UserKnownHostsFile=/dev/null",
        ])
        .args(["-o", "LogLevel=ERROR", "-o", "IdentitiesOnly=yes", "-i"])
        .arg(site.dir.path().join("service-ssh-key"))
        .arg(format!("root@{address}"))
        .arg(command)
        .output()
        .unwrap();
    assert!(out.status.success(), "{command}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

fn address_in(text: &str) -> String {
    let at = text.lines().last().unwrap().rsplit_once(" at ").unwrap().1;
    at.strip_suffix(":2222").unwrap().to_owned()
}

// Invariant: what is printed is what is done; drover runs in the guest with the configuration of here;
// the second time there is nothing to do, and what differs is brought when that is asked for.

#[test]
fn a_container_is_made_with_drover_running_in_it() {
    versions(|sim, version| {
        let site = site(sim);
        let (code, dry) = setup(&site, &["--dry-run"]);
        assert_eq!(code, 0, "{dry}");
        insta::assert_snapshot!(
            format!("container_on_{}", version.replace('.', "_")),
            steady(&dry)
        );
        assert_eq!(sim.guests(), Vec::<u64>::new());
        assert!(!site.dir.path().join("service-ssh-key").exists());

        let (code, done) = setup(&site, &[]);
        assert_eq!(code, 0, "{done}");
        assert_eq!(sim.guests(), [300]);
        let address = address_in(&done);
        let status = inside(&site, &address, "/usr/local/bin/drover status");
        assert!(status.contains("lab"), "{status}");
        let rights =
            inside(&site, &address, "stat -c '%a %U %n' /etc/drover/* /etc/default/drover");
        let modes = rights.lines().map(|line| {
            let mut words = line.split(' ');
            // Root and the service are one user in there.
            (words.next().unwrap(), words.nth(1).unwrap())
        });
        let secrets = ["drover/ca.pem", "drover/drover.yaml", "drover/key", "drover/token"];
        let secrets = secrets.into_iter().chain(["default/drover"]);
        let secrets: Vec<_> = secrets.map(|name| format!("/etc/{name}")).collect();
        assert_eq!(
            modes.collect::<Vec<_>>(),
            secrets.iter().map(|path| ("600", &**path)).collect::<Vec<_>>()
        );
        let (code, again) = setup(&site, &[]);
        assert_eq!(code, 0, "{again}");
        let nothing = "nothing to do: drover runs in container 300 on pve1, at 127.77.…";
        assert_eq!(
            steady(&again).rsplit_once(":2222").map_or(steady(&again), |(a, _)| a.into()),
            nothing
        );

        let yaml = std::fs::read_to_string(site.config()).unwrap();
        site.write_yaml(&yaml.replace("instanceCap: 4", "instanceCap: 3"));
        let (code, reported) = setup(&site, &[]);
        assert_eq!(code, 0, "{reported}");
        let note = "note: container 300 has others of /etc/drover/drover.yaml: --upgrade brings those of here\n";
        assert_eq!(reported, note);
        let (code, reported) = setup(&site, &["--upgrade"]);
        assert_eq!(code, 0, "{reported}");
        assert!(
            reported.starts_with("done: put /etc/drover/drover.yaml there\nok: "),
            "{reported}"
        );
        assert!(inside(&site, &address, "cat /etc/drover/drover.yaml").contains("instanceCap: 3"));
        assert!(setup(&site, &[]).1.starts_with("nothing to do"));

        // A container that stands still is started, and drover in it.
        sim.send("POST", "/nodes/pve1/lxc/300/status/stop", &[]);
        while sim.call("GET", "/nodes/pve1/lxc/300/status/current")["data"]["status"] != "stopped" {
            std::thread::yield_now();
        }
        let (code, reported) = setup(&site, &[]);
        assert_eq!(code, 0, "{reported}");
        assert!(
            reported.starts_with("done: pvesh create /nodes/pve1/lxc/300/status/start\n"),
            "{reported}"
        );
        assert!(reported.contains("\nok: drover runs in container 300"), "{reported}");
    });
}

#[test]
fn variables_stand_for_options_and_options_win() {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start_with(dir.path(), &["--guests", "none"]);
    let site = site(&sim);
    let variables = [
        ("CT_ID", "310"),
        ("CT_HOSTNAME", "dispatcher-1"),
        ("CT_CORES", "2"),
        ("CT_MEMORY", "1024"),
        ("CT_DISK", "8"),
        ("CT_BRIDGE", "vmbr0.20"),
        ("CT_TEMPLATE", "ubuntu-24.04-standard_24.04-2_amd64.tar.zst"),
    ];
    let (code, reported) = setup_as(&site, "root@pam", &["--dry-run", "--disk", "16"], &variables);
    assert_eq!(code, 0, "{reported}");
    insta::assert_snapshot!(steady(reported.split("# then over SSH").next().unwrap()));
}

#[test]
fn a_virtual_machine_is_made_of_a_template_with_cloud_init() {
    versions(|sim, version| {
        let site = site(sim);
        let machine = ["--vm", "debian-12", "--node", "pve3", "--disk", "20"];
        let (code, dry) = setup(&site, &[&machine[..], &["--dry-run"]].concat());
        assert_eq!(code, 0, "{dry}");
        let name = format!("machine_on_{}", version.replace('.', "_"));
        insta::assert_snapshot!(name, steady(dry.split("# then over SSH").next().unwrap()));
        let (code, done) = setup(&site, &machine);
        assert_eq!(code, 0, "{done}");
        let status = inside(&site, &address_in(&done), "/usr/local/bin/drover status");
        assert!(status.contains("lab"), "{status}");
        assert!(
            setup(&site, &machine).1.starts_with("nothing to do: drover runs in virtual machine")
        );
        let (code, reported) = setup(&site, &[]);
        assert_eq!(code, 1);
        assert!(reported.contains("is already the virtual machine 300"), "{reported}");
    });
}

// Invariant: high availability is asked for where it can do its work, and refused with the reason elsewhere.

#[test]
fn high_availability_needs_a_storage_that_all_nodes_reach() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = dir.path().join("cluster.yaml");
    let node = |name: &str| format!("  - {{name: {name}}}\n");
    let text = format!(
        "name: lab\nrootPassword: secret\nrootTokens: [{{name: drover, secret: s, privsep: false}}]\n\
         nodes:\n{}{}storages:\n  - {{name: local, type: dir, content: [vztmpl]}}\n  \
         - {{name: local-lvm, type: lvmthin, content: [rootdir]}}\n  \
         - {{name: ceph, type: rbd, content: [rootdir, images], shared: true}}\n",
        node("pve1"),
        node("pve2")
    );
    std::fs::write(&cluster, text).unwrap();
    let options = ["--guests", "process", "--cluster", cluster.to_str().unwrap(), "--pve", "9.2"];
    let sim = Sim::start_with(dir.path(), &options);
    let site = site(&sim);
    let (code, reported) = setup(&site, &["--ha"]);
    assert_eq!(code, 1);
    insta::assert_snapshot!(reported);
    let (code, reported) = setup(&site, &["--ha", "--storage", "ceph"]);
    assert_eq!(code, 0, "{reported}");
    let managed = sim.call("GET", "/cluster/ha/resources")["data"].clone();
    assert_eq!((&managed[0]["sid"], &managed[0]["state"]), (&"ct:300".into(), &"started".into()));
    let (code, reported) = setup(&site, &["--ha", "--storage", "ceph"]);
    assert!(code == 0 && reported.starts_with("nothing to do"), "{reported}");
}

// Invariant: a guest that is not its own is never touched, and what is missing is named before anything
// is done.

#[test]
fn what_does_not_fit_is_refused_and_nothing_is_made() {
    versions(|sim, _| {
        let site = site(sim);
        let mut said = Vec::new();
        let mut refused = |args: &[&str]| {
            let (code, reported) = setup(&site, args);
            assert_eq!(code, 1, "{reported}");
            said.push(reported);
        };
        refused(&["--bridge", "vmbr9"]);
        refused(&["--storage", "nowhere"]);
        refused(&["--storage", "local"]);
        refused(&["--node", "pve9"]);
        refused(&["--vmid", "9000"]);
        refused(&["--template", "plan9-4_1_amd64.tar.zst"]);
        refused(&["--vm", "nothing"]);
        insta::assert_snapshot!("refusals", said.concat());
        assert_eq!(sim.guests(), Vec::<u64>::new());

        // A copy of its own, by hand, is a stranger.
        let marks = "```drover-service-1\nname drover-1\nvmid 299\ncluster x\n```";
        let copy = [
            ("vmid", "300"),
            ("ostemplate", "local:vztmpl/debian-12-standard_12.12-1_amd64.tar.zst"),
            ("rootfs", "local-lvm:4"),
            ("tags", "drover-service"),
            ("description", marks),
        ];
        let template =
            [("storage", "local"), ("template", "debian-12-standard_12.12-1_amd64.tar.zst")];
        wait(sim, "/nodes/pve1/aplinfo", &template);
        wait(sim, "/nodes/pve1/lxc", &copy);
        let (code, reported) = setup(&site, &["--dry-run"]);
        assert_eq!(code, 0, "{reported}");
        assert!(reported.contains("--vmid 301 "), "{reported}");
        let (code, reported) = setup(&site, &["--vmid", "300"]);
        assert_eq!(code, 1);
        assert!(
            reported.contains("VMID 300 belongs to a guest that is not drover's `drover-1`"),
            "{reported}"
        );

        // Somebody who may make containers, and not have them kept running.
        sim.send("POST", "/access/users", &[("userid", "eve@pve"), ("password", "long-enough")]);
        let roles = [("path", "/"), ("users", "eve@pve"), ("roles", "PVEVMAdmin,PVEAuditor")];
        sim.send("PUT", "/access/acl", &roles);
        site.write_secret("admin", "long-enough");
        let (code, reported) = setup_as(&site, "eve@pve", &[], &[]);
        assert_eq!(code, 1);
        insta::assert_snapshot!("missing_privileges", reported);
        assert_eq!(sim.guests(), [300]);
    });
}

/// Makes something and waits for it.
fn wait(sim: &Sim, path: &str, params: &[(&str, &str)]) {
    let upid = sim.send("POST", path, params)["data"].clone();
    let upid = upid.as_str().unwrap_or_else(|| panic!("{path}: {upid}")).to_owned();
    let status = format!("/nodes/pve1/tasks/{upid}/status");
    let mut reported = Value::Null;
    while reported["status"] != "stopped" {
        reported = sim.call("GET", &status)["data"].clone();
    }
    assert_eq!(reported["exitstatus"], "OK", "{reported}");
}

// Invariant: a program that does not run in the guest takes nothing's place.

#[test]
fn a_program_that_does_not_run_there_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start(dir.path());
    let site = site(&sim);
    let strange = dir.path().join("strange");
    std::fs::write(&strange, "#!/bin/nothing\n").unwrap();
    let mut command = drover();
    command.arg("--config").arg(site.config()).args(["setup", "service", "--user", "root@pam"]);
    command.arg("--password-file").arg(site.dir.path().join("admin"));
    command.arg("--program").arg(&strange).args(["--ssh-port", "2222"]);
    let (code, reported) = reported(&site, command.output().unwrap());
    assert_eq!(code, 1);
    assert!(reported.contains("the program does not run here"), "{reported}");
    // The next run finds what is there and goes on.
    let (code, reported) = setup(&site, &[]);
    assert_eq!(code, 0, "{reported}");
    assert!(reported.contains("\nok: drover runs in container 300"), "{reported}");
}
