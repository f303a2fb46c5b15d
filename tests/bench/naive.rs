//! What a home-made script or a usual plug-in does: one task a machine, its own calls, every wait
//! a fixed pause. It keeps no journal, knows no marks, and takes an open port for a machine that
//! is ready.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write as _};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::Kept;
use crate::process::Usage;
use crate::record::Piece;
use crate::site::{Cluster, Service};

/// The first word of the arguments of a process that is this.
pub const WORD: &str = "naive";

/// Between two looks at a task or a guest.
const PAUSE: Duration = Duration::from_secs(2);

/// What it did for all machines together.
pub struct Naive {
    /// Seconds until each machine was ready, by its VMID.
    pub took: BTreeMap<u32, f64>,
    /// What it asked the cluster for.
    pub piece: Piece,
    /// What it used.
    pub used: Usage,
}

impl Naive {
    /// Plays it in a process of its own, until all machines are ready and then until they are gone.
    pub fn play(cluster: &Cluster) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.arg(WORD).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = Kept(command.spawn().unwrap());
        let mut input = child.0.stdin.take().unwrap();
        let mut output = BufReader::new(child.0.stdout.take().unwrap()).lines();
        let templates: Vec<_> = cluster.templates().collect();
        let order =
            json!({ "facts": cluster.sim.facts, "templates": templates, "agents": cluster.agents });
        writeln!(input, "{order}").unwrap();
        let line = output.next().unwrap().unwrap();
        let took: BTreeMap<u32, f64> =
            serde_json::from_str::<Vec<(u32, f64)>>(&line).unwrap().into_iter().collect();
        assert_eq!(took.len(), cluster.agents as usize, "the script's machines that are ready");
        let (used, piece) = (Usage::of(child.0.id()), cluster.record.since(0));
        writeln!(input).unwrap();
        output.next();
        Self { took, piece, used }
    }
}

/// The process itself: an order on standard input, the times on standard output; then a line to
/// destroy everything.
pub fn main() {
    let mut input = std::io::stdin().lines();
    let order: Value = serde_json::from_str(&input.next().unwrap().unwrap()).unwrap();
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build().unwrap();
    let script = Script::new(&order["facts"], PAUSE);
    let templates: Vec<(u32, String, u32)> =
        serde_json::from_value(order["templates"].clone()).unwrap();
    let agents = order["agents"].as_u64().unwrap() as usize;
    let jobs: Vec<(u32, String, u32)> = (0..agents)
        .map(|n| {
            let (_, node, source) = &templates[n % templates.len()];
            (10_000 + n as u32, node.clone(), *source)
        })
        .collect();
    let took = runtime.block_on(together(&jobs, {
        let script = script.clone();
        move |(vmid, node, source)| {
            let script = script.clone();
            async move { (vmid, script.provision(vmid, &node, source).await) }
        }
    }));
    println!("{}", json!(took));
    let _go = input.next();
    runtime.block_on(together(&jobs, move |(vmid, node, _)| {
        let script = script.clone();
        async move { script.destroy(vmid, &node).await }
    }));
    println!();
}

async fn together<T, F, W>(jobs: &[(u32, String, u32)], work: F) -> Vec<T>
where
    T: Send + 'static,
    F: Fn((u32, String, u32)) -> W,
    W: Future<Output = T> + Send + 'static,
{
    let tasks: Vec<_> = jobs.iter().map(|job| tokio::spawn(work(job.clone()))).collect();
    futures_util::future::join_all(tasks).await.into_iter().map(|done| done.unwrap()).collect()
}

#[derive(Clone)]
pub struct Script {
    client: reqwest::Client,
    base: String,
    login: String,
    /// Between two looks at a task or a guest.
    pause: Duration,
}

impl Script {
    /// One that looks after each pause.
    pub fn new(facts: &Value, pause: Duration) -> Self {
        let fact = |name: &str| facts[name].as_str().unwrap().to_owned();
        Self {
            client: crate::client(Some(&fact("caFile"))),
            base: format!("{}/api2/json", fact("url")),
            login: format!("PVEAPIToken={}={}", fact("tokenId"), fact("tokenSecret")),
            pause,
        }
    }

