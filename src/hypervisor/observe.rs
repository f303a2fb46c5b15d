//! Observations of a cluster: which cluster answers, what is in it, whether a VMID is taken, and
//! the state of one guest.
//!
//! - [`identify`] and [`cluster`]: the cluster's id, from the fingerprint of its root authority.
//! - [`survey`]: all guests, with quorum.
//! - [`id_taken`], [`inspect`] and [`confirm`]: one VMID and its guest; [`confirm`] costs no call
//!   when the list is recent.
//! - [`leftovers`]: volumes that still carry a guest's id.
//!
//! A guest counts as absent only when an endpoint with quorum says that its VMID is free. When a
//! read fails, or the endpoint lacks quorum, the answer is "unknown", and nothing is decided on it.

use std::collections::BTreeSet;
use std::time::Duration;

use drover_model::container::GuestType;
use drover_model::fault::{Culprit, Fault, FaultKind};
use drover_model::id::{ClusterId, NodeName, VmId};
use drover_model::marks::{Marks, Reading};
use drover_model::ports::{ClusterObservation, IdStatus, Listed, Survey, VmObservation, VmRef};
use proxmox_client::types::{Certificate, Resource, StatusItem, VmConfig, Volume};

use crate::client::Client;
use crate::client::{Failure, guest_id};
use crate::configure::{carries, reading, split_tags};
use crate::list::LIST_SHARED_FOR;

/// The certificate of the authority that all nodes of a cluster share.
const ROOT_CA: &str = "pve-root-ca.pem";

/// Identifies the cluster: id, version, quorum and nodes.
pub async fn identify(client: &Client) -> Result<ClusterObservation, Failure> {
    let version = client.version().await?.version;
    let (_, status) = status_with_quorum(client).await?;
    let cluster = cluster(client).await?;
    let (quorate, nodes) = quorum(&status);
    Ok(ClusterObservation { cluster, version, quorate, nodes })
}

/// The id of the cluster that answers.
pub(crate) async fn cluster(client: &Client) -> Result<ClusterId, Failure> {
    cluster_id(client, &client.certificates().await?)
}

/// The first 16 hexadecimal digits of the root authority's SHA-256.
fn cluster_id(client: &Client, certificates: &[Certificate]) -> Result<ClusterId, Failure> {
    let root = certificates.iter().find(|one| one.filename.as_deref() == Some(ROOT_CA));
    let digits: Option<String> = root
        .and_then(|root| root.fingerprint.as_deref())
        .map(|text| text.chars().filter(char::is_ascii_hexdigit).take(16).collect::<String>());
    match digits.filter(|digits| digits.len() == 16) {
        Some(digits) => Ok(ClusterId::new(digits.to_lowercase())),
        None => {
            let text = format!(
                "cloud `{}` lists no certificate `{ROOT_CA}` with a fingerprint, by which drover \
                 identifies a cluster: check `pvenode cert info` on its nodes",
                client.cloud()
            );
            let culprit = Culprit::Cloud(client.cloud().clone());
            Err(Fault::new(FaultKind::Broken, culprit, text).into())
        }
    }
}

/// Quorum and nodes. A single node without a cluster has no cluster item, and counts as quorate.
fn quorum(status: &[StatusItem]) -> (bool, Vec<(NodeName, bool)>) {
    let quorate = status.iter().find(|item| item.kind == "cluster").is_none_or(|item| item.quorate);
    let nodes = status.iter().filter(|item| item.kind == "node");
    (quorate, nodes.map(|item| (NodeName::new(&item.name), item.online)).collect())
}

/// The status from an endpoint with quorum, if there is one; that endpoint stays in use.
async fn status_with_quorum(client: &Client) -> Result<(usize, Vec<StatusItem>), Failure> {
    let mut status = client.cluster_status().await?;
    for _ in 1..client.route().count() {
        if quorum(&status.1).0 {
            break;
        }
        client.route().skip(status.0);
        status = client.cluster_status().await?;
    }
    Ok(status)
}

