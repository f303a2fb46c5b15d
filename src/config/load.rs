//! Reads and checks a whole configuration: every section in turn, every fault kept.
//!
//! ```text
//! files ─ node::parse ─▶ top level ─ layer ─▶ layers ─ cloud, template, demand, … ─▶ Checked
//!                                └──────── faults and warnings, sorted by place ───▶ LoadError
//! ```
//!
//! A syntax fault ends the check, since nothing after it has a certain place. All other faults are
//! found in one run: a section with a fault is still checked to its end.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use drover_model::id::CloudId;
use drover_model::spec::{HerdSpec, LabelMapping, TemplateSpec};

use super::addresses::{self, Pools};
use super::cloud::{self, CheckedCloud};
use super::context::{Bases, Context, Uploads};
use super::credential::{self, Credentials};
use super::demand::{self, CheckedDemand};
use super::environment::{Defaults, Environment};
use super::fault::{self, Fault};
use super::image::{self, Images};
use super::keys::{
    ADDRESS_POOL, AGENT, CLOUD, DEMAND, IMAGE, MACHINE, MAPPING, NODE_DEFAULTS, SIZES,
};
use super::layer::Layer;
use super::machine::{self, CheckedMachine};
use super::mapping;
use super::node::{Entry, Value};
use super::origin;
use super::placement;
use super::runners;
use super::service::{self, ServiceSpec};
use super::source::Sources;
use super::sync;
use super::template::{self, CheckedTemplate, Inherited, TemplateInputs};
use super::top::{Half, Top};
use super::{Checked, LoadError};

/// The result of a check, and the files beside the YAML that were read for it.
pub(super) struct Loaded {
    pub result: Result<Checked, LoadError>,
    /// Keys, secrets and bundles, found or not.
    pub inputs: Vec<PathBuf>,
    /// Where the files are that git manages; none where it manages nothing.
    pub managed: Option<PathBuf>,
}

/// Reads and checks.
pub(super) fn load(path: &Path, environment: &Environment) -> Loaded {
    loaded(path, Sources::read(path), environment)
}

/// Checks what was read at a path, or says why it could not be read.
pub(super) fn loaded(
    path: &Path,
    read: Result<Sources, (PathBuf, io::Error)>,
    environment: &Environment,
) -> Loaded {
    let error = match read {
        Ok(sources) if !sources.files().is_empty() => return check(sources, environment),
        Ok(_) => LoadError::Missing {
            what: format!("`{}` contains no YAML file", path.display()),
            help: "put at least one file there whose name ends in .yaml or .yml".to_owned(),
        },
        Err((path, source)) => LoadError::Io { path, source },
    };
    Loaded { result: Err(error), inputs: Vec::new(), managed: None }
}

/// The same for a start: nothing older is in force, so where what people did to the copies of git's files
/// is a fault, git's files count as they are. The faults are given beside it.
pub(super) fn loaded_at_start(
    path: &Path,
    read: Result<Sources, (PathBuf, io::Error)>,
    environment: &Environment,
) -> (Loaded, Option<LoadError>) {
    let loaded = loaded(path, read, environment);
    let Err(LoadError::Faults { sources, .. }) = &loaded.result else { return (loaded, None) };
    if !sources.counts_copies() {
        return (loaded, None);
    }
    let mut as_in_git = sources.clone();
    as_in_git.take_managed(false);
    let sound = check_taken(as_in_git, environment);
    if sound.result.is_err() {
        return (loaded, None);
    }
    (Loaded { managed: loaded.managed, ..sound }, loaded.result.err())
}

/// Checks files that are already read; the inputs are the files that the YAML names.
pub(super) fn check(mut sources: Sources, environment: &Environment) -> Loaded {
    let sync = sync::outline(&sources, environment);
    let managed = sync.as_ref().map(|sync| sync.folder.clone());
    if let Some(sync) = &sync {
        if sources.managed().is_none() {
            sources = match sources.with_managed(&sync.folder) {
                Ok(sources) => sources,
                Err((path, source)) => {
                    let result = Err(LoadError::Io { path, source });
                    return Loaded { result, inputs: Vec::new(), managed };
                }
            };
        }
        sources.take_managed(sync.allows_changes);
    }
    Loaded { managed, ..check_taken(sources, environment) }
}

