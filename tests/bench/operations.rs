//! Seven operations on machines, as a load generator drives them: through drover, through a home-made
//! script, and as somebody else published them.
//!
//! - A few machines are worked on at once, each by one operation after another. An operation begins with
//!   the request and ends when the one who asked knows that it is done.
//! - The script calls Proxmox itself, and looks at each task once a second.
//! - The published figures are those of VirtRigaud's guide to its Proxmox provider, "Load Test Results":
//!   `virtrigaud-loadgen` against a fake Proxmox of its own. The delays of the simulator are set so that
//!   the cluster's own part of an operation lies near them. Its shutdown looks at the guest once a second,
//!   as that of Proxmox does.
//! - drover asks a guest whose boot time it does not know for its address after four seconds, and a guest
//!   here is up sooner: its `create` is never faster than that. The row of phases shows it.
//! - Real time, and unscaled: a second of the simulator is a second.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::api::Api;
use crate::figure::{Figure, Report, percentile};
use crate::naive::Script;
use crate::site::{Cluster, Lanes, Service};

/// Machines that are worked on at once.
const AT_ONCE: u32 = 6;
/// Operations of a kind on each of them.
const ROUNDS: u32 = 3;
/// Room of the cluster: each machine at once has a template and a storage of its own.
const AGENTS: u32 = AT_ONCE * 10;
/// Between two looks of the script.
const LOOK: Duration = Duration::from_secs(1);

/// A machine of the script, the first of each worker.
const FIRST_VMID: u32 = 20_000;

/// What is published of an operation: seconds at p50 and p95, and how many a minute.
struct Published {
    name: &'static str,
    p50: f64,
    p95: f64,
    a_minute: f64,
}

const fn published(name: &'static str, p50: f64, p95: f64, a_minute: f64) -> Published {
    Published { name, p50, p95, a_minute }
}

const CREATE: Published = published("create", 2.3, 4.1, 12.0);
const POWER_ON: Published = published("power-on", 0.8, 1.2, 45.0);
const POWER_OFF: Published = published("power-off", 0.65, 1.1, 50.0);
const DESCRIBE: Published = published("describe", 0.12, 0.2, 200.0);
const RECONFIGURE: Published = published("reconfigure-cpu", 1.8, 3.2, 15.0);
const SNAPSHOT: Published = published("snapshot-memory", 3.5, 6.8, 8.0);
const CLONE: Published = published("clone-linked", 1.9, 3.4, 12.0);

/// Delays that all clusters here have; ranges of seconds.
const USUAL: &str = "apiCall: {low: 0.02, high: 0.06}\nhop: {low: 0.005, high: 0.02}\n\
    allocate: {low: 0.05, high: 0.1}\nfree: {low: 0.05, high: 0.1}\n\
    stop: {low: 0.1, high: 0.3}\ndestroy: {low: 0.1, high: 0.2}\nsnapshot: {low: 0.05, high: 0.1}\n";
/// Those for making machines.
const MAKING: &str = "config: {low: 0.02, high: 0.08}\ncloneLinked: {low: 0.2, high: 1.0}\n\
    start: {low: 0.3, high: 0.9}\nguestBoot: {low: 0.2, high: 1.4}\n";
/// Those for clones alone.
const CLONING: &str = "config: {low: 0.02, high: 0.08}\ncloneLinked: {low: 0.1, high: 3.4}\n\
    start: {low: 0.1, high: 0.2}\nguestBoot: {low: 0.05, high: 0.1}\n";
/// Those for what is done with machines.
const WORKING: &str = "config: {low: 0.2, high: 3.3}\ncloneLinked: {low: 0.1, high: 0.2}\n\
    start: {low: 0.3, high: 1.2}\nguestBoot: {low: 0.05, high: 0.1}\n\
    guestShutdown: {low: 0.1, high: 1.1}\nmemoryBytesPerSecond: {low: 290e6, high: 950e6}\n";

/// The seconds of each operation of a kind.
type Seconds = Vec<f64>;

/// Measures all of them, and prints the table.
pub fn report(report: &mut Report) {
    let on = |delays: &str| Cluster::start_slow(AGENTS, &format!("{USUAL}{delays}"));
    let mut rows: Vec<(Published, Seconds, Seconds)> = Vec::new();
    let made = drover_makes(&on(MAKING));
    let ready = made.iter().map(|made| made.ready).collect();
    rows.push((CREATE, ready, script_makes(&on(MAKING))));
    let worked = drover_works(&on(WORKING));
    let by_hand = script_works(&on(WORKING));
    let kinds = [POWER_OFF, POWER_ON, DESCRIBE, RECONFIGURE, SNAPSHOT];
    rows.extend(
        kinds.into_iter().zip(worked).zip(by_hand).map(|((of, ours), script)| (of, ours, script)),
    );
    let cloned = drover_makes(&on(CLONING)).iter().map(Made::cloned).collect();
    rows.push((CLONE, cloned, script_clones(&on(CLONING))));
    print_table(&rows);
    print_phases(&made);
    for (of, ours, script) in rows {
        for (word, share) in [("p50", 0.5), ("p95", 0.95)] {
            let name = format!("operations.{}.{word}", of.name);
            let figure = Figure::alone(name, percentile(&ours, share), "s");
            report.add(figure.against("the script", percentile(&script, share)));
        }
    }
}

