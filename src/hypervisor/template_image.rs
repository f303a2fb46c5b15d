//! Template images: the guests from which templates are cloned, found by VMID, name, pattern or
//! tag, with what their configurations show.
//!
//! [`locate`] reads the cluster's list and the configurations of matching guests. It returns the
//! candidates with their node, age, storages and size, and whether all of them could be read.
//! Placement chooses among them.
//!
//! By VMID, a missing or unsuitable guest is a fault that says what to do (`qm template`, a
//! privilege, the VMID). By name, pattern or tag, a guest that vanished or whose node is silent is
//! left out, and the result is marked as incomplete.

use std::collections::BTreeSet;
use std::sync::Arc;

use drover_model::container::GuestType;
use drover_model::fault::{Culprit, Fault, FaultKind};
use drover_model::id::{NodeName, VmId};
use drover_model::marks::{Kind, Reading, parse_name, slug};
use drover_model::placement::Fleet;
use drover_model::ports::{IdStatus, Listed};
use drover_model::template_image::{CHECK_VMID, Candidate, Found, Sought};
use proxmox_client::GuestId;
use proxmox_client::types::VmConfig;
use regex_lite::Regex;
use sha2::{Digest, Sha256};

use crate::client::Client;
use crate::client::Failure;
use crate::configure::{self, is_drive, reading};
use crate::copied;
use crate::fleet;
use crate::list::LIST_SHARED_FOR;
use crate::observe::{id_taken, is_transient, listed};
use crate::os_template;

/// The pattern as it is matched: against the whole name, with or without anchors of its own.
pub fn name_pattern(pattern: &str) -> Result<Regex, regex_lite::Error> {
    Regex::new(&format!("^(?:{pattern})$"))
}

