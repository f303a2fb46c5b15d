//! From a call to its handler, and what befalls calls on the way: node down, fault, delay, the
//! 30 s of the inner hop.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::ask::Ask;
use super::state::{Kind, State};
use super::{
    Cluster, agent, appliance, backup, bulk, clone, cloudinit, config, console, content, corosync,
    create, definitions, destroy, download, drives, firewall, ha, jobs, lxc, machine, mapping,
    metrics, migrate, network, nodes, power, prune, resize, resources, rrd, sdn, services,
    snapshot, status, tasklist, template, upload,
};
use crate::api;
use crate::call::{Answer, ApiError, Call, Outcome};

/// What a front end waits for the process behind it (behaviour section 1).
const INNER_HOP: Duration = Duration::from_secs(30);
/// How long a node that is gone lets its callers wait.
const CONNECT: Duration = Duration::from_secs(3);

impl Cluster {
    /// Serves one call.
    pub(crate) async fn serve(self: &Arc<Self>, call: Call) -> Outcome {
        let node = call.node.clone();
        // The way to a node that is up was the door's; one that went down meanwhile is gone here.
        if let Some(node) = node.as_deref().filter(|node| !self.is_up(node)) {
            self.hop_to(node).await?;
        }
        let fate = {
            let mut state = self.state();
            let State { faults, dice, .. } = &mut *state;
            faults.call(call.method, call.route, node.as_deref(), dice)
        };
        if !fate.delay.is_zero() {
            tokio::time::sleep(fate.delay).await;
        }
        if let (Some((status, message)), false) = (&fate.answer, fate.done) {
            return Err(ApiError::with_status(*status, message.clone()));
        }
        let outcome = self.hurry(call, node.as_deref()).await;
        match fate.answer {
            Some((status, message)) => {
                if !fate.late.is_zero() {
                    tokio::time::sleep(fate.late).await;
                }
                Err(ApiError::with_status(status, message))
            }
            None => outcome,
        }
    }

    /// A worker of the node handles the call, and runs on when its caller has given up. What
    /// pveproxy passes on, to pvedaemon or to another node, has the limit of the inner hop.
    async fn hurry(self: &Arc<Self>, call: Call, node: Option<&str>) -> Outcome {
        let cluster = self.clone();
        let place = node.unwrap_or_default().to_owned();
        let is_passed_on = call.protected || call.handled_by != call.received_by;
        let work = tokio::spawn(async move {
            let _busy = cluster.daemons.worker(&call.handled_by, call.protected).await;
            cluster.work(&place, cluster.latency.api_call, None).await;
            dispatch(Ask::new(cluster.clone(), call)).await
        });
        let limit = if is_passed_on { INNER_HOP } else { Duration::MAX };
        match tokio::time::timeout(limit, work).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_)) => Err(ApiError::with_status(596, "Broken pipe")),
            Err(_) => Err(ApiError::with_status(596, "Connection timed out")),
        }
    }

    fn is_up(&self, node: &str) -> bool {
        self.state().nodes.get(node).is_some_and(|node| node.up)
    }

    /// The way to a node: its delay, and 595 when the node is gone.
    pub(crate) async fn hop_to(&self, node: &str) -> Result<(), ApiError> {
        let up = match self.state().nodes.get(node) {
            Some(node) => node.up,
            None => {
                return Err(ApiError::failed(format!(
                    "hostname lookup '{node}' failed - failed to get address info for: {node}: \
                     Name or service not known"
                )));
            }
        };
        if up {
            self.work(node, self.latency.hop, None).await;
            return Ok(());
        }
        tokio::time::sleep(CONNECT).await;
        Err(ApiError::with_status(595, "No route to host"))
    }
}

/// Lists that a cluster without such things leaves empty.
const EMPTY: &[&str] = &["/cluster/replication", "/nodes/{node}/replication"];

