//! Configures a fresh clone: cloud-init values, sizes and tags in one write, then the size of the
//! primary disk.
//!
//! - [`plan`] compares the guest's configuration with the template's specification and lists only
//!   what differs. It is pure, so repeating it after a crash writes nothing twice.
//! - [`start`] writes the plan and starts the resize; the caller awaits its task.
//! - [`verify`] and [`unlocked`] guard every write: the guest's marks must be exactly the agent's,
//!   and Proxmox itself must not have locked the guest.
//!
//! A write carries the digest that was read, so Proxmox refuses it when somebody else changed the
//! guest in between. When Proxmox refuses only the tags, the rest is written without them and the
//! refusal is reported. Anything else that is refused is a `Fault` (`classify.rs`).

mod hardware;

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use drover_model::container::GuestType;
use drover_model::fault::{Culprit, Fault, FaultKind};
use drover_model::id::{Installation, Upid, VmId};
use drover_model::marks::{self, Kind, Marks, Reading};
use drover_model::os::Os;
use drover_model::ports::{ConfigureCall, Configured};
use drover_model::spec::{NetworkSpec, TemplateSpec};
use percent_encoding::percent_decode_str;
use proxmox_client::Params;
use proxmox_client::PveError;
use proxmox_client::transport::encode;
use proxmox_client::types::VmConfig;
use secrecy::{ExposeSecret as _, SecretString};

use crate::client::{Client, Failure, guest_id, task};
use crate::container;
use crate::disc::{self, DiscImage};
use crate::nics;

/// The tag of a guest that is being retired.
pub(crate) use drover_model::marks::RETIRING;

/// What must be written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    /// The keys that differ, without tags and digest.
    pub changes: Params,
    /// The tags, if they differ.
    pub tags: Option<String>,
    /// The disk to grow, and its size in GiB.
    pub resize: Option<(String, u32)>,
}

/// The state of configuring after the write; the caller awaits the resize.
#[derive(Debug)]
pub(crate) struct Configuring {
    pub configured: Configured,
    /// The task that grows the disk.
    pub resize: Option<Upid>,
}

/// The marks in a configuration: whose guest it is.
pub(crate) fn reading(config: &VmConfig) -> Reading {
    marks::read(name(config).unwrap_or_default(), config.get("description").unwrap_or_default())
}

/// A guest's name, which containers have as their host name.
pub(crate) fn name(config: &VmConfig) -> Option<&str> {
    config.get("name").or_else(|| config.get("hostname"))
}

/// The type of a guest by its configuration; a container that is being made shows none.
fn guest_type(config: &VmConfig) -> GuestType {
    GuestType::of_listed(config.get("rootfs").is_some())
}

/// The fault of a guest that Proxmox itself has locked.
fn locked(vmid: VmId, lock: &str, guest: GuestType) -> Fault {
    let tool = guest.tool();
    let text = match lock {
        // A destroy that was cut short leaves nothing but this lock: there is no guest to unlock.
        "destroyed" => format!(
            "guest `{vmid}` is being destroyed by Proxmox, which left only the lock `{lock}` of it; when \
             no task destroys it any more, run `{tool} destroy {vmid} --skiplock` on its node"
        ),
        _ => format!(
            "guest `{vmid}` is locked by Proxmox (`{lock}`); when no task needs this lock any more, run \
             `{tool} unlock {vmid}` on its node"
        ),
    };
    Fault::new(FaultKind::Locked { lock: lock.to_owned() }, Culprit::Guest, text)
}

