//! Templates: `agentDefaults`, `agentDefaults-<node>` and each entry of `agentConfigurations`, laid
//! over one another and made into a [`TemplateSpec`] for each of its clouds.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use drover_model::addresses::AddressSource;
use drover_model::id::{CloudId, Generation, NodeName, TemplateId, VmId};
use drover_model::os::{LoginShell, Os};
use drover_model::placement::{PlacementSpec, Strategy};
use drover_model::seed::NicSpec;
use drover_model::spec::{
    BreakerSpec, CloneStrategy, CloudInitSpec, JavaDistribution, JavaSpec, LimitSpec, Mode,
    NetworkSpec, ResetKind, SshSpec, StepSpec, TemplateSpec, WindowSpec,
};
use serde::Deserialize;

use super::addresses::{self, Pools, Wanted};
use super::cloud::{CheckedCloud, unresolved};
use super::credential::{Credential, SshKeySpec, Vault};
use super::environment::Defaults;
use super::fault::Fault;
use super::keys::AGENT;
use super::layer::Layer;
use super::network::{self, Beside};
use super::origin;
use super::os::{self, OsType};
use super::placement::{self, Size};
use super::prepare;
use super::schedule;
use super::seed;
use drover_api::nearest;

/// Below this Jenkins agents are on their way out.
const RECOMMENDED_JAVA: u32 = 21;
/// On a smaller disk Java, its packages and a build's files hardly fit, in GiB.
const DISK_WITH_JAVA: u32 = 10;

/// Stands for every node of a cluster.
const EVERY_NODE: &str = "*";

/// A template as written, defaults filled in.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawAgent {
    name: Option<String>,
    cloud_ids: Vec<String>,
    node: Option<String>,
    nodes: Option<Vec<String>>,
    preferred_nodes: Vec<String>,
    placement: Strategy,
    node_selector: Vec<String>,
    max_vms_per_node: u32,
    min_free_memory_mb: u64,
    storage_class: String,
    size: String,
    template_vm_id: Option<u32>,
    /// The four are read from the layers.
    #[serde(rename = "templateSelectionMode")]
    _mode: Option<String>,
    #[serde(rename = "templateName")]
    _name: Option<String>,
    #[serde(rename = "templateNamePattern")]
    _pattern: Option<String>,
    #[serde(rename = "templateTag")]
    _tag: Option<String>,
    label_string: String,
    num_executors: u32,
    clone_strategy: CloneStrategy,
    target_storage: String,
    target_storages: Option<Vec<String>>,
    /// Checked with all other templates.
    #[serde(rename = "fallbackTemplates")]
    _fallbacks: Vec<String>,
    target_pool: String,
    cores: u32,
    memory_mb: u32,
    disk_size_gb: u32,
    bridge: String,
    vlan: u16,
    on_boot: bool,
    os_type: OsType,
    windows_login_shell: LoginShell,
    remote_fs: String,
    mode: Mode,
    credentials_id: String,
    java_distribution: JavaDistribution,
    java_major_version: u32,
    java_path: String,
    jvm_options: String,
    corretto_repository_url: String,
    corretto_key_url: String,
    idle_termination_minutes: u64,
    instance_cap: u32,
    instance_min: u32,
    idle_min: u32,
    max_total_uses: u32,
    single_use: bool,
    name_prefix: String,
    startup_wait_seconds: u64,
    ci_user: String,
    ip_config: String,
    address_pool: String,
    address_pool6: String,
    address_from: Option<String>,
    ip_configs: Vec<String>,
    ci_upgrade: bool,
    nameserver: String,
    search_domain: String,
    /// The six are read from the layers.
    #[serde(rename = "userData")]
    _user_data: Option<String>,
    #[serde(rename = "userDataFile")]
    _user_data_file: Option<String>,
    #[serde(rename = "metaData")]
    _meta_data: Option<String>,
    #[serde(rename = "metaDataFile")]
    _meta_data_file: Option<String>,
    #[serde(rename = "networkConfig")]
    _network_config: Option<String>,
    #[serde(rename = "networkConfigFile")]
    _network_config_file: Option<String>,
    user_data_values: BTreeMap<String, String>,
    cloud_init_iso_storage: Option<String>,
    ssh_port: u16,
    guest_networks: Vec<String>,
    tags: BTreeSet<String>,
    description: String,
    ready_command: String,
    reset: Reset,
    reset_timeout_sec: u64,
    close_ssh_before_delete: bool,
    queue_timeout_sec: u64,
    clone_timeout_sec: u64,
    prepare_timeout_sec: u64,
    shutdown_timeout_sec: u64,
    retire_timeout_sec: u64,
    max_lifetime_minutes: u64,
    breaker_threshold: u32,
    breaker_cooldown_sec: u64,
    breaker_cooldown_cap_sec: u64,
}