/// Checks files as they are, those that git manages among them.
pub(super) fn check_taken(sources: Sources, environment: &Environment) -> Loaded {
    let mut faults = Vec::new();
    let failed = |mut faults: Vec<Fault>, sources: Sources, inputs| {
        fault::hide(&mut faults, &sources);
        Loaded { result: Err(LoadError::Faults { faults, sources }), inputs, managed: None }
    };
    let top = match Top::of(&sources, &mut faults) {
        Ok(top) => top,
        Err(fault) => return failed(vec![*fault], sources, Vec::new()),
    };
    for (path, why) in sources.unread() {
        let fault = Fault::nowhere(path.display().to_string(), format!("it cannot be read: {why}"));
        faults.push(fault.help("put the file back, or let `drover sync` undo the edit"));
    }
    let of_git = &sources.files()[sources.own()..];
    for file in of_git.iter().filter(|file| top.managed.is_empty() || says_nothing(&file.text)) {
        let fault =
            Fault::nowhere(file.name.clone(), "it says nothing, so all its clouds would go");
        faults.push(
            fault.help(
                "remove it, or write `cloudConfigurations: {}` where git is to manage no cloud",
            ),
        );
    }
    let files: Vec<String> =
        sources.files().iter().map(|file| format!("`{}`", file.name)).collect();
    let missing = |what: &str, help: &str| {
        let what = format!("{what} in {}", files.join(", "));
        Err(LoadError::Missing { what, help: help.to_owned() })
    };
    // Before the first sync, git may be about to bring the clouds.
    let syncs = sync::outline(&sources, environment).is_some();
    if faults.is_empty() && top.lacks("cloudConfigurations") && !syncs {
        let help =
            "give at least one entry in `cloudConfigurations`, with apiUrl and credentialsId";
        let result = missing("no cloud is configured", help);
        return Loaded { result, inputs: Vec::new(), managed: None };
    }
    let mut cx = Context::new(environment, Bases::of(&sources));
    cx.faults = faults;
    let defaults = Defaults::of(environment, &mut cx.faults);
    let parts = parts(&top, &defaults, &mut cx);
    let Context { mut faults, mut warnings, mut inputs, .. } = cx;
    inputs.sort();
    inputs.dedup();
    for all in [&mut faults, &mut warnings] {
        fault::sort(all);
        fault::bound(all);
    }
    let result = match parts.filter(|_| faults.is_empty()) {
        Some(parts) => {
            fault::hide(&mut warnings, &sources);
            Ok(parts.into_checked(warnings, sources))
        }
        None if lacks_credentials_alone(&top, &faults) => missing(
            "no credentials are configured",
            "give `credentials` and name one by credentialsId, or set PROXMOX_TOKEN_ID and \
             PROXMOX_TOKEN_SECRET",
        ),
        None => return failed(faults, sources, inputs),
    };
    Loaded { result, inputs, managed: None }
}

/// Whether a YAML file has nothing but comments.
fn says_nothing(text: &str) -> bool {
    text.lines().map(str::trim).all(|line| matches!(line, "" | "---") || line.starts_with('#'))
}

/// Whether the only problem is that there are no credentials at all.
fn lacks_credentials_alone(top: &Top, faults: &[Fault]) -> bool {
    top.lacks("credentials")
        && top.lacks("agentConfigurations")
        && faults.iter().all(|fault| fault.path.ends_with(".credentialsId"))
}

/// Everything read, with or without faults.
struct Parts {
    clouds: BTreeMap<CloudId, CheckedCloud>,
    templates: BTreeMap<String, CheckedTemplate>,
    mappings: Vec<LabelMapping>,
    images: Images,
    machines: BTreeMap<String, CheckedMachine>,
    pools: Pools,
    credentials: Credentials,
    demand: CheckedDemand,
    uploads: Uploads,
    service: ServiceSpec,
}