/// Refuses a guest that is not exactly the agent's. During a clone and a destroy the configuration
/// has only a lock and no marks: that is a locked guest, not a stranger's.
pub(crate) fn verify(config: &VmConfig, expected: &Marks, vmid: VmId) -> Result<(), Fault> {
    let reading = reading(config);
    let bare = match config.lock() {
        Some(lock @ ("clone" | "destroyed")) => Some(lock),
        // Proxmox locks new containers with it, also those that it clones.
        Some(lock @ "create") if expected.guest.is_container() => Some(lock),
        Some(_) | None => None,
    };
    if let (Some(lock), Reading::Unmarked) = (bare, &reading) {
        return Err(locked(vmid, lock, expected.guest));
    }
    let allowed = match expected.kind {
        Kind::Agent | Kind::Machine => !config.is_template(),
        Kind::Image | Kind::Builder => true,
    };
    if allowed && marks::is_ours(&reading, expected, vmid) {
        return Ok(());
    }
    let why = match reading {
        Reading::Unmarked => "it has no marks".to_owned(),
        Reading::Damaged(text) => text,
        Reading::Marked(found) => {
            format!("its marks name agent `{}` and VMID `{}`", found.agent, found.vmid)
        }
    };
    let agent = &expected.agent;
    let text =
        format!("guest `{vmid}` does not belong to agent `{agent}`: {why}; drover leaves it alone");
    Err(Fault::new(FaultKind::Foreign, Culprit::Guest, text))
}

/// Refuses a guest that Proxmox itself has locked.
pub(crate) fn unlocked(config: &VmConfig, vmid: VmId) -> Result<(), Fault> {
    config.lock().map_or(Ok(()), |lock| Err(locked(vmid, lock, guest_type(config))))
}

/// What differs from the template's specification. Pure.
pub(crate) fn plan(config: &VmConfig, call: &ConfigureCall) -> Plan {
    let spec = &call.spec;
    let tags = tags_to_write(config, &call.marks.installation, &spec.tags);
    let resize = disk_to_grow(config, spec.disk_gb);
    if call.marks.guest.is_container() {
        return Plan { changes: container::changes(config, call), tags, resize };
    }
    let mut changes = match spec.os {
        Os::Linux => cloud_init_changes(config, spec),
        // Windows guests have no cloud-init that reads these values.
        Os::Windows(_) => Params::new(),
    };
    let mut set = |key: &str, wanted: Option<String>, now: Option<&str>| {
        if let Some(wanted) = wanted.filter(|wanted| Some(wanted.as_str()) != now) {
            changes.push((key.to_owned(), wanted));
        }
    };
    if spec.nics.is_empty() {
        set("net0", on_network(config.get("net0"), &spec.network), None);
    }
    set("cicustom", spec.cloud_init.custom.clone(), config.get("cicustom"));
    set("onboot", Some(flag(spec.on_boot)), Some(config.get("onboot").unwrap_or("0")));
    let (cores, vcpus) = hardware::processors(config, spec);
    set("cores", cores, config.get("cores"));
    set("vcpus", vcpus, config.get("vcpus"));
    let memory = config.get("memory").map(|text| text.strip_prefix("current=").unwrap_or(text));
    set("memory", spec.memory_mb.map(|memory| memory.to_string()), memory);
    let balloon = config.get("balloon").and_then(|text| text.parse::<u32>().ok());
    if let (Some(memory), Some(balloon)) = (spec.memory_mb, balloon)
        && balloon > memory
    {
        set("balloon", Some(memory.to_string()), None);
    }
    set("agent", enable_agent(config.get("agent")), None);
    if config.get("protection").is_some_and(|value| value == "1") {
        set("protection", Some("0".into()), None);
    }
    changes.extend(hardware::changes(config, &spec.hardware));
    changes.extend(nics::changes(config, call));
    Plan { changes, tags, resize }
}

/// The cloud-init values that differ.
fn cloud_init_changes(config: &VmConfig, spec: &TemplateSpec) -> Params {
    let init = &spec.cloud_init;
    let mut changes = Params::new();
    let mut set = |key: &str, wanted: Option<String>, now: Option<&str>| {
        if let Some(wanted) = wanted.filter(|wanted| Some(wanted.as_str()) != now) {
            changes.push((key.to_owned(), wanted));
        }
    };
    set("ciuser", init.user.clone(), config.get("ciuser"));
    let keys = config.get("sshkeys").map(decode_keys);
    let key = spec.ssh.public_key.trim();
    if !key.is_empty() && keys.as_deref() != Some(key) {
        set("sshkeys", Some(encode(key)), None);
    }
    set("ipconfig0", init.ip_config.clone(), config.get("ipconfig0"));
    set("nameserver", init.nameserver.clone(), config.get("nameserver"));
    set("searchdomain", init.search_domain.clone(), config.get("searchdomain"));
    for (at, ip_config) in init.ip_configs.iter().enumerate() {
        let key = format!("ipconfig{}", at + 1);
        set(&key, Some(ip_config.clone()), config.get(&key));
    }
    set("ciupgrade", Some(flag(init.upgrade)), config.get("ciupgrade"));
    changes
}

