//! `drover machine list`, `delete`, `forget` and `adopt`, and what `show` says of a declared machine.

use drover_api::{
    AdoptMachineIn, AdoptMachineOut, DeclaredMachineOut, DeclaredMachinesOut, Nothing,
};
use reqwest::Method;

use super::super::client::{CALL_LIMIT, Client, LONG_LIMIT, path};
use super::super::error::{CallError, CliError};
use super::super::list_options::{ListOptions, ViewOptions};
use super::super::lists::{self, differs, machine_state};
use super::super::sentences::{clean, dash};
use super::super::table::Page;
use super::super::term::{Term, page, print};

pub(super) async fn list(
    client: &Client,
    options: &ListOptions,
    json: bool,
    term: &mut Term<'_>,
) -> Result<u8, CliError> {
    let out: DeclaredMachinesOut = client.get("/v1/machines", CALL_LIMIT).await?;
    let whole = |machines| DeclaredMachinesOut { machines };
    lists::show(term, json, options, out.machines, whole, |_, _| ())?;
    Ok(0)
}

/// Shows one; where none is called so either, what the first question came to.
pub(super) async fn show(
    client: &Client,
    name: &str,
    first: CallError,
    view: &ViewOptions,
    json: bool,
    term: &mut Term<'_>,
) -> Result<u8, CliError> {
    let found: Result<DeclaredMachineOut, _> =
        client.get(&path("machines", name, ""), CALL_LIMIT).await;
    match found {
        Err(fault) if fault.is_unknown() => Err(first.into()),
        Err(fault) => Err(fault.into()),
        Ok(out) => {
            page(term, json, view, &out, shown)?;
            Ok(0)
        }
    }
}

pub(super) async fn delete(
    client: &Client,
    name: &str,
    json: bool,
    term: &mut Term<'_>,
) -> Result<u8, CliError> {
    client.report(Method::DELETE, &path("machines", name, "")).await?;
    let name = clean(name);
    print(term, json, &Nothing {}, |_| {
        format!("machine {name} is being destroyed: `drover machine list` shows when it is gone\n")
    })?;
    Ok(0)
}

pub(super) async fn forget(
    client: &Client,
    name: &str,
    json: bool,
    term: &mut Term<'_>,
) -> Result<u8, CliError> {
    client.report(Method::POST, &path("machines", name, "/forget")).await?;
    let name = clean(name);
    print(term, json, &Nothing {}, |_| format!("drover lets go of machine {name}\n"))?;
    Ok(0)
}

pub(super) async fn adopt(
    client: &Client,
    name: &str,
    command: &AdoptMachineIn,
    json: bool,
    term: &mut Term<'_>,
) -> Result<u8, CliError> {
    let path = path("machines", name, "/adopt");
    let out: AdoptMachineOut = client.post(&path, command, LONG_LIMIT).await?;
    print(term, json, &out, |out| adopted(out, command.dry_run))?;
    Ok(0)
}

fn adopted(out: &AdoptMachineOut, dry_run: bool) -> String {
    let (machine, node) = (clean(&out.machine), clean(&out.node));
    let (called, name) =
        (dash(Some(&out.called).filter(|name| !name.is_empty())), clean(&out.name));
    let called = clean(&called);
    let adopts = if dry_run { "would adopt" } else { "adopts" };
    let mut text = format!("machine {machine} {adopts} guest {} ({called}) on {node}\n", out.vmid);
    text += &match (out.proven, dry_run) {
        (true, _) => "its marks prove that drover made it for this machine\n".to_owned(),
        (false, true) => format!(
            "its marks do not prove it: with --confirm drover names it {name} and writes its marks\n"
        ),
        (false, false) => format!("drover named it {name} and wrote its marks\n"),
    };
    let becomes = match &*out.on_removal {
        "DELETE" => "drover destroys it once it leaves the configuration",
        "STOP" => "drover shuts it down once it leaves the configuration",
        _ => "it stays once it leaves the configuration",
    };
    text + &format!("onRemoval {}: {becomes}\n", clean(&out.on_removal))
}

fn shown(out: &DeclaredMachineOut, page: &mut Page) {
    let view = page.view();
    let mut line = |name: &str, value: String| page.line(&format!("{name:<10} {value}"));
    line("machine", out.name.clone());
    line("state", format!("{} {}", machine_state(out), view.since(&out.since)));
    if !out.detail.is_empty() {
        line("detail", out.detail.clone());
    }
    match (out.vmid, &out.node) {
        (Some(vmid), Some(node)) => {
            line("place", format!("VMID {vmid} on {node}, cloud {}", out.cloud))
        }
        (_, _) => line("place", format!("cloud {}, no guest yet", out.cloud)),
    }
    if let Some(at) = &out.last_seen_at {
        line("last seen", view.time(at));
    }
    line("power", format!("{}, kept {}", out.power, out.wanted));
    line("addresses", dash(Some(out.addresses.join(", ")).filter(|all| !all.is_empty())));
    if let Some(source) = out.source {
        line("made from", format!("template image {source}"));
    }
    let declared =
        if out.declared { "the configuration has it" } else { "it left the configuration" };
    line("declared", format!("{declared}, onRemoval {}", out.on_removal));
    if let (Some(what), Some(at)) = (&out.corrected, &out.corrected_at) {
        line("corrected", format!("{what}, {}", view.time(at)));
    }
    for one in &out.drift {
        let stays = match &one.stays {
            Some(why) => format!("shown only: {why}"),
            None => "drover corrects it".to_owned(),
        };
        line("drift", format!("{} ({}); {stays}", differs(one), one.kind));
    }
}