fn print_table(rows: &[(Published, Seconds, Seconds)]) {
    println!(
        "    {AT_ONCE} machines at once; seconds at p50 and p95, operations a minute; published: \
         VirtRigaud's guide to its Proxmox provider"
    );
    println!(
        "    {:<16}{:>24}{:>24}{:>24}{:>18}",
        "", "drover", "script", "published", "drover p50 of"
    );
    let three = |p50: f64, p95: f64, each: f64| format!("{p50:>8.2}{p95:>8.2}{each:>8.0}");
    for (of, ours, script) in rows {
        let of_sample = |sample: &[f64]| {
            let mean = sample.iter().sum::<f64>() / sample.len() as f64;
            let a_minute = 60.0 * f64::from(AT_ONCE) / mean;
            three(percentile(sample, 0.5), percentile(sample, 0.95), a_minute)
        };
        let ours_p50 = percentile(ours, 0.5);
        println!(
            "    {:<16}{}{}{}{:>9.2}{:>9.2}",
            of.name,
            of_sample(ours),
            of_sample(script),
            three(of.p50, of.p95, of.a_minute),
            ours_p50 / percentile(script, 0.5),
            ours_p50 / of.p50,
        );
    }
    println!("    the last two columns: the script's p50, and the published one");
}

/// One worker a machine, each on a thread of its own.
fn together<T: Send>(work: impl Fn(u32) -> Vec<T> + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let work = &work;
        let workers: Vec<_> = (0..AT_ONCE).map(|n| scope.spawn(move || work(n))).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    })
}

/// What drover took to make a machine: until the lease was ready, and in each phase of its agent.
struct Made {
    ready: f64,
    phases: Vec<(String, f64)>,
}

impl Made {
    /// Until its clone was there, with the wait for a place.
    fn cloned(&self) -> f64 {
        let phases = self.phases.iter();
        phases.filter(|(name, _)| name == "Queued" || name == "Cloning").map(|(_, took)| took).sum()
    }
}

/// Where the time of drover's `create` goes.
fn print_phases(made: &[Made]) {
    let names: Vec<&String> = made[0].phases.iter().map(|(name, _)| name).collect();
    let each = names.into_iter().map(|name| {
        let took = made.iter().flat_map(|made| &made.phases);
        let took: Vec<f64> = took.filter(|(of, _)| of == name).map(|(_, took)| *took).collect();
        format!("{name} {:.2}", percentile(&took, 0.5))
    });
    let each: Vec<String> = each.collect();
    println!("    create through drover, seconds of each phase at p50: {}", each.join(", "));
}

fn service(cluster: &Cluster) -> Service {
    Service::start_with(cluster, Lanes::Default, json!({ "singleUse": true }))
}

/// A ready lease on a machine of a worker's own template.
fn lease(api: &Api, worker: u32) -> Value {
    let labels = json!(["linux", format!("on{worker}")]);
    let body = json!({ "labels": labels, "ttlSeconds": 3600 });
    let mut lease = api.post("/v1/leases", &body);
    let path = format!("/v1/leases/{}?waitSeconds=60", lease["id"].as_str().unwrap());
    while lease["state"] != "ready" {
        assert_ne!(lease["state"], "ended", "{lease}");
        lease = api.get(&path).unwrap();
    }
    lease
}

fn drover_makes(cluster: &Cluster) -> Vec<Made> {
    let service = service(cluster);
    let port = service.api().port();
    together(|worker| {
        let api = Api::new(port);
        let one = |_| {
            let started = Instant::now();
            let lease = lease(&api, worker);
            let ready = started.elapsed().as_secs_f64();
            let agent = api.get(&format!("/v1/agents/{}", lease["agent"].as_str().unwrap()));
            let agent = agent.unwrap();
            let phases = agent["phases"].as_array().unwrap().iter().map(|phase| {
                let took = Duration::from_millis(phase["ms"].as_u64().unwrap()).as_secs_f64();
                (phase["state"].as_str().unwrap().to_owned(), took)
            });
            let phases = phases.collect();
            api.delete(&format!("/v1/leases/{}", lease["id"].as_str().unwrap()));
            Made { ready, phases }
        };
        (0..ROUNDS).map(one).collect()
    })
}

