//! What `drover doctor` says of a cluster: that all is well, and each thing that is not, with what
//! repairs it.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use drover_admin::doctor::{
    Certificate, Clients, CloudReport, FixedCertificates, Report, check_cloud,
};
use drover_ci::{Remedy, Severity};
use drover_hypervisor::Client;
use drover_model::id::CloudId;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use proxmox_client::transport::{Dialer, Method, Reply, Request, Transport, TransportError};
use proxmox_client::{Connection, Endpoint, PveError};
use pve_sim::api::access::roles;
use pve_sim::spec::{AclSpec, ClusterSpec, GuestSpec, PveVersion, TokenSpec, UserSpec};
use pve_sim::world::EPOCH;

use super::world::World;
use super::world::setup::{SECRET, Setup};

const DAY: i64 = 86_400;

/// A cluster with a user of drover's own that may do everything, and a pool.
fn setup(version: PveVersion, keys: &str) -> Setup {
    let mut setup = Setup::linux(&format!("node: pve1, targetPool: ci, {keys}"));
    setup.version = version;
    setup.token = "ci@pve!drover";
    let token =
        TokenSpec { name: "drover".into(), secret: SECRET.into(), privsep: false, expire: 0 };
    let (userid, password) = ("ci@pve".to_owned(), None);
    setup.cluster.users = vec![UserSpec {
        userid,
        password,
        enabled: true,
        second_factor: false,
        tokens: vec![token],
    }];
    let (path, who, role) = ("/".to_owned(), "ci@pve".to_owned(), "Administrator".to_owned());
    setup.cluster.acl = vec![AclSpec { path, who, role, propagate: true }];
    setup
}

fn certificate(days: i64) -> FixedCertificates {
    let until = i64::try_from(EPOCH).unwrap() + days * DAY;
    FixedCertificates(Mutex::new(Some(Certificate { sha256: "AA:BB".into(), until: Some(until) })))
}

async fn examined(world: &World, days: i64, ahead: i64) -> CloudReport {
    let checked = world.setup.checked();
    let rack = CloudId::new("rack");
    let clock = move || EPOCH.checked_add_signed(-ahead).unwrap();
    let certificates = certificate(days);
    let dialer = world.dialer();
    let clients =
        Clients { dialer: &dialer, certificates: &certificates, clock: &clock, config: None };
    check_cloud(clients, &checked.herd, &rack, &checked.connections[&rack]).await
}

async fn of(setup: Setup) -> CloudReport {
    examined(&World::new(setup), 100, 0).await
}

/// What is not well, as people see it.
fn problems(report: CloudReport) -> String {
    let lines = report.lines.into_iter().filter(|line| line.severity != Severity::Ok).collect();
    let text = Report { clouds: vec![CloudReport { lines, ..report }], ..Report::default() }.text();
    let lines: Vec<&str> = text.lines().collect();
    lines[1..lines.len() - 1].join("\n")
}

// Invariant: a storage that does not take what a build brings there is named before the build.

#[tokio::test(start_paused = true)]
async fn an_image_whose_storage_takes_no_disk_images_is_named_with_what_repairs_it() {
    let image = |storage: &str| {
        let mut setup = setup(PveVersion::V9_2, "");
        let sum = "ab".repeat(32);
        setup.sections = format!(
            "images:\n  debian: {{cloudIds: [rack], credentialsId: ssh, storage: local-lvm, \
             importStorage: {storage}, nodes: [pve1], targetPool: ci, \
             source: {{url: \"https://cloud.example/debian.qcow2\", checksum: {sum}}}}}\n"
        );
        setup
    };
    let lines = problems(of(image("local-lvm")).await);
    assert!(lines.contains("image debian on pve1: storage local-lvm"), "{lines}");
    assert!(lines.contains("takes no disk images to import"), "{lines}");
    let fine = of(image("shared")).await;
    let about = |line: &&drover_admin::doctor::Line| line.about.contains("storage shared");
    let line = fine.lines.iter().find(about).unwrap();
    assert_eq!((line.severity, line.text.as_str()), (Severity::Ok, "takes import"));
}

// Invariant: where all is well nothing else is said, and it is said of everything.

#[tokio::test(start_paused = true)]
async fn a_cluster_as_it_should_be_is_well() {
    let report = |version| async move {
        let report = of(setup(version, "reset: DISK, bridge: vmbr0")).await;
        let report = Report { clouds: vec![report], ..Report::default() };
        assert!(report.is_well());
        report.text()
    };
    let eight = report(PveVersion::V8_4).await;
    insta::assert_snapshot!(eight);
    let nine = report(PveVersion::V9_2).await;
    // The same, with one privilege more: on 8 one is for two things.
    insta::assert_snapshot!(nine);
}

