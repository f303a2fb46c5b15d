//! Where machines are put, over real sockets: what is free, what the YAML says of nodes, what others run
//! there, and two clusters in one service.

use std::time::Instant;

use serde_json::{Value, json};

use crate::api::{ask, call, ready, release};
use crate::harness::{Service, Sim, Site, WAIT_LIMIT, world_of};
use crate::parity::{guest_of, leased, setting, until, yaml};
use crate::proxy::{Proxy, Way};

/// A node with the most memory, one with the most processors, and three small ones; on two of these a guest
/// of somebody else runs. Each has a template `debian`; the one of `nfs` can be cloned to every node.
const NODES: &str = r#"
name: places
nodes:
  - {name: pve1, memoryBytes: 137438953472, cpus: 16}
  - {name: pve2, memoryBytes: 68719476736, cpus: 32}
  - {name: pve3, memoryBytes: 8589934592, cpus: 8}
  - {name: pve4, memoryBytes: 8589934592, cpus: 8}
  - {name: pve5, memoryBytes: 8589934592, cpus: 8}
storages:
  - {name: local, type: lvmthin, content: [images]}
  - {name: nfs, type: nfs, content: [images], shared: true}
guests:
  - {vmid: 300, node: pve3, running: true, config: {name: cache, memory: "512", tags: vm.type.cache}}
  - {vmid: 301, node: pve4, running: true, config: {name: db, memory: "512"}}
"#;

fn cluster() -> String {
    let template = |vmid: u32, node: &str, name: &str, volume: &str, kind: &str| {
        format!(
            "  - vmid: {vmid}\n    node: {node}\n    template: true\n    config: {{name: {name}, \
             memory: \"256\", cores: \"1\", boot: \"order=scsi0\", agent: \"1\", \
             scsi0: \"{volume}base-{vmid}-disk-0{kind},size=2G\", \
             ide2: \"{volume}vm-{vmid}-cloudinit{kind},media=cdrom\", \
             net0: \"virtio=BC:24:11:00:{}:{},bridge=vmbr0\"}}\n",
            vmid / 100,
            vmid % 100 + 10,
        )
    };
    [
        NODES.to_owned(),
        template(9000, "pve1", "debian", "local:", ""),
        template(9001, "pve2", "debian", "local:", ""),
        template(9002, "pve3", "debian", "local:", ""),
        template(9003, "pve4", "debian", "local:", ""),
        template(9004, "pve5", "debian", "local:", ""),
        template(9010, "pve1", "shared", "nfs:9010/", ".qcow2"),
    ]
    .concat()
}

/// The templates of these tests: on any of the first three nodes, without keys of their own.
fn anywhere(site: &Site, sim: &Sim, cloud: &[&str], templates: &[(&str, &str)]) -> String {
    let all = "nodes: [pve1, pve2, pve3], templateName: debian";
    yaml(site, sim, cloud, templates).replace("node: pve1, templateVmId: 9000", all)
}

/// Guests on a node that are no templates.
fn guests(sim: &Sim, node: &str) -> usize {
    let all = sim.call("GET", &format!("/nodes/{node}/qemu"))["data"].clone();
    all.as_array().unwrap().iter().filter(|guest| guest["template"] != 1).count()
}

/// The node on which the cluster has the guest of an agent.
fn node_of(sim: &Sim, agent: &Value) -> &'static str {
    let vmid = agent["vmid"].as_u64().unwrap();
    let has = |node: &&str| sim.config(node, vmid)["name"].is_string();
    ["pve1", "pve2", "pve3", "pve4", "pve5"].into_iter().find(has).unwrap()
}

/// Waits until a lease waits for this reason.
fn waits(site: &Site, lease: &str, part: &str) {
    let deadline = Instant::now() + WAIT_LIMIT;
    loop {
        let (_, reported) = call(site, "GET", &format!("/v1/leases/{lease}"), None);
        if reported["detail"].as_str().is_some_and(|detail| detail.contains(part)) {
            return;
        }
        let may_wait = reported["state"] != "ready" && Instant::now() < deadline;
        assert!(may_wait, "{part}: {reported}");
    }
}

// Invariant: machines go where their template says, and of the nodes that are left where the most is
// free.

