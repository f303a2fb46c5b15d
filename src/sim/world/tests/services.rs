// Invariant (book: proxmox, sections 4, 13 and 19): the services of the cluster that concern
// guests: high availability, networks, firewalls and downloads.

use serde_json::{Value, json};

use super::TestCluster;
use super::fakes::{refusal, seconds};
use crate::spec::{PveVersion, WebFile};
use crate::world::WorldOptions;

const RESOURCES: &str = "/cluster/ha/resources";

async fn end(cluster: &TestCluster, outcome: crate::call::Outcome) -> String {
    let upid = outcome.unwrap().data.as_str().unwrap().to_owned();
    cluster.task_end(&upid).await
}

async fn status(cluster: &TestCluster, vmid: u32) -> Value {
    cluster.vm_call(vmid, "GET", "status/current", json!({})).await.unwrap().data
}

#[tokio::test(start_paused = true)]
async fn a_managed_guest_starts_and_stops_when_the_manager_comes_round() {
    let cluster = TestCluster::instant();
    cluster.clone_to(101).await;
    let with = json!({ "sid": "vm:101", "state": "stopped" });
    cluster.call("POST", RESOURCES, with.clone()).await.unwrap();
    let duplicate = refusal(cluster.call("POST", RESOURCES, with).await);
    assert_eq!(duplicate, "create resource failed: resource ID 'vm:101' already defined");
    let upid = cluster.start_task(101, "POST", "status/start", json!({})).await;
    assert!(upid.contains(":hastart:101:"), "{upid}");
    assert_eq!(cluster.task_end(&upid).await, "OK");
    let early = status(&cluster, 101).await;
    assert_eq!((&early["status"], &early["ha"]["state"]), (&json!("stopped"), &json!("started")));
    seconds(11).await;
    assert_eq!(status(&cluster, 101).await["status"], "running");
    assert_eq!(cluster.inventory_entry(101).await.unwrap()["hastate"], "started");
    assert_eq!(cluster.run_task(101, "POST", "status/stop", json!({})).await, "OK");
    seconds(11).await;
    assert_eq!(status(&cluster, 101).await["status"], "stopped");
    let kept = refusal(cluster.vm_call(101, "DELETE", "", json!({})).await);
    assert!(kept.ends_with("used in HA resources and purge parameter not set."), "{kept}");
    assert_eq!(cluster.run_task(101, "DELETE", "", json!({ "purge": true })).await, "OK");
    assert_eq!(cluster.get(RESOURCES, json!({})).await, json!([]));
}

#[tokio::test(start_paused = true)]
async fn groups_are_of_8_and_rules_of_9() {
    let group = json!({ "group": "near", "nodes": "pve1:2,pve2" });
    let rule = json!({
        "rule": "near", "type": "node-affinity", "nodes": "pve1", "resources": "vm:101",
    });
    let eight = TestCluster::instant();
    eight.call("POST", "/cluster/ha/groups", group.clone()).await.unwrap();
    let found = eight.get("/cluster/ha/groups/{group}", json!({ "group": "near" })).await;
    assert_eq!(found["nodes"], "pve1:2,pve2");
    let nine =
        TestCluster::with(WorldOptions { version: PveVersion::V9_2, ..WorldOptions::default() });
    let refused = refusal(nine.call("POST", "/cluster/ha/groups", group).await);
    assert_eq!(refused, "cannot create group: ha groups have been migrated to rules");
    nine.clone_to(101).await;
    nine.call("POST", RESOURCES, json!({ "sid": "vm:101" })).await.unwrap();
    nine.call("POST", "/cluster/ha/rules", rule).await.unwrap();
    let rules = nine.get("/cluster/ha/rules", json!({ "type": "node-affinity" })).await;
    assert_eq!(rules[0]["rule"], "near");
}