// Invariant: each thing that is not as it should be is reported with what repairs it.

/// A change of the cluster or of the configuration before anything is looked at.
type Change = fn(&mut Setup);

fn storage<'a>(cluster: &'a mut ClusterSpec, name: &str) -> &'a mut pve_sim::spec::StorageSpec {
    cluster.storages.iter_mut().find(|one| one.name == name).unwrap()
}

fn template(cluster: &mut ClusterSpec) -> &mut GuestSpec {
    &mut cluster.guests[0]
}

const CHANGES: [(&str, &str, Change); 34] = [
    (
        "a template by a name that nothing has",
        "templateVmId: null, templateName: debian-99",
        |_| {},
    ),
    ("a VMID that nothing has", "templateVmId: 8999", |_| {}),
    ("a guest that is no template", "", |setup| template(&mut setup.cluster).template = false),
    ("no cloud-init drive", "", |setup| {
        template(&mut setup.cluster).config.remove("ide2");
    }),
    ("no disk", "", |setup| {
        template(&mut setup.cluster).config.remove("scsi0");
    }),
    ("agent off", "", |setup| {
        template(&mut setup.cluster).config.remove("agent");
    }),
    ("an ISA port", "", |setup| {
        template(&mut setup.cluster).config.insert("agent".into(), "1,type=isa".into());
    }),
    ("no vmgenid", "reset: MEMORY", |setup| {
        template(&mut setup.cluster).config.insert("vmgenid".into(), "0".into());
    }),
    ("OVMF and no EFI disk", "hardware: {bios: OVMF}", |_| {}),
    ("affinity with a token", "hardware: {affinity: \"0-1\"}", |_| {}),
    ("a storage that is nowhere", "cloneStrategy: FULL, targetStorage: ceph", |_| {}),
    ("a storage without images", "cloneStrategy: FULL, targetStorage: local", |_| {}),
    ("a storage that makes no linked clones", "", |setup| {
        storage(&mut setup.cluster, "local-lvm").kind = "lvm".into();
    }),
    ("a storage that is disabled", "", |setup| {
        storage(&mut setup.cluster, "local-lvm").disabled = true;
    }),
    (
        "one storage of several that is nowhere",
        "cloneStrategy: FULL, targetStorages: [local-lvm, ceph]",
        |_| {},
    ),
    (
        "several storages that are nowhere",
        "cloneStrategy: FULL, targetStorages: [ceph, nvme]",
        |_| {},
    ),
    ("a class that no storage is of", "cloneStrategy: FULL, storageClass: thick", |_| {}),
    ("a storage without ISO images", "userData: \"#cloud-config\"", |setup| {
        storage(&mut setup.cluster, "local").content.retain(|content| content != "iso");
    }),
    (
        "a storage that never has ISO images",
        "userData: \"#cloud-config\", cloudInitIsoStorage: local-lvm",
        |_| {},
    ),
    ("a snippet that is nowhere", "cloudInitCustom: {user: \"local:snippets/ci.yaml\"}", |_| {}),
    ("more memory than there is", "nodes: [pve1, pve2], node: null, memoryMb: 70000", |_| {}),
    (
        "sizes that no node has",
        "nodes: [pve1, pve2], node: null, sizeLabels: {memory: {max: 1Ti}, cpu: {max: 4}}",
        |_| {},
    ),
    ("a bridge that is nowhere", "bridge: vmbr7", |_| {}),
    ("a card's bridge that is nowhere", "networks: [{bridge: vmbr0}, {bridge: vmbr8.7}]", |_| {}),
    ("a pool that is nowhere", "targetPool: nope", |_| {}),
    ("a token that expires", "", |setup| {
        setup.cluster.users[0].tokens[0].expire = EPOCH + 3 * 86_400;
    }),
    ("root", "", |setup| setup.token = "root@pam!drover"),
    ("root's token with privileges of its own", "", |setup| {
        setup.token = "root@pam!drover";
        setup.cluster.root_tokens[0].privsep = true;
    }),
    ("a node that is nowhere", "node: null, nodes: [pve1, pve9]", |_| {}),
    ("no other node", "node: pve9", |_| {}),
    ("a storage of other nodes", "cloneStrategy: FULL, targetStorage: nvme", |setup| {
        let mut nvme = storage(&mut setup.cluster, "local-lvm").clone();
        (nvme.name, nvme.nodes) = ("nvme".into(), vec!["pve2".into(), "pve3".into()]);
        setup.cluster.storages.push(nvme);
    }),
    ("no template at all", "templateVmId: null, templateName: debian-99", |setup| {
        template(&mut setup.cluster).template = false;
    }),
    ("an old release", "", |setup| setup.version = PveVersion::V7_4),
    ("a wrong token", "", |setup| setup.cluster.users[0].tokens[0].secret = "other".into()),
];

