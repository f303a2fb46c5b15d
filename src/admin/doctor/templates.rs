//! What templates are cloned from: whether it is there, and fit for what is wanted of it.

use std::collections::{BTreeMap, BTreeSet};

use drover_hypervisor::Client;
use drover_hypervisor::Failure;
use drover_hypervisor::locate;
use drover_hypervisor::{has_agent, has_cloud_init, primary_disk};
use drover_model::addresses::AddressSource;
use drover_model::fault::FaultKind;
use drover_model::spec::TemplateSpec;
use drover_model::template_image::Candidate;
use proxmox_client::types::{Resource, VmConfig};

use super::cluster::wake;
use super::{Mark, Patient, Seen, Templates};
use crate::rights::Source;

/// So many templates are named where the one that is meant is not there.
const SHOWN: usize = 10;

/// Bridges of a configuration's network cards, with their VLAN tags.
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

/// The guests a template is cloned from, with their configurations where these can be read.
pub(super) async fn sources(
    client: &Client,
    spec: &TemplateSpec,
    pools: &BTreeMap<u64, String>,
) -> Result<Seen, Failure> {
    let found = locate(client, &spec.sought(), None).await?;
    let mut sources = Vec::new();
    for Candidate { vmid, node, storages, .. } in &found.candidates {
        // One on a node that is offline is there, and nobody can read it.
        let config = match found.fleet.is_offline(node) {
            true => None,
            false => Some(client.config(node.as_str(), vmid.0).await?),
        };
        let source = Source {
            vmid: *vmid,
            node: node.clone(),
            pool: pools.get(&u64::from(vmid.0)).cloned(),
            storages: storages.clone(),
            bridges: config.as_ref().map(bridges).unwrap_or_default(),
        };
        sources.push((source, config));
    }
    Ok(Seen { found, sources })
}

impl Patient<'_> {
    /// Looks at every template of the cloud; gives what each is cloned from.
    pub(super) async fn templates(&mut self) -> Templates {
        let pools = self.client.pool_of_guests().await.unwrap_or_default();
        let mut all = BTreeMap::new();
        let specs: Vec<TemplateSpec> = self.specs().into_iter().cloned().collect();
        for spec in &specs {
            let about = format!("template {}", spec.id.name);
            let seen = match sources(&self.client, spec, &pools).await {
                Ok(seen) => seen,
                Err(error) => {
                    let text = self.told(&error);
                    let denied = matches!(self.client.fault(&error).kind, FaultKind::Denied { .. });
                    self.nothing(spec, about, text, denied).await;
                    continue;
                }
            };
            if seen.sources.is_empty() {
                let text = format!("no template of the cluster {}", spec.sought());
                self.nothing(spec, about, text, false).await;
            }
            // Where another one can be cloned that one does.
            let others = seen.sources.iter().any(|(_, config)| config.is_some());
            let unseen = if others { Mark::Warn } else { Mark::Fail };
            for (source, config) in &seen.sources {
                match config {
                    Some(config) => self.template(spec, source, config),
                    None => {
                        let about = format!("template {} ({})", spec.id.name, source.vmid);
                        let text = format!("not seen, {} is offline", source.node);
                        self.report.add(unseen, about, text, vec![wake(source.node.as_str())]);
                    }
                }
            }
            all.insert(spec.id.clone(), seen);
        }
        all
    }

    /// Tells that there is nothing to clone, and what there is instead.
    async fn nothing(&mut self, spec: &TemplateSpec, about: String, text: String, denied: bool) {
        let rows = self.client.resources(true).await.map(|(_, rows)| rows).unwrap_or_default();
        let guests = || rows.iter().filter(|row| row.kind == "qemu");
        let of_id = |row: &&Resource| row.vmid == Some(u64::from(spec.source.0));
        let meant = guests().find(of_id).filter(|_| spec.search.is_none());
        let mend = match meant {
            Some(Resource { node: Some(node), template: false, .. }) => {
                vec![format!("ssh {node} qm template {}", spec.source)]
            }
            _ if denied => vec![self.set_up("")],
            // It is there, and something else is in the way.
            Some(_) => Vec::new(),
            None => {
                let templates = guests().filter(|row| row.template);
                let there: Vec<String> = templates
                    .filter_map(|row| {
                        let name = row.name.as_deref().unwrap_or("without a name");
                        Some(format!("{} ({name})", row.vmid?))
                    })
                    .take(SHOWN)
                    .collect();
                if there.is_empty() {
                    let make = "make a template: https://pve.proxmox.com/wiki/Cloud-Init_Support";
                    vec![make.to_owned(), self.set_up("")]
                } else {
                    vec![format!("in the YAML: a template that is there: {}", there.join(", "))]
                }
            }
        };
        self.report.add(Mark::Fail, about, text, mend);
    }

    fn template(&mut self, spec: &TemplateSpec, source: &Source, config: &VmConfig) {
        let vmid = source.vmid;
        let about = format!("template {} ({vmid})", spec.id.name);
        let before = self.report.lines.len();
        if primary_disk(config).is_none() {
            let mend = format!("qm set {vmid} --boot order=scsi0");
            self.report.fail(&about, "has no disk to boot from", [mend.as_str()]);
        }
        if !has_cloud_init(config) && !spec.os.is_windows() {
            let mend = [format!("qm set {vmid} --ide2 STORAGE:cloudinit")];
            let text = "has no cloud-init drive: agents get no user, key or address from drover";
            self.report.warn(&about, text, mend);
        }
        if spec.address == AddressSource::GuestAgent && !has_agent(config) {
            let mend = [format!("qm set {vmid} --agent enabled=1")];
            let text = "has its guest agent switched off: drover switches it on in each clone, and \
                        the image needs qemu-guest-agent";
            self.report.warn(&about, text, mend);
        }
        if config.get("agent").is_some_and(|agent| agent.contains("type=isa")) {
            let mend = [format!("qm set {vmid} --agent enabled=1")];
            let text = "has an ISA port for its guest agent: most images listen on the virtio one";
            self.report.warn(&about, text, mend);
        }
        let no_generation = config.get("vmgenid").is_none_or(|value| value == "0");
        if spec.reset.is_some() && no_generation {
            let mend = [format!("qm set {vmid} --vmgenid 1")];
            let text = "has no vmgenid: a guest that is reset is not told so";
            self.report.warn(&about, text, mend);
        }
        if self.report.lines.len() == before {
            let drive = if has_agent(config) { "agent on, " } else { "" };
            let init = if spec.os.is_windows() { "of Windows" } else { "cloud-init drive" };
            let disk = primary_disk(config).unwrap_or_default();
            self.report.ok(about, format!("{drive}{init}, boots from {disk}"));
        }
    }
}
