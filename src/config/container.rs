//! Containers as agents (`guestType: CONTAINER`). What only virtual machines have is a fault, since
//! nothing would come of it; so is a key of containers alone in a template of virtual machines.

use drover_model::container::{ContainerSpec, CreateSpec, Download, OsTemplate};
use drover_model::spec::CloneStrategy;

use super::context::Context;
use super::credential::SshKeySpec;
use super::fault::Fault;
use super::keys::{AddressFrom, OS_TEMPLATE, OsType, RawAgent, Reset, STORAGES, TEXTS};
use super::layer::Layer;
use super::network::Cards;

/// The size of the disk of a container of an OS template where nothing is said of it, in GiB.
const DEFAULT_DISK_GIB: u32 = 8;
/// The only user to whom Proxmox gives keys in a new container.
const ROOT: &str = "root";
/// Keys that say where a missing OS template comes from.
const URL: [&str; 3] = ["osTemplateUrl", "osTemplateChecksum", "osTemplateChecksumAlgorithm"];

/// What is said of a template's containers; none for virtual machines.
pub(super) fn container(
    raw: &RawAgent,
    layer: &Layer,
    key: Option<&SshKeySpec>,
    cards: &Cards,
    cx: &mut Context<'_>,
) -> Option<ContainerSpec> {
    if raw.guest_type.is_vm() {
        of_containers_alone(raw, layer, &mut cx.faults);
        return None;
    }
    of_machines_alone(raw, layer, cards, &mut cx.faults);
    let create = create(raw, layer, (key, cards), cx);
    if create.is_none() && !layer.has(OS_TEMPLATE) {
        of_new_ones_alone(raw, layer, &mut cx.faults);
    }
    Some(ContainerSpec { nesting: raw.nesting, swap_mb: raw.swap_mb, create })
}

/// The size of the disk in GiB, which a new container must have.
pub(super) fn disk_gb(raw: &RawAgent) -> u32 {
    let new = raw.guest_type.is_container() && raw.os_template.is_some();
    if new && raw.disk_size_gb == 0 { DEFAULT_DISK_GIB } else { raw.disk_size_gb }
}

/// A fault of a key that is wrong in this type of guest.
fn fault(layer: &Layer, key: &str, message: impl Into<String>) -> Fault {
    layer.fault_beside(key, "guestType", message)
}

/// Faults of keys that only containers have.
fn of_containers_alone(raw: &RawAgent, layer: &Layer, faults: &mut Vec<Fault>) {
    let own = |key: &str| layer.is_own(key);
    let given = [
        (OS_TEMPLATE, raw.os_template.is_some()),
        ("swapMb", own("swapMb") && raw.swap_mb.is_some()),
        ("nesting", own("nesting") && raw.nesting),
        ("unprivileged", own("unprivileged") && !raw.unprivileged),
    ];
    for (key, _) in given.into_iter().filter(|(_, given)| *given) {
        let fault = fault(layer, key, "only containers have it, and guestType is VM");
        faults.push(fault.help("set guestType to CONTAINER, or remove the key"));
    }
}

/// Faults of what only virtual machines can do.
fn of_machines_alone(raw: &RawAgent, layer: &Layer, cards: &Cards, faults: &mut Vec<Fault>) {
    let mut add = |key: &str, message: &str, help: &str| {
        faults.push(fault(layer, key, message).help(help));
    };
    if raw.os_type == OsType::Windows {
        add("osType", "containers run Linux", "set it to LINUX, or guestType to VM");
    }
    if layer.has("image") {
        let message = "images that drover builds are virtual machines";
        add("image", message, "name a container's template, or an osTemplate");
    }
    if raw.reset == Reset::Memory {
        let message = "Proxmox saves no memory of a container";
        add("reset", message, "set it to DISK, after which the container starts again, or to NONE");
    }
    let of_discs = TEXTS.as_flattened().iter().chain(&["cloudInitCustom"]);
    for key in of_discs.filter(|key| layer.has(key)) {
        let message = "a container has no cloud-init drive that could hold it";
        add(key, message, "use prepare, or leave it empty here where it is inherited");
    }
    let own = |key: &str, given: bool| given && layer.is_own(key);
    for (key, given) in [
        ("ciUser", own("ciUser", !raw.ci_user.is_empty())),
        ("ciUpgrade", own("ciUpgrade", raw.ci_upgrade)),
    ] {
        if given {
            let message = "a container has no cloud-init that reads it";
            add(key, message, "remove it: drover logs in as the sshKey's username");
        }
    }
    if !raw.ip_configs.is_empty() {
        let message = "a container has the addresses of further cards on the cards themselves";
        add("ipConfigs", message, "name all cards in networks");
    }
    match raw.address_from {
        Some(AddressFrom::GuestAgent) => {
            let message = "a container has no guest agent: Proxmox itself knows its address";
            add("addressFrom", message, "remove it");
        }
        Some(AddressFrom::Call) => {
            let message = "a container has no cloud-init that learns how to call drover";
            add("addressFrom", message, "remove it: Proxmox itself knows the address");
        }
        Some(AddressFrom::Static) | None => {}
    }
    if cards.apart {
        let message = "cards differ in dns or searchDomain, which Proxmox has once for a container";
        add("networks", message, "give all cards the same, or use nameserver and searchDomain");
    }
    for card in layer.nested("networks").iter().filter(|card| card.has("model")) {
        let fault = card.fault("model", "the card of a container has no model");
        faults.push(fault.help("remove it"));
    }
}

