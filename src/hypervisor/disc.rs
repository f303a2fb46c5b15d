//! An agent's disc image on its way to its guest, and away again: uploaded to a storage of the
//! guest's node, put into the drive of Proxmox's own cloud-init image, and removed at the end.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use drover_model::fault::{Culprit, Fault, FaultKind};
use drover_model::id::NodeName;
use drover_model::ports::{ConfigureCall, ImageSight, TaskEnd, VmRef};
use drover_model::seed::{file_name, is_image, owner, volume};
use proxmox_client::refusal::bounded;
use proxmox_client::transport::File;
use proxmox_client::types::VmConfig;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::client::{Client, Failure, task};
use crate::configure::{self, is_drive};
use crate::nics::after;
use crate::proxmox::Cloud;
use crate::sight::passes;
use crate::texts;

/// How long the removal of one image is waited for.
const REMOVE_LIMIT: Duration = Duration::from_secs(60);
/// How often an image is looked for whose upload nobody knows the end of, and the time between.
const LOOKS: u32 = 3;
const LOOK_PAUSE: Duration = Duration::from_secs(1);
/// Drives an image may be put into where there is no cloud-init drive, the usual one first.
const DRIVES: [&str; 10] =
    ["ide2", "ide3", "ide0", "ide1", "sata5", "sata4", "sata3", "sata2", "sata1", "sata0"];
/// What a login needs to upload an image, and to remove it.
const RIGHTS: [&str; 2] = ["Datastore.AllocateTemplate", "Datastore.Allocate"];

/// A disc image that is to be in a guest's drive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disc {
    /// Its volume.
    pub volume: String,
    key: String,
}

impl Disc {
    /// What is to be written for it; nothing where it is in its drive already.
    pub fn change(&self, config: &VmConfig) -> Option<(String, String)> {
        let there = config.get(&self.key).is_some_and(|value| file_of(value) == self.volume);
        (!there).then(|| (self.key.clone(), format!("{},media=cdrom", self.volume)))
    }

    /// The cloud-init image whose drive it takes.
    pub fn replaced<'a>(&self, config: &'a VmConfig) -> Option<&'a str> {
        config.get(&self.key).map(file_of).filter(|file| file.contains("cloudinit"))
    }
}

fn file_of(drive: &str) -> &str {
    drive.split(',').next().unwrap_or_default()
}

/// The drive of Proxmox's own cloud-init image.
pub fn drive(config: &VmConfig) -> Option<&str> {
    let mut drives = config.iter().filter(|(key, _)| is_drive(key) && !key.starts_with("unused"));
    drives.find(|(_, value)| file_of(value).contains("cloudinit")).map(|(key, _)| key)
}

/// Where an image goes: the drive it is in, that of cloud-init, or a free one.
fn place(config: &VmConfig, volume: &str) -> Option<String> {
    let mut drives = config.iter().filter(|(key, _)| is_drive(key));
    let own = drives.find(|(_, value)| file_of(value) == volume).map(|(key, _)| key);
    let free = || DRIVES.into_iter().find(|key| config.get(key).is_none());
    own.or_else(|| drive(config)).or_else(free).map(str::to_owned)
}

/// What became of a disc image that a guest is to have.
pub enum Sent {
    /// It is on its storage, where there is to be one.
    Stored(Option<Disc>),
    /// It was refused: this try has stored nothing.
    Refused(Fault),
}

fn broken(text: impl Into<String>) -> Failure {
    Fault::new(FaultKind::Broken, Culprit::Template, text).into()
}

impl Cloud {
    /// The disc image of a guest, uploaded; none where its template has no use for one.
    pub(super) async fn disc(
        &self,
        call: &ConfigureCall,
        config: &VmConfig,
    ) -> Result<Sent, Failure> {
        let Some(spec) = &call.spec.cloud_init.seed else { return Ok(Sent::Stored(None)) };
        let volume = volume(&spec.storage, &call.marks);
        let Some(key) = place(config, &volume) else {
            return Err(broken("no drive of the guest is free for the disc image of cloud-init"));
        };
        let disc = Disc { volume, key };
        // It is put into its drive once it is uploaded, and never before.
        if disc.change(config).is_none() {
            return Ok(Sent::Stored(Some(disc)));
        }
        let written = after(config, &configure::plan(config, call).changes);
        let node = call.vm.node.as_str();
        let texts = texts::texts(&call.spec, &call.marks, node, &written);
        let texts = texts.map_err(|error| broken(error.to_string()))?;
        let Some(texts) = texts else { return Ok(Sent::Stored(None)) };
        if let Err(error) = self.may_have_discs(&spec.storage).await {
            let fault = self.client.fault(&error);
            return if passes(&fault.kind) { Err(error) } else { Ok(Sent::Refused(fault)) };
        }
        let refused = self.upload(call, &spec.storage, &disc.volume, texts.image().into()).await?;
        Ok(refused.map_or(Sent::Stored(Some(disc)), Sent::Refused))
    }

