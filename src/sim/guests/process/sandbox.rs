//! Isolates a guest's processes from the host: a bubblewrap namespace, or nothing.
//!
//! Each boot has one namespace. Its first process waits for the command to power off, every session
//! enters the namespace, and the kernel kills all processes in it when the first one ends.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::disk::{Disk, FOLDERS, USR_LOCAL_FOLDER};
use super::identity::GuestIdentity;
use crate::guest::GuestBoot;

/// How guests are isolated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Isolation {
    /// In a namespace where bubblewrap works; elsewhere only known commands run.
    Auto,
    /// In a namespace; an error where bubblewrap does not work.
    Required,
    /// Not isolated: every command runs on the host as the simulator's user (`--unisolated`).
    Unisolated,
}

/// Why guests cannot run.
#[derive(Debug, thiserror::Error)]
pub enum IsolationError {
    /// bubblewrap cannot create a namespace.
    #[error("guests cannot be isolated ({reason}): install bubblewrap, or pass --unisolated")]
    Unavailable {
        /// The failed program and its error.
        reason: String,
    },
    /// The folder of the guests cannot be used.
    #[error("failed to set up the guests' folder `{path}`")]
    Folder {
        path: String,
        #[source]
        source: std::io::Error,
    },
}

/// The exit status of a first process after a power-off, and after a reboot.
pub(super) const EXIT_POWER_OFF: i32 = 90;
pub(super) const EXIT_REBOOT: i32 = 91;

/// The script of the first process: it prints `ready`, waits for one word, gives answers time to
/// leave, and ends.
const FIRST_PROCESS: &str = "rm -f \"$GUEST_RUN/power\"; \
    mkfifo -m 622 \"$GUEST_RUN/power\" || exit 1; echo ready; \
    read -r verb < \"$GUEST_RUN/power\"; sleep 0.2; \
    case \"$verb\" in reboot) exit 91;; *) exit 90;; esac";

/// The script around a command without a namespace: when the simulator dies, TERM arrives and the
/// whole process group is killed.
const UNISOLATED_COMMAND: &str = "trap 'trap \"\" TERM; kill -KILL 0' TERM; exec 3<&0; \
    \"$@\" <&3 3<&- & job=$!; exec 3<&- </dev/null; wait \"$job\"; exit $?";

const ENTER_HOME_SCRIPT: &str = "cd \"$HOME\" || exit 126; exec \"$@\"";

/// Stand-ins for package managers put links into the last folder.
const SYSTEM_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/bin";

const PACKAGE_MANAGERS: [&str; 6] = ["apt-get", "apt", "dnf", "yum", "zypper", "apk"];

