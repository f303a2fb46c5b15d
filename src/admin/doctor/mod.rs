//! `drover doctor`: checks each configured cloud and source as it is, and reports for everything
//! that drover needs whether it is there, and what to do where it is not. Changes nothing.
//!
//! In: the configuration as specifications, a connection for each cloud and source, and the
//! [`Clients`] to use. Out: a [`CloudReport`] or [`SourceReport`] of lines, each `ok`, `warn` or
//! `fail`, with commands that help.
//!
//! A check continues past a failure where the rest still means something. It ends where everything
//! else would fail for the same reason: no endpoint answers, the cluster does not answer, or the
//! login holds no privilege at all.
//!
//! Beside this file: `cluster` (endpoints, versions, quorum, clocks), `certificate`, `unreachable`
//! (what to do about an endpoint that does not answer), `token` (the login), `privileges`,
//! `templates`, `room` (whether an agent could run on each node), `storages`, `channels` (of notifications), `places` (bridges,
//! pools, free VMIDs), `sources` (CI systems), `report` (the lines, as text and JSON), `trial`
//! (where a test agent failed), `provider` (where people log in), `collector` (what takes
//! traces).

mod certificate;
mod channels;
mod cluster;
mod collector;
mod containers;
mod images;
mod places;
mod privileges;
mod provider;
mod report;
mod repository;
mod room;
mod sources;
mod storages;
mod store;
mod templates;
mod token;
pub mod trial;
mod unreachable;

use std::collections::BTreeMap;
use std::path::Path;

use drover_ci::Remedy;
use drover_hypervisor::{AsFault, Client, Failure};
use drover_hypervisor::{read_devices, read_fleet};
use drover_model::id::{CloudId, NodeName, TemplateId};
use drover_model::placement::{Fleet, Thickness};
use drover_model::spec::{CloudSpec, HerdSpec, TemplateSpec};
use drover_model::template_image::Found;
use drover_ssh::quote;
use proxmox_client::GuestId;
use proxmox_client::transport::Dialer;
use proxmox_client::types::VmConfig;
use proxmox_client::{Connection, Login};

use crate::rights::{Facts, Release, TemplateGuest};

pub use certificate::{Certificate, CertificateReader, FixedCertificates, NetworkCertificates};
pub use channels::check_channel;
pub use collector::check_collector;
pub use privileges::ROLE_PREFIX;
pub use provider::check_provider;
pub use report::{
    ChannelReport, CloudReport, CollectorReport, Line, ProviderReport, Report, RepositoryReport,
    SourceReport, StoreReport,
};
pub use report::{clean, write_remedies};
pub use repository::check_repository;
pub use sources::check_source;
pub use store::check_store;
use token::ROOT;

/// The clients that the doctor uses.
#[derive(Clone, Copy)]
pub struct Clients<'a> {
    /// Connects to the nodes' API.
    pub dialer: &'a dyn Dialer,
    /// Reads the nodes' certificates.
    pub certificates: &'a dyn CertificateReader,
    pub clock: &'a (dyn Fn() -> u64 + Sync),
    /// The path of the configuration as the command line named it, for commands in findings.
    pub config: Option<&'a Path>,
}

/// One cloud that is being checked.
pub(crate) struct CloudCheck<'a> {
    clients: Clients<'a>,
    herd: &'a HerdSpec,
    cloud: &'a CloudSpec,
    connection: &'a Connection,
    client: Client,
    report: CloudReport,
}

/// The facts about a cluster on which the later checks depend.
struct Cluster {
    release: Release,
    online: Vec<NodeName>,
    facts: Facts,
    /// Nodes, storages and guests as the cluster lists them.
    fleet: Fleet,
}

/// The guests that one template is cloned from.
struct TemplateGuests {
    /// The same as the placement of agents sees it.
    found: Found,
    /// Each guest with its configuration; without one where its node is offline.
    sources: Vec<(TemplateGuest, Option<VmConfig>)>,
}

/// The guests that each template is cloned from.
type Templates = BTreeMap<TemplateId, TemplateGuests>;

pub async fn check_cloud(
    clients: Clients<'_>,
    herd: &HerdSpec,
    cloud: &CloudId,
    connection: &Connection,
) -> CloudReport {
    let mut report = CloudReport::new(cloud, herd.clouds.get(cloud).map_or("", |one| &one.name));
    let Some(spec) = herd.clouds.get(cloud) else { return report };
    let client = match Client::new(cloud.clone(), connection, clients.dialer) {
        Ok(client) => client,
        Err(error) => {
            report.fail("connection", error.chain(), []);
            return report;
        }
    };
    let mut check = CloudCheck { clients, herd, cloud: spec, connection, client, report };
    check.run().await;
    check.report
}