async fn dispatch(ask: Ask) -> Outcome {
    let route = ask.call.route;
    if let Some((_, rest)) = route.split_once("/firewall/") {
        return firewall::serve(&ask, rest).unwrap_or_else(|| Err(unknown(&ask)));
    }
    if let Some(rest) = route.strip_prefix("/nodes/{node}/qemu/{vmid}/") {
        return guest(ask, rest).await;
    }
    if let Some(rest) = route.strip_prefix("/nodes/{node}/lxc") {
        return lxc::serve(&ask, rest).await.unwrap_or_else(|| Err(unknown(&ask)));
    }
    if let Some(rest) = route.strip_prefix("/cluster/ha/") {
        return ha::serve(&ask, rest).unwrap_or_else(|| Err(unknown(&ask)));
    }
    if let Some(rest) = route.strip_prefix("/cluster/sdn") {
        return sdn::serve(&ask, rest).unwrap_or_else(|| Err(unknown(&ask)));
    }
    if let Some(rest) = route.strip_prefix("/cluster/mapping") {
        return mapping::serve(&ask, rest).unwrap_or_else(|| Err(unknown(&ask)));
    }
    if let Some(rest) = route.strip_prefix("/nodes/{node}/storage/{storage}/") {
        return storage(ask, rest).await;
    }
    match (ask.call.method, route) {
        ("GET", "/cluster/resources") => resources::list(&ask),
        ("GET", "/cluster/status") => resources::status(&ask),
        ("GET", "/cluster/log") => machine::log(&ask),
        ("GET", "/cluster/tasks") => tasklist::cluster(&ask),
        ("GET", "/cluster/nextid") => resources::next_id(&ask),
        ("GET", "/cluster/options") => resources::options(&ask),
        ("POST", "/cluster/bulk-action/guest/start") => bulk::run(&ask, bulk::Way::Up),
        ("POST", "/cluster/bulk-action/guest/shutdown") => bulk::run(&ask, bulk::Way::Down),
        ("GET", "/nodes") => nodes::list(&ask),
        ("GET", "/nodes/{node}/status") => nodes::status(&ask),
        ("GET", "/nodes/{node}/version") => nodes::version(&ask),
        ("GET", "/nodes/{node}/time") => nodes::time(&ask),
        ("GET", "/nodes/{node}/network") => network::list(&ask),
        ("POST", "/nodes/{node}/network") => network::create(&ask),
        ("PUT", "/nodes/{node}/network") => network::reload(&ask),
        ("DELETE", "/nodes/{node}/network") => network::revert(&ask),
        ("GET", "/nodes/{node}/network/{iface}") => network::one(&ask),
        ("PUT", "/nodes/{node}/network/{iface}") => network::change(&ask),
        ("DELETE", "/nodes/{node}/network/{iface}") => network::remove(&ask),
        ("GET", "/nodes/{node}/services") => services::list(&ask),
        ("GET", "/nodes/{node}/services/{service}/state") => services::state(&ask),
        ("GET", "/nodes/{node}/capabilities/qemu/cpu") => services::processors(),
        ("GET", "/nodes/{node}/capabilities/qemu/machines") => services::machines(&ask),
        ("GET", "/cluster/config/join") => corosync::join(&ask),
        ("GET", "/cluster/config/nodes") => corosync::nodes(&ask),
        ("GET", "/cluster/config/qdevice") => corosync::qdevice(),
        ("GET", "/cluster/config/totem") => corosync::totem(&ask),
        ("GET", "/cluster/backup") => jobs::list(&ask),
        ("POST", "/cluster/backup") => jobs::create(&ask),
        ("GET", "/cluster/backup/{id}") => jobs::one(&ask),
        ("PUT", "/cluster/backup/{id}") => jobs::change(&ask),
        ("DELETE", "/cluster/backup/{id}") => jobs::remove(&ask),
        ("GET", "/cluster/metrics/server") => metrics::list(&ask),
        ("GET", "/cluster/metrics/server/{id}") => metrics::one(&ask),
        ("POST", "/cluster/metrics/server/{id}") => metrics::create(&ask),
        ("PUT", "/cluster/metrics/server/{id}") => metrics::change(&ask),
        ("DELETE", "/cluster/metrics/server/{id}") => metrics::remove(&ask),
        ("GET", "/cluster/replication/{id}") => services::replication(&ask),
        ("GET", "/cluster/backup-info/not-backed-up") => backup::not_backed_up(&ask),
        ("POST", "/nodes/{node}/vzdump") => backup::dump(&ask),
        ("GET", "/nodes/{node}/vzdump/extractconfig") => backup::extract(&ask),
        ("GET", "/nodes/{node}/rrddata") => rrd::node(&ask),
        ("GET", "/nodes/{node}/hardware/pci") => machine::pci(),
        ("GET", "/nodes/{node}/subscription") => machine::subscription(&ask),
        ("GET", "/nodes/{node}/syslog") => machine::syslog(),
        ("GET", "/nodes/{node}/dns") => machine::dns(),
        ("GET", "/nodes/{node}/config") => machine::config(),
        ("GET", "/nodes/{node}/aplinfo") => appliance::list(),
        ("POST", "/nodes/{node}/aplinfo") => appliance::fetch(&ask),
        ("GET", "/nodes/{node}/query-url-metadata") => download::metadata(&ask),
        ("GET", "/nodes/{node}/sdn/zones") => sdn::zones_of_node(&ask),
        ("GET", "/nodes/{node}/sdn/zones/{zone}/content") => sdn::content(&ask),
        ("GET", "/nodes/{node}/certificates/info") => nodes::certificates(&ask),
        ("GET", "/nodes/{node}/tasks") => tasklist::list(&ask),
        ("GET", "/nodes/{node}/tasks/{upid}/log") => tasklist::log(&ask),
        ("GET", "/nodes/{node}/tasks/{upid}/status") => tasklist::status(&ask),
        ("DELETE", "/nodes/{node}/tasks/{upid}") => tasklist::stop(&ask).await,
        ("GET", "/nodes/{node}/qemu") => status::list(&ask),
        ("POST", "/nodes/{node}/qemu") => create::create(&ask).await,
        ("DELETE", "/nodes/{node}/qemu/{vmid}") => destroy::destroy(&ask),
        ("GET", "/storage") => definitions::list(&ask),
        ("POST", "/storage") => definitions::create(&ask),
        ("GET", "/storage/{storage}") => definitions::one(&ask),
        ("PUT", "/storage/{storage}") => definitions::change(&ask),
        ("DELETE", "/storage/{storage}") => definitions::remove(&ask),
        ("GET", "/nodes/{node}/storage") => content::storages(&ask),
        ("GET", route) if EMPTY.contains(&route) => Ok(Answer::new(json!([]))),
        _ => Err(unknown(&ask)),
    }
}

