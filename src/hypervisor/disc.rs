//! An agent's cloud-init disc image: uploaded to a storage of the guest's node, put into the drive
//! of Proxmox's own cloud-init image, and removed at the end.
//!
//! ```text
//! check privileges (once per storage) ──> upload ──> drive of the guest ──> ... ──> remove
//!         │ missing                         │ refused         (in configure.rs)
//!         v                                 v
//!      Refused: nothing is stored, and the agent fails with the template's fault
//! ```
//!
//! Before the first upload to a storage, drover checks that the login may also remove images there,
//! because an image that cannot be removed would stay for ever. An upload with an unknown outcome
//! is looked for before it counts as failed. Images carry the installation and the agent in their
//! names, so leftovers of dead agents are found ([`list_images`]).

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use drover_model::fault::{Culprit, Fault, FaultKind};
use drover_model::id::NodeName;
use drover_model::ports::{ConfigureCall, ImageObservation, TaskEnd, VmRef};
use drover_model::seed::{file_name, is_image, owner, volume};
use proxmox_client::refusal::bounded;
use proxmox_client::transport::UploadFile;
use proxmox_client::types::VmConfig;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::client::{Client, Failure, task};
use crate::cloud_init;
use crate::configure::{self, is_drive};
use crate::nics::after;
use crate::observe::is_transient;
use crate::proxmox::Cloud;

/// How long drover waits for the removal of one image.
const IMAGE_REMOVAL_LIMIT: Duration = Duration::from_secs(60);
/// How many times drover looks for an image whose upload has an unknown outcome, and the time in
/// between.
const UPLOAD_CHECKS: u32 = 3;
const UPLOAD_CHECK_PAUSE: Duration = Duration::from_secs(1);
/// The drives for a disc in a machine of another type than q35, the usual one first: every kernel reads
/// them.
const IDE_FIRST: [&str; 10] =
    ["ide2", "ide3", "ide0", "ide1", "sata5", "sata4", "sata3", "sata2", "sata1", "sata0"];
/// The drives for a disc in a q35 with VirtIO SCSI.
const SCSI_FIRST: [&str; 8] =
    ["scsi1", "scsi2", "scsi3", "scsi4", "scsi5", "scsi6", "scsi7", "scsi8"];
/// The drives for a disc in any other q35, whose IDE channels take one device each.
const Q35_IDE: [&str; 8] = ["ide2", "ide0", "sata5", "sata4", "sata3", "sata2", "sata1", "sata0"];
/// The privileges to upload and to remove an image.
const IMAGE_PRIVILEGES: [&str; 2] = ["Datastore.AllocateTemplate", "Datastore.Allocate"];

/// A disc image for a guest's drive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DiscImage {
    pub volume: String,
    key: String,
}

impl DiscImage {
    /// The setting that puts the image into its drive; none when it is there already.
    pub(crate) fn change(&self, config: &VmConfig) -> Option<(String, String)> {
        let there = config.get(&self.key).is_some_and(|value| file_of(value) == self.volume);
        (!there).then(|| (self.key.clone(), format!("{},media=cdrom", self.volume)))
    }

    /// The cloud-init image that it replaces in its drive.
    pub(crate) fn replaced<'a>(&self, config: &'a VmConfig) -> Option<&'a str> {
        config.get(&self.key).map(file_of).filter(|file| file.contains("cloudinit"))
    }
}

fn file_of(drive: &str) -> &str {
    drive.split(',').next().unwrap_or_default()
}

/// The drive with Proxmox's own cloud-init image.
pub(crate) fn cloud_init_drive(config: &VmConfig) -> Option<&str> {
    let mut drives = config.iter().filter(|(key, _)| is_drive(key) && !key.starts_with("unused"));
    drives.find(|(_, value)| file_of(value).contains("cloudinit")).map(|(key, _)| key)
}

/// A free drive for a disc that the system of the guest must be able to read; none where all are taken.
///
/// The IDE and SATA drives of a q35 are on an AHCI controller, and kernels made for clouds have no driver
/// for that: `CONFIG_SATA_AHCI` is not set in Debian's `linux-image-cloud-amd64`, which its
/// `genericcloud` images have. They read SCSI, as their own disk.
pub(crate) fn free_drive(config: &VmConfig) -> Option<&'static str> {
    let starts =
        |key: &str, with: &str| config.get(key).is_some_and(|value| value.starts_with(with));
    let is_q35 = config.get("machine").is_some_and(|machine| machine.contains("q35"));
    // An installed Windows has the driver of VirtIO only where somebody put it in.
    let reads_scsi = starts("scsihw", "virtio-scsi") && !starts("ostype", "w");
    let drives: &[&'static str] = match (is_q35, reads_scsi) {
        (false, _) => &IDE_FIRST,
        (true, true) => &SCSI_FIRST,
        (true, false) => &Q35_IDE,
    };
    drives.iter().copied().find(|key| config.get(key).is_none())
}

