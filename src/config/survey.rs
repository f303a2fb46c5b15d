//! The walk over a whole configuration: every section in turn, every fault kept.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use drover_model::id::CloudId;
use drover_model::spec::{HerdSpec, LabelMapping, TemplateSpec};

use super::addresses::{self, Pools};
use super::cloud::{self, CheckedCloud};
use super::credential::{Credential, Vault};
use super::demand::{self, CheckedDemand};
use super::environment::{Defaults, Environment};
use super::executors;
use super::fault::{self, Fault, Place};
use super::keys::{ADDRESS_POOL, AGENT, CLOUD, DEMAND, Key, LATER, MAPPING, SIZES, TOP};
use super::layer::{Layer, unknown, wrong_type};
use super::mapping;
use super::node::{self, Entries, Entry, Value};
use super::origin;
use super::os;
use super::placement;
use super::prepare::{Shelf, Uploads};
use super::service::{self, ServiceSpec};
use super::source::{Sources, is_control};
use super::template::{self, CheckedTemplate, Ground};
use super::{Checked, LoadError};

/// What came of reading, and the files beside the YAML that were read for it.
pub(super) struct Survey {
    pub result: Result<Checked, LoadError>,
    /// Keys, secrets and bundles, found or not.
    pub inputs: Vec<PathBuf>,
}

/// Reads and checks.
pub(super) fn load(path: &Path, environment: &Environment) -> Survey {
    of(path, Sources::read(path), environment)
}

/// Checks what was read at a path, or says why it could not be.
pub(super) fn of(
    path: &Path,
    read: Result<Sources, (PathBuf, io::Error)>,
    environment: &Environment,
) -> Survey {
    match read {
        Ok(sources) if sources.files().is_empty() => Survey {
            result: Err(LoadError::Missing {
                what: format!("no YAML file is in `{}`", path.display()),
                help: "put at least one file there whose name ends in .yaml or .yml".to_owned(),
            }),
            inputs: Vec::new(),
        },
        Ok(sources) => check(sources, environment),
        Err((path, source)) => {
            Survey { result: Err(LoadError::Io { path, source }), inputs: Vec::new() }
        }
    }
}

/// Checks.
pub(super) fn check(sources: Sources, environment: &Environment) -> Survey {
    let mut inputs = Vec::new();
    let result = checked(sources, environment, &mut inputs);
    inputs.sort();
    inputs.dedup();
    Survey { result, inputs }
}

fn checked(
    sources: Sources,
    environment: &Environment,
    inputs: &mut Vec<PathBuf>,
) -> Result<Checked, LoadError> {
    let mut faults = Vec::new();
    let top = match top(&sources, &mut faults) {
        Ok(top) => top,
        Err(fault) => {
            let mut faults = vec![*fault];
            fault::hide(&mut faults, &sources);
            return Err(LoadError::Faults { faults, sources });
        }
    };
    if faults.is_empty() && entries_of(&top, "cloudConfigurations").is_none_or(<[_]>::is_empty) {
        return Err(LoadError::Missing {
            what: "no cloud is configured".to_owned(),
            help: "give at least one entry in `cloudConfigurations`, with apiUrl and credentialsId"
                .to_owned(),
        });
    }
    let mut warnings = Vec::new();
    let parts = {
        let defaults = Defaults::of(environment, &mut faults);
        let bases: Vec<PathBuf> = sources
            .files()
            .iter()
            .map(|file| file.path.parent().map(Path::to_owned).unwrap_or_default())
            .collect();
        let vault = Vault {
            environment,
            faults: &mut faults,
            warnings: &mut warnings,
            inputs,
            shelf: Shelf::default(),
            bases: &bases,
        };
        parts(&top, &defaults, vault)
    };
    fault::sort(&mut faults);
    fault::sort(&mut warnings);
    fault::bound(&mut faults);
    fault::bound(&mut warnings);
    fault::hide(&mut faults, &sources);
    fault::hide(&mut warnings, &sources);
    match parts.filter(|_| faults.is_empty()) {
        Some(parts) => Ok(parts.into_checked(warnings, sources)),
        None if nothing_to_log_in_with(&top, &faults) => Err(LoadError::Missing {
            what: "no credentials are configured".to_owned(),
            help: "give `credentials` and name one by credentialsId, or set PROXMOX_TOKEN_ID and \
                   PROXMOX_TOKEN_SECRET"
                .to_owned(),
        }),
        None => Err(LoadError::Faults { faults, sources }),
    }
}

/// Whether all that is wrong is that there are no credentials at all.
fn nothing_to_log_in_with(top: &[Entry], faults: &[Fault]) -> bool {
    entries_of(top, "credentials").is_none_or(<[_]>::is_empty)
        && entries_of(top, "agentConfigurations").is_none_or(<[_]>::is_empty)
        && faults.iter().all(|fault| fault.path.ends_with(".credentialsId"))
}

