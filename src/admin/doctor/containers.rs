//! What containers are made of: templates that are cloned, and OS templates.

use std::collections::BTreeMap;

use drover_ci::Remedy;
use drover_model::container::CreateSpec;
use drover_model::id::NodeName;
use drover_model::placement::Fleet;
use drover_model::spec::TemplateSpec;
use drover_model::template_image::Found;
use proxmox_client::types::VmConfig;

use super::CloudCheck;
use crate::rights::TemplateGuest;

impl CloudCheck<'_> {
    /// Checks that an OS template is on its storage, or that a node can download it.
    pub(super) async fn os_template(
        &mut self,
        spec: &TemplateSpec,
        create: &CreateSpec,
        found: &Found,
    ) {
        let template = &create.template;
        let about = format!("template {} ({})", spec.id.name, template.volume());
        let wanted = spec.nodes();
        let reached = found.candidates.iter().map(|one| &one.node);
        let nodes: Vec<&NodeName> =
            reached.filter(|node| wanted.is_empty() || wanted.contains(node)).collect();
        if nodes.is_empty() {
            let text = format!("no node of it reaches storage {}", template.storage);
            let remedy = Remedy::on_any_node("pvesm status --content vztmpl");
            return self.report.fail(about, text, [remedy.noting("shows the storages that fit")]);
        }
        let mut missing: BTreeMap<&NodeName, Option<String>> = BTreeMap::new();
        for node in &nodes {
            match self.client.os_templates(node.as_str(), &template.storage).await {
                Ok(there) if there.iter().any(|one| one.volid == template.volume()) => {}
                Ok(_) => drop(missing.insert(node, None)),
                Err(error) => drop(missing.insert(node, Some(self.error_text(&error)))),
            }
        }
        if let Some(text) = missing.values().flatten().next().cloned() {
            let setup = self.setup("");
            return self.report.fail(about, text, setup);
        }
        if missing.is_empty() {
            return self.report.ok(about, "is there");
        }
        let on: Vec<&str> = missing.keys().map(|node| node.as_str()).collect();
        let (from, remedy) = match &template.download {
            Some(download) => (download.url.clone(), Vec::new()),
            None => {
                let command = format!("pveam download {} {}", template.storage, template.file);
                let list = Remedy::on_any_node("pveam update && pveam available");
                ("Proxmox's own list".to_owned(), vec![Remedy::on_any_node(command), list])
            }
        };
        let text = format!(
            "is missing on {}: the node downloads it from {from} before the first container",
            on.join(", ")
        );
        self.report.warn(about, text, remedy);
    }

    /// Checks a container's template that is cloned.
    pub(super) fn container_template(
        &mut self,
        spec: &TemplateSpec,
        source: &TemplateGuest,
        config: &VmConfig,
        fleet: &Fleet,
    ) {
        let about = format!("template {} ({})", spec.id.name, source.vmid);
        let before = self.report.lines.len();
        if config.get("rootfs").is_none() {
            let look = Remedy::on_node(&source.node, format!("pct config {}", source.vmid));
            self.report.fail(&about, "has no root file system", [look]);
        }
        let card = config.get("net0").is_some() || spec.network.bridge.is_some();
        if !card && spec.nics.is_empty() {
            let add = format!("pct set {} --net0 name=eth0,bridge=vmbr0,ip=dhcp", source.vmid);
            let remedy = [Remedy::on_node(&source.node, add)];
            self.report.fail(&about, "has no network card, so drover reaches no clone", remedy);
        }
        if self.report.lines.len() == before {
            let kinds = source.storages.iter().map(|name| {
                let kind = fleet.storage(name, &source.node).map_or("", |one| one.kind.as_str());
                format!("{name} ({kind})")
            });
            let rooted = match config.get("unprivileged") {
                Some("1") => "unprivileged",
                Some(_) | None => "privileged",
            };
            let on: Vec<String> = kinds.collect();
            self.report.ok(about, format!("a container, {rooted}, on {}", on.join(", ")));
        }
    }
}