/// The drive that a template without a cloud-init drive is to get one in, for people.
pub fn cloud_init_place(config: &VmConfig) -> &'static str {
    free_drive(config).unwrap_or("ide2")
}

/// The drive for an image: the one it is in, that of cloud-init or of the machine that the guest is a
/// copy of, or a free one. Two such discs in one guest would leave it to chance which one it reads.
fn drive_for(config: &VmConfig, volume: &str) -> Option<String> {
    let holding = |such: &dyn Fn(&str) -> bool| {
        let mut drives = config.iter().filter(|(key, _)| is_drive(key));
        drives.find(|(_, value)| such(file_of(value))).map(|(key, _)| key)
    };
    let own = holding(&|file| file == volume);
    let copied = || holding(&|file| owner(file).is_some());
    let free = || free_drive(config);
    own.or_else(|| cloud_init_drive(config)).or_else(copied).or_else(free).map(str::to_owned)
}

/// The outcome of bringing a disc image to its storage.
pub(crate) enum ImageUpload {
    /// The image is on its storage; none if the template needs no image.
    Stored(Option<DiscImage>),
    /// Proxmox refused it: this attempt stored nothing.
    Refused(Fault),
}

fn broken(text: impl Into<String>) -> Failure {
    Fault::new(FaultKind::Broken, Culprit::Template, text).into()
}

impl Cloud {
    /// Uploads a guest's disc image, unless its template needs none.
    pub(super) async fn disc(
        &self,
        call: &ConfigureCall,
        config: &VmConfig,
    ) -> Result<ImageUpload, Failure> {
        let Some(spec) = &call.spec.cloud_init.seed else { return Ok(ImageUpload::Stored(None)) };
        let volume = volume(&spec.storage, &call.marks);
        let Some(key) = drive_for(config, &volume) else {
            return Err(broken(format!(
                "guest `{}` has no free drive for its cloud-init disc image: free one of ide0 to \
                 ide3 in its template, or one of scsi1 to scsi8 where that is a q35 machine",
                call.vm.vmid
            )));
        };
        let disc = DiscImage { volume, key };
        // The image is put into the drive only after its upload, so it is uploaded already.
        if disc.change(config).is_none() {
            return Ok(ImageUpload::Stored(Some(disc)));
        }
        let written = after(config, &configure::plan(config, call).changes);
        let node = call.vm.node.as_str();
        let texts = cloud_init::texts(&call.spec, &call.marks, node, &written);
        let texts = texts.map_err(|error| broken(error.to_string()))?;
        let Some(texts) = texts else { return Ok(ImageUpload::Stored(None)) };
        if let Err(error) = self.check_image_privileges(&spec.storage).await {
            let fault = self.client.fault(&error);
            return if is_transient(&fault.kind) {
                Err(error)
            } else {
                Ok(ImageUpload::Refused(fault))
            };
        }
        let refused = self.upload(call, &spec.storage, &disc.volume, texts.image().into()).await?;
        Ok(refused.map_or(ImageUpload::Stored(Some(disc)), ImageUpload::Refused))
    }