/// How used agents are made clean again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
enum Reset {
    None,
    Disk,
    Memory,
}

/// What templates are made of, beside their own entries.
pub(super) struct Ground<'a> {
    pub environment: &'a Defaults,
    /// `agentDefaults`.
    pub defaults: &'a Layer,
    /// `agentDefaults-<node>`, by node.
    pub nodes: &'a BTreeMap<String, Layer>,
    pub clouds: &'a BTreeMap<CloudId, CheckedCloud>,
    pub credentials: &'a BTreeMap<String, Credential>,
    pub pools: &'a Pools,
    /// `sizes`, by name.
    pub sizes: &'a BTreeMap<String, Size>,
    /// Whether guests can call drover.
    pub listens: bool,
}

/// A template on its clouds.
pub(super) struct CheckedTemplate {
    pub specs: Vec<TemplateSpec>,
    pub layer: Layer,
}

/// Makes one template of its layers.
pub(super) fn template(
    id: &str,
    own: &Layer,
    ground: &Ground<'_>,
    vault: &mut Vault<'_>,
) -> Option<CheckedTemplate> {
    let layer = laid(own, ground);
    let mut raw: RawAgent = layer.typed(AGENT, vault.faults)?;
    let steps = prepare::steps(&layer, raw.prepare_timeout_sec, vault);
    let storage = raw.cloud_init_iso_storage.as_deref();
    let told = seed::told(&layer, &raw.user_data_values, storage, vault);
    let (faults, warnings) = (&mut *vault.faults, &mut *vault.warnings);
    let clouds = clouds(&raw, &layer, ground, faults);
    let key = ssh_key(&raw, &layer, ground, faults);
    numbers(&raw, &layer, faults);
    let search = origin::search(&layer, faults);
    origin::ignored(own, &layer, warnings);
    let os = os(&raw, own, &layer, (&mut *faults, &mut *warnings));
    let windows = schedule::windows(raw.instance_cap, &layer, faults);
    let size = placement::size(raw.size.trim(), ground.sizes, &layer, faults);
    fill(&mut raw, size);
    let beside = Beside {
        cap: raw.instance_cap,
        pooled: !raw.address_pool.is_empty() || !raw.address_pool6.is_empty(),
        nameserver: &raw.nameserver,
        search: &raw.search_domain,
    };
    let cards = network::cards(&layer, &beside, faults);
    let ip_config = match cards.any() {
        true => cards.first().unwrap_or_default(),
        false => &raw.ip_config,
    };
    let placements = placements(&raw, &layer, &clouds, faults);
    let wanted = Wanted {
        pool: &raw.address_pool,
        pool6: &raw.address_pool6,
        from: raw.address_from.as_deref(),
        ip_config,
        listens: ground.listens,
    };
    let address = addresses::source(&wanted, &layer, ground.pools, faults);
    placement::storages(raw.clone_strategy == CloneStrategy::Linked, &layer, faults, warnings);
    placement::weighed(raw.placement, &layer, warnings);
    advise(&raw, &layer, key, warnings);
    let kept = (raw.instance_cap, raw.instance_min.max(raw.idle_min));
    addresses::advise(&address, kept, &layer, ground.pools, warnings);
    seed::advise(&told, &cards, &layer, warnings);
    let nics: BTreeMap<&CloudId, Vec<NicSpec>> = clouds
        .iter()
        .map(|cloud| {
            let id = &cloud.spec.id;
            (id, cards.on(id.as_str(), &cloud.networks, &layer, faults))
        })
        .collect();
    let make = |cloud: &&CheckedCloud| {
        let made = spec(id, (&raw, &steps, &windows), cloud, key);
        let seed = told.on(&cloud.iso_storage, cards.apart);
        let custom = told.custom.clone();
        let cloud_init = CloudInitSpec { seed, custom, ..made.cloud_init };
        let cloud_init = cards.tell(cloud_init);
        let nics = nics.get(&cloud.spec.id).cloned().unwrap_or_default();
        let (placement, storages) = placements.get(&cloud.spec.id).cloned().unwrap_or_default();
        let storages = storages.unwrap_or_else(|| made.storages.clone());
        let labels = made.labels.iter().cloned().chain(cloud.region.labels()).collect();
        let (address, search) = (address.clone(), search.clone());
        TemplateSpec { os, address, search, nics, cloud_init, placement, storages, labels, ..made }
    };
    let specs = clouds.iter().map(make).collect();
    Some(CheckedTemplate { specs, layer })
}

