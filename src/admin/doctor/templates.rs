//! The guests that templates are cloned from: whether they exist, and whether they fit.

use std::collections::{BTreeMap, BTreeSet};

use drover_ci::{Remedy, Severity};
use drover_hypervisor::Client;
use drover_hypervisor::Failure;
use drover_hypervisor::locate;
use drover_hypervisor::{cloud_init_place, has_agent, has_cloud_init, primary_disk};
use drover_model::addresses::AddressSource;
use drover_model::fault::{Culprit, FaultKind};
use drover_model::id::{CloudId, TemplateId};
use drover_model::image::{Bios, ImageSource};
use drover_model::spec::{HerdSpec, TemplateSpec};
use drover_model::template_image::{Candidate, Sought};
use proxmox_client::GuestId;
use proxmox_client::types::{Resource, VmConfig};

use super::cluster::node_status;
use super::{CloudCheck, TemplateGuests, Templates};
use crate::rights::TemplateGuest;

/// How many existing templates are named where the configured one is missing.
const TEMPLATES_SHOWN: usize = 10;

/// The bridges of a configuration's network cards, with their VLAN tags.
fn bridges(config: &VmConfig) -> BTreeSet<(String, Option<u16>)> {
    let is_card = |key: &str| {
        key.strip_prefix("net")
            .is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
    };
    let cards = config.iter().filter(|(key, _)| is_card(key));
    let part = |card: &str, name: &str| {
        let mut parts = card.split(',').filter_map(|part| part.split_once('='));
        parts.find(|(key, _)| *key == name).map(|(_, value)| value.to_owned())
    };
    cards
        .filter_map(|(_, card)| {
            Some((part(card, "bridge")?, part(card, "tag").and_then(|tag| tag.parse().ok())))
        })
        .collect()
}

/// The guests that a template is cloned from, with their configurations where these can be read.
pub(super) async fn sources(
    client: &Client,
    sought: &Sought,
    pools: &BTreeMap<u64, String>,
) -> Result<TemplateGuests, Failure> {
    let found = locate(client, sought, None).await?;
    let mut sources = Vec::new();
    if matches!(sought, Sought::Os(_)) {
        // No guest is copied.
        return Ok(TemplateGuests { found, sources });
    }
    for Candidate { vmid, node, storages, .. } in &found.candidates {
        // The configuration of a guest on an offline node cannot be read.
        let config = match found.fleet.is_offline(node) {
            true => None,
            false => {
                let container = sought.guest().is_container();
                let id = GuestId { vmid: vmid.0, container };
                Some(client.config(node.as_str(), id).await?)
            }
        };
        let source = TemplateGuest {
            vmid: *vmid,
            node: node.clone(),
            pool: pools.get(&u64::from(vmid.0)).cloned(),
            storages: storages.clone(),
            bridges: config.as_ref().map(bridges).unwrap_or_default(),
        };
        sources.push((source, config));
    }
    Ok(TemplateGuests { found, sources })
}

/// The same, or why there is nothing to clone: what is no template yet must not keep the others from
/// their rights.
pub(super) async fn sources_or_why(
    client: &Client,
    sought: &Sought,
    pools: &BTreeMap<u64, String>,
) -> Result<Result<TemplateGuests, String>, Failure> {
    match sources(client, sought, pools).await {
        Ok(seen) => Ok(Ok(seen)),
        Err(error) => {
            let fault = client.fault(&error);
            if fault.culprit == Culprit::Template { Ok(Err(fault.text)) } else { Err(error) }
        }
    }
}

/// The guests that the images of a cloud copy, and why others have none.
type Copied = (BTreeMap<TemplateId, Vec<TemplateGuest>>, BTreeMap<TemplateId, String>);

