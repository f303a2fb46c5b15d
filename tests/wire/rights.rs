//! `drover setup rights` and `drover doctor` on real sockets: least rights made, found to be there,
//! repaired, and a token replaced under a running service.

use std::io::{Read as _, Write as _};
use std::process::Output;

use serde_json::Value;

use super::api::{ask, ready};
use super::harness::{Events, Service, Sim, Site, drover};
use super::machines::machine;

/// A site whose token is yet to be made.
pub fn site(sim: &Sim, keys: &str) -> Site {
    let site = Site::new(sim);
    let yaml = site.yaml(sim, &format!("    targetPool: drover\n{keys}"));
    let token = yaml.replace(sim.fact("tokenId"), "drover@pve!ci");
    site.write_yaml(&token);
    site.write_secret("admin", sim.fact("adminPassword"));
    std::fs::remove_file(site.dir.path().join("token")).unwrap();
    site
}

pub fn run(site: &Site, args: &[&str]) -> Output {
    let config = site.config();
    let line = ["--config", config.to_str().unwrap()];
    site.command(line.iter().chain(args)).output().unwrap()
}

/// What `setup rights` says, where nothing of this one site is in it.
pub fn setup(site: &Site, args: &[&str]) -> (i32, String) {
    let password = site.dir.path().join("admin");
    let admin = ["--user", "root@pam", "--password-file", password.to_str().unwrap()];
    let out = run(site, &[&["setup", "rights"], &admin[..], args].concat());
    let text = [out.stdout, out.stderr].concat();
    let text = String::from_utf8(text).unwrap();
    (out.status.code().unwrap(), text.replace(&site.dir.path().display().to_string(), "SITE"))
}

pub fn versions(mut test: impl FnMut(&Sim, &str)) {
    for version in ["8.4", "9.2"] {
        let dir = tempfile::tempdir().unwrap();
        let sim = Sim::start_with(dir.path(), &["--guests", "process", "--pve", version]);
        test(&sim, version);
    }
}

pub fn tokens(sim: &Sim) -> Vec<String> {
    let all = sim.call("GET", "/access/users/drover@pve/token")["data"].clone();
    let names = all.as_array().cloned().unwrap_or_default().into_iter();
    names.filter_map(|one| Some(one["tokenid"].as_str()?.to_owned())).collect()
}

// Invariant: what is printed is what is done, the second time there is nothing to do, and what was
// taken away since is repaired.

#[test]
fn rights_are_made_once_and_repaired_when_they_drift() {
    versions(|sim, version| {
        let site = site(sim, "    cores: 2\n    reset: DISK\n");
        let (code, dry) = setup(&site, &["--dry-run"]);
        assert_eq!(code, 0, "{dry}");
        insta::assert_snapshot!(format!("dry_run_on_{}", version.replace('.', "_")), dry);
        assert_eq!(
            sim.call("GET", "/access/users/drover@pve")["data"],
            Value::Null,
            "nothing is made"
        );
        let (code, done) = setup(&site, &[]);
        assert_eq!(code, 0, "{done}");
        let did = done.lines().filter_map(|line| line.strip_prefix("done: pveum "));
        let planned = dry.lines().filter_map(|line| line.strip_prefix("pveum "));
        assert_eq!(did.collect::<Vec<_>>(), planned.collect::<Vec<_>>());
        let secret = std::fs::read_to_string(site.dir.path().join("token")).unwrap();
        assert!(!done.contains(secret.trim()), "the secret is not shown");
        let (code, again) = setup(&site, &[]);
        assert_eq!(
            (code, again.lines().next()),
            (0, Some("nothing to do: drover@pve!ci holds what is needed"))
        );
        let out = run(&site, &["doctor"]);
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(out.status.success() && text.ends_with("2 warn, 0 fail\n"), "{text}");
        // The simulator has one address for its three nodes.
        for reported in ["warn  privilege Datastore.Allocate on /storage/", "is the only one"] {
            assert!(text.contains(reported), "{text}");
        }
        // Commands name the configuration as it was given here.
        let config = site.config().display().to_string();
        let remedy = format!(
            "> drover --config {config} setup rights --cloud lab --leftovers --user root@pam\n"
        );
        assert!(text.contains(&remedy), "{text}");

        let out = run(&site, &["--json", "doctor", "--cloud", "lab"]);
        let reported: Value = serde_json::from_slice(&out.stdout).unwrap();
        assert_eq!(reported["clouds"][0]["lines"][0]["mark"], "ok", "{reported}");

        // Somebody narrows a role, takes an entry away, and gives more than is needed.
        let privs = [("privs", "VM.Audit,VM.Allocate,Pool.Audit,VM.Backup")];
        sim.send("PUT", "/access/roles/DroverGuests", &privs);
        let entry = [
            ("path", "/vms/9000"),
            ("users", "drover@pve"),
            ("roles", "DroverTemplates"),
            ("delete", "1"),
        ];
        sim.send("PUT", "/access/acl", &entry);
        let out = run(&site, &["doctor"]);
        assert_eq!(out.status.code(), Some(1));
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(text.contains("fail  privilege VM.Clone on /vms/9000: is missing"), "{text}");
        assert!(text.contains("> pveum role modify DroverGuests --privs "), "{text}");
        let (code, repaired) = setup(&site, &[]);
        assert_eq!(code, 0, "{repaired}");
        insta::assert_snapshot!(format!("repaired_on_{}", version.replace('.', "_")), repaired);
        assert!(run(&site, &["doctor"]).status.success());
    });
}

