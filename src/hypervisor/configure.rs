//! What a fresh clone is made into: cloud-init values, sizes and tags in one write, and the
//! primary disk's size. Nothing is written to a guest whose marks are not exactly the agent's.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
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

use crate::client::{Client, Failure, task};
use crate::disc::{self, Disc};
use crate::nics;

/// The tag of a guest that is on its way out.
pub use drover_model::marks::RETIRING;

/// What is to be written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// Keys that differ, without tags and digest.
    pub changes: Params,
    /// The tags, when they differ.
    pub tags: Option<String>,
    /// The disk to grow and its size in GiB.
    pub resize: Option<(String, u32)>,
}

/// What configuring did so far; the caller awaits the resize.
#[derive(Debug)]
pub struct Begun {
    /// What was found.
    pub configured: Configured,
    /// The task that grows the disk.
    pub resize: Option<Upid>,
}

/// What a configuration says of whose guest it is.
pub fn reading(config: &VmConfig) -> Reading {
    marks::read(
        config.get("name").unwrap_or_default(),
        config.get("description").unwrap_or_default(),
    )
}

/// What a guest under one of Proxmox's own locks means.
fn locked(vmid: VmId, lock: &str) -> Fault {
    let text = format!(
        "guest `{vmid}` is locked by Proxmox (`{lock}`); where nothing holds that lock any more, `qm \
         unlock {vmid}` on its node ends it"
    );
    Fault::new(FaultKind::Locked { lock: lock.to_owned() }, Culprit::Guest, text)
}

/// Refuses a guest that is not exactly the agent's. While a clone is copied, and while a guest is
/// destroyed, the configuration is a bare lock without marks: that is a lock, not a stranger.
pub fn verify(config: &VmConfig, expected: &Marks, vmid: VmId) -> Result<(), Fault> {
    let reading = reading(config);
    if let (Some(lock @ ("clone" | "destroyed")), Reading::Unmarked) = (config.lock(), &reading) {
        return Err(locked(vmid, lock));
    }
    let allowed = !config.is_template() || expected.kind == Kind::Image;
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
    let text = format!("guest `{vmid}` is not agent `{}`'s: {why}: left alone", expected.agent);
    Err(Fault::new(FaultKind::Foreign, Culprit::Guest, text))
}

/// Refuses a guest under one of Proxmox's own locks.
pub fn unlocked(config: &VmConfig, vmid: VmId) -> Result<(), Fault> {
    config.lock().map_or(Ok(()), |lock| Err(locked(vmid, lock)))
}

/// Works out what differs from what the template's specification wants. Pure.
pub fn plan(config: &VmConfig, call: &ConfigureCall) -> Plan {
    let spec = &call.spec;
    let mut changes = match spec.os {
        Os::Linux => tell(config, spec),
        // It has no cloud-init that reads any of it.
        Os::Windows(_) => Params::new(),
    };
    let mut set = |key: &str, wanted: Option<String>, now: Option<&str>| {
        if let Some(wanted) = wanted.filter(|wanted| Some(wanted.as_str()) != now) {
            changes.push((key.to_owned(), wanted));
        }
    };
    if spec.nics.is_empty() {
        set("net0", rewire(config.get("net0"), &spec.network), None);
    }
    set("cicustom", spec.cloud_init.custom.clone(), config.get("cicustom"));
    set("onboot", Some(flag(spec.on_boot)), Some(config.get("onboot").unwrap_or("0")));
    set("cores", spec.cores.map(|cores| cores.to_string()), config.get("cores"));
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
    changes.extend(nics::changes(config, call));
    Plan {
        changes,
        tags: retag(config, &call.marks.installation, &spec.tags),
        resize: resize(config, spec.disk_gb),
    }
}

