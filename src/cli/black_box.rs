//! `drover blackbox`: what drover kept of an agent that failed.

use drover_api::{BlackBoxOut, GuestCallOut, GuestTaskOut, MomentOut};

use super::client::{CALL_LIMIT, Client, path};
use super::error::CliError;
use super::list_options::ViewOptions;
use super::logs::part;
use super::sentences::{clean, count};
use super::table::Page;
use super::term::{Term, page};

/// Where the serial console is to be seen.
const CONSOLE: &str = "The serial console is not here: Proxmox keeps no log of it. See it live on the node: \
                       `qm terminal VMID`";

/// Shows what is kept of an agent.
pub(super) async fn show(
    client: &Client,
    agent: &str,
    view: &ViewOptions,
    json: bool,
    term: &mut Term<'_>,
) -> Result<(), CliError> {
    let out: BlackBoxOut = client.get(&path("agents", agent, "/blackbox"), CALL_LIMIT).await?;
    page(term, json, view, &out, shown)
}

fn shown(out: &BlackBoxOut, page: &mut Page) {
    let gone = page.view().when(&out.gone_at);
    page.line(&format!("agent {} of {}, gone {gone}: {}", out.agent, out.template, out.detail));
    if let (Some(vmid), Some(node)) = (out.vmid, &out.node) {
        let address = out.address.as_ref().map(|at| format!(", at {at}")).unwrap_or_default();
        page.line(&format!("VMID {vmid} on node {node}{address}"));
    }
    page.heading("PHASES");
    for one in &out.phases {
        page.lines(&format!("{:8.1} s  {}", one.ms as f64 / 1000.0, clean(&part(&one.state))));
    }
    page.heading("WHAT HAPPENED");
    if out.moments_left_out > 0 {
        let left_out = usize::try_from(out.moments_left_out).unwrap_or(usize::MAX);
        page.lines(&format!("{} left out before these", count(left_out, "event")));
    }
    for MomentOut { at, text, .. } in &out.moments {
        page.lines(&indented(at, text));
    }
    if let Some(log) = &out.guest_log {
        page.heading("LOG OF THE GUEST, BY ITS GUEST AGENT");
        page.lines(&log.lines().map(clean).collect::<Vec<_>>().join("\n"));
    }
    if let Some(why) = &out.guest_unread {
        page.lines(&clean(why));
    }
    page.lines(CONSOLE);
    page.heading("CALLS TO PROXMOX");
    for GuestCallOut { at, method, path, outcome, ms, times } in &out.calls {
        let more = if *times > 1 { format!(", the last of {times}") } else { String::new() };
        page.lines(&clean(&format!("{at}  {method} {path}: {outcome} after {ms} ms{more}")));
    }
    page.heading("TASKS");
    if let Some(why) = &out.tasks_unread {
        page.lines(&format!("not read: {}", clean(why)));
    }
    for GuestTaskOut { upid, kind, status, log } in &out.tasks {
        let status = status.as_deref().unwrap_or("running");
        page.lines(&indented(&format!("{}: {}", clean(kind), clean(status)), &log.join("\n")));
        if !log.is_empty() {
            page.lines(&format!("  {}", clean(upid)));
        }
    }
}

/// A heading, and below it all but the first line of a text, indented.
fn indented(head: &str, text: &str) -> String {
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    let first = match head.contains(": ") {
        true => head.to_owned(),
        false => format!("{head}  {}", lines.next().map(clean).unwrap_or_default()),
    };
    lines.fold(first, |all, line| format!("{all}\n  {}", clean(line)))
}
