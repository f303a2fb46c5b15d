//! Dispatch: from a call to its handler.
//!
//! On the way a call can meet a node that is down, an injected fault or delay, a busy daemon, and
//! the 30 s limit of calls that pveproxy forwards.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::context::CallContext;
use super::state::{GuestType, State};
use super::{
    Cluster, agent, appliances, backup, backup_jobs, bulk, clone, cloudinit, config_routes,
    console, corosync, create, destroy, download, drives, firewall, ha, lxc, mapping,
    metric_servers, migrate, network, node_info, nodes, power, prune, resize, resources, rrd, sdn,
    services, snapshot, status, storage_content, storage_definitions, task_routes, template,
    upload,
};
use crate::api;
use crate::call::{Answer, ApiError, Call, Outcome};

/// How long pveproxy waits for a forwarded call (book: proxmox, section 1).
const FORWARD_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a call to a dead node takes to fail.
const DEAD_NODE_DELAY: Duration = Duration::from_secs(3);

impl Cluster {
    /// Serves one call.
    pub(crate) async fn serve(self: &Arc<Self>, call: Call) -> Outcome {
        let node = call.node.clone();
        // The API front end has checked the node; this catches a node that has gone down since.
        if let Some(node) = node.as_deref().filter(|node| !self.is_up(node)) {
            self.hop_to(node).await?;
        }
        let injected = {
            let mut state = self.state();
            let State { faults, random, .. } = &mut *state;
            faults.inject_call_fault(call.method, call.route, node.as_deref(), random)
        };
        if !injected.delay.is_zero() {
            tokio::time::sleep(injected.delay).await;
        }
        if let (Some((status, message)), false) = (&injected.answer, injected.done) {
            return Err(ApiError::with_status(*status, message.clone()));
        }
        let outcome = self.handle(call, node.as_deref()).await;
        match injected.answer {
            Some((status, message)) => {
                if !injected.late.is_zero() {
                    tokio::time::sleep(injected.late).await;
                }
                Err(ApiError::with_status(status, message))
            }
            None => outcome,
        }
    }

    /// Runs the handler on a worker of the node; it runs on after the caller gives up. Calls that
    /// pveproxy forwards, to pvedaemon or to another node, have a time limit.
    async fn handle(self: &Arc<Self>, call: Call, node: Option<&str>) -> Outcome {
        let cluster = self.clone();
        let place = node.unwrap_or_default().to_owned();
        let is_passed_on = call.protected || call.handled_by != call.received_by;
        let work = tokio::spawn(async move {
            let _worker = cluster.daemons.acquire_worker(&call.handled_by, call.protected).await;
            cluster.simulate_work(&place, cluster.latency.api_call, None).await;
            dispatch(CallContext::new(cluster.clone(), call)).await
        });
        let limit = if is_passed_on { FORWARD_TIMEOUT } else { Duration::MAX };
        match tokio::time::timeout(limit, work).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_)) => Err(ApiError::with_status(596, "Broken pipe")),
            Err(_) => Err(ApiError::with_status(596, "Connection timed out")),
        }
    }

    fn is_up(&self, node: &str) -> bool {
        self.state().nodes.get(node).is_some_and(|node| node.up)
    }

    /// Waits for the hop to a node.
    ///
    /// # Errors
    /// 595 after a delay if the node is down; 500 if there is no such node.
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
            self.simulate_work(node, self.latency.hop, None).await;
            return Ok(());
        }
        tokio::time::sleep(DEAD_NODE_DELAY).await;
        Err(ApiError::with_status(595, "No route to host"))
    }
}

/// Lists that are always empty.
const EMPTY_LISTS: &[&str] = &["/cluster/replication", "/nodes/{node}/replication"];