/// The sections of all files together; a syntax fault ends it.
pub(super) fn top(sources: &Sources, faults: &mut Vec<Fault>) -> Result<Vec<Entry>, Box<Fault>> {
    let mut top: Vec<Entry> = Vec::new();
    for (index, file) in sources.files().iter().enumerate() {
        if let Some(sound) = file.sound {
            return Err(Box::new(fault::no_text(index, &file.text, sound)));
        }
        // To the parser a zero byte is the end: what follows would look as if it had been taken out.
        if let Some(at) = file.text.find(is_control) {
            return Err(Box::new(fault::control(index, &file.text, at)));
        }
        let (root, doubled) = node::parse(index, &file.text)?;
        faults.extend(doubled);
        let Some(root) = root else { continue };
        let Value::Map(entries) = root.value else {
            let fault = wrong_type(&root, "", "a mapping");
            faults.push(fault.help("begin with a section such as `cloudConfigurations:`"));
            continue;
        };
        // What begins so is the file's own, such as blocks that anchors name (as in Compose files).
        for entry in entries.into_iter().filter(|entry| !entry.key.starts_with("x-")) {
            match top.iter_mut().find(|earlier| earlier.key == entry.key) {
                Some(earlier) => join(earlier, entry, sources, faults),
                None => top.push(entry),
            }
        }
    }
    Ok(top)
}

/// A path as a file of the configuration names it.
pub(super) fn base_of(environment: &Environment, file: &Path, name: &str) -> PathBuf {
    if let (Some(rest), Some(home)) = (name.strip_prefix("~/"), environment.get("HOME")) {
        return Path::new(home).join(rest);
    }
    file.parent().map_or_else(|| PathBuf::from(name), |base| base.join(name))
}

/// Joins a section of one file with the same section of an earlier one; what both give is a fault.
fn join(earlier: &mut Entry, entry: Entry, sources: &Sources, faults: &mut Vec<Fault>) {
    let name = |place: Place| sources.file(place.file).map(|file| file.name.as_str());
    let (Value::Map(known), Value::Map(added)) = (&mut earlier.value.value, entry.value.value)
    else {
        faults.push(node::doubled(&entry.key, entry.place, earlier.place, name(earlier.place)));
        return;
    };
    let mut all = Entries::of(std::mem::take(known));
    for new in added {
        match all.place(&new.key) {
            Some(old) => {
                let path = format!("{}.{}", entry.key, new.key);
                faults.push(node::doubled(&path, new.place, old, name(old)));
            }
            None => all.push(new),
        }
    }
    *known = all.into_list();
}

fn section<'a>(top: &'a [Entry], name: &str) -> Option<&'a Entry> {
    top.iter().find(|entry| entry.key == name)
}

fn entries_of<'a>(top: &'a [Entry], name: &str) -> Option<&'a [Entry]> {
    section(top, name).and_then(|entry| match &entry.value.value {
        Value::Map(entries) => Some(entries.as_slice()),
        Value::Scalar { .. } | Value::List(_) => None,
    })
}

/// Everything read, whether or not faults were found on the way.
struct Parts {
    clouds: BTreeMap<CloudId, CheckedCloud>,
    templates: BTreeMap<String, CheckedTemplate>,
    mappings: Vec<LabelMapping>,
    pools: Pools,
    credentials: BTreeMap<String, Credential>,
    demand: CheckedDemand,
    uploads: Uploads,
    service: ServiceSpec,
}

fn parts(top: &[Entry], defaults: &Defaults, mut vault: Vault<'_>) -> Option<Parts> {
    shape(top, vault.faults);
    let credentials = vault.credentials(entries_of(top, "credentials").unwrap_or_default());
    let service = section(top, "service").map(|entry| (&entry.value, entry.place));
    let service = service::service(service, &mut vault);
    let clouds = clouds(top, defaults, &credentials, &mut vault);
    let nodes = node_defaults(top, vault.faults);
    let agent_defaults = one(top, "agentDefaults", AGENT, vault.faults);
    let pools = many(top, "addressPools", ADDRESS_POOL, vault.faults);
    let pools = addresses::pools(pools, vault.faults);
    let sizes = many(top, "sizes", SIZES, vault.faults);
    let sizes = placement::sizes(&sizes, vault.faults);
    // What is wrong with the service itself is told alone.
    let listens = service.as_ref().is_none_or(|service| service.listen.is_some());
    let ground = Ground {
        sizes: &sizes,
        environment: defaults,
        defaults: &agent_defaults,
        nodes: &nodes,
        clouds: &clouds,
        credentials: &credentials,
        pools: &pools,
        listens,
    };
    let mut templates = BTreeMap::new();
    for (id, own) in many(top, "agentConfigurations", AGENT, vault.faults) {
        let made = template::template(&id, &own, &ground, &mut vault);
        if let Some(template) = made {
            templates.insert(id, template);
        }
    }
    origin::fallbacks(&mut templates, vault.faults);
    let mappings = many(top, "labelMappings", MAPPING, vault.faults);
    let mappings =
        mappings.iter().filter_map(|(_, layer)| mapping::mapping(layer, &templates, vault.faults));
    let mappings: Vec<LabelMapping> = mappings.collect();
    same_names(&clouds, &templates, vault.faults);
    promises(&clouds, &templates, vault.warnings);
    let sources = many(top, "demand", DEMAND, vault.faults);
    let demand = demand::demand(&sources, &credentials, listens, &mut vault);
    os::sources(&templates, &mappings, &demand, vault.faults);
    executors::sources(&templates, &mappings, &demand, vault.faults);
    let uploads = vault.shelf.contents;
    let service = service?;
    Some(Parts { clouds, templates, mappings, pools, credentials, demand, uploads, service })
}