    /// Uploads an image; a refusal comes back where nothing was begun, so that nothing is stored.
    async fn upload(
        &self,
        call: &ConfigureCall,
        storage: &str,
        volume: &str,
        image: Bytes,
    ) -> Result<Option<Fault>, Failure> {
        let node = &call.vm.node;
        let size = image.len() as u64;
        let sha256: String =
            Sha256::digest(&image).iter().map(|byte| format!("{byte:02x}")).collect();
        let name = file_name(&call.marks.installation, &call.marks.agent);
        let file = File { name, content: image };
        let begun = self.client.upload_iso(node.as_str(), storage, file, &sha256).await;
        let fault = match begun {
            Ok(upid) => match self.await_task(&task(upid), call.spec.limits.operation).await {
                TaskEnd::Done { .. } => return Ok(None),
                TaskEnd::Failed(fault) => fault,
                TaskEnd::Unknown(text) => {
                    Fault::new(FaultKind::UnknownOutcome, Culprit::Guest, text)
                }
            },
            Err(error) => {
                let fault = self.client.fault(&error);
                // The copy is the task's: what was answered without one has come to nothing.
                if !passes(&fault.kind) {
                    return Ok(Some(self.explained(fault, node, storage).await));
                }
                fault
            }
        };
        if fault.kind == FaultKind::UnknownOutcome {
            // What is under way may still be copied; another upload would put the same there.
            for _ in 0..LOOKS {
                let there = self.client.iso_images(node.as_str(), storage).await?;
                if there.iter().any(|one| one.volid == volume && one.size == Some(size)) {
                    return Ok(None);
                }
                tokio::time::sleep(LOOK_PAUSE).await;
            }
        }
        Err(self.explained(fault, node, storage).await.into())
    }

    /// Whether images may be uploaded and removed again, asked once: one that could not be removed
    /// would stay for ever.
    async fn may_have_discs(&self, storage: &str) -> Result<(), Failure> {
        let known = || self.discs.lock();
        if known().contains(storage) {
            return Ok(());
        }
        let path = format!("/storage/{storage}");
        let rights = self.client.permissions(Some(&path)).await?;
        let held = rights.get(&path);
        for right in RIGHTS {
            if held.and_then(|held| held.get(right)).is_none_or(Value::is_null) {
                let text = format!(
                    "a disc image for cloud-init needs the privilege `{right}` on `{path}`, to be \
                     uploaded and removed again: give `{}` a role with it there (a token with \
                     separated privileges needs it beside its user), or name another storage as \
                     cloudInitIsoStorage",
                    self.client.login()
                );
                let (privilege, path) = (Some(right.to_owned()), Some(path));
                let kind = FaultKind::Denied { privilege, path };
                return Err(Fault::new(kind, Culprit::Template, text).into());
            }
        }
        known().insert(storage.to_owned());
        Ok(())
    }

    /// A failed upload is the template's fault, which names the storage; it says what to do where
    /// the storage takes no images.
    async fn explained(&self, fault: Fault, node: &NodeName, storage: &str) -> Fault {
        if passes(&fault.kind) {
            return fault;
        }
        let mut text = fault.text;
        if text.contains("does not support 'iso' content") {
            let found = self.client.storage(node.as_str(), storage).await.ok().flatten();
            let has = found.and_then(|found| found.content).unwrap_or_default();
            let all: Vec<&str> =
                has.split(',').filter(|one| !one.is_empty()).chain(["iso"]).collect();
            text = format!(
                "storage `{storage}` takes no ISO images, in which cloud-init is told its user \
                 data: `pvesm set {storage} --content {}` on a node, or name another one as \
                 cloudInitIsoStorage",
                bounded(&all.join(","))
            );
        }
        Fault { text, culprit: Culprit::Template, kind: fault.kind }
    }

    /// Removes disc images; gives those that stay.
    pub(super) async fn remove_images(
        &self,
        vm: &VmRef,
        ours: &[String],
    ) -> Result<Vec<String>, Failure> {
        let mut left = Vec::new();
        for volume in ours.iter().filter(|volume| is_image(volume)) {
            let image = ImageSight { node: vm.node.clone(), volume: volume.clone() };
            let Err(error) = self.remove_image(&image).await else { continue };
            let fault = self.client.fault(&error);
            if passes(&fault.kind) {
                return Err(error);
            }
            tracing::warn!(vmid = vm.vmid.0, volume, error = %fault, "disc image stays behind");
            left.push(volume.clone());
        }
        Ok(left)
    }

    /// Removes a disc image of drover's and no other file.
    pub(super) async fn remove_image(&self, image: &ImageSight) -> Result<(), Failure> {
        if owner(&image.volume).is_none() {
            return Err(broken(format!("`{}` is no disc image of drover's", image.volume)));
        }
        let upid = self.client.free_volume(image.node.as_str(), &image.volume).await?;
        match self.await_task(&task(upid), REMOVE_LIMIT).await {
            TaskEnd::Done { .. } => Ok(()),
            TaskEnd::Failed(fault) => Err(fault.into()),
            TaskEnd::Unknown(text) => {
                Err(Fault::new(FaultKind::UnknownOutcome, Culprit::Guest, text).into())
            }
        }
    }
}

/// The disc images of drover's on these storages, whoever's they are.
pub async fn list(
    client: &Client,
    storages: &BTreeSet<String>,
) -> Result<Vec<ImageSight>, Failure> {
    let (mut found, mut seen) = (Vec::new(), BTreeSet::new());
    for row in client.storages_everywhere().await? {
        let (Some(node), Some(storage)) = (row.node, row.storage) else { continue };
        if !storages.contains(&storage) || row.status.as_deref() != Some("available") {
            continue;
        }
        let node = NodeName::new(node);
        if !seen.insert(storage.clone()) && row.shared {
            continue;
        }
        let images = client.iso_images(node.as_str(), &storage).await?;
        let ours = images.into_iter().map(|one| one.volid).filter(|volid| owner(volid).is_some());
        found.extend(ours.map(|volume| ImageSight { node: node.clone(), volume }));
    }
    Ok(found)
}

#[cfg(test)]
mod tests;
