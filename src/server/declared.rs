//! Declared machines: the list, one of them, and the commands that let go of one.

use actix_web::{HttpResponse, web};
use drover_actors::message::HerdCommand;
use drover_api::{DeclaredMachineOut, DeclaredMachinesOut, DriftOut, Nothing, Problem};
use drover_model::declared::OnRemoval;
use drover_model::id::DeclaredName;
use drover_model::status::DeclaredStatus;

use super::body::Fields;
use super::problem::{Rejection, printable};
use super::shapes::{Shown, rfc3339};
use super::state::State;

type Body = Result<web::Bytes, actix_web::Error>;

impl Shown<DeclaredMachineOut> for DeclaredStatus {
    fn shown(&self) -> DeclaredMachineOut {
        let drift = self.drift.iter().map(|one| DriftOut {
            kind: one.kind,
            what: one.what.to_owned(),
            declared: one.declared.clone(),
            found: one.found.clone(),
            stays: one.stays.map(str::to_owned),
        });
        let on_removal = match self.on_removal {
            OnRemoval::Keep => "KEEP",
            OnRemoval::Stop => "STOP",
            OnRemoval::Delete => "DELETE",
        };
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
            power: self.power,
            addresses: self.addresses.iter().map(ToString::to_string).collect(),
            drift: drift.collect(),
            detail: self.detail.clone(),
            corrected: self.corrected.as_ref().map(|(_, what)| what.clone()),
            corrected_at: self.corrected.as_ref().map(|(at, _)| rfc3339(*at)),
            on_removal: on_removal.to_owned(),
        }
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