/// Faults of the top level itself: unknown sections, and sections that are no mappings.
fn shape(top: &[Entry], faults: &mut Vec<Fault>) {
    for entry in top {
        let of_node = entry.key.strip_prefix("agentDefaults-").is_some_and(|n| !n.is_empty());
        if LATER.contains(&entry.key.as_str()) {
            let message = format!("`{}` is not yet supported", entry.key);
            let fault = Fault::at(entry.place, &*entry.key, message);
            faults.push(fault.help("take the section out"));
        } else if !of_node && !TOP.contains(&entry.key.as_str()) {
            let known = TOP.into_iter().chain(["agentDefaults-<node>"]);
            faults.push(unknown(&entry.key, entry.place, &entry.key, known));
        } else if !matches!(entry.value.value, Value::Map(_)) && !entry.value.is_null() {
            faults.push(wrong_type(&entry.value, &entry.key, "a mapping"));
        }
    }
}

/// A section that is one mapping of keys.
fn one(top: &[Entry], name: &str, keys: &'static [Key], faults: &mut Vec<Fault>) -> Layer {
    match section(top, name).filter(|entry| matches!(entry.value.value, Value::Map(_))) {
        Some(entry) => Layer::check(&entry.value, entry.place, name, keys, faults),
        None => Layer::empty(None, name),
    }
}

/// A section whose entries are mappings of keys.
fn many(
    top: &[Entry],
    name: &str,
    keys: &'static [Key],
    faults: &mut Vec<Fault>,
) -> Vec<(String, Layer)> {
    let mut layers = Vec::new();
    for entry in entries_of(top, name).unwrap_or_default() {
        let path = format!("{name}.{}", entry.key);
        if entry.key.is_empty() || entry.key.contains(|c: char| c == '/' || c.is_control()) {
            let fault = Fault::at(entry.place, &*path, "a name without `/` is wanted here");
            faults.push(fault.help("agents are named `cloud/template`, so `/` would be ambiguous"));
        }
        let layer = Layer::check(&entry.value, entry.place, &path, keys, faults);
        layers.push((entry.key.clone(), layer));
    }
    layers
}

fn clouds(
    top: &[Entry],
    defaults: &Defaults,
    credentials: &BTreeMap<String, Credential>,
    vault: &mut Vault<'_>,
) -> BTreeMap<CloudId, CheckedCloud> {
    let shared = one(top, "cloudDefaults", CLOUD, vault.faults);
    let mut clouds = BTreeMap::new();
    for (id, own) in many(top, "cloudConfigurations", CLOUD, vault.faults) {
        if let Some(cloud) = cloud::cloud(&id, (defaults, &shared, &own), credentials, vault) {
            clouds.insert(CloudId::new(&id), cloud);
        }
    }
    clouds
}

/// `agentDefaults-<node>`, by node; another node inside would select another section.
fn node_defaults(top: &[Entry], faults: &mut Vec<Fault>) -> BTreeMap<String, Layer> {
    let mut nodes = BTreeMap::new();
    for entry in top.iter().filter(|entry| matches!(entry.value.value, Value::Map(_))) {
        let Some(node) = entry.key.strip_prefix("agentDefaults-") else { continue };
        let layer = Layer::check(&entry.value, entry.place, &entry.key, AGENT, faults);
        if let Some(other) = layer.text("node").filter(|other| *other != node) {
            let message = format!("these defaults are for node `{node}`, not `{other}`");
            faults.push(layer.fault("node", message).help("take the key out"));
        }
        nodes.insert(node.to_owned(), layer);
    }
    nodes
}