fn parts(top: &Top, defaults: &Defaults, cx: &mut Context<'_>) -> Option<Parts> {
    top.check(&mut cx.faults);
    sync::refuse_plain_secrets(&top.managed, &mut cx.faults);
    let service = top.local("service").map(|entry| (&entry.value, entry.place));
    let service = service::layer(service, cx);
    cx.identities = service::identities(&service, cx);
    let credentials = credential::credentials(top.entries("credentials"), cx);
    let service = service::service(&service, &credentials, cx);
    let clouds = clouds(top, defaults, &credentials, cx);
    let inherited = [Half::Local, Half::Managed].map(|half| Inherited {
        defaults: top.one(half, "agentDefaults", &AGENT, &mut cx.faults),
        nodes: node_defaults(top.half(half), &mut cx.faults),
    });
    let pools = top.many("addressPools", &ADDRESS_POOL, &mut cx.faults);
    let pools = addresses::pools(pools, &mut cx.faults);
    let sizes = top.many("sizes", &SIZES, &mut cx.faults);
    let sizes = placement::sizes(&sizes, &mut cx.faults);
    // A service with faults counts as listening, so that its faults stand alone.
    let listens = service.as_ref().is_none_or(|service| service.listen.is_some());
    let inputs = TemplateInputs {
        sizes: &sizes,
        environment: defaults,
        inherited: &inherited[0],
        clouds: &clouds,
        credentials: &credentials,
        pools: &pools,
        listens,
    };
    let mut templates = BTreeMap::new();
    for (id, own) in top.many("agentConfigurations", &AGENT, &mut cx.faults) {
        let inherited = match cx.half_of(&own) {
            Half::Local => &inherited[0],
            Half::Managed => &inherited[1],
        };
        let inputs = TemplateInputs { inherited, ..inputs };
        if let Some(template) = template::template(&id, &own, &inputs, cx) {
            templates.insert(id, template);
        }
    }
    origin::fallbacks(&mut templates, &mut cx.faults);
    let images = top.many("images", &IMAGE, &mut cx.faults);
    let images = image::images(&images, &clouds, &credentials, cx);
    image::check_named(templates.values(), &images, &mut cx.faults);
    let machines = top.many("machines", &MACHINE, &mut cx.faults);
    let machines = machine::machines(&machines, &clouds, &credentials, cx);
    let made_like = machines.values().filter_map(|machine| machine.template.as_ref());
    image::check_named(made_like, &images, &mut cx.faults);
    let mappings = top.many("labelMappings", &MAPPING, &mut cx.faults);
    let mappings = mappings.iter();
    let mappings: Vec<LabelMapping> =
        mappings.filter_map(|(_, layer)| mapping::mapping(layer, &templates, cx)).collect();
    check_names(&clouds, &templates, &mut cx.faults);
    check_minimums(&clouds, &templates, &mut cx.warnings);
    let sources = top.many("demand", &DEMAND, &mut cx.faults);
    let demand = demand::demand(&sources, &credentials, listens, cx);
    runners::check(&templates, &mappings, &demand, cx);
    let uploads = std::mem::take(&mut cx.uploads.contents);
    let service = service?;
    Some(Parts {
        clouds,
        templates,
        mappings,
        images,
        machines,
        pools,
        credentials,
        demand,
        uploads,
        service,
    })
}

fn clouds(
    top: &Top,
    defaults: &Defaults,
    credentials: &Credentials,
    cx: &mut Context<'_>,
) -> BTreeMap<CloudId, CheckedCloud> {
    let mut of = |half| top.one(half, "cloudDefaults", &CLOUD, &mut cx.faults);
    let (local, managed) = (of(Half::Local), of(Half::Managed));
    let mut clouds = BTreeMap::new();
    for (id, own) in top.many("cloudConfigurations", &CLOUD, &mut cx.faults) {
        let shared = match cx.half_of(&own) {
            Half::Local => &local,
            Half::Managed => &managed,
        };
        if let Some(cloud) = cloud::cloud(&id, (defaults, shared, &own), credentials, cx) {
            clouds.insert(CloudId::new(&id), cloud);
        }
    }
    clouds
}

/// `agentDefaults-<node>`, by node. Another node inside would select another section.
fn node_defaults(half: &[Entry], faults: &mut Vec<Fault>) -> BTreeMap<String, Layer> {
    let mut nodes = BTreeMap::new();
    for entry in half.iter().filter(|entry| matches!(entry.value.value, Value::Map(_))) {
        let Some(node) = entry.key.strip_prefix(NODE_DEFAULTS) else { continue };
        let layer = Layer::check(&entry.value, entry.place, &entry.key, &AGENT, faults);
        if let Some(other) = layer.text("node").filter(|other| *other != node) {
            let message = format!("these defaults are for node `{node}`, not `{other}`");
            faults.push(layer.fault("node", message).help("remove the key"));
        }
        nodes.insert(node.to_owned(), layer);
    }
    nodes
}