/// What differs of what the guest is told by cloud-init.
fn tell(config: &VmConfig, spec: &TemplateSpec) -> Params {
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

/// `net0` on the wanted bridge and VLAN, all else of it kept; none when it is so already, and when
/// there is no card and no bridge to put one on.
pub(super) fn rewire(now: Option<&str>, wanted: &NetworkSpec) -> Option<String> {
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

/// `smbios1` with this serial number, all else of it kept; none when it has it.
fn number(now: Option<&str>, serial: &str) -> Option<String> {
    let now = now.unwrap_or_default();
    let parts: Vec<&str> = now.split(',').filter(|part| !part.is_empty()).collect();
    let encoded = parts.contains(&"base64=1");
    let serial = if encoded { STANDARD.encode(serial) } else { serial.to_owned() };
    let kept = parts.into_iter().filter(|part| !part.starts_with("serial=")).map(str::to_owned);
    let wanted: Vec<String> = kept.chain([format!("serial={serial}")]).collect();
    let wanted = wanted.join(",");
    (wanted != now).then_some(wanted)
}

fn decode_keys(encoded: &str) -> String {
    percent_decode_str(encoded).decode_utf8_lossy().trim().to_owned()
}

/// Whether a guest has a cloud-init drive.
pub fn has_cloud_init(config: &VmConfig) -> bool {
    config.iter().any(|(key, value)| is_drive(key) && value.contains("cloudinit"))
}

/// Whether a guest's agent is switched on.
pub fn has_agent(config: &VmConfig) -> bool {
    enable_agent(config.get("agent")).is_none()
}

/// The `agent` value with the agent on; none when it is on already.
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

/// Splits Proxmox's tag lists: `;`, `,` and blanks separate.
pub fn split_tags(text: &str) -> BTreeSet<String> {
    let words = text.split([';', ',', ' ']).filter(|word| !word.is_empty());
    words.map(str::to_lowercase).collect()
}

/// The guest's tags as they must be; none when they are. Template tags of drover's own go.
fn retag(
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

/// Whether a key holds a drive.
pub(super) fn is_drive(key: &str) -> bool {
    let digits = key.trim_start_matches(|ch: char| ch.is_ascii_alphabetic());
    let bus = &key[..key.len() - digits.len()];
    let numbered = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    numbered
        && matches!(bus, "scsi" | "virtio" | "sata" | "ide" | "efidisk" | "tpmstate" | "unused")
}

fn is_disk(key: &str, config: &VmConfig) -> bool {
    let value = config.get(key).unwrap_or_default();
    is_drive(key)
        && !key.starts_with("unused")
        && !value.is_empty()
        && !value.split(',').any(|part| part == "media=cdrom")
}

/// The disk the guest boots from: first in the boot order, else the usual places.
pub fn primary_disk(config: &VmConfig) -> Option<&str> {
    let boot = config.get("boot").unwrap_or_default();
    let order = boot.split(',').find_map(|part| part.strip_prefix("order=")).unwrap_or_default();
    let named = order.split(';').chain(config.get("bootdisk"));
    named.chain(["scsi0", "virtio0", "sata0", "ide0"]).find(|key| is_disk(key, config))
}

/// A drive's size in bytes, when its value tells.
fn size_of(drive: &str) -> Option<u64> {
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

/// The disk to grow; a smaller size than it has is left alone.
fn resize(config: &VmConfig, wanted: Option<u32>) -> Option<(String, u32)> {
    let (wanted, disk) = (wanted?, primary_disk(config)?);
    let size = size_of(config.get(disk)?);
    let grows = size.is_none_or(|size| size < u64::from(wanted) << 30);
    grows.then(|| (disk.to_owned(), wanted))
}

/// Volumes that carry the guest's id.
pub fn volumes(config: &VmConfig, vmid: VmId) -> Vec<String> {
    let drives = config.iter().filter(|(key, _)| is_drive(key));
    let volumes = drives.filter_map(|(_, value)| value.split(',').next());
    volumes.filter(|volume| carries(volume, vmid)).map(str::to_owned).collect()
}

/// Whether a volume's name is the guest's own (`vm-101-disk-0`), not its template's.
pub fn carries(volume: &str, vmid: VmId) -> bool {
    let path = volume.split_once(':').map_or(volume, |(_, path)| path);
    let name = path.rsplit('/').next().unwrap_or(path);
    name.starts_with(&format!("vm-{vmid}-")) || name.starts_with(&format!("base-{vmid}-"))
}

/// The MAC address of net0, upper case.
pub fn mac(config: &VmConfig) -> Option<String> {
    let values = config.get("net0")?.split(',').filter_map(|part| part.split_once('='));
    let is_mac = |text: &str| {
        let parts: Vec<_> = text.split(':').collect();
        parts.len() == 6
            && parts.iter().all(|part| part.len() == 2 && u8::from_str_radix(part, 16).is_ok())
    };
    values.map(|(_, value)| value).find(|value| is_mac(value)).map(str::to_uppercase)
}

/// Reads a guest's configuration and verifies that it is the agent's, and nobody else's for now.
pub async fn read(client: &Client, call: &ConfigureCall) -> Result<VmConfig, Failure> {
    let vmid = call.vm.vmid;
    let config = client.config(call.vm.node.as_str(), vmid.0).await?;
    verify(&config, &call.marks, vmid)?;
    unlocked(&config, vmid)?;
    Ok(config)
}

/// Writes what differs from what was read; gives the resize's task to be awaited. A serial number is
/// the guest's secret, a disc the image in its drive.
pub async fn begin(
    client: &Client,
    call: &ConfigureCall,
    config: &VmConfig,
    disc: Option<&Disc>,
    serial: Option<&SecretString>,
) -> Result<Begun, Failure> {
    let (node, vmid) = (&call.vm.node, call.vm.vmid);
    let mut plan = plan(config, call);
    plan.changes.extend(disc.and_then(|disc| disc.change(config)));
    let serial = serial.and_then(|serial| number(config.get("smbios1"), serial.expose_secret()));
    plan.changes.extend(serial.map(|smbios| ("smbios1".to_owned(), smbios)));
    if disc.is_none() && disc::drive(config).is_none() && !call.spec.os.is_windows() {
        tracing::warn!(
            cloud = %call.vm.cloud,
            template = %call.spec.id,
            "the template has no cloud-init drive, so the guest gets no user, key or address from drover"
        );
    }
    // Only root may set it, and Proxmox makes a new one at each rollback where there is one.
    if call.spec.reset.is_some() && config.get("vmgenid").is_none_or(|value| value == "0") {
        tracing::warn!(
            cloud = %call.vm.cloud,
            template = %call.spec.id,
            "the template has no vmgenid, so a guest that is reset is not told so by its hypervisor: \
             `qm set {} --vmgenid 1` as root gives it one",
            call.spec.source
        );
    }
    let tags_refused = write(client, call, &plan, config.get("digest")).await?;
    let resize = match &plan.resize {
        Some((disk, gib)) => client.resize(node.as_str(), vmid.0, disk, *gib).await?,
        None => None,
    };
    let written = nics::after(config, &plan.changes);
    // Proxmox frees a cloud-init image itself when another disc takes its drive.
    let replaced = disc.and_then(|disc| disc.replaced(config));
    let mut volumes = volumes(config, vmid);
    volumes.retain(|volume| Some(volume.as_str()) != replaced);
    volumes.extend(disc.map(|disc| disc.volume.clone()));
    let configured = Configured { volumes, mac: mac(&written), tags_refused, image_refused: None };
    Ok(Begun { configured, resize: resize.map(task) })
}

/// Writes what differs, in one call; without the tags when those alone are refused.
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
    let Err(error) = client.set_config(node.as_str(), vmid.0, changes).await else {
        return Ok(None);
    };
    let refused = tag_refusal(client, &error).filter(|_| plan.tags.is_some());
    let Some(refused) = refused else { return Err(error) };
    tracing::warn!(cloud = %call.vm.cloud, vmid = %vmid, refusal = refused, "tags are left out");
    if !plan.changes.is_empty() {
        let changes = plan.changes.iter().cloned().chain(digest).collect();
        client.set_config(node.as_str(), vmid.0, changes).await?;
    }
    Ok(Some(refused))
}

/// The refusal's text, when it is about tags.
pub fn tag_refusal(client: &Client, error: &PveError) -> Option<String> {
    let PveError::Refused { refusal, .. } = error else { return None };
    let of_tags = refusal.status == 403 && refusal.text.contains("tag");
    of_tags.then(|| client.fault(error).text)
}

#[cfg(test)]
mod tests;
