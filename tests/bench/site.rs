//! A cluster and a service for a number of agents: descriptions, processes, and the way to ask.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use serde_json::{Value, json};

use crate::api::{Api, TOKEN};
use crate::harness::{Kept, Sim, drover};
use crate::process::Usage;
use crate::record::Record;

/// Agents of one template, which has a storage of its own: more linked clones than that at once
/// would wait longer for the storage's lock than Proxmox lets them.
const PER_TEMPLATE: u32 = 10;
/// Templates on one node.
const PER_NODE: u32 = 4;

/// How many clones may run at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lanes {
    /// As many as there are.
    Wide,
    /// As configured when nothing is said.
    Default,
}

/// A simulated cluster with room for a number of agents.
pub struct Cluster {
    pub sim: Sim,
    /// What it writes down.
    pub record: Record,
    /// How many agents there is room for.
    pub agents: u32,
    dir: tempfile::TempDir,
}

impl Cluster {
    /// Starts one; without `delays` everything but the calls is nearly at once.
    pub fn start(agents: u32, delays: bool) -> Self {
        Self::start_with(agents, delays, None)
    }

    /// The same with so many workers of pveproxy and of pvedaemon on each node, 0 for no bound, in
    /// place of those that Proxmox has.
    pub fn start_with(agents: u32, delays: bool, workers: Option<u32>) -> Self {
        // Every delay that is not given has its usual length.
        Self::start_as(agents, delays.then_some("{}"), workers)
    }

    /// The same with these delays, as the simulator reads them.
    pub fn start_slow(agents: u32, delays: &str) -> Self {
        Self::start_as(agents, Some(delays), None)
    }

    fn start_as(agents: u32, delays: Option<&str>, workers: Option<u32>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (cluster, latency) = (dir.path().join("cluster.yaml"), dir.path().join("latency.yaml"));
        let mut description = describe(agents);
        if let Some(count) = workers {
            description["workers"] = json!({ "proxy": count, "daemon": count });
        }
        std::fs::write(&cluster, description.to_string()).unwrap();
        let latency = match delays {
            Some(delays) => {
                std::fs::write(&latency, delays).unwrap();
                latency.display().to_string()
            }
            None => "none".to_owned(),
        };
        let record = dir.path().join("record.jsonl");
        let (cluster, path) = (cluster.display().to_string(), record.display().to_string());
        let options = ["--cluster", &cluster, "--latency", &latency, "--record", &path];
        let sim = Sim::start_with(dir.path(), &[&["--guests", "greeter"], &options[..]].concat());
        Self { sim, record: Record::at(&record), agents, dir }
    }

    /// A folder that goes with it.
    pub fn folder(&self) -> &Path {
        self.dir.path()
    }

    /// Number, node and VMID of each template.
    pub fn templates(&self) -> impl Iterator<Item = (u32, String, u32)> {
        places(self.agents)
    }
}

fn places(agents: u32) -> impl Iterator<Item = (u32, String, u32)> {
    let count = agents.div_ceil(PER_TEMPLATE);
    (0..count).map(|n| (n, format!("pve{}", n / PER_NODE + 1), 9000 + n))
}

/// Nodes with four local storages each, a cloud-init template on every one.
fn describe(agents: u32) -> Value {
    let nodes = agents.div_ceil(PER_TEMPLATE * PER_NODE);
    let node =
        |n: u32| json!({ "name": format!("pve{n}"), "cpus": 64, "memoryBytes": 512_u64 << 30 });
    let storage = |n: u32| {
        json!({
            "name": format!("lvm{n}"), "type": "lvmthin", "content": ["images", "rootdir"],
            "nodes": [format!("pve{}", n / PER_NODE + 1)],
        })
    };
    let template = |(n, node, vmid): (u32, String, u32)| {
        let config = json!({
            "name": "debian-12", "memory": "2048", "cores": "2", "scsihw": "virtio-scsi-pci",
            "scsi0": format!("lvm{n}:base-{vmid}-disk-0,size=10G"),
            "ide2": format!("lvm{n}:vm-{vmid}-cloudinit,media=cdrom"),
            "net0": format!("virtio=BC:24:11:00:{:02X}:{:02X},bridge=vmbr0", n / 256, n % 256),
            "agent": "1", "boot": "order=scsi0;ide2;net0", "ostype": "l26", "ipconfig0": "ip=dhcp",
        });
        json!({ "vmid": vmid, "node": node, "template": true, "config": config })
    };
    json!({
        "name": "bench",
        "nodes": (1..=nodes).map(node).collect::<Vec<_>>(),
        "storages": (0..agents.div_ceil(PER_TEMPLATE)).map(storage).collect::<Vec<_>>(),
        "guests": places(agents).map(template).collect::<Vec<_>>(),
    })
}