/// Names are unique: of clouds, and of the templates on one cloud.
fn check_names(
    clouds: &BTreeMap<CloudId, CheckedCloud>,
    templates: &BTreeMap<String, CheckedTemplate>,
    faults: &mut Vec<Fault>,
) {
    const UNIQUE: &str = "give each a unique name";
    let mut seen: BTreeMap<(Option<&CloudId>, &str), &str> = BTreeMap::new();
    let of_clouds = clouds.values().map(|cloud| (None, cloud.spec.name.as_str(), &cloud.layer));
    let of_templates = templates.values().flat_map(|template| {
        let named = template.specs.iter();
        named.map(|spec| (Some(&spec.id.cloud), spec.name.as_str(), &template.layer))
    });
    let mut all: Vec<_> = of_clouds.chain(of_templates).collect();
    all.sort_by_key(|(_, _, layer)| layer.place);
    for (cloud, name, layer) in all.into_iter().filter(|(_, name, _)| !name.is_empty()) {
        if cloud.is_some() && name.contains('/') {
            let fault = layer.fault("name", "a name cannot contain `/`");
            faults.push(fault.help("remove it: leases write `cloud/template`"));
        }
        let first = *seen.entry((cloud, name)).or_insert(&layer.path);
        if first != layer.path {
            let fault = layer.fault("name", format!("`{first}` has the name `{name}` too"));
            faults.push(fault.help(UNIQUE));
            continue;
        }
        // Leases name a template by its key or its name.
        let other = templates.get(name).filter(|other| {
            other.layer.path != layer.path
                && other.specs.iter().any(|one| Some(&one.id.cloud) == cloud)
        });
        if let Some(other) = other {
            let message = format!("`{name}` is the key of `{}`", other.layer.path);
            faults.push(layer.fault("name", message).help(UNIQUE));
        }
    }
}

/// Warns of minimums that exceed the cap of their cloud together.
fn check_minimums(
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
            let message = format!("`{cap}` is less than the minimums of its templates, {promised}");
            let fault = cloud.layer.fault("instanceCap", message);
            warnings.push(fault.help("raise it, or lower instanceMin and idleMin"));
        }
    }
}

impl Parts {
    fn into_checked(self, warnings: Vec<Fault>, sources: Sources) -> Checked {
        let mut herd = HerdSpec::default();
        let mut connections = BTreeMap::new();
        herd.reconcile_period = self.service.reconcile_period;
        let is_managed = |layer: &Layer| {
            layer.place.is_some_and(|place| sources.half(place.file) == Half::Managed)
        };
        herd.locked = self.service.config_sync.as_ref().is_some_and(|sync| !sync.allows_changes);
        for (id, mut cloud) in self.clouds {
            if is_managed(&cloud.layer) {
                herd.managed.insert(id.clone());
            }
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
        for (id, spec) in self.images {
            if let Some(seed) = &spec.machine.cloud_init.seed
                && let Some(cloud) = herd.clouds.get_mut(&id.cloud)
            {
                Arc::make_mut(cloud).image_storages.insert(seed.storage.clone());
            }
            herd.images.insert(id, Arc::new(spec));
        }
        let machines = self.machines.into_values().map(|machine| machine.spec);
        herd.declared = machines.map(|spec| (spec.name.clone(), Arc::new(spec))).collect();
        let pools = self.pools.into_iter();
        herd.pools = pools.filter_map(|(id, pool)| Some((id, Arc::new(pool.spec?)))).collect();
        herd.asked = self.demand.asked;
        herd.leases = self.service.leases.clone();
        let mut demand = BTreeMap::new();
        let sizes = herd.templates.values().flat_map(|spec| spec.size_labels.keys());
        let sizes: BTreeSet<String> = sizes.map(str::to_owned).collect();
        for (id, (mut spec, connection)) in self.demand.sources {
            if spec.labels.is_some() {
                spec.size_keys.clone_from(&sizes);
            }
            herd.sources.insert(id.clone(), Arc::new(spec));
            demand.insert(id, connection);
        }
        herd.mappings = self.mappings.into_iter().map(Arc::new).collect();
        let credentials = self.credentials.iter();
        let keys =
            credentials.filter_map(|(id, one)| Some((id.clone(), one.as_ssh_key()?.clone())));
        let keys = keys.collect();
        let (service, uploads) = (self.service, self.uploads);
        Checked { herd, connections, keys, demand, uploads, service, warnings, sources, layers }
    }
}