#[tokio::test(start_paused = true)]
async fn each_fault_of_cluster_or_configuration_is_reported_with_what_repairs_it() {
    let mut all = String::new();
    for (name, keys, change) in CHANGES {
        let mut setup = setup(PveVersion::V8_4, "");
        // Keys of the template win over those that it has of the setup.
        setup.templates = vec![("linux", merged(keys))];
        change(&mut setup);
        let _ = writeln!(all, "{name}:\n{}", problems(of(setup).await));
    }
    insta::assert_snapshot!(all);
}

/// The usual keys with these over them.
fn merged(keys: &str) -> String {
    let usual = ["node: pve1", "targetPool: ci"];
    let name = |pair: &str| pair.split(':').next().unwrap_or_default().trim().to_owned();
    let given: Vec<String> = keys.split(", ").map(name).collect();
    let kept = usual.into_iter().filter(|pair| !given.contains(&name(pair)));
    kept.chain([keys]).collect::<Vec<_>>().join(", ")
}

#[tokio::test(start_paused = true)]
async fn each_fault_of_nodes_ids_and_certificates_is_reported_with_what_repairs_it() {
    let mut all = String::new();
    let mut report = |name: &str, report| {
        let _ = writeln!(all, "{name}:\n{}", problems(report));
    };
    let fresh = || World::new(setup(PveVersion::V8_4, ""));
    report("a certificate that ends", examined(&fresh(), 10, 0).await);
    report("a certificate that has ended", examined(&fresh(), -2, 0).await);
    report("a clock that is ahead", examined(&fresh(), 100, 20).await);
    report("a clock that is behind", examined(&fresh(), 100, -400).await);
    let world = fresh();
    world.side.node_down("pve3").await;
    report("a node that is down", examined(&world, 100, 0).await);
    let world = fresh();
    world.side.set_partitioned("pve1", true);
    report("a node without quorum", examined(&world, 100, 0).await);
    let world = fresh();
    world.side.set_storage_reachable("local-lvm", false);
    report("a storage that is out of reach", examined(&world, 100, 0).await);
    let world = fresh();
    world.side.add_volume("pve1", "local-lvm:vm-777-disk-0", 980 << 30);
    report("a storage that is nearly full", examined(&world, 100, 0).await);
    let unverified = setup(PveVersion::V8_4, "").rack("ignoreSslErrors: true");
    report("certificates that nobody verifies", of(unverified).await);
    let narrow =
        setup(PveVersion::V8_4, "").rack("startVmId: 10000, endVmId: 10002, instanceCap: 2");
    report("few ids", of(narrow).await);
    let none = setup(PveVersion::V8_4, "").rack("startVmId: 9000, endVmId: 9002");
    report("no ids", of(none).await);
    insta::assert_snapshot!(all);
}

// Invariant: a VNet counts once it is in force on the node.

#[tokio::test(start_paused = true)]
async fn a_vnet_that_is_not_applied_is_reported_and_one_that_is_counts() {
    let world = World::new(setup(PveVersion::V9_2, "bridge: lab1"));
    let checked = world.setup.checked();
    let rack = CloudId::new("rack");
    let client = Client::new(rack.clone(), &checked.connections[&rack], &world.dialer()).unwrap();
    let send = async |method, path: &str, pairs: &[(&str, &str)]| {
        let pairs = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        client.write::<serde_json::Value>(method, path, pairs.collect()).await.unwrap()
    };
    let reported = problems(examined(&world, 100, 0).await);
    assert!(
        reported.contains("bridge lab1 on pve1: is neither a bridge nor a VNet there"),
        "{reported}"
    );

    let zone = [("zone", "lab"), ("type", "simple"), ("nodes", "pve1,pve2")];
    send(Method::Post, "/cluster/sdn/zones", &zone).await;
    send(Method::Post, "/cluster/sdn/vnets", &[("vnet", "lab1"), ("zone", "lab")]).await;
    insta::assert_snapshot!(problems(examined(&world, 100, 0).await));

    send(Method::Put, "/cluster/sdn", &[]).await;
    world.pass(Duration::from_secs(60)).await;
    let report = examined(&world, 100, 0).await;
    let line = report.lines.iter().find(|line| line.about == "bridge lab1 on pve1").unwrap();
    assert_eq!((line.severity, line.text.as_str()), (Severity::Ok, "a VNet of zone lab"));

    // The zone leaves the node out.
    send(Method::Put, "/cluster/sdn/zones/lab", &[("nodes", "pve2")]).await;
    send(Method::Put, "/cluster/sdn", &[]).await;
    world.pass(Duration::from_secs(60)).await;
    let reported = problems(examined(&world, 100, 0).await);
    assert!(reported.contains("a VNet of zone lab that is not active there"), "{reported}");
}

