//! Images: brings a disk image to a node, makes a guest of it, turns a built guest into a template,
//! and finds the versions on a cluster with the volumes that share their disks.
//!
//! ```text
//! pull (download-url) ──> create (import-from) ──> ... built over SSH ... ──> finish ──> seal
//! ```
//!
//! Nothing is written to a guest whose marks are not exactly the build's. A version carries the
//! marks of an image from [`Cloud::seal`] on, and not before it is proved.

use std::collections::BTreeSet;

use drover_model::fault::{Culprit, Fault, FaultKind};
use drover_model::id::{NodeName, Upid, VmId};
use drover_model::image::{Bios, Downloader, ImageVersion};
use drover_model::marks::{self, Kind, Marks, Reading};
use drover_model::ports::{
    CreateCall, EjectCall, FileKind, FinishCall, ImageObservation, Listed, NewDisk, PullCall,
    SealCall, VmRef,
};
use drover_model::seed::owner;
use proxmox_client::Params;
use proxmox_client::types::VmConfig;

use crate::client::{Client, Failure, task};
use crate::configure::{self, has_agent, has_cloud_init, is_drive, primary_disk, split_tags};
use crate::disc::{cloud_init_drive, free_drive};
use crate::download::Downloads;
use crate::fleet;
use crate::list::LIST_SHARED_FOR;
use crate::observe::listed;
use crate::proxmox::Cloud;
use crate::template_image::{created, storages};

/// The drive of an installer: every firmware and every installer reads it. The disc with the answers has
/// another one ([`free_drive`]).
const INSTALLER_DRIVE: &str = "ide0";
/// What a login needs on a template to give it name, description and tags.
const SEAL_PRIVILEGE: &str = "VM.Config.Options";
/// What the build set for cloud-init and no clone begins with.
const OF_THE_BUILD: [&str; 6] =
    ["ciuser", "cicustom", "ciupgrade", "nameserver", "searchdomain", "sshkeys"];

fn params<const N: usize>(pairs: [(&str, String); N]) -> Params {
    pairs.map(|(key, value)| (key.to_owned(), value)).into()
}

/// Starts to bring a source to a storage. None where it is there already.
pub(crate) async fn pull(
    client: &Client,
    call: &PullCall,
    downloads: Option<&Downloads>,
) -> Result<Option<Upid>, Failure> {
    let started = match &call.by {
        Downloader::Node => download_url(client, call).await.map(Some),
        Downloader::Drover(route) => match downloads {
            Some(downloads) => downloads.pull(client, call, route).await,
            None => {
                let text = "this drover downloads no images: it has no folder for them";
                return Err(Fault::new(FaultKind::Broken, Culprit::Template, text).into());
            }
        },
    };
    started.map_err(|error| pull_fault(client.fault(&error), call).into())
}

async fn download_url(client: &Client, call: &PullCall) -> Result<Upid, Failure> {
    let how = params([
        ("content", call.kind.word().to_owned()),
        ("url", call.url.clone()),
        ("filename", call.file.clone()),
        ("checksum", call.checksum.clone()),
        ("checksum-algorithm", call.algorithm.clone()),
    ]);
    Ok(task(client.download_url(call.node.as_str(), &call.storage, how).await?))
}

/// Says what to do where the storage takes no disk images to import.
fn pull_fault(fault: Fault, call: &PullCall) -> Fault {
    let (storage, word) = (&call.storage, call.kind.word());
    let what = match call.kind {
        FileKind::DiskImage => "disk images to import",
        FileKind::Iso => "ISO images",
    };
    let text = if fault.text.contains("does not have a value in the enumeration") {
        format!("this Proxmox VE takes no {what}: that needs 8.4 or newer")
    } else if fault.text.contains(&format!("content-type '{word}'"))
        || fault.text.contains(&format!("does not support '{word}' content"))
    {
        format!(
            "storage `{storage}` takes no {what}: add `{word}` to its content (Datacenter, Storage, \
             or `pvesm set {storage} --content …,{word}` on a node), or name another with \
             `importStorage`"
        )
    } else {
        return fault;
    };
    Fault { text, culprit: Culprit::Template, kind: fault.kind }
}

