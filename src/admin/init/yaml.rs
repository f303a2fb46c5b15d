//! The text of the first configuration, and what an earlier one answers.

use std::fmt::Write as _;
use std::path::Path;

use serde_yaml::Value;

use super::choice::{TEMPLATE_MAKE, VmidRange};
use super::proposal::{Answers, Image, Proposal, Source, Trust};

/// The most agents at a time, until somebody says otherwise.
const CAP: u32 = 4;

/// A text in quotes.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn list(items: &[String]) -> String {
    format!("[{}]", items.iter().map(|item| quoted(item)).collect::<Vec<_>>().join(", "))
}

/// What a configuration keeps beside its YAML.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Files<'a> {
    /// The cluster's own authority.
    pub authority: &'a str,
    /// State directory and socket of a drover that no unit runs; none for the unit's own.
    pub service: Option<(&'a Path, Option<&'a Path>)>,
}

/// The YAML of a proposal: at most 30 lines.
pub fn yaml(plan: &Proposal, files: Files<'_>) -> String {
    let Files { authority, service } = files;
    let mut out = String::new();
    let mut line = |text: String| {
        out.push_str(text.trim_end());
        out.push('\n');
    };
    let secrets = "written by `drover init`; secrets are in `credentials` beside this file";
    line(format!("credentials:   # {secrets}"));
    line(format!(
        "  proxmox: {{kind: proxmoxToken, tokenId: {}, systemdCredential: proxmox-token}}",
        quoted(&plan.token)
    ));
    line(format!(
        "  agents: {{kind: sshKey, username: {}, systemdCredential: agent-ssh-key}}",
        plan.guest_user
    ));
    let keys = "all keys: `drover help reference/configuration`";
    line(format!("cloudConfigurations:   # {keys}"));
    line("  primary:".to_owned());
    line(format!("    name: {}", quoted(&plan.cluster)));
    line("    credentialsId: proxmox".to_owned());
    line(format!("    apiUrls: {}   # one that answers is enough", list(&plan.api_urls)));
    match &plan.trust {
        Trust::System => {}
        Trust::Authority(_) => {
            line(format!("    caFile: {authority}   # the cluster's own authority"))
        }
        Trust::Pins(pins) => line(format!("    pinSha256: {}", list(pins))),
    }
    line(format!("    startVmId: {}   # VMIDs of agents, and of nothing else", plan.vmids.first));
    line(format!("    endVmId: {}", plan.vmids.last));
    if let Source::Image { image, node, storage, import_storage, bridge, .. } = &plan.source {
        let algorithm = if image.checksum.len() == 64 { "sha256" } else { "sha512" };
        line(
            "images:   # `drover image build debian` makes a template image of this one".to_owned(),
        );
        line(format!(
            "  debian: {{source: {{url: {}, checksumAlgorithm: {algorithm}, checksum: {}}},",
            quoted(&image.url),
            quoted(&image.checksum)
        ));
        let pool = &plan.pool;
        let to = "cloudIds: [primary], credentialsId: agents, targetPool";
        line(format!("    {to}: {pool}, nodes: [{node}],"));
        let mut last = format!("    storage: {storage}, importStorage: {import_storage}");
        if bridge != "vmbr0" {
            let _ = write!(last, ", hardware: {{bridge: {bridge}}}");
        }
        for (key, value) in reached(plan) {
            let _ = write!(last, ", {key}: {value}");
        }
        line(last + "}");
    }
    line("agentConfigurations:".to_owned());
    line("  linux:".to_owned());
    line("    cloudIds: [primary]".to_owned());
    let linked = match &plan.source {
        Source::Template { guests, name, by_name, nodes, storage, moved, bridge, linked } => {
            for (vmid, _) in guests.iter().filter(|_| !by_name) {
                line(format!("    templateVmId: {vmid}   # {name}"));
            }
            if *by_name {
                line(format!("    templateName: {}   # each node clones its own", quoted(name)));
            }
            match &nodes[..] {
                [node] => line(format!("    node: {node}")),
                _ => line(format!("    nodes: [{}]", nodes.join(", "))),
            }
            if *moved {
                line(format!("    targetStorage: {storage}"));
            }
            if let Some(bridge) = bridge {
                line(format!("    bridge: {bridge}"));
            }
            linked
        }
        Source::Image { nodes, linked, .. } => {
            line("    image: debian".to_owned());
            if !nodes.is_empty() {
                line(format!("    nodes: [{}]", nodes.join(", ")));
            }
            linked
        }
    };
    if *linked {
        line(
            "    cloneStrategy: LINKED   # clones share the disk of the template image".to_owned(),
        );
    }
    line(format!("    targetPool: {}   # drover's rights end at this pool", plan.pool));
    line(format!("    labelString: {}", quoted(&plan.labels.join(" "))));
    line("    credentialsId: agents".to_owned());
    line(format!("    ciUser: {}", plan.guest_user));
    for (key, value) in reached(plan) {
        line(format!("    {key}: {value}"));
    }
    line("    singleUse: true   # a fresh machine for each lease".to_owned());
    line(format!("    instanceCap: {CAP}   # agents at a time; `instanceMin: 1` keeps one ready"));
    if let Some((state, socket)) = service {
        let path = |path: &Path| quoted(&path.display().to_string());
        let mut keys = format!("stateDirectory: {}", path(state));
        if let Some(socket) = socket {
            let _ = write!(keys, ", socket: {}", path(socket));
        }
        line(format!("service: {{{keys}}}   # remove this line where the unit runs drover"));
    }
    out
}