#[test]
fn lines_are_printed_without_a_cluster() {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start_with(dir.path(), &["--guests", "none"]);
    let site = site(&sim, "");
    drop(sim);
    let line = |version| {
        let out = run(&site, &["setup", "rights", "--dry-run", "--pve", version, "--privsep"]);
        assert!(out.status.success(), "{out:?}");
        String::from_utf8(out.stdout).unwrap()
    };
    insta::assert_snapshot!(line("8.4"));
    assert!(line("9.2").contains("VM.GuestAgent.Audit"));
    let out = run(&site, &["setup", "rights"]);
    assert_eq!(out.status.code(), Some(2), "an administrator must be named: {out:?}");
    let out = run(&site, &["setup", "rights", "--dry-run", "--cloud", "nope"]);
    assert_eq!(out.status.code(), Some(2), "{out:?}");
    site.write_secret("token", "x");
    let out = run(&site, &["doctor", "--cloud", "nope"]);
    assert_eq!(out.status.code(), Some(2), "{out:?}");
    // Nobody is there any more.
    let out = run(&site, &["doctor"]);
    assert_eq!(out.status.code(), Some(1), "{out:?}");
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(text.contains("systemctl status pveproxy"), "{text}");
}

// Invariant: a token whose secret is lost is reported, and made again when that is asked for.

#[test]
fn a_lost_secret_is_replaced_when_asked_for() {
    versions(|sim, _| {
        let site = site(sim, "");
        assert_eq!(setup(&site, &["--privsep"]).0, 0);
        std::fs::remove_file(site.dir.path().join("token")).unwrap();
        let (code, reported) = setup(&site, &[]);
        assert_eq!(code, 1);
        assert!(reported.contains("--renew makes another one"), "{reported}");
        let (code, done) = setup(&site, &["--renew"]);
        assert_eq!(code, 0, "{done}");
        assert!(run(&site, &["doctor"]).status.success());
        assert_eq!(tokens(sim), ["ci"]);
    });
}

// Invariant: a user that somebody disabled keeps its secret, which another one would help nothing.

#[test]
fn the_secret_of_a_disabled_user_is_kept_until_somebody_enables_it() {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start_with(dir.path(), &["--guests", "none"]);
    let site = site(&sim, "");
    assert_eq!(setup(&site, &[]).0, 0);
    let secret = || std::fs::read_to_string(site.dir.path().join("token")).unwrap();
    let before = secret();
    let enable = |value: &str| sim.send("PUT", "/access/users/drover@pve", &[("enable", value)]);
    enable("0");
    let out = run(&site, &["doctor"]);
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(text.contains("> pveum user modify drover@pve --enable 1\n"), "{text}");
    let (code, reported) = setup(&site, &["--renew"]);
    assert_eq!(code, 1, "{reported}");
    assert!(
        reported.contains("nothing was done; first: pveum user modify drover@pve"),
        "{reported}"
    );
    enable("1");
    assert_eq!(secret(), before);
    assert!(run(&site, &["doctor"]).status.success());
}

// Invariant: a rotation leaves one token that works and is in use, however it ends.