#[tokio::test(start_paused = true)]
async fn a_vnet_carries_guests_once_it_is_applied() {
    let cluster = TestCluster::instant();
    let zone = json!({ "zone": "lab", "type": "vlan", "bridge": "vmbr0", "nodes": "pve1" });
    cluster.call("POST", "/cluster/sdn/zones", zone).await.unwrap();
    let untagged = json!({ "vnet": "vlab", "zone": "lab" });
    let refused = refusal(cluster.call("POST", "/cluster/sdn/vnets", untagged).await);
    let text = "400 Parameter verification failed.\ntag: missing vlan tag";
    assert_eq!(refused, format!("create sdn vnet object failed: {text}"));
    let vnet = json!({ "vnet": "vlab", "zone": "lab", "tag": 5 });
    cluster.call("POST", "/cluster/sdn/vnets", vnet).await.unwrap();
    let pending = cluster.get("/cluster/sdn/vnets", json!({ "pending": true })).await;
    assert_eq!((&pending[0]["state"], &pending[0]["pending"]["tag"]), (&json!("new"), &json!(5)));
    cluster.clone_to(101).await;
    let net = json!({ "net0": "virtio,bridge=vlab" });
    cluster.vm_call(101, "PUT", "config", net).await.unwrap();
    let early = cluster.run_task(101, "POST", "status/start", json!({})).await;
    assert_eq!(early, "start failed: QEMU exited with code 1");
    assert_eq!(end(&cluster, cluster.call("PUT", "/cluster/sdn", json!({})).await).await, "OK");
    assert_eq!(cluster.run_task(101, "POST", "status/start", json!({})).await, "OK");
    let content = "/nodes/{node}/sdn/zones/{zone}/content";
    let here = cluster.get(content, json!({ "zone": "lab" })).await;
    assert_eq!(here, json!([{ "vnet": "vlab", "status": "available" }]));
    let elsewhere = cluster.get(content, json!({ "zone": "lab", "node": "pve2" })).await;
    assert_eq!(elsewhere, json!([]));
    let used = refusal(
        cluster.call("DELETE", "/cluster/sdn/zones/{zone}", json!({ "zone": "lab" })).await,
    );
    assert_eq!(used, "delete sdn zone object failed: zone lab is used by vnet vlab");
    let bridges = cluster.get("/nodes/{node}/network", json!({ "type": "any_bridge" })).await;
    assert_eq!(
        (&bridges[0]["bridge_vlan_aware"], &bridges[1]["type"]),
        (&json!(1), &json!("vnet"))
    );
}

#[tokio::test(start_paused = true)]
async fn a_subnet_counts_once_it_is_applied() {
    let cluster = TestCluster::instant();
    let subnets = "/cluster/sdn/vnets/{vnet}/subnets";
    let subnet = json!({
        "vnet": "ci0", "subnet": "10.9.0.0/24", "type": "subnet", "gateway": "10.9.0.1",
        "dhcp-range": "start-address=10.9.0.50,end-address=10.9.0.99",
    });
    let zone = json!({ "zone": "ci", "type": "simple" });
    cluster.call("POST", "/cluster/sdn/zones", zone).await.unwrap();
    cluster
        .call("POST", "/cluster/sdn/vnets", json!({ "vnet": "ci0", "zone": "ci" }))
        .await
        .unwrap();
    // Proxmox does not check whether the zone has DHCP (pve-network, SubnetPlugin.pm:195).
    cluster.call("POST", subnets, subnet.clone()).await.unwrap();
    let again = refusal(cluster.call("POST", subnets, subnet).await);
    let text = "sdn subnet object ID 'ci-10.9.0.0-24' already defined";
    assert_eq!(again, format!("create sdn subnet object failed: {text}"));
    let running = json!({ "vnet": "ci0", "running": true });
    assert_eq!(cluster.get(subnets, running.clone()).await, json!([]));
    let pending = cluster.get(subnets, json!({ "vnet": "ci0", "pending": true })).await;
    assert_eq!((&pending[0]["state"], &pending[0]["cidr"]), (&json!("new"), &json!("10.9.0.0/24")));
    assert_eq!(end(&cluster, cluster.call("PUT", "/cluster/sdn", json!({})).await).await, "OK");
    assert_eq!(cluster.get(subnets, running).await[0]["gateway"], "10.9.0.1");
    let one = json!({ "vnet": "ci0", "subnet": "ci-10.9.0.0-24" });
    cluster.call("DELETE", "/cluster/sdn/vnets/{vnet}/subnets/{subnet}", one).await.unwrap();
    assert_eq!(cluster.get(subnets, json!({ "vnet": "ci0" })).await, json!([]));
}

