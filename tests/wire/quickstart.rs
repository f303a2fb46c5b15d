//! The quickstart's way to a running service, as the page has it: its commands, its YAML, and the unit
//! that is shipped, whose user is a real one without any right. Nothing is written below /etc: the commands
//! have a copy of it in its place.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use rustix::process::{getegid, geteuid};

use crate::harness::{Service, Sim, drover, note};

/// What the commands need to find below /etc.
const ETC: [&str; 14] = [
    "passwd",
    "group",
    "shadow",
    "gshadow",
    "login.defs",
    "default",
    "nsswitch.conf",
    "hosts",
    "ld.so.cache",
    "machine-id",
    "ssl",
    "localtime",
    "pam.d",
    "security",
];
/// Puts copies in place for the command behind the folder.
const MOUNTS: &str = "mount --bind \"$1/etc\" /etc && mount --bind \"$1/bin\" /usr/local/bin && \
                      shift && exec \"$@\"";
/// A user and group that no machine knows by name.
const NOBODYS: u32 = 64_998;
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

fn file(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap()
}

/// The blocks of the page's section: how the machine is made ready, the YAML, what is done with it.
fn blocks() -> [String; 3] {
    let page = file("src/book/quickstart.md");
    let (_, section) = page.split_once("\n## By hand\n").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let mut blocks = section.split("```").skip(1).step_by(2);
    ["sh\n", "yaml\n", "sh\n"].map(|kind| {
        let block = blocks.next().and_then(|block| block.strip_prefix(kind));
        block.unwrap_or_else(|| panic!("the quickstart has no such block: {kind}")).to_owned()
    })
}

/// The commands of a block, without what is said of them.
fn lines(block: &str) -> Vec<&str> {
    block.lines().map(|line| line.split("  #").next().unwrap_or(line).trim_end()).collect()
}

/// The values of a key of the unit.
fn unit(key: &str) -> Vec<String> {
    let unit = file("configs/drover.service");
    let values = unit.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    values.map(str::to_owned).collect()
}

/// Where the commands run.
struct Machine {
    dir: tempfile::TempDir,
    /// Whether copies are in the place of /etc and /usr/local/bin for them; else the paths are
    /// written for the copies.
    is_private: bool,
    is_root: bool,
}

