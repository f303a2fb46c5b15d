//! `drover machine`: one machine of an agent or a lease: looks, orders and their ends, snapshots; and
//! the machines that the configuration declares (`declared.rs`).

mod declared;

use std::time::Duration;

use drover_api::{
    AdoptMachineIn, MachineOut, OrderIn, OrderOut, PowerIn, ResizeIn, SnapshotIn, SnapshotsOut,
};
use drover_model::phase::{OrderPhase, Power};
use tokio::time::Instant;

use super::client::{CALL_LIMIT, Client, LONG_LIMIT, path};
use super::error::CliError;
use super::hold;
use super::list_options::ViewOptions;
use super::lists::{self, Snapshot};
use super::options::{MachineAction, ResizeOptions, SnapshotAction, TakeOptions, WaitOptions};
use super::sentences::{clean, dash};
use super::table::Page;
use super::term::{Term, page, print};

/// The longest that one request waits for the end of an order, in seconds.
const WAIT_SECONDS: u64 = 60;

/// Runs one of the commands; gives the exit code.
pub(super) async fn act(
    client: &Client,
    action: MachineAction,
    json: bool,
    term: &mut Term<'_>,
) -> Result<u8, CliError> {
    let (wait, verb) = match action {
        MachineAction::Show { target, view } => {
            return show(client, &target, &view, json, term).await;
        }
        MachineAction::List(list) => return declared::list(client, &list, json, term).await,
        MachineAction::Delete { name } => return declared::delete(client, &name, json, term).await,
        MachineAction::Forget { name } => return declared::forget(client, &name, json, term).await,
        MachineAction::Adopt { name, vmid, confirm, dry_run } => {
            let command = AdoptMachineIn { vmid, confirm, dry_run };
            return declared::adopt(client, &name, &command, json, term).await;
        }
        MachineAction::Resize(options) => return resize(client, &options, json, term).await,
        MachineAction::Clone(options) => {
            let path = of(&options.target, "/clone");
            hold::copy(client, &path, &options, json, term).await?;
            return Ok(0);
        }
        MachineAction::Snapshot(action) => return snapshot(client, action, json, term).await,
        MachineAction::Start(wait) => (wait, "start"),
        MachineAction::Stop(wait) => (wait, "stop"),
        MachineAction::Shutdown(wait) => (wait, "shutdown"),
        MachineAction::Reboot(wait) => (wait, "reboot"),
        MachineAction::Reset(wait) => (wait, "reset"),
        MachineAction::Suspend(wait) => (wait, "suspend"),
        MachineAction::Resume(wait) => (wait, "resume"),
    };
    let command = PowerIn { action: verb.to_owned(), idempotency_key: None };
    let out: OrderOut = client.post(&of(&wait.target, "/power"), &command, LONG_LIMIT).await?;
    follow(client, out, &wait, json, term).await
}

/// Shows the machine of an agent or of a lease; where neither is called so, one that is declared.
async fn show(
    client: &Client,
    target: &str,
    view: &ViewOptions,
    json: bool,
    term: &mut Term<'_>,
) -> Result<u8, CliError> {
    let found: Result<MachineOut, _> = client.get(&of(target, "/machine"), LONG_LIMIT).await;
    match found {
        Err(fault) if fault.is_unknown() => {
            declared::show(client, target, fault, view, json, term).await
        }
        Err(fault) => Err(fault.into()),
        Ok(out) => {
            page(term, json, view, &out, shown)?;
            Ok(0)
        }
    }
}

/// A path of the machine of an agent, or of that of a lease.
fn of(target: &str, rest: &str) -> String {
    let kind = if target.starts_with("lease-") { "leases" } else { "agents" };
    path(kind, target, rest)
}

async fn resize(
    client: &Client,
    options: &ResizeOptions,
    json: bool,
    term: &mut Term<'_>,
) -> Result<u8, CliError> {
    let command = ResizeIn {
        cores: options.cores,
        memory_mb: options.memory,
        disk_size_gb: options.disk,
        idempotency_key: None,
    };
    let path = of(&options.wait.target, "/reconfigure");
    let out: OrderOut = client.post(&path, &command, LONG_LIMIT).await?;
    follow(client, out, &options.wait, json, term).await
}