/// The parameters of a guest made of a disk image. Its marks are part of the call itself (book:
/// safety, rule 2).
fn create_params(call: &CreateCall) -> Params {
    let (hardware, spec, storage) = (&call.hardware, &call.spec, &call.storage);
    let vlan = hardware.vlan.map(|vlan| format!(",tag={vlan}")).unwrap_or_default();
    let mut params = params([
        ("vmid", call.marks.vmid.to_string()),
        ("name", call.marks.name(&spec.name_prefix)),
        ("description", call.marks.describe(&spec.description)),
        ("ostype", hardware.os_type.clone()),
        ("machine", hardware.machine.clone()),
        ("bios", hardware.bios.name().to_owned()),
        ("cpu", hardware.cpu.clone()),
        ("scsihw", hardware.scsi.clone()),
        ("agent", "enabled=1".to_owned()),
        ("net0", format!("virtio,bridge={}{vlan}", hardware.bridge)),
    ]);
    let mut set = |key: &str, value: String| params.push((key.to_owned(), value));
    match &call.disk {
        NewDisk::CopyOf(source) => {
            set("scsi0", format!("{storage}:0,import-from={source},discard=on"));
            set("boot", "order=scsi0".to_owned());
        }
        // An empty disk boots nothing, so the firmware goes on to the installer; once installed, the
        // disk comes first.
        NewDisk::InstalledFrom { iso, gib } => {
            set("scsi0", format!("{storage}:{gib},discard=on"));
            set(INSTALLER_DRIVE, format!("{iso},media=cdrom"));
            set("boot", format!("order=scsi0;{INSTALLER_DRIVE}"));
        }
    }
    match hardware.bios {
        Bios::Ovmf => set("efidisk0", format!("{storage}:0,efitype=4m,pre-enrolled-keys=0")),
        Bios::Seabios => {}
    }
    if hardware.serial {
        set("serial0", "socket".to_owned());
        set("vga", "serial0".to_owned());
    }
    if let Some(cores) = spec.cores {
        set("cores", cores.to_string());
    }
    if let Some(memory) = spec.memory_mb {
        set("memory", memory.to_string());
    }
    if let Some(pool) = &spec.target_pool {
        set("pool", pool.clone());
    }
    params
}

/// Refuses an ISO image that its storage does not have: Proxmox makes the guest all the same, which then
/// never starts. A storage that cannot be listed proves nothing.
async fn iso_is_there(client: &Client, call: &CreateCall) -> Result<(), Fault> {
    let NewDisk::InstalledFrom { iso, .. } = &call.disk else { return Ok(()) };
    let Some((storage, file)) = iso.split_once(':') else { return Ok(()) };
    let Ok(volumes) = client.iso_images(call.node.as_str(), storage).await else { return Ok(()) };
    if volumes.iter().any(|volume| volume.volid == *iso) {
        return Ok(());
    }
    let (node, file) = (&call.node, file.strip_prefix("iso/").unwrap_or(file));
    let text = format!(
        "there is no ISO image `{file}` on storage `{storage}` of node `{node}`: upload it there, or \
         name one in `iso` that `pvesm list {storage} --content iso` shows on that node"
    );
    Err(Fault::new(FaultKind::Broken, Culprit::Template, text))
}

/// Starts to make a guest of a disk image.
pub(crate) async fn create(client: &Client, call: &CreateCall) -> Result<Upid, Failure> {
    iso_is_there(client, call).await?;
    Ok(task(client.create_guest(call.node.as_str(), create_params(call)).await?))
}

/// What a built guest must still get before it becomes a template.
fn finish_changes(config: &VmConfig, storage: &str) -> Params {
    let mut changes = Params::new();
    let file = |value: &str| value.split(',').next().unwrap_or_default().to_owned();
    let mut drives = config.iter().filter(|(key, _)| is_drive(key) && !key.starts_with("unused"));
    let seed = drives.find(|(_, value)| owner(&file(value)).is_some()).map(|(key, _)| key);
    if let Some(key) = seed {
        changes.push((key.to_owned(), format!("{storage}:cloudinit")));
    } else if cloud_init_drive(config).is_none()
        && let Some(key) = free_drive(config)
    {
        changes.push((key.to_owned(), format!("{storage}:cloudinit")));
    }
    let left: Vec<&str> =
        OF_THE_BUILD.into_iter().filter(|key| config.get(key).is_some()).collect();
    if !left.is_empty() {
        changes.push(("delete".to_owned(), left.join(",")));
    }
    if config.get("ipconfig0") != Some("ip=dhcp") {
        changes.push(("ipconfig0".to_owned(), "ip=dhcp".to_owned()));
    }
    changes
}