/// Faults of what can be said only of a new container: a clone is as its template is.
fn of_new_ones_alone(raw: &RawAgent, layer: &Layer, faults: &mut Vec<Fault>) {
    if layer.is_own("unprivileged") && !raw.unprivileged {
        let fault = layer.fault("unprivileged", "a clone is privileged where its template is");
        faults.push(fault.help("remove it, or name an osTemplate to make new containers of"));
    }
    for key in URL.into_iter().filter(|key| layer.has(key)) {
        let fault = layer.fault(key, "osTemplate is missing");
        faults.push(fault.help("add `osTemplate:`, the volume that is downloaded, or remove it"));
    }
}

/// How containers are made of an OS template, where one is named.
fn create(
    raw: &RawAgent,
    layer: &Layer,
    (key, cards): (Option<&SshKeySpec>, &Cards),
    cx: &mut Context<'_>,
) -> Option<CreateSpec> {
    let volume = raw.os_template.as_deref()?;
    let (storage, file) = volume.split_once(":vztmpl/")?;
    let faults = &mut cx.faults;
    let mut add = |key: &str, message: String, help: &str| {
        faults.push(layer.fault_beside(key, OS_TEMPLATE, message).help(help));
    };
    if raw.clone_strategy == CloneStrategy::Linked {
        let message = "a new container has no template image to share disks with".to_owned();
        add("cloneStrategy", message, "remove it, or clone a container's template");
    }
    let stored = STORAGES.iter().any(|key| layer.has(key)) || !raw.storage_class.is_empty();
    if !stored {
        let message = "`targetStorage` is missing: a new container has no template image whose \
                       storage it could take";
        add(STORAGES[0], message.to_owned(), "add `targetStorage:`, the storage of its disk");
    }
    if raw.bridge.is_empty() && !cards.any() {
        let message =
            "`bridge` is missing: a new container has no network card of a template image";
        add("bridge", message.to_owned(), "add `bridge: vmbr0`, or networks");
    }
    if let Some(user) = key.map(|key| &key.username).filter(|user| *user != ROOT) {
        let message = format!("its username is `{user}`, and Proxmox gives a key to {ROOT} alone");
        add("credentialsId", message, "name an sshKey with `username: root`");
    }
    if raw.nesting && !raw.unprivileged {
        let message = "Proxmox lets only root@pam enable nesting where root is the node's root";
        add("nesting", message.to_owned(), "set one of nesting and unprivileged otherwise");
    }
    if !raw.unprivileged {
        let message = "root in the container is root of the node, and from Proxmox VE 9 on drover \
                       needs the privilege `Sys.Modify` on `/` for it";
        let warning = layer.fault("unprivileged", message);
        cx.warnings
            .push(warning.help("set it to true unless the jobs need a privileged container"));
    }
    let download = download(raw, layer, &mut cx.faults).ok()?;
    let template = OsTemplate { storage: storage.into(), file: file.into(), download };
    Some(CreateSpec { template, unprivileged: raw.unprivileged })
}

/// Where the node downloads a missing OS template; none stands for Proxmox's own list.
///
/// # Errors
/// Nothing, after a fault.
fn download(
    raw: &RawAgent,
    layer: &Layer,
    faults: &mut Vec<Fault>,
) -> Result<Option<Download>, ()> {
    let Some(url) = &raw.os_template_url else {
        if let Some(key) = URL[1..].iter().find(|key| layer.has(key)) {
            let fault = layer.fault(key, "osTemplateUrl is missing");
            faults.push(fault.help("add `osTemplateUrl:`, or remove the checksum"));
        }
        return Ok(None);
    };
    let Some(checksum) = &raw.os_template_checksum else {
        let fault = layer.fault_beside(URL[1], URL[0], "`osTemplateChecksum` is missing");
        faults.push(fault.help("add the checksum that the publisher lists beside the archive"));
        return Err(());
    };
    let checksum = checksum.trim().to_ascii_lowercase();
    if checksum.is_empty() || !checksum.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        let message = "the checksum has other characters than 0-9 and a-f";
        faults.push(layer.fault(URL[1], message).help("copy it from the publisher's list"));
        return Err(());
    }
    let algorithm = raw.os_template_checksum_algorithm.clone();
    Ok(Some(Download { url: url.clone(), checksum, algorithm }))
}

/// Whether a template's guests are containers, for messages about missing keys.
pub(super) fn is_container(layer: &Layer) -> bool {
    layer.text("guestType").is_some_and(|word| word == "CONTAINER")
}
