#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::sync::Arc;

use drover_model::container::GuestType;
use drover_model::id::{CloudId, VmId};
use drover_model::ports::{Configured, Hypervisor};
use drover_model::seed::SeedSpec;
use serde_json::json;

use super::*;
use crate::proxmox::{Proxmox, TASK_POLL_INTERVAL};
use crate::testing::{Script, Step, connection, marks, spec, token};

const VOLUME: &str = "local:iso/drover-7k2m9qxw-4f8z1c3px9t2vkab.iso";

fn call() -> ConfigureCall {
    let (cloud, node) = (CloudId::new("primary"), NodeName::new("pve1"));
    let vm = VmRef { cloud, node, vmid: VmId(101), guest: GuestType::Vm };
    let mut spec = spec();
    spec.disk_gb = None;
    let user_data = Some("#!/bin/sh\necho ${hostname}\n".to_owned());
    let storage = "local".to_owned();
    spec.cloud_init.seed = Some(SeedSpec { storage, user_data, ..SeedSpec::default() });
    ConfigureCall { vm, marks: marks(), spec }
}

fn guest(drive: &str) -> Value {
    json!({
        "name": marks().name("ci"), "description": marks().describe("x"), "digest": "abc",
        "ide2": drive, "scsi0": "store:101/vm-101-disk-0.qcow2,size=10G",
        "net0": "virtio=BC:24:11:00:00:01,bridge=vmbr0",
    })
}

const OWN: &str = "store:101/vm-101-cloudinit.qcow2,media=cdrom";

/// A cluster where the login has these privileges, an upload ends like this, and the guest has this
/// drive.
fn cluster(rights: Value, upload: fn() -> Step, drive: &'static str) -> Script {
    Script::new(move |asked| match asked.split([' ', '?']).take(2).collect::<Vec<_>>()[..] {
        ["GET", "/nodes/pve1/qemu/101/config"] => Step::Data(guest(drive)),
        ["GET", "/access/permissions"] => Step::Data(json!({ "/storage/local": rights })),
        ["POST", "/nodes/pve1/storage/local/upload"] => upload(),
        ["GET", "/nodes/pve1/storage/local/content"] => Step::Data(json!([])),
        ["GET", "/nodes/pve1/storage"] => {
            Step::Data(json!([{"storage": "local", "content": "backup,vztmpl"}]))
        }
        ["GET", "/cluster/tasks"] => Step::Data(json!([])),
        ["GET", path] if path.ends_with("/status") => {
            Step::Data(json!({"status": "stopped", "exitstatus": "OK"}))
        }
        ["GET", path] if path.contains("/tasks") => Step::Data(json!([])),
        ["PUT", _] => Step::Data(json!(null)),
        _ => panic!("{asked}"),
    })
}

fn uploaded() -> Step {
    Step::Data(json!("UPID:pve1:00000001:00000001:00000001:imgcopy::ci@pve!drover:"))
}

fn all() -> Value {
    json!({"Datastore.AllocateTemplate": 1, "Datastore.Allocate": 1})
}

async fn configure(script: &Script) -> Result<Configured, Fault> {
    let port = Proxmox::new(None, Arc::new(script.clone()), TASK_POLL_INTERVAL);
    port.set_cloud(CloudId::new("primary"), &connection(&["other", "pve1"], token())).unwrap();
    port.configure(call()).await
}

// Invariant: the image goes to the guest's node and into cloud-init's drive, in the same write as
// everything else.

#[tokio::test(start_paused = true)]
async fn an_image_takes_the_drive_of_cloud_init_in_the_same_write() {
    let script = cluster(all(), uploaded, OWN);
    let done = configure(&script).await.unwrap();
    let disk = "store:101/vm-101-disk-0.qcow2".to_owned();
    assert_eq!(done.volumes, [disk, VOLUME.to_owned()], "what it replaced is no volume any more");
    let seen = script.seen();
    let upload = seen.iter().find(|line| line.contains("/upload")).unwrap();
    assert!(
        upload.starts_with(
            "pve1 POST /nodes/pve1/storage/local/upload content=iso checksum-algorithm=sha256 \
             checksum="
        ),
        "{upload}"
    );
    let writes: Vec<&String> = seen.iter().filter(|line| line.contains(" PUT ")).collect();
    let [write] = writes[..] else { panic!("{seen:?}") };
    assert!(write.contains(&format!(" ide2={VOLUME},media=cdrom ")), "{write}");
}

#[tokio::test(start_paused = true)]
async fn an_image_that_is_in_its_drive_is_not_uploaded_again() {
    let script = cluster(all(), uploaded, const_drive());
    let done = configure(&script).await.unwrap();
    assert!(done.volumes.contains(&VOLUME.to_owned()));
    assert!(!script.seen().iter().any(|line| line.contains("/upload")), "{:?}", script.seen());
}

fn const_drive() -> &'static str {
    "local:iso/drover-7k2m9qxw-4f8z1c3px9t2vkab.iso,media=cdrom,size=60K"
}

#[test]
fn without_a_cloud_init_drive_a_free_one_is_taken() {
    let config = VmConfig::new([("ide2", "local:iso/tools.iso,media=cdrom"), ("scsi0", "x")]);
    assert_eq!(drive_for(&config, VOLUME).as_deref(), Some("ide3"));
    let full = VmConfig::new(IDE_FIRST.map(|key| (key, "local:iso/tools.iso,media=cdrom")));
    assert_eq!(drive_for(&full, VOLUME), None);
}

