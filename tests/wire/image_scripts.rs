//! The scripts that only the build of an image runs, run for real in a root of their own: the programs
//! are this machine's, and what needs a network is a stand-in (`image_standins`).

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use drover_scripts::image::{netplan, runner};
use serde_yaml::Value as Yaml;
use sha2::{Digest as _, Sha256};

/// The programs of this machine that a small guest has as well.
const PROGRAMS: [&str; 18] = [
    "cat",
    "chmod",
    "chown",
    "cp",
    "env",
    "grep",
    "gzip",
    "hostname",
    "id",
    "install",
    "ln",
    "mkdir",
    "mktemp",
    "mv",
    "rm",
    "sh",
    "sha256sum",
    "tar",
];
const STANDINS: [(&str, &str); 4] = [
    ("curl", include_str!("image_standins/curl.sh")),
    ("apt-get", include_str!("image_standins/apt-get.sh")),
    ("python3", include_str!("image_standins/python3.sh")),
    ("uname", include_str!("image_standins/uname.sh")),
];

/// A guest's root: what its programs write stays in a folder.
struct Guest(tempfile::TempDir);

impl Guest {
    /// One with all stand-ins, and nothing to download.
    fn new() -> Self {
        let guest = Self(tempfile::tempdir().unwrap());
        for dir in ["etc", "local", "opt", "programs", "standins", "tmp", "web/packages"] {
            std::fs::create_dir_all(guest.path(dir)).unwrap();
        }
        for name in PROGRAMS {
            let found = ["/usr/bin", "/bin"].map(|dir| Path::new(dir).join(name));
            let found = found.into_iter().find(|path| path.exists());
            let found = found.unwrap_or_else(|| panic!("this machine has no `{name}`"));
            std::os::unix::fs::symlink(found, guest.path("programs").join(name)).unwrap();
        }
        for (name, text) in STANDINS {
            guest.program(&format!("standins/{name}"), text);
        }
        std::fs::write(guest.path("web/table"), "").unwrap();
        std::fs::write(guest.path("etc/passwd"), "root:x:0:0:root:/tmp:/bin/sh\n").unwrap();
        guest
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn read(&self, name: &str) -> String {
        let path = self.path(name);
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"))
    }

    fn mode(&self, name: &str) -> u32 {
        std::fs::symlink_metadata(self.path(name)).unwrap().permissions().mode() & 0o777
    }

    fn program(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
        std::fs::set_permissions(self.path(name), std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Publishes a file at a URL; gives its SHA-256.
    fn publish(&self, url: &str, content: &[u8]) -> String {
        let sum: String =
            Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect();
        std::fs::write(self.path("web").join(&sum), content).unwrap();
        self.serve(&format!("{url} file {sum}"));
        sum
    }

    /// Adds a line to the table of what is served.
    fn serve(&self, line: &str) {
        let table = format!("{}{line}\n", self.read("web/table"));
        std::fs::write(self.path("web/table"), table).unwrap();
    }

    /// Runs a command line as root of the guest; its exit status and all that it says.
    fn run(&self, machine: &str, line: &str) -> (Option<i32>, String) {
        let mut command = Command::new("bwrap");
        command.args(["--unshare-user", "--uid", "0", "--gid", "0", "--die-with-parent"]);
        command.args(["--ro-bind", "/usr", "/usr", "--proc", "/proc", "--dev", "/dev"]);
        for (link, to) in [("/bin", "usr/bin"), ("/lib", "usr/lib"), ("/lib64", "usr/lib64")] {
            command.args(["--symlink", to, link]);
        }
        for (dir, at) in [("local", "/usr/local/bin"), ("programs", "/programs")] {
            command.arg("--bind").arg(self.path(dir)).arg(at);
        }
        for dir in ["etc", "opt", "standins", "tmp", "web"] {
            command.arg("--bind").arg(self.path(dir)).arg(format!("/{dir}"));
        }
        command.args(["--clearenv", "--setenv", "MACHINE", machine, "--setenv", "HOME", "/tmp"]);
        command.args(["--setenv", "PATH", "/usr/local/bin:/standins:/programs", "--chdir", "/"]);
        let out = command.args(["/programs/sh", "-c", line]).output().unwrap();
        let said = [out.stdout, out.stderr].concat();
        (out.status.code(), String::from_utf8_lossy(&said).into_owned())
    }

    /// Installs a runner, which must succeed.
    fn installs(&self, system: &str, version: &str) {
        let (code, said) = self.run("x86_64", &runner(system, version, "", ""));
        assert_eq!(code, Some(0), "{system} {version}: {said}");
        assert_eq!(
            std::fs::read_dir(self.path("tmp")).unwrap().count(),
            0,
            "{system}: it cleans up"
        );
    }

    /// What is called like this says when it runs.
    fn says(&self, name: &str) -> String {
        let (code, said) = self.run("x86_64", name);
        assert_eq!(code, Some(0), "{name}: {said}");
        said.trim_end().to_owned()
    }
}

/// A program that says what it is.
fn program(says: &str) -> Vec<u8> {
    format!("#!/bin/sh\necho '{says}'\n").into_bytes()
}

/// An archive with these files, all of them programs.
fn archive(files: &[(&str, &str)]) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let mut tar = Command::new("tar");
    tar.args(["-cz", "-C"]).arg(dir.path()).arg(".");
    tar.output().unwrap().stdout
}

const GITHUB: &str = "https://github.com/actions/runner/releases";

// Invariant: each runner is where drover looks for it, of the version and for the processor that is wanted.

#[test]
fn the_runner_of_github_takes_one_job_with_what_it_is_started_with() {
    let guest = Guest::new();
    // As the real archive has them: everything is in the folder that it is unpacked to.
    let runner_files = archive(&[
        ("config.sh", "#!/bin/sh\n[ -x ./run.sh ] && printf '%s\\n' \"$@\" >configured\n"),
        ("run.sh", "#!/bin/sh\n[ -s configured ] && echo done >ran\n"),
        ("bin/installdependencies.sh", "#!/bin/sh\nid -u >/opt/actions-runner/dependencies\n"),
    ]);
    guest.serve(&format!("{GITHUB}/latest leads {GITHUB}/tag/v2.330.0"));
    guest.publish(&format!("{GITHUB}/tag/v2.330.0"), b"a page");
    let url = format!("{GITHUB}/download/v2.330.0/actions-runner-linux-x64-2.330.0.tar.gz");
    guest.publish(&url, &runner_files);
    guest.installs("github", "latest");
    assert_eq!(guest.read("opt/actions-runner/dependencies"), "0\n", "as root");
    assert_eq!(guest.mode("opt/actions-runner/run-once.sh"), 0o755);

    let once = "/opt/actions-runner/run-once.sh";
    guest.says(&format!("{once} https://github.com/a/b TOKEN 'linux,x64' build-7"));
    let given = "--unattended\n--ephemeral\n--disableupdate\n--url\nhttps://github.com/a/b\n--token\nTOKEN\n";
    let configured = || guest.read("opt/actions-runner/configured");
    assert_eq!(configured(), format!("{given}--labels\nlinux,x64\n--name\nbuild-7\n"));
    assert_eq!(guest.read("opt/actions-runner/ran"), "done\n");
    guest.says(&format!("{once} https://github.com/a/b TOKEN"));
    let name = guest.says("hostname");
    assert_eq!(configured(), format!("{given}--name\n{name}\n"), "no labels, its own name");
}

#[test]
fn the_runners_of_all_other_systems_are_where_drover_looks_for_them() {
    let guest = Guest::new();
    let forgejo = "https://code.forgejo.org/forgejo/runner/releases";
    let gitlab = "https://s3.dualstack.us-east-1.amazonaws.com/gitlab-runner-downloads";
    let woodpecker = "https://github.com/woodpecker-ci/woodpecker/releases/download";
    for (url, says) in [
        ("https://dl.gitea.com/act_runner/0.2.13/act_runner-0.2.13-linux-amd64", "old gitea"),
        ("https://dl.gitea.com/gitea-runner/1.0.3/gitea-runner-1.0.3-linux-amd64", "gitea"),
        (&format!("{forgejo}/download/v9.1.1/forgejo-runner-9.1.1-linux-amd64"), "forgejo"),
        (&format!("{gitlab}/latest/binaries/gitlab-runner-linux-amd64"), "gitlab"),
        (&format!("{gitlab}/v17.5.0/binaries/gitlab-runner-linux-amd64"), "older gitlab"),
    ] {
        guest.publish(url, &program(says));
    }
    for (latest, tag) in [
        (
            "https://gitea.com/gitea/runner/releases/latest",
            "https://gitea.com/gitea/runner/releases/tag/v1.0.3",
        ),
        (&format!("{forgejo}/latest"), &format!("{forgejo}/tag/v9.1.1")),
    ] {
        guest.serve(&format!("{latest} leads {tag}"));
        guest.publish(tag, b"a page");
    }
    let agent = archive(&[("woodpecker-agent", "#!/bin/sh\necho woodpecker\n")]);
    // The archive of the publisher has its files without a folder before them.
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("all.tar.gz"), agent).unwrap();
    let mut repack = Command::new("sh");
    repack.current_dir(dir.path());
    let line = "tar -xzf all.tar.gz && tar -czf flat.tar.gz woodpecker-agent";
    assert!(repack.args(["-c", line]).status().unwrap().success());
    let flat = std::fs::read(dir.path().join("flat.tar.gz")).unwrap();
    guest.publish(&format!("{woodpecker}/v3.1.0/woodpecker-agent_linux_amd64.tar.gz"), &flat);
    for package in ["python3-venv", "python3-pip"] {
        std::fs::create_dir(guest.path("web/packages").join(package)).unwrap();
    }
    for (system, version, name, says) in [
        ("gitea", "0.2.13", "act_runner", "old gitea"),
        ("gitea", "latest", "gitea-runner", "gitea"),
        ("forgejo", "latest", "forgejo-runner", "forgejo"),
        ("gitlab", "latest", "gitlab-runner", "gitlab"),
        ("gitlab", "17.5.0", "gitlab-runner", "older gitlab"),
        ("woodpecker", "3.1.0", "woodpecker-agent", "woodpecker"),
        ("buildbot", "4.3.0", "buildbot-worker", "buildbot-worker==4.3.0"),
        ("buildbot", "latest", "buildbot-worker", "buildbot-worker"),
    ] {
        guest.installs(system, version);
        assert_eq!(guest.says(name), says, "{system} {version}");
        assert_eq!(guest.mode(&format!("local/{name}")) & 0o111, 0o111, "{name}");
    }
    let packages = guest.read("web/packages.log");
    let asked = "update\ninstall --no-install-recommends python3-venv python3-pip\n";
    assert_eq!(packages, format!("{asked}{asked}"), "for Buildbot alone");
}

// Invariant: nothing is installed that is not what the recipe says, and what is wrong is said.

#[test]
fn a_runner_that_is_not_what_was_wanted_is_not_installed() {
    let guest = Guest::new();
    let url = "https://mirror.example/act_runner";
    let sum = guest.publish(url, &program("of the mirror"));
    let fails = |machine: &str, line: &str, part: &str| {
        let (code, said) = guest.run(machine, line);
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains(part), "{part}: {said}");
        assert_eq!(std::fs::read_dir(guest.path("local")).unwrap().count(), 0, "{said}");
        assert_eq!(std::fs::read_dir(guest.path("tmp")).unwrap().count(), 0, "{said}");
    };
    let with = |sum: &str| runner("gitea", "0.2.13", url, sum);
    fails("x86_64", &with(&"ab".repeat(32)), "has another checksum than the recipe says");
    fails("riscv64", &with(&sum), "no runner is known for riscv64");
    fails("x86_64", &runner("travis", "1", "", ""), "no runner of `travis` is known");
    let usual = "https://dl.gitea.com/act_runner/0.2.13/act_runner-0.2.13-linux-arm64";
    fails(
        "aarch64",
        &runner("gitea", "0.2.13", "", ""),
        &format!("{usual} could not be downloaded"),
    );
    // A forge that names no version any more, as when it asks for a login.
    let latest = "https://code.forgejo.org/forgejo/runner/releases/latest";
    guest.serve(&format!("{latest} leads https://code.forgejo.org/login"));
    guest.publish("https://code.forgejo.org/login", b"a page");
    fails("x86_64", &runner("forgejo", "latest", "", ""), "does not name the newest version");