/// All guests, and whether the endpoint has quorum: two calls, however many guests there are, or
/// one if a list that was requested at most `within` ago will do.
///
/// A list from another endpoint than the one with quorum proves nothing, so it counts as one
/// without quorum.
pub(crate) async fn survey(client: &Client, within: Duration) -> Result<Survey, Failure> {
    let (endpoint, status) = status_with_quorum(client).await?;
    let (quorate, nodes) = quorum(&status);
    let list = client.list(within).await?;
    let quorate = quorate && list.endpoint == client.endpoint(endpoint);
    let guests = list.rows.iter().filter_map(listed).collect();
    Ok(Survey { guests, nodes, quorate, age: list.asked.elapsed() })
}

/// A guest's row in the list; none for a row of another kind.
pub(crate) fn listed(row: &Resource) -> Option<Listed> {
    let container = match row.kind.as_str() {
        "qemu" => false,
        "lxc" => true,
        _ => return None,
    };
    Some(Listed {
        vmid: VmId(u32::try_from(row.vmid?).ok()?),
        node: NodeName::new(row.node.clone()?),
        name: row.name.clone(),
        tags: split_tags(row.tags.as_deref().unwrap_or_default()).into_iter().collect(),
        lock: row.lock.clone().filter(|lock| !lock.is_empty()),
        status: row.status.clone().unwrap_or_else(|| "unknown".into()),
        template: row.template,
        container,
    })
}

/// Finds a guest in the list.
async fn find(client: &Client, vmid: VmId) -> Result<Option<Listed>, Failure> {
    let list = client.list(LIST_SHARED_FOR).await?;
    Ok(list.rows.iter().filter_map(listed).find(|guest| guest.vmid == vmid))
}

/// A running guest whose marks were read before, when its row in the list confirms name, node and
/// status. None means that the guest itself must be inspected.
pub(crate) async fn confirm(
    client: &Client,
    vm: &VmRef,
    (marks, name): (&Marks, &str),
) -> Option<VmObservation> {
    let list = client.list(LIST_SHARED_FOR).await.ok()?;
    let mut rows = list.rows.iter().filter(|row| row.vmid == Some(u64::from(vm.vmid.0)));
    let row = rows.find_map(listed)?;
    let same = row.name.as_deref() == Some(name) && row.node == vm.node;
    let same_type = GuestType::of_listed(row.container) == vm.guest;
    let plain = !row.template && same_type && row.lock.is_none();
    (same && plain && row.status == "running").then(|| VmObservation {
        id: IdStatus::Taken,
        node: Some(row.node),
        marks: Some(Reading::Marked(Box::new(marks.clone()))),
        lock: None,
        running: Some(true),
    })
}

/// Whether a failed read says nothing about the guest.
pub(crate) fn is_transient(kind: &FaultKind) -> bool {
    matches!(kind, FaultKind::Contention | FaultKind::Unreachable | FaultKind::UnknownOutcome)
}