/// What is said about where its agents are put, on each cloud.
fn placements(
    raw: &RawAgent,
    layer: &Layer,
    clouds: &[&CheckedCloud],
    faults: &mut Vec<Fault>,
) -> BTreeMap<CloudId, (PlacementSpec, Option<Vec<String>>)> {
    let nodes = || named(raw.nodes.as_deref());
    let wanted = placement::Wanted {
        strategy: raw.placement,
        preferred: &raw.preferred_nodes,
        selector: &raw.node_selector,
        max_guests: raw.max_vms_per_node,
        min_free_mb: raw.min_free_memory_mb,
        class: raw.storage_class.trim(),
        named: raw.node.as_deref().and_then(given).is_some() || nodes().next().is_some(),
        all: nodes().any(|node| node == EVERY_NODE),
    };
    if wanted.all && nodes().count() > 1 {
        let fault = layer.fault("nodes", "`*` names every node already");
        faults.push(fault.help("keep it alone, or name the nodes"));
    }
    let stated = placement::stated(&wanted, layer, faults);
    let class = wanted.class;
    let on = clouds.iter().map(|cloud| {
        let id = &cloud.spec.id;
        let at = (id.as_str(), &cloud.region);
        (id.clone(), placement::on_cloud(&stated, class, at, layer, faults))
    });
    on.collect()
}

/// Fills what a template leaves to its size.
fn fill(raw: &mut RawAgent, size: Size) {
    for (own, of_size) in [
        (&mut raw.cores, size.cpu),
        (&mut raw.memory_mb, size.memory),
        (&mut raw.disk_size_gb, size.disk),
    ] {
        if *own == 0 {
            *own = of_size;
        }
    }
}

/// The layers of a template: the node that selects the third is the first one given of its own,
/// the defaults' and the environment's.
fn laid(own: &Layer, ground: &Ground<'_>) -> Layer {
    let base = origin::over(&ground.environment.agent, ground.defaults);
    let its_own = own.has("node") || own.has("nodes");
    let selected = if its_own { own.text("node") } else { base.text("node") };
    let of_node = selected.and_then(|node| ground.nodes.get(node));
    let laid = match of_node {
        Some(of_node) => origin::over(&origin::over(&base, of_node), own),
        None => origin::over(&base, own),
    };
    let below = [ground.defaults, &ground.environment.agent];
    origin::select(laid, [own].into_iter().chain(of_node).chain(below))
}

/// What runs in its guests.
fn os(raw: &RawAgent, own: &Layer, layer: &Layer, told: (&mut Vec<Fault>, &mut Vec<Fault>)) -> Os {
    let wanted = os::Wanted {
        os: raw.os_type,
        shell: raw.windows_login_shell,
        remote_fs: &raw.remote_fs,
        java: raw.java_distribution,
        memory: raw.reset == Reset::Memory,
        closes: raw.close_ssh_before_delete,
    };
    os::os(&wanted, own, layer, told)
}

fn clouds<'a>(
    raw: &RawAgent,
    layer: &Layer,
    ground: &'a Ground<'_>,
    faults: &mut Vec<Fault>,
) -> Vec<&'a CheckedCloud> {
    if raw.cloud_ids.is_empty() && layer.has("cloudIds") && !layer.is_faulty("cloudIds") {
        let fault = layer.fault("cloudIds", "no cloud is listed");
        faults.push(fault.help("list at least one key of cloudConfigurations"));
    }
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for (at, id) in raw.cloud_ids.iter().enumerate() {
        if !seen.insert(id) {
            let fault = layer.item_fault("cloudIds", at, format!("cloud `{id}` is listed twice"));
            faults.push(fault.help("keep one of them"));
            continue;
        }
        match ground.clouds.get(&CloudId::new(id)) {
            Some(cloud) => found.push(cloud),
            None => {
                let known = || ground.clouds.keys().map(CloudId::as_str);
                let fault = layer.item_fault("cloudIds", at, format!("no cloud is called `{id}`"));
                faults.push(match nearest(id, known()) {
                    Some(near) => fault.help(format!("did you mean `{near}`?")),
                    None => {
                        let all = known().collect::<Vec<_>>().join(", ");
                        fault.help(format!("known in cloudConfigurations: {all}"))
                    }
                });
            }
        }
    }
    found
}