impl Machine {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        // The unit's user gets through, whichever it is.
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        let (etc, bin) = (dir.path().join("etc"), dir.path().join("bin"));
        for folder in [&etc, &bin, &etc.join("drover")] {
            fs::create_dir(folder).unwrap();
            fs::set_permissions(folder, Permissions::from_mode(0o755)).unwrap();
        }
        let is_root = geteuid().is_root();
        if is_root {
            for path in ETC.map(|name| Path::new("/etc").join(name)) {
                if path.exists() {
                    let done = Command::new("cp").arg("-a").arg(path).arg(&etc).status();
                    assert!(done.unwrap().success());
                }
            }
            for table in ["passwd", "group", "shadow", "gshadow"] {
                let path = etc.join(table);
                let text = fs::read_to_string(&path).unwrap_or_default();
                let others = text.lines().filter(|line| !line.starts_with("drover:"));
                fs::write(&path, others.map(|line| format!("{line}\n")).collect::<String>())
                    .unwrap();
            }
        }
        let mut strip = Command::new("strip");
        strip.arg("-o").arg(bin.join("drover")).arg(drover().get_program());
        assert!(strip.status().unwrap().success());
        let mut machine = Self { dir, is_private: true, is_root };
        let tried = machine.run("true");
        machine.is_private = is_root && tried.status.success();
        if !is_root {
            note("the quickstart is tried as this user alone, who is not root");
        } else if !machine.is_private {
            let why = String::from_utf8_lossy(&tried.stderr).trim().to_owned();
            note(&format!("the quickstart is tried without useradd, and beside /etc: {why}"));
        }
        machine
    }

    /// A path below /etc, as this process sees it.
    fn real(&self, path: &str) -> PathBuf {
        self.dir.path().join(path.trim_start_matches('/'))
    }

    /// A line as it must be for the commands.
    fn spelled(&self, line: &str) -> String {
        if self.is_private {
            return line.to_owned();
        }
        let dir = self.dir.path().display();
        let line = line.replace("/etc/drover", &format!("{dir}/etc/drover"));
        line.replace("/usr/local/bin/", &format!("{dir}/bin/"))
    }

    /// A command with nothing of this process's environment.
    fn command(&self, words: &[&str]) -> Command {
        let mut command = if self.is_private {
            let mut command = Command::new("unshare");
            command.args(["-m", "--propagation", "private", "sh", "-c", MOUNTS, "sh"]);
            command.arg(self.dir.path());
            command
        } else {
            Command::new("env")
        };
        command.args(words).env_clear().stdin(Stdio::null());
        command.env("PATH", format!("{}:{PATH}", self.real("bin").display()));
        if !self.is_private {
            // The default names the true /etc.
            command.env("DROVER_CONFIG", self.real("/etc/drover"));
        }
        command
    }

    /// Runs a line as a shell does.
    fn run(&self, line: &str) -> Output {
        self.command(&["sh", "-c", &self.spelled(line)]).output().unwrap()
    }

    /// Runs a line that must succeed, and gives what it said.
    fn must(&self, line: &str) -> String {
        let out = self.run(line);
        let said = said_of(&out);
        assert!(out.status.success(), "{line}: {said}");
        said
    }

    /// The user of the unit, and its group.
    fn ids(&self) -> (u32, u32) {
        if !self.is_root {
            return (geteuid().as_raw(), getegid().as_raw());
        }
        if !self.is_private {
            return (NOBODYS, NOBODYS);
        }
        let table = fs::read_to_string(self.real("/etc/passwd")).unwrap();
        let entry = table.lines().find(|line| line.starts_with("drover:")).unwrap();
        let mut numbers = entry.split(':').skip(2).map(|number| number.parse().unwrap());
        (numbers.next().unwrap(), numbers.next().unwrap())
    }

    /// What stands before a command of the unit's user.
    fn as_user(&self) -> Vec<String> {
        if !self.is_root {
            return Vec::new();
        }
        let (uid, gid) = self.ids();
        let options = [format!("--reuid={uid}"), format!("--regid={gid}")].into_iter();
        let rights = ["--clear-groups", "--no-new-privs", "--inh-caps=-all"].map(str::to_owned);
        ["setpriv".to_owned()].into_iter().chain(options).chain(rights).collect()
    }

    /// Makes a folder that is the user's own.
    fn folder(&self, name: &str, mode: u32) -> PathBuf {
        let path = self.real(name);
        fs::create_dir(&path).unwrap();
        self.give(&path, mode);
        path
    }

    /// Gives a file to the user.
    fn give(&self, path: &Path, mode: u32) {
        let (uid, gid) = self.ids();
        chown(path, Some(uid), Some(gid)).unwrap();
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    /// Makes the machine ready as the page says, all but for the key.
    fn prepare(&self, lines: &[&str], sim: &Sim) {
        for line in lines {
            let words: Vec<&str> = line.split(' ').collect();
            match words[..] {
                // The program is there, without what debuggers want.
                ["cargo", "build", ..]
                | ["install", "-m", "755", "target/release/drover", "/usr/local/bin/drover"] => {}
                ["useradd", ..] if !self.is_private => {}
                ["useradd", ..] => drop(self.must(line)),
                ["install", "-d", ..] if self.is_private => drop(self.must(line)),
                ["install", "-d", ..] => {
                    drop(self.must(&line.replace("-g drover", &format!("-g {}", self.ids().1))));
                }
                ["scp", from, "/etc/drover/"] => {
                    let name = Path::new(from).file_name().unwrap();
                    let path = self.real("/etc/drover").join(name);
                    fs::copy(sim.fact("caFile"), &path).unwrap();
                    fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
                }
                _ => panic!("the quickstart has a command that nobody tries: {line}"),
            }
        }
    }

    /// Starts the service as the unit does.
    fn start(&self) -> Service {
        let credentials = self.folder("credentials", 0o700);
        for loaded in unit("LoadCredential") {
            let (name, path) = loaded.split_once(':').unwrap();
            let copy = credentials.join(name);
            fs::copy(self.real(path), &copy).unwrap();
            self.give(&copy, 0o400);
        }
        let (state, run) = (self.folder("state", 0o700), self.folder("run", 0o755));
        let mut line = self.as_user();
        let umask = format!("umask {}; exec \"$@\"", unit("UMask")[0]);
        line.extend(["sh".to_owned(), "-c".to_owned(), umask, "sh".to_owned()]);
        line.extend(self.spelled(&unit("ExecStart")[0]).split(' ').map(str::to_owned));
        let words: Vec<&str> = line.iter().map(String::as_str).collect();
        let mut command = self.command(&words);
        command.env("HOME", &state).env("CREDENTIALS_DIRECTORY", credentials);
        command.env("STATE_DIRECTORY", state).env("RUNTIME_DIRECTORY", run);
        let mut service = Service::launch(command);
        service.hear("READY=1");
        service
    }
}

fn said_of(out: &Output) -> String {
    let both = [&out.stdout[..], &out.stderr].concat();
    String::from_utf8_lossy(&both).into_owned()
}