async fn dispatch(ctx: CallContext) -> Outcome {
    let route = ctx.call.route;
    if let Some((_, rest)) = route.split_once("/firewall/") {
        return firewall::serve(&ctx, rest).unwrap_or_else(|| Err(not_served(&ctx)));
    }
    if let Some(rest) = route.strip_prefix("/nodes/{node}/qemu/{vmid}/") {
        return guest(ctx, rest).await;
    }
    if let Some(rest) = route.strip_prefix("/nodes/{node}/lxc") {
        return lxc::serve(&ctx, rest).await.unwrap_or_else(|| Err(not_served(&ctx)));
    }
    if let Some(rest) = route.strip_prefix("/cluster/ha/") {
        return ha::serve(&ctx, rest).unwrap_or_else(|| Err(not_served(&ctx)));
    }
    if let Some(rest) = route.strip_prefix("/cluster/sdn") {
        return sdn::serve(&ctx, rest).unwrap_or_else(|| Err(not_served(&ctx)));
    }
    if let Some(rest) = route.strip_prefix("/cluster/mapping") {
        return mapping::serve(&ctx, rest).unwrap_or_else(|| Err(not_served(&ctx)));
    }
    if let Some(rest) = route.strip_prefix("/nodes/{node}/storage/{storage}/") {
        return storage(ctx, rest).await;
    }
    match (ctx.call.method, route) {
        ("GET", "/cluster/resources") => resources::list(&ctx),
        ("GET", "/cluster/status") => resources::status(&ctx),
        ("GET", "/cluster/log") => node_info::log(&ctx),
        ("GET", "/cluster/tasks") => task_routes::cluster(&ctx),
        ("GET", "/cluster/nextid") => resources::next_id(&ctx),
        ("GET", "/cluster/options") => resources::options(&ctx),
        ("POST", "/cluster/bulk-action/guest/start") => bulk::run(&ctx, bulk::BulkAction::Start),
        ("POST", "/cluster/bulk-action/guest/shutdown") => {
            bulk::run(&ctx, bulk::BulkAction::Shutdown)
        }
        ("GET", "/nodes") => nodes::list(&ctx),
        ("GET", "/nodes/{node}/status") => nodes::status(&ctx),
        ("GET", "/nodes/{node}/version") => nodes::version(&ctx),
        ("GET", "/nodes/{node}/time") => nodes::time(&ctx),
        ("GET", "/nodes/{node}/network") => network::list(&ctx),
        ("POST", "/nodes/{node}/network") => network::create(&ctx),
        ("PUT", "/nodes/{node}/network") => network::reload(&ctx),
        ("DELETE", "/nodes/{node}/network") => network::revert(&ctx),
        ("GET", "/nodes/{node}/network/{iface}") => network::get(&ctx),
        ("PUT", "/nodes/{node}/network/{iface}") => network::change(&ctx),
        ("DELETE", "/nodes/{node}/network/{iface}") => network::remove(&ctx),
        ("GET", "/nodes/{node}/services") => services::list(&ctx),
        ("GET", "/nodes/{node}/services/{service}/state") => services::state(&ctx),
        ("GET", "/nodes/{node}/capabilities/qemu/cpu") => services::processors(),
        ("GET", "/nodes/{node}/capabilities/qemu/machines") => services::machines(&ctx),
        ("GET", "/cluster/config/join") => corosync::join(&ctx),
        ("GET", "/cluster/config/nodes") => corosync::nodes(&ctx),
        ("GET", "/cluster/config/qdevice") => corosync::qdevice(),
        ("GET", "/cluster/config/totem") => corosync::totem(&ctx),
        ("GET", "/cluster/backup") => backup_jobs::list(&ctx),
        ("POST", "/cluster/backup") => backup_jobs::create(&ctx),
        ("GET", "/cluster/backup/{id}") => backup_jobs::get(&ctx),
        ("PUT", "/cluster/backup/{id}") => backup_jobs::change(&ctx),
        ("DELETE", "/cluster/backup/{id}") => backup_jobs::remove(&ctx),
        ("GET", "/cluster/metrics/server") => metric_servers::list(&ctx),
        ("GET", "/cluster/metrics/server/{id}") => metric_servers::get(&ctx),
        ("POST", "/cluster/metrics/server/{id}") => metric_servers::create(&ctx),
        ("PUT", "/cluster/metrics/server/{id}") => metric_servers::change(&ctx),
        ("DELETE", "/cluster/metrics/server/{id}") => metric_servers::remove(&ctx),
        ("GET", "/cluster/replication/{id}") => services::replication(&ctx),
        ("GET", "/cluster/backup-info/not-backed-up") => backup::not_backed_up(&ctx),
        ("POST", "/nodes/{node}/vzdump") => backup::start(&ctx),
        ("GET", "/nodes/{node}/vzdump/extractconfig") => backup::extract_config(&ctx),
        ("GET", "/nodes/{node}/rrddata") => rrd::node(&ctx),
        ("GET", "/nodes/{node}/hardware/pci") => node_info::pci(),
        ("GET", "/nodes/{node}/subscription") => node_info::subscription(&ctx),
        ("GET", "/nodes/{node}/syslog") => node_info::syslog(),
        ("GET", "/nodes/{node}/dns") => node_info::dns(),
        ("GET", "/nodes/{node}/config") => node_info::config(),
        ("GET", "/nodes/{node}/aplinfo") => appliances::list(),
        ("POST", "/nodes/{node}/aplinfo") => appliances::fetch(&ctx),
        ("GET", "/nodes/{node}/query-url-metadata") => download::metadata(&ctx),
        ("GET", "/nodes/{node}/sdn/zones") => sdn::zones_of_node(&ctx),
        ("GET", "/nodes/{node}/sdn/zones/{zone}/content") => sdn::content(&ctx),
        ("GET", "/nodes/{node}/certificates/info") => nodes::certificates(&ctx),
        ("GET", "/nodes/{node}/tasks") => task_routes::list(&ctx),
        ("GET", "/nodes/{node}/tasks/{upid}/log") => task_routes::log(&ctx),
        ("GET", "/nodes/{node}/tasks/{upid}/status") => task_routes::status(&ctx),
        ("DELETE", "/nodes/{node}/tasks/{upid}") => task_routes::stop(&ctx).await,
        ("GET", "/nodes/{node}/qemu") => status::list(&ctx),
        ("POST", "/nodes/{node}/qemu") => create::create(&ctx).await,
        ("DELETE", "/nodes/{node}/qemu/{vmid}") => destroy::destroy(&ctx),
        ("GET", "/storage") => storage_definitions::list(&ctx),
        ("POST", "/storage") => storage_definitions::create(&ctx),
        ("GET", "/storage/{storage}") => storage_definitions::get(&ctx),
        ("PUT", "/storage/{storage}") => storage_definitions::change(&ctx),
        ("DELETE", "/storage/{storage}") => storage_definitions::remove(&ctx),
        ("GET", "/nodes/{node}/storage") => storage_content::storages(&ctx),
        ("GET", route) if EMPTY_LISTS.contains(&route) => Ok(Answer::new(json!([]))),
        _ => Err(not_served(&ctx)),
    }
}

