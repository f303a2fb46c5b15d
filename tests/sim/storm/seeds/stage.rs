//! A plan's stage as a world's setup: the cluster, its speed, and the YAML.

use pve_sim::guests::StubOptions;
use pve_sim::spec::{ClusterSpec, GuestSpec, PveVersion};
use pve_sim::world::{Latency, Spread};

use super::plan::{
    CLOUDS, CloudConf, Found, ResetName, SOURCES, SourceConf, Speed, Stage, TEMPLATES, TemplateConf,
};
use super::{containers, sizes};
use crate::world::clusters::{floor, host};
use crate::world::setup::{CI_LOGINS, Setup, container_template};

/// Storages that hold disks, by number.
pub const STORAGES: [&str; 2] = ["local-lvm", "shared"];
/// How nodes are chosen, by number.
pub const STRATEGIES: [&str; 4] = ["TOPSIS", "SPREAD", "PACK", "FIXED"];

/// The setup of a stage.
pub fn setup(stage: &Stage) -> Setup {
    let mut setup = Setup::linux("").seed(stage.seed);
    setup.cluster.nodes.truncate(stage.nodes);
    setup.cluster.guests.truncate(stage.nodes);
    for (number, guest) in setup.cluster.guests.iter_mut().enumerate() {
        guest.config.insert("tags".into(), format!("image-{number}"));
    }
    if stage.templates.iter().flatten().any(|conf| conf.container) {
        let nodes = setup.cluster.nodes.iter().zip(containers::TEMPLATES_FROM..);
        let templates =
            nodes.map(|(node, vmid)| container_template(u32::try_from(vmid).unwrap(), &node.name));
        setup.cluster.containers = templates.collect();
    }
    if stage.memory > 0 {
        setup.cluster.nodes.iter_mut().for_each(|node| node.memory_bytes = stage.memory << 30);
    }
    setup.beyond = vec![setup.cluster.clone(); stage.clusters() - 1];
    setup.version = if stage.new_version { PveVersion::V9_2 } else { PveVersion::V8_4 };
    setup.latency = latency(stage.speed);
    setup.guests = StubOptions { seed: stage.seed, ..StubOptions::default() };
    setup.credentials = CI_LOGINS.to_owned();
    let sources: Vec<_> = stage.sources.iter().cloned().map(Some).collect();
    configure(&mut setup, stage, &stage.clouds, &stage.templates);
    configure_sources(&mut setup, stage, &sources);
    setup
}