#[tokio::test(start_paused = true)]
async fn a_firewall_rule_comes_first_and_goes_by_its_place() {
    let cluster = TestCluster::instant();
    let rules = "/cluster/firewall/rules";
    for (action, proto) in [("DROP", "udp"), ("ACCEPT", "vrrp")] {
        let with = json!({ "type": "in", "action": action, "proto": proto, "enable": 1 });
        cluster.call("POST", rules, with).await.unwrap();
    }
    let list = cluster.get(rules, json!({})).await;
    assert_eq!((&list[0]["proto"], &list[0]["pos"]), (&json!("vrrp"), &json!(0)));
    let wrong = cluster.call("POST", rules, json!({ "type": "in", "action": "NOPE" })).await;
    assert_eq!(wrong.unwrap_err().errors["action"], "unknown action 'NOPE'");
    cluster.call("DELETE", "/cluster/firewall/rules/{pos}", json!({ "pos": 1 })).await.unwrap();
    assert_eq!(cluster.get(rules, json!({})).await.as_array().unwrap().len(), 1);
    cluster.call("PUT", "/cluster/firewall/options", json!({ "enable": 1 })).await.unwrap();
    let other = cluster.get("/nodes/{node}/firewall/options", json!({})).await;
    assert_eq!(other.get("enable"), None);
    assert_eq!(cluster.get("/cluster/firewall/options", json!({})).await["enable"], 1);
}

#[tokio::test(start_paused = true)]
async fn a_node_downloads_what_is_there_and_never_over_something_else() {
    let cluster = TestCluster::instant();
    let url = "https://example.com/disc.iso";
    cluster.control.publish(WebFile {
        url: url.into(),
        size: 4096,
        sha256: "ab12".into(),
        ..WebFile::default()
    });
    let meta = cluster.get("/nodes/{node}/query-url-metadata", json!({ "url": url })).await;
    assert_eq!((&meta["filename"], &meta["size"]), (&json!("disc.iso"), &json!(4096)));
    let route = "/nodes/{node}/storage/{storage}/download-url";
    let with = |url: &str, sum: Option<&str>| {
        let mut with = json!({
            "storage": "local", "content": "iso", "filename": "my disc.iso", "url": url,
        });
        if let Some(sum) = sum {
            with["checksum"] = sum.into();
            with["checksum-algorithm"] = "sha256".into();
        }
        with
    };
    let lost =
        end(&cluster, cluster.call("POST", route, with("https://example.com/x", None)).await).await;
    assert!(lost.starts_with("download failed: "), "{lost}");
    let wrong = end(&cluster, cluster.call("POST", route, with(url, Some("ff"))).await).await;
    assert_eq!(wrong, "checksum mismatch: got 'ab12' != expect 'ff', aborting");
    assert_eq!(
        end(&cluster, cluster.call("POST", route, with(url, Some("AB12"))).await).await,
        "OK"
    );
    assert!(cluster.control.volumes("pve1", "local").contains(&"local:iso/my_disc.iso".to_owned()));
    assert_eq!(
        end(&cluster, cluster.call("POST", route, with(url, Some("ab12"))).await).await,
        "OK"
    );
    let there = end(&cluster, cluster.call("POST", route, with(url, None)).await).await;
    let path = "/var/lib/vz/template/iso/my_disc.iso";
    assert_eq!(there, format!("refusing to override existing file '{path}'"));
}