fn flag(on: bool) -> String {
    if on { "1" } else { "0" }.to_owned()
}

/// `net0` on this bridge and VLAN, with everything else kept; none when it is so already, and when
/// there is neither a card nor a bridge for one.
pub(super) fn on_network(now: Option<&str>, wanted: &NetworkSpec) -> Option<String> {
    let card = match (now, &wanted.bridge) {
        (Some(card), _) => card,
        (None, Some(_)) => "virtio",
        (None, None) => return None,
    };
    let vlan = wanted.vlan.map(|vlan| vlan.to_string());
    let settings = [("bridge", wanted.bridge.as_ref()), ("tag", vlan.as_ref())];
    let mut parts: Vec<String> = card.split(',').map(str::to_owned).collect();
    for (name, value) in settings {
        let Some(value) = value else { continue };
        let part = format!("{name}={value}");
        match parts.iter_mut().find(|old| old.split_once('=').is_some_and(|(key, _)| key == name)) {
            Some(old) => *old = part,
            None => parts.push(part),
        }
    }
    let card = parts.join(",");
    (now != Some(card.as_str())).then_some(card)
}

/// `smbios1` with this serial number, with everything else kept; none when it has it already.
fn with_serial(now: Option<&str>, serial: &str) -> Option<String> {
    let now = now.unwrap_or_default();
    let parts: Vec<&str> = now.split(',').filter(|part| !part.is_empty()).collect();
    let encoded = parts.contains(&"base64=1");
    let serial = if encoded { STANDARD.encode(serial) } else { serial.to_owned() };
    let kept = parts.into_iter().filter(|part| !part.starts_with("serial=")).map(str::to_owned);
    let wanted: Vec<String> = kept.chain([format!("serial={serial}")]).collect();
    let wanted = wanted.join(",");
    (wanted != now).then_some(wanted)
}

pub(crate) fn decode_keys(encoded: &str) -> String {
    percent_decode_str(encoded).decode_utf8_lossy().trim().to_owned()
}

pub fn has_cloud_init(config: &VmConfig) -> bool {
    config.iter().any(|(key, value)| is_drive(key) && value.contains("cloudinit"))
}

/// Whether the guest agent is enabled in a guest's configuration.
pub fn has_agent(config: &VmConfig) -> bool {
    enable_agent(config.get("agent")).is_none()
}

/// The `agent` value with the agent enabled; none when it is enabled already.
fn enable_agent(now: Option<&str>) -> Option<String> {
    let now = now.unwrap_or_default();
    let is_switch = |part: &&str| !part.contains('=') || part.starts_with("enabled=");
    let switch = now.split(',').find(is_switch).unwrap_or_default();
    let value = switch.strip_prefix("enabled=").unwrap_or(switch);
    if matches!(value, "1" | "on" | "yes" | "true") {
        return None;
    }
    let rest = now.split(',').filter(|part| !is_switch(part) && !part.is_empty());
    Some(std::iter::once("enabled=1").chain(rest).collect::<Vec<_>>().join(","))
}

/// Splits Proxmox's lists of tags at `;`, `,` and blanks.
pub(crate) fn split_tags(text: &str) -> BTreeSet<String> {
    let words = text.split([';', ',', ' ']).filter(|word| !word.is_empty());
    words.map(str::to_lowercase).collect()
}

/// The tags that the guest must have; none when it has them. Tags of drover's own that came from
/// the template are removed.
fn tags_to_write(
    config: &VmConfig,
    installation: &Installation,
    wanted: &BTreeSet<String>,
) -> Option<String> {
    let now = split_tags(config.get("tags").unwrap_or_default());
    let mut tags: BTreeSet<_> =
        now.iter().filter(|tag| !tag.starts_with("drover")).cloned().collect();
    tags.extend(wanted.iter().map(|tag| tag.to_lowercase()));
    tags.insert("drover".into());
    tags.insert(format!("drover-{installation}"));
    (tags != now).then(|| tags.into_iter().collect::<Vec<_>>().join(";"))
}