/// A service on a cluster.
pub struct Service {
    pub child: Kept,
    site: Site,
}

/// Where a service lives.
struct Site {
    dir: tempfile::TempDir,
    api: Api,
    cluster: Value,
    lanes: Lanes,
    /// More keys of every template.
    keys: Value,
    /// Where a source of demand is, if there is one.
    source: Option<String>,
    /// The store that it shares, if there is one.
    store: Option<String>,
    templates: Vec<(u32, String, u32)>,
}

impl Service {
    /// Starts one that keeps no agents yet.
    pub fn start(cluster: &Cluster, lanes: Lanes) -> Self {
        Self::start_with(cluster, lanes, json!({}))
    }

    /// Starts one whose templates have more keys.
    pub fn start_with(cluster: &Cluster, lanes: Lanes, keys: Value) -> Self {
        let site = Site { keys, ..Site::new(cluster, lanes) };
        site.write(false);
        Self { child: site.spawn(None), site }.up()
    }

    /// Starts one that serves a Gitea, whose webhooks are signed with the token of its own API.
    pub fn start_for(cluster: &Cluster, lanes: Lanes, gitea: &str) -> Self {
        let site = Site { source: Some(gitea.to_owned()), ..Site::new(cluster, lanes) };
        site.write(false);
        Self { child: site.spawn(None), site }.up()
    }

    /// Starts the only member of a store.
    pub fn start_on(cluster: &Cluster, lanes: Lanes, store: &str) -> Self {
        let site = Site { store: Some(store.to_owned()), ..Site::new(cluster, lanes) };
        site.write(false);
        Self { child: site.spawn(None), site }.up()
    }

    /// A second member of its store, once that stands by.
    pub fn standby(&self) -> Kept {
        let dir = self.site.dir.path();
        let path = |name: &str| dir.join(name);
        let text = std::fs::read_to_string(self.site.config()).unwrap();
        let mut config: Value = serde_json::from_str(&text).unwrap();
        // Its port is its own, and so it never agrees: it stands by for as long as it is watched.
        config["service"]["listen"] = "127.0.0.1:0".into();
        std::fs::write(path("standby.yaml"), config.to_string()).unwrap();
        let mut command = drover();
        command.arg("--config").arg(path("standby.yaml")).arg("--socket").arg(path("standby.sock"));
        command.args(["run", "--member", "standby", "--state-dir"]).arg(path("standby"));
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let standby = Kept(command.spawn().unwrap());
        self.api().until("the second member is known", |api| {
            (api.get("/v1/members")?["members"].as_array()?.len() == 2).then_some(())
        });
        standby
    }

    /// The same under `strace`, which counts what it makes durable into a file.
    pub fn start_traced(cluster: &Cluster, lanes: Lanes, trace: &Path) -> Self {
        let site = Site::new(cluster, lanes);
        site.write(false);
        Self { child: site.spawn(Some(trace)), site }.up()
    }

    fn up(self) -> Self {
        self.site.api.until("the service is ready", |api| api.get("/readyz"));
        self
    }

    /// Starts it again after it was killed, and gives the moment of its start.
    pub fn again(&mut self) -> Instant {
        let started = Instant::now();
        self.child = self.site.spawn(None);
        started
    }

    /// Keeps every template's agents ready, or none, from here on.
    pub fn keep(&self, warm: bool) {
        self.site.write(warm);
        self.api().post("/v1/reload", &json!({}));
    }

    /// The way to ask it.
    pub fn api(&self) -> &Api {
        &self.site.api
    }

    /// Waits until so many agents are ready.
    pub fn until_ready(&self, agents: u32) {
        self.api().until("all agents are ready", |api| {
            let list = api.get("/v1/templates")?;
            let ready: u64 = list["templates"]
                .as_array()?
                .iter()
                .filter_map(|template| template["states"]["Ready"].as_u64())
                .sum();
            (ready == u64::from(agents)).then_some(())
        });
    }

    /// Retires everything and waits until it is gone.
    pub fn empty(&self) {
        self.keep(false);
        let all = json!({ "all": true });
        let first = self.api().post("/v1/reap", &all);
        println!("    reaped at once: {}", first["retired"]);
        self.api().until("all agents are gone", |api| {
            // Those that were not idle yet at the first are reaped as they become so.
            api.post("/v1/reap", &all);
            api.get("/v1/agents")?["agents"].as_array()?.is_empty().then_some(())
        });
    }

    /// What it uses now.
    pub fn usage(&self) -> Usage {
        Usage::of(self.child.0.id())
    }

    /// The journal's file.
    pub fn journal(&self) -> PathBuf {
        self.site.dir.path().join("state/journal.redb")
    }

