//! Files to and from the machine of an agent: `drover cp`, OpenSSH's clients and Ansible, all by SFTP.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::clients::python;
use crate::harness::{Service, Sim, Site, world};

/// A service, a lease of it, and a folder here.
struct Scene {
    site: Site,
    lease: String,
    agent: String,
    here: tempfile::TempDir,
    _service: Service,
    _sim: Sim,
    _dir: tempfile::TempDir,
}

impl Scene {
    fn start() -> Self {
        let (dir, sim, site) = world();
        let service = Service::start(&site);
        let lease = site.json(&["lease", "--labels", "linux"]);
        let text = |name: &str| lease[name].as_str().unwrap().to_owned();
        let (lease, agent) = (text("id"), text("agent"));
        let here = tempfile::tempdir().unwrap();
        Self { site, lease, agent, here, _service: service, _sim: sim, _dir: dir }
    }

    fn at(&self, name: &str) -> String {
        self.here.path().join(name).display().to_string()
    }

    fn there(&self, path: &str) -> String {
        format!("{}:{path}", self.agent)
    }

    fn copy(&self, words: &[&str]) -> Output {
        self.site.cli(&[&["cp"], words].concat())
    }

    /// What a command prints on the machine.
    fn says(&self, command: &str) -> String {
        let out = self.site.cli(&["ssh", &self.agent, "--", command]);
        assert!(out.status.success(), "{command}: {out:?}");
        String::from_utf8(out.stdout).unwrap()
    }

    /// The login of the lease as options of OpenSSH, and its port and destination.
    fn login(&self) -> (Vec<String>, String, String) {
        let shown = self.site.json(&["show", "lease", &self.lease]);
        let ssh = &shown["lease"]["ssh"];
        let kept = self.site.dir.path().join("drover");
        let file = |end: &str| kept.join(format!("drover-{}.{end}", self.lease));
        let options = [
            "-F".to_owned(),
            "none".to_owned(),
            "-i".to_owned(),
            file("key").display().to_string(),
            "-o".to_owned(),
            format!("UserKnownHostsFile={}", file("hosts").display()),
            "-o".to_owned(),
            format!("HostKeyAlias=drover-{}", self.lease),
        ];
        let word = |name: &str| ssh[name].as_str().unwrap().to_owned();
        let port = ssh["port"].as_u64().unwrap().to_string();
        (options.into(), port, format!("{}@{}", word("user"), word("host")))
    }
}

fn well(out: &Output) {
    assert!(out.status.success(), "{out:?}");
}

/// The words of a failure with status 1.
fn failed(out: Output) -> String {
    assert_eq!(out.status.code(), Some(1), "{out:?}");
    String::from_utf8(out.stderr).unwrap()
}