async fn storage(ctx: CallContext, rest: &str) -> Outcome {
    match (ctx.call.method, rest) {
        ("GET", "status") => storage_content::status(&ctx),
        ("GET", "content") => storage_content::list(&ctx),
        ("POST", "content") => storage_content::allocate(&ctx).await,
        ("GET", "content/{volume}") => storage_content::volume(&ctx),
        ("DELETE", "content/{volume}") => storage_content::delete(&ctx).await,
        ("POST", "upload") => upload::upload(&ctx),
        ("POST", "download-url") => download::from_url(&ctx),
        ("GET", "prunebackups") => prune::show(&ctx),
        ("DELETE", "prunebackups") => prune::prune(&ctx),
        ("GET", "rrddata") => rrd::storage(&ctx),
        _ => Err(not_served(&ctx)),
    }
}

async fn guest(ctx: CallContext, rest: &str) -> Outcome {
    match (ctx.call.method, rest) {
        ("GET", "config") => config_routes::read(&ctx),
        ("PUT", "config") => config_routes::put(&ctx).await,
        ("POST", "config") => config_routes::post(&ctx).await,
        ("GET", "pending") => config_routes::pending(&ctx),
        ("GET", "status/current") => status::current(&ctx),
        ("POST", "status/start") => power::start(&ctx),
        ("POST", "status/stop") => power::stop(&ctx),
        ("POST", "status/shutdown") => power::shutdown(&ctx),
        ("POST", "status/reboot") => power::reboot(&ctx),
        ("POST", "status/reset") => power::reset(&ctx),
        ("POST", "status/suspend") => power::suspend(&ctx),
        ("POST", "status/resume") => power::resume(&ctx),
        ("POST", "clone") => clone::clone(&ctx),
        ("GET", "migrate") => migrate::preconditions(&ctx),
        ("POST", "migrate") => migrate::migrate(&ctx),
        ("POST", "monitor") => node_info::monitor(&ctx),
        ("PUT", "sendkey") => node_info::sendkey(&ctx),
        ("GET", "rrddata") => rrd::guest(&ctx),
        ("POST", "template") => template::template(&ctx),
        ("PUT", "resize") => resize::resize(&ctx),
        ("PUT", "unlink") => drives::unlink(&ctx).await,
        ("POST", "move_disk") => drives::move_disk(&ctx),
        ("GET", "feature") => drives::feature(&ctx),
        ("GET", "snapshot") => snapshot::list(&ctx),
        ("POST", "snapshot") => snapshot::create(&ctx),
        ("DELETE", "snapshot/{snapname}") => snapshot::delete(&ctx),
        ("GET", "snapshot/{snapname}/config") => snapshot::read(&ctx),
        ("PUT", "snapshot/{snapname}/config") => snapshot::write(&ctx).await,
        ("POST", "snapshot/{snapname}/rollback") => snapshot::rollback(&ctx),
        ("GET", "cloudinit") => cloudinit::pending(&ctx),
        ("PUT", "cloudinit") => cloudinit::rebuild(&ctx).await,
        ("POST", "vncproxy") => console::vnc_proxy(&ctx, GuestType::Vm),
        ("GET", "cloudinit/dump") => cloudinit::dump(&ctx),
        ("POST", "agent") => agent::serve(&ctx, rest).await,
        (_, rest) if rest.starts_with("agent/") => agent::serve(&ctx, rest).await,
        _ => Err(not_served(&ctx)),
    }
}

fn not_served(ctx: &CallContext) -> ApiError {
    let mut path = ctx.call.route.to_owned();
    for name in ctx.params().0.keys() {
        if let Some(value) = ctx.text(name) {
            path = path.replace(&format!("{{{name}}}"), &value);
        }
    }
    api::not_served(ctx.call.method, &path, ctx.cluster.version)
}