fn ssh_key<'a>(
    raw: &RawAgent,
    layer: &Layer,
    ground: &'a Ground<'_>,
    faults: &mut Vec<Fault>,
) -> Option<&'a SshKeySpec> {
    if raw.credentials_id.is_empty() {
        if layer.has("credentialsId") && !layer.is_faulty("credentialsId") {
            faults.push(layer.fault("credentialsId", "the id is blank").help("name an sshKey"));
        }
        return None;
    }
    match ground.credentials.get(&raw.credentials_id) {
        Some(Credential::SshKey(key)) => Some(key),
        Some(Credential::Faulty) => None,
        Some(
            Credential::Proxmox(_)
            | Credential::Token(_)
            | Credential::Login(..)
            | Credential::App(_),
        ) => {
            let message = format!("`{}` is no sshKey", raw.credentials_id);
            faults.push(layer.fault("credentialsId", message).help("name an sshKey"));
            None
        }
        None => {
            let kind = "kind: sshKey";
            faults.push(unresolved(layer, &raw.credentials_id, ground.credentials, kind));
            None
        }
    }
}

fn numbers(raw: &RawAgent, layer: &Layer, faults: &mut Vec<Fault>) {
    for (key, least) in [("instanceMin", raw.instance_min), ("idleMin", raw.idle_min)] {
        let most = raw.instance_cap;
        if most > 0 && least > most {
            let message = format!("`{least}` exceeds instanceCap, {most}");
            faults.push(layer.fault(key, message).help("lower it, or raise instanceCap"));
        }
    }
    if raw.single_use && raw.max_total_uses > 1 {
        let message = format!("maxTotalUses, {}, wants more than one use", raw.max_total_uses);
        let fault = layer.fault("singleUse", message);
        faults.push(fault.help("take one of them out, or set maxTotalUses to 1"));
    }
    if raw.reset != Reset::None && raw.num_executors > 1 {
        let message = format!("numExecutors is {}", raw.num_executors);
        let fault = layer.fault("reset", message);
        faults.push(fault.help("an agent that is reset serves one lease at a time: set it to 1"));
    }
    if raw.reset != Reset::None && (raw.single_use || raw.max_total_uses == 1) {
        let fault = layer.fault("reset", "an agent of one use is never reset");
        faults.push(fault.help("take out singleUse, or set maxTotalUses above 1"));
    }
    if raw.breaker_cooldown_cap_sec < raw.breaker_cooldown_sec {
        let message =
            format!("breakerCooldownCapSec, {}, is shorter", raw.breaker_cooldown_cap_sec);
        let fault = layer.fault("breakerCooldownSec", message);
        faults.push(fault.help("raise breakerCooldownCapSec, or lower breakerCooldownSec"));
    }
    if raw.name.as_deref().is_some_and(|name| name.trim().is_empty()) {
        faults.push(layer.fault("name", "the name is blank").help("leave it out to use the key"));
    }
}

fn advise(raw: &RawAgent, layer: &Layer, key: Option<&SshKeySpec>, warnings: &mut Vec<Fault>) {
    if raw.java_distribution != JavaDistribution::None && raw.java_major_version < RECOMMENDED_JAVA
    {
        let message = format!("Java {} is old for a Jenkins agent", raw.java_major_version);
        let fault = layer.fault("javaMajorVersion", message);
        warnings.push(fault.help("21 or newer is recommended"));
    }
    if raw.java_distribution != JavaDistribution::None
        && (1..DISK_WITH_JAVA).contains(&raw.disk_size_gb)
    {
        let message = format!("a disk of {} GB is small for Java", raw.disk_size_gb);
        let fault = layer.fault("diskSizeGb", message);
        warnings.push(fault.help("10 or more is recommended, or 0 for the template's size"));
    }
    if let Some(key) = key
        && !raw.ci_user.is_empty()
        && raw.ci_user != key.username
        && raw.os_type == OsType::Linux
    {
        let message = format!("`{}` is not the sshKey's username, `{}`", raw.ci_user, key.username);
        let fault = layer.fault("ciUser", message);
        warnings
            .push(fault.help("cloud-init gives the key to ciUser; drover logs in as the other"));
    }
}

