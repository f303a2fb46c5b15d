//! Declared machines: each entry of `machines` as a [`DeclaredSpec`].
//!
//! The keys that agents have too are read by the code of agents, from a layer of their own without
//! `agentDefaults` and variables of the environment: what is not said of a machine is as in its template
//! image. A machine that an ISO image installs has no template image: its guest is made new.

use std::collections::BTreeMap;
use std::time::Duration;

use drover_model::declared::{DeclaredSpec, Installer};
use drover_model::id::{CloudId, DeclaredName, NodeName, TemplateId, VmId};
use drover_model::marks::slug;
use drover_model::phase::Power;
use drover_model::spec::{LimitSpec, NetworkSpec, TemplateSpec};
use serde_yaml::Value as Yaml;

use super::addresses::Pools;
use super::cloud::CheckedCloud;
use super::context::Context;
use super::credential::Credentials;
use super::environment::{Defaults, Environment};
use super::image::hardware_of;
use super::keys::{AGENT, HARDWARE, MACHINE, RawHardware, RawMachine};
use super::layer::Layer;
use super::template::{CheckedTemplate, Inherited, TemplateInputs, template};
use super::top::{ONE_HALF, other_half};

/// The keys that only machines have.
const OWN: [&str; 7] = ["cloud", "power", "correct", "onRemoval", "iso", "storage", "hardware"];
/// The keys that say how a guest is made new.
const OF_NEW: [&str; 2] = ["storage", "hardware"];
/// The keys of a clone and of its cloud-init, which an installer knows nothing of.
const OF_CLONES: [&str; 11] = [
    "cloneStrategy",
    "targetStorage",
    "networks",
    "credentialsId",
    "ciUser",
    "ipConfig",
    "ipConfigs",
    "ciUpgrade",
    "nameserver",
    "searchDomain",
    "cloudInitCustom",
];

/// A machine, and the template that it is made like where it is cloned.
pub(super) struct CheckedMachine {
    pub spec: DeclaredSpec,
    pub template: Option<CheckedTemplate>,
}

/// Makes all machines.
pub(super) fn machines(
    entries: &[(String, Layer)],
    clouds: &BTreeMap<CloudId, CheckedCloud>,
    credentials: &Credentials,
    cx: &mut Context<'_>,
) -> BTreeMap<String, CheckedMachine> {
    let mut machines = BTreeMap::new();
    for (name, layer) in entries {
        if let Some(machine) = machine(name, layer, clouds, credentials, cx) {
            machines.insert(name.clone(), machine);
        }
    }
    machines
}

fn machine(
    name: &str,
    layer: &Layer,
    clouds: &BTreeMap<CloudId, CheckedCloud>,
    credentials: &Credentials,
    cx: &mut Context<'_>,
) -> Option<CheckedMachine> {
    // The name is the head of the guest's name, where it must be found again.
    if slug("", name) != name {
        let message = format!("`{name}` cannot be the name of a machine");
        let help = "use at most 36 lower-case letters, digits and single `-` between them";
        cx.faults.push(layer.own_fault(message).help(help));
    }
    let raw: RawMachine = layer.typed(&mut cx.faults)?;
    let chosen = layer.chosen().map_err(|fault| cx.faults.push(fault));
    if !layer.is_sound("cloud") || layer.is_faulty("credentialsId") || chosen.is_err() {
        return None;
    }
    check_kind(&raw, layer, cx);
    if layer.is_faulty("iso") || raw.cloud.trim().is_empty() {
        return None;
    }
    let Some(cloud) = clouds.get(&CloudId::new(&raw.cloud)) else {
        let known = clouds.keys().map(CloudId::as_str);
        let fault = layer.fault("cloud", format!("unknown cloud `{}`", raw.cloud));
        cx.faults.push(fault.known_in("cloudConfigurations", &raw.cloud, known));
        return None;
    };
    let named = format!("cloud `{}`", raw.cloud);
    if let Some(why) = other_half(layer, &named, cloud.layer.place, cx) {
        cx.faults.push(layer.fault("cloud", why).help(ONE_HALF));
        return None;
    }
    if let Some(iso) = &raw.iso {
        let installer = installer(iso, &raw, layer, cx)?;
        let spec = made_new(name, &raw, cloud);
        return Some(CheckedMachine {
            spec: declared(name, &raw, spec, Some(installer)),
            template: None,
        });
    }
    if !layer.has("credentialsId") {
        return None;
    }
    let template = as_agent(name, layer, &raw.cloud, clouds, credentials, cx)?;
    let spec = template.specs.first()?.clone();
    if spec.cloud_init.seed.is_some() {
        let fault = layer.fault("networks", "their DNS settings differ, which needs an ISO image");
        cx.faults.push(fault.help("give all cards of a machine the same dns and searchDomain"));
    }
    Some(CheckedMachine { spec: declared(name, &raw, spec, None), template: Some(template) })
}

fn declared(
    name: &str,
    raw: &RawMachine,
    template: TemplateSpec,
    installer: Option<Installer>,
) -> DeclaredSpec {
    DeclaredSpec {
        name: DeclaredName::new(name),
        template,
        installer,
        power: if raw.power == "STOPPED" { Power::Stopped } else { Power::Running },
        correct: raw.correct.iter().filter_map(|kind| kind.parse().ok()).collect(),
        on_removal: raw.on_removal,
    }
}