#[test]
fn a_token_is_rotated_under_a_running_service() {
    versions(|sim, _| {
        let site = site(sim, "");
        assert_eq!(setup(&site, &["--privsep"]).0, 0);
        let _service = Service::start(&site);
        let works = || {
            let out = site.cli(&["lease", "--labels", "linux", "--", "true"]);
            assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        };
        works();
        let (code, done) = setup(&site, &["--rotate", "--grace", "0"]);
        assert_eq!(code, 0, "{done}");
        assert!(done.ends_with("ok: drover@pve!ci-2 is in use\n"), "{done}");
        assert_eq!(tokens(sim), ["ci-2"]);
        assert!(!site.dir.path().join("token").exists());
        let yaml = std::fs::read_to_string(site.config()).unwrap();
        assert!(yaml.contains("tokenId: \"drover@pve!ci-2\""), "{yaml}");
        site.cli(&["reap", "--all"]);
        works();
        assert!(run(&site, &["doctor"]).status.success());
    });
}

#[test]
fn a_rotation_that_fails_on_its_way_leaves_the_old_token_in_use() {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start(dir.path());
    let site = site(&sim, "");
    assert_eq!(setup(&site, &[]).0, 0);
    let _service = Service::start(&site);
    let before = std::fs::read_to_string(site.config()).unwrap();
    let faults = dir.path().join("faults.yaml");
    let order = |rules: &str| {
        std::fs::write(&faults, rules).unwrap();
        sim.order(&format!("faults {}", faults.display()));
    };
    let stands = |after: &[&str]| {
        assert_eq!(std::fs::read_to_string(site.config()).unwrap(), before);
        assert_eq!(tokens(&sim), after);
        let out = site.cli(&["lease", "--labels", "linux", "--", "true"]);
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    };

    // The new token cannot be tried.
    order("calls: [{route: /access/permissions, method: GET, skip: 2, reset: true, times: 2}]\n");
    let (code, reported) = setup(&site, &["--rotate", "--grace", "0"]);
    assert_eq!(code, 1);
    assert!(
        reported
            .contains("the old token `drover@pve!ci` is in use and works; nothing is left over"),
        "{reported}"
    );
    stands(&["ci"]);

    // Nor be taken away again.
    order(
        "calls: [{route: /access/permissions, method: GET, skip: 2, reset: true, times: 2}, \
         {route: \"/access/users/{userid}/token/{tokenid}\", method: DELETE, reset: true, times: 1}]\n",
    );
    let (code, reported) = setup(&site, &["--rotate", "--grace", "0"]);
    assert_eq!(code, 1);
    assert!(reported.contains("pveum user token remove drover@pve ci-2"), "{reported}");
    stands(&["ci", "ci-2"]);

    // The file of the new secret cannot be written: something is in its place. What the one before
    // has left is gone.
    let second = site.dir.path().join("token.ci-2");
    std::fs::create_dir_all(second.join("full")).unwrap();
    let (code, reported) = setup(&site, &["--rotate", "--grace", "0"]);
    assert_eq!(code, 1);
    assert!(reported.contains("token.ci-2 cannot be written"), "{reported}");
    stands(&["ci"]);
    std::fs::remove_dir_all(second).unwrap();

    // The service does not take it: what is on its socket refuses, or is something else.
    let password = site.dir.path().join("admin");
    let beside = |name: &str, answers: Vec<String>| {
        let socket = dir.path().join(name);
        let other = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let answering = std::thread::spawn(move || {
            for answer in answers {
                let (mut stream, _) = other.accept().unwrap();
                let _read = stream.read(&mut [0; 4096]).unwrap();
                stream.write_all(answer.as_bytes()).unwrap();
            }
        });
        let mut command = drover();
        command.arg("--config").arg(site.config()).arg("--socket").arg(&socket);
        command.args(["setup", "rights", "--rotate", "--grace", "0", "--user", "root@pam"]);
        let out = command.arg("--password-file").arg(&password).output().unwrap();
        answering.join().unwrap();
        String::from_utf8_lossy(&out.stderr).into_owned()
    };
    let answer = |status: &str, kind: &str, body: &str| {
        let length = body.len();
        format!(
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\
             Connection: close\r\n\r\n{body}"
        )
    };
    let wrong = || answer("502 Bad Gateway", "text/plain", "no");
    let reported = beside("other.sock", vec![wrong()]);
    assert!(reported.contains("the running service does not answer"), "{reported}");
    stands(&["ci"]);
    let problem = r#"{"type": "about:blank", "title": "Forbidden", "status": 403, "detail": "no"}"#;
    let refuses = answer("403 Forbidden", "application/problem+json", problem);
    let reported = beside("refuses.sock", vec![refuses, wrong()]);
    assert!(reported.contains("the running service did not take it"), "{reported}");
    assert!(site.cli(&["reload"]).status.success());
    stands(&["ci"]);
    assert!(!site.dir.path().join("token.ci-2").exists());

    // The old one cannot be removed.
    order(
        "calls: [{route: \"/access/users/{userid}/token/{tokenid}\", method: DELETE, reset: true, times: 1}]\n",
    );
    let (code, reported) = setup(&site, &["--rotate", "--grace", "0"]);
    assert_eq!(code, 1);
    assert!(reported.contains("the new token `drover@pve!ci-2` is in use and works"), "{reported}");
    assert_eq!(tokens(&sim), ["ci", "ci-2"]);
    let out = site.cli(&["lease", "--labels", "linux", "--", "true"]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
}

// Invariant: a certificate that is not trusted is reported with the fingerprint that would do.

#[test]
fn the_doctor_shows_the_fingerprint_of_a_certificate_that_it_does_not_trust() {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start_with(dir.path(), &["--guests", "none"]);
    let site = Site::new(&sim);
    let fresh = sim.order("replace-certificate");
    let out = run(&site, &["doctor"]);
    assert_eq!(out.status.code(), Some(1), "{out:?}");
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let pin = format!("pinSha256: [\"{}\"]", fresh["fingerprint"].as_str().unwrap());
    assert!(text.contains(&pin) && text.contains("/etc/pve/pve-root-ca.pem"), "{text}");
}

// Invariant: the doctor's trial says where the way ends, and leaves nothing.

#[test]
fn one_agent_of_a_template_is_made_and_reported() {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start(dir.path());
    let site = site(&sim, "");
    assert_eq!(setup(&site, &[]).0, 0);
    let _service = Service::start(&site);
    let trial = |template: &str| {
        let out = run(&site, &["--json", "doctor", "template", template]);
        let reported: Value = serde_json::from_slice(&out.stdout).unwrap_or_default();
        (out.status.code(), reported, String::from_utf8_lossy(&out.stderr).into_owned())
    };
    let (code, reported, said) = trial("linux");
    assert_eq!((code, &reported["ready"]), (Some(0), &true.into()), "{said}");
    let states: Vec<&str> = reported["phases"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|one| one["state"].as_str())
        .collect();
    assert!(states.starts_with(&["Queued", "Cloning", "Configuring", "Booting"]), "{states:?}");
    assert_eq!(sim.guests(), Vec::<u64>::new());

    // An address that does not count, nobody at the port, a user who has no key, a cloud-init that
    // cannot know how it stands.
    for (from, to, part) in [
        ("127.77.0.0/16", "10.9.0.0/16", "guestNetworks"),
        ("sshPort: 2222", "sshPort: 2223", "sshPort"),
        ("ciUser: debian", "ciUser: ubuntu", "sshKey"),
        ("sshPort: 2222", "sshPort: 2222\n    tags: [guest-init-broken]", "cloudInit"),
    ] {
        let yaml = std::fs::read_to_string(site.config()).unwrap();
        let slow = yaml.replace("instanceCap: 4", "instanceCap: 4\n    startupWaitSeconds: 4");
        site.write_yaml(&slow.replace(from, to));
        assert!(site.cli(&["reload"]).status.success());
        let (code, reported, said) = trial("linux");
        assert_eq!(
            (code, &reported["diagnosis"]["part"]),
            (Some(1), &part.into()),
            "{reported} {said}"
        );
        assert_eq!(sim.guests(), Vec::<u64>::new());
        site.write_yaml(&yaml);
        assert!(site.cli(&["reload"]).status.success());
    }
    let (code, _, said) = trial("nope");
    assert_eq!(code, Some(1), "{said}");

    // Errors that cloud-init got over are reported an agent that is ready.
    let yaml = std::fs::read_to_string(site.config()).unwrap();
    let traits = "sshPort: 2222\n    tags: [guest-init-error]";
    site.write_yaml(&yaml.replace("sshPort: 2222", traits));
    assert!(site.cli(&["reload"]).status.success());
    let (code, reported, said) = trial("linux");
    assert_eq!((code, &reported["ready"]), (Some(0), &true.into()), "{said}");
    let warning = reported["warning"].as_str().unwrap_or_default();
    assert!(warning.contains("cloud-init met errors"), "{reported}");
    site.write_yaml(&yaml);
    assert!(site.cli(&["reload"]).status.success());

    // Somebody switches the agent off before the guest starts.
    let faults = dir.path().join("faults.yaml");
    std::fs::write(&faults, "calls: [{route: /status/start, method: POST, delay: 5}]\n").unwrap();
    sim.order(&format!("faults {}", faults.display()));
    let mut events = Events::follow(&site);
    let (code, reported, said) = std::thread::scope(|threads| {
        let trial = threads.spawn(|| trial("linux"));
        let booting = events.until("agent", |fact| fact["agent"]["state"] == "Booting");
        let (node, vmid) = (sim.fact("node"), &booting["agent"]["vmid"]);
        let path = format!("/nodes/{node}/qemu/{vmid}/config");
        let answer = sim.send("PUT", &path, &[("agent", "0")]);
        assert_eq!(answer["data"], Value::Null, "{answer}");
        trial.join().unwrap()
    });
    assert_eq!(
        (code, &reported["diagnosis"]["part"]),
        (Some(1), &"agentOption".into()),
        "{reported} {said}"
    );
    assert_eq!(sim.guests(), Vec::<u64>::new());
}

// Invariant: what `--orders` grants is enough for every order on a machine; without it each of them fails
// with the privilege that is missing, and changes nothing.

#[test]
fn orders_on_machines_need_what_setup_grants_for_them_and_no_more() {
    versions(|sim, version| {
        let site = site(sim, "");
        assert_eq!(setup(&site, &[]).0, 0);
        let _service = Service::start(&site);
        let lease = ask(&site, "linux", "ann");
        ready(&site, &lease);
        let vmid = sim.guests()[0];
        let guest = || sim.config(sim.fact("node"), vmid);
        let before = guest();
        let mut events = Events::follow(&site);
        // A clone is an agent of its own, which ends where it may not be made.
        let clone = || machine(&site, &["clone", &lease]).1["agent"].clone();
        let orders = [
            (&["snapshot", "create", &lease, "one"][..], "VM.Snapshot"),
            (&["resize", &lease, "--cores", "3"], "VM.Config.CPU"),
            (&["resize", &lease, "--memory", "4096"], "VM.Config.Memory"),
            (&["resize", &lease, "--disk", "20"], "VM.Config.Disk"),
        ];
        for (order, privilege) in orders {
            let (code, said) = machine(&site, order);
            assert!(code == Some(1), "{version} {order:?}: {said}");
            assert!(said.to_string().contains(privilege), "{version} {order:?}: {said}");
        }
        let agent = clone();
        let gone = events.until("agentGone", |fact| fact["agent"]["id"] == agent);
        assert!(gone["agent"]["detail"].to_string().contains("VM.Clone"), "{version}: {gone}");
        assert_eq!((guest(), sim.guests()), (before, vec![vmid]), "{version}");
        let (code, said) = setup(&site, &["--orders"]);
        assert_eq!(code, 0, "{said}");
        for (order, _) in orders {
            let (code, said) = machine(&site, order);
            assert_eq!(code, Some(0), "{version} {order:?}: {said}");
        }
        let agent = clone();
        events.until("agent", |fact| {
            fact["agent"]["id"] == agent && fact["agent"]["detail"] == "the login is open"
        });
        let after = guest();
        let setting = |key: &str| after[key].to_string();
        // Cores and memory hold after a restart, which is what `pending` says of them.
        assert!(setting("cores").contains('3') && setting("memory").contains("4096"), "{after}");
        assert!(setting("scsi0").contains("size=20G"), "{after}");
        assert_eq!(sim.guests().len(), 2, "{version}: the machine and its clone");
        let path = format!("/nodes/{}/qemu/{vmid}/snapshot", sim.fact("node"));
        assert!(sim.call("GET", &path)["data"].to_string().contains("\"one\""), "{version}");
    });
}