/// Whether a key of the configuration holds a drive, or a mount point of a container.
pub(super) fn is_drive(key: &str) -> bool {
    let digits = key.trim_start_matches(|ch: char| ch.is_ascii_alphabetic());
    let bus = &key[..key.len() - digits.len()];
    let numbered = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let of_vm = ["scsi", "virtio", "sata", "ide", "efidisk", "tpmstate"];
    key == "rootfs" || (numbered && (of_vm.contains(&bus) || matches!(bus, "mp" | "unused")))
}

fn is_disk(key: &str, config: &VmConfig) -> bool {
    let value = config.get(key).unwrap_or_default();
    is_drive(key)
        && !key.starts_with("unused")
        && !value.is_empty()
        && !value.split(',').any(|part| part == "media=cdrom")
}

/// The disk that the guest boots from: the first in the boot order, else one in the usual places.
pub fn primary_disk(config: &VmConfig) -> Option<&str> {
    let boot = config.get("boot").unwrap_or_default();
    let order = boot.split(',').find_map(|part| part.strip_prefix("order=")).unwrap_or_default();
    let named = order.split(';').chain(config.get("bootdisk"));
    named.chain(["scsi0", "virtio0", "sata0", "ide0", "rootfs"]).find(|key| is_disk(key, config))
}

/// A drive's size in bytes, if its value shows it.
pub(crate) fn size_of(drive: &str) -> Option<u64> {
    let text = drive.split(',').find_map(|part| part.strip_prefix("size="))?;
    let unit = match text.chars().last()? {
        'K' => 1 << 10,
        'M' => 1 << 20,
        'G' => 1 << 30,
        'T' => 1_u64 << 40,
        _ => return text.parse().ok(),
    };
    text[..text.len() - 1].parse::<u64>().ok()?.checked_mul(unit)
}

/// The disk to grow, and its size in GiB. Disks never shrink.
fn disk_to_grow(config: &VmConfig, wanted: Option<u32>) -> Option<(String, u32)> {
    let (wanted, disk) = (wanted?, primary_disk(config)?);
    let size = size_of(config.get(disk)?);
    let grows = size.is_none_or(|size| size < u64::from(wanted) << 30);
    grows.then(|| (disk.to_owned(), wanted))
}

/// The volumes whose names carry the guest's id.
pub(crate) fn volumes(config: &VmConfig, vmid: VmId) -> Vec<String> {
    let drives = config.iter().filter(|(key, _)| is_drive(key));
    let volumes = drives.filter_map(|(_, value)| value.split(',').next());
    volumes.filter(|volume| carries(volume, vmid)).map(str::to_owned).collect()
}

/// Whether a volume belongs to the guest itself (`vm-101-disk-0`), not to its template.
pub(crate) fn carries(volume: &str, vmid: VmId) -> bool {
    let path = volume.split_once(':').map_or(volume, |(_, path)| path);
    let name = path.rsplit('/').next().unwrap_or(path);
    let kinds = ["vm", "base", "subvol", "basevol"];
    kinds.iter().any(|kind| name.starts_with(&format!("{kind}-{vmid}-")))
}

/// The MAC address of net0, in upper case.
pub(crate) fn mac(config: &VmConfig) -> Option<String> {
    let values = config.get("net0")?.split(',').filter_map(|part| part.split_once('='));
    let is_mac = |text: &str| {
        let parts: Vec<_> = text.split(':').collect();
        parts.len() == 6
            && parts.iter().all(|part| part.len() == 2 && u8::from_str_radix(part, 16).is_ok())
    };
    values.map(|(_, value)| value).find(|value| is_mac(value)).map(str::to_uppercase)
}

/// Reads a guest's configuration, and checks that the guest is the agent's and not locked.
pub(crate) async fn read(client: &Client, call: &ConfigureCall) -> Result<VmConfig, Failure> {
    let vmid = call.vm.vmid;
    let config = client.config(call.vm.node.as_str(), guest_id(&call.vm)).await?;
    verify(&config, &call.marks, vmid)?;
    unlocked(&config, vmid)?;
    Ok(config)
}

