//! Templates: `agentDefaults`, `agentDefaults-<node>` and each entry of `agentConfigurations`,
//! merged and made into a [`TemplateSpec`] for each of its clouds.
//!
//! In: the layers, and what other sections say ([`TemplateInputs`]). Out: [`CheckedTemplate`], or
//! faults. The parts with rules of their own have modules: `origin` (the template image),
//! `placement`, `network` and `addresses`, `cloud_init`, `prepare`, `schedule`, `os`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use drover_model::addresses::AddressSource;
use drover_model::container::ContainerSpec;
use drover_model::hardware::HardwareSpec;
use drover_model::id::{CloudId, Generation, NodeName, TemplateId, VmId};
use drover_model::os::Os;
use drover_model::overridden::TemplateOverrides;
use drover_model::placement::PlacementSpec;
use drover_model::seed::NicSpec;
use drover_model::size::{Size as SizeOfAgent, SizeLabels};
use drover_model::spec::{
    BreakerSpec, CloneStrategy, CloudInitSpec, JavaDistribution, JavaSpec, LimitSpec, NetworkSpec,
    SshSpec, StepSpec, TemplateSpec, WindowSpec,
};
use drover_model::template_image::Sought;

use super::addresses::{self, Pools};
use super::cloud::CheckedCloud;
use super::cloud_init::{self, Texts};
use super::container;
use super::context::Context;
use super::credential::{Credential, Credentials, SshKeySpec, resolve};
use super::environment::Defaults;
use super::hardware;
use super::keys::{OsType, RawAgent, Reset, Size};
use super::layer::Layer;
use super::network::{self, Cards};
use super::origin;
use super::os;
use super::placement;
use super::prepare;
use super::schedule;
use super::size_labels;
use super::top::{ONE_HALF, other_half};

/// Below this version Jenkins drops support for agents.
const RECOMMENDED_JAVA: u32 = 21;
/// A smaller disk hardly holds Java, its packages and the files of a build.
const MIN_JAVA_DISK_GIB: u32 = 10;

/// Stands for every node of a cluster.
const EVERY_NODE: &str = "*";

/// What the templates of one half of the configuration inherit.
pub(super) struct Inherited {
    /// `agentDefaults`.
    pub defaults: Layer,
    /// `agentDefaults-<node>`, by node.
    pub nodes: BTreeMap<String, Layer>,
}

/// What templates are made of, beside their own entries.
#[derive(Clone, Copy)]
pub(super) struct TemplateInputs<'a> {
    pub environment: &'a Defaults,
    pub inherited: &'a Inherited,
    pub clouds: &'a BTreeMap<CloudId, CheckedCloud>,
    pub credentials: &'a Credentials,
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

/// What a template says on all of its clouds, checked.
struct Parts<'a> {
    raw: RawAgent,
    steps: Vec<StepSpec>,
    windows: Vec<WindowSpec>,
    /// None has a fault.
    key: Option<&'a SshKeySpec>,
    os: Os,
    sizes: SizeLabels,
    search: Option<Sought>,
    container: Option<ContainerSpec>,
    address: AddressSource,
    cards: Cards,
    texts: Texts,
    hardware: HardwareSpec,
}

/// Makes one template of its layers.
pub(super) fn template(
    id: &str,
    own: &Layer,
    inputs: &TemplateInputs<'_>,
    cx: &mut Context<'_>,
) -> Option<CheckedTemplate> {
    let layer = merged(own, inputs);
    let mut raw: RawAgent = layer.typed(&mut cx.faults)?;
    let size = placement::size(raw.size.trim(), inputs.sizes, &layer, &mut cx.faults);
    fill(&mut raw, size);
    let steps = prepare::steps(&layer, raw.prepare_timeout_sec, cx);
    let storage = raw.cloud_init_iso_storage.as_deref();
    let texts = cloud_init::texts(&layer, &raw.user_data_values, storage, cx);
    let clouds = clouds(&raw, &layer, inputs, cx);
    let key = ssh_key(&raw, &layer, inputs, cx);
    check_uses(&raw, &layer, cx);
    let search = origin::search(&layer, &mut cx.faults);
    origin::warn_ignored(own, &layer, &mut cx.warnings);
    let os = os::os(&raw, &layer, cx);
    let sizes = size_labels::size_labels(&raw, &layer, cx);
    let windows = schedule::windows(raw.instance_cap, &layer, &mut cx.faults);
    let cards = network::cards(&layer, &raw, &mut cx.faults);
    let ip_config = if cards.any() { cards.first().unwrap_or_default() } else { &raw.ip_config };
    let container = container::container(&raw, &layer, key, &cards, cx);
    let (listens, pools) = (inputs.listens, inputs.pools);
    let address = addresses::source(&raw, ip_config, listens, &layer, pools, &mut cx.faults);
    let (all, named) = places(&raw, &layer, cx);
    // Every node can make a container of an OS template.
    let all = all || (raw.os_template.is_some() && !named);
    let common = placement::common(&raw, (all, named), &layer, &mut cx.faults);
    placement::check_storages(raw.clone_strategy == CloneStrategy::Linked, &layer, cx);
    placement::warn_weights(raw.placement, &layer, &mut cx.warnings);
    warn_unwise(&raw, &layer, key, cx);
    let kept = (raw.instance_cap, raw.instance_min.max(raw.idle_min));
    addresses::warn_few(&address, kept, &layer, pools, &mut cx.warnings);
    cloud_init::warn_no_dns(&texts, &cards, &layer, &mut cx.warnings);
    let hardware = hardware::hardware(&raw, &layer, &mut cx.faults);
    let parts = Parts {
        raw,
        steps,
        windows,
        key,
        os,
        sizes,
        search,
        container,
        address,
        cards,
        texts,
        hardware,
    };
    let specs = clouds.iter().map(|cloud| {
        let name = cloud.spec.id.as_str();
        let nics = parts.cards.on(name, &cloud.networks, &layer, &mut cx.faults);
        let (class, at) = (parts.raw.storage_class.trim(), (name, &cloud.region));
        let placed = placement::on_cloud(&common, class, at, &layer, &mut cx.faults);
        spec(id, &parts, cloud, nics, placed)
    });
    Some(CheckedTemplate { specs: specs.collect(), layer })
}