/// Shutdown, start, look, other cores, a snapshot with memory: through drover's orders.
fn drover_works(cluster: &Cluster) -> [Seconds; 5] {
    let service = service(cluster);
    let port = service.api().port();
    by_kind(together(|worker| {
        let api = Api::new(port);
        let lease = lease(&api, worker);
        let agent = lease["agent"].as_str().unwrap();
        let timed = |work: &dyn Fn()| {
            let started = Instant::now();
            work();
            started.elapsed().as_secs_f64()
        };
        let order = |rest: &str, body: Value| {
            let mut order = api.post(&format!("/v1/agents/{agent}/{rest}"), &body);
            let id = order["id"].as_str().unwrap().to_owned();
            while order["state"] == "running" {
                let path = format!("/v1/agents/{agent}/orders/{id}?waitSeconds=60");
                order = api.get(&path).unwrap();
            }
            assert_eq!(order["state"], "done", "{order}");
        };
        let round = |n: u32| {
            [
                timed(&|| order("power", json!({ "action": "shutdown" }))),
                timed(&|| order("power", json!({ "action": "start" }))),
                timed(&|| drop(api.get(&format!("/v1/agents/{agent}/machine")).unwrap())),
                timed(&|| order("reconfigure", json!({ "cores": cores(n) }))),
                timed(&|| order("snapshots", json!({ "name": format!("s{n}"), "memory": true }))),
            ]
        };
        (0..ROUNDS).map(round).collect()
    }))
}

/// Another number in each round.
fn cores(round: u32) -> u32 {
    3 + round % 2
}

/// The seconds of each kind, of rounds that have all kinds.
fn by_kind(rounds: Vec<[f64; 5]>) -> [Seconds; 5] {
    std::array::from_fn(|kind| rounds.iter().map(|round| round[kind]).collect())
}

/// Runs the script's work on a machine: its VMID, its node and its template's VMID.
fn script<T: Send>(
    cluster: &Cluster,
    work: impl AsyncFn(&Script, u32, &str, u32) -> Vec<T> + Sync,
) -> Vec<T> {
    let templates: Vec<_> = cluster.templates().collect();
    together(|worker| {
        let (_, node, source) = &templates[worker as usize];
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let script = Script::new(&cluster.sim.facts, LOOK);
        runtime.block_on(work(&script, FIRST_VMID + worker, node, *source))
    })
}

fn script_makes(cluster: &Cluster) -> Seconds {
    script(cluster, async |script, vmid, node, source| {
        let mut all = Vec::new();
        for _ in 0..ROUNDS {
            all.push(script.provision(vmid, node, source).await);
            script.destroy(vmid, node).await;
        }
        all
    })
}

fn script_clones(cluster: &Cluster) -> Seconds {
    script(cluster, async |script, vmid, node, source| {
        let mut all = Vec::new();
        for round in 0..ROUNDS {
            let id = (vmid + round * 100).to_string();
            let path = format!("/nodes/{node}/qemu/{source}/clone");
            let started = Instant::now();
            let form = [("newid", id.as_str()), ("full", "0")];
            assert!(script.task(reqwest::Method::POST, node, &path, &form).await, "no clone");
            all.push(started.elapsed().as_secs_f64());
        }
        all
    })
}

fn script_works(cluster: &Cluster) -> [Seconds; 5] {
    by_kind(script(cluster, async |script, vmid, node, source| {
        script.provision(vmid, node, source).await;
        let machine = format!("/nodes/{node}/qemu/{vmid}");
        let post = reqwest::Method::POST;
        let begin = async |rest: &str, form: &[(&str, &str)]| {
            let started = Instant::now();
            let well = script.task(post.clone(), node, &format!("{machine}/{rest}"), form).await;
            assert!(well, "{rest} of {vmid}");
            started.elapsed().as_secs_f64()
        };
        let mut all = Vec::new();
        for round in 0..ROUNDS {
            let off = begin("status/shutdown", &[]).await;
            let on = begin("status/start", &[]).await;
            let started = Instant::now();
            for rest in ["status/current", "config", "agent/network-get-interfaces"] {
                let path = format!("{machine}/{rest}");
                // A guest that boots still may not answer; the script takes that too.
                script.call(reqwest::Method::GET, &path, &[]).await;
            }
            let look = started.elapsed().as_secs_f64();
            let count = cores(round).to_string();
            let resize = begin("config", &[("cores", &count)]).await;
            let name = format!("s{round}");
            let snapshot = begin("snapshot", &[("snapname", &name), ("vmstate", "1")]).await;
            all.push([off, on, look, resize, snapshot]);
        }
        all
    }))
}