    /// One call; a connection that the server closed under it is tried once more, and a busy lock
    /// a little later.
    pub async fn call(
        &self,
        method: reqwest::Method,
        path: &str,
        form: &[(&str, &str)],
    ) -> Option<Value> {
        let pairs = form
            .iter()
            .map(|(key, value)| format!("{key}={}", proxmox_client::transport::encode(value)));
        let body = pairs.collect::<Vec<_>>().join("&");
        for _ in 0..2 {
            let mut request = self.client.request(method.clone(), format!("{}{path}", self.base));
            request = request.header("Authorization", &self.login);
            if method != reqwest::Method::GET && method != reqwest::Method::DELETE {
                request = request
                    .header("Content-Type", "application/x-www-form-urlencoded")
                    .header("Content-Length", body.len())
                    .body(body.clone());
            }
            let Ok(answer) = request.send().await else { continue };
            let well = answer.status().is_success();
            let Ok(text) = answer.text().await else { continue };
            let data: Value = serde_json::from_str(&text).unwrap_or_default();
            return well.then(|| data["data"].clone());
        }
        None
    }

    /// Begins a task and waits for its end; whether it ended well.
    pub async fn task(
        &self,
        method: reqwest::Method,
        node: &str,
        path: &str,
        form: &[(&str, &str)],
    ) -> bool {
        let Some(upid) = self.call(method, path, form).await else { return false };
        let upid = proxmox_client::transport::encode(upid.as_str().unwrap_or_default());
        let path = format!("/nodes/{node}/tasks/{upid}/status");
        loop {
            let status = self.call(reqwest::Method::GET, &path, &[]).await;
            if let Some(status) = status.filter(|status| status["status"] == "stopped") {
                return status["exitstatus"] == "OK";
            }
            tokio::time::sleep(self.pause).await;
        }
    }

    /// Makes a machine and waits until its SSH port is open; the seconds it took.
    pub async fn provision(&self, vmid: u32, node: &str, source: u32) -> f64 {
        let started = Instant::now();
        let (id, post) = (vmid.to_string(), reqwest::Method::POST);
        let (name, machine) = (format!("ci-{vmid}"), format!("/nodes/{node}/qemu/{vmid}"));
        let form = [("newid", id.as_str()), ("name", name.as_str()), ("full", "0")];
        while !self
            .task(post.clone(), node, &format!("/nodes/{node}/qemu/{source}/clone"), &form)
            .await
        {
            tokio::time::sleep(self.pause).await;
        }
        let keys = proxmox_client::transport::encode(&Service::key().public_line("ci"));
        let form = [("ciuser", "debian"), ("sshkeys", keys.as_str()), ("ipconfig0", "ip=dhcp")];
        let config = format!("{machine}/config");
        while self.call(reqwest::Method::PUT, &config, &form).await.is_none() {
            tokio::time::sleep(self.pause).await;
        }
        while !self.task(post.clone(), node, &format!("{machine}/status/start"), &[]).await {
            tokio::time::sleep(self.pause).await;
        }
        let ask = format!("{machine}/agent/network-get-interfaces");
        let address = loop {
            let seen = self.call(reqwest::Method::GET, &ask, &[]).await;
            if let Some(address) = seen.as_ref().and_then(address_of) {
                break address;
            }
            tokio::time::sleep(self.pause).await;
        };
        while tokio::net::TcpStream::connect((address.as_str(), 2222)).await.is_err() {
            tokio::time::sleep(self.pause).await;
        }
        started.elapsed().as_secs_f64()
    }

    /// Stops a machine and destroys it.
    pub async fn destroy(&self, vmid: u32, node: &str) {
        let machine = format!("/nodes/{node}/qemu/{vmid}");
        let stop = format!("{machine}/status/stop");
        while !self.task(reqwest::Method::POST, node, &stop, &[]).await {
            tokio::time::sleep(self.pause).await;
        }
        while !self.task(reqwest::Method::DELETE, node, &machine, &[]).await {
            tokio::time::sleep(self.pause).await;
        }
    }
}

/// Seconds for one list of all guests, over a new connection.
pub async fn time_to_list(cluster: &Cluster) -> f64 {
    let script = Script::new(&cluster.sim.facts, PAUSE);
    let started = Instant::now();
    let list = script.call(reqwest::Method::GET, "/cluster/resources?type=vm", &[]).await;
    let rows = list.as_ref().and_then(Value::as_array).map_or(0, Vec::len);
    assert!(rows > cluster.agents as usize, "{rows} guests are listed");
    started.elapsed().as_secs_f64()
}

/// The first address that is not loopback's own.
fn address_of(data: &Value) -> Option<String> {
    let interfaces = data["result"].as_array()?;
    let addresses = interfaces.iter().filter_map(|one| one["ip-addresses"].as_array()).flatten();
    let texts = addresses.filter_map(|address| address["ip-address"].as_str());
    let mut usable = texts.filter(|text| text.starts_with("127.77."));
    usable.next().map(str::to_owned)
}