/// Whether the template is for every node, and whether it names nodes.
fn places(raw: &RawAgent, layer: &Layer, cx: &mut Context<'_>) -> (bool, bool) {
    let nodes = || named(raw.nodes.as_deref());
    let all = nodes().any(|node| node == EVERY_NODE);
    if all && nodes().count() > 1 {
        let fault = layer.fault("nodes", "`*` already means every node");
        cx.faults.push(fault.help("keep it alone, or name the nodes"));
    }
    (all, raw.node.as_deref().and_then(given).is_some() || nodes().next().is_some())
}

/// Fills the sizes that a template leaves open.
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

/// The merged layers of a template. Its node, which selects the third layer, is its own, else that
/// of the defaults, else that of the environment.
fn merged(own: &Layer, inputs: &TemplateInputs<'_>) -> Layer {
    let base = origin::overlaid(&inputs.environment.agent, &inputs.inherited.defaults);
    let has_nodes = own.has("node") || own.has("nodes");
    let selected = if has_nodes { own.text("node") } else { base.text("node") };
    let of_node = selected.and_then(|node| inputs.inherited.nodes.get(node));
    let merged = match of_node {
        Some(of_node) => origin::overlaid(&origin::overlaid(&base, of_node), own),
        None => origin::overlaid(&base, own),
    };
    let below = [&inputs.inherited.defaults, &inputs.environment.agent];
    origin::select(merged, [own].into_iter().chain(of_node).chain(below))
}

fn clouds<'a>(
    raw: &RawAgent,
    layer: &Layer,
    inputs: &'a TemplateInputs<'_>,
    cx: &mut Context<'_>,
) -> Vec<&'a CheckedCloud> {
    const KEY: &str = "cloudIds";
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for (at, id) in raw.cloud_ids.iter().enumerate() {
        if !seen.insert(id) {
            let fault = layer.item_fault(KEY, at, format!("cloud `{id}` is listed twice"));
            cx.faults.push(fault.help("keep one of them"));
            continue;
        }
        match inputs.clouds.get(&CloudId::new(id)) {
            Some(cloud) => {
                let named = format!("cloud `{id}`");
                match other_half(layer, &named, cloud.layer.place, cx) {
                    Some(why) => cx.faults.push(layer.item_fault(KEY, at, why).help(ONE_HALF)),
                    None => found.push(cloud),
                }
            }
            None => {
                let known = inputs.clouds.keys().map(CloudId::as_str);
                let fault = layer.item_fault(KEY, at, format!("unknown cloud `{id}`"));
                cx.faults.push(fault.known_in("cloudConfigurations", id, known));
            }
        }
    }
    found
}

fn ssh_key<'a>(
    raw: &RawAgent,
    layer: &Layer,
    inputs: &'a TemplateInputs<'_>,
    cx: &mut Context<'_>,
) -> Option<&'a SshKeySpec> {
    let id = Some(&*raw.credentials_id).filter(|id| !id.trim().is_empty())?;
    resolve(layer, id, inputs.credentials, "sshKey", Credential::as_ssh_key, cx)
}

fn check_uses(raw: &RawAgent, layer: &Layer, cx: &mut Context<'_>) {
    let mut add = |key: &str, cause: &str, message: String, help: &str| {
        cx.faults.push(layer.fault_beside(key, cause, message).help(help));
    };
    if raw.single_use && raw.max_total_uses > 1 {
        let message = format!("maxTotalUses, {}, allows more than one use", raw.max_total_uses);
        let help = "remove one of the two, or set maxTotalUses to 1";
        add("singleUse", "maxTotalUses", message, help);
    }
    if raw.reset != Reset::None && raw.num_executors > 1 {
        let message = format!("numExecutors is {}", raw.num_executors);
        let help = "set it to 1: an agent with resets serves one lease at a time";
        add("reset", "numExecutors", message, help);
    }
    if raw.reset != Reset::None && (raw.single_use || raw.max_total_uses == 1) {
        let message = "drover never resets an agent of one use".to_owned();
        let cause = if raw.single_use { "singleUse" } else { "maxTotalUses" };
        add("reset", cause, message, "remove singleUse, or set maxTotalUses above 1");
    }
}