/// The parts of the host's `/etc` that programs need.
const HOST_ETC: [&str; 17] = [
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

/// Runs commands for guests.
#[derive(Debug)]
pub(super) struct Sandbox {
    standins: PathBuf,
    /// Folders of the host that guests can read at the same path.
    shared_folders: Vec<PathBuf>,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Namespace,
    Unisolated { allow_all: bool, setpriv: bool },
}

impl Sandbox {
    /// Detects which isolation works, with a probe in `root`.
    pub(super) fn detect(
        isolation: Isolation,
        root: &Path,
        shared_folders: Vec<PathBuf>,
    ) -> Result<Self, IsolationError> {
        let standins = root.join(".standins");
        let folder = |path: &Path, source| IsolationError::Folder {
            path: path.display().to_string(),
            source,
        };
        super::standins::install(&standins).map_err(|error| folder(&standins, error))?;
        let sandbox = Self { standins, shared_folders, kind: Kind::Namespace };
        let bare = |allow_all, sandbox| {
            let setpriv = succeeds(Command::new("setpriv").arg("--version"));
            Self { kind: Kind::Unisolated { allow_all, setpriv }, ..sandbox }
        };
        if isolation == Isolation::Unisolated {
            return Ok(bare(true, sandbox));
        }
        match (sandbox.probe(root), isolation) {
            (Ok(()), _) => Ok(sandbox),
            (Err(reason), Isolation::Required) => Err(IsolationError::Unavailable { reason }),
            (Err(reason), Isolation::Auto | Isolation::Unisolated) => {
                tracing::warn!(%reason, "guests are not isolated; only known commands run");
                Ok(bare(false, sandbox))
            }
        }
    }

    pub(super) fn is_isolated(&self) -> bool {
        self.kind == Kind::Namespace
    }

    /// Whether only known commands can run, because nothing isolates them.
    pub(super) fn restricts_commands(&self) -> bool {
        matches!(self.kind, Kind::Unisolated { allow_all: false, .. })
    }

    /// Sets whether an unisolated sandbox runs all commands.
    #[cfg(test)]
    pub(super) fn set_allow_all(&mut self, allowed: bool) {
        if let Kind::Unisolated { allow_all, .. } = &mut self.kind {
            *allow_all = allowed;
        }
    }

    /// Boots a namespace, runs a command in it, and ends it.
    fn probe(&self, root: &Path) -> Result<(), String> {
        let place = root.join(format!(".probe-{}", std::process::id()));
        let tried = self.probe_in(&place);
        // The next probe reports it when the folder cannot be removed.
        let _left = std::fs::remove_dir_all(&place);
        tried
    }

    fn probe_in(&self, place: &Path) -> Result<(), String> {
        let boot = GuestBoot {
            vmid: 0,
            node: String::new(),
            hostname: "probe".to_owned(),
            config: BTreeMap::new(),
            mac: None,
            boot: 1,
            resumed: false,
            config_from_disc: false,
            discs: Vec::new(),
        };
        let identity = GuestIdentity::new(&boot, std::net::Ipv4Addr::LOCALHOST)?;
        let disk = Disk::new(place, 0);
        disk.prepare(&boot, &identity).map_err(|error| error.to_string())?;
        let mut init = self.first_process(&disk, &identity);
        init.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = init.spawn().map_err(|error| format!("bwrap: {error}"))?;
        let mut report = StartupReport::default();
        for line in BufReader::new(child.stdout.take().into_iter().next().ok_or("no pipe")?).lines()
        {
            if report.take_line(&line.map_err(|error| error.to_string())?) {
                break;
            }
        }
        let entered = match report.first_process {
            Some(pid) if report.ready => {
                let environment = self.environment(&disk, &identity);
                let words = ["/bin/true".to_owned()];
                let mut job =
                    self.session_command(&disk, &identity, Some(pid), &environment, &words);
                let ended = job.stdin(Stdio::null()).output();
                ended.map_err(|error| format!("nsenter: {error}")).and_then(|out| {
                    let said = String::from_utf8_lossy(&out.stderr).trim().to_owned();
                    if out.status.success() { Ok(()) } else { Err(said) }
                })
            }
            _ => Err(String::new()),
        };
        // A first process that ended by itself says why on standard error.
        let _ended = child.kill();
        let out = child.wait_with_output().map_err(|error| error.to_string())?;
        entered.map_err(|said| format!("{said}{}", String::from_utf8_lossy(&out.stderr).trim()))
    }

    /// The command of a guest's first process. A [`StartupReport`] reads its standard output.
    pub(super) fn first_process(&self, disk: &Disk, identity: &GuestIdentity) -> Command {
        match self.kind {
            Kind::Namespace => {
                let mut command = Command::new("/bin/sh");
                // bubblewrap writes the process id of its child to a descriptor.
                command.args(["-c", "exec bwrap \"$@\" 3>&1", "sh"]);
                command.args(self.namespace(disk, identity)).args(["/bin/sh", "-c", FIRST_PROCESS]);
                command
            }
            Kind::Unisolated { setpriv, .. } => {
                let mut command = with_parent_death("KILL", setpriv);
                command
                    .args(["-c", FIRST_PROCESS])
                    .env("GUEST_RUN", disk.run_folder())
                    .env("PATH", SYSTEM_PATH);
                command
            }
        }
    }

    fn namespace(&self, disk: &Disk, identity: &GuestIdentity) -> Vec<String> {
        let mut words: Vec<String> = Vec::new();
        let mut add = |parts: &[&str]| words.extend(parts.iter().map(|part| (*part).to_owned()));
        add(&["--die-with-parent", "--new-session", "--unshare-user", "--uid", "1000"]);
        add(&["--gid", "1000", "--unshare-pid", "--unshare-ipc", "--unshare-uts"]);
        add(&["--hostname", &identity.hostname, "--info-fd", "3"]);
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
            FOLDERS.into_iter().chain(["root"].into_iter().filter(|_| identity.user == "root"))
        {
            let own = disk.folder().join(name);
            add(&["--bind", &own.to_string_lossy(), &format!("/{name}")]);
        }
        for name in HOST_ETC {
            let path = format!("/etc/{name}");
            add(&["--ro-bind-try", &path, &path]);
        }
        // Root can write /proc/sys even without capabilities, and bubblewrap protects it only when
        // it runs without privileges.
        add(&["--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys"]);
        for name in ["sysrq-trigger", "irq", "bus", "fs", "acpi", "scsi", "mtrr", "pressure"] {
            let path = format!("/proc/{name}");
            add(&["--ro-bind-try", &path, &path]);
        }
        // `--dev` needs a second user namespace, which only root could enter from outside.
        add(&["--dir", "/dev", "--tmpfs", "/dev/shm"]);
        for name in ["null", "zero", "full", "random", "urandom", "tty"] {
            let path = format!("/dev/{name}");
            add(&["--dev-bind", &path, &path]);
        }
        for (link, target) in [("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")] {
            add(&["--symlink", &format!("/proc/self/fd{target}"), &format!("/dev/{link}")]);
        }
        add(&["--tmpfs", "/run", "--tmpfs", "/guest/run"]);
        add(&["--ro-bind", &self.standins.to_string_lossy(), "/guest/bin"]);
        if identity.package_family().is_some() || identity.user == "root" {
            let own = disk.folder().join(USR_LOCAL_FOLDER).display().to_string();
            words.extend(["--bind".to_owned(), own, "/usr/local".to_owned()]);
        }
        if let Some(family) = identity.package_family() {
            words.extend(self.hide_foreign_packages(family));
        }
        for folder in &self.shared_folders {
            let place = folder.display().to_string();
            words.extend(["--ro-bind".to_owned(), place.clone(), place]);
        }
        words.extend(["--remount-ro", "/", "--chdir", "/", "--"].map(str::to_owned));
        words
    }

    /// Hides what a machine of one package family lacks: the host's Java and other package
    /// managers.
    fn hide_foreign_packages(&self, family: &str) -> Vec<String> {
        let mut words = Vec::new();
        if Path::new("/usr/lib/jvm").is_dir() {
            words.extend(["--tmpfs", "/usr/lib/jvm"].map(str::to_owned));
        }
        let hidden =
            PACKAGE_MANAGERS.into_iter().filter(|name| !name.starts_with(family)).chain(["java"]);
        let standins = self.standins.as_path();
        let places = [(standins, "/guest/bin"), (Path::new("/usr/bin"), "/usr/bin")];
        for (name, (on_host, in_guest)) in
            hidden.flat_map(|name| places.map(|(on_host, in_guest)| (name, (on_host, in_guest))))
        {
            // A link cannot be a mount point.
            if on_host.join(name).symlink_metadata().is_ok_and(|kind| kind.is_file()) {
                let place = format!("{in_guest}/{name}");
                words.extend(["--ro-bind".to_owned(), "/dev/null".to_owned(), place]);
            }
        }
        words
    }

    /// The environment of a session.
    pub(super) fn environment(
        &self,
        disk: &Disk,
        identity: &GuestIdentity,
    ) -> BTreeMap<String, String> {
        let mut all = BTreeMap::new();
        let mut set = |name: &str, value: String| all.insert(name.to_owned(), value);
        set("USER", identity.user.clone());
        set("LOGNAME", identity.user.clone());
        set("SHELL", "/bin/sh".to_owned());
        set("LANG", "C.UTF-8".to_owned());
        // The last two words name for a session which guest it is in, on a host with many.
        set("SSH_CONNECTION", format!("{0} 0 {0} 22", identity.address));
        if self.is_isolated() {
            set("HOME", identity.home.clone());
            set("TMPDIR", "/tmp".to_owned());
            set("PATH", format!("/guest/bin:{SYSTEM_PATH}"));
            return all;
        }
        let on_host = |name: &str| disk.folder().join(name).display().to_string();
        set("HOME", on_host(&identity.home[1..]));
        set("TMPDIR", on_host("tmp"));
        set("GUEST_ETC", on_host("etc"));
        set("GUEST_VAR", on_host("var"));
        set("GUEST_OPT", on_host("opt"));
        set("GUEST_RUN", disk.run_folder().display().to_string());
        set("PATH", format!("{}:{SYSTEM_PATH}", self.standins.display()));
        all
    }

    /// A command in the guest, in the user's home, with exactly this environment.
    pub(super) fn session_command(
        &self,
        disk: &Disk,
        identity: &GuestIdentity,
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
                // The session's variables are set inside the namespace: nsenter runs outside, and a
                // variable such as LD_PRELOAD must not reach it.
                // A simulator that was started in the background ignores Ctrl-C, and a login does not.
                command.args(["/usr/bin/env", "-i", "--default-signal=INT,QUIT"]);
                command.args(environment.iter().map(|(name, value)| format!("{name}={value}")));
                command.args(["/bin/sh", "-c", ENTER_HOME_SCRIPT, "sh"]).args(words);
                command.env_clear().env("PATH", SYSTEM_PATH).current_dir("/");
                command
            }
            (Kind::Unisolated { setpriv, .. }, _) => {
                let mut command = with_parent_death("TERM", setpriv);
                command.args(["-c", UNISOLATED_COMMAND, "sh"]).args(words);
                command.env_clear().envs(environment);
                command.current_dir(disk.folder().join(&identity.home[1..]));
                command
            }
        }
    }
}

/// A shell that receives a signal when the simulator dies, where `setpriv` is installed.
fn with_parent_death(signal: &str, setpriv: bool) -> Command {
    if !setpriv {
        return Command::new("/bin/sh");
    }
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", signal, "--", "/bin/sh"]);
    command
}

fn succeeds(command: &mut Command) -> bool {
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|end| end.success())
}

/// The output of a first process: its process id on the host, and that it is ready.
#[derive(Debug, Default)]
pub(super) struct StartupReport {
    pub first_process: Option<u32>,
    pub ready: bool,
}

impl StartupReport {
    /// Reads one line; true after the last one.
    pub(super) fn take_line(&mut self, line: &str) -> bool {
        if let Some((_, id)) = line.split_once("\"child-pid\":") {
            self.first_process = id.trim_matches([' ', ',', '}']).parse().ok();
        }
        self.ready |= line.trim() == "ready";
        self.ready
    }
}