// Invariant: what may not be seen is not said to be missing, and what is there is found.

#[tokio::test(start_paused = true)]
async fn snippets_are_kept_apart_by_what_may_be_seen() {
    const SNIPPET: &str = "local:snippets/ci.yaml";
    let keys = "cloudInitCustom: {user: \"local:snippets/ci.yaml\"}";
    let mut blind = setup(PveVersion::V8_4, keys);
    let all = roles::all(PveVersion::V8_4).into_iter();
    let all = all.filter(|name| name != "Datastore.Allocate").collect();
    blind.cluster.roles.insert("Blind".into(), all);
    blind.cluster.acl[0].role = "Blind".into();
    let world = World::new(blind);
    world.side.add_volume("pve1", SNIPPET, 100);
    insta::assert_snapshot!(problems(examined(&world, 100, 0).await));

    let world = World::new(setup(PveVersion::V8_4, keys));
    world.side.add_volume("pve1", SNIPPET, 100);
    assert_eq!(problems(examined(&world, 100, 0).await), "");
}

// Invariant: a node that is down hides what is on it alone, and all that is up is looked at.

#[tokio::test(start_paused = true)]
async fn a_node_that_is_down_hides_its_own_template_alone() {
    let mut each = setup(PveVersion::V8_4, "");
    let keys = "node: null, nodes: [\"*\"], templateVmId: null, templateName: debian-12";
    each.templates = vec![("linux", merged(keys))];
    let world = World::new(each);
    world.side.node_down("pve3").await;
    let report = examined(&world, 100, 0).await;
    insta::assert_snapshot!(Report { clouds: vec![report], ..Report::default() }.text());

    let world = World::new(setup(PveVersion::V8_4, ""));
    world.side.node_down("pve1").await;
    let reported = problems(examined(&world, 100, 0).await);
    assert!(
        reported.contains("fail  template linux (9000): cannot be read: pve1 is offline"),
        "{reported}"
    );
}

// Invariant: a node that no agent can ever be made on is reported, with the reason that `why` gives.

#[tokio::test(start_paused = true)]
async fn nodes_that_a_template_cannot_be_used_on_are_reported() {
    let reported = async |keys: &str| {
        let mut setup = setup(PveVersion::V8_4, "");
        setup.templates = vec![("linux", merged(keys))];
        problems(of(setup).await)
    };
    let anywhere = reported("node: null, nodes: [\"*\"]").await;
    let elsewhere = reported("node: pve2").await;
    // What is meant so is no fault.
    let chosen = "node: null, nodes: [\"*\"], nodeSelector: [ssd]";
    let mut labelled = setup(PveVersion::V8_4, "").rack("nodeLabels: {pve1: [ssd]}");
    labelled.templates = vec![("linux", merged(chosen))];
    assert_eq!(problems(of(labelled).await), "");
    insta::assert_snapshot!(format!("anywhere:\n{anywhere}\nelsewhere:\n{elsewhere}"));
}

// Invariant: a refused login is reported with what enables its user, then with what renews its secret.

#[tokio::test(start_paused = true)]
async fn a_login_that_is_refused_is_reported_with_what_enables_and_what_renews_it() {
    let mut disabled = setup(PveVersion::V8_4, "");
    disabled.cluster.users[0].enabled = false;
    let report = of(disabled).await;
    let first = &report.lines[0];
    assert_eq!(
        (first.severity, first.about.as_str()),
        (Severity::Fail, "endpoint https://pve1:8006")
    );
    assert!(first.text.contains("refused the login `ci@pve!drover`"), "{}", first.text);
    let wanted = [
        Remedy::on_any_node("pveum user list --full | grep -F ci@pve"),
        Remedy::on_any_node("pveum user modify ci@pve --enable 1"),
        Remedy::here("drover setup rights --cloud rack --renew --user root@pam"),
    ];
    assert_eq!(first.remedies, wanted);
}

// Invariant: a preferred node that is not there keeps nobody from anything, so it is a warning.

