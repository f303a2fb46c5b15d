//! A cluster on which drover's token holds what the table says, and nothing else.

use std::collections::{BTreeMap, BTreeSet};

use drover_admin::doctor::facts;
use drover_admin::rights::{At, Feature, GrantOptions, Needs, Release, RoleKind, Row, grants};
use drover_hypervisor::Client;
use drover_model::id::CloudId;
use pve_sim::spec::{AclSpec, PveVersion, TokenSpec, UserSpec};

use crate::world::World;
use crate::world::setup::{SECRET, Setup};

/// How rights are given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// Roles of drover's own for its user, whose token has none of its own.
    Least,
    /// The same, and the token has entries of its own.
    Separate,
    /// Proxmox's built-in roles.
    BuiltIn,
    /// Nothing above the pool but what must be: no guests outside of it are seen.
    Pool,
}

impl Layout {
    pub const ALL: [Self; 4] = [Self::Least, Self::Separate, Self::BuiltIn, Self::Pool];

    pub fn label(self) -> &'static str {
        match self {
            Self::Least => "at once",
            Self::Separate => "by a token with separate privileges",
            Self::BuiltIn => "with built-in roles",
            Self::Pool => "seeing its own pool alone",
        }
    }
}

/// The release a simulated cluster plays.
pub fn release(version: PveVersion) -> Release {
    match version {
        PveVersion::V7_4 | PveVersion::V8_4 => Release::V8,
        PveVersion::V9_2 => Release::V9,
    }
}

/// A cluster's rights, to be changed before it is made.
pub struct Stage {
    version: PveVersion,
    keys: String,
    sections: String,
    roles: BTreeMap<String, BTreeSet<String>>,
    acl: Vec<AclSpec>,
    privsep: bool,
}

/// Keys of a template that makes use of a feature.
fn keys(feature: Feature) -> &'static str {
    match feature {
        Feature::Cluster
        | Feature::Life
        | Feature::AgentAddress
        | Feature::HostKeys
        | Feature::Placement
        | Feature::Leftovers
        | Feature::Orders
        | Feature::Pool
        | Feature::Images
        | Feature::Containers
        | Feature::OsTemplates
        | Feature::OsTemplateUrls
        | Feature::Machine
        | Feature::Processors
        | Feature::Disks
        | Feature::Devices
        | Feature::Downloads
        | Feature::Uploads
        | Feature::Doctor => "",
        Feature::Cores => "cores: 4, ",
        Feature::Memory => "memoryMb: 4096, ",
        Feature::DiskSize => "diskSizeGb: 20, ",
        Feature::Network => "bridge: vmbr1, vlan: 5, ",
        Feature::Networks => "networks: [{bridge: vmbr0}, {bridge: vmbr1, vlan: 5}], ",
        Feature::Discs => "userData: \"#cloud-config\\nhostname: ${hostname}\\n\", ",
        Feature::Snippets => "cloudInitCustom: {user: \"local:snippets/ci.yaml\"}, ",
        Feature::CallIn => "addressFrom: call, startupWaitSeconds: 300, ",
        Feature::Reset => "reset: DISK, ",
    }
}

/// Where the disk image of the stage's image is.
pub const DISK_URL: &str = "https://cloud.example/debian-13.qcow2";
/// That disk image.
pub const DISK: &[u8] = b"QFI\xfb, a disk image of the stage";

/// The SHA-256 of that disk image.
pub fn disk_sum() -> String {
    "23cc7c3723d9a2beeb90035299040ea0a89b3865300fab46995002995e8df6b1".into()
}

/// Whether these features are those of an image.
pub fn builds(features: &[Feature]) -> bool {
    let of_images = [Feature::Images, Feature::Downloads, Feature::Uploads];
    features.iter().any(|feature| of_images.contains(feature))
}

/// The section with an image `debian` in the agents' pool. Nodes download where both ways are wanted.
fn images(features: &[Feature]) -> String {
    let sum = disk_sum();
    let by = if features == [Feature::Uploads] { "DROVER" } else { "NODE" };
    format!(
        "images:\n  debian: {{cloudIds: [rack], credentialsId: ssh, storage: local-lvm, \
         importStorage: shared, downloadBy: {by}, targetPool: ci, nodes: [pve1], \
         source: {{url: \"{DISK_URL}\", checksum: {sum}}}}}\n"
    )
}

impl Stage {
    /// A cluster with what these features need.
    pub async fn of(version: PveVersion, features: &[Feature], layout: Layout) -> Self {
        // A guest that calls is not asked for its address.
        let calls = features == [Feature::CallIn];
        // Nor can all cards be listed beside one of them.
        let apart = |one: Feature| match one {
            Feature::CallIn => !calls,
            Feature::Network => features.contains(&Feature::Networks),
            Feature::Snippets => features.contains(&Feature::Discs),
            _ => false,
        };
        let used = features.iter().filter(|one| !apart(**one));
        let mut all: String = used.map(|one| keys(*one)).collect();
        if features == [Feature::HostKeys] {
            // On 8 the same privilege is for addresses, too.
            all.push_str("ipConfig: 'ip=10.20.0.50/24,gw=10.20.0.1', ");
        }
        let mut stage = Self {
            version,
            keys: format!("targetPool: ci, {all}"),
            sections: match features {
                _ if calls => "service: {listen: \"127.0.0.1:8080\"}\n".into(),
                _ if builds(features) => images(features),
                _ => String::new(),
            },
            roles: BTreeMap::new(),
            acl: Vec::new(),
            privsep: layout == Layout::Separate,
        };
        stage.give(features, layout).await;
        stage
    }

