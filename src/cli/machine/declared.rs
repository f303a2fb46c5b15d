//! `drover machine list`, `delete` and `forget`, and what `show` says of a declared machine.

use drover_api::{DeclaredMachineOut, DeclaredMachinesOut, Nothing};
use reqwest::Method;

use super::super::client::{CALL_LIMIT, Client, path};
use super::super::error::{CallError, CliError};
use super::super::tables::{clean, dash, differs, machine_state, machines};
use super::super::term::{Term, print};

pub(super) async fn list(client: &Client, json: bool, term: &mut Term<'_>) -> Result<u8, CliError> {
    let out: DeclaredMachinesOut = client.get("/v1/machines", CALL_LIMIT).await?;
    print(term, json, &out, listed)?;
    Ok(0)
}

/// Shows one; where none is called so either, what the first question came to.
pub(super) async fn show(
    client: &Client,
    name: &str,
    first: CallError,
    json: bool,
    term: &mut Term<'_>,
) -> Result<u8, CliError> {
    let found: Result<DeclaredMachineOut, _> =
        client.get(&path("machines", name, ""), CALL_LIMIT).await;
    match found {
        Err(fault) if fault.is_unknown() => Err(first.into()),
        Err(fault) => Err(fault.into()),
        Ok(out) => {
            print(term, json, &out, shown)?;
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

fn listed(out: &DeclaredMachinesOut) -> String {
    machines(&out.machines)
}

fn shown(out: &DeclaredMachineOut) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        text += format!("{name:<10} {}\n", clean(&value)).trim_start_matches('\n');
    };
    line("machine", out.name.clone());
    line("state", format!("{} since {}", machine_state(out), out.since));
    if !out.detail.is_empty() {
        line("detail", out.detail.clone());
    }
    match (out.vmid, &out.node) {
        (Some(vmid), Some(node)) => {
            line("place", format!("VMID {vmid} on {node}, cloud {}", out.cloud))
        }
        (_, _) => line("place", format!("cloud {}, no guest yet", out.cloud)),
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
        line("corrected", format!("{what}, {at}"));
    }
    for one in &out.drift {
        let stays = match &one.stays {
            Some(why) => format!("shown only: {why}"),
            None => "drover corrects it".to_owned(),
        };
        line("drift", format!("{} ({}); {stays}", differs(one), one.kind));
    }
    text
}
