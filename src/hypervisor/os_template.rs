//! OS templates: archives on storages of which Proxmox makes containers, and the nodes that may do
//! so.
//!
//! [`candidates`] says which nodes reach the storage of an archive. [`Cloud::provide`] also looks
//! whether the archive is there, and lets the node download it where it is missing: from the URL of
//! the configuration, whose checksum the node checks, or from Proxmox's own list.
//!
//! One download of an archive runs on a storage at a time. The port remembers its task; after a
//! restart of drover it finds the task among those that run. A download that failed is reported
//! once, and the next question starts another one.

use std::collections::{BTreeMap, BTreeSet};

use drover_model::container::OsTemplate;
use drover_model::fault::{Culprit, Fault, FaultKind};
use drover_model::id::{NodeName, Upid, VmId};
use drover_model::placement::{Fleet, Sizes};
use drover_model::template_image::{Candidate, Found};
use parking_lot::Mutex;
use proxmox_client::upid::{task_kind, task_node};

use crate::classify::{self, CallOrigin};
use crate::client::{Client, Failure, task};
use crate::fleet;
use crate::list::LIST_SHARED_FOR;
use crate::proxmox::Cloud;

/// What Proxmox gives a container of whose sizes nothing is said. Without `cores` it may use every
/// processor of its node, and counts as one.
const DEFAULT_SIZES: Sizes = Sizes { cores: 1, memory_mb: 512, disk_gb: 0 };

/// Downloads that run, by the volume and by its node where the storage is the node's own.
#[derive(Default)]
pub(crate) struct ArchiveDownloads(Mutex<BTreeMap<(Option<NodeName>, String), Upid>>);

/// Whether a node can make containers of an archive.
enum Presence {
    There,
    /// It is downloaded: to this node, for people.
    Coming(NodeName),
}

fn candidate(template: &OsTemplate, node: &NodeName) -> Candidate {
    Candidate {
        // No guest is copied.
        vmid: VmId(0),
        node: node.clone(),
        name: template.file.clone(),
        created: None,
        storages: BTreeSet::new(),
        digest: template.volume(),
        sizes: DEFAULT_SIZES,
    }
}

/// A candidate for each node that reaches the archive's storage, whether the archive is there or
/// not.
pub(crate) fn candidates(template: &OsTemplate, fleet: &Fleet) -> Vec<Candidate> {
    let reached = fleet.nodes().keys().filter(|node| reaches(template, fleet, node));
    reached.map(|node| candidate(template, node)).collect()
}

fn reaches(template: &OsTemplate, fleet: &Fleet, node: &NodeName) -> bool {
    let reached = fleet.storage(&template.storage, node).is_some_and(|one| one.space.is_some());
    reached && !fleet.is_offline(node)
}

fn fault(kind: FaultKind, text: String) -> Failure {
    Fault::new(kind, Culprit::Template, text).into()
}

impl Cloud {
    /// A candidate for each of these nodes that has the archive; all nodes where none is named.
    /// Starts the download where it is missing. A fault while no node has it.
    pub(crate) async fn provide(
        &self,
        template: &OsTemplate,
        nodes: &[NodeName],
    ) -> Result<Found, Failure> {
        let list = self.client.list(LIST_SHARED_FOR).await?;
        let fleet = std::sync::Arc::new(fleet::of_rows(&list.rows));
        let wanted = |node: &&NodeName| nodes.is_empty() || nodes.contains(node);
        let reached: Vec<NodeName> = fleet
            .nodes()
            .keys()
            .filter(wanted)
            .filter(|node| reaches(template, &fleet, node))
            .cloned()
            .collect();
        if reached.is_empty() {
            let (storage, cloud) = (&template.storage, self.client.cloud());
            let text = format!(
                "no node of the template reaches storage `{storage}` on cloud `{cloud}`, which \
                 osTemplate names: check its name, and `pvesm status` on the nodes"
            );
            return Err(fault(FaultKind::Broken, text));
        }
        let shared = fleet.is_shared(&template.storage);
        let (mut there, mut coming, mut failure) = (Vec::new(), BTreeSet::new(), None);
        let mut seen = None;
        for node in &reached {
            let presence = match seen.take().filter(|_| shared) {
                Some(same) => Ok(same),
                None => self.presence(template, node, shared).await,
            };
            match presence {
                Ok(Presence::There) => {
                    there.push(candidate(template, node));
                    seen = Some(Presence::There);
                }
                Ok(Presence::Coming(to)) => {
                    coming.insert(to.clone());
                    seen = Some(Presence::Coming(to));
                }
                // Another node may have it.
                Err(error) => failure = Some(error),
            }
        }
        let whole = coming.is_empty() && failure.is_none();
        match (there.is_empty(), failure) {
            (true, Some(error)) => Err(error),
            (true, None) => {
                let nodes: Vec<&str> = coming.iter().map(NodeName::as_str).collect();
                let (volume, nodes) = (template.volume(), nodes.join(", "));
                let text = format!("`{volume}` is being downloaded to {nodes}");
                Err(fault(FaultKind::Contention, text))
            }
            (false, _) => Ok(Found { candidates: there, fleet, whole }),
        }
    }

