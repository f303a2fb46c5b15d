//! The call that makes an agent's guest: a clone of a template, or a container of an OS template.
//! The guest carries its marks from that call on (book: safety, rule 2).

use drover_model::container::GuestType;
use drover_model::id::Upid;
use drover_model::ports::CloneCall;
use drover_model::spec::CloneStrategy;
use proxmox_client::{GuestId, Params};

use crate::client::{Client, Failure, task};
use crate::container;

/// Starts to make the guest.
pub(crate) async fn start(client: &Client, call: &CloneCall) -> Result<Upid, Failure> {
    let node = call.node.as_str();
    if let Some(create) = call.spec.create() {
        let params = container::create_params(call, create);
        return Ok(task(client.create_container(node, params).await?));
    }
    let container = call.marks.guest.is_container();
    let source = GuestId { vmid: call.spec.source.0, container };
    Ok(task(client.clone_guest(node, source, clone_params(call)).await?))
}

fn clone_params(call: &CloneCall) -> Params {
    let spec = &call.spec;
    let full = spec.clone == CloneStrategy::Full;
    let name = match call.marks.guest {
        GuestType::Vm => "name",
        GuestType::Container => "hostname",
    };
    let mut params: Vec<(&str, String)> = vec![
        ("newid", call.marks.vmid.to_string()),
        (name, call.marks.name(&spec.name_prefix)),
        ("description", call.marks.describe(&spec.description)),
        ("full", u8::from(full).to_string()),
    ];
    if let Some(storage) = spec.target_storage.as_ref().filter(|_| full) {
        params.push(("storage", storage.clone()));
    }
    if let Some(target) = &call.target {
        params.push(("target", target.to_string()));
    }
    if let Some(pool) = &spec.target_pool {
        params.push(("pool", pool.clone()));
    }
    params.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}
