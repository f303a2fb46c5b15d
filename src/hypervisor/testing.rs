//! For tests: clients of a scripted cluster, and an agent with its template.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::sync::Arc;

use drover_model::container::GuestType;
use drover_model::id::{AgentId, CloudId, ClusterId, Installation, TemplateId, VmId};
use drover_model::marks::{Kind, Marks};
use drover_model::spec::{CloneStrategy, CloudInitSpec, Mode, SshSpec, TemplateSpec};
use proxmox_client::Login;

pub use proxmox_client::testing::{Script, Step, connection, token};

use crate::client::Client;

/// Makes clients that a script answers.
pub trait Clients {
    /// A client of cloud `primary` with these hosts.
    fn client(&self, hosts: &[&str], login: Login) -> Arc<Client>;
    /// A client of another cloud, with a token.
    fn client_of(&self, cloud: &str) -> Arc<Client>;
}

impl Clients for Script {
    fn client(&self, hosts: &[&str], login: Login) -> Arc<Client> {
        let connection = connection(hosts, login);
        Arc::new(Client::new(CloudId::new("primary"), &connection, self).unwrap())
    }

    fn client_of(&self, cloud: &str) -> Arc<Client> {
        let connection = connection(&[cloud], token());
        Arc::new(Client::new(CloudId::new(cloud), &connection, self).unwrap())
    }
}

/// The marks of agent `4f8z1c3px9t2vkab` at VMID 101.
pub fn marks() -> Marks {
    Marks {
        installation: Installation::new("7k2m9qxw"),
        agent: AgentId::new("4f8z1c3px9t2vkab"),
        vmid: VmId(101),
        cluster: ClusterId::new("9f31c0aa52e7d410"),
        kind: Kind::Agent,
        guest: GuestType::Vm,
        seq: 7,
        cloud: "primary".into(),
        template: "linux".into(),
        born: "2026-11-21T08:11:02Z".into(),
    }
}

/// A template with every setting.
pub fn spec() -> TemplateSpec {
    TemplateSpec {
        clone: CloneStrategy::Linked,
        target_storage: Some("fast".into()),
        target_pool: Some("ci".into()),
        cores: Some(4),
        memory_mb: Some(4096),
        disk_gb: Some(20),
        mode: Mode::Normal,
        ssh: SshSpec {
            credentials_id: "key".into(),
            user: "ci".into(),
            port: 22,
            public_key: "ssh-ed25519 AAAA/b+c= drover key".into(),
        },
        name_prefix: "ci".into(),
        tags: BTreeSet::from(["Team-A".to_owned()]),
        description: "built by the team".into(),
        cloud_init: CloudInitSpec {
            user: Some("ci".into()),
            ip_config: Some("ip=dhcp".into()),
            nameserver: Some("10.0.0.1".into()),
            search_domain: Some("example.com".into()),
            ..CloudInitSpec::default()
        },
        ..TemplateSpec::bare(TemplateId::new(CloudId::new("primary"), "linux"), VmId(9000))
    }
}
