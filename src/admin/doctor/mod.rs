//! `drover doctor`: looks at each configured cloud and source of demand as it is, and says of everything that drover
//! needs there whether it is so, and what mends it. Changes nothing.

mod certificate;
mod cluster;
mod places;
mod privileges;
mod report;
mod room;
mod sources;
mod storages;
mod templates;
mod token;
pub mod trial;
mod unreachable;

use std::collections::BTreeMap;
use std::path::Path;

use drover_hypervisor::read_fleet;
use drover_hypervisor::{AsFault, Client, Failure};
use drover_model::id::{CloudId, NodeName, TemplateId};
use drover_model::placement::{Fleet, Thickness};
use drover_model::spec::{CloudSpec, HerdSpec, TemplateSpec};
use drover_model::template_image::Found;
use drover_ssh::quote;
use proxmox_client::transport::Dialer;
use proxmox_client::types::VmConfig;
use proxmox_client::{Connection, Login};

use crate::rights::{Facts, Release, Source};

pub use certificate::{Certificates, Shown, ToldCertificates, WireCertificates};
pub use drover_ci::Mark;
pub use privileges::PREFIX;
pub use report::clean;
pub use report::{CloudReport, Line, Report, SourceReport};
pub use sources::examine_source;
use token::ROOT;

/// The ways out that the doctor looks through.
#[derive(Clone, Copy)]
pub struct Ways<'a> {
    /// To the nodes' API.
    pub dialer: &'a dyn Dialer,
    /// To their certificates.
    pub certificates: &'a dyn Certificates,
    /// This machine's clock, Unix seconds.
    pub clock: &'a (dyn Fn() -> u64 + Sync),
    /// The configuration as it was named at the command line, for commands that are told.
    pub config: Option<&'a Path>,
}

/// One cloud under the doctor's eyes.
pub(crate) struct Patient<'a> {
    ways: Ways<'a>,
    herd: &'a HerdSpec,
    cloud: &'a CloudSpec,
    connection: &'a Connection,
    client: Client,
    report: CloudReport,
}

/// What is known of the cluster before its parts are looked at.
struct Cluster {
    release: Release,
    /// Nodes that are online.
    online: Vec<NodeName>,
    facts: Facts,
    /// Nodes, storages and guests as the cluster lists them.
    fleet: Fleet,
}

/// What one template is cloned from.
struct Seen {
    /// As placing takes it.
    found: Found,
    /// Each guest with its configuration; without one where its node is offline.
    sources: Vec<(Source, Option<VmConfig>)>,
}

/// What each template is cloned from.
type Templates = BTreeMap<TemplateId, Seen>;

/// Examines one cloud.
pub async fn examine(
    ways: Ways<'_>,
    herd: &HerdSpec,
    cloud: &CloudId,
    connection: &Connection,
) -> CloudReport {
    let mut report = CloudReport::new(cloud, herd.clouds.get(cloud).map_or("", |one| &one.name));
    let Some(spec) = herd.clouds.get(cloud) else { return report };
    let client = match Client::new(cloud.clone(), connection, ways.dialer) {
        Ok(client) => client,
        Err(error) => {
            report.fail("connection", error.chain(), []);
            return report;
        }
    };
    let mut patient = Patient { ways, herd, cloud: spec, connection, client, report };
    patient.examine().await;
    patient.report
}

/// The release and the facts that rights hang on, for those who only want these.
///
/// # Errors
/// What the cluster could not be asked for.
pub async fn facts(
    client: &Client,
    herd: &HerdSpec,
    cloud: &CloudId,
) -> Result<(String, Facts), Failure> {
    let version = client.version().await?.version;
    let mut facts = Facts { zones: client.vnet_zones().await?, ..Facts::default() };
    let pools = client.pool_of_guests().await?;
    for spec in herd.templates.values().filter(|spec| spec.id.cloud == *cloud) {
        let seen = templates::sources(client, spec, &pools).await?;
        if let Some((unread, _)) = seen.sources.first()
            && seen.sources.iter().all(|(_, config)| config.is_none())
        {
            // Nothing is known of what its clones need; reading it tells why.
            client.config(unread.node.as_str(), unread.vmid.0).await?;
        }
        let sources = seen.sources.into_iter().map(|(one, _)| one);
        facts.sources.insert(spec.id.clone(), sources.collect());
    }
    facts.storages = thicknesses(&read_fleet(client).await?);
    Ok((version, facts))
}

/// The storages that take disks, and how their volumes grow.
fn thicknesses(fleet: &Fleet) -> BTreeMap<String, Thickness> {
    let all = fleet.nodes().keys().flat_map(|node| fleet.for_images(node));
    all.map(|one| (one.name.clone(), one.thickness())).collect()
}

impl Patient<'_> {
    async fn examine(&mut self) {
        if !self.endpoints().await {
            return;
        }
        let Some((release, online)) = self.cluster().await else { return };
        self.only_endpoint(&online);
        self.clocks(&online).await;
        let token = self.token().await;
        if token.as_ref().is_some_and(|login| login.powerless) {
            // Whatever else would be told has that cause.
            return;
        }
        let templates = self.templates().await;
        let mut sources = BTreeMap::new();
        for (id, seen) in &templates {
            sources.insert(id.clone(), seen.sources.iter().map(|(one, _)| one.clone()).collect());
        }
        let zones = self.client.vnet_zones().await.unwrap_or_default();
        let fleet = read_fleet(&self.client).await.unwrap_or_default();
        let facts = Facts { sources, zones, storages: thicknesses(&fleet) };
        let cluster = Cluster { release, online, facts, fleet };
        self.privileges(&cluster, token.as_ref()).await;
        self.nodes(&cluster);
        let before = self.report.lines.len();
        self.room(&cluster, &templates);
        self.storages(&cluster, token.as_ref()).await;
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

    /// The nodes of which something may be asked, that a template's agents may be on.
    fn nodes_of(&self, spec: &TemplateSpec, cluster: &Cluster) -> Vec<NodeName> {
        let mut nodes = spec.nodes();
        if nodes.is_empty() && !spec.placement.anywhere {
            // They are where their template is, or, with preferred nodes, where it can be reached.
            let sources = cluster.facts.sources.get(&spec.id).map(Vec::as_slice);
            let sources = sources.unwrap_or_default();
            let shared = |one: &Source| {
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

    /// A command of drover's, on the same configuration.
    fn drover(&self, rest: &str) -> String {
        match self.ways.config {
            Some(path) => format!("drover --config {} {rest}", quote(&path.display().to_string())),
            None => format!("drover {rest}"),
        }
    }

    /// The command that makes and mends this cloud's rights.
    fn set_up(&self, more: &str) -> String {
        let cloud = &self.cloud.id;
        let command = self.drover(&format!("setup rights --cloud {cloud}{more} --user root@pam"));
        // It makes tokens of users of drover's own alone.
        match &self.connection.login {
            Login::Token { id, .. } if !id.starts_with(ROOT) => command,
            Login::Token { .. } | Login::Password { .. } => {
                let token =
                    "in the YAML: a credential of kind proxmoxToken with tokenId: drover@pve!ci";
                format!("{token}; then: {command}")
            }
        }
    }

    /// A failure of a call, as one line.
    fn told(&self, error: &impl AsFault) -> String {
        self.client.fault(error).text
    }
}