/// Whether each key means something for a machine that is cloned, or for one that is installed.
fn check_kind(raw: &RawMachine, layer: &Layer, cx: &mut Context<'_>) {
    let installed = layer.has("iso");
    let (wrong, with, help) = match installed {
        true => (&OF_CLONES[..], "with", "remove it: an installer knows nothing of it"),
        false => {
            (&OF_NEW[..], "without", "remove it, or give `iso` in place of the template image")
        }
    };
    for key in wrong.iter().filter(|key| layer.has(key)) {
        let fault = layer.fault(key, format!("`{key}` means nothing {with} `iso`"));
        cx.faults.push(fault.help(help));
    }
    if !installed {
        if !layer.has("credentialsId") {
            let fault = layer.missing_fault("credentialsId", "`credentialsId` is missing");
            cx.faults.push(fault.help("name an sshKey of `credentials`"));
        }
        return;
    }
    let needed = [
        ("node", raw.node.as_deref().is_some_and(|node| !node.is_empty())),
        ("storage", raw.storage.is_some()),
        ("diskSizeGb", raw.disk_size_gb > 0),
    ];
    for (key, _) in needed.iter().filter(|(_, there)| !there) {
        let fault = layer.missing_fault(key, format!("`{key}` is missing, which `iso` needs"));
        cx.faults.push(fault.help(format!("add `{key}`")));
    }
}

/// How the guest is made new; none where a key that it needs is missing.
fn installer(
    iso: &str,
    raw: &RawMachine,
    layer: &Layer,
    cx: &mut Context<'_>,
) -> Option<Installer> {
    let none = Layer::empty(layer.place, format!("{}.hardware", layer.path), &HARDWARE);
    let given = layer.nested("hardware").first().unwrap_or(&none);
    let mut hardware = given.typed::<RawHardware>(&mut cx.faults).map(hardware_of)?;
    // Most installers ask at a screen.
    hardware.serial &= given.has("serial");
    if !raw.bridge.is_empty() {
        hardware.bridge.clone_from(&raw.bridge);
    }
    hardware.vlan = Some(raw.vlan).filter(|vlan| *vlan > 0).or(hardware.vlan);
    let storage = raw.storage.clone()?;
    Some(Installer { iso: iso.to_owned(), storage, disk_gb: raw.disk_size_gb, hardware })
}

/// How a guest that is made new is configured.
fn made_new(name: &str, raw: &RawMachine, cloud: &CheckedCloud) -> TemplateSpec {
    let number = |number: u32| Some(number).filter(|number| *number > 0);
    let given = |text: &str| Some(text.trim().to_owned()).filter(|text| !text.is_empty());
    let id = TemplateId::new(cloud.spec.id.clone(), format!("machines.{name}"));
    let bare = TemplateSpec::bare(id, VmId(0));
    TemplateSpec {
        node: raw.node.as_deref().map(NodeName::new),
        target_pool: given(&raw.target_pool),
        cores: number(raw.cores),
        memory_mb: number(raw.memory_mb),
        disk_gb: number(raw.disk_size_gb),
        network: NetworkSpec::default(),
        on_boot: raw.on_boot,
        tags: raw.tags.clone(),
        description: raw.description.clone(),
        limits: LimitSpec {
            call: cloud.call_timeout,
            operation: cloud.spec.operation_timeout,
            clone: Duration::from_secs(raw.clone_timeout_sec),
            shutdown: Duration::from_secs(raw.shutdown_timeout_sec),
            ..bare.limits.clone()
        },
        ..bare
    }
}

/// The template of a machine, by the code of agents.
fn as_agent(
    name: &str,
    layer: &Layer,
    cloud: &str,
    clouds: &BTreeMap<CloudId, CheckedCloud>,
    credentials: &Credentials,
    cx: &mut Context<'_>,
) -> Option<CheckedTemplate> {
    let mut own = Layer::empty(layer.place, layer.path.clone(), &AGENT);
    for key in MACHINE.iter().map(|key| key.name).filter(|key| !OWN.contains(key)) {
        own.take(key, layer);
        if let (false, Some(default)) =
            (layer.has(key), MACHINE.find(key).and_then(|key| key.default()))
            && AGENT.find(key).and_then(|key| key.default()) != Some(default.clone())
            && let Some(known) = AGENT.find(key)
        {
            own.put(known.name, key, default);
        }
    }
    own.put("cloudIds", "cloud", Yaml::from(vec![cloud.to_owned()]));
    let none = Layer::empty(None, "", &AGENT);
    let inputs = TemplateInputs {
        environment: &Defaults::of(&Environment::default(), &mut cx.faults),
        inherited: &Inherited { defaults: none, nodes: BTreeMap::new() },
        clouds,
        credentials,
        pools: &Pools::default(),
        sizes: &BTreeMap::new(),
        // No machine calls in.
        listens: false,
    };
    let known = cx.warnings.len();
    let template = template(&format!("machines.{name}"), &own, &inputs, cx);
    // They are about many agents of one template, and about drover's login.
    cx.warnings.truncate(known);
    template
}
