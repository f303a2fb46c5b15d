//! A simulated Proxmox with real machines, and what is left of them.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::api::{ask, call};
use crate::harness::{Sim, Site};

/// Emulated machines share few processors, so that a boot may take minutes.
const TIME_LIMIT: Duration = Duration::from_secs(600);

/// The folder of an image; `tests/all` has built it.
pub fn images(kind: &str) -> PathBuf {
    let folder = std::env::var_os("DROVER_TEST_IMAGES").map(PathBuf::from);
    let folder = folder.unwrap_or_else(|| panic!("run the tests by: tests/all vm"));
    folder.join(kind)
}

/// A cluster whose template is an image.
pub struct Machines {
    pub dir: tempfile::TempDir,
    pub sim: Sim,
}

impl Machines {
    pub fn of(kind: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let images = images(kind).display().to_string();
        let sim = Sim::start_with(dir.path(), &["--guests", "qemu", "--images", &images]);
        Self { dir, sim }
    }

    /// The same with a service's site on it.
    pub fn with_site(kind: &str) -> (Self, Site) {
        let machines = Self::of(kind);
        let site = Site::new(&machines.sim);
        (machines, site)
    }

    /// The YAML of a site, with more keys for the template, whose machines may take their time.
    pub fn yaml(&self, site: &Site, keys: &str) -> String {
        site.yaml(&self.sim, &format!("    startupWaitSeconds: {}\n{keys}", TIME_LIMIT.as_secs()))
    }

    fn path(&self, vmid: u64, rest: &str) -> String {
        format!("/nodes/{}/qemu/{vmid}{rest}", self.sim.fact("node"))
    }

    /// Makes a call that starts a task, and waits for its end; a task that fails fails the test.
    pub fn task(&self, method: &str, vmid: u64, rest: &str, params: &[(&str, &str)]) {
        assert_eq!(self.ended(method, vmid, rest, params), "OK", "{method} {rest}");
    }

    /// Makes a call that starts a task, and gives how that ended.
    pub fn ended(&self, method: &str, vmid: u64, rest: &str, params: &[(&str, &str)]) -> Value {
        let answer = self.sim.send(method, &self.path(vmid, rest), params);
        let upid = answer["data"].as_str().unwrap_or_else(|| panic!("{method} {rest}: {answer}"));
        let status = format!("/nodes/{}/tasks/{upid}/status", self.sim.fact("node"));
        until(&format!("{method} {rest}"), || {
            let status = self.sim.call("GET", &status)["data"].clone();
            (status["status"] == "stopped").then(|| status["exitstatus"].clone())
        })
    }

    /// The status of a machine as the API shows it.
    pub fn status(&self, vmid: u64) -> Value {
        self.sim.call("GET", &self.path(vmid, "/status/current"))["data"]["qmpstatus"].clone()
    }

    /// What a command says that the guest agent runs; none while no agent answers.
    pub fn try_says(&self, vmid: u64, command: &str) -> Option<String> {
        let words = [("command", "sh"), ("command", "-c"), ("command", command)];
        let started = self.sim.send("POST", &self.path(vmid, "/agent/exec"), &words);
        let pid = started["data"]["pid"].as_u64()?;
        let status = self.path(vmid, &format!("/agent/exec-status?pid={pid}"));
        until(command, || {
            let said = self.sim.call("GET", &status)["data"].clone();
            let text = said["out-data"].as_str().unwrap_or_default().trim().to_owned();
            (said["exited"] == 1).then_some(Some(text))
        })
    }

    /// The same as soon as an agent answers.
    pub fn says(&self, vmid: u64, command: &str) -> String {
        until("the guest agent", || self.try_says(vmid, command))
    }

    /// The files of guests: disks, sockets, discs.
    pub fn files(&self) -> Vec<String> {
        let folders = self.dir.path().read_dir().unwrap().flatten();
        let guests = folders.map(|entry| entry.path().join("guests")).find(|path| path.exists());
        let files = guests.unwrap().read_dir().unwrap().flatten();
        files.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    }

    /// Waits until no machine, no disk and no process is left.
    pub fn until_nothing_is_left(&self) {
        until("the last machine's end", || self.sim.guests().is_empty().then_some(()));
        until("the end of QEMU", || processes(self.dir.path()).is_empty().then_some(()));
        until("the removal of files", || self.files().is_empty().then_some(()));
    }
}

/// The processes of QEMU whose files are in this folder.
pub fn processes(folder: &Path) -> Vec<String> {
    let folder = folder.display().to_string();
    let all = Path::new("/proc").read_dir().unwrap().flatten();
    let lines = all.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    let lines = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    lines.filter(|line| line.starts_with("qemu-system") && line.contains(&folder)).collect()
}

/// Asks again and again, for as long as machines may take.
pub fn until<T>(what: &str, ask: impl Fn() -> Option<T>) -> T {
    let deadline = Instant::now() + TIME_LIMIT;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < deadline, "{what} was not seen within {TIME_LIMIT:?}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Leases a machine and gives the lease once it is ready.
pub fn leased(site: &Site, owner: &str) -> Value {
    let lease = ask(site, "linux", owner);
    until("a leased machine", || {
        let (_, shown) = call(site, "GET", &format!("/v1/leases/{lease}?waitSeconds=30"), None);
        assert_ne!(shown["state"], "ended", "{shown}");
        (shown["state"] == "ready").then_some(shown)
    })
}

/// What a command says on a machine that is leased for it.
pub fn says(site: &Site, owner: &str, command: &str) -> String {
    let out = site.cli(&["lease", "--template", "linux", "--owner", owner, "--", command]);
    let said = String::from_utf8_lossy(&out.stdout).trim_end().to_owned();
    assert!(out.status.success(), "{said}{}", String::from_utf8_lossy(&out.stderr));
    said
}

/// Lets every machine of a service go.
pub fn reap(site: &Site) {
    assert!(site.cli(&["reap", "--all"]).status.success());
    until("the last agent's end", || (site.json(&["agents"])["agents"] == json!([])).then_some(()));
}