/// Puts clouds and templates into a setup; a template whose clouds are not there is left out.
pub fn configure(
    setup: &mut Setup,
    stage: &Stage,
    clouds: &[Option<CloudConf>; 3],
    templates: &[Option<TemplateConf>; 3],
) {
    let cloud = |((id, conf), cluster): ((&'static str, &Option<CloudConf>), &usize)| {
        let CloudConf { cap, cleanup } = conf.as_ref()?;
        let mut keys = String::new();
        if *cluster > 0 {
            let nodes = setup.beyond[cluster - 1].nodes.iter();
            let hosts: Vec<String> =
                nodes.map(|node| format!("https://{}", host(&node.name, *cluster))).collect();
            keys = format!("apiUrls: [{}], startVmId: {}, ", hosts.join(", "), floor(*cluster));
        }
        if stage.headroom > 0 {
            keys += &format!("headroom: {{memoryPercent: {}}}, ", stage.headroom);
        }
        keys += &format!(
            "instanceCap: {cap}, cleanupOrphanedAgents: {cleanup}, nodeGracePeriodSeconds: 120, \
             orphanCleanupPeriodSeconds: 60, orphanCleanupGracePeriodSeconds: 60"
        );
        Some((id, keys))
    };
    setup.clouds = CLOUDS.into_iter().zip(clouds).zip(&stage.leads).filter_map(cloud).collect();
    let pool = if stage.addresses == 0 { "" } else { "addressPool: lab, " };
    let there = |number: &&usize| clouds[**number].is_some();
    let template = |(id, conf): (&'static str, &Option<TemplateConf>)| {
        let conf = conf.as_ref()?;
        let on: Vec<&str> =
            conf.clouds.iter().filter(there).map(|number| CLOUDS[*number]).collect();
        if on.is_empty() {
            return None;
        }
        // Who has one use is never reset, and who is reset serves one at a time.
        let reset = match conf.reset {
            ResetName::Disk if conf.uses != 1 => "DISK",
            // Proxmox saves no memory of a container.
            ResetName::Memory if conf.uses != 1 && conf.container => "DISK",
            ResetName::Memory if conf.uses != 1 => "MEMORY",
            ResetName::None | ResetName::Disk | ResetName::Memory => "NONE",
        };
        let executors = if reset == "NONE" { conf.executors } else { 1 };
        let keys = format!(
            "{pool}reset: {reset}, cloudIds: [{}], {}, instanceCap: {}, instanceMin: {}, \
             idleMin: {}, numExecutors: {}, maxTotalUses: {}, idleTerminationMinutes: {}, \
             cloneStrategy: {}, maxLifetimeMinutes: {}, schedule: [{}]{}",
            on.join(", "),
            source(conf, setup.cluster.nodes.len()),
            conf.cap,
            conf.min,
            conf.idle_min,
            executors,
            conf.uses,
            conf.idle,
            if conf.full { "FULL" } else { "LINKED" },
            conf.life,
            window(conf),
            further(conf),
        );
        Some((id, keys))
    };
    setup.templates = TEMPLATES.into_iter().zip(templates).filter_map(template).collect();
}

/// Puts pools of addresses and CI systems into a setup.
pub fn configure_sources(setup: &mut Setup, stage: &Stage, sources: &[Option<SourceConf>]) {
    setup.sections.clear();
    if stage.addresses > 0 {
        let range = format!("10.20.0.10-10.20.0.{}", 9 + stage.addresses);
        let keys = format!("ranges: [{range}], prefix: 24, cooldownSeconds: 45");
        setup.sections = format!("addressPools: {{lab: {{{keys}}}}}\n");
    }
    let bounds = [("maxWaiting", stage.waiting), ("maxWaitSeconds", stage.wait)];
    let bounds = bounds.iter().filter(|(_, most)| *most > 0);
    let bounds: Vec<String> = bounds.map(|(key, most)| format!("{key}: {most}")).collect();
    if !bounds.is_empty() {
        setup.sections += &format!("service: {{leases: {{{}}}}}\n", bounds.join(", "));
    }
    let entries = SOURCES.into_iter().zip(sources).filter_map(|(id, conf)| {
        let SourceConf { weight, priority, cap, nodes, guesses, .. } = conf.as_ref()?;
        let (kind, login) = match (*nodes, *guesses) {
            (true, _) => ("jenkins", "login"),
            (false, true) => ("forgejo", "ci"),
            (false, false) => ("gitea", "ci"),
        };
        Some(format!(
            "{id}: {{kind: {kind}, url: \"https://ci\", credentialsId: {login}, \
             weight: {weight}, priority: {priority}, instanceCap: {cap}}}"
        ))
    });
    let entries: Vec<String> = entries.collect();
    if !entries.is_empty() {
        setup.sections += &format!("demand: {{{}}}\n", entries.join(", "));
    }
}

/// The keys that say what is cloned.
fn source(conf: &TemplateConf, nodes: usize) -> String {
    let name = |number: usize| format!("pve{}", number % nodes + 1);
    match conf.found {
        Found::Id if conf.container => {
            let vmid = containers::TEMPLATES_FROM + conf.source;
            format!("guestType: CONTAINER, templateVmId: {vmid}")
        }
        Found::Id => format!("templateVmId: {}", 9000 + conf.source),
        Found::Tag => format!("templateTag: image-{}", conf.source),
        Found::Name if nodes == 1 => format!("templateName: debian-12, node: {}", name(0)),
        Found::Name => {
            let (own, next) = (name(conf.source), name(conf.source + 1));
            format!("templateName: debian-12, nodes: [{own}, {next}]")
        }
        Found::Any(strategy) => {
            let strategy = STRATEGIES[strategy];
            format!("templateName: debian-12, nodes: [\"*\"], placement: {strategy}")
        }
    }
}

/// Keys that few templates have.
fn further(conf: &TemplateConf) -> String {
    let mut keys = sizes::keys(conf.cores);
    if let Some(first) = conf.target.filter(|_| conf.full) {
        let (first, second) = (STORAGES[first], STORAGES[1 - first]);
        keys += &format!(", targetStorages: [{first}, {second}]");
    }
    if conf.image {
        keys += ", userData: \"#cloud-config\"";
    }
    keys
}

/// Windows of a schedule that raise what is kept by one idle agent for half of the time.
fn window(conf: &TemplateConf) -> String {
    if conf.window == 0 || (conf.cap > 0 && conf.idle_min + 1 > conf.cap) {
        return String::new();
    }
    let (every, long, idle) = (conf.window, (conf.window / 2).max(1), conf.idle_min + 1);
    format!("{{cron: \"*/{every} * * * *\", durationMinutes: {long}, idleMin: {idle}}}")
}

fn latency(speed: Speed) -> Latency {
    let times = match speed {
        Speed::Swift => 0.1,
        Speed::Usual => 1.0,
        Speed::Slow => 4.0,
    };
    let usual = Latency::default();
    let longer = |spread: Spread| Spread::of(spread.low * times, spread.high * times);
    let rate = |spread: Spread| Spread::of(spread.low / times, spread.high / times);
    Latency {
        api_call: longer(usual.api_call),
        hop: longer(usual.hop),
        allocate: longer(usual.allocate),
        free: longer(usual.free),
        clone_linked: longer(usual.clone_linked),
        copy_bytes_per_second: rate(usual.copy_bytes_per_second),
        config: longer(usual.config),
        start: longer(usual.start),
        install: longer(usual.install),
        stop: longer(usual.stop),
        destroy: longer(usual.destroy),
        template: longer(usual.template),
        resize: longer(usual.resize),
        snapshot: longer(usual.snapshot),
        memory_bytes_per_second: rate(usual.memory_bytes_per_second),
        guest_boot: None,
        guest_shutdown: None,
    }
}

/// A machine of somebody who has nothing to do with drover.
pub fn plain_guest(vmid: u32) -> GuestSpec {
    let config = [("name", "db"), ("memory", "512"), ("scsi0", "none")];
    let config = config.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    GuestSpec { vmid, node: "pve1".into(), template: false, running: true, pool: None, config }
}

/// The number of a node's cluster, and the node's name.
pub fn node(cluster: &ClusterSpec, number: usize) -> (usize, String) {
    (number / 10, cluster.nodes[number % 10 % cluster.nodes.len()].name.clone())
}