fn warn_unwise(raw: &RawAgent, layer: &Layer, key: Option<&SshKeySpec>, cx: &mut Context<'_>) {
    let mut add = |key: &str, message: String, help: &str| {
        cx.warnings.push(layer.fault(key, message).help(help));
    };
    let has_java = raw.java_distribution != JavaDistribution::None;
    if has_java && raw.java_major_version < RECOMMENDED_JAVA {
        let message = format!("Java {} is old for a Jenkins agent", raw.java_major_version);
        add("javaMajorVersion", message, "21 or newer is recommended");
    }
    if has_java && (1..MIN_JAVA_DISK_GIB).contains(&raw.disk_size_gb) {
        let message = format!("a disk of {} GiB is small for Java", raw.disk_size_gb);
        add("diskSizeGb", message, "10 or more is recommended, or 0 for the size of the template");
    }
    if let Some(key) = key
        && !raw.ci_user.is_empty()
        && raw.ci_user != key.username
        && raw.os_type == OsType::Linux
    {
        let message = format!("`{}` is not the sshKey's username, `{}`", raw.ci_user, key.username);
        let help = "name the same user: cloud-init gives the key to ciUser, and drover logs in as the \
                    other";
        add("ciUser", message, help);
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

/// The template on one cloud: where each key goes.
fn spec(
    id: &str,
    parts: &Parts<'_>,
    cloud: &CheckedCloud,
    nics: Vec<NicSpec>,
    (placement, class): (PlacementSpec, Option<Vec<String>>),
) -> TemplateSpec {
    let Parts { raw, key, cards, texts, .. } = parts;
    // Without a key, which is a fault, the template still exists for the keys that name it.
    let user = key.map(|key| key.username.clone()).unwrap_or_default();
    let home = || format!("/home/{user}/agent");
    let labels = raw.label_string.split_whitespace().map(str::to_owned);
    let storages = || named(raw.target_storages.as_deref()).map(str::to_owned).collect();
    let nodes = named(raw.nodes.as_deref()).filter(|node| *node != EVERY_NODE);
    TemplateSpec {
        id: TemplateId::new(cloud.spec.id.clone(), id),
        name: raw.name.clone().unwrap_or_else(|| id.to_owned()),
        generation: Generation::default(),
        node: raw.node.as_deref().and_then(given).map(NodeName::new),
        nodes: nodes.map(NodeName::new).collect(),
        source: VmId(raw.template_vm_id.unwrap_or(0)),
        search: parts.search.clone(),
        origin: None,
        canary: raw.canary,
        roll_at_once: raw.rollout_max_unavailable,
        overrides: TemplateOverrides::default(),
        made_as: None,
        // `origin::fallbacks` knows the other templates.
        fallbacks: Vec::new(),
        placement,
        labels: labels.chain(cloud.region.labels()).collect(),
        executors: raw.num_executors,
        clone: raw.clone_strategy,
        target_storage: given(&raw.target_storage),
        storages: class.unwrap_or_else(storages),
        target_pool: given(&raw.target_pool),
        cores: limited(raw.cores),
        memory_mb: limited(raw.memory_mb),
        disk_gb: limited(container::disk_gb(raw)),
        size_labels: parts.sizes.clone(),
        size: SizeOfAgent::NONE,
        network: NetworkSpec {
            bridge: given(&raw.bridge),
            vlan: (raw.vlan > 0).then_some(raw.vlan),
        },
        nics,
        hardware: parts.hardware.clone(),
        on_boot: raw.on_boot,
        os: parts.os,
        container: parts.container.clone(),
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
        schedule: parts.windows.clone(),
        max_uses: if raw.single_use { Some(1) } else { limited(raw.max_total_uses) },
        name_prefix: raw.name_prefix.clone(),
        tags: raw.tags.clone(),
        description: raw.description.clone(),
        cloud_init: cards.cloud_init(CloudInitSpec {
            user: given(&raw.ci_user),
            // The address of a pool replaces it.
            ip_config: given(&raw.ip_config).filter(|_| raw.address_pool.is_empty()),
            ip_configs: raw.ip_configs.clone(),
            nameserver: given(&raw.nameserver),
            search_domain: given(&raw.search_domain),
            upgrade: raw.ci_upgrade,
            custom: texts.custom.clone(),
            seed: texts.on(&cloud.iso_storage, cards.apart),
        }),
        address: parts.address.clone(),
        guest_networks: raw.guest_networks.clone(),
        steps: parts.steps.clone(),
        ready_command: given(&raw.ready_command),
        reset: raw.reset.kind(),
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
