//! What keeps a guest's processes apart from the host: a bubblewrap namespace, or nothing.
//!
//! One namespace lives as long as the guest's boot. Its first process waits for the word to power
//! off; every session enters beside it, and the kernel kills them all when it ends.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::disk::{Disk, FOLDERS, Inside, USR_LOCAL};
use crate::guest::GuestBoot;

/// How guests are to be kept apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Isolation {
    /// In a namespace where bubblewrap works; elsewhere only allowed commands run.
    Auto,
    /// In a namespace or not at all.
    Required,
    /// Not at all: every command runs on the host as the simulator's user (`--unisolated`).
    Unisolated,
}

/// Why guests can not run as asked.
#[derive(Debug, thiserror::Error)]
pub enum IsolationError {
    /// No namespace can be made.
    #[error("guests can not be isolated ({reason}): install bubblewrap, or pass --unisolated")]
    Unavailable {
        /// What was tried and how it failed.
        reason: String,
    },
    /// The folder of the guests can not be used.
    #[error("failed to set up the guests' folder `{path}`")]
    Folder {
        /// The folder.
        path: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

/// The exit status of a first process that was told to power off, and to reboot.
pub(super) const POWERED_OFF: i32 = 90;
pub(super) const REBOOTS: i32 = 91;

/// The first process: says that it is ready, waits for one word, lets answers get out, ends.
const INIT: &str = "rm -f \"$GUEST_RUN/power\"; mkfifo -m 622 \"$GUEST_RUN/power\" || exit 1; \
    echo ready; read -r verb < \"$GUEST_RUN/power\"; sleep 0.2; \
    case \"$verb\" in reboot) exit 91;; *) exit 90;; esac";

/// Outside a namespace a dying simulator sends TERM here, and the whole group goes.
const BARE_JOB: &str = "trap 'trap \"\" TERM; kill -KILL 0' TERM; exec 3<&0; \
    \"$@\" <&3 3<&- & job=$!; exec 3<&- </dev/null; wait \"$job\"; exit $?";

const ENTER: &str = "cd \"$HOME\" || exit 126; exec \"$@\"";

/// The last is where stand-ins for packages link what they bring.
const SYSTEM_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/bin";

const MANAGERS: [&str; 6] = ["apt-get", "apt", "dnf", "yum", "zypper", "apk"];

/// Parts of the host's `/etc` that programs need to run at all.
const ETC: [&str; 17] = [
    "alternatives",
    "ca-certificates",
    "ca-certificates.conf",
    "debian_version",
    "fonts",
    "java-17-openjdk",
    "java-21-openjdk",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "nsswitch.conf",
    "os-release",
    "pki",
    "protocols",
    "resolv.conf",
    "ssl",
];

/// The way commands are run for guests.
#[derive(Debug)]
pub(super) struct Sandbox {
    standins: PathBuf,
    /// Folders of the host that guests can read, at the same place.
    shared: Vec<PathBuf>,
    /// Whether there is a namespace; if not, whether everything may run.
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Namespace,
    Bare { everything: bool, setpriv: bool },
}

impl Sandbox {
    /// Finds out what works here, by doing it once in `root`.
    pub(super) fn find(
        isolation: Isolation,
        root: &Path,
        shared: Vec<PathBuf>,
    ) -> Result<Self, IsolationError> {
        let standins = root.join(".standins");
        let folder = |path: &Path, source| IsolationError::Folder {
            path: path.display().to_string(),
            source,
        };
        super::standins::install(&standins).map_err(|error| folder(&standins, error))?;
        let sandbox = Self { standins, shared, kind: Kind::Namespace };
        let bare = |everything, sandbox| {
            let setpriv = runs(Command::new("setpriv").arg("--version"));
            Self { kind: Kind::Bare { everything, setpriv }, ..sandbox }
        };
        if isolation == Isolation::Unisolated {
            return Ok(bare(true, sandbox));
        }
        match (sandbox.try_out(root), isolation) {
            (Ok(()), _) => Ok(sandbox),
            (Err(reason), Isolation::Required) => Err(IsolationError::Unavailable { reason }),
            (Err(reason), Isolation::Auto | Isolation::Unisolated) => {
                tracing::warn!(%reason, "guests are not isolated, only allowed commands run");
                Ok(bare(false, sandbox))
            }
        }
    }

    pub(super) fn is_isolated(&self) -> bool {
        self.kind == Kind::Namespace
    }

    /// Whether commands need leave: nothing isolates, and not everything may run.
    pub(super) fn needs_leave(&self) -> bool {
        matches!(self.kind, Kind::Bare { everything: false, .. })
    }

    /// Makes an unisolated sandbox one that was only fallen back to.
    #[cfg(test)]
    pub(super) fn forbid_unless(&mut self, allowed: bool) {
        if let Kind::Bare { everything, .. } = &mut self.kind {
            *everything = allowed;
        }
    }

    /// Boots and leaves a namespace, entering it once.
    fn try_out(&self, root: &Path) -> Result<(), String> {
        let place = root.join(format!(".probe-{}", std::process::id()));
        let tried = self.try_out_in(&place);
        // Nothing of value is in it; it shows when it can not be removed next time either.
        let _left = std::fs::remove_dir_all(&place);
        tried
    }

    fn try_out_in(&self, place: &Path) -> Result<(), String> {
        let boot = GuestBoot {
            vmid: 0,
            node: String::new(),
            hostname: "probe".to_owned(),
            config: BTreeMap::new(),
            mac: None,
            boot: 1,
            resumed: false,
            disc: false,
        };
        let inside = Inside::new(&boot, std::net::Ipv4Addr::LOCALHOST)?;
        let disk = Disk::new(place, 0);
        disk.prepare(&boot, &inside).map_err(|error| error.to_string())?;
        let mut init = self.init(&disk, &inside);
        init.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = init.spawn().map_err(|error| format!("bwrap: {error}"))?;
        let mut greeting = Greeting::default();
        for line in BufReader::new(child.stdout.take().into_iter().next().ok_or("no pipe")?).lines()
        {
            if greeting.hear(&line.map_err(|error| error.to_string())?) {
                break;
            }
        }
        let entered = match greeting.first_process {
            Some(pid) if greeting.ready => {
                let environment = self.environment(&disk, &inside);
                let words = ["/bin/true".to_owned()];
                let mut job = self.job(&disk, &inside, Some(pid), &environment, &words);
                let ended = job.stdin(Stdio::null()).output();
                ended.map_err(|error| format!("nsenter: {error}")).and_then(|out| {
                    let said = String::from_utf8_lossy(&out.stderr).trim().to_owned();
                    if out.status.success() { Ok(()) } else { Err(said) }
                })
            }
            _ => Err(String::new()),
        };
        // It may have ended by itself, and then its last words say why.
        let _ended = child.kill();
        let out = child.wait_with_output().map_err(|error| error.to_string())?;
        entered.map_err(|said| format!("{said}{}", String::from_utf8_lossy(&out.stderr).trim()))
    }

    /// The command of a guest's first process; its standard output is to be heard by a [`Greeting`].
    pub(super) fn init(&self, disk: &Disk, inside: &Inside) -> Command {
        match self.kind {
            Kind::Namespace => {
                let mut command = Command::new("/bin/sh");
                // bubblewrap tells the first process's id on a descriptor of its own.
                command.args(["-c", "exec bwrap \"$@\" 3>&1", "sh"]);
                command.args(self.namespace(disk, inside)).args(["/bin/sh", "-c", INIT]);
                command
            }
            Kind::Bare { setpriv, .. } => {
                let mut command = with_parent_death("KILL", setpriv);
                command
                    .args(["-c", INIT])
                    .env("GUEST_RUN", disk.run_folder())
                    .env("PATH", SYSTEM_PATH);
                command
            }
        }
    }

    fn namespace(&self, disk: &Disk, inside: &Inside) -> Vec<String> {
        let mut words: Vec<String> = Vec::new();
        let mut add = |parts: &[&str]| words.extend(parts.iter().map(|part| (*part).to_owned()));
        add(&["--die-with-parent", "--new-session", "--unshare-user", "--uid", "1000"]);
        add(&["--gid", "1000", "--unshare-pid", "--unshare-ipc", "--unshare-uts"]);
        add(&["--hostname", &inside.hostname, "--info-fd", "3"]);
        add(&[
            "--clearenv",
            "--setenv",
            "GUEST_RUN",
            "/guest/run",
            "--setenv",
            "PATH",
            SYSTEM_PATH,
        ]);
        add(&["--ro-bind", "/usr", "/usr", "--ro-bind-try", "/nix", "/nix"]);
        for name in ["/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"] {
            match std::fs::read_link(name) {
                Ok(target) => add(&["--symlink", &target.to_string_lossy(), name]),
                Err(_) => add(&["--ro-bind-try", name, name]),
            }
        }
        for name in
            FOLDERS.into_iter().chain(["root"].into_iter().filter(|_| inside.user == "root"))
        {
            let own = disk.folder().join(name);
            add(&["--bind", &own.to_string_lossy(), &format!("/{name}")]);
        }
        for name in ETC {
            let path = format!("/etc/{name}");
            add(&["--ro-bind-try", &path, &path]);
        }
        // Root's own /proc/sys is writable even without capabilities, and bubblewrap covers it
        // only where it finds itself without rights.
        add(&["--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys"]);
        for name in ["sysrq-trigger", "irq", "bus", "fs", "acpi", "scsi", "mtrr", "pressure"] {
            let path = format!("/proc/{name}");
            add(&["--ro-bind-try", &path, &path]);
        }
        // Not `--dev`: it needs a second user namespace, which only root could enter from outside.
        add(&["--dir", "/dev", "--tmpfs", "/dev/shm"]);
        for name in ["null", "zero", "full", "random", "urandom"] {
            let path = format!("/dev/{name}");
            add(&["--dev-bind", &path, &path]);
        }
        for (link, target) in [("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")] {
            add(&["--symlink", &format!("/proc/self/fd{target}"), &format!("/dev/{link}")]);
        }
        add(&["--tmpfs", "/run", "--tmpfs", "/guest/run"]);
        add(&["--ro-bind", &self.standins.to_string_lossy(), "/guest/bin"]);
        if inside.family().is_some() || inside.user == "root" {
            let own = disk.folder().join(USR_LOCAL).display().to_string();
            words.extend(["--bind".to_owned(), own, "/usr/local".to_owned()]);
        }
        if let Some(family) = inside.family() {
            words.extend(self.bare_machine(family));
        }
        for folder in &self.shared {
            let place = folder.display().to_string();
            words.extend(["--ro-bind".to_owned(), place.clone(), place]);
        }
        words.extend(["--remount-ro", "/", "--chdir", "/", "--"].map(str::to_owned));
        words
    }

    /// Hides what a machine of one family has not: the host's Java, other package managers.
    fn bare_machine(&self, family: &str) -> Vec<String> {
        let mut words = Vec::new();
        if Path::new("/usr/lib/jvm").is_dir() {
            words.extend(["--tmpfs", "/usr/lib/jvm"].map(str::to_owned));
        }
        let hidden = MANAGERS.into_iter().filter(|name| !name.starts_with(family)).chain(["java"]);
        let standins = self.standins.as_path();
        let places = [(standins, "/guest/bin"), (Path::new("/usr/bin"), "/usr/bin")];
        for (name, (host, inside)) in
            hidden.flat_map(|name| places.map(|(host, inside)| (name, (host, inside))))
        {
            // A mount can not go over a link.
            if host.join(name).symlink_metadata().is_ok_and(|kind| kind.is_file()) {
                let place = format!("{inside}/{name}");
                words.extend(["--ro-bind".to_owned(), "/dev/null".to_owned(), place]);
            }
        }
        words
    }

    /// The environment of a session.
    pub(super) fn environment(&self, disk: &Disk, inside: &Inside) -> BTreeMap<String, String> {
        let mut all = BTreeMap::new();
        let mut set = |name: &str, value: String| all.insert(name.to_owned(), value);
        set("USER", inside.user.clone());
        set("LOGNAME", inside.user.clone());
        set("SHELL", "/bin/sh".to_owned());
        set("LANG", "C.UTF-8".to_owned());
        // By the last two words a session knows the guest it is in, on a host of many.
        set("SSH_CONNECTION", format!("{0} 0 {0} 22", inside.address));
        if self.is_isolated() {
            set("HOME", inside.home.clone());
            set("TMPDIR", "/tmp".to_owned());
            set("PATH", format!("/guest/bin:{SYSTEM_PATH}"));
            return all;
        }
        let on_host = |name: &str| disk.folder().join(name).display().to_string();
        set("HOME", on_host(&inside.home[1..]));
        set("TMPDIR", on_host("tmp"));
        set("GUEST_ETC", on_host("etc"));
        set("GUEST_VAR", on_host("var"));
        set("GUEST_OPT", on_host("opt"));
        set("GUEST_RUN", disk.run_folder().display().to_string());
        set("PATH", format!("{}:{SYSTEM_PATH}", self.standins.display()));
        all
    }

    /// A command within the guest, in the user's home, with exactly this environment.
    pub(super) fn job(
        &self,
        disk: &Disk,
        inside: &Inside,
        first_process: Option<u32>,
        environment: &BTreeMap<String, String>,
        words: &[String],
    ) -> Command {
        match (self.kind, first_process) {
            (Kind::Namespace, pid) => {
                let mut command = Command::new("nsenter");
                command.arg("--target").arg(pid.unwrap_or(0).to_string());
                command.args(["--user", "--preserve-credentials", "--mount", "--pid"]);
                command.args(["--uts", "--ipc", "--", "/usr/bin/setpriv", "--no-new-privs", "--"]);
                // A session's variables are set within: nsenter itself runs outside, and a
                // variable such as LD_PRELOAD must not reach it.
                command.args(["/usr/bin/env", "-i"]);
                command.args(environment.iter().map(|(name, value)| format!("{name}={value}")));
                command.args(["/bin/sh", "-c", ENTER, "sh"]).args(words);
                command.env_clear().env("PATH", SYSTEM_PATH).current_dir("/");
                command
            }
            (Kind::Bare { setpriv, .. }, _) => {
                let mut command = with_parent_death("TERM", setpriv);
                command.args(["-c", BARE_JOB, "sh"]).args(words);
                command.env_clear().envs(environment);
                command.current_dir(disk.folder().join(&inside.home[1..]));
                command
            }
        }
    }
}

/// A shell that gets a signal when the simulator dies, where `setpriv` is there to ask for it.
fn with_parent_death(signal: &str, setpriv: bool) -> Command {
    if !setpriv {
        return Command::new("/bin/sh");
    }
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", signal, "--", "/bin/sh"]);
    command
}

fn runs(command: &mut Command) -> bool {
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|end| end.success())
}

/// What a first process says: its id in the host's eyes, and that it is ready.
#[derive(Debug, Default)]
pub(super) struct Greeting {
    pub first_process: Option<u32>,
    pub ready: bool,
}

impl Greeting {
    /// Takes one line; true when it was the last.
    pub(super) fn hear(&mut self, line: &str) -> bool {
        if let Some((_, id)) = line.split_once("\"child-pid\":") {
            self.first_process = id.trim_matches([' ', ',', '}']).parse().ok();
        }
        self.ready |= line.trim() == "ready";
        self.ready
    }
}