    /// The key that agents are logged in to with.
    pub fn key() -> drover_ssh::PrivateKey {
        drover_ssh::PrivateKey::from_seed(&[7; 32], "drover-bench")
    }
}

impl Site {
    fn new(cluster: &Cluster, lanes: Lanes) -> Self {
        let dir = tempfile::tempdir_in(cluster.dir.path()).unwrap();
        let secret = |name: &str, text: &str| {
            use std::os::unix::fs::PermissionsExt;
            let path = dir.path().join(name);
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        };
        secret("token", cluster.sim.fact("tokenSecret"));
        secret("api", TOKEN);
        secret("cluster", &"k".repeat(40));
        let key = Service::key().to_openssh().unwrap();
        secret("key", secrecy::ExposeSecret::expose_secret(&key));
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        Self {
            api: Api::new(port),
            cluster: cluster.sim.facts.clone(),
            lanes,
            keys: json!({}),
            source: None,
            store: None,
            templates: cluster.templates().collect(),
            dir,
        }
    }

    fn config(&self) -> PathBuf {
        self.dir.path().join("drover.yaml")
    }

    fn write(&self, warm: bool) {
        let dir = self.dir.path();
        let file = |name: &str| dir.join(name).display().to_string();
        let mut cloud = json!({
            "name": "Lab", "apiUrl": self.cluster["url"], "caFile": self.cluster["caFile"],
            "startVmId": 10000,
        });
        if self.lanes == Lanes::Wide {
            cloud["clonesPerStorage"] = 1000.into();
            cloud["operationsPerNode"] = 1000.into();
            cloud["adaptLanes"] = false.into();
        }
        let agents = self.templates.iter().map(|(n, node, vmid)| {
            let minimum = if warm { PER_TEMPLATE } else { 0 };
            let template = json!({
                "cloudIds": ["lab"], "name": format!("linux{n}"), "node": node,
                "templateVmId": vmid, "labelString": format!("linux on{n}"),
                "instanceMin": minimum,
            });
            (format!("linux{n}"), template)
        });
        let mut text = json!({
            "credentials": {
                "proxmox": {
                    "kind": "proxmoxToken", "tokenId": self.cluster["tokenId"],
                    "secretFile": file("token"),
                },
                "agents": {
                    "kind": "sshKey", "username": "debian", "privateKeyFile": file("key"),
                },
            },
            "service": {
                "socket": file("drover.sock"), "stateDirectory": file("state"),
                "listen": format!("127.0.0.1:{}", self.api.port()), "logLevel": "error",
                "tokens": [{ "name": "bench", "role": "admin", "secretFile": file("api") }],
            },
            "cloudDefaults": { "credentialsId": "proxmox" },
            "cloudConfigurations": { "lab": cloud },
            "agentDefaults": {
                "cloneStrategy": "LINKED", "credentialsId": "agents", "ciUser": "debian",
                "ipConfig": "ip=dhcp", "sshPort": 2222, "guestNetworks": ["127.77.0.0/16"],
                "instanceCap": PER_TEMPLATE, "startupWaitSeconds": 120,
            },
            "agentConfigurations": agents.collect::<serde_json::Map<_, _>>(),
        });
        if let Some(store) = &self.store {
            text["service"]["store"] = store.as_str().into();
            text["service"]["clusterKey"] = json!({ "secretFile": file("cluster") });
        }
        for (key, value) in self.keys.as_object().into_iter().flatten() {
            text["agentDefaults"][key] = value.clone();
        }
        if let Some(url) = &self.source {
            text["credentials"]["git"] = json!({ "kind": "apiToken", "secretFile": file("api") });
            text["demand"] = json!({ "git": {
                "kind": "gitea", "url": url, "credentialsId": "git",
                "webhook": { "secretFile": file("api") },
            }});
        }
        let fresh = dir.join(".drover.yaml.new");
        std::fs::write(&fresh, text.to_string()).unwrap();
        std::fs::rename(fresh, self.config()).unwrap();
    }

    fn spawn(&self, trace: Option<&Path>) -> Kept {
        let mut command = drover();
        if let Some(trace) = trace {
            // The tracer is the grandchild: the process that is started here is the service.
            let mut tracer = Command::new("strace");
            tracer.args(["-D", "-f", "--seccomp-bpf", "-e", "trace=fsync,fdatasync", "-o"]);
            tracer.arg(trace).arg(command.get_program());
            for (name, value) in command.get_envs() {
                match value {
                    Some(value) => tracer.env(name, value),
                    None => tracer.env_remove(name),
                };
            }
            command = tracer;
        }
        command.arg("--config").arg(self.config()).arg("run");
        command.stdin(Stdio::null()).stdout(Stdio::null());
        Kept(command.spawn().unwrap())
    }
}