    // A guest without curl gets one first, and what it then installs is what the recipe says.
    let curl = guest.path("web/packages/curl");
    std::fs::create_dir_all(&curl).unwrap();
    std::fs::create_dir(guest.path("web/packages/ca-certificates")).unwrap();
    std::fs::rename(guest.path("standins/curl"), curl.join("curl")).unwrap();
    let (code, said) = guest.run("x86_64", &with(&sum));
    assert_eq!((code, guest.says("act_runner")), (Some(0), "of the mirror".to_owned()), "{said}");
    let asked = "update\ninstall --no-install-recommends curl ca-certificates\n";
    assert_eq!(guest.read("web/packages.log"), asked);
}

// Invariant: a clone has DHCP on its card, whatever that is called, and no other card has.

#[test]
fn netplan_gives_dhcp_to_the_cards_of_machines_whatever_they_are_called() {
    let guest = Guest::new();
    let (code, said) = guest.run("x86_64", &netplan());
    assert_eq!((code, guest.path("etc/netplan").exists()), (Some(0), false), "no netplan: {said}");
    guest.program("standins/netplan", "#!/bin/sh\nexit 1\n");
    let (code, said) = guest.run("x86_64", &netplan());
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("/etc/netplan/99-drover.yaml could not be written"), "{said}");
    std::fs::create_dir(guest.path("etc/netplan")).unwrap();
    assert_eq!(guest.run("x86_64", &netplan()).0, Some(0));
    // netplan warns of files that others may read.
    assert_eq!(guest.mode("etc/netplan/99-drover.yaml"), 0o600);
    let written: Yaml = serde_yaml::from_str(&guest.read("etc/netplan/99-drover.yaml")).unwrap();
    assert_eq!(written["network"]["version"], Yaml::from(2));
    let cards = written["network"]["ethernets"].as_mapping().unwrap();
    // Globs of systemd-networkd; a star at the end is all that these have.
    let dhcp = |name: &str| {
        let fits = |card: &&Yaml| {
            let glob = card["match"]["name"].as_str().unwrap();
            name.starts_with(glob.strip_suffix('*').unwrap_or_else(|| panic!("{glob}")))
        };
        cards.values().filter(fits).filter(|card| card["dhcp4"].as_bool() == Some(true)).count()
    };
    for name in ["ens18", "enp0s18", "enp6s18", "eno1", "eth0"] {
        assert_eq!(dhcp(name), 1, "{name}: {written:?}");
    }
    for name in ["lo", "docker0", "veth1a2b", "br-7c1", "wlan0"] {
        assert_eq!(dhcp(name), 0, "{name}: {written:?}");
    }
    // What cloud-init writes is read first: systemd-networkd takes the first file that matches, by its name.
    for card in cards.keys() {
        let name = format!("10-netplan-{}", card.as_str().unwrap());
        assert!(name.as_str() > "10-netplan-eth0", "{name}");
        assert!(name.as_str() > "10-netplan-id0", "{name}");
    }
}