fn given(text: &str) -> Option<String> {
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

fn named(list: Option<&[String]>) -> impl Iterator<Item = &str> {
    list.into_iter().flatten().map(|name| name.trim()).filter(|name| !name.is_empty())
}

fn seconds(number: u64) -> Duration {
    Duration::from_secs(number)
}

fn minutes_or_never(number: u64) -> Option<Duration> {
    (number > 0).then(|| Duration::from_secs(number * 60))
}

fn limited(number: u32) -> Option<u32> {
    (number > 0).then_some(number)
}

fn reset(raw: &RawAgent) -> Option<ResetKind> {
    match raw.reset {
        Reset::None => None,
        Reset::Disk => Some(ResetKind::Disk),
        Reset::Memory => Some(ResetKind::Memory),
    }
}

fn spec(
    id: &str,
    (raw, steps, windows): (&RawAgent, &[StepSpec], &[WindowSpec]),
    cloud: &CheckedCloud,
    key: Option<&SshKeySpec>,
) -> TemplateSpec {
    // Without a key, of which a fault tells, the template is still there for those that name it.
    let user = key.map(|key| key.username.clone()).unwrap_or_default();
    let home = || format!("/home/{user}/agent");
    TemplateSpec {
        id: TemplateId::new(cloud.spec.id.clone(), id),
        name: raw.name.clone().unwrap_or_else(|| id.to_owned()),
        generation: Generation::default(),
        node: raw.node.as_deref().and_then(given).map(NodeName::new),
        nodes: named(raw.nodes.as_deref())
            .filter(|node| *node != EVERY_NODE)
            .map(NodeName::new)
            .collect(),
        source: VmId(raw.template_vm_id.unwrap_or(0)),
        search: None,
        origin: None,
        fallbacks: Vec::new(),
        placement: PlacementSpec::default(),
        labels: raw.label_string.split_whitespace().map(str::to_owned).collect(),
        executors: raw.num_executors,
        clone: raw.clone_strategy,
        target_storage: given(&raw.target_storage),
        storages: named(raw.target_storages.as_deref()).map(str::to_owned).collect(),
        target_pool: given(&raw.target_pool),
        cores: limited(raw.cores),
        memory_mb: limited(raw.memory_mb),
        disk_gb: limited(raw.disk_size_gb),
        network: NetworkSpec {
            bridge: given(&raw.bridge),
            vlan: (raw.vlan > 0).then_some(raw.vlan),
        },
        nics: Vec::new(),
        on_boot: raw.on_boot,
        os: Os::Linux,
        remote_fs: given(&raw.remote_fs).unwrap_or_else(home),
        mode: raw.mode,
        ssh: SshSpec {
            credentials_id: raw.credentials_id.clone(),
            user: user.clone(),
            port: raw.ssh_port,
            public_key: key.map(|key| key.public_line.clone()).unwrap_or_default(),
        },
        java: JavaSpec {
            distribution: raw.java_distribution,
            major: raw.java_major_version,
            path: given(&raw.java_path).unwrap_or_else(|| "java".to_owned()),
            options: raw.jvm_options.clone(),
            repository: given(&raw.corretto_repository_url),
            repository_key: given(&raw.corretto_key_url),
        },
        idle: minutes_or_never(raw.idle_termination_minutes),
        cap: limited(raw.instance_cap),
        minimum: raw.instance_min,
        idle_minimum: raw.idle_min,
        schedule: windows.to_vec(),
        max_uses: if raw.single_use { Some(1) } else { limited(raw.max_total_uses) },
        name_prefix: raw.name_prefix.clone(),
        tags: raw.tags.clone(),
        description: raw.description.clone(),
        cloud_init: CloudInitSpec {
            user: given(&raw.ci_user),
            // A pool's address takes its place.
            ip_config: given(&raw.ip_config).filter(|_| raw.address_pool.is_empty()),
            ip_configs: raw.ip_configs.clone(),
            nameserver: given(&raw.nameserver),
            search_domain: given(&raw.search_domain),
            upgrade: raw.ci_upgrade,
            custom: None,
            seed: None,
        },
        address: AddressSource::default(),
        guest_networks: raw.guest_networks.clone(),
        steps: steps.to_vec(),
        ready_command: given(&raw.ready_command),
        reset: reset(raw),
        close_ssh: raw.close_ssh_before_delete,
        limits: LimitSpec {
            queue: seconds(raw.queue_timeout_sec),
            call: cloud.call_timeout,
            operation: cloud.spec.operation_timeout,
            clone: seconds(raw.clone_timeout_sec),
            startup: seconds(raw.startup_wait_seconds),
            prepare: seconds(raw.prepare_timeout_sec),
            reset: seconds(raw.reset_timeout_sec),
            shutdown: seconds(raw.shutdown_timeout_sec),
            retire: seconds(raw.retire_timeout_sec),
            lifetime: minutes_or_never(raw.max_lifetime_minutes),
        },
        breaker: BreakerSpec {
            threshold: raw.breaker_threshold,
            cooldown: seconds(raw.breaker_cooldown_sec),
            cooldown_cap: seconds(raw.breaker_cooldown_cap_sec),
        },
        trial: false,
    }
}