    /// Uploads an image. A refusal is returned when the upload did not start, so that nothing is
    /// stored.
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
        let file = UploadFile { name, content: image.into(), limit: None };
        let started = self.client.upload_iso(node.as_str(), storage, file, &sha256).await;
        let fault = match started {
            Ok(upid) => match self.await_task(&task(upid), call.spec.limits.operation).await {
                TaskEnd::Done { .. } => return Ok(None),
                TaskEnd::Failed(fault) => fault,
                TaskEnd::Unknown(text) => {
                    Fault::new(FaultKind::UnknownOutcome, Culprit::Guest, text)
                }
            },
            Err(error) => {
                let fault = self.client.fault(&error);
                // A task makes the copy: a refusal without a task has stored nothing.
                if !is_transient(&fault.kind) {
                    return Ok(Some(self.upload_fault(fault, node, storage).await));
                }
                fault
            }
        };
        if fault.kind == FaultKind::UnknownOutcome {
            // The upload may still be running; another one would store the same image.
            for _ in 0..UPLOAD_CHECKS {
                let there = self.client.iso_images(node.as_str(), storage).await?;
                if there.iter().any(|one| one.volid == volume && one.size == Some(size)) {
                    return Ok(None);
                }
                tokio::time::sleep(UPLOAD_CHECK_PAUSE).await;
            }
        }
        Err(self.upload_fault(fault, node, storage).await.into())
    }

    /// Checks once per storage whether images may be uploaded and removed: an image that cannot be
    /// removed would stay for ever.
    async fn check_image_privileges(&self, storage: &str) -> Result<(), Failure> {
        let checked = || self.image_storages.lock();
        if checked().contains(storage) {
            return Ok(());
        }
        let path = format!("/storage/{storage}");
        let rights = self.client.permissions(Some(&path)).await?;
        let held = rights.get(&path);
        for right in IMAGE_PRIVILEGES {
            if held.and_then(|held| held.get(right)).is_none_or(Value::is_null) {
                let text = format!(
                    "to upload and remove cloud-init disc images needs the privilege `{right}` on \
                     `{path}`: give `{}` a role with it there (with privilege separation, both the \
                     token and its user need it), or set `cloudInitIsoStorage` to another storage",
                    self.client.login()
                );
                let (privilege, path) = (Some(right.to_owned()), Some(path));
                let kind = FaultKind::Denied { privilege, path };
                return Err(Fault::new(kind, Culprit::Template, text).into());
            }
        }
        checked().insert(storage.to_owned());
        Ok(())
    }

    /// Charges a failed upload to the template, which names the storage, and says what to do when
    /// the storage takes no images.
    async fn upload_fault(&self, fault: Fault, node: &NodeName, storage: &str) -> Fault {
        if is_transient(&fault.kind) {
            return fault;
        }
        let mut text = fault.text;
        if text.contains("does not support 'iso' content") {
            let found = self.client.storage(node.as_str(), storage).await.ok().flatten();
            let has = found.and_then(|found| found.content).unwrap_or_default();
            let all: Vec<&str> =
                has.split(',').filter(|one| !one.is_empty()).chain(["iso"]).collect();
            text = format!(
                "storage `{storage}` takes no ISO images, which carry the user data for \
                 cloud-init: run `pvesm set {storage} --content {}` on a node, or set \
                 `cloudInitIsoStorage` to another storage",
                bounded(&all.join(","))
            );
        }
        Fault { text, culprit: Culprit::Template, kind: fault.kind }
    }

    /// Removes disc images; returns those that could not be removed.
    pub(super) async fn remove_images(
        &self,
        vm: &VmRef,
        ours: &[String],
    ) -> Result<Vec<String>, Failure> {
        let mut left = Vec::new();
        for volume in ours.iter().filter(|volume| is_image(volume)) {
            let image = ImageObservation { node: vm.node.clone(), volume: volume.clone() };
            let Err(error) = self.remove_image(&image).await else { continue };
            let fault = self.client.fault(&error);
            if is_transient(&fault.kind) {
                return Err(error);
            }
            tracing::warn!(vmid = vm.vmid.0, volume, error = %fault, "disc image was not removed");
            left.push(volume.clone());
        }
        Ok(left)
    }

    /// Removes one disc image of drover's; refuses any other file.
    pub(super) async fn remove_image(&self, image: &ImageObservation) -> Result<(), Failure> {
        if owner(&image.volume).is_none() {
            return Err(broken(format!(
                "`{}` is not a disc image of drover: drover does not remove it",
                image.volume
            )));
        }
        let upid = self.client.free_volume(image.node.as_str(), &image.volume).await?;
        match self.await_task(&task(upid), IMAGE_REMOVAL_LIMIT).await {
            TaskEnd::Done { .. } => Ok(()),
            TaskEnd::Failed(fault) => Err(fault.into()),
            TaskEnd::Unknown(text) => {
                Err(Fault::new(FaultKind::UnknownOutcome, Culprit::Guest, text).into())
            }
        }
    }
}

/// All disc images of drover's on these storages, of any agent.
pub(crate) async fn list_images(
    client: &Client,
    storages: &BTreeSet<String>,
) -> Result<Vec<ImageObservation>, Failure> {
    let (mut found, mut listed) = (Vec::new(), BTreeSet::new());
    for row in client.all_storages().await? {
        let (Some(node), Some(storage)) = (row.node, row.storage) else { continue };
        if !storages.contains(&storage) || row.status.as_deref() != Some("available") {
            continue;
        }
        let node = NodeName::new(node);
        if !listed.insert(storage.clone()) && row.shared {
            continue;
        }
        let images = client.iso_images(node.as_str(), &storage).await?;
        let ours = images.into_iter().map(|one| one.volid).filter(|volid| owner(volid).is_some());
        found.extend(ours.map(|volume| ImageObservation { node: node.clone(), volume }));
    }
    Ok(found)
}

#[cfg(test)]
mod tests;
