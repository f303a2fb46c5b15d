//! Declared machines: the list, one of them, and the commands that let go of one or have it adopt a guest.

use actix_web::{HttpResponse, web};
use drover_actors::message::{AdoptAsk, HerdCommand};
use drover_api::{
    AdoptMachineIn, AdoptMachineOut, DeclaredMachineOut, DeclaredMachinesOut, DriftOut, Nothing,
    Problem,
};
use drover_model::declared::OnRemoval;
use drover_model::id::{DeclaredName, VmId};
use drover_model::status::DeclaredStatus;

use super::body::Fields;
use super::images::LAST_VMID;
use super::problem::{Rejection, printable};
use super::shapes::{Shown, rfc3339};
use super::state::State;

type Body = Result<web::Bytes, actix_web::Error>;

impl Shown<DeclaredMachineOut> for DeclaredStatus {
    fn shown(&self) -> DeclaredMachineOut {
        let drift = self.drift.iter().map(|one| DriftOut {
            kind: one.kind,
            what: one.what.clone(),
            declared: one.declared.clone(),
            found: one.found.clone(),
            stays: one.stays.as_ref().map(ToString::to_string),
        });
        DeclaredMachineOut {
            name: self.name.to_string(),
            id: self.id.as_ref().map(ToString::to_string),
            cloud: self.cloud.to_string(),
            node: self.node.as_ref().map(ToString::to_string),
            vmid: self.vmid.map(|vmid| vmid.0),
            source: self.source.map(|vmid| vmid.0),
            state: self.phase,
            since: rfc3339(self.since),
            declared: self.declared,
            wanted: self.wanted,
            last_seen_at: self.last_seen.map(rfc3339),
            power: self.power,
            addresses: self.addresses.iter().map(ToString::to_string).collect(),
            drift: drift.collect(),
            detail: self.detail.clone(),
            corrected: self.corrected.as_ref().map(|(_, what)| what.clone()),
            corrected_at: self.corrected.as_ref().map(|(at, _)| rfc3339(*at)),
            on_removal: spelled(self.on_removal).to_owned(),
        }
    }
}

fn spelled(on_removal: OnRemoval) -> &'static str {
    match on_removal {
        OnRemoval::Keep => "KEEP",
        OnRemoval::Stop => "STOP",
        OnRemoval::Delete => "DELETE",
    }
}

/// Lists declared machines, and those that left the configuration and are still there.
#[utoipa::path(get, path = "/v1/machines", responses((status = 200, body = DeclaredMachinesOut)))]
pub(super) async fn list(state: web::Data<State>) -> web::Json<DeclaredMachinesOut> {
    let machines = state.doors.view.declared().iter().map(Shown::shown).collect();
    web::Json(DeclaredMachinesOut { machines })
}

/// Shows one declared machine.
#[utoipa::path(
    get, path = "/v1/machines/{name}", params(("name" = String, Path, description = "the machine")),
    responses((status = 200, body = DeclaredMachineOut), (status = 404, body = Problem))
)]
pub(super) async fn show(
    state: web::Data<State>,
    name: web::Path<String>,
) -> Result<web::Json<DeclaredMachineOut>, Rejection> {
    let found = state.doors.view.declared_one(&DeclaredName::new(&*name));
    let missing = || {
        let name = printable(&name);
        Rejection::not_found(format!(
            "no machine is called `{name}`; `GET /v1/machines` lists them"
        ))
    };
    Ok(web::Json(found.ok_or_else(missing)?.shown()))
}

/// Destroys the guest of a machine that left the configuration.
#[utoipa::path(
    delete, path = "/v1/machines/{name}",
    params(("name" = String, Path, description = "the machine")),
    responses(
        (status = 202, description = "its guest is being destroyed"),
        (status = 404, body = Problem),
        (status = 409, body = Problem, description = "the configuration has it"),
    )
)]
pub(super) async fn delete(
    state: web::Data<State>,
    name: web::Path<String>,
) -> Result<HttpResponse, Rejection> {
    let name = name.into_inner();
    let command = |reply| HerdCommand::DeleteMachine { name, reply };
    state.ask(state.limits.reply, command).await?.map_err(Rejection::refused)?;
    Ok(HttpResponse::Accepted().finish())
}

/// Lets go of a machine that left the configuration, or was lost; its guest stays as it is.
#[utoipa::path(
    post, path = "/v1/machines/{name}/forget",
    params(("name" = String, Path, description = "the machine")),
    responses(
        (status = 202, description = "drover forgets it"),
        (status = 404, body = Problem),
        (status = 409, body = Problem, description = "the configuration has it, and it is not lost"),
    )
)]
pub(super) async fn forget(
    state: web::Data<State>,
    name: web::Path<String>,
    body: Body,
) -> Result<HttpResponse, Rejection> {
    Fields::<Nothing>::parse(body)?.finish()?;
    let name = name.into_inner();
    let command = |reply| HerdCommand::ForgetMachine { name, reply };
    state.ask(state.limits.reply, command).await?.map_err(Rejection::refused)?;
    Ok(HttpResponse::Accepted().finish())
}

/// Has a declared machine adopt a guest that is there: one whose marks prove it, or one that is named by
/// its VMID and confirmed. Only a machine that is blocked, missing or foreign adopts one.
#[utoipa::path(
    post, path = "/v1/machines/{name}/adopt", request_body = AdoptMachineIn,
    params(("name" = String, Path, description = "the machine")),
    responses(
        (status = 200, body = AdoptMachineOut),
        (status = 404, body = Problem, description = "no such machine or guest"),
        (status = 409, body = Problem, description = "the machine has its guest, or nothing proves that this one is it"),
    )
)]
pub(super) async fn adopt(
    state: web::Data<State>,
    name: web::Path<String>,
    body: Body,
) -> Result<web::Json<AdoptMachineOut>, Rejection> {
    let mut fields = Fields::<AdoptMachineIn>::parse(body)?;
    fields.count("vmid", LAST_VMID);
    fields.flag("confirm");
    fields.flag("dryRun");
    let AdoptMachineIn { vmid, confirm, dry_run } = fields.finish()?;
    let (name, vmid) = (name.into_inner(), vmid.map(VmId));
    let command = |reply| {
        let ask = AdoptAsk { name, vmid, confirmed: confirm, dry_run, reply };
        HerdCommand::AdoptMachine(Box::new(ask))
    };
    let done = state.ask(state.limits.resync, command).await?.map_err(Rejection::refused)?;
    Ok(web::Json(AdoptMachineOut {
        machine: done.machine.to_string(),
        vmid: done.vmid.0,
        node: done.node.to_string(),
        called: done.called,
        name: done.name,
        proven: done.proven,
        on_removal: spelled(done.on_removal).to_owned(),
    }))
}