// Invariant: the quickstart's commands and YAML, with the unit, are all that a new machine needs, and the
// service has no right there but to what is its own.

#[test]
fn the_quickstarts_yaml_and_the_unit_work_for_an_unprivileged_user() {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start_with(dir.path(), &["--guests", "process", "--all-nodes"]);
    let machine = Machine::new();
    let [ready, yaml, then] = blocks();
    let (keys, others): (Vec<&str>, Vec<&str>) =
        lines(&ready).into_iter().partition(|line| line.starts_with("ssh-keygen "));
    machine.prepare(&others, &sim);

    // Of the YAML only what lies elsewhere here is another one.
    let mut yaml = machine.spelled(&yaml);
    assert!(yaml.starts_with(&machine.spelled("# /etc/drover/drover.yaml\n")), "{yaml}");
    for node in ["pve1", "pve2"] {
        let url = sim.facts["urls"][node].as_str().unwrap();
        yaml = yaml.replace(&format!("https://{node}.example.com:8006"), url);
    }
    yaml += "    sshPort: 2222\n    guestNetworks: [\"127.77.0.0/16\"]\n";
    let config = machine.real("/etc/drover/drover.yaml");
    fs::write(&config, yaml).unwrap();
    fs::set_permissions(&config, Permissions::from_mode(0o644)).unwrap();
    let password = dir.path().join("admin");
    fs::write(&password, sim.fact("adminPassword")).unwrap();

    // The key may come later than the rights.
    let mut then = lines(&then).into_iter();
    let rights = format!("{} --password-file {}", then.next().unwrap(), password.display());
    let said = machine.must(&format!("{rights} --dry-run"));
    let secrets = machine.real("/etc/drover/credentials");
    for part in ["pveum user token add drover@pve ci", "/agent-ssh-key` does not exist yet"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert_eq!(fs::read_dir(&secrets).unwrap().count(), 0, "a dry run writes nothing");
    let [key] = keys[..] else { panic!("the quickstart makes no key, or several: {keys:?}") };
    machine.must(key);
    let said = machine.must(&rights);
    assert!(said.contains("ok: drover@pve!ci logs in and holds all"), "{said}");
    if machine.is_private {
        let token = fs::metadata(secrets.join("proxmox-token")).unwrap();
        let seen = (token.mode() & 0o7777, token.uid(), token.gid());
        assert_eq!(seen, (0o640, 0, machine.ids().1));
    }
    for line in then {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["drover", ..] => drop(machine.must(line)),
            // The unit is read from where it is.
            ["install", "-m", "644", "configs/drover.service", _] | ["systemctl", ..] => {}
            _ => panic!("the quickstart has a command that nobody tries: {line}"),
        }
    }

    // In a shell drover says what keeps the user from the key, and which command lets it in.
    if machine.is_root {
        let check = "drover --config /etc/drover/drover.yaml check";
        let check = format!("{} {check}", machine.as_user().join(" "));
        let out = machine.run(&check);
        let said = said_of(&out);
        assert_eq!(out.status.code(), Some(2), "{said}");
        assert!(said.contains("or let drover's group read the file: `chgrp drover "), "{said}");
        if machine.is_private {
            let remedy = said.split('`').find(|part| part.starts_with("chgrp ")).unwrap();
            machine.must(remedy);
            machine.must(&check);
        }
    }

    let mut service = machine.start();
    let (uid, _) = machine.ids();
    if machine.is_root {
        let status = format!("/proc/{}/status", service.child.0.id());
        let status = fs::read_to_string(status).unwrap();
        let uids = format!("Uid:\t{uid}\t{uid}\t{uid}\t{uid}\n");
        for line in [uids.as_str(), "CapEff:\t0000000000000000\n", "Groups:\t \n"] {
            assert!(status.contains(line), "{line}: {status}");
        }
    }
    let socket = machine.real("run/drover.sock");
    let mut lease = drover();
    lease.arg("--socket").arg(&socket).args(["lease", "--labels", "linux,docker", "--", "id -un"]);
    let out = lease.env("XDG_RUNTIME_DIR", dir.path()).output().unwrap();
    assert!(out.status.success() && out.stdout == b"debian\n", "{}", said_of(&out));
    let mut own = vec![socket];
    own.extend(fs::read_dir(machine.real("state")).unwrap().map(|entry| entry.unwrap().path()));
    assert!(own.len() > 2, "{own:?}");
    for path in own {
        let known = fs::metadata(&path).unwrap();
        assert_eq!((known.uid(), known.mode() & 0o077), (uid, 0), "{}", path.display());
    }
    service.child.signal("TERM");
    assert_eq!(service.child.wait(), Some(0));
}