async fn snapshot(
    client: &Client,
    action: SnapshotAction,
    json: bool,
    term: &mut Term<'_>,
) -> Result<u8, CliError> {
    let one = |name: &str| path("", name, "").trim_start_matches("/v1/").to_owned();
    let (out, wait): (OrderOut, WaitOptions) = match action {
        SnapshotAction::List { target, list } => {
            let out: SnapshotsOut = client.get(&of(&target, "/snapshots"), LONG_LIMIT).await?;
            let agent = out.agent;
            let whole = |shown: Vec<Snapshot>| SnapshotsOut {
                agent,
                snapshots: shown.into_iter().map(|one| one.out).collect(),
            };
            let all = Snapshot::all(out.snapshots);
            lists::show(term, json, &list, all, whole, |_, _| ())?;
            return Ok(0);
        }
        SnapshotAction::Create(TakeOptions { wait, name, description, ram }) => {
            let command = SnapshotIn { name, description, memory: ram, idempotency_key: None };
            let path = of(&wait.target, "/snapshots");
            (client.post(&path, &command, LONG_LIMIT).await?, wait)
        }
        SnapshotAction::Revert { wait, name } => {
            let path = of(&wait.target, &format!("/snapshots{}/revert", one(&name)));
            (client.post(&path, &OrderIn::default(), LONG_LIMIT).await?, wait)
        }
        SnapshotAction::Delete { wait, name } => {
            let path = of(&wait.target, &format!("/snapshots{}", one(&name)));
            (client.remove(&path, LONG_LIMIT).await?, wait)
        }
    };
    follow(client, out, &wait, json, term).await
}

/// Waits for the end of an order, unless that is not wanted; gives the exit code.
async fn follow(
    client: &Client,
    mut out: OrderOut,
    wait: &WaitOptions,
    json: bool,
    term: &mut Term<'_>,
) -> Result<u8, CliError> {
    let deadline = Instant::now() + wait.wait;
    let step = term.live.step(ended(&out).trim_end());
    while out.state == OrderPhase::Running && !wait.no_wait {
        let left = deadline.saturating_duration_since(Instant::now()).as_secs();
        if left == 0 {
            return Err(CliError::Waited(format!(
                "order {} ({}) goes on after {} s: `drover machine show {}` shows how it ends",
                out.id,
                out.wants,
                wait.wait.as_secs(),
                out.agent
            )));
        }
        let seconds = left.min(WAIT_SECONDS);
        let rest = format!("/orders/{}?waitSeconds={seconds}", out.id);
        let limit = CALL_LIMIT + Duration::from_secs(seconds);
        out = client.get(&path("agents", &out.agent, &rest), limit).await?;
    }
    drop(step);
    print(term, json, &out, ended)?;
    Ok(u8::from(out.state == OrderPhase::Failed))
}

fn ended(out: &OrderOut) -> String {
    let (id, wants, agent) = (clean(&out.id), clean(&out.wants), clean(&out.agent));
    let detail = clean(&out.detail);
    let why = if detail.is_empty() { String::new() } else { format!(": {detail}") };
    match out.state {
        OrderPhase::Running => format!("order {id}: {wants} of agent {agent} is carried out\n"),
        OrderPhase::Done => format!("order {id}: {wants} of agent {agent} is done{why}\n"),
        OrderPhase::Failed => format!("order {id}: {wants} of agent {agent} failed{why}\n"),
    }
}

fn shown(out: &MachineOut, page: &mut Page) {
    let mut line = |name: &str, value: String| page.line(&format!("{name:<10} {value}"));
    line("agent", format!("{} ({})", out.agent, out.template));
    line("place", format!("VMID {} on {}, cloud {}", out.vmid, out.node, out.cloud));
    let word = &out.proxmox_state;
    let own = if out.state.name() == word { String::new() } else { format!(" ({word})") };
    let lock = out.lock.as_ref().map(|lock| format!(", locked ({lock})")).unwrap_or_default();
    let meant = match out.ordered_state {
        Power::Running => String::new(),
        other @ (Power::Stopped | Power::Suspended) => format!(", {other} as ordered"),
        Power::Unknown => ", as an order left it: drover looks until it is sure".to_owned(),
    };
    line("state", format!("{}{own}{lock}{meant}", out.state));
    if out.state == Power::Running {
        line("uptime", format!("{} s", out.uptime_seconds));
        line("load", load(out));
    }
    match &out.no_address {
        Some(why) => line("addresses", format!("none: {why}")),
        None => line("addresses", out.addresses.join(", ")),
    }
    line("console", out.console_url.clone());
    line("snapshots", out.snapshots.to_string());
    let pending = out.config.iter().filter(|one| one.pending.is_some() || one.deleted).count();
    lists::page(&out.config, page);
    if pending > 0 {
        page.line(&format!(
            "{pending} of these wait for a restart: `drover machine reboot {}`",
            out.agent
        ));
    }
    for order in &out.orders {
        let at = page.view().time(&order.asked_at);
        page.line(&format!("{at} {}", ended(order).trim_end()));
    }
}

fn load(out: &MachineOut) -> String {
    let load = &out.load;
    let cpu = load.cpu.map(|busy| format!("{:.0} %", busy * 100.0));
    let cpus = load.cpus.map(|cpus| format!(" of {cpus:.0} processors")).unwrap_or_default();
    let mib = |bytes: f64| format!("{:.0} MiB", bytes / f64::from(1 << 20));
    let used = dash(load.memory_used_bytes.map(mib));
    format!("{}{cpus}, {used} of {}", dash(cpu), dash(load.memory_bytes.map(mib)))
}