    /// Works out what is needed as `drover setup rights` does: by a look at the cluster as root.
    async fn give(&mut self, features: &[Feature], layout: Layout) {
        let mut setup = self.setup();
        setup.token = "root@pam!drover";
        let checked = setup.checked();
        let rack = CloudId::new("rack");
        let (world, connection) = (World::new(setup), &checked.connections[&rack]);
        let client = Client::new(rack.clone(), connection, &world.dialer()).unwrap();
        let (version, facts) = facts(&client, &checked.herd, &rack).await.unwrap();
        assert_eq!(Release::of(&version), release(self.version));
        let needs = Needs::of(&checked.herd, &rack, release(self.version), &facts);
        assert!(needs.unknown.is_empty(), "{:?}", needs.unknown);
        let optional = features.contains(&Feature::Leftovers);
        let commands = GrantOptions { optional, orders: false };
        let grants = grants(&needs, &BTreeMap::new(), commands);
        for (kind, privileges) in grants.roles {
            self.roles.insert(kind.name("Drover"), privileges);
        }
        for (path, kind) in grants.entries {
            let role = match (layout, kind) {
                (Layout::BuiltIn, RoleKind::Reader) => "PVEAuditor".to_owned(),
                (Layout::BuiltIn, RoleKind::Guests) => "PVEVMAdmin".to_owned(),
                (Layout::BuiltIn, RoleKind::Templates) => "PVETemplateUser".to_owned(),
                (Layout::BuiltIn, RoleKind::Storage | RoleKind::Discs | RoleKind::Imports) => {
                    "PVEDatastoreAdmin".to_owned()
                }
                (Layout::BuiltIn, RoleKind::Network) => "PVESDNUser".to_owned(),
                _ => kind.name("Drover"),
            };
            self.entry(&path, &role);
        }
        if layout == Layout::BuiltIn {
            self.roles.clear();
            // None of the VM roles sees pools.
            self.entry("/pool/ci", "PVEPoolUser");
            // None but the administrator's lets nodes download.
            let downloads = BTreeSet::from(["Sys.AccessNetwork".to_owned()]);
            self.roles.insert("Downloads".to_owned(), downloads);
            self.entry("/", "Downloads");
        }
        if layout == Layout::Pool {
            // Nobody's guests, but for the pool's own and the templates.
            self.role(RoleKind::Reader).remove("VM.Audit");
        }
    }

    fn entry(&mut self, path: &str, role: &str) {
        let mut subjects = vec!["ci@pve"];
        subjects.extend(self.privsep.then_some("ci@pve!drover"));
        for who in subjects {
            let (path, who, role) = (path.to_owned(), who.to_owned(), role.to_owned());
            self.acl.push(AclSpec { path, who, role, propagate: true });
        }
    }

    fn role(&mut self, kind: RoleKind) -> &mut BTreeSet<String> {
        self.roles.entry(kind.name("Drover")).or_default()
    }

    /// Takes what a line of the table names away, where it would count.
    pub fn take(&mut self, row: &Row) {
        if row.at == At::Access {
            // What is given on `/` counts there too, and is wanted on `/` itself.
            return self.entry("/access", "NoAccess");
        }
        if row.at == At::Nodes && row.feature == Feature::Placement {
            return self.entry("/nodes", "NoAccess");
        }
        for name in row.any_of(release(self.version)) {
            self.role(RoleKind::of(row.at)).remove(*name);
            // Reading is given on `/` as well, and counts below it.
            self.role(RoleKind::Reader).remove(*name);
        }
    }

    /// Takes everything on one path away.
    pub fn close(&mut self, path: &str) {
        let before = self.acl.len();
        self.acl.retain(|entry| entry.path != path);
        assert_ne!(self.acl.len(), before, "nothing was given on {path}");
    }

    /// The cluster with these rights, and the YAML of a token that holds them.
    pub fn setup(&self) -> Setup {
        let mut setup = Setup::linux(&self.keys);
        setup.version = self.version;
        setup.clouds = vec![("rack", "cleanupOrphanedAgents: true".into())];
        setup.sections.clone_from(&self.sections);
        setup.token = "ci@pve!drover";
        for node in &mut setup.cluster.nodes {
            node.bridges.push("vmbr1".into());
        }
        let token = TokenSpec {
            name: "drover".into(),
            secret: SECRET.into(),
            privsep: self.privsep,
            expire: 0,
        };
        let user = UserSpec {
            userid: "ci@pve".into(),
            password: None,
            enabled: true,
            second_factor: false,
            tokens: vec![token],
        };
        setup.cluster.users.push(user);
        let roles = self.roles.iter();
        setup.cluster.roles =
            roles.map(|(name, all)| (name.clone(), all.iter().cloned().collect())).collect();
        setup.cluster.acl.clone_from(&self.acl);
        setup
    }
}
