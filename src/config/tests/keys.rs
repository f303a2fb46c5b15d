//! Every key: its type, its default, what a value does, what zero means.

use std::fmt::Debug;
use std::time::Duration;

use drover_model::id::{CloudId, TemplateId};
use drover_model::placement::Term;
use drover_model::spec::{StepSpec, StepWork, TemplateSpec, UploadSpec, WindowSpec};
use proxmox_client::Tls;

use super::super::Checked;
use super::super::keys::{AGENT, CLOUD, Key, SERVICE};
use super::*;

/// Zero or blank is refused.
const REFUSED: &str = "refused";

/// One key as it must behave: the name; what a value of a wrong type is told to be; what holds
/// when nothing is given; a value and what comes of it; what comes of zero or blank.
type Row = (&'static str, &'static str, &'static str, (&'static str, &'static str), &'static str);

const NUMBER: &str = "a whole number";
const MEMORY: &str = "an amount of memory";
const LIST: &str = "a list";
const TEXT: &str = "text";
const FLAG: &str = "true or false";
const MAPPINGS: &str = "a list of mappings";
const MAPPING: &str = "a mapping";
const NAMES: &str = "a mapping of names to texts";
const LISTS: &str = "a mapping of lists";

#[rustfmt::skip]
const CLOUD_ROWS: &[Row] = &[
    ("name", TEXT, "C", ("Lab", "Lab"), REFUSED),
    ("apiUrl", TEXT, r#"["https://localhost:8006"]"#, ("https://pve:8006/api2/json", r#"["https://pve:8006"]"#), REFUSED),
    ("apiUrls", LIST, r#"["https://localhost:8006"]"#, ("[\"https://a:8006\", \"https://b:8006/\"]", r#"["https://a:8006", "https://b:8006"]"#), REFUSED),
    ("credentialsId", TEXT, "token", ("login", "password"), REFUSED),
    ("caFile", TEXT, "System", ("ca.pem", "Bundle(1)"), REFUSED),
    ("caPem", TEXT, "System", ("PEM", "Bundle(1)"), REFUSED),
    ("pinSha256", LIST, "System", ("[abababababababababababababababababababababababababababababababab]", "Pins(1)"), REFUSED),
    ("ignoreSslErrors", FLAG, "System", ("true", "Ignore"), "System"),
    ("connectTimeoutSec", NUMBER, "10s", ("5", "5s"), REFUSED),
    ("callTimeoutSec", NUMBER, "60s", ("90", "90s"), REFUSED),
    ("instanceCap", NUMBER, "None", ("7", "Some(7)"), "None"),
    ("operationTimeoutSec", NUMBER, "300s", ("9", "9s"), REFUSED),
    ("startVmId", NUMBER, "100", ("500", "500"), REFUSED),
    ("endVmId", NUMBER, "1000000", ("599", "600"), REFUSED),
    ("cleanupOrphanedAgents", FLAG, "false", ("true", "true"), "false"),
    ("orphanCleanupPeriodSeconds", NUMBER, "600s", ("30", "30s"), REFUSED),
    ("orphanCleanupGracePeriodSeconds", NUMBER, "300s", ("60", "60s"), "0ns"),
    ("nodeGracePeriodSeconds", NUMBER, "300s", ("60", "60s"), "0ns"),
    ("cloudInitIsoStorage", TEXT, "local", ("nfs", "nfs"), REFUSED),
    ("networkNames", NAMES, "vmbr0 None", ("{lan: vmbr7.30}", "vmbr7 Some(30)"), "vmbr0 None"),
    ("clonesPerStorage", NUMBER, "16", ("1", "1"), REFUSED),
    ("operationsPerNode", NUMBER, "16", ("1", "1"), REFUSED),
    ("adaptLanes", FLAG, "true", ("false", "false"), "false"),
    ("region", TEXT, "{}", ("eu", r#"{"region:eu"}"#), "{}"),
    ("zone", TEXT, "{}", ("dc2", r#"{"zone:dc2"}"#), "{}"),
    ("nodeLabels", LISTS, "{}", ("{pve1: [ssd, gpu]}\nBESIDEnodeSelector: [gpu]", r#"{pve1: {"gpu"}}"#), "{}"),
    ("storageClasses", LISTS, "[]", ("{fast: [nvme]}\nBESIDEstorageClass: fast", r#"["nvme"]"#), "[]"),
    ("memoryOvercommitPercent", NUMBER, "100", ("150", "150"), REFUSED),
    ("headroom", MAPPING, "0 0 0 0 0", ("{memoryMb: 1, memoryPercent: 2, cpuPercent: 3, diskGb: 4, diskPercent: 5}", "1 2 3 4 5"), "0 0 0 0 0"),
];

#[rustfmt::skip]
const AGENT_ROWS: &[Row] = &[
    ("name", TEXT, "a", ("builder", "builder"), REFUSED),
    ("cloudIds", LIST, "c", ("[c]", "c"), REFUSED),
    ("node", TEXT, "None", ("pve1", "Some(pve1)"), "None"),
    ("nodes", LIST, "[]", ("[pve1, pve2]", "[pve1, pve2]"), "[]"),
    ("preferredNodes", LIST, "[]", ("[pve1, pve2]", "[pve1, pve2]"), "[]"),
    ("placement", "one of TOPSIS, SPREAD, PACK, FIXED", "Topsis", ("SPREAD", "Spread"), REFUSED),
    ("placementWeights", MAPPING, "60 40", ("{memory: 1}", "1 40"), "60 40"),
    ("nodeSelector", LIST, "{} false", ("[]", "{} false"), "{} false"),
    ("affinity", MAPPINGS, "[]", ("[{key: vm.type, values: [database]}]", r#"["vm.type in [database]"]"#), "[]"),
    ("antiAffinity", MAPPINGS, "[]", ("[{key: big, operator: Exists}]", r#"["big"]"#), "[]"),
    ("maxVmsPerNode", NUMBER, "None", ("10", "Some(10)"), "None"),
    ("minFreeMemoryMb", MEMORY, "0", ("4096", "4096"), "0"),
    ("templateVmId", NUMBER, "Id(VmId(9000))", ("9001", "Id(VmId(9001))"), REFUSED),
    ("templateName", TEXT, "Id(VmId(9000))", ("debian-13", r#"Name("debian-13")"#), REFUSED),
    ("templateNamePattern", TEXT, "Id(VmId(9000))", (r"debian-\d+", r#"Pattern("debian-\\d+")"#), REFUSED),
    ("templateTag", TEXT, "Id(VmId(9000))", ("golden", r#"Tag("golden")"#), REFUSED),
    ("templateSelectionMode", "one of STATIC_ID, NAME_REGEX, TAG", "Id(VmId(9000))", ("TAG\ntemplateTag: golden", r#"Tag("golden")"#), REFUSED),
    ("labelString", TEXT, "{}", ("linux  docker", r#"{"docker", "linux"}"#), "{}"),
    ("numExecutors", NUMBER, "1", ("3", "3"), REFUSED),
    ("cloneStrategy", "one of FULL, LINKED", "Full", ("LINKED", "Linked"), REFUSED),
    ("targetStorage", TEXT, "None", ("ceph", r#"Some("ceph")"#), "None"),
    ("targetStorages", LIST, "[]", ("[nfs, ceph]", r#"["nfs", "ceph"]"#), "[]"),
    ("storageClass", TEXT, "None", ("thin", "Some(Thin)"), "None"),
    ("fallbackTemplates", LIST, "[]", ("[]", "[]"), "[]"),
    ("targetPool", TEXT, "None", ("ci", r#"Some("ci")"#), "None"),
    ("size", TEXT, "None None None", ("\"cpu:4,memory:8192,disk:50\"", "Some(4) Some(8192) Some(50)"), "None None None"),
    ("cores", NUMBER, "None", ("8", "Some(8)"), "None"),
    ("memoryMb", NUMBER, "None", ("4096", "Some(4096)"), "None"),
    ("diskSizeGb", NUMBER, "None", ("40", "Some(40)"), "None"),
    ("bridge", TEXT, "None", ("vmbr1", r#"Some("vmbr1")"#), "None"),
    ("vlan", NUMBER, "None", ("30", "Some(30)"), "None"),
    ("networks", MAPPINGS, "[]", ("[{bridge: vmbr1.7, ip: none}, {name: dmz}]", r#"["vmbr1 Some(7) None", "vmbr1 None Some(\"ip=dhcp\")"]"#), "[]"),
    ("onBoot", FLAG, "false", ("true", "true"), "false"),
    ("osType", "one of LINUX, WINDOWS", "Linux", ("WINDOWS\nremoteFs: 'C:\\ci'", "Windows(Auto)"), REFUSED),
    ("windowsLoginShell", "one of AUTO, CMD, POWERSHELL", "Linux", ("CMD\nosType: WINDOWS\nremoteFs: 'C:\\ci'", "Windows(Cmd)"), REFUSED),
    ("remoteFs", TEXT, "/home/ci/agent", ("/srv/ci", "/srv/ci"), "/home/ci/agent"),
    ("mode", "one of NORMAL, EXCLUSIVE", "Exclusive", ("NORMAL", "Normal"), REFUSED),
    ("credentialsId", TEXT, "ssh ci", ("other", "other root"), REFUSED),
    ("javaDistribution", "one of NONE, OPENJDK, CORRETTO", "None", ("CORRETTO", "Corretto"), REFUSED),
    ("javaMajorVersion", NUMBER, "21", ("25", "25"), REFUSED),
    ("javaPath", TEXT, "java", ("/opt/java", "/opt/java"), "java"),
    ("jvmOptions", TEXT, "", ("-Xmx512m", "-Xmx512m"), ""),
    ("correttoRepositoryUrl", TEXT, "None", ("https://mirror/deb", r#"Some("https://mirror/deb")"#), "None"),
    ("correttoKeyUrl", TEXT, "None", ("https://mirror/key", r#"Some("https://mirror/key")"#), "None"),
    ("idleTerminationMinutes", NUMBER, "Some(1800s)", ("5", "Some(300s)"), "None"),
    ("instanceCap", NUMBER, "None", ("6", "Some(6)"), "None"),
    ("instanceMin", NUMBER, "0", ("2", "2"), "0"),
    ("idleMin", NUMBER, "0", ("2", "2"), "0"),
    ("schedule", MAPPINGS, "[]", ("[{cron: \"0 8 * * *\", durationMinutes: 60, idleMin: 2}]", "[\"0 8 * * * UTC 3600s 0 2\"]"), "[]"),
    ("maxTotalUses", NUMBER, "None", ("50", "Some(50)"), "None"),
    ("singleUse", FLAG, "None", ("true", "Some(1)"), "None"),
    ("namePrefix", TEXT, "", ("ci", "ci"), ""),
    ("startupWaitSeconds", NUMBER, "60s", ("120", "120s"), REFUSED),
    ("ciUser", TEXT, "None", ("ci", r#"Some("ci")"#), "None"),
    ("ipConfig", TEXT, r#"Some("ip=dhcp")"#, ("ip6=auto", r#"Some("ip6=auto")"#), "None"),
    ("addressPool", TEXT, "GuestAgent", ("lab", "Pools([lab])"), "GuestAgent"),
    ("addressPool6", TEXT, "GuestAgent", ("six\naddressPool: lab", "Pools([lab, six])"), "GuestAgent"),
    ("addressFrom", "one of guestAgent, static, call", "GuestAgent", ("call", "Call"), REFUSED),
    ("ipConfigs", LIST, "[]", ("[ip=dhcp]", r#"["ip=dhcp"]"#), "[]"),
    ("ciUpgrade", FLAG, "false", ("true", "true"), "false"),
    ("nameserver", TEXT, "None", ("1.1.1.1", r#"Some("1.1.1.1")"#), "None"),
    ("searchDomain", TEXT, "None", ("lan", r#"Some("lan")"#), "None"),
    ("userData", TEXT, "None", ("\"#!/bin/sh\"", r##"Some("#!/bin/sh")"##), REFUSED),
    ("userDataFile", TEXT, "None", ("boot.sh", r##"Some("#!/bin/sh\nid\n")"##), REFUSED),
    ("metaData", TEXT, "None", ("\"{a: b}\"", r#"Some("{a: b}")"#), REFUSED),
    ("metaDataFile", TEXT, "None", ("data.yaml", r#"Some("{c: d}\n")"#), REFUSED),
    ("networkConfig", TEXT, "None", ("\"{version: 2}\"", r#"Some("{version: 2}")"#), REFUSED),
    ("networkConfigFile", TEXT, "None", ("data.yaml", r#"Some("{c: d}\n")"#), REFUSED),
    ("userDataValues", NAMES, "None", ("{x: y}\nuserData: \"#!${x}\"", r#"Some({"x": "y"})"#), "None"),
    ("cloudInitIsoStorage", TEXT, "None", ("nfs\nuserData: \"#!\"", r#"Some("nfs")"#), "None"),
    ("cloudInitCustom", MAPPING, "None", ("{user: \"local:snippets/a.yaml\"}", r#"Some("user=local:snippets/a.yaml")"#), REFUSED),
    ("sshPort", NUMBER, "22", ("2222", "2222"), REFUSED),
    ("guestNetworks", LIST, "[]", ("[127.77.0.0/16]", r#"["127.77.0.0/16"]"#), "[]"),
    ("tags", LIST, "{}", ("[ci]", r#"{"ci"}"#), "{}"),
    ("description", TEXT, "", ("ask Ann", "ask Ann"), ""),
    ("prepare", "a list of mappings", "[]", ("[{run: id}]", r#"["step 1 (run)"]"#), "[]"),
    ("readyCommand", TEXT, "None", ("docker info", r#"Some("docker info")"#), "None"),
    ("reset", "one of NONE, DISK, MEMORY", "None", ("MEMORY", "Some(Memory)"), REFUSED),
    ("resetTimeoutSec", NUMBER, "300s", ("5", "5s"), REFUSED),
    ("closeSshBeforeDelete", FLAG, "false", ("true", "true"), "false"),
    ("queueTimeoutSec", NUMBER, "600s", ("5", "5s"), REFUSED),
    ("cloneTimeoutSec", NUMBER, "1800s", ("5", "5s"), REFUSED),
    ("prepareTimeoutSec", NUMBER, "600s", ("5", "5s"), REFUSED),
    ("shutdownTimeoutSec", NUMBER, "60s", ("5", "5s"), "0ns"),
    ("retireTimeoutSec", NUMBER, "900s", ("5", "5s"), REFUSED),
    ("maxLifetimeMinutes", NUMBER, "None", ("60", "Some(3600s)"), "None"),
    ("breakerThreshold", NUMBER, "3", ("5", "5"), REFUSED),
    ("breakerCooldownSec", NUMBER, "120s", ("5", "5s"), REFUSED),
    ("breakerCooldownCapSec", NUMBER, "1800s", ("500", "500s"), REFUSED),
];

#[rustfmt::skip]
const SERVICE_ROWS: &[Row] = &[
    ("stateDirectory", TEXT, "/var/lib/drover", ("/srv/drover", "/srv/drover"), "/var/lib/drover"),
    ("socket", TEXT, "/run/drover/drover.sock", ("/tmp/d.sock", "/tmp/d.sock"), "/run/drover/drover.sock"),
    ("socketMode", TEXT, "None", ("0640", "Some(416)"), REFUSED),
    ("allowedUids", LIST, "{}", ("[1000]", "{1000}"), "{}"),
    ("allowedGids", LIST, "{}", ("[100]", "{100}"), "{}"),
    ("peers", "a list of mappings", "[]", ("[{uid: 7, group: build}]", "[SocketPeer { peer: Uid(7), role: Operator, group: Some(\"build\") }]"), "[]"),
    ("listen", TEXT, "None", ("127.0.0.1:8080", "Some(127.0.0.1:8080)"), REFUSED),
    ("listenPlain", FLAG, "[]", ("true", "[]"), "[]"),
    ("tokens", "a list of mappings", "[]", ("[{name: ann, role: admin, secretFile: token}]", "[\"ann Admin\"]"), "[]"),
    ("leases", "a mapping", "10000 2000 86400s []", ("{maxWaiting: 9, maxWaitSeconds: 60, quotas: [{group: build, maxLeases: 4, maxCores: 8}]}", "9 2000 60s [Quota { whose: Group(\"build\"), leases: Some(4), waiting: None, cores: Some(8), memory_mb: None, disk_gb: None }]"), "10000 2000 86400s []"),
    ("onStop", "one of keep, retireIdle, retireAll", "Keep", ("retireAll", "RetireAll"), REFUSED),
    ("stopTimeoutSec", NUMBER, "90s", ("5", "5s"), REFUSED),
    ("orphanCleanupPeriodSeconds", NUMBER, "None", ("60", "Some(60s)"), "None"),
    ("logLevel", TEXT, "info", ("debug", "debug"), "info"),
];

fn text(value: &impl Debug) -> String {
    format!("{value:?}")
}

fn cloud(checked: &Checked, key: &str) -> String {
    let id = CloudId::new("c");
    let spec = &checked.herd.clouds[&id];
    let connection = &checked.connections[&id];
    match key {
        "name" => spec.name.clone(),
        "apiUrl" | "apiUrls" => {
            text(&connection.endpoints.iter().map(ToString::to_string).collect::<Vec<_>>())
        }
        "credentialsId" => match &connection.login {
            proxmox_client::Login::Token { .. } => "token".to_owned(),
            proxmox_client::Login::Password { .. } => "password".to_owned(),
        },
        "caFile" | "caPem" | "pinSha256" | "ignoreSslErrors" => match &connection.tls {
            Tls::Bundle(texts) => format!("Bundle({})", texts.len()),
            Tls::Pins(pins) => format!("Pins({})", pins.len()),
            tls @ (Tls::System | Tls::Ignore) => text(tls),
        },
        "connectTimeoutSec" => text(&connection.connect_timeout),
        "callTimeoutSec" => text(&connection.call_timeout),
        "instanceCap" => text(&spec.cap),
        "operationTimeoutSec" => text(&spec.operation_timeout),
        "startVmId" => spec.vmid_floor.to_string(),
        "endVmId" => spec.vmid_ceiling.to_string(),
        "cleanupOrphanedAgents" => text(&spec.cleanup_orphans),
        "orphanCleanupPeriodSeconds" => text(&spec.reconcile_period),
        "orphanCleanupGracePeriodSeconds" => text(&spec.orphan_grace),
        "nodeGracePeriodSeconds" => text(&spec.node_grace),
        "cloudInitIsoStorage" => in_use(checked).cloud_init.seed.as_ref().unwrap().storage.clone(),
        "networkNames" => {
            let nic = &in_use(checked).nics[0];
            format!("{} {:?}", nic.bridge, nic.vlan)
        }
        "clonesPerStorage" => text(&spec.clones_per_storage),
        "operationsPerNode" => text(&spec.operations_per_node),
        "adaptLanes" => text(&spec.adapt_lanes),
        other => placed(checked, other),
    }
}

/// What a cloud says about where agents are put, as its template has it.
fn placed(checked: &Checked, key: &str) -> String {
    let spec = &checked.herd.templates[&TemplateId::new(CloudId::new("c"), "a")];
    let headroom = spec.placement.headroom;
    match key {
        "region" | "zone" => text(&spec.labels),
        "nodeLabels" => text(&spec.placement.labels),
        "storageClasses" => text(&spec.storages),
        "memoryOvercommitPercent" => headroom.overcommit_percent.to_string(),
        "headroom" => {
            let (memory, disk) = (headroom.memory_mb, headroom.disk_gb);
            let percent = (headroom.memory_percent, headroom.cpu_percent, headroom.disk_percent);
            format!("{memory} {} {} {disk} {}", percent.0, percent.1, percent.2)
        }
        other => panic!("{other}"),
    }
}

fn in_use(checked: &Checked) -> &TemplateSpec {
    &checked.herd.templates[&TemplateId::new(CloudId::new("c"), "a")]
}

fn terms(terms: &[Term]) -> String {
    text(&terms.iter().map(ToString::to_string).collect::<Vec<_>>())
}

/// A cloud with these lines and an agent on it; what stands behind `BESIDE` is the agent's.
fn with_cloud_and_agent(lines: &str) -> String {
    let (lines, beside) = lines.split_once("\nBESIDE").unwrap_or((lines, "{}"));
    let agent = format!(
        "agentConfigurations:\n  a:\n    cloudIds: [c]\n    templateVmId: 9000\n    \
         credentialsId: ssh\n    userData: '#!'\n    networks: [{{name: lan}}]\n    {}\n",
        if beside == "{}" { "" } else { beside }
    );
    with_cloud(lines) + &agent
}

fn agent(checked: &Checked, key: &str) -> String {
    let spec = in_use(checked);
    let seed = spec.cloud_init.seed.as_ref();
    match key {
        "name" => spec.name.clone(),
        "cloudIds" => spec.id.cloud.to_string(),
        "node" => text(&spec.node),
        "nodes" => text(&spec.nodes),
        "templateVmId"
        | "templateName"
        | "templateNamePattern"
        | "templateTag"
        | "templateSelectionMode" => text(&spec.sought()),
        "osType" | "windowsLoginShell" => text(&spec.os),
        "preferredNodes" => text(&spec.placement.preferred),
        "placement" => text(&spec.placement.strategy),
        "placementWeights" => {
            let weights = spec.placement.weights;
            format!("{} {}", weights.memory, weights.cpu)
        }
        "nodeSelector" => format!("{:?} {}", spec.placement.selector, spec.placement.anywhere),
        "affinity" => terms(&spec.placement.affinity),
        "antiAffinity" => terms(&spec.placement.anti_affinity),
        "maxVmsPerNode" => text(&spec.placement.max_guests),
        "minFreeMemoryMb" => text(&spec.placement.min_free_mb),
        "storageClass" => text(&spec.placement.thickness),
        "size" => format!("{:?} {:?} {:?}", spec.cores, spec.memory_mb, spec.disk_gb),
        "targetStorages" => text(&spec.storages),
        "fallbackTemplates" => text(&spec.fallbacks),
        "labelString" => text(&spec.labels),
        "numExecutors" => text(&spec.executors),
        "cloneStrategy" => text(&spec.clone),
        "targetStorage" => text(&spec.target_storage),
        "targetPool" => text(&spec.target_pool),
        "cores" => text(&spec.cores),
        "memoryMb" => text(&spec.memory_mb),
        "diskSizeGb" => text(&spec.disk_gb),
        "bridge" => text(&spec.network.bridge),
        "vlan" => text(&spec.network.vlan),
        "networks" => {
            let nics = spec.nics.iter();
            let nics = nics.map(|nic| format!("{} {:?} {:?}", nic.bridge, nic.vlan, nic.ip_config));
            text(&nics.collect::<Vec<_>>())
        }
        "userData" | "userDataFile" => text(&seed.and_then(|seed| seed.user_data.clone())),
        "metaData" | "metaDataFile" => text(&seed.and_then(|seed| seed.meta_data.clone())),
        "networkConfig" | "networkConfigFile" => {
            text(&seed.and_then(|seed| seed.network_config.clone()))
        }
        "userDataValues" => text(&seed.map(|seed| seed.values.clone())),
        "cloudInitIsoStorage" => text(&seed.map(|seed| seed.storage.clone())),
        "cloudInitCustom" => text(&spec.cloud_init.custom),
        "onBoot" => text(&spec.on_boot),
        "remoteFs" => spec.remote_fs.clone(),
        "mode" => text(&spec.mode),
        "credentialsId" => format!("{} {}", spec.ssh.credentials_id, spec.ssh.user),
        "javaDistribution" => text(&spec.java.distribution),
        "javaMajorVersion" => text(&spec.java.major),
        "javaPath" => spec.java.path.clone(),
        "jvmOptions" => spec.java.options.clone(),
        "correttoRepositoryUrl" => text(&spec.java.repository),
        "correttoKeyUrl" => text(&spec.java.repository_key),
        "idleTerminationMinutes" => text(&spec.idle),
        "instanceCap" => text(&spec.cap),
        "instanceMin" => text(&spec.minimum),
        "idleMin" => text(&spec.idle_minimum),
        "schedule" => {
            let windows = spec.schedule.iter().map(|window| {
                let WindowSpec { cron, duration, time_zone, minimum, idle_minimum } = window;
                format!("{cron} {time_zone} {duration:?} {minimum} {idle_minimum}")
            });
            text(&windows.collect::<Vec<_>>())
        }
        "maxTotalUses" | "singleUse" => text(&spec.max_uses),
        "namePrefix" => spec.name_prefix.clone(),
        "startupWaitSeconds" => text(&spec.limits.startup),
        "ciUser" => text(&spec.cloud_init.user),
        "ipConfig" => text(&spec.cloud_init.ip_config),
        "addressPool" | "addressPool6" | "addressFrom" => text(&spec.address),
        "ipConfigs" => text(&spec.cloud_init.ip_configs),
        "ciUpgrade" => text(&spec.cloud_init.upgrade),
        "nameserver" => text(&spec.cloud_init.nameserver),
        "searchDomain" => text(&spec.cloud_init.search_domain),
        "sshPort" => text(&spec.ssh.port),
        "guestNetworks" => text(&spec.guest_networks),
        "tags" => text(&spec.tags),
        "description" => spec.description.clone(),
        "prepare" => text(&spec.steps.iter().map(|step| step.name.as_str()).collect::<Vec<_>>()),
        "readyCommand" => text(&spec.ready_command),
        "reset" => text(&spec.reset),
        "resetTimeoutSec" => text(&spec.limits.reset),
        "closeSshBeforeDelete" => text(&spec.close_ssh),
        "queueTimeoutSec" => text(&spec.limits.queue),
        "cloneTimeoutSec" => text(&spec.limits.clone),
        "prepareTimeoutSec" => text(&spec.limits.prepare),
        "shutdownTimeoutSec" => text(&spec.limits.shutdown),
        "retireTimeoutSec" => text(&spec.limits.retire),
        "maxLifetimeMinutes" => text(&spec.limits.lifetime),
        "breakerThreshold" => text(&spec.breaker.threshold),
        "breakerCooldownSec" => text(&spec.breaker.cooldown),
        "breakerCooldownCapSec" => text(&spec.breaker.cooldown_cap),
        other => panic!("{other}"),
    }
}

fn service(checked: &Checked, key: &str) -> String {
    let spec = &checked.service;
    match key {
        "stateDirectory" => spec.state_directory.display().to_string(),
        "socket" => spec.socket.display().to_string(),
        "socketMode" => text(&spec.socket_mode),
        "allowedUids" => text(&spec.allowed_uids),
        "allowedGids" => text(&spec.allowed_gids),
        "listen" => text(&spec.listen),
        // The first only lifts a fault, which has a test of its own.
        "listenPlain" | "tokens" => {
            let named = spec.tokens.iter().map(|token| format!("{} {:?}", token.name, token.role));
            text(&named.collect::<Vec<_>>())
        }
        "peers" => text(&spec.peers),
        "leases" => {
            let limits = &spec.leases;
            let (all, each) = (limits.waiting, limits.waiting_each);
            format!("{all} {each} {:?} {:?}", limits.wait, limits.quotas)
        }
        "onStop" => text(&spec.on_stop),
        "stopTimeoutSec" => text(&spec.stop_timeout),
        "orphanCleanupPeriodSeconds" => text(&spec.reconcile_period),
        "logLevel" => spec.log_level.clone(),
        other => panic!("{other}"),
    }
}

/// An agent with these lines, beside everything that its keys may name or need.
fn with_all_beside(lines: &str) -> String {
    format!(
        "{}addressPools:\n  lab: {{ranges: [10.0.0.10], prefix: 24}}\n  \
         six: {{ranges: [\"fd00::9\"], prefix: 64}}\nservice: {{listen: \"127.0.0.1:80\"}}\n",
        with_agent(lines)
    )
}

fn with_service(lines: &str) -> String {
    format!("{}service:\n  {lines}\n", with_cloud("{}"))
}

/// Holds each row against a section: `around` puts a line into it, `show` reads the result.
fn holds(
    rows: &[Row],
    keys: &[Key],
    around: impl Fn(&str) -> String,
    show: impl Fn(&Checked, &str) -> String,
) {
    let scene = Scene::new();
    scene.put("boot.sh", 0o644, "#!/bin/sh\nid\n");
    scene.put("data.yaml", 0o644, "{c: d}\n");
    let pem = fs::read_to_string(scene.path("ca.pem")).unwrap();
    let pem = format!("\"{}\"", pem.replace('\n', "\\n"));
    let other = "\n  other: {kind: sshKey, username: root, privateKeyFile: ecdsa}\n";
    let around =
        |line: &str| around(line).replace("\ncredentials:\n", &format!("\ncredentials:{other}"));
    let plain = scene.good(&around("{}"));
    for (key, kind, default, (value, outcome), zero) in rows {
        assert_eq!(show(&plain, key), *default, "default of {key}");
        let value = value.replace("PEM", &pem);
        let given = scene.good(&around(&format!("{key}: {value}")));
        assert_eq!(show(&given, key), *outcome, "{key}: {value}");
        let (other, found) = match *kind {
            MAPPING | NAMES | LISTS => ("5", "a whole number"),
            _ => ("{}", "a mapping"),
        };
        let wrong = scene.faults(&around(&format!("{key}: {other}")));
        assert!(wrong.contains(&format!("expected {kind}, found {found}")), "{wrong}");
        let nought = match *kind {
            NUMBER | MEMORY => "0",
            FLAG => "false",
            LIST | MAPPINGS => "[]",
            MAPPING | NAMES | LISTS => "{}",
            _ => "\"\"",
        };
        match scene.check(&around(&format!("{key}: {nought}"))) {
            Ok(checked) => assert_eq!(show(&checked, key), *zero, "{key}: {nought}"),
            Err(error) => assert_eq!(*zero, REFUSED, "{}", error.render()),
        }
    }
    let known: Vec<_> = keys.iter().map(|key| key.name).collect();
    let tested: Vec<_> = rows.iter().map(|row| row.0).collect();
    assert_eq!(known, tested, "every key has its row");
}

// Invariant: each key has its type, its default and its meaning of zero, and nothing else.

#[test]
fn every_key_of_a_cloud_means_what_it_says() {
    holds(CLOUD_ROWS, CLOUD, with_cloud_and_agent, cloud);
}

#[test]
fn every_key_of_an_agent_means_what_it_says() {
    holds(AGENT_ROWS, AGENT, with_all_beside, agent);
}

#[test]
fn every_key_of_the_service_means_what_it_says() {
    holds(SERVICE_ROWS, SERVICE, with_service, service);
}

#[test]
fn the_service_takes_what_systemd_and_the_environment_give() {
    let scene = Scene::with(&[
        ("STATE_DIRECTORY", "/srv/state:/srv/more"),
        ("RUNTIME_DIRECTORY", "/srv/run"),
        ("LOG_LEVEL", "debug"),
    ]);
    let service = scene.good(&with_cloud("{}")).service;
    assert_eq!(service.state_directory, Path::new("/srv/state"));
    assert_eq!(service.socket, Path::new("/srv/run/drover.sock"));
    assert_eq!(service.log_level, "debug");
}

// Invariant: LOG_LEVEL wins over the file, at a start and after every edit of the file.

#[test]
fn the_log_level_of_the_environment_wins_over_every_edit_of_the_file() {
    let level = |variable: &str, lines: &str| {
        Scene::with(&[("LOG_LEVEL", variable)]).good(&with_service(lines)).service.log_level
    };
    for edit in ["logLevel: info", "logLevel: warn", "logLevel: \"\""] {
        assert_eq!(level("debug", edit), "debug", "{edit}");
    }
    assert_eq!(level("", "logLevel: warn"), "warn");
    assert_eq!(level("", "logLevel: \"\""), "info");
}

#[test]
fn an_empty_value_is_the_default() {
    let scene = Scene::new();
    let checked = scene.good(&with_agent("cores:\nidleTerminationMinutes: ~"));
    assert_eq!(agent(&checked, "cores"), "None");
    assert_eq!(agent(&checked, "idleTerminationMinutes"), "Some(1800s)");
}

#[test]
fn a_plain_number_is_text_where_text_is_wanted_and_yes_is_true() {
    let scene = Scene::new();
    assert_eq!(agent(&scene.good(&with_agent("targetPool: 10")), "targetPool"), r#"Some("10")"#);
    let checked = scene.good(&with_cloud("ignoreSslErrors: yes"));
    assert_eq!(checked.connections[&CloudId::new("c")].tls, Tls::Ignore);
}

// Invariant: a step is what it says, and its file is known by its hash alone.

/// Of the file below, as `sha256sum` says.
const HASH: &str = "40f64227c4531d0bf37c3fdcfcdf871fc6a7504aec05115bd6428ea9528bb621";

#[test]
fn steps_have_their_work_their_names_and_their_times() {
    let scene = Scene::new();
    scene.put("ci.conf", 0o644, "retries = 3\n");
    let checked = scene.good(&with_agent(
        "prepare:\n  - {run: docker info, name: docker, timeoutSec: 5}\n  \
         - {upload: {from: ci.conf, to: /etc/ci.conf, mode: 0600}}\n  - {packages: [git, jq]}",
    ));
    let spec = &checked.herd.templates[&TemplateId::new(CloudId::new("c"), "a")];
    let upload = UploadSpec {
        from: "ci.conf".into(),
        to: "/etc/ci.conf".into(),
        mode: 0o600,
        sha256: HASH.into(),
    };
    let StepWork::Upload(read) = &spec.steps[1].work else { panic!("{:?}", spec.steps) };
    let step = |name: &str, work, seconds| StepSpec {
        name: name.into(),
        work,
        timeout: Duration::from_secs(seconds),
    };
    let wanted = [
        step("docker", StepWork::Run("docker info".into()), 5),
        step("step 2 (upload)", StepWork::Upload(upload), 300),
        step("step 3 (packages)", StepWork::Packages(vec!["git".into(), "jq".into()]), 300),
    ];
    assert_eq!(spec.steps, wanted);
    let contents: Vec<(&str, &[u8])> =
        checked.uploads.iter().map(|(sha256, bytes)| (sha256, bytes.as_ref())).collect();
    assert_eq!(contents, [(read.sha256.as_str(), b"retries = 3\n".as_slice())]);
    let shown = format!("{checked:?}");
    assert!(!shown.contains("retries") && shown.contains(&read.sha256));
    let written = serde_json::to_string(&**spec).unwrap();
    assert!(!written.contains("retries") && written.contains(&read.sha256), "{written}");

    scene.put("ci.conf", 0o644, "retries = 4\n");
    let again = scene.good(&with_agent("prepare: [{upload: {from: ci.conf, to: /etc/ci.conf}}]"));
    assert!(!again.uploads.iter().any(|(sha256, _)| sha256 == read.sha256));
}

#[test]
fn a_step_that_may_take_longer_than_all_of_them_is_warned_about() {
    let scene = Scene::new();
    let checked = scene.good(&with_agent("prepareTimeoutSec: 60\nprepare: [{run: id}]"));
    assert_eq!(checked.rendered_warnings(), "");
    let text = with_agent("prepareTimeoutSec: 60\nprepare: [{run: id, timeoutSec: 61}]");
    assert!(scene.good(&text).rendered_warnings().contains("prepareTimeoutSec, 60, is shorter"));
}

#[test]
fn a_cloud_that_can_not_hold_what_is_kept_at_its_fullest_is_warned_about() {
    let scene = Scene::new();
    let warnings = |keys: &str| {
        let text = with_agent(keys).replace(
            "cloudConfigurations:",
            "cloudDefaults: {instanceCap: 3}\ncloudConfigurations:",
        );
        scene.good(&text).rendered_warnings()
    };
    let window = "schedule: [{cron: 0 8 * * *, durationMinutes: 60, idleMin: 4}]";
    assert_eq!(warnings("instanceMin: 3"), "");
    for keys in ["instanceMin: 4", "idleMin: 4", window] {
        assert!(warnings(keys).contains("`3` is less than its templates' minimums, 4"), "{keys}");
    }
}