    /// Looks for the archive on a node's storage, and starts its download where it is missing.
    async fn presence(
        &self,
        template: &OsTemplate,
        node: &NodeName,
        shared: bool,
    ) -> Result<Presence, Failure> {
        let client = &self.client;
        let volume = template.volume();
        let volumes = client.os_templates(node.as_str(), &template.storage).await?;
        if volumes.iter().any(|one| one.volid == volume) {
            return Ok(Presence::There);
        }
        let key = ((!shared).then(|| node.clone()), volume);
        let known = self.archives().0.lock().get(&key).cloned();
        let running = match known {
            Some(upid) => Some(upid),
            None => running_download(client, node, &template.file).await?,
        };
        if let Some(upid) = running {
            let status = client.task_status(upid.as_str()).await?;
            let at = NodeName::new(task_node(upid.as_str()));
            if status.status == "running" {
                self.archives().0.lock().insert(key, upid);
                return Ok(Presence::Coming(at));
            }
            self.archives().0.lock().remove(&key);
            let exit = status.exitstatus.unwrap_or_default();
            if exit != "OK" && !exit.starts_with("WARNINGS:") {
                let place = CallOrigin { cloud: client.cloud(), login: client.login() };
                let failed = classify::task(place, &at, task_kind(upid.as_str()), &exit);
                let text = format!("the download of `{}` failed: {}", key.1, failed.text);
                return Err(Fault { text, ..failed }.into());
            }
        }
        let upid = start(client, template, node).await?;
        tracing::info!(%node, volume = key.1, "downloads a container template");
        self.archives().0.lock().insert(key, upid);
        Ok(Presence::Coming(node.clone()))
    }
}

/// A download of this file that runs on a node, such as one from before a restart of drover.
/// Proxmox names the file in the task's id, percent-encoded.
async fn running_download(
    client: &Client,
    node: &NodeName,
    file: &str,
) -> Result<Option<Upid>, Failure> {
    let tasks = client.running_tasks(node.as_str()).await?;
    let file = proxmox_client::transport::encode(file);
    let of_file = |upid: &str| {
        let id = upid.split(':').nth(6).unwrap_or_default();
        task_kind(upid) == "download" && (id == file || id.replace('+', "%2B") == file)
    };
    Ok(tasks.into_iter().find(|one| of_file(&one.upid)).map(|one| Upid::new(one.upid)))
}

async fn start(client: &Client, template: &OsTemplate, node: &NodeName) -> Result<Upid, Failure> {
    let OsTemplate { storage, file, download } = template;
    let started = match download {
        None => client.download_listed_template(node.as_str(), storage, file).await,
        Some(download) => {
            let how = [
                ("content", "vztmpl"),
                ("url", &download.url),
                ("filename", file),
                ("checksum", &download.checksum),
                ("checksum-algorithm", &download.algorithm),
            ];
            let how = how.map(|(key, value)| (key.to_owned(), value.to_owned()));
            client.download_url(node.as_str(), storage, how.into()).await
        }
    };
    Ok(task(started.map_err(|error| start_fault(client.fault(&error), template))?))
}

/// Says what to do where there is nothing to download, or nowhere to.
fn start_fault(fault: Fault, template: &OsTemplate) -> Fault {
    let OsTemplate { storage, file, .. } = template;
    let text = if fault.text.contains("no such template") {
        format!(
            "`{file}` is neither on storage `{storage}` nor in Proxmox's list: `pveam available` on a \
             node shows the list; set osTemplateUrl to download another archive"
        )
    } else if fault.text.contains("content-type 'vztmpl'")
        || fault.text.contains("content type 'vztmpl'")
    {
        format!(
            "storage `{storage}` takes no container templates: add `vztmpl` to its content \
             (Datacenter, Storage), or name another storage in osTemplate"
        )
    } else {
        return fault;
    };
    Fault { text, culprit: Culprit::Template, kind: fault.kind }
}