/// The release of Proxmox VE and the facts that decide which rights are needed.
///
/// # Errors
/// A call that Proxmox refused or did not answer.
pub async fn facts(
    client: &Client,
    herd: &HerdSpec,
    cloud: &CloudId,
) -> Result<(String, Facts), Failure> {
    let version = client.version().await?.version;
    let mut facts = Facts { zones: client.vnet_zones().await?, ..Facts::default() };
    let pools = client.pool_of_guests().await?;
    for spec in herd.cloned().filter(|spec| spec.id.cloud == *cloud) {
        let seen = match templates::sources_or_why(client, &spec.sought(), &pools).await? {
            Ok(seen) => seen,
            Err(why) => {
                facts.missing.insert(spec.id.clone(), why);
                continue;
            }
        };
        if let Some((unread, _)) = seen.sources.first()
            && seen.sources.iter().all(|(_, config)| config.is_none())
        {
            // No source could be read, so nothing is known of what clones need: the read says why.
            let id = GuestId { vmid: unread.vmid.0, container: spec.guest().is_container() };
            client.config(unread.node.as_str(), id).await?;
        }
        let sources = seen.sources.into_iter().map(|(one, _)| one);
        facts.sources.insert(spec.id.clone(), sources.collect());
    }
    let (copied, missing) = templates::copied(client, herd, cloud, &pools).await?;
    facts.copied = copied;
    facts.missing.extend(missing);
    facts.storages = thicknesses(&read_fleet(client).await?);
    Ok((version, facts))
}

/// The storages that take disks, and whether their volumes are thin or thick.
fn thicknesses(fleet: &Fleet) -> BTreeMap<String, Thickness> {
    let all = fleet.nodes().keys().flat_map(|node| fleet.for_images(node));
    all.map(|one| (one.name.clone(), one.thickness())).collect()
}

impl CloudCheck<'_> {
    async fn run(&mut self) {
        if !self.endpoints().await {
            return;
        }
        let Some((release, online)) = self.cluster().await else { return };
        self.only_endpoint(&online);
        self.clocks(&online).await;
        let token = self.token().await;
        if token.as_ref().is_some_and(|login| login.powerless) {
            // Every other finding would have this cause.
            return;
        }
        let templates = self.templates().await;
        let mut sources = BTreeMap::new();
        for (id, seen) in &templates {
            sources.insert(id.clone(), seen.sources.iter().map(|(one, _)| one.clone()).collect());
        }
        let zones = self.client.vnet_zones().await.unwrap_or_default();
        let mut fleet = read_fleet(&self.client).await.unwrap_or_default();
        if self.specs().iter().any(|spec| !spec.hardware.devices().is_empty())
            && let Ok(devices) = read_devices(&self.client).await
        {
            fleet = fleet.with_devices(devices);
        }
        let pools = self.client.pool_of_guests().await.unwrap_or_default();
        let copied = templates::copied(&self.client, self.herd, &self.cloud.id, &pools).await;
        let (copied, missing) = copied.unwrap_or_default();
        let facts = Facts { sources, copied, zones, storages: thicknesses(&fleet), missing };
        let cluster = Cluster { release, online, facts, fleet };
        self.privileges(&cluster, token.as_ref()).await;
        self.nodes(&cluster);
        let before = self.report.lines.len();
        self.room(&cluster, &templates);
        self.storages(&cluster, token.as_ref()).await;
        self.images(&cluster).await;
        self.bridges(&cluster).await;
        self.usable(&cluster, &templates, before);
        self.pools().await;
        self.poolless();
        self.ids().await;
    }

    /// The templates of this cloud.
    fn specs(&self) -> Vec<&TemplateSpec> {
        let all = self.herd.templates.values().map(AsRef::as_ref);
        all.filter(|spec: &&TemplateSpec| spec.id.cloud == self.cloud.id).collect()
    }

    /// The reachable nodes that a template's agents may run on.
    fn nodes_of(&self, spec: &TemplateSpec, cluster: &Cluster) -> Vec<NodeName> {
        let mut nodes = spec.nodes();
        if nodes.is_empty() && !spec.placement.anywhere {
            // Agents run where their template is, or, with preferred nodes, where it can be read.
            let sources = cluster.facts.sources.get(&spec.id).map(Vec::as_slice);
            let sources = sources.unwrap_or_default();
            let shared = |one: &TemplateGuest| {
                let mut storages = one.storages.iter();
                !one.storages.is_empty() && storages.all(|name| cluster.fleet.is_shared(name))
            };
            if !(spec.roams() && sources.iter().any(shared)) {
                nodes.extend(sources.iter().map(|one| one.node.clone()));
                nodes.sort();
                nodes.dedup();
            }
        }
        if nodes.is_empty() {
            nodes.clone_from(&cluster.online);
        }
        nodes.retain(|node| cluster.online.is_empty() || cluster.online.contains(node));
        nodes
    }

    /// A drover command with the same configuration.
    fn drover_command(&self, rest: &str) -> String {
        match self.clients.config {
            Some(path) => format!("drover --config {} {rest}", quote(&path.display().to_string())),
            None => format!("drover {rest}"),
        }
    }

    /// What makes and repairs this cloud's rights.
    fn setup(&self, more: &str) -> Vec<Remedy> {
        let cloud = &self.cloud.id;
        let command =
            self.drover_command(&format!("setup rights --cloud {cloud}{more} --user root@pam"));
        // The command makes tokens only for users of drover's own.
        match &self.connection.login {
            Login::Token { id, .. } if !id.starts_with(ROOT) => vec![Remedy::here(command)],
            Login::Token { .. } | Login::Password { .. } => {
                let token = "{kind: proxmoxToken, tokenId: drover@pve!ci, secretFile: FILE}";
                let place = "in the YAML, as the credential of this cloud";
                vec![Remedy::at(place, token), Remedy::at("then on this machine", command)]
            }
        }
    }

    /// A failed call as one line.
    fn error_text(&self, error: &impl AsFault) -> String {
        self.client.fault(error).text
    }
}