#[test]
fn machines_go_where_the_yaml_says_and_else_where_the_most_is_free() {
    let (_dir, sim, site) = world_of(&cluster());
    let apart = "labelString: apart, antiAffinity: [{key: apart, operator: Exists}]";
    let templates = [
        ("ranked", ""),
        ("memory", "placementWeights: {memory: 100, cpu: 0}"),
        ("cpu", "placementWeights: {memory: 0, cpu: 100}"),
        ("preferred", "memoryMb: 2048, preferredNodes: [pve3]"),
        ("selected", "nodeSelector: [gpu]"),
        ("beside", "affinity: [{key: vm.type, values: [cache]}]"),
        ("apart", apart),
        ("shared", "node: pve2, templateName: shared, cloneStrategy: LINKED"),
        ("few", "node: pve4, maxVmsPerNode: 2, maxTotalUses: 1"),
        ("roomy", "node: pve5, minFreeMemory: 4Gi, memoryMb: 2048, maxTotalUses: 1"),
    ];
    let cloud = ["nodeLabels: {pve2: [gpu, ssd], pve3: [ssd]}"];
    site.write_yaml(&anywhere(&site, &sim, &cloud, &templates));
    let _service = Service::start(&site);
    let wanted = ["ranked", "memory", "cpu", "selected", "selected", "beside", "shared"];
    let agents = leased(&site, wanted).map(|(_, agent)| agent);
    // pve1 has twice the memory of pve2, and that twice the processors: memory weighs 60, processors 40.
    let nodes = ["pve1", "pve1", "pve2", "pve2", "pve2", "pve3", "pve2"];
    assert_eq!(agents.each_ref().map(|agent| node_of(&sim, agent)), nodes, "{wanted:?}");
    let disk = setting(&guest_of(&sim, &agents[6]), "scsi0");
    assert!(disk.starts_with("nfs:9010/base-9010-disk-0.qcow2/"), "{disk}");
    let clones = sim.call("GET", "/nodes/pve1/tasks?typefilter=qmclone&limit=500")["data"].clone();
    let is_of_9010 = |task: &Value| task["id"] == "9010";
    assert!(clones.as_array().unwrap().iter().any(is_of_9010), "its template is on pve1: {clones}");

    // Of 8 GiB the node keeps one, the cache and two agents have one: three times two are left.
    let wanted = ["apart", "apart", "apart", "preferred", "preferred", "preferred", "preferred"];
    let agents = leased(&site, wanted);
    let mut nodes = agents.each_ref().map(|(_, agent)| node_of(&sim, agent));
    let (apart, preferred) = nodes.split_at_mut(3);
    apart.sort_unstable();
    preferred.sort_unstable();
    assert_eq!(apart, ["pve1", "pve2", "pve3"]);
    assert_eq!(preferred[1..], ["pve3", "pve3", "pve3"]);
    assert_ne!(preferred[0], "pve3", "what is full is left for another node");
    waits(&site, &ask(&site, "apart", "wire"), "a guest on it has apart (`antiAffinity`)");

    // Proxmox's list says late that a guest runs.
    until("the guest of others is seen", || {
        let nodes = site.json(&["nodes"])["nodes"].clone();
        nodes.as_array().unwrap().iter().any(|one| one["node"] == "pve4" && one["guests"] == 1)
    });
    let [(few, _), (roomy, _)] = leased(&site, ["few", "roomy"]);
    let (next_few, next_roomy) = (ask(&site, "few", "wire"), ask(&site, "roomy", "wire"));
    // Of 8 GiB the node keeps one, an agent has two and four stay free.
    waits(&site, &next_few, "2 guests are on it, and 2 may be (`maxVmsPerNode`)");
    waits(&site, &next_roomy, "2048 MiB are needed and 4096 MiB must stay free");
    assert_eq!((guests(&sim, "pve4"), guests(&sim, "pve5")), (2, 1));
    release(&site, &few);
    release(&site, &roomy);
    ready(&site, &next_few);
    ready(&site, &next_roomy);
}

// Invariant: one service uses two clusters, each for what is asked of it, and the end of one is nothing to
// the other.

#[test]
fn two_clusters_serve_the_leases_of_their_own_regions_whatever_becomes_of_the_other() {
    let (_one, east, site) = world_of(&cluster());
    let (_other, west, second) = world_of(&cluster());
    let wire = Proxy::before(west.fact("url"));
    site.write_secret("west", west.fact("tokenSecret"));
    let text = anywhere(&site, &east, &["region: east"], &[("linux", "instanceCap: 0")]);
    let dir = site.dir.path().display();
    let pem = std::fs::read_to_string(second.dir.path().join("ca.pem")).unwrap();
    let credential = format!(
        "credentials:\n  west: {{kind: proxmoxToken, tokenId: \"{}\", secretFile: \"{dir}/west\"}}\n",
        west.fact("tokenId")
    );
    let cloud = format!(
        "  attic: {{name: Attic, apiUrl: \"{}\", caPem: {}, credentialsId: west, \
         startVmId: 10000, region: west, connectTimeoutSec: 2}}\nagentDefaults:",
        format_args!("https://{}", wire.addr),
        json!(pem)
    );
    let text = text
        .replace("credentials:\n", &credential)
        .replace("agentDefaults:", &cloud)
        .replace("cloudIds: [lab]", "cloudIds: [lab, attic]");
    site.write_yaml(&text);
    let _service = Service::start(&site);
    let lease = |region: &str| {
        let body =
            json!({"labels": [format!("region:{region}")], "owner": "wire", "ttlSeconds": 3600});
        let (status, asked) = call(&site, "POST", "/v1/leases", Some(&body));
        (status, asked["id"].as_str().unwrap_or_default().to_owned())
    };
    let count = |sim: &Sim| sim.guests().len() - 2;
    let (first, there) = (lease("east").1, lease("west").1);
    let agent = ready(&site, &first)["agent"].clone();
    ready(&site, &there);
    assert_eq!((count(&east), count(&west)), (1, 1));
    // The two are alike down to the VMID, and yet one is not taken for the other.
    assert_eq!(east.guests(), west.guests());
    assert!((400..500).contains(&lease("north").0));
    wire.set(Way::Cut);
    ready(&site, &lease("east").1);
    assert_eq!((count(&east), &ready(&site, &first)["agent"]), (2, &agent));
    let waiting = lease("west").1;
    let health = |id: &str| {
        let clouds = site.json(&["status"])["clouds"].clone();
        let all = clouds.as_array().unwrap().iter();
        all.filter(|one| one["id"] == id).map(|one| one["health"].clone()).next().unwrap()
    };
    until("the lost cluster is reported", || health("attic") != "well");
    assert_eq!(health("lab"), "well");
    release(&site, &first);
    assert!(site.cli(&["retire", agent.as_str().unwrap()]).status.success());
    until("its machine is gone", || count(&east) == 1);
    assert_eq!(count(&west), 1, "nothing is destroyed that cannot be seen");
    wire.set(Way::Open);
    ready(&site, &waiting);
    assert_eq!((count(&east), count(&west)), (1, 2));
    ready(&site, &there);
}