#[tokio::test(start_paused = true)]
async fn a_preferred_node_that_is_not_there_is_warned_of_and_the_rest_is_well() {
    let mut prefers = setup(PveVersion::V8_4, "");
    prefers.templates = vec![("linux", merged("node: null, preferredNodes: [pve2, pve9]"))];
    insta::assert_snapshot!(problems(of(prefers).await), @r"
    warn  preferred node pve9 of linux: the cluster has no node of that name, only pve1, pve2, pve3
          in the YAML, or in PVE_NODE_SELECTOR, one or more of these:
          > preferredNodes: [pve1, pve2, pve3]
    ");
}

// Invariant: the doctor says once what a login lacks, with the command that gives it.

/// A cluster whose login holds all but these privileges.
fn without(lacks: &[&str], keys: &str) -> Setup {
    let mut setup = setup(PveVersion::V8_4, keys);
    let all = roles::all(PveVersion::V8_4).into_iter();
    let all = all.filter(|name| !lacks.contains(&name.as_str())).collect();
    setup.cluster.roles.insert("Less".into(), all);
    setup.cluster.acl[0].role = "Less".into();
    setup
}

#[tokio::test(start_paused = true)]
async fn a_pool_that_may_not_be_seen_is_not_said_to_be_missing() {
    insta::assert_snapshot!(problems(of(without(&["Pool.Audit"], "")).await));
}

#[tokio::test(start_paused = true)]
async fn a_command_that_repairs_several_things_is_reported_once() {
    let report = of(without(&["VM.Allocate", "VM.PowerMgmt", "SDN.Use"], "")).await;
    let reported = problems(report);
    assert_eq!(reported.matches("pveum role add DroverGuests").count(), 1, "{reported}");
    assert_eq!(reported.matches("--roles DroverGuests").count(), 1, "{reported}");
    insta::assert_snapshot!(reported);
}

#[tokio::test(start_paused = true)]
async fn one_endpoint_of_several_nodes_and_agents_without_a_pool_are_reported() {
    let mut setup = setup(PveVersion::V8_4, "");
    for (_, keys) in &mut setup.templates {
        *keys = keys.replace("targetPool: ci, ", "");
    }
    let world = World::new(setup);
    let (checked, rack) = (world.setup.checked(), CloudId::new("rack"));
    let mut connection = checked.connections[&rack].clone();
    connection.endpoints.truncate(1);
    let (dialer, certificates) = (world.dialer(), certificate(100));
    let clients =
        Clients { dialer: &dialer, certificates: &certificates, clock: &|| EPOCH, config: None };
    insta::assert_snapshot!(problems(check_cloud(clients, &checked.herd, &rack, &connection).await), @r#"
    warn  endpoint https://pve1:8006: is the only one, and the cluster has 3 nodes: drover stops while it is down, unless that address moves between nodes
          in the YAML, with names that resolve:
          > apiUrls: ["https://pve1:8006", "https://pve2:8006", "https://pve3:8006"]
    warn  targetPool: is not set for `linux`: drover may change every guest
          in the YAML:
          > targetPool: ci
          on this machine:
          > drover setup rights --cloud rack --user root@pam
    "#);
}

// Invariant: an endpoint that does not answer is reported with what to look at.

/// Ways on which every connection fails so.
#[derive(Clone)]
struct Broken(&'static str);

impl Dialer for Broken {
    fn dial(&self, _: &Endpoint, _: &Connection) -> Result<Arc<dyn Transport>, PveError> {
        Ok(Arc::new(self.clone()))
    }
}

impl Transport for Broken {
    fn send(&self, _: Request) -> BoxFuture<'static, Result<Reply, TransportError>> {
        let why = self.0;
        async move { Err(TransportError::Connect(why.into())) }.boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn endpoints_that_take_no_connection_are_reported_with_what_to_look_at() {
    let setup = setup(PveVersion::V8_4, "");
    let (checked, rack) = (setup.checked(), CloudId::new("rack"));
    let mut all = String::new();
    for why in [
        "Connection refused (os error 111)",
        "failed to lookup address information: Name or service not known",
        "connecting timed out",
    ] {
        let clients = Clients {
            dialer: &Broken(why),
            certificates: &certificate(100),
            clock: &|| EPOCH,
            config: None,
        };
        let mut connection = checked.connections[&rack].clone();
        connection.endpoints.truncate(1);
        let report = check_cloud(clients, &checked.herd, &rack, &connection).await;
        let _ = writeln!(all, "{why}:\n{}", problems(report));
    }
    insta::assert_snapshot!(all);
}