/// What keeps a template from being cloned, booted and reached; empty where nothing does.
pub(crate) fn shortcomings_of(config: &VmConfig) -> Vec<String> {
    let mut all = Vec::new();
    let mut note = |wrong: bool, text: &str| {
        if wrong {
            all.push(text.to_owned());
        }
    };
    note(!config.is_template(), "it is not a template");
    note(primary_disk(config).is_none(), "it has no disk to boot from");
    note(!has_cloud_init(config), "it has no cloud-init drive");
    note(!has_agent(config), "its guest agent option is off");
    let isa = config.get("agent").is_some_and(|agent| agent.contains("type=isa"));
    note(isa, "it has an ISA port for its guest agent, but images use the virtio port");
    let efi = config.get("bios") == Some(Bios::Ovmf.name()) && config.get("efidisk0").is_none();
    note(efi, "it boots by UEFI and has no EFI disk");
    all
}

/// The configuration of one guest.
async fn config(client: &Client, vm: &VmRef) -> Result<VmConfig, Failure> {
    Ok(client.config(vm.node.as_str(), vm.vmid.0).await?)
}

async fn set(
    client: &Client,
    vm: &VmRef,
    config: &VmConfig,
    changes: Params,
) -> Result<(), Failure> {
    let digest = config.get("digest").map(|digest| ("digest".to_owned(), digest.to_owned()));
    let changes = changes.into_iter().chain(digest).collect();
    Ok(client.set_config(vm.node.as_str(), vm.vmid.0, changes).await?)
}

pub(crate) async fn shortcomings(client: &Client, vm: &VmRef) -> Result<Vec<String>, Failure> {
    Ok(shortcomings_of(&config(client, vm).await?))
}

impl Cloud {
    /// Takes all discs out of an installed guest.
    pub(super) async fn eject(&self, call: &EjectCall) -> Result<(), Failure> {
        let (client, vm) = (&self.client, &call.vm);
        let config = config(client, vm).await?;
        configure::verify(&config, &call.marks, vm.vmid)?;
        configure::unlocked(&config, vm.vmid)?;
        let discs = config.iter().filter(|(key, value)| {
            is_drive(key) && value.split(',').any(|part| part == "media=cdrom")
        });
        let discs: Vec<&str> = discs.map(|(key, _)| key).collect();
        if !discs.is_empty() {
            let changes = params([("boot", "order=scsi0".to_owned()), ("delete", discs.join(","))]);
            set(client, vm, &config, changes).await?;
        }
        self.remove_disc(vm, call.disc.as_ref()).await
    }

    /// Removes a build's disc image, which is in no drive any more. One that is gone is fine.
    async fn remove_disc(&self, vm: &VmRef, volume: Option<&String>) -> Result<(), Failure> {
        let Some(volume) = volume else { return Ok(()) };
        let image = ImageObservation { node: vm.node.clone(), volume: volume.clone() };
        self.remove_image(&image).await
    }

    /// Makes a built guest a template. None where it is one already.
    pub(super) async fn finish(&self, call: &FinishCall) -> Result<Option<Upid>, Failure> {
        let (client, vm) = (&self.client, &call.vm);
        let config = config(client, vm).await?;
        configure::verify(&config, &call.marks, vm.vmid)?;
        configure::unlocked(&config, vm.vmid)?;
        if config.is_template() {
            return Ok(None);
        }
        let changes = finish_changes(&config, &call.storage);
        if !changes.is_empty() {
            set(client, vm, &config, changes).await?;
        }
        self.remove_disc(vm, call.disc.as_ref()).await?;
        Ok(Some(task(client.make_template(vm.node.as_str(), vm.vmid.0).await?)))
    }

