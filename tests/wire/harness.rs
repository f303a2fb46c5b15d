//! Processes for the wire tests: a simulated Proxmox, the service on it, its event stream, its
//! notify socket. Each is ended by its own pid when dropped.
//!
//! Nothing here sleeps: a test waits by reading (a line, an event, a datagram), and every read has
//! a limit after which the test fails with what was seen so far.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use serde_json::Value;

/// The longest any single wait may take before a test fails.
pub const WAIT_LIMIT: Duration = Duration::from_secs(60);

/// The program under test.
pub fn drover() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_drover"));
    command.stdin(Stdio::null());
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        let own = ["PROXMOX_", "PVE_", "DROVER_"].iter().any(|prefix| text.starts_with(prefix));
        if own || text.to_ascii_lowercase().ends_with("_proxy") {
            command.env_remove(&name);
        }
    }
    command.env_remove("NOTIFY_SOCKET").env_remove("WATCHDOG_USEC").env_remove("STATE_DIRECTORY");
    command
}

/// Text lines of a child's stream, read on a thread so that waiting has a limit.
pub struct Lines {
    receiver: Receiver<String>,
    seen: Vec<String>,
    what: String,
}

impl Lines {
    /// Reads a stream to its end.
    pub fn of(what: &str, stream: impl Read + Send + 'static) -> Self {
        let (sender, receiver) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stream).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Self { receiver, seen: Vec::new(), what: what.to_owned() }
    }

    /// The first line from here on that `wanted` takes.
    pub fn until(&mut self, wanted: impl Fn(&str) -> bool) -> String {
        let deadline = Instant::now() + WAIT_LIMIT;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.receiver.recv_timeout(left) {
                Ok(line) => {
                    self.seen.push(line.clone());
                    if wanted(&line) {
                        return line;
                    }
                }
                Err(reason) => {
                    let ended = reason == RecvTimeoutError::Disconnected;
                    let how = if ended { "ended" } else { "went silent" };
                    panic!("{} {how} before the line came; seen:\n{}", self.what, self.tail());
                }
            }
        }
    }

    /// Everything until the stream ends.
    pub fn rest(&mut self) -> String {
        self.rest_within(WAIT_LIMIT)
    }

    /// The same of a stream that may last longer.
    pub fn rest_within(&mut self, limit: Duration) -> String {
        let deadline = Instant::now() + limit;
        let mut lines = Vec::new();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.receiver.recv_timeout(left) {
                Ok(line) => lines.push(line),
                Err(RecvTimeoutError::Disconnected) => return lines.join("\n"),
                Err(RecvTimeoutError::Timeout) => {
                    panic!("{} did not end; it said:\n{}", self.what, lines.join("\n"))
                }
            }
        }
    }

    fn tail(&self) -> String {
        let from = self.seen.len().saturating_sub(40);
        self.seen[from..].join("\n")
    }
}

/// A child that is killed by its pid when the test is done with it.
pub struct Kept(pub Child);