#[tokio::test(start_paused = true)]
async fn old_backups_are_pruned_by_policy() {
    let cluster = TestCluster::instant();
    for day in 1..=3 {
        let volid = format!("local:backup/vzdump-qemu-101-2026_01_0{day}-00_00_00.vma.zst");
        cluster.control.add_volume("pve1", &volid, 1 << 20);
        seconds(60).await;
    }
    let route = "/nodes/{node}/storage/{storage}/prunebackups";
    let with = json!({ "storage": "local", "prune-backups": "keep-last=1" });
    let marks = cluster.get(route, with.clone()).await;
    let marks: Vec<&str> =
        marks.as_array().unwrap().iter().map(|line| line["mark"].as_str().unwrap()).collect();
    assert_eq!(marks, ["keep", "remove", "remove"]);
    assert_eq!(end(&cluster, cluster.call("DELETE", route, with).await).await, "OK");
    let left = cluster.control.volumes("pve1", "local");
    assert_eq!(left, ["local:backup/vzdump-qemu-101-2026_01_03-00_00_00.vma.zst"]);
}

#[tokio::test(start_paused = true)]
async fn a_migration_takes_the_disks_along() {
    let cluster = TestCluster::instant();
    cluster.clone_to(101).await;
    assert_eq!(cluster.run_task(101, "POST", "status/start", json!({})).await, "OK");
    let running =
        refusal(cluster.vm_call(101, "POST", "migrate", json!({ "target": "pve2" })).await);
    assert_eq!(running, "can't migrate running VM without --online");
    assert_eq!(cluster.run_task(101, "POST", "status/stop", json!({})).await, "OK");
    assert_eq!(cluster.run_task(101, "POST", "migrate", json!({ "target": "pve2" })).await, "OK");
    let config =
        cluster.vm_call(101, "GET", "config", json!({ "node": "pve2" })).await.unwrap().data;
    assert_eq!(config.get("lock"), None);
    assert!(
        cluster
            .control
            .volumes("pve2", "local-lvm")
            .contains(&"local-lvm:vm-101-disk-0".to_owned())
    );
    assert!(
        !cluster
            .control
            .volumes("pve1", "local-lvm")
            .contains(&"local-lvm:vm-101-disk-0".to_owned())
    );
}

// Source: qemu-server, QemuMigrate.pm:541.
#[tokio::test(start_paused = true)]
async fn a_running_guest_migrates_with_local_disks_only_on_request() {
    let cluster = TestCluster::instant();
    cluster.clone_to(101).await;
    assert_eq!(cluster.run_task(101, "POST", "status/start", json!({})).await, "OK");
    let online = json!({ "target": "pve2", "online": true });
    let upid = cluster.start_task(101, "POST", "migrate", online).await;
    assert_eq!(cluster.task_end(&upid).await, "migration aborted");
    let text = "can't live migrate attached local disks without with-local-disks option";
    let line = format!("can't migrate local disk 'local-lvm:vm-101-disk-0': {text}");
    assert!(cluster.log(&upid).await.contains(&line), "{line}");
    assert_eq!(cluster.config(101).await.get("lock"), None);
    let with = json!({ "target": "pve2", "online": true, "with-local-disks": true });
    assert_eq!(cluster.run_task(101, "POST", "migrate", with).await, "OK");
    let there = json!({ "node": "pve2" });
    let status = cluster.vm_call(101, "GET", "status/current", there).await.unwrap().data;
    assert_eq!(status["status"], "running");
}

#[tokio::test(start_paused = true)]
async fn a_running_guest_on_a_shared_storage_moves_as_it_is() {
    let cluster = TestCluster::instant();
    let with = json!({ "newid": 101, "full": true, "storage": "shared" });
    assert_eq!(cluster.run_task(9000, "POST", "clone", with).await, "OK");
    assert_eq!(cluster.run_task(101, "POST", "status/start", json!({})).await, "OK");
    let online = json!({ "target": "pve2", "online": true });
    assert_eq!(cluster.run_task(101, "POST", "migrate", online).await, "OK");
}