    /// Gives a template the marks of an image, or a guest those of the machine that adopts it.
    pub(super) async fn seal(&self, call: &SealCall) -> Result<(), Failure> {
        let (client, vm) = (&self.client, &call.vm);
        let config = config(client, vm).await?;
        let reading = configure::reading(&config);
        if marks::is_ours(&reading, &call.to, vm.vmid) {
            return Ok(());
        }
        match &call.from {
            Some(from) => configure::verify(&config, from, vm.vmid)?,
            None => match call.to.kind {
                Kind::Machine => nobodys(&config, &call.to, vm)?,
                Kind::Agent | Kind::Image | Kind::Builder => {
                    unmarked_template(&config, &reading, vm)?;
                }
            },
        }
        configure::unlocked(&config, vm.vmid)?;
        if call.dry_run {
            return may_be_sealed(client, vm).await;
        }
        let mut tags = split_tags(config.get("tags").unwrap_or_default());
        tags.insert("drover".to_owned());
        tags.insert(format!("drover-{}", call.to.installation));
        let tags = tags.into_iter().collect::<Vec<_>>().join(";");
        // What people wrote about a machine stays.
        let text = match call.to.kind {
            Kind::Machine => marks::without_blocks(config.get("description").unwrap_or_default()),
            Kind::Agent | Kind::Image | Kind::Builder => call.description.clone(),
        };
        let named = params([("name", call.to.name("")), ("description", call.to.describe(&text))]);
        let tagged = named.iter().cloned().chain(params([("tags", tags)])).collect();
        match set(client, vm, &config, tagged).await {
            Err(Failure::Call(error)) if configure::tag_refusal(client, &error).is_some() => {
                set(client, vm, &config, named).await?;
            }
            done => done?,
        }
        client.share.lists().named(vm.vmid, call.to.name(""));
        Ok(())
    }
}

/// Refuses to take over a guest that is a template, or whose marks name anybody but this machine.
fn nobodys(config: &VmConfig, machine: &Marks, vm: &VmRef) -> Result<(), Fault> {
    let refused = |text: String| Err(Fault::new(FaultKind::Foreign, Culprit::Guest, text));
    let (vmid, name) = (vm.vmid, configure::name(config).unwrap_or_default());
    if config.is_template() {
        return refused(format!("guest `{vmid}` is a template image: no machine adopts it"));
    }
    let description = config.get("description").unwrap_or_default();
    if marks::names_only(name, description, machine) {
        return Ok(());
    }
    refused(format!(
        "name or description of guest `{vmid}` has marks of drover that do not name machine `{}`, or \
         cannot be read: look at its notes, and remove the block there if the guest is this machine",
        machine.template
    ))
}

/// Refuses where the login may not write the name and the description.
async fn may_be_sealed(client: &Client, vm: &VmRef) -> Result<(), Failure> {
    let path = format!("/vms/{}", vm.vmid);
    let rights = client.permissions(Some(&path)).await?;
    let held = rights.get(&path).and_then(|held| held.get(SEAL_PRIVILEGE));
    if held.is_some_and(|held| !held.is_null()) {
        return Ok(());
    }
    let text = format!(
        "`{}` lacks the privilege `{SEAL_PRIVILEGE}` on `{path}`, which writes name and description: put \
         the template into the pool that drover's rights are given on, or give a role with it there \
         (with privilege separation, both the token and its user need it)",
        client.login()
    );
    let kind = FaultKind::Denied { privilege: Some(SEAL_PRIVILEGE.to_owned()), path: Some(path) };
    Err(Fault::new(kind, Culprit::Template, text).into())
}

/// Refuses to take over what is no template, or carries marks of drover's.
fn unmarked_template(config: &VmConfig, reading: &Reading, vm: &VmRef) -> Result<(), Fault> {
    let refused = |kind, text: String| Err(Fault::new(kind, Culprit::Guest, text));
    if !config.is_template() {
        let vmid = vm.vmid;
        let text =
            format!("guest `{vmid}` is not a template: convert it with `qm template {vmid}`");
        return refused(FaultKind::Broken, text);
    }
    let why = match reading {
        Reading::Unmarked => return Ok(()),
        Reading::Damaged(why) => why.clone(),
        Reading::Marked(marks) => {
            format!("it is of `{}`, of installation `{}`", marks.template, marks.installation)
        }
    };
    refused(FaultKind::Foreign, format!("template `{}` carries marks of drover's: {why}", vm.vmid))
}

