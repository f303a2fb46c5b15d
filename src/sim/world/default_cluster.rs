//! The default cluster: three nodes with shared and local storages, and a cloud-init template on
//! each, or one of each disk image.

use std::collections::BTreeMap;

use super::conf;
use crate::spec::{ClusterSpec, GuestSpec, NodeSpec, PoolSpec, StorageSpec, TokenSpec};

impl ClusterSpec {
    /// Three nodes `pve1` to `pve3`, templates 9000 to 9002, pool `ci`, and a token of root with
    /// all privileges. The caller chooses the password and the secret.
    pub fn three_nodes(root_password: &str, token_secret: &str) -> Self {
        let nodes = ["pve1", "pve2", "pve3"];
        Self {
            name: "drover".into(),
            nodes: nodes.iter().map(|name| node(name)).collect(),
            storages: vec![
                storage("local", "dir", &["iso", "vztmpl", "snippets", "backup"], false),
                storage("local-lvm", "lvmthin", &["images", "rootdir"], false),
                storage("shared", "nfs", &["images", "iso", "snippets", "import"], true),
            ],
            guests: nodes
                .iter()
                .zip(9000..)
                .map(|(node, vmid)| template(node, vmid, &PLAIN_IMAGE))
                .collect(),
            pools: vec![PoolSpec { name: "ci".into(), comment: None, storages: Vec::new() }],
            root_password: root_password.to_owned(),
            root_tokens: vec![TokenSpec {
                name: "drover".into(),
                secret: token_secret.to_owned(),
                privsep: false,
                expire: 0,
            }],
            ..Self::default()
        }
    }

    /// The same with a template of each image, a name and a size in bytes, on each node: 9000 to
    /// 9002 of the first image, 9003 to 9005 of the second.
    pub(crate) fn with_templates_of(mut self, images: &[(String, u64)]) -> Self {
        let nodes = self.nodes.iter().map(|node| &node.name);
        let places = images.iter().flat_map(|image| nodes.clone().map(move |node| (node, image)));
        let template = |((node, (name, bytes)), vmid): ((&String, &(String, u64)), u32)| {
            let size = conf::print_size(*bytes);
            let image = TemplateImage { name, size: &size, memory: "512", cores: "1" };
            template(node, vmid, &image)
        };
        self.guests = places.zip(9000..).map(template).collect();
        self
    }
}

/// What a template is of.
struct TemplateImage<'a> {
    name: &'a str,
    /// The size of its disk, as Proxmox writes it.
    size: &'a str,
    memory: &'a str,
    cores: &'a str,
}

/// The image of templates whose guests have no real disks.
const PLAIN_IMAGE: TemplateImage<'static> =
    TemplateImage { name: "debian-12", size: "10G", memory: "2048", cores: "2" };

fn node(name: &str) -> NodeSpec {
    NodeSpec { vlan_aware: vec!["vmbr0".into()], ..NodeSpec::named(name) }
}

fn storage(name: &str, kind: &str, content: &[&str], shared: bool) -> StorageSpec {
    StorageSpec {
        name: name.to_owned(),
        kind: kind.to_owned(),
        content: content.iter().map(|content| (*content).to_owned()).collect(),
        shared,
        nodes: Vec::new(),
        size_bytes: 1 << 40,
        disabled: false,
    }
}

fn template(node: &str, vmid: u32, image: &TemplateImage<'_>) -> GuestSpec {
    let config = [
        ("name", image.name),
        ("memory", image.memory),
        ("cores", image.cores),
        ("scsihw", "virtio-scsi-pci"),
        ("scsi0", &format!("local-lvm:base-{vmid}-disk-0,size={}", image.size)),
        ("ide2", &format!("local-lvm:vm-{vmid}-cloudinit,media=cdrom")),
        ("net0", &format!("virtio=BC:24:11:00:90:{:02X},bridge=vmbr0", vmid % 100)),
        ("agent", "1"),
        ("boot", "order=scsi0;ide2;net0"),
        ("serial0", "socket"),
        ("ostype", "l26"),
        ("ipconfig0", "ip=dhcp"),
    ];
    let config: BTreeMap<String, String> =
        config.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    GuestSpec { vmid, node: node.to_owned(), template: true, running: false, pool: None, config }
}