/// Whether a VMID is taken. It counts as free only if an endpoint with quorum says so.
pub(crate) async fn id_taken(client: &Client, vmid: VmId) -> Result<IdStatus, Failure> {
    for _ in 0..client.route().count() {
        let asked = match client.check_free_id(vmid.0).await {
            Ok(endpoint) => endpoint,
            Err(error) => {
                let kind = client.fault(&error).kind;
                if kind == FaultKind::IdTaken {
                    return Ok(IdStatus::Taken);
                }
                return if is_transient(&kind) { Ok(IdStatus::Unknown) } else { Err(error.into()) };
            }
        };
        match client.cluster_status().await {
            Ok((answered, status)) if quorum(&status).0 => {
                if answered == asked {
                    return Ok(IdStatus::Free);
                }
            }
            Ok((answered, _)) => client.route().skip(answered),
            Err(error) if is_transient(&client.fault(&error).kind) => return Ok(IdStatus::Unknown),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(IdStatus::Unknown)
}

/// Inspects one VMID and its guest.
pub(crate) async fn inspect(client: &Client, vm: &VmRef) -> Result<VmObservation, Failure> {
    let mut observation = VmObservation {
        id: id_taken(client, vm.vmid).await?,
        node: None,
        marks: None,
        lock: None,
        running: None,
    };
    if observation.id == IdStatus::Free {
        return Ok(observation);
    }
    let Some((vm, config)) = read_config(client, vm).await? else { return Ok(observation) };
    describe(&mut observation, &vm, &config);
    match client.guest_status(vm.node.as_str(), guest_id(&vm)).await {
        Ok(current) => observation.running = Some(current.status == "running"),
        Err(error) => drop(client.fault(&error)),
    }
    Ok(observation)
}

/// Adds what a configuration shows. Marks that name the other type of guest were copied there.
pub(crate) fn describe(observation: &mut VmObservation, vm: &VmRef, config: &VmConfig) {
    observation.node = Some(vm.node.clone());
    observation.marks = Some(match reading(config) {
        Reading::Marked(marks) if marks.guest != vm.guest => {
            let (is, named) = (vm.guest, marks.guest);
            Reading::Damaged(format!("it is a {is}, and its marks are of a {named}"))
        }
        read @ (Reading::Unmarked | Reading::Marked(_) | Reading::Damaged(_)) => read,
    });
    observation.lock = config.lock().map(str::to_owned);
}

/// Reads a guest's configuration where and as what it is expected, else as the list shows it; none
/// when it cannot be read. A guest of the other type may have the VMID by now.
pub(crate) async fn read_config(
    client: &Client,
    vm: &VmRef,
) -> Result<Option<(VmRef, VmConfig)>, Failure> {
    match client.config(vm.node.as_str(), guest_id(vm)).await {
        Ok(config) => return Ok(Some((vm.clone(), config))),
        Err(error) => {
            let kind = client.fault(&error).kind;
            if is_transient(&kind) || matches!(kind, FaultKind::Denied { .. }) {
                return Ok(None);
            }
            if kind != FaultKind::Gone {
                return Err(error.into());
            }
        }
    }
    let Some(found) = find(client, vm.vmid).await? else { return Ok(None) };
    let guest = GuestType::of_listed(found.container);
    let found = VmRef { node: found.node, guest, ..vm.clone() };
    if found == *vm {
        return Ok(None);
    }
    match client.config(found.node.as_str(), guest_id(&found)).await {
        Ok(config) => Ok(Some((found, config))),
        Err(error) => {
            client.fault(&error);
            Ok(None)
        }
    }
}

/// The volumes that still carry a guest's id, on every storage of its node that holds images, or
/// only on these storages.
pub(crate) async fn leftovers(
    client: &Client,
    vm: &VmRef,
    only: Option<&BTreeSet<String>>,
) -> Result<Vec<String>, Failure> {
    let (mut found, node) = (Vec::new(), vm.node.as_str());
    let storages = match vm.guest {
        GuestType::Vm => client.image_storages(node).await?,
        GuestType::Container => client.guest_storages(node).await?,
    };
    for storage in storages {
        let name = storage.storage;
        if only.is_some_and(|only| !only.contains(&name)) {
            continue;
        }
        if storage.active == Some(false) {
            let text = format!(
                "storage `{name}` of node `{}` is not active: drover cannot check it for volumes \
                 of guest `{}`",
                vm.node, vm.vmid
            );
            let fault = Fault::new(FaultKind::Contention, Culprit::Storage(name), text);
            return Err(fault.into());
        }
        let own = Some(u64::from(vm.vmid.0));
        let of_guest: Vec<Volume> = match vm.guest {
            GuestType::Vm => {
                let mut volumes = client.volumes(node, &name, vm.vmid.0).await?;
                volumes.retain(|volume| volume.vmid.is_none() || volume.vmid == own);
                volumes
            }
            GuestType::Container => {
                let mut volumes = client.volumes_of_any_content(node, &name, vm.vmid.0).await?;
                volumes.retain(|volume| volume.vmid == own && carries(&volume.volid, vm.vmid));
                volumes
            }
        };
        found.extend(of_guest.into_iter().map(|volume| volume.volid));
    }
    found.sort();
    found.dedup();
    Ok(found)
}