/// The templates that carry the marks of images, among the guests of the list and fresh ones.
pub(crate) async fn versions(
    client: &Client,
    fresh: &[(NodeName, VmId)],
) -> Result<Vec<ImageVersion>, Failure> {
    let list = client.list(LIST_SHARED_FOR).await?;
    let fleet = fleet::of_rows(&list.rows);
    let mut found = Vec::new();
    // The list may be ten seconds behind: a fresh template may still show as a stopped guest.
    let may_be = |guest: &Listed| {
        let named = guest.name.as_deref().is_some_and(|name| marks::parse_name(name).is_some());
        !guest.container && named && (guest.template || guest.status == "stopped")
    };
    let there = list.rows.iter().filter_map(listed).filter(may_be);
    let there = there.map(|guest| (guest.node, guest.vmid)).chain(fresh.iter().cloned());
    for (node, vmid) in there.collect::<BTreeSet<_>>() {
        if fleet.is_offline(&node) {
            continue;
        }
        let config = match client.config(node.as_str(), vmid.0).await {
            Ok(config) => config,
            Err(error) if client.fault(&error).kind == FaultKind::Gone => continue,
            Err(error) => return Err(error.into()),
        };
        let Reading::Marked(marks) = configure::reading(&config) else { continue };
        if marks.kind == Kind::Image && marks.vmid == vmid && config.is_template() {
            let storages = storages(&config);
            found.push(ImageVersion {
                node,
                vmid,
                marks: *marks,
                created: created(&config),
                shared: !storages.is_empty() && storages.iter().all(|one| fleet.is_shared(one)),
                storages,
            });
        }
    }
    found.sort_by_key(|one| (one.marks.template.clone(), one.vmid));
    Ok(found)
}