/// Finds the template images that may be cloned. By VMID, it is a fault when there is none.
///
/// With `near`, a template image by VMID is not read when it is on the only one of these nodes, or
/// on any node if `near` is empty.
pub async fn locate(
    client: &Client,
    sought: &Sought,
    near: Option<&[NodeName]>,
) -> Result<Found, Failure> {
    let list = client.list(LIST_SHARED_FOR).await?;
    let fleet = Arc::new(fleet::of_rows(&list.rows));
    if let Sought::Os(template) = sought {
        let candidates = os_template::candidates(template, &fleet);
        return Ok(Found { candidates, fleet, whole: true });
    }
    let guests: Vec<Listed> = list.rows.iter().filter_map(listed).collect();
    if let Sought::Agent { agent, vmid } = sought {
        let found = copied::find(client, (agent, *vmid), &guests, &fleet).await?;
        return Ok(Found { candidates: vec![found], fleet, whole: true });
    }
    let by_id = matches!(sought.by(), Sought::Id(_));
    let (mut candidates, mut whole) = (Vec::new(), true);
    for guest in fitting(client, &guests, sought).await? {
        let here = |near: &[NodeName]| near.is_empty() || near == [guest.node.clone()];
        if by_id && guest.template && near.is_some_and(here) {
            candidates.push(unread_candidate(&guest, &fleet));
            whole = false;
            continue;
        }
        if fleet.is_offline(&guest.node) {
            // Its configuration cannot be read, and the reason is that its node is offline.
            candidates.extend(guest.template.then(|| unread_candidate(&guest, &fleet)));
            whole = false;
            continue;
        }
        let id = GuestId { vmid: guest.vmid.0, container: guest.container };
        match client.config(guest.node.as_str(), id).await {
            Ok(config) if config.is_template() => {
                candidates.extend(
                    candidate(&guest, &config, &fleet)
                        .filter(|_| is_version(&guest, &config, sought)),
                );
            }
            Ok(_) if by_id => return Err(not_a_template(client, &guest).into()),
            Ok(_) => {}
            // It was removed meanwhile, or its node does not answer; the others count.
            Err(error) if !by_id => {
                let kind = client.fault(&error).kind;
                if !is_transient(&kind) && kind != FaultKind::Gone {
                    return Err(error.into());
                }
                whole &= kind == FaultKind::Gone;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Found { candidates, fleet, whole })
}

/// Whether a template is a version of the image that is sought, where one is.
fn is_version(guest: &Listed, config: &VmConfig, sought: &Sought) -> bool {
    let Sought::Image(name) = sought else { return true };
    let Reading::Marked(marks) = reading(config) else { return false };
    marks.kind == Kind::Image && marks.vmid == guest.vmid && marks.template == *name
}

fn template_fault(kind: FaultKind, text: String) -> Fault {
    Fault::new(kind, Culprit::Template, text)
}

fn not_a_template(client: &Client, guest: &Listed) -> Fault {
    let (cloud, vmid) = (client.cloud(), guest.vmid);
    let tool = GuestType::of_listed(guest.container).tool();
    let text = format!(
        "guest `{vmid}` on cloud `{cloud}` is not a template: `{tool} template {vmid}` on its node makes it one for good"
    );
    template_fault(FaultKind::Broken, text)
}

/// Guests that may match. Their configurations show whether they are templates, because the list
/// may be ten seconds old (book: proxmox, section 8).
async fn fitting(
    client: &Client,
    guests: &[Listed],
    sought: &Sought,
) -> Result<Vec<Listed>, Failure> {
    let container = sought.guest().is_container();
    let by = |fits: &dyn Fn(&Listed) -> bool| -> Vec<Listed> {
        let same = guests.iter().filter(|guest| guest.container == container);
        same.filter(|guest| fits(guest)).cloned().collect()
    };
    match sought.by() {
        Sought::Id(vmid) => match guests.iter().find(|guest| guest.vmid == *vmid) {
            Some(guest) if guest.container != container => {
                let cloud = client.cloud();
                let (is, set) = match guest.container {
                    true => ("a container, not a VM template", "CONTAINER"),
                    false => ("a virtual machine, not a container's template", "VM"),
                };
                let text = format!(
                    "guest `{vmid}` on cloud `{cloud}` is {is}: set `guestType: {set}`, or name \
                     another template"
                );
                Err(template_fault(FaultKind::Broken, text).into())
            }
            Some(guest) => Ok(vec![guest.clone()]),
            None => Err(missing_template(client, *vmid).await?.into()),
        },
        Sought::Name(name) => {
            Ok(by(&|guest| guest.template && guest.name.as_deref() == Some(name.as_str())))
        }
        Sought::Pattern(pattern) => {
            let pattern = name_pattern(pattern).map_err(|error| {
                let text = format!(
                    "templateNamePattern `{pattern}` is not a valid regular expression: {error}"
                );
                template_fault(FaultKind::Broken, text)
            })?;
            let fits = |name: &String| pattern.is_match(name);
            Ok(by(&|guest| guest.template && guest.name.as_ref().is_some_and(fits)))
        }
        // Agents inherit a template's tags and differ from it by the template flag. A guest that
        // was just created has no flag in the list yet.
        Sought::Tag(tag) => Ok(by(&|guest| {
            let new = guest.name.is_none() && guest.lock.is_none();
            (guest.template || new) && carries(&guest.tags, tag)
        })),
        Sought::Image(name) => {
            let slug = format!("{}-", slug("", name));
            let named = |name: &String| name.starts_with(&slug) && parse_name(name).is_some();
            Ok(by(&|guest| guest.template && guest.name.as_ref().is_some_and(named)))
        }
        // Answered before.
        Sought::Agent { .. } | Sought::Container(_) | Sought::Os(_) => Ok(Vec::new()),
    }
}

/// Whether a tag is in the list, in either case: a cluster may keep the case in which tags are
/// written.
fn carries(tags: &[String], tag: &str) -> bool {
    tags.iter().any(|own| own.eq_ignore_ascii_case(tag))
}

/// Why a VMID is not in the list.
async fn missing_template(client: &Client, source: VmId) -> Result<Fault, Failure> {
    let cloud = client.cloud();
    Ok(match id_taken(client, source).await? {
        IdStatus::Free => {
            let text = format!("cloud `{cloud}` has no guest `{source}`: {CHECK_VMID}");
            template_fault(FaultKind::Broken, text)
        }
        IdStatus::Taken => {
            let path = format!("/vms/{source}");
            // A new guest is missing in the list for about ten seconds (book: proxmox, section 8).
            if client.privileges(&path, None).await?.contains_key("VM.Audit") {
                let text = format!(
                    "guest `{source}` is not in the list of cloud `{cloud}` yet; drover looks again"
                );
                return Ok(template_fault(FaultKind::Contention, text));
            }
            let text = format!(
                "`{}` does not see guest `{source}` on cloud `{cloud}`: give it the privilege \
                 `VM.Audit` on `{path}`",
                client.login()
            );
            let privilege = Some("VM.Audit".to_owned());
            template_fault(FaultKind::Denied { privilege, path: Some(path) }, text)
        }
        IdStatus::Unknown => {
            let text = format!(
                "cloud `{cloud}` does not list guest `{source}`, and has no quorum to confirm that \
                 the guest does not exist"
            );
            template_fault(FaultKind::Contention, text)
        }
    })
}

fn unread_candidate(guest: &Listed, fleet: &Fleet) -> Candidate {
    Candidate {
        vmid: guest.vmid,
        node: guest.node.clone(),
        name: guest.name.clone().unwrap_or_default(),
        created: None,
        storages: BTreeSet::new(),
        digest: String::new(),
        sizes: fleet::template_sizes(fleet.guests().get(&guest.vmid), None),
    }
}

/// A template image from its configuration; none for a guest with an agent's marks.
fn candidate(guest: &Listed, config: &VmConfig, fleet: &Fleet) -> Option<Candidate> {
    if let Reading::Marked(marks) = reading(config)
        && matches!(marks.kind, Kind::Agent | Kind::Builder | Kind::Machine)
    {
        return None;
    }
    let shown = shown((guest.vmid, &guest.node), config, fleet);
    let name = Some(shown.name.clone()).filter(|name| !name.is_empty());
    let name = name.or_else(|| guest.name.clone()).unwrap_or_default();
    Some(Candidate { name, ..shown })
}

/// What the configuration of a guest shows of it.
pub(crate) fn shown(
    (vmid, node): (VmId, &NodeName),
    config: &VmConfig,
    fleet: &Fleet,
) -> Candidate {
    Candidate {
        vmid,
        node: node.clone(),
        name: configure::name(config).unwrap_or_default().to_owned(),
        created: created(config),
        storages: storages(config),
        digest: digest(config),
        sizes: fleet::template_sizes(fleet.guests().get(&vmid), Some(config)),
    }
}

/// When a guest was created, from `meta: creation-qemu=…,ctime=…`.
pub(crate) fn created(config: &VmConfig) -> Option<u64> {
    let meta = config.get("meta")?;
    meta.split(',').find_map(|part| part.trim().strip_prefix("ctime="))?.parse().ok()
}

/// The storages of its volumes, including cloud-init drives and images in its drives.
pub(crate) fn storages(config: &VmConfig) -> BTreeSet<String> {
    let used = |key: &str| is_drive(key) && !key.starts_with("unused");
    let drives = config.iter().filter(|(key, _)| used(key));
    let volumes = drives.filter_map(|(_, value)| value.split(',').next()?.split_once(':'));
    volumes.map(|(storage, _)| storage.to_owned()).collect()
}

/// A digest of the whole configuration.
fn digest(config: &VmConfig) -> String {
    let mut hash = Sha256::new();
    // The description and Proxmox's own digest of the file do not make another template.
    for (key, value) in config.iter().filter(|(key, _)| !matches!(*key, "digest" | "description")) {
        hash.update(format!("{key}={value}\n"));
    }
    hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    // Invariant: age and storages come from the configuration, and people's text does not count as
    // a change.

    #[test]
    fn a_configuration_says_age_storages_and_what_was_changed() {
        let config = VmConfig::new([
            ("name", "debian-13"),
            ("meta", "creation-qemu=9.0.2,ctime=1763700000"),
            ("scsi0", "nfs:9000/base-9000-disk-0.qcow2,size=10G"),
            ("ide2", "local-lvm:vm-9000-cloudinit,media=cdrom"),
            ("sata1", "none,media=cdrom"),
            ("scsihw", "virtio-scsi-pci"),
        ]);
        assert_eq!(created(&config), Some(1_763_700_000));
        assert_eq!(storages(&config), ["local-lvm".to_owned(), "nfs".to_owned()].into());
        let with = |key: &str, value: &str| {
            let all = config.iter().chain([(key, value)]);
            digest(&VmConfig::new(all.map(|(key, value)| (key.to_owned(), value.to_owned()))))
        };
        assert_eq!(with("description", "golden"), digest(&config));
        assert_ne!(with("cores", "4"), digest(&config));
        assert_eq!(created(&VmConfig::new([("meta", "creation-qemu=9.0.2")])), None);
    }

    // Invariant: a tag matches in whichever case the cluster has it.

    #[test]
    fn a_tag_is_found_in_whichever_case_it_is_written() {
        let tags = ["ci", "Golden"].map(str::to_owned);
        assert!(carries(&tags, "golden") && carries(&tags, "ci"));
        assert!(!carries(&tags, "gold"));
    }

    // Invariant: a pattern matches whole names.

    #[test]
    fn a_pattern_matches_whole_names_with_or_without_anchors() {
        for pattern in [r"debian-13-\d+", r"^debian-13-\d+$", "debian-13-1|debian-13-2"] {
            let pattern = name_pattern(pattern).ok();
            let fits = |name: &str| pattern.as_ref().is_some_and(|pattern| pattern.is_match(name));
            assert!(fits("debian-13-2") && !fits("my-debian-13-2") && !fits("debian-13-2-old"));
        }
    }
}