/// The guests that the images of a cloud copy.
pub(super) async fn copied(
    client: &Client,
    herd: &HerdSpec,
    cloud: &CloudId,
    pools: &BTreeMap<u64, String>,
) -> Result<Copied, Failure> {
    let (mut copied, mut missing) = (BTreeMap::new(), BTreeMap::new());
    for image in herd.images.values().filter(|image| image.id.cloud == *cloud) {
        if let Some(ImageSource::Template(sought)) = &image.source {
            match sources_or_why(client, sought, pools).await? {
                Ok(seen) => {
                    let guests = seen.sources.into_iter().map(|(one, _)| one).collect();
                    copied.insert(image.id.clone(), guests);
                }
                Err(why) => {
                    missing.insert(image.id.clone(), why);
                }
            }
        }
    }
    Ok((copied, missing))
}

impl CloudCheck<'_> {
    /// Checks every template of the cloud; returns what each is cloned from.
    pub(super) async fn templates(&mut self) -> Templates {
        let pools = self.client.pool_of_guests().await.unwrap_or_default();
        let mut all = BTreeMap::new();
        let specs: Vec<TemplateSpec> = self.specs().into_iter().cloned().collect();
        for spec in &specs {
            let about = format!("template {}", spec.id.name);
            let seen = match sources(&self.client, &spec.sought(), &pools).await {
                Ok(seen) => seen,
                Err(error) => {
                    let text = self.error_text(&error);
                    let denied = matches!(self.client.fault(&error).kind, FaultKind::Denied { .. });
                    self.report_missing(spec, about, text, denied).await;
                    continue;
                }
            };
            if let Some(create) = spec.create() {
                self.os_template(spec, create, &seen.found).await;
            } else if seen.sources.is_empty() {
                let text = format!("the cluster has no template that {}", spec.sought());
                self.report_missing(spec, about, text, false).await;
            }
            // Another guest of the same template can be cloned.
            let others = seen.sources.iter().any(|(_, config)| config.is_some());
            let unseen = if others { Severity::Warn } else { Severity::Fail };
            for (source, config) in &seen.sources {
                match config {
                    Some(config) if spec.guest().is_container() => {
                        self.container_template(spec, source, config, &seen.found.fleet);
                    }
                    Some(config) => self.template(spec, source, config),
                    None => {
                        let about = format!("template {} ({})", spec.id.name, source.vmid);
                        let text = format!("cannot be read: {} is offline", source.node);
                        let remedies = vec![node_status(source.node.as_str())];
                        self.report.add(unseen, about, text, remedies);
                    }
                }
            }
            all.insert(spec.id.clone(), seen);
        }
        all
    }

    /// Reports that there is nothing to clone, and which templates exist instead.
    async fn report_missing(
        &mut self,
        spec: &TemplateSpec,
        about: String,
        text: String,
        denied: bool,
    ) {
        let rows = self.client.resources(true).await.map(|(_, rows)| rows).unwrap_or_default();
        let kind = if spec.guest().is_container() { "lxc" } else { "qemu" };
        let guests = || rows.iter().filter(|row| row.kind == kind);
        let build = match spec.search.as_ref().map(Sought::by) {
            Some(Sought::Image(name)) => {
                let id = TemplateId::new(spec.id.cloud.clone(), name);
                let image = self.herd.images.get(&id);
                let how = match image.is_some_and(|image| image.source.is_none()) {
                    true => format!("image import VMID --as {name}"),
                    false => format!("image build {name}"),
                };
                vec![Remedy::here(self.drover_command(&how))]
            }
            Some(
                Sought::Id(_)
                | Sought::Name(_)
                | Sought::Pattern(_)
                | Sought::Tag(_)
                | Sought::Agent { .. }
                | Sought::Container(_)
                | Sought::Os(_),
            )
            | None => Vec::new(),
        };
        let of_id = |row: &&Resource| row.vmid == Some(u64::from(spec.source.0));
        let meant = guests().find(of_id).filter(|_| spec.search.is_none());
        let remedy = match meant {
            Some(Resource { node: Some(node), template: false, .. }) => {
                let template = Remedy::on_node(
                    node,
                    format!("{} template {}", spec.guest().tool(), spec.source),
                );
                vec![template.noting("which converts the guest for good: it never starts again")]
            }
            _ if denied => self.setup(""),
            // The template exists, and the error says what is in the way.
            Some(_) => Vec::new(),
            None if !build.is_empty() => build,
            None => {
                let templates = guests().filter(|row| row.template);
                let existing = |row: &Resource| {
                    let name = row.name.as_deref().unwrap_or("without a name");
                    let line = format!("templateVmId: {} # {name}", row.vmid?);
                    Some(Remedy::yaml(line).noting("one that exists"))
                };
                let there: Vec<Remedy> =
                    templates.filter_map(existing).take(TEMPLATES_SHOWN).collect();
                if there.is_empty() {
                    let guide = "https://pve.proxmox.com/wiki/Cloud-Init_Support";
                    let make = Remedy::at("on a node, a template as in this guide", guide);
                    [make].into_iter().chain(self.setup("")).collect()
                } else {
                    there
                }
            }
        };
        self.report.add(Severity::Fail, about, text, remedy);
    }

    /// Checks hardware that a clone alone would show to be impossible.
    fn hardware(
        &mut self,
        spec: &TemplateSpec,
        about: &str,
        source: &TemplateGuest,
        config: &VmConfig,
    ) {
        let hardware = &spec.hardware;
        let set = |option: &str| {
            [Remedy::on_node(&source.node, format!("qm set {} {option}", source.vmid))]
        };
        let affinity = hardware.affinity.as_deref();
        let is_root = self.client.login() == "root@pam";
        if let Some(list) = affinity.filter(|list| config.get("affinity") != Some(list) && !is_root)
        {
            let text = "is to get an `affinity`, which Proxmox lets only root@pam with a password set: \
                        no clone comes up; clones keep that of the template image";
            self.report.fail(about, text, set(&format!("--affinity {list}")));
        }
        let own = config.get("bios") == Some(Bios::Ovmf.name());
        let ovmf = hardware.bios.map_or(own, |bios| bios == Bios::Ovmf);
        if ovmf && config.get("efidisk0").is_none() {
            let text = "has no EFI disk, and its clones start with OVMF: their firmware loses its \
                        settings whenever they stop";
            self.report.warn(about, text, set("--efidisk0 STORAGE:1,efitype=4m"));
        }
    }

    fn template(&mut self, spec: &TemplateSpec, source: &TemplateGuest, config: &VmConfig) {
        let vmid = source.vmid;
        let set = |option: &str| [Remedy::on_node(&source.node, format!("qm set {vmid} {option}"))];
        let about = format!("template {} ({vmid})", spec.id.name);
        let before = self.report.lines.len();
        if primary_disk(config).is_none() {
            self.report.fail(&about, "has no disk to boot from", set("--boot order=scsi0"));
        }
        if !has_cloud_init(config) && !spec.os.is_windows() {
            let text = "has no cloud-init drive: agents get no user, key or address from drover";
            self.report.warn(
                &about,
                text,
                set(&format!("--{} STORAGE:cloudinit", cloud_init_place(config))),
            );
        }
        if spec.address == AddressSource::GuestAgent && !has_agent(config) {
            let text = "has its guest agent option off: drover switches it on in each clone, and \
                        the image needs qemu-guest-agent";
            self.report.warn(&about, text, set("--agent enabled=1"));
        }
        if config.get("agent").is_some_and(|agent| agent.contains("type=isa")) {
            let text = "has an ISA port for its guest agent, but most images use the virtio port";
            self.report.warn(&about, text, set("--agent enabled=1"));
        }
        let no_generation = config.get("vmgenid").is_none_or(|value| value == "0");
        if spec.reset.is_some() && no_generation {
            let text = "has no vmgenid, so a guest does not notice that it was reset";
            self.report.warn(&about, text, set("--vmgenid 1"));
        }
        self.hardware(spec, &about, source, config);
        if self.report.lines.len() == before {
            let drive = if has_agent(config) { "agent on, " } else { "" };
            let init = if spec.os.is_windows() { "of Windows" } else { "cloud-init drive" };
            let disk = primary_disk(config).unwrap_or_default();
            self.report.ok(about, format!("{drive}{init}, boots from {disk}"));
        }
    }
}