impl Kept {
    /// Sends a signal by name, such as `HUP`.
    pub fn signal(&self, name: &str) {
        let pid = self.0.id().to_string();
        let sent = Command::new("kill").args([&format!("-{name}"), &pid]).status();
        assert!(sent.is_ok_and(|status| status.success()), "kill -{name} {pid}");
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> Option<i32> {
        self.0.wait().unwrap().code()
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        // Already gone is as good.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A running `drover sim`.
pub struct Sim {
    pub child: Kept,
    /// Its first line.
    pub facts: Value,
    control: PathBuf,
}

impl Sim {
    /// Starts one with process guests and without delays.
    pub fn start(dir: &Path) -> Self {
        Self::start_with(dir, &["--guests", "process"])
    }

    /// Starts one with these options.
    pub fn start_with(dir: &Path, options: &[&str]) -> Self {
        let mut command = drover();
        let control = dir.join("control.sock");
        command.args(["sim", "--listen", "127.0.0.1:0", "--control"]).arg(&control).args(options);
        command.env("TMPDIR", dir).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = Kept(command.spawn().unwrap());
        let stdout = child.0.stdout.take().unwrap();
        let mut lines = Lines::of("drover sim", stdout);
        let first = lines.until(|_| true);
        let facts = serde_json::from_str(&first).unwrap();
        Self { child, facts, control }
    }

    /// Gives it an order, which must be carried out, and gives its answer.
    pub fn order(&self, line: &str) -> Value {
        use std::io::Write;
        let mut control = std::os::unix::net::UnixStream::connect(&self.control).unwrap();
        writeln!(control, "{line}").unwrap();
        let mut answer = String::new();
        BufReader::new(control).read_line(&mut answer).unwrap();
        let answer: Value = serde_json::from_str(&answer).unwrap();
        assert_eq!(answer["ok"], true, "{line}: {answer}");
        answer
    }

    /// Calls its API as the administrator with a password, who stays when tokens go.
    pub fn admin(&self, method: &str, path: &str, params: &[(&str, &str)]) -> Value {
        let user = [("username", self.fact("adminUser")), ("password", self.fact("adminPassword"))];
        let login = self.curl("POST", "/access/ticket", &user, &[])["data"].clone();
        let text = |name: &str| login[name].as_str().unwrap().to_owned();
        let cookie = format!("Cookie: PVEAuthCookie={}", text("ticket"));
        let csrf = format!("CSRFPreventionToken: {}", text("CSRFPreventionToken"));
        self.curl(method, path, params, &[&cookie, &csrf])
    }

    /// One of the facts as text.
    pub fn fact(&self, name: &str) -> &str {
        self.facts[name].as_str().unwrap_or_else(|| panic!("no `{name}` in {}", self.facts))
    }

    /// Calls its API with the token that may do everything, through curl.
    pub fn call(&self, method: &str, path: &str) -> Value {
        self.send(method, path, &[])
    }

    /// Calls its API with parameters.
    pub fn send(&self, method: &str, path: &str, params: &[(&str, &str)]) -> Value {
        let header = format!(
            "Authorization: PVEAPIToken={}={}",
            self.fact("tokenId"),
            self.fact("tokenSecret")
        );
        self.curl(method, path, params, &[&header])
    }

    /// Its certificates change in some tests, which is no concern of what they do by the side.
    fn curl(&self, method: &str, path: &str, params: &[(&str, &str)], headers: &[&str]) -> Value {
        let url = format!("{}/api2/json{path}", self.fact("url"));
        let mut curl = Command::new("curl");
        curl.args(["-sSk", "-X", method, &url]);
        for header in headers {
            curl.args(["-H", header]);
        }
        if method == "POST" && params.is_empty() {
            curl.args(["-d", ""]);
        }
        for (name, value) in params {
            curl.args(["--data-urlencode", &format!("{name}={value}")]);
        }
        let out = curl.output().unwrap();
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        serde_json::from_str(&text).unwrap_or_else(|_| panic!("{method} {path}: {out:?}"))
    }

    /// The configuration of a guest, with its digest.
    pub fn config(&self, node: &str, vmid: u64) -> Value {
        self.call("GET", &format!("/nodes/{node}/qemu/{vmid}/config"))["data"].clone()
    }

    /// VMIDs of guests that are no templates.
    pub fn guests(&self) -> Vec<u64> {
        let answer = self.call("GET", "/cluster/resources?type=vm");
        let all = answer["data"].as_array().cloned().unwrap_or_default();
        all.iter()
            .filter(|guest| guest["template"].as_u64() != Some(1))
            .filter_map(|guest| guest["vmid"].as_u64())
            .collect()
    }
}

/// Reports a figure: shown by `tests/all`, asserted by nobody.
pub fn note(text: &str) {
    use std::io::Write;
    // Past the capturing of a test's output. A closed output is no fault of the test.
    let _ = writeln!(std::io::stderr(), "\nnote: {text}");
}

/// A simulator without delays, and a site for a service on it.
pub fn world() -> (tempfile::TempDir, Sim, Site) {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start(dir.path());
    let site = Site::new(&sim);
    (dir, sim, site)
}

/// The same with a cluster of one's own.
pub fn world_of(cluster: &str) -> (tempfile::TempDir, Sim, Site) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("cluster.yaml");
    std::fs::write(&file, cluster).unwrap();
    let options = ["--guests", "process", "--cluster", file.to_str().unwrap()];
    let sim = Sim::start_with(dir.path(), &options);
    let site = Site::new(&sim);
    (dir, sim, site)
}

/// What a service is started with.
pub struct Site {
    /// Its folder: YAML, keys, state.
    pub dir: tempfile::TempDir,
}

impl Site {
    /// A folder with a YAML for the simulator, one template `linux` with label `linux`.
    pub fn new(sim: &Sim) -> Self {
        let site = Self { dir: tempfile::tempdir().unwrap() };
        std::fs::copy(sim.fact("caFile"), site.dir.path().join("ca.pem")).unwrap();
        site.write_secret("token", sim.fact("tokenSecret"));
        let key = drover_ssh::PrivateKey::from_seed(&[7; 32], "drover-test");
        let text = key.to_openssh().unwrap();
        site.write_secret("key", secrecy::ExposeSecret::expose_secret(&text));
        site.write_yaml(&site.yaml(sim, ""));
        site
    }

    /// The YAML, with more keys for the template.
    pub fn yaml(&self, sim: &Sim, template: &str) -> String {
        let dir = self.dir.path().display();
        format!(
            r#"
credentials:
  proxmox: {{kind: proxmoxToken, tokenId: "{token}", secretFile: "{dir}/token"}}
  agents: {{kind: sshKey, username: debian, privateKeyFile: "{dir}/key"}}
service:
  socket: "{dir}/drover.sock"
  stateDirectory: "{dir}/state"
cloudDefaults:
  credentialsId: proxmox
cloudConfigurations:
  lab:
    name: "Lab"
    apiUrl: "{url}"
    caFile: "{dir}/ca.pem"
    startVmId: 10000
agentConfigurations:
  linux:
    cloudIds: [lab]
    name: linux
    node: {node}
    templateVmId: {vmid}
    labelString: "linux x64"
    cloneStrategy: LINKED
    credentialsId: agents
    ciUser: debian
    ipConfig: "ip=dhcp"
    sshPort: 2222
    guestNetworks: ["127.77.0.0/16"]
    instanceCap: 4
{template}"#,
            token = sim.fact("tokenId"),
            url = sim.fact("url"),
            node = sim.fact("node"),
            vmid = sim.facts["templateVmId"].as_u64().unwrap_or(9000),
        )
    }

    /// The YAML's path.
    pub fn config(&self) -> PathBuf {
        self.dir.path().join("drover.yaml")
    }

    /// Replaces the YAML as editors do: a new file renamed over the old.
    pub fn write_yaml(&self, text: &str) {
        let fresh = self.dir.path().join(".drover.yaml.new");
        std::fs::write(&fresh, text).unwrap();
        std::fs::rename(fresh, self.config()).unwrap();
    }

    /// Writes a file that only the owner may read.
    pub fn write_secret(&self, name: &str, text: &str) {
        use std::os::unix::fs::PermissionsExt;
        let path = self.dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    }

    /// A client command on this site's socket.
    pub fn command<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = drover();
        command.arg("--socket").arg(self.dir.path().join("drover.sock")).args(args);
        // Keys of leases that are kept go there.
        command.env("XDG_RUNTIME_DIR", self.dir.path());
        command
    }

    /// Runs a client command to its end.
    pub fn cli(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// Waits until no agent lives.
    pub fn until_empty(&self) {
        let deadline = Instant::now() + WAIT_LIMIT;
        loop {
            let living = self.json(&["agents"])["agents"].clone();
            if living.as_array().is_some_and(Vec::is_empty) {
                return;
            }
            assert!(Instant::now() < deadline, "they do not go: {living}");
        }
    }

    /// Runs a client command that must succeed and gives its JSON.
    pub fn json(&self, args: &[&str]) -> Value {
        let out = self.cli(&[&["--json"], args].concat());
        assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
        serde_json::from_slice(&out.stdout)
            .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&out.stdout)))
    }
}