/// The keys of how guests are reached, where that is not the usual way.
fn reached(plan: &Proposal) -> Vec<(&'static str, String)> {
    let port = plan.ssh_port.map(|port| ("sshPort", port.to_string()));
    let networks = Some(&plan.guest_networks).filter(|all| !all.is_empty());
    port.into_iter().chain(networks.map(|all| ("guestNetworks", list(all)))).collect()
}

/// Whether a YAML has nothing but comments, as an example that a package installed.
pub fn is_blank(text: &str) -> bool {
    text.lines().map(str::trim).all(|line| line.is_empty() || line.starts_with('#'))
}

/// What an earlier run's YAML answers, and its URLs; none for one that init did not write.
pub fn earlier(text: &str) -> Option<(Answers, Vec<String>)> {
    let all: Value = serde_yaml::from_str(text).ok()?;
    let cloud = all.get("cloudConfigurations")?.get("primary")?;
    let template = all.get("agentConfigurations")?.get("linux")?;
    let words = |value: &Value| -> Option<Vec<String>> {
        let all = value.as_sequence()?.iter();
        Some(all.filter_map(|one| one.as_str().map(str::to_owned)).collect())
    };
    let word = |of: &Value, key: &str| of.get(key).and_then(Value::as_str).map(str::to_owned);
    let number = |of: &Value, key: &str| of.get(key).and_then(Value::as_u64);
    let vmid = |key: &str| u32::try_from(number(cloud, key)?).ok();
    let credentials = all.get("credentials")?;
    let mut answers = Answers {
        vmids: Some(VmidRange { first: vmid("startVmId")?, last: vmid("endVmId")? }),
        labels: word(template, "labelString")
            .map(|text| text.split(' ').map(str::to_owned).collect()),
        pool: word(template, "targetPool"),
        guest_user: credentials.get("agents").and_then(|one| word(one, "username")),
        token: credentials.get("proxmox").and_then(|one| word(one, "tokenId")),
        ssh_port: number(template, "sshPort").and_then(|port| port.try_into().ok()),
        guest_networks: template.get("guestNetworks").and_then(words),
        node: word(template, "node"),
        storage: word(template, "targetStorage"),
        bridge: word(template, "bridge"),
        template: number(template, "templateVmId")
            .map(|vmid| vmid.to_string())
            .or(word(template, "templateName")),
        image: None,
    };
    if let Some(image) = all.get("images").and_then(|images| images.get("debian")) {
        let source = image.get("source")?;
        answers.template = Some(TEMPLATE_MAKE.to_owned());
        answers.node = image.get("nodes").and_then(words)?.into_iter().next();
        answers.storage = word(image, "storage");
        answers.bridge = image.get("hardware").and_then(|one| word(one, "bridge"));
        answers.image =
            Some(Image { url: word(source, "url")?, checksum: word(source, "checksum")? });
    }
    Some((answers, cloud.get("apiUrls").and_then(words)?))
}