/// Writes what differs from `config`; the caller awaits the resize. `serial` is the guest's secret,
/// `disc` the image for its drive.
pub(crate) async fn start(
    client: &Client,
    call: &ConfigureCall,
    config: &VmConfig,
    disc: Option<&DiscImage>,
    serial: Option<&SecretString>,
) -> Result<Configuring, Failure> {
    let (node, vmid) = (&call.vm.node, call.vm.vmid);
    let mut plan = plan(config, call);
    plan.changes.extend(disc.and_then(|disc| disc.change(config)));
    let serial =
        serial.and_then(|serial| with_serial(config.get("smbios1"), serial.expose_secret()));
    plan.changes.extend(serial.map(|smbios| ("smbios1".to_owned(), smbios)));
    let container = call.marks.guest.is_container();
    let without_drive = disc.is_none() && disc::cloud_init_drive(config).is_none();
    // A guest that an installer made has no template image: the installer asks for all that.
    let cloned = call.spec.source != VmId(0);
    if without_drive && cloned && !call.spec.os.is_windows() && !container {
        tracing::warn!(
            cloud = %call.vm.cloud,
            template = %call.spec.id,
            "template has no cloud-init drive: drover cannot give its guests a user, a key or an \
             address; `qm set {} --{} STORAGE:cloudinit` adds one",
            call.spec.source,
            disc::cloud_init_place(config)
        );
    }
    // Only root may set it. If a guest has one, Proxmox makes a new one at each rollback.
    let resets = call.spec.reset.is_some() && !container;
    if resets && config.get("vmgenid").is_none_or(|value| value == "0") {
        tracing::warn!(
            cloud = %call.vm.cloud,
            template = %call.spec.id,
            "template has no vmgenid: its guests do not notice that they were rolled back; \
             `qm set {} --vmgenid 1` as root adds one",
            call.spec.source
        );
    }
    let tags_refused = write(client, call, &plan, config.get("digest")).await?;
    let resize = match &plan.resize {
        Some((disk, gib)) => client.resize(node.as_str(), guest_id(&call.vm), disk, *gib).await?,
        None => None,
    };
    let written = nics::after(config, &plan.changes);
    // Proxmox itself frees a cloud-init image whose drive gets another disc.
    let replaced = disc.and_then(|disc| disc.replaced(config));
    let mut volumes = volumes(config, vmid);
    volumes.retain(|volume| Some(volume.as_str()) != replaced);
    volumes.extend(disc.map(|disc| disc.volume.clone()));
    let configured = Configured { volumes, mac: mac(&written), tags_refused, image_refused: None };
    Ok(Configuring { configured, resize: resize.map(task) })
}

/// Writes what differs in one call; without the tags when only those are refused.
async fn write(
    client: &Client,
    call: &ConfigureCall,
    plan: &Plan,
    digest: Option<&str>,
) -> Result<Option<String>, PveError> {
    let (node, vmid) = (&call.vm.node, call.vm.vmid);
    let digest = digest.map(|digest| ("digest".to_owned(), digest.to_owned()));
    let mut changes = plan.changes.clone();
    if let Some(tags) = &plan.tags {
        changes.push(("tags".to_owned(), tags.clone()));
    }
    if changes.is_empty() {
        return Ok(None);
    }
    changes.extend(digest.clone());
    let Err(error) = client.set_config(node.as_str(), guest_id(&call.vm), changes).await else {
        return Ok(None);
    };
    let refused = tag_refusal(client, &error).filter(|_| plan.tags.is_some());
    let Some(refused) = refused else { return Err(error) };
    tracing::warn!(
        cloud = %call.vm.cloud,
        vmid = %vmid,
        refusal = refused,
        "Proxmox refused the tags: guest is configured without them"
    );
    if !plan.changes.is_empty() {
        let changes = plan.changes.iter().cloned().chain(digest).collect();
        client.set_config(node.as_str(), guest_id(&call.vm), changes).await?;
    }
    Ok(Some(refused))
}

/// The text of a refusal, if it is about tags.
pub(crate) fn tag_refusal(client: &Client, error: &PveError) -> Option<String> {
    let PveError::Refused { refusal, .. } = error else { return None };
    let of_tags = refusal.status == 403 && refusal.text.contains("tag");
    of_tags.then(|| client.fault(error).text)
}

#[cfg(test)]
mod tests;