/// A running `drover run` with a notify socket of its own.
pub struct Service {
    pub child: Kept,
    notify: UnixDatagram,
    heard: Vec<String>,
    _notify_dir: tempfile::TempDir,
}

impl Service {
    /// Starts it without waiting.
    pub fn spawn(site: &Site, more: &[&str]) -> Self {
        Self::spawn_with(site, more, &[])
    }

    /// Starts it without waiting, with more variables in its environment.
    pub fn spawn_with(site: &Site, more: &[&str], environment: &[(&str, &str)]) -> Self {
        let mut command = drover();
        command.arg("--config").arg(site.config()).arg("run").args(more);
        command.envs(environment.iter().copied());
        Self::launch(command)
    }

    /// Starts it without waiting, as the command of another program, such as bubblewrap.
    pub fn spawn_under(wrapper: &[&str], site: &Site, said: Stdio) -> Self {
        let plain = drover();
        let mut command = Command::new(wrapper[0]);
        command.args(&wrapper[1..]).arg(plain.get_program());
        command.arg("--config").arg(site.config()).arg("run").stdin(Stdio::null()).stderr(said);
        Self::launch(command)
    }

    /// Starts a command that runs it, as whichever user, without waiting.
    pub fn launch(mut command: Command) -> Self {
        use std::os::unix::fs::PermissionsExt;
        let notify_dir = tempfile::tempdir().unwrap();
        let path = notify_dir.path().join("notify");
        let notify = UnixDatagram::bind(&path).unwrap();
        for (path, mode) in [(notify_dir.path(), 0o755), (&*path, 0o777)] {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        }
        notify.set_read_timeout(Some(WAIT_LIMIT)).unwrap();
        command.env("NOTIFY_SOCKET", &path);
        let child = Kept(command.spawn().unwrap());
        Self { child, notify, heard: Vec::new(), _notify_dir: notify_dir }
    }