fn files_in(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

// Invariant: `drover cp` copies whole files and folders both ways, or fails and says which it could not.

#[test]
fn files_and_folders_are_copied_both_ways_whatever_their_names() {
    let scene = Scene::start();
    let (name, content) = ("a 'b' ü.txt", vec![b'x'; 5_000_000]);
    std::fs::write(scene.at(name), &content).unwrap();
    well(&scene.copy(&[&scene.at(name), &scene.there("")]));
    well(&scene.copy(&[&scene.at(name), &scene.there("/tmp/to here")]));
    assert_eq!(
        scene.says("ls; stat -c '%s %U' '/tmp/to here'"),
        format!("{name}\nagent\n5000000 debian\n")
    );
    well(&scene.copy(&[&scene.there("/tmp/to here"), &scene.at("back")]));
    assert!(std::fs::read(scene.at("back")).unwrap() == content);

    std::fs::create_dir_all(scene.at("tree/in side/empty")).unwrap();
    std::fs::write(scene.at("tree/in side/file"), "deep").unwrap();
    let refused = failed(scene.copy(&[&scene.at("tree"), &scene.there("")]));
    assert!(refused.contains("not a regular file"), "{refused}");
    well(&scene.copy(&["-r", &scene.at("tree"), &scene.there("")]));
    assert_eq!(
        scene.says("cd tree && find . | sort"),
        ".\n./in side\n./in side/empty\n./in side/file\n"
    );
    well(&scene.copy(&["-r", &scene.there("tree"), &scene.at("tree back")]));
    assert_eq!(std::fs::read_to_string(scene.at("tree back/in side/file")).unwrap(), "deep");
    assert_eq!(files_in(Path::new(&scene.at("tree back/in side"))), ["empty", "file"]);
}

#[test]
fn what_cannot_be_copied_is_named_and_leaves_nothing() {
    let scene = Scene::start();
    let missing = failed(scene.copy(&[&scene.there("no such"), &scene.at("got")]));
    assert!(missing.contains("no such") && missing.contains("No such file"), "{missing}");
    let missing = failed(scene.copy(&[&scene.at("nothing"), &scene.there("")]));
    assert!(missing.contains("nothing`: No such file"), "{missing}");
    std::fs::write(scene.at("file"), "text").unwrap();
    for place in ["no/such/folder", "/usr/file", "/f"] {
        let refused = failed(scene.copy(&[&scene.at("file"), &scene.there(place)]));
        assert!(refused.contains(place), "{refused}");
    }
    assert_eq!(files_in(scene.here.path()), ["file"]);
    assert_eq!(scene.says("ls"), "agent\n", "the folder of drover's own that was there");
}

// Invariant: the clients of others find SFTP on the simulator's machines.

#[test]
fn openssh_and_ansible_move_files_by_sftp() {
    let scene = Scene::start();
    let (options, port, login) = scene.login();
    std::fs::write(scene.at("file"), "by sftp").unwrap();
    let script = format!(
        "put {0}\nmkdir sub\nrename file sub/new\nchmod 600 sub/new\nln -s new sub/link\n\
         ls -1 sub\nget sub/link {0}.back\nrm sub/link\n",
        scene.at("file")
    );
    std::fs::write(scene.at("script"), script).unwrap();
    let mut sftp = Command::new("sftp");
    sftp.args(&options).args(["-P", &port, "-b", &scene.at("script"), &login]);
    let out = sftp.stdin(Stdio::null()).output().unwrap();
    well(&out);
    let said = String::from_utf8(out.stdout).unwrap();
    assert!(said.contains("sub/link") && said.contains("sub/new"), "{said}");
    assert_eq!(std::fs::read_to_string(scene.at("file.back")).unwrap(), "by sftp");
    assert_eq!(scene.says("stat -c '%a %n' sub/*"), "600 sub/new\n");

    let mut scp = Command::new("scp");
    scp.args(&options).args(["-P", &port, "-p", &scene.at("file"), &format!("{login}:by-scp")]);
    well(&scp.stdin(Stdio::null()).output().unwrap());
    assert_eq!(scene.says("cat by-scp"), "by sftp");

    let (user, host) = login.split_once('@').unwrap();
    let book = scene.at("transfer.yml");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/wire/ansible/transfer.yml");
    std::fs::copy(source, &book).unwrap();
    let mut ansible = python();
    ansible.args(["-m", "ansible", "playbook", "-i", &format!("{host},"), &book]);
    for (name, value) in [
        ("ansible_user", user),
        ("ansible_port", &port),
        ("ansible_ssh_common_args", &options.join(" ")),
        ("ansible_python_interpreter", "/usr/bin/python3"),
    ] {
        let value = serde_json::json!({ name: value });
        ansible.args(["-e", &value.to_string()]);
    }
    ansible.env("HOME", scene.here.path()).env("ANSIBLE_HOME", scene.at("ansible"));
    ansible.env("ANSIBLE_NOCOLOR", "1").env("LC_ALL", "C.UTF-8");
    // It would leave a connection open behind itself, try another way where SFTP fails, and ask for a
    // terminal, which the simulator's machines have not.
    ansible.env("ANSIBLE_SSH_USETTY", "false");
    ansible
        .env("ANSIBLE_SSH_ARGS", "-o ControlMaster=no")
        .env("ANSIBLE_SSH_TRANSFER_METHOD", "sftp");
    let out = ansible.output().unwrap();
    let said = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success() && said.contains("failed=0"), "{said}{out:?}");
}
