//! Every key: its type, its default, what a value does, what zero means.

use std::fmt::Debug;
use std::time::Duration;

use drover_model::placement::Term;
use drover_model::seed::SeedSpec;
use drover_model::spec::{CloudSpec, StepSpec, StepWork, UploadSpec, WindowSpec};
use proxmox_client::{Connection, Login, Tls};

use super::super::keys::{AGENT, CLOUD, Key, Kind, SERVICE, Table};
use super::super::{Checked, ServiceSpec};
use super::*;

/// The check refuses zero or blank.
const REFUSED: &str = "refused";

/// One key as it must behave: the name; the result without the key; a value and its result; the
/// result of zero or blank; and how the result is read.
type Row<T> =
    (&'static str, &'static str, (&'static str, &'static str), &'static str, fn(&T) -> String);

#[rustfmt::skip]
const CLOUD_ROWS: &[Row<Checked>] = &[
    ("name", "C", ("Lab", "Lab"), REFUSED, |c| cloud(c).name.clone()),
    ("apiUrl", r#"["https://localhost:8006"]"#, ("https://pve:8006/api2/json", r#"["https://pve:8006"]"#), REFUSED, endpoints),
    ("apiUrls", r#"["https://localhost:8006"]"#, ("[\"https://a:8006\", \"https://b:8006/\"]", r#"["https://a:8006", "https://b:8006"]"#), REFUSED, endpoints),
    ("credentialsId", "token", ("login", "password"), REFUSED, login),
    ("caFile", "System", ("ca.pem", "Bundle(1)"), REFUSED, tls),
    ("caPem", "System", ("PEM", "Bundle(1)"), REFUSED, tls),
    ("pinSha256", "System", ("[abababababababababababababababababababababababababababababababab]", "Pins(1)"), REFUSED, tls),
    ("ignoreSslErrors", "System", ("true", "Ignore"), "System", tls),
    ("connectTimeoutSec", "10s", ("5", "5s"), REFUSED, |c| text(&connection(c).connect_timeout)),
    ("callTimeoutSec", "60s", ("90", "90s"), REFUSED, |c| text(&connection(c).call_timeout)),
    ("instanceCap", "None", ("7", "Some(7)"), "None", |c| text(&cloud(c).cap)),
    ("operationTimeoutSec", "300s", ("9", "9s"), REFUSED, |c| text(&cloud(c).operation_timeout)),
    ("startVmId", "100", ("500", "500"), REFUSED, |c| cloud(c).vmid_floor.to_string()),
    ("endVmId", "1000000", ("599", "600"), REFUSED, |c| cloud(c).vmid_ceiling.to_string()),
    ("cleanupOrphanedAgents", "false", ("true", "true"), "false", |c| text(&cloud(c).cleanup_orphans)),
    ("orphanCleanupPeriodSeconds", "600s", ("30", "30s"), REFUSED, |c| text(&cloud(c).reconcile_period)),
    ("orphanCleanupGracePeriodSeconds", "300s", ("60", "60s"), "0ns", |c| text(&cloud(c).orphan_grace)),
    ("nodeGracePeriodSeconds", "300s", ("60", "60s"), "0ns", |c| text(&cloud(c).node_grace)),
    ("cloudInitIsoStorage", "local", ("nfs", "nfs"), REFUSED, |c| in_use(c).cloud_init.seed.as_ref().unwrap().storage.clone()),
    ("networkNames", "vmbr0 None", ("{lan: vmbr7.30}", "vmbr7 Some(30)"), "vmbr0 None", |c| format!("{} {:?}", in_use(c).nics[0].bridge, in_use(c).nics[0].vlan)),
    ("clonesPerStorage", "16", ("1", "1"), REFUSED, |c| text(&cloud(c).clones_per_storage)),
    ("operationsPerNode", "16", ("1", "1"), REFUSED, |c| text(&cloud(c).operations_per_node)),
    ("adaptLanes", "true", ("false", "false"), "false", |c| text(&cloud(c).adapt_lanes)),
    ("region", "{}", ("eu", r#"{"region:eu"}"#), "{}", |c| text(&in_use(c).labels)),
    ("zone", "{}", ("dc2", r#"{"zone:dc2"}"#), "{}", |c| text(&in_use(c).labels)),
    ("nodeLabels", "{}", ("{pve1: [ssd, gpu]}\nBESIDEnodeSelector: [gpu]", r#"{pve1: {"gpu"}}"#), "{}", |c| text(&in_use(c).placement.labels)),
    ("storageClasses", "[]", ("{fast: [nvme]}\nBESIDEstorageClass: fast", r#"["nvme"]"#), "[]", |c| text(&in_use(c).storages)),
    ("memoryOvercommitPercent", "100", ("150", "150"), REFUSED, |c| in_use(c).placement.headroom.overcommit_percent.to_string()),
    ("headroom", "0 0 0 0 0", ("{memoryMb: 1, memoryPercent: 2, cpuPercent: 3, diskGb: 4, diskPercent: 5}", "1 2 3 4 5"), "0 0 0 0 0", headroom),
];

#[rustfmt::skip]
const AGENT_ROWS: &[Row<TemplateSpec>] = &[
    ("name", "a", ("builder", "builder"), REFUSED, |s| s.name.clone()),
    ("cloudIds", "c", ("[c]", "c"), REFUSED, |s| s.id.cloud.to_string()),
    ("node", "None", ("pve1", "Some(pve1)"), "None", |s| text(&s.node)),
    ("nodes", "[]", ("[pve1, pve2]", "[pve1, pve2]"), "[]", |s| text(&s.nodes)),
    ("preferredNodes", "[]", ("[pve1, pve2]", "[pve1, pve2]"), "[]", |s| text(&s.placement.preferred)),
    ("placement", "Topsis", ("SPREAD", "Spread"), REFUSED, |s| text(&s.placement.strategy)),
    ("placementWeights", "60 40", ("{memory: 1}", "1 40"), "60 40", |s| format!("{} {}", s.placement.weights.memory, s.placement.weights.cpu)),
    ("nodeSelector", "{} false", ("[]", "{} false"), "{} false", |s| format!("{:?} {}", s.placement.selector, s.placement.anywhere)),
    ("affinity", "[]", ("[{key: vm.type, values: [database]}]", r#"["vm.type in [database]"]"#), "[]", |s| terms(&s.placement.affinity)),
    ("antiAffinity", "[]", ("[{key: big, operator: Exists}]", r#"["big"]"#), "[]", |s| terms(&s.placement.anti_affinity)),
    ("maxVmsPerNode", "None", ("10", "Some(10)"), "None", |s| text(&s.placement.max_guests)),
    ("minFreeMemoryMb", "0", ("4096", "4096"), "0", |s| text(&s.placement.min_free_mb)),
    ("templateVmId", "Id(VmId(9000))", ("9001", "Id(VmId(9001))"), REFUSED, |s| text(&s.sought())),
    ("templateName", "Id(VmId(9000))", ("debian-13", r#"Name("debian-13")"#), REFUSED, |s| text(&s.sought())),
    ("templateNamePattern", "Id(VmId(9000))", (r"debian-\d+", r#"Pattern("debian-\\d+")"#), REFUSED, |s| text(&s.sought())),
    ("templateTag", "Id(VmId(9000))", ("golden", r#"Tag("golden")"#), REFUSED, |s| text(&s.sought())),
    ("image", "Id(VmId(9000))", ("debian", r#"Image("debian")"#), REFUSED, |s| text(&s.sought())),
    ("templateSelectionMode", "Id(VmId(9000))", ("TAG\ntemplateTag: golden", r#"Tag("golden")"#), REFUSED, |s| text(&s.sought())),
    ("labelString", "{}", ("linux  docker", r#"{"docker", "linux"}"#), "{}", |s| text(&s.labels)),
    ("numExecutors", "1", ("3", "3"), REFUSED, |s| text(&s.executors)),
    ("cloneStrategy", "Full", ("LINKED", "Linked"), REFUSED, |s| text(&s.clone)),
    ("targetStorage", "None", ("ceph", r#"Some("ceph")"#), "None", |s| text(&s.target_storage)),
    ("targetStorages", "[]", ("[nfs, ceph]", r#"["nfs", "ceph"]"#), "[]", |s| text(&s.storages)),
    ("storageClass", "None", ("thin", "Some(Thin)"), "None", |s| text(&s.placement.thickness)),
    ("fallbackTemplates", "[]", ("[]", "[]"), "[]", |s| text(&s.fallbacks)),
    ("targetPool", "None", ("ci", r#"Some("ci")"#), "None", |s| text(&s.target_pool)),
    ("size", "None None None", ("\"cpu:4,memory:8192,disk:50\"", "Some(4) Some(8192) Some(50)"), "None None None", |s| format!("{:?} {:?} {:?}", s.cores, s.memory_mb, s.disk_gb)),
    ("cores", "None", ("8", "Some(8)"), "None", |s| text(&s.cores)),
    ("memoryMb", "None", ("4096", "Some(4096)"), "None", |s| text(&s.memory_mb)),
    ("diskSizeGb", "None", ("40", "Some(40)"), "None", |s| text(&s.disk_gb)),
    ("bridge", "None", ("vmbr1", r#"Some("vmbr1")"#), "None", |s| text(&s.network.bridge)),
    ("vlan", "None", ("30", "Some(30)"), "None", |s| text(&s.network.vlan)),
    ("networks", "[]", ("[{bridge: vmbr1.7, ip: none}, {name: dmz}]", r#"["vmbr1 Some(7) None", "vmbr1 None Some(\"ip=dhcp\")"]"#), "[]", nics),
    ("onBoot", "false", ("true", "true"), "false", |s| text(&s.on_boot)),
    ("osType", "Linux", ("WINDOWS\nremoteFs: 'C:\\ci'", "Windows(Auto)"), REFUSED, |s| text(&s.os)),
    ("windowsLoginShell", "Linux", ("CMD\nosType: WINDOWS\nremoteFs: 'C:\\ci'", "Windows(Cmd)"), REFUSED, |s| text(&s.os)),
    ("remoteFs", "/home/ci/agent", ("/srv/ci", "/srv/ci"), "/home/ci/agent", |s| s.remote_fs.clone()),
    ("mode", "Exclusive", ("NORMAL", "Normal"), REFUSED, |s| text(&s.mode)),
    ("credentialsId", "ssh ci", ("other", "other root"), REFUSED, |s| format!("{} {}", s.ssh.credentials_id, s.ssh.user)),
    ("javaDistribution", "None", ("CORRETTO", "Corretto"), REFUSED, |s| text(&s.java.distribution)),
    ("javaMajorVersion", "21", ("25", "25"), REFUSED, |s| text(&s.java.major)),
    ("javaPath", "java", ("/opt/java", "/opt/java"), "java", |s| s.java.path.clone()),
    ("jvmOptions", "", ("-Xmx512m", "-Xmx512m"), "", |s| s.java.options.clone()),
    ("correttoRepositoryUrl", "None", ("https://mirror/deb", r#"Some("https://mirror/deb")"#), "None", |s| text(&s.java.repository)),
    ("correttoKeyUrl", "None", ("https://mirror/key", r#"Some("https://mirror/key")"#), "None", |s| text(&s.java.repository_key)),
    ("idleTerminationMinutes", "Some(1800s)", ("5", "Some(300s)"), "None", |s| text(&s.idle)),
    ("instanceCap", "None", ("6", "Some(6)"), "None", |s| text(&s.cap)),
    ("instanceMin", "0", ("2", "2"), "0", |s| text(&s.minimum)),
    ("idleMin", "0", ("2", "2"), "0", |s| text(&s.idle_minimum)),
    ("schedule", "[]", ("[{cron: \"0 8 * * *\", durationMinutes: 60, idleMin: 2}]", "[\"0 8 * * * UTC 3600s 0 2\"]"), "[]", schedule),
    ("maxTotalUses", "None", ("50", "Some(50)"), "None", |s| text(&s.max_uses)),
    ("singleUse", "None", ("true", "Some(1)"), "None", |s| text(&s.max_uses)),
    ("namePrefix", "", ("ci", "ci"), "", |s| s.name_prefix.clone()),
    ("startupWaitSeconds", "60s", ("120", "120s"), REFUSED, |s| text(&s.limits.startup)),
    ("ciUser", "None", ("ci", r#"Some("ci")"#), "None", |s| text(&s.cloud_init.user)),
    ("ipConfig", r#"Some("ip=dhcp")"#, ("ip6=auto", r#"Some("ip6=auto")"#), "None", |s| text(&s.cloud_init.ip_config)),
    ("addressPool", "GuestAgent", ("lab", "Pools([lab])"), "GuestAgent", |s| text(&s.address)),
    ("addressPool6", "GuestAgent", ("six\naddressPool: lab", "Pools([lab, six])"), "GuestAgent", |s| text(&s.address)),
    ("addressFrom", "GuestAgent", ("call", "Call"), REFUSED, |s| text(&s.address)),
    ("ipConfigs", "[]", ("[ip=dhcp]", r#"["ip=dhcp"]"#), "[]", |s| text(&s.cloud_init.ip_configs)),
    ("ciUpgrade", "false", ("true", "true"), "false", |s| text(&s.cloud_init.upgrade)),
    ("nameserver", "None", ("1.1.1.1", r#"Some("1.1.1.1")"#), "None", |s| text(&s.cloud_init.nameserver)),
    ("searchDomain", "None", ("lan", r#"Some("lan")"#), "None", |s| text(&s.cloud_init.search_domain)),
    ("userData", "None", ("\"#!/bin/sh\"", r##"Some("#!/bin/sh")"##), REFUSED, |s| of_seed(s, |seed| seed.user_data.clone())),
    ("userDataFile", "None", ("boot.sh", r##"Some("#!/bin/sh\nid\n")"##), REFUSED, |s| of_seed(s, |seed| seed.user_data.clone())),
    ("metaData", "None", ("\"{a: b}\"", r#"Some("{a: b}")"#), REFUSED, |s| of_seed(s, |seed| seed.meta_data.clone())),
    ("metaDataFile", "None", ("data.yaml", r#"Some("{c: d}\n")"#), REFUSED, |s| of_seed(s, |seed| seed.meta_data.clone())),
    ("networkConfig", "None", ("\"{version: 2}\"", r#"Some("{version: 2}")"#), REFUSED, |s| of_seed(s, |seed| seed.network_config.clone())),
    ("networkConfigFile", "None", ("data.yaml", r#"Some("{c: d}\n")"#), REFUSED, |s| of_seed(s, |seed| seed.network_config.clone())),
    ("userDataValues", "None", ("{x: y}\nuserData: \"#!${x}\"", r#"Some({"x": "y"})"#), "None", |s| of_seed(s, |seed| Some(seed.values.clone()))),
    ("cloudInitIsoStorage", "None", ("nfs\nuserData: \"#!\"", r#"Some("nfs")"#), "None", |s| of_seed(s, |seed| Some(seed.storage.clone()))),
    ("cloudInitCustom", "None", ("{user: \"local:snippets/a.yaml\"}", r#"Some("user=local:snippets/a.yaml")"#), REFUSED, |s| text(&s.cloud_init.custom)),
    ("sshPort", "22", ("2222", "2222"), REFUSED, |s| text(&s.ssh.port)),
    ("guestNetworks", "[]", ("[127.77.0.0/16]", r#"["127.77.0.0/16"]"#), "[]", |s| text(&s.guest_networks)),
    ("tags", "{}", ("[ci]", r#"{"ci"}"#), "{}", |s| text(&s.tags)),
    ("description", "", ("ask Ann", "ask Ann"), "", |s| s.description.clone()),
    ("prepare", "[]", ("[{run: id}]", r#"["step 1 (run)"]"#), "[]", |s| text(&s.steps.iter().map(|step| step.name.as_str()).collect::<Vec<_>>())),
    ("readyCommand", "None", ("docker info", r#"Some("docker info")"#), "None", |s| text(&s.ready_command)),
    ("reset", "None", ("MEMORY", "Some(Memory)"), REFUSED, |s| text(&s.reset)),
    ("resetTimeoutSec", "300s", ("5", "5s"), REFUSED, |s| text(&s.limits.reset)),
    ("closeSshBeforeDelete", "false", ("true", "true"), "false", |s| text(&s.close_ssh)),
    ("queueTimeoutSec", "600s", ("5", "5s"), REFUSED, |s| text(&s.limits.queue)),
    ("cloneTimeoutSec", "1800s", ("5", "5s"), REFUSED, |s| text(&s.limits.clone)),
    ("prepareTimeoutSec", "600s", ("5", "5s"), REFUSED, |s| text(&s.limits.prepare)),
    ("shutdownTimeoutSec", "60s", ("5", "5s"), "0ns", |s| text(&s.limits.shutdown)),
    ("retireTimeoutSec", "900s", ("5", "5s"), REFUSED, |s| text(&s.limits.retire)),
    ("maxLifetimeMinutes", "None", ("60", "Some(3600s)"), "None", |s| text(&s.limits.lifetime)),
    ("breakerThreshold", "3", ("5", "5"), REFUSED, |s| text(&s.breaker.threshold)),
    ("breakerCooldownSec", "120s", ("5", "5s"), REFUSED, |s| text(&s.breaker.cooldown)),
    ("breakerCooldownCapSec", "1800s", ("500", "500s"), REFUSED, |s| text(&s.breaker.cooldown_cap)),
];

#[rustfmt::skip]
const SERVICE_ROWS: &[Row<ServiceSpec>] = &[
    ("stateDirectory", "/var/lib/drover", ("/srv/drover", "/srv/drover"), "/var/lib/drover", |s| s.state_directory.display().to_string()),
    ("socket", "/run/drover/drover.sock", ("/tmp/d.sock", "/tmp/d.sock"), "/run/drover/drover.sock", |s| s.socket.display().to_string()),
    ("socketMode", "None", ("0640", "Some(416)"), REFUSED, |s| text(&s.socket_mode)),
    ("allowedUids", "{}", ("[1000]", "{1000}"), "{}", |s| text(&s.allowed_uids)),
    ("allowedGids", "{}", ("[100]", "{100}"), "{}", |s| text(&s.allowed_gids)),
    ("peers", "[]", ("[{uid: 7, group: build}]", "[SocketPeer { peer: Uid(7), role: Operator, group: Some(\"build\") }]"), "[]", |s| text(&s.peers)),
    ("listen", "None", ("127.0.0.1:8080", "Some(127.0.0.1:8080)"), REFUSED, |s| text(&s.listen)),
    ("listenPlain", "[]", ("true", "[]"), "[]", tokens),
    ("tokens", "[]", ("[{name: ann, role: admin, secretFile: token}]", "[\"ann Admin\"]"), "[]", tokens),
    ("leases", "10000 2000 86400s []", ("{maxWaiting: 9, maxWaitSeconds: 60, quotas: [{group: build, maxLeases: 4, maxCores: 8}]}", "9 2000 60s [Quota { whose: Group(\"build\"), leases: Some(4), waiting: None, cores: Some(8), memory_mb: None, disk_gb: None }]"), "10000 2000 86400s []", leases),
    ("onStop", "Keep", ("retireAll", "RetireAll"), REFUSED, |s| text(&s.on_stop)),
    ("stopTimeoutSec", "90s", ("5", "5s"), REFUSED, |s| text(&s.stop_timeout)),
    ("orphanCleanupPeriodSeconds", "None", ("60", "Some(60s)"), "None", |s| text(&s.reconcile_period)),
    ("logLevel", "info", ("debug", "debug"), "info", |s| s.log_level.clone()),
];

fn text(value: &impl Debug) -> String {
    format!("{value:?}")
}

fn in_use(checked: &Checked) -> &TemplateSpec {
    template(checked, "a")
}

fn cloud(checked: &Checked) -> &CloudSpec {
    &checked.herd.clouds[&CloudId::new("c")]
}

fn connection(checked: &Checked) -> &Connection {
    &checked.connections[&CloudId::new("c")]
}

fn endpoints(checked: &Checked) -> String {
    text(&connection(checked).endpoints.iter().map(ToString::to_string).collect::<Vec<_>>())
}

fn login(checked: &Checked) -> String {
    match &connection(checked).login {
        Login::Token { .. } => "token".to_owned(),
        Login::Password { .. } => "password".to_owned(),
    }
}

fn tls(checked: &Checked) -> String {
    match &connection(checked).tls {
        Tls::Bundle(texts) => format!("Bundle({})", texts.len()),
        Tls::Pins(pins) => format!("Pins({})", pins.len()),
        tls @ (Tls::System | Tls::Ignore) => text(tls),
    }
}

fn headroom(checked: &Checked) -> String {
    let free = in_use(checked).placement.headroom;
    let (memory, cpu, disk) = (free.memory_percent, free.cpu_percent, free.disk_percent);
    format!("{} {memory} {cpu} {} {disk}", free.memory_mb, free.disk_gb)
}

fn terms(terms: &[Term]) -> String {
    text(&terms.iter().map(ToString::to_string).collect::<Vec<_>>())
}

fn of_seed<T: Debug>(spec: &TemplateSpec, of: impl Fn(&SeedSpec) -> Option<T>) -> String {
    text(&spec.cloud_init.seed.as_ref().and_then(of))
}

fn nics(spec: &TemplateSpec) -> String {
    let nics = spec.nics.iter();
    let nics = nics.map(|nic| format!("{} {:?} {:?}", nic.bridge, nic.vlan, nic.ip_config));
    text(&nics.collect::<Vec<_>>())
}

fn schedule(spec: &TemplateSpec) -> String {
    let windows = spec.schedule.iter().map(|window| {
        let WindowSpec { cron, duration, time_zone, minimum, idle_minimum } = window;
        format!("{cron} {time_zone} {duration:?} {minimum} {idle_minimum}")
    });
    text(&windows.collect::<Vec<_>>())
}

/// Also of `listenPlain`, which only lifts a fault, and has a test of its own.
fn tokens(spec: &ServiceSpec) -> String {
    let named = spec.tokens.iter().map(|token| format!("{} {:?}", token.name, token.role));
    text(&named.collect::<Vec<_>>())
}

fn leases(spec: &ServiceSpec) -> String {
    let limits = &spec.leases;
    format!("{} {} {:?} {:?}", limits.waiting, limits.waiting_each, limits.wait, limits.quotas)
}

/// A cloud with these lines and an agent on it; the part after `BESIDE` is the agent's.
fn with_cloud_and_agent(lines: &str) -> String {
    let (lines, beside) = lines.split_once("\nBESIDE").unwrap_or((lines, "{}"));
    let agent = format!(
        "agentConfigurations:\n  a:\n    cloudIds: [c]\n    templateVmId: 9000\n    \
         credentialsId: ssh\n    userData: '#!'\n    networks: [{{name: lan}}]\n    {}\n",
        if beside == "{}" { "" } else { beside }
    );
    with_cloud(lines) + &agent
}

/// An agent with these lines, beside everything that its keys may name or need.
fn with_all_beside(lines: &str) -> String {
    format!(
        "{}addressPools:\n  lab: {{ranges: [10.0.0.10], prefix: 24}}\n  \
         six: {{ranges: [\"fd00::9\"], prefix: 64}}\nservice: {{listen: \"127.0.0.1:80\"}}\n\
         images:\n  debian: {{cloudIds: [c], storage: local, credentialsId: ssh}}\n",
        with_agent(lines)
    )
}

fn with_service(lines: &str) -> String {
    format!("{}service:\n  {lines}\n", with_cloud("{}"))
}

/// What a key wants, a value of another type with its name, and zero or blank.
fn of_kind(key: &Key) -> (String, [&'static str; 2], &'static str) {
    let mapping = ["{}", "a mapping"];
    let number = ["5", "a whole number"];
    let (wanted, wrong, zero) = match key.kind {
        Kind::Whole(..) | Kind::ZeroOr(..) => ("a whole number", mapping, "0"),
        Kind::Memory(..) => ("an amount of memory", mapping, "0"),
        Kind::Flag => ("true or false", mapping, "false"),
        Kind::Texts | Kind::Wholes => ("a list", mapping, "[]"),
        Kind::Mappings(_) => ("a list of mappings", mapping, "[]"),
        Kind::Mapping(_) => ("a mapping", number, "{}"),
        Kind::Names => ("a mapping of names to texts", number, "{}"),
        Kind::Lists => ("a mapping of lists", number, "{}"),
        Kind::Text => ("text", mapping, "\"\""),
        Kind::Choice(words) => return (format!("one of {}", words.join(", ")), mapping, "\"\""),
    };
    (wanted.to_owned(), wrong, zero)
}

/// Holds each row against a section: `around` puts a line into it, `part` is what the rows read.
fn holds<T>(
    rows: &[Row<T>],
    table: &Table,
    around: impl Fn(&str) -> String,
    part: impl Fn(&Checked) -> &T,
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
    for (name, default, (value, outcome), zero, show) in rows {
        assert_eq!(show(part(&plain)), *default, "default of {name}");
        let value = value.replace("PEM", &pem);
        let given = scene.good(&around(&format!("{name}: {value}")));
        assert_eq!(show(part(&given)), *outcome, "{name}: {value}");
        let (wanted, [other, found], nought) = of_kind(table.find(name).unwrap());
        let wrong = scene.faults(&around(&format!("{name}: {other}")));
        assert!(wrong.contains(&format!("expected {wanted}, found {found}")), "{wrong}");
        match scene.check(&around(&format!("{name}: {nought}"))) {
            Ok(checked) => assert_eq!(show(part(&checked)), *zero, "{name}: {nought}"),
            Err(error) => assert_eq!(*zero, REFUSED, "{}", error.render()),
        }
    }
    let known: Vec<_> = table.iter().map(|key| key.name).collect();
    let tested: Vec<_> = rows.iter().map(|row| row.0).collect();
    assert_eq!(known, tested, "every key has its row");
}

// Invariant: each key has its type, its default and its meaning of zero, and nothing else.

#[test]
fn every_key_of_a_cloud_means_what_it_says() {
    holds(CLOUD_ROWS, &CLOUD, with_cloud_and_agent, |checked| checked);
}

#[test]
fn every_key_of_an_agent_means_what_it_says() {
    holds(AGENT_ROWS, &AGENT, with_all_beside, in_use);
}

#[test]
fn every_key_of_the_service_means_what_it_says() {
    holds(SERVICE_ROWS, &SERVICE, with_service, |checked| &checked.service);
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
    assert_eq!(in_use(&checked).cores, None);
    assert_eq!(in_use(&checked).idle, Some(Duration::from_secs(1800)));
}

#[test]
fn a_plain_number_is_text_where_text_is_wanted_and_yes_is_true() {
    let scene = Scene::new();
    let checked = scene.good(&with_agent("targetPool: 10"));
    assert_eq!(in_use(&checked).target_pool.as_deref(), Some("10"));
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
    let spec = template(&checked, "a");
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
    let written = serde_json::to_string(spec).unwrap();
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
fn a_cloud_that_cannot_hold_the_minimums_of_its_templates_is_warned_about() {
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
        assert!(
            warnings(keys).contains("`3` is less than the minimums of its templates, 4"),
            "{keys}"
        );
    }
}