    /// Starts it and waits until it says that it is ready.
    pub fn start(site: &Site) -> Self {
        let mut service = Self::spawn(site, &[]);
        service.hear("READY=1");
        service
    }

    /// Starts it, waits until it is ready, and gives its log to read.
    pub fn start_logged(site: &Site) -> (Self, Lines) {
        let mut command = drover();
        command.arg("--config").arg(site.config()).arg("run").stderr(Stdio::piped());
        let mut service = Self::launch(command);
        let log = Lines::of("drover run", service.child.0.stderr.take().unwrap());
        service.hear("READY=1");
        (service, log)
    }

    /// Takes notifications off the socket from here on, as systemd does, and forgets them.
    pub fn drain(&self) {
        let notify = self.notify.try_clone().unwrap();
        std::thread::spawn(move || while notify.recv(&mut [0; 4096]).is_ok() {});
    }

    /// Waits for a notification that has this line, and gives all of its lines.
    pub fn hear(&mut self, line: &str) -> String {
        let mut buffer = [0; 4096];
        loop {
            let Ok(length) = self.notify.recv(&mut buffer) else {
                panic!("no `{line}` on the notify socket; heard: {:?}", self.heard);
            };
            let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
            self.heard.push(text.clone());
            if text.lines().any(|other| other == line || other.starts_with(line)) {
                return text;
            }
        }
    }
}

/// The event stream of a service.
pub struct Events {
    lines: Lines,
    _said: Lines,
    _child: Kept,
}

impl Events {
    /// Follows all that happens from now on.
    pub fn follow(site: &Site) -> Self {
        Self::follow_with(site, &[])
    }

    /// Follows with options of `drover events`.
    pub fn follow_with(site: &Site, options: &[&str]) -> Self {
        let mut command = site.command(["--json", "events"]);
        command.args(options);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = Kept(command.spawn().unwrap());
        let stdout = child.0.stdout.take().unwrap();
        let mut said = Lines::of("drover events", child.0.stderr.take().unwrap());
        said.until(|line| line.contains("following events of drover on"));
        Self { lines: Lines::of("drover events", stdout), _said: said, _child: child }
    }

    /// The first fact of any kind that `wanted` takes; it sees all before.
    pub fn all_until(&mut self, wanted: impl Fn(&Value) -> bool) {
        self.lines.until(|line| serde_json::from_str(line).is_ok_and(|fact| wanted(&fact)));
    }

    /// All facts up to the first that `wanted` takes.
    pub fn up_to(&mut self, wanted: impl Fn(&Value) -> bool) -> Vec<Value> {
        let mut facts = Vec::new();
        loop {
            let fact: Value = serde_json::from_str(&self.lines.until(|_| true)).unwrap();
            let is_last = wanted(&fact);
            facts.push(fact);
            if is_last {
                return facts;
            }
        }
    }

    /// The next fact of one of these kinds.
    pub fn next_of(&mut self, kinds: &[&str]) -> Value {
        let is = |fact: &Value| kinds.iter().any(|kind| fact["kind"] == *kind);
        let line = self.lines.until(|line| serde_json::from_str(line).is_ok_and(|fact| is(&fact)));
        serde_json::from_str(&line).unwrap()
    }

    /// The next fact of a kind that `wanted` takes.
    pub fn until(&mut self, kind: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let line = self.lines.until(|line| {
            serde_json::from_str::<Value>(line)
                .is_ok_and(|fact| fact["kind"] == kind && wanted(&fact))
        });
        serde_json::from_str(&line).unwrap()
    }

    /// Waits until so many agents went after their jobs and no runner is left; gives their ids.
    pub fn finished(&mut self, count: usize) -> Vec<String> {
        let (mut gone, mut runners) = (Vec::new(), None);
        while gone.len() < count || runners != Some(0) {
            let fact = self.next_of(&["agentGone", "source"]);
            if fact["kind"] == "source" {
                runners = fact["source"]["runners"].as_u64();
                continue;
            }
            assert_eq!(fact["agent"]["reason"], "used-up", "{fact}");
            gone.push(fact["agent"]["id"].as_str().unwrap().to_owned());
        }
        gone.sort();
        gone.dedup();
        gone
    }
}