/// Clouds, and templates on one cloud, have names of their own.
fn same_names(
    clouds: &BTreeMap<CloudId, CheckedCloud>,
    templates: &BTreeMap<String, CheckedTemplate>,
    faults: &mut Vec<Fault>,
) {
    let mut seen: BTreeMap<(Option<&CloudId>, &str), &str> = BTreeMap::new();
    let of_clouds = clouds.values().map(|cloud| (None, cloud.spec.name.as_str(), &cloud.layer));
    let of_templates = templates.values().flat_map(|template| {
        let named = template.specs.iter();
        named.map(|spec| (Some(&spec.id.cloud), spec.name.as_str(), &template.layer))
    });
    let mut all: Vec<_> = of_clouds.chain(of_templates).collect();
    all.sort_by_key(|(_, _, layer)| layer.place);
    for (cloud, name, layer) in all {
        if name.is_empty() {
            continue;
        }
        if cloud.is_some() && name.contains('/') {
            let fault = layer.fault("name", "a name has no `/`: leases write `cloud/template`");
            faults.push(fault.help("write it without"));
        }
        let first = *seen.entry((cloud, name)).or_insert(&layer.path);
        if first != layer.path {
            let message = format!("`{first}` is called `{name}` too");
            faults.push(layer.fault("name", message).help("give each its own name"));
            continue;
        }
        // Leases name a template by its key or its name.
        let other = templates.get(name).filter(|other| {
            other.layer.path != layer.path
                && other.specs.iter().any(|one| Some(&one.id.cloud) == cloud)
        });
        if let Some(other) = other {
            let message = format!("`{name}` is the key of `{}`", other.layer.path);
            faults.push(layer.fault("name", message).help("give each its own name"));
        }
    }
}

/// Warns of warm pools that a cloud's cap can not hold together.
fn promises(
    clouds: &BTreeMap<CloudId, CheckedCloud>,
    templates: &BTreeMap<String, CheckedTemplate>,
    warnings: &mut Vec<Fault>,
) {
    for (id, cloud) in clouds {
        let Some(cap) = cloud.spec.cap else { continue };
        let specs = templates.values().flat_map(|template| &template.specs);
        let kept = |spec: &TemplateSpec| {
            let windows = spec.schedule.iter().map(|at| at.minimum.max(at.idle_minimum));
            u64::from(windows.fold(spec.minimum.max(spec.idle_minimum), u32::max))
        };
        let promised: u64 = specs.filter(|spec| spec.id.cloud == *id).map(kept).sum();
        if promised > u64::from(cap) {
            let message = format!("`{cap}` is less than its templates' minimums, {promised}");
            let fault = cloud.layer.fault("instanceCap", message);
            warnings.push(fault.help("not every agent asked for can be kept ready"));
        }
    }
}

impl Parts {
    fn into_checked(self, warnings: Vec<Fault>, sources: Sources) -> Checked {
        let mut herd = HerdSpec::default();
        let mut connections = BTreeMap::new();
        herd.reconcile_period = self.service.reconcile_period;
        for (id, mut cloud) in self.clouds {
            if let Some(connection) = cloud.connection {
                connections.insert(id.clone(), connection);
            }
            if let Some(period) = herd.reconcile_period {
                cloud.spec.reconcile_period = period;
            }
            herd.clouds.insert(id, Arc::new(cloud.spec));
        }
        let mut layers = BTreeMap::new();
        for (name, template) in self.templates {
            layers.insert(name, template.layer);
            for spec in template.specs {
                if let Some(seed) = &spec.cloud_init.seed
                    && let Some(cloud) = herd.clouds.get_mut(&spec.id.cloud)
                {
                    Arc::make_mut(cloud).image_storages.insert(seed.storage.clone());
                }
                herd.templates.insert(spec.id.clone(), Arc::new(spec));
            }
        }
        let pools = self.pools.into_iter();
        herd.pools = pools.filter_map(|(id, pool)| Some((id, Arc::new(pool.spec?)))).collect();
        herd.asked = self.demand.asked;
        herd.leases = self.service.leases.clone();
        let mut demand = BTreeMap::new();
        for (id, (spec, connection)) in self.demand.sources {
            herd.sources.insert(id.clone(), Arc::new(spec));
            demand.insert(id, connection);
        }
        herd.mappings = self.mappings.into_iter().map(Arc::new).collect();
        let keys = self
            .credentials
            .into_iter()
            .filter_map(|(id, credential)| match credential {
                Credential::SshKey(key) => Some((id, key)),
                Credential::Proxmox(_)
                | Credential::Token(_)
                | Credential::App(_)
                | Credential::Login(..)
                | Credential::Faulty => None,
            })
            .collect();
        let (service, uploads) = (self.service, self.uploads);
        Checked { herd, connections, keys, demand, uploads, service, warnings, sources, layers }
    }
}