/// Volumes of other guests that share a template's disks. LVM-thin does not show them (book: proxmox,
/// section 9).
pub(crate) async fn linked_volumes(client: &Client, vm: &VmRef) -> Result<Vec<String>, Failure> {
    let config = config(client, vm).await?;
    let mut found = BTreeSet::new();
    for storage in storages(&config) {
        for volume in client.all_volumes(vm.node.as_str(), &storage).await? {
            let others = volume.vmid.is_none_or(|vmid| vmid != u64::from(vm.vmid.0));
            let base = format!("base-{}-", vm.vmid);
            let path = volume.volid.split_once(':').map_or("", |(_, path)| path);
            let within = path.split('/').rev().skip(1).any(|part| part.starts_with(&base));
            let below = volume.parent.as_deref().is_some_and(|parent| {
                parent.rsplit(['/', ':']).next().is_some_and(|name| name.starts_with(&base))
            });
            if others && (within || below) {
                found.insert(volume.volid);
            }
        }
    }
    Ok(found.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use drover_model::container::GuestType;
    use drover_model::id::CloudId;
    use drover_model::ports::Hypervisor as _;
    use drover_model::testing::{image, marks};
    use serde_json::{Value, json};

    use super::*;
    use crate::proxmox::{Proxmox, TASK_POLL_INTERVAL};
    use crate::testing::{Script, Step, connection, token};

    // Invariant: a guest is made with its marks and the hardware of its recipe.

    #[test]
    fn a_guest_is_made_with_marks_and_hardware() {
        let spec = image("c/debian");
        let call = CreateCall {
            cloud: CloudId::new("c"),
            node: NodeName::new("pve1"),
            marks: marks("4f8z1c3px9t2vkab", 9000),
            hardware: spec.hardware,
            disk: NewDisk::CopyOf("local:import/debian.qcow2".into()),
            storage: "thin".into(),
            spec: spec.machine,
        };
        let all = create_params(&call);
        let get =
            |key: &str| all.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str());
        assert_eq!(get("scsi0"), Some("thin:0,import-from=local:import/debian.qcow2,discard=on"));
        assert_eq!(get("efidisk0"), Some("thin:0,efitype=4m,pre-enrolled-keys=0"));
        assert_eq!((get("machine"), get("bios")), (Some("q35"), Some("ovmf")));
        assert_eq!((get("serial0"), get("vga")), (Some("socket"), Some("serial0")));
        assert_eq!(get("name"), Some("t-7k2m9qxw-4f8z1c3px9t2vkab"));
        let reading = marks::read(get("name").unwrap_or(""), get("description").unwrap_or(""));
        assert_eq!(reading, Reading::Marked(Box::new(call.marks)));
    }

    // Invariant: a template has a cloud-init drive, and nothing of its build.

    #[test]
    fn the_builds_disc_makes_place_for_cloud_inits_drive() {
        let iso = "local:iso/drover-7k2m9qxw-4f8z1c3px9t2vkab.iso";
        let config = VmConfig::new([
            ("scsi0", "thin:vm-9000-disk-0,size=10G"),
            ("ide2", &*format!("{iso},media=cdrom")),
            ("ciuser", "ci"),
            ("sshkeys", "ssh-ed25519%20AAAA"),
        ]);
        let wanted =
            [("ide2", "thin:cloudinit"), ("delete", "ciuser,sshkeys"), ("ipconfig0", "ip=dhcp")];
        let wanted = wanted.map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!(finish_changes(&config, "thin"), wanted);
        let done = VmConfig::new([
            ("ide2", "thin:vm-9000-cloudinit,media=cdrom"),
            ("ipconfig0", "ip=dhcp"),
        ]);
        assert_eq!(finish_changes(&done, "thin"), Params::new());
    }

    #[test]
    fn a_template_without_a_cloud_init_drive_gets_one_that_kernels_of_clouds_read() {
        let drive = |config: &[(&str, &str)]| {
            let config = config.iter().copied().chain([("ipconfig0", "ip=dhcp")]);
            finish_changes(&VmConfig::new(config.collect::<Vec<_>>()), "thin")
        };
        let wanted = |key: &str| vec![(key.to_owned(), "thin:cloudinit".to_owned())];
        assert_eq!(drive(&[("scsi0", "thin:vm-9000-disk-0")]), wanted("ide2"));
        let q35 = [("machine", "pc-q35-9.0"), ("scsihw", "virtio-scsi-single"), ("scsi0", "x")];
        assert_eq!(drive(&q35), wanted("scsi1"));
    }

    // Invariant: what keeps clones from booting is named.

    #[test]
    fn shortcomings_are_named() {
        let sound = [
            ("template", "1"),
            ("agent", "enabled=1"),
            ("bios", "ovmf"),
            ("efidisk0", "thin:base-9000-disk-0,efitype=4m"),
            ("scsi0", "thin:base-9000-disk-1,size=10G"),
            ("ide2", "thin:vm-9000-cloudinit,media=cdrom"),
        ];
        assert_eq!(shortcomings_of(&VmConfig::new(sound)), Vec::<String>::new());
        for (at, (key, _)) in sound.iter().enumerate().filter(|(at, _)| *at != 2) {
            let without = sound.iter().enumerate().filter(|(other, _)| *other != at);
            let left = shortcomings_of(&VmConfig::new(without.map(|(_, pair)| *pair)));
            assert_eq!(left.len(), 1, "without {key}: {left:?}");
        }
    }

    fn port(answer: impl FnMut(&str) -> Step + Send + 'static) -> Proxmox {
        let port = Proxmox::new(None, Arc::new(Script::new(answer)), TASK_POLL_INTERVAL);
        port.set_cloud(CloudId::new("c"), &connection(&["pve1"], token())).unwrap_or_default();
        port
    }

    // Invariant: a dry run writes nothing, and says which right the login lacks.

    #[tokio::test(start_paused = true)]
    async fn a_dry_run_of_a_seal_names_the_privilege_that_is_missing() {
        let seal = async |rights: Value| {
            let port = port(move |asked| match asked {
                "GET /nodes/pve1/qemu/9000/config" => {
                    Step::Data(json!({"template": 1, "name": "golden", "digest": "d"}))
                }
                "GET /access/permissions path=/vms/9000" => Step::Data(rights.clone()),
                asked => Step::Errors(json!({"asked": asked})),
            });
            let (cloud, node) = (CloudId::new("c"), NodeName::new("pve1"));
            let vm = VmRef { cloud, node, vmid: VmId(9000), guest: GuestType::Vm };
            let to = marks("4f8z1c3px9t2vkab", 9000);
            let call = SealCall { vm, from: None, to, description: String::new(), dry_run: true };
            port.seal(call).await
        };
        let fault = seal(json!({"/vms/9000": {"VM.Audit": 1}})).await.err();
        let text = fault.map(|fault| fault.text).unwrap_or_default();
        assert!(text.contains("lacks the privilege `VM.Config.Options` on `/vms/9000`"), "{text}");
        assert_eq!(seal(json!({"/vms/9000": {"VM.Config.Options": 1}})).await, Ok(()));
    }
}