#[tokio::test(start_paused = true)]
async fn a_managed_resource_shows_only_what_was_set() {
    let cluster = TestCluster::instant();
    cluster.clone_to(101).await;
    let with = json!({ "sid": "vm:101", "comment": "7" });
    cluster.call("POST", RESOURCES, with).await.unwrap();
    let one = cluster.get("/cluster/ha/resources/{sid}", json!({ "sid": "vm:101" })).await;
    let mut keys: Vec<&String> = one.as_object().unwrap().keys().collect();
    keys.sort();
    assert_eq!(keys, ["comment", "digest", "sid", "type"]);
    assert_eq!(one["comment"], "7");
    let with = json!({ "sid": "vm:101", "max_restart": 3 });
    cluster.call("PUT", "/cluster/ha/resources/{sid}", with).await.unwrap();
    assert_eq!(cluster.get(RESOURCES, json!({})).await[0]["max_restart"], 3);
}

#[tokio::test(start_paused = true)]
async fn a_removed_key_of_a_network_reads_deleted_until_the_change_is_applied() {
    let cluster = TestCluster::instant();
    let zone = json!({ "zone": "lab", "type": "simple", "mtu": 1400 });
    cluster.call("POST", "/cluster/sdn/zones", zone).await.unwrap();
    assert_eq!(end(&cluster, cluster.call("PUT", "/cluster/sdn", json!({})).await).await, "OK");
    let change = json!({ "zone": "lab", "delete": "mtu" });
    cluster.call("PUT", "/cluster/sdn/zones/{zone}", change).await.unwrap();
    let asked = json!({ "zone": "lab", "pending": true });
    let one = cluster.get("/cluster/sdn/zones/{zone}", asked).await;
    assert_eq!((&one["state"], &one["mtu"]), (&json!("changed"), &json!(1400)));
    assert_eq!(one["pending"], json!({ "mtu": "deleted" }));
    let missing = json!({ "zone": "lab" });
    cluster.call("DELETE", "/cluster/sdn/zones/{zone}", missing).await.unwrap();
    let list = cluster.get("/cluster/sdn/zones", json!({ "pending": true })).await;
    assert_eq!((&list[0]["state"], &list[0]["pending"]), (&json!("deleted"), &json!({})));
}

#[tokio::test(start_paused = true)]
async fn one_subnet_is_read_and_changed_by_its_name() {
    let cluster = TestCluster::instant();
    let subnet = "/cluster/sdn/vnets/{vnet}/subnets/{subnet}";
    let zone = json!({ "zone": "ci", "type": "simple" });
    cluster.call("POST", "/cluster/sdn/zones", zone).await.unwrap();
    for vnet in ["ci0", "ci1"] {
        let with = json!({ "vnet": vnet, "zone": "ci" });
        cluster.call("POST", "/cluster/sdn/vnets", with).await.unwrap();
    }
    let made = json!({ "vnet": "ci0", "subnet": "10.9.0.0/24", "type": "subnet", "snat": true });
    cluster.call("POST", "/cluster/sdn/vnets/{vnet}/subnets", made).await.unwrap();
    let name = json!({ "vnet": "ci0", "subnet": "ci-10.9.0.0-24" });
    let one = cluster.get(subnet, name.clone()).await;
    assert_eq!((&one["cidr"], &one["snat"]), (&json!("10.9.0.0/24"), &json!(1)));
    let with = json!({ "vnet": "ci0", "subnet": "ci-10.9.0.0-24", "gateway": "10.9.0.1" });
    cluster.call("PUT", subnet, with).await.unwrap();
    assert_eq!(cluster.get(subnet, name).await["gateway"], "10.9.0.1");
    let wrong = json!({ "vnet": "ci1", "subnet": "ci-10.9.0.0-24" });
    let wrong = cluster.call("GET", subnet, wrong).await.unwrap_err();
    assert_eq!(wrong.errors["vnet"], "wrong vnet");
}