async fn storage(ask: Ask, rest: &str) -> Outcome {
    match (ask.call.method, rest) {
        ("GET", "status") => content::status(&ask),
        ("GET", "content") => content::list(&ask),
        ("POST", "content") => content::allocate(&ask).await,
        ("GET", "content/{volume}") => content::volume(&ask),
        ("DELETE", "content/{volume}") => content::delete(&ask).await,
        ("POST", "upload") => upload::upload(&ask),
        ("POST", "download-url") => download::from_url(&ask),
        ("GET", "prunebackups") => prune::show(&ask),
        ("DELETE", "prunebackups") => prune::prune(&ask),
        ("GET", "rrddata") => rrd::storage(&ask),
        _ => Err(unknown(&ask)),
    }
}

async fn guest(ask: Ask, rest: &str) -> Outcome {
    match (ask.call.method, rest) {
        ("GET", "config") => config::read(&ask),
        ("PUT", "config") => config::put(&ask).await,
        ("POST", "config") => config::post(&ask).await,
        ("GET", "pending") => config::pending(&ask),
        ("GET", "status/current") => status::current(&ask),
        ("POST", "status/start") => power::start(&ask),
        ("POST", "status/stop") => power::stop(&ask),
        ("POST", "status/shutdown") => power::shutdown(&ask),
        ("POST", "status/reboot") => power::reboot(&ask),
        ("POST", "status/reset") => power::reset(&ask),
        ("POST", "status/suspend") => power::suspend(&ask),
        ("POST", "status/resume") => power::resume(&ask),
        ("POST", "clone") => clone::clone(&ask),
        ("GET", "migrate") => migrate::preconditions(&ask),
        ("POST", "migrate") => migrate::migrate(&ask),
        ("POST", "monitor") => machine::monitor(&ask),
        ("PUT", "sendkey") => machine::sendkey(&ask),
        ("GET", "rrddata") => rrd::guest(&ask),
        ("POST", "template") => template::template(&ask),
        ("PUT", "resize") => resize::resize(&ask),
        ("PUT", "unlink") => drives::unlink(&ask).await,
        ("POST", "move_disk") => drives::move_disk(&ask),
        ("GET", "feature") => drives::feature(&ask),
        ("GET", "snapshot") => snapshot::list(&ask),
        ("POST", "snapshot") => snapshot::create(&ask),
        ("DELETE", "snapshot/{snapname}") => snapshot::delete(&ask),
        ("GET", "snapshot/{snapname}/config") => snapshot::read(&ask),
        ("PUT", "snapshot/{snapname}/config") => snapshot::write(&ask).await,
        ("POST", "snapshot/{snapname}/rollback") => snapshot::rollback(&ask),
        ("GET", "cloudinit") => cloudinit::pending(&ask),
        ("PUT", "cloudinit") => cloudinit::rebuild(&ask).await,
        ("POST", "vncproxy") => console::proxy(&ask, Kind::Vm),
        ("GET", "cloudinit/dump") => cloudinit::dump(&ask),
        ("POST", "agent") => agent::serve(&ask, rest).await,
        (_, rest) if rest.starts_with("agent/") => agent::serve(&ask, rest).await,
        _ => Err(unknown(&ask)),
    }
}

fn unknown(ask: &Ask) -> ApiError {
    let mut path = ask.call.route.to_owned();
    for name in ask.params().0.keys() {
        if let Some(value) = ask.text(name) {
            path = path.replace(&format!("{{{name}}}"), &value);
        }
    }
    api::not_served(ask.call.method, &path, ask.cluster.version)
}