// Invariant: a kernel made for clouds reads the disc: in a q35 it has no driver for IDE and SATA drives.

#[test]
fn a_q35_gets_its_disc_on_scsi_where_its_system_reads_that() {
    let q35 = |more: &[(&str, &str)]| {
        let config = [("machine", "q35"), ("scsi0", "thin:vm-1-disk-0")].into_iter();
        VmConfig::new(config.chain(more.iter().copied()).collect::<Vec<_>>())
    };
    let virtio = ("scsihw", "virtio-scsi-pci");
    assert_eq!(free_drive(&q35(&[virtio])), Some("scsi1"));
    assert_eq!(free_drive(&q35(&[virtio, ("scsi1", "thin:vm-1-disk-1")])), Some("scsi2"));
    assert_eq!(free_drive(&q35(&[virtio, ("ostype", "win11")])), Some("ide2"));
    assert_eq!(free_drive(&q35(&[])), Some("ide2"), "the disk's controller is another one");
    let taken = q35(&[("ide2", "local:iso/tools.iso,media=cdrom")]);
    assert_eq!(free_drive(&taken), Some("ide0"), "one device on each channel");
}

// Invariant: a missing privilege is named before anything is uploaded that could not be removed.

#[tokio::test(start_paused = true)]
async fn rights_that_are_missing_are_named() {
    for (held, missing) in [
        (json!({}), "Datastore.AllocateTemplate"),
        (json!({"Datastore.AllocateTemplate": 1}), "Datastore.Allocate"),
    ] {
        let script = cluster(held, uploaded, OWN);
        let fault = configure(&script).await.unwrap().image_refused.unwrap();
        let path = Some("/storage/local".to_owned());
        let privilege = Some(missing.to_owned());
        assert_eq!(fault.kind, FaultKind::Denied { privilege, path });
        assert!(fault.text.contains(&format!("`{missing}` on `/storage/local`")), "{}", fault.text);
        assert_eq!(fault.culprit, Culprit::Template);
        assert!(!script.seen().iter().any(|line| line.contains("/upload")));
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_upload_is_the_templates_fault_and_says_what_to_do() {
    let no_iso = || Step::Refuse(500, "storage 'local' does not support 'iso' content");
    let fault = configure(&cluster(all(), no_iso, OWN)).await.unwrap().image_refused.unwrap();
    assert!(fault.text.contains("`pvesm set local --content backup,vztmpl,iso`"), "{}", fault.text);
    assert_eq!(fault.culprit, Culprit::Template);
    let denied = || {
        Step::Refuse(403, "Permission check failed (/storage/local, Datastore.AllocateTemplate)")
    };
    let fault = configure(&cluster(all(), denied, OWN)).await.unwrap().image_refused.unwrap();
    assert!(fault.text.contains("`Datastore.AllocateTemplate` on `/storage/local`"));
    assert_eq!(fault.culprit, Culprit::Template);
}

#[tokio::test(start_paused = true)]
async fn an_upload_without_an_answer_that_is_not_found_is_of_unknown_outcome() {
    let script = cluster(all(), || Step::Closed, OWN);
    let fault = configure(&script).await.unwrap_err();
    assert_eq!(fault.kind, FaultKind::UnknownOutcome);
    let seen = script.seen();
    let count = |part: &str| seen.iter().filter(|line| line.contains(part)).count();
    assert_eq!((count("/upload"), count("/content content=iso")), (1, 3));
}

// Invariant: only drover's own images are listed and removed.

#[tokio::test(start_paused = true)]
async fn a_shared_storage_is_listed_once_and_foreign_files_never() {
    let script = Script::new(|asked| match asked {
        "GET /cluster/resources type=storage" => Step::Data(json!([
            {"type": "storage", "storage": "local", "node": "pve1", "status": "available"},
            {"type": "storage", "storage": "local", "node": "pve2", "status": "unknown"},
            {"type": "storage", "storage": "nfs", "node": "pve1", "status": "available", "shared": 1},
            {"type": "storage", "storage": "nfs", "node": "pve2", "status": "available", "shared": 1},
            {"type": "storage", "storage": "other", "node": "pve1", "status": "available"},
        ])),
        "GET /nodes/pve1/storage/local/content content=iso" => {
            Step::Data(json!([{"volid": VOLUME}, {"volid": "local:iso/debian.iso"}]))
        }
        "GET /nodes/pve1/storage/nfs/content content=iso" => Step::Data(json!([])),
        asked => panic!("{asked}"),
    });
    let port = Proxmox::new(None, Arc::new(script.clone()), TASK_POLL_INTERVAL);
    let cloud = CloudId::new("primary");
    port.set_cloud(cloud.clone(), &connection(&["pve1"], token())).unwrap();
    let storages = BTreeSet::from(["local".to_owned(), "nfs".to_owned()]);
    let image = ImageObservation { node: NodeName::new("pve1"), volume: VOLUME.into() };
    assert_eq!(port.images(&cloud, &storages).await.unwrap(), std::slice::from_ref(&image));
    let before = script.seen().len();
    let other = ImageObservation { volume: "local:iso/debian.iso".into(), ..image };
    assert_eq!(port.remove_image(&cloud, &other).await.unwrap_err().kind, FaultKind::Broken);
    assert_eq!(script.seen().len(), before, "nothing was asked for");
}
