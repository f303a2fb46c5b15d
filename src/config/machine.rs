//! Declared machines: each entry of `machines` as a [`DeclaredSpec`].
//!
//! The keys that agents have too are read by the code of agents, from a layer of their own without
//! `agentDefaults` and variables of the environment: what is not said of a machine is as in its template
//! image.

use std::collections::{BTreeMap, BTreeSet};

use drover_model::declared::DeclaredSpec;
use drover_model::id::{CloudId, DeclaredName};
use drover_model::marks::slug;
use drover_model::phase::Power;
use serde_yaml::Value as Yaml;

use super::addresses::Pools;
use super::cloud::CheckedCloud;
use super::context::Context;
use super::credential::Credentials;
use super::environment::{Defaults, Environment};
use super::keys::{AGENT, MACHINE, RawMachine};
use super::layer::Layer;
use super::template::{CheckedTemplate, TemplateInputs, template};

/// The keys that only machines have.
const OWN: [&str; 4] = ["cloud", "power", "correct", "onRemoval"];

/// A machine, and the template that it is made like.
pub(super) struct CheckedMachine {
    pub spec: DeclaredSpec,
    pub template: CheckedTemplate,
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
    if !layer.is_sound("cloud") || !layer.is_sound("credentialsId") || chosen.is_err() {
        return None;
    }
    if !clouds.contains_key(&CloudId::new(&raw.cloud)) {
        let known = clouds.keys().map(CloudId::as_str);
        let fault = layer.fault("cloud", format!("unknown cloud `{}`", raw.cloud));
        cx.faults.push(fault.known_in("cloudConfigurations", &raw.cloud, known));
        return None;
    }
    let template = as_agent(name, layer, &raw.cloud, clouds, credentials, cx)?;
    let spec = template.specs.first()?.clone();
    if spec.cloud_init.seed.is_some() {
        let fault = layer.fault("networks", "their DNS settings differ, which needs an ISO image");
        cx.faults.push(fault.help("give all cards of a machine the same dns and searchDomain"));
    }
    let correct: BTreeSet<_> = raw.correct.iter().filter_map(|kind| kind.parse().ok()).collect();
    let spec = DeclaredSpec {
        name: DeclaredName::new(name),
        template: spec,
        power: if raw.power == "STOPPED" { Power::Stopped } else { Power::Running },
        correct,
        on_removal: raw.on_removal,
    };
    Some(CheckedMachine { spec, template })
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
        defaults: &none,
        nodes: &BTreeMap::new(),
        clouds,
        credentials,
        pools: &Pools::default(),
        sizes: &BTreeMap::new(),
        // No machine calls in.
        listens: false,
    };
    template(&format!("machines.{name}"), &own, &inputs, cx)
}
