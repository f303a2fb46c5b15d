// Invariant (book: proxmox, sections 4 and 18): containers and the services of the cluster need the
// same privileges on the same paths as on a real node. These tests use the real API front end and
// access control.

use std::sync::Arc;

use serde_json::Value;

use super::fakes::FakeGuests;
use crate::api::Api;
use crate::api::access::Access;
use crate::api::http::Request;
use crate::clock::WallClock;
use crate::spec::{AclSpec, ClusterSpec, PveVersion};
use crate::world::{EPOCH, Latency, World, WorldControl, WorldOptions};

const TEMPLATE: &str = "local:vztmpl/debian-12-standard_12.12-1_amd64.tar.zst";
const GUESTS: &[&str] = &[
    "VM.Allocate",
    "VM.Audit",
    "VM.Clone",
    "VM.Config.CPU",
    "VM.Config.Disk",
    "VM.Config.Memory",
    "VM.Config.Network",
    "VM.Config.Options",
    "VM.PowerMgmt",
];

/// A cluster as a token with these privileges sees it: path and privileges.
struct TokenCluster {
    api: Arc<Api>,
    world: WorldControl,
}

impl TokenCluster {
    fn with(version: PveVersion, rights: &[(&str, &[&str])]) -> Self {
        let mut spec = ClusterSpec::three_nodes("secret", "token");
        spec.root_tokens[0].privsep = true;
        for (number, (path, privileges)) in rights.iter().enumerate() {
            let role = format!("Role{number}");
            let privileges = privileges.iter().map(|name| (*name).to_owned()).collect();
            spec.roles.insert(role.clone(), privileges);
            let (path, who) = ((*path).to_owned(), "root@pam!drover".to_owned());
            spec.acl.push(AclSpec { path, who, role, propagate: true });
        }
        let access = Access::new(&spec, version, WallClock::starting_at(EPOCH));
        let options = WorldOptions { version, latency: Latency::none(), ..WorldOptions::default() };
        let guests = Arc::new(FakeGuests::default());
        let world = World::new(&spec, options, Arc::clone(&access) as _, guests);
        world.control().add_volume("pve1", TEMPLATE, 100 << 20);
        let control = world.control();
        Self { api: Api::new(&spec, version, 1, access, world, None), world: control }
    }

    async fn call(&self, method: &str, path: &str, form: &str) -> (u16, Value) {
        let writes = matches!(method, "POST" | "PUT");
        let query = if writes || form.is_empty() { String::new() } else { format!("?{form}") };
        let mut headers =
            vec![("authorization".to_owned(), "PVEAPIToken=root@pam!drover=token".to_owned())];
        if writes {
            let kind = "application/x-www-form-urlencoded".to_owned();
            headers.push(("content-type".to_owned(), kind));
        }
        let body = if writes { form.to_owned().into_bytes() } else { Vec::new() };
        let answer = self.api.serve(Request {
            method: method.to_owned(),
            target: format!("/api2/json{path}{query}"),
            headers: headers.into_iter().collect(),
            body: body.into(),
            node: "pve1".into(),
        });
        let answer = answer.await;
        (answer.status, serde_json::from_slice(&answer.body).unwrap_or_default())
    }

    /// The error text of a call that must fail.
    async fn refused(&self, method: &str, path: &str, form: &str) -> String {
        let (status, body) = self.call(method, path, form).await;
        assert_eq!(status, 403, "{method} {path}: {body}");
        body["message"].as_str().unwrap().trim_end().to_owned()
    }

    /// The data of a call that must succeed.
    async fn allowed(&self, method: &str, path: &str, form: &str) -> Value {
        let (status, body) = self.call(method, path, form).await;
        assert_eq!(status, 200, "{method} {path}: {body}");
        body["data"].clone()
    }
}

/// The privileges for containers on local storage and the bridge, except one.
fn privileges_without(missing: &str) -> Vec<(&'static str, Vec<&'static str>)> {
    let rights = [
        ("/pool/ci", GUESTS.to_vec()),
        ("/storage/local", vec!["Datastore.Audit"]),
        ("/storage/local-lvm", vec!["Datastore.AllocateSpace"]),
        ("/sdn/zones/localnetwork", vec!["SDN.Use"]),
    ];
    let keep = |(path, privileges): (&'static str, Vec<&'static str>)| {
        (path, privileges.into_iter().filter(|name| *name != missing).collect())
    };
    rights.map(keep).to_vec()
}

fn cluster_without(version: PveVersion, missing: &str) -> TokenCluster {
    let rights = privileges_without(missing);
    let rights: Vec<(&str, &[&str])> =
        rights.iter().map(|(path, privileges)| (*path, privileges.as_slice())).collect();
    TokenCluster::with(version, &rights)
}

fn create_form(more: &str) -> String {
    format!(
        "vmid=101&pool=ci&ostemplate={TEMPLATE}&rootfs=local-lvm:8&hostname=box&memory=1024&cores=2\
         &net0=name%3Deth0%2Cbridge%3Dvmbr0%2Cip%3Ddhcp&features=nesting%3D1&onboot=1&start=1\
         &ssh-public-keys=ssh-ed25519%20AAAA%20me{more}"
    )
}

const CREATE: &str = "/nodes/pve1/lxc";

#[tokio::test(start_paused = true)]
async fn each_right_that_a_container_needs_is_named_when_it_is_missing() {
    for version in [PveVersion::V8_4, PveVersion::V9_2] {
        let upid = cluster_without(version, "").allowed("POST", CREATE, &create_form("")).await;
        assert!(upid.as_str().unwrap().contains(":vzcreate:101:root@pam!drover:"));
        let cases = [
            ("VM.Allocate", "Permission check failed"),
            ("VM.Config.Disk", "Permission check failed (/vms/101, VM.Config.Disk)"),
            ("VM.Config.Network", "Permission check failed (/vms/101, VM.Config.Network)"),
            ("VM.Config.Memory", "Permission check failed (/vms/101, VM.Config.Memory)"),
            ("VM.Config.CPU", "Permission check failed (/vms/101, VM.Config.CPU)"),
            ("VM.Config.Options", "Permission check failed (/vms/101, VM.Config.Options)"),
            ("VM.PowerMgmt", "Permission check failed (/vms/101, VM.PowerMgmt)"),
            ("SDN.Use", "Permission check failed (/sdn/zones/localnetwork/vmbr0, SDN.Use)"),
            (
                "Datastore.AllocateSpace",
                "Permission check failed (/storage/local-lvm, Datastore.AllocateSpace)",
            ),
            (
                "Datastore.Audit",
                "Permission check failed (/storage/local, Datastore.Audit|Datastore.AllocateSpace)",
            ),
        ];
        for (missing, text) in cases {
            let reported =
                cluster_without(version, missing).refused("POST", CREATE, &create_form("")).await;
            assert_eq!(reported, text, "{missing}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_privileged_container_needs_more_since_9() {
    let more = create_form("&unprivileged=0").replace("&features=nesting%3D1", "");
    cluster_without(PveVersion::V8_4, "").allowed("POST", CREATE, &more).await;
    let reported = cluster_without(PveVersion::V9_2, "").refused("POST", CREATE, &more).await;
    assert_eq!(reported, "Permission check failed (/, Sys.Modify)");
}

#[tokio::test(start_paused = true)]
async fn parameters_of_containers_are_checked_as_the_schema_says() {
    let cluster = cluster_without(PveVersion::V8_4, "");
    let (status, body) =
        cluster.call("POST", CREATE, &create_form("&net1=bridge%3Dvmbr0&ha-managed=1")).await;
    assert_eq!(status, 400);
    let errors = body["errors"].as_object().unwrap();
    assert!(errors["net1"].as_str().unwrap().contains("net1.name: property is missing"), "{body}");
    assert!(errors["ha-managed"].as_str().unwrap().contains("not defined in schema"), "{body}");
}

#[tokio::test(start_paused = true)]
async fn a_vnet_asks_for_its_own_zone_and_a_tag_for_itself() {
    let admin: &[&str] = &["SDN.Allocate", "SDN.Audit"];
    let rights: &[(&str, &[&str])] = &[
        ("/sdn", admin),
        ("/pool/ci", &["VM.Allocate", "VM.Config.Network", "VM.Config.Options"]),
        ("/sdn/zones/lab/one", &["SDN.Use"]),
    ];
    let cluster = TokenCluster::with(PveVersion::V8_4, rights);
    cluster.allowed("POST", "/cluster/sdn/zones", "zone=lab&type=vlan&bridge=vmbr0").await;
    for (vnet, tag) in [("one", 1), ("two", 2)] {
        let form = format!("vnet={vnet}&zone=lab&tag={tag}");
        cluster.allowed("POST", "/cluster/sdn/vnets", &form).await;
    }
    let card =
        |vnet: &str, more: &str| format!("vmid=101&pool=ci&net0=virtio%2Cbridge%3D{vnet}{more}");
    let reported = cluster.refused("POST", "/nodes/pve1/qemu", &card("two", "")).await;
    assert_eq!(reported, "Permission check failed (/sdn/zones/lab/two, SDN.Use)");
    let reported = cluster.refused("POST", "/nodes/pve1/qemu", &card("vmbr0", "%2Ctag%3D7")).await;
    assert_eq!(reported, "Permission check failed (/sdn/zones/localnetwork/vmbr0/7, SDN.Use)");
    cluster.allowed("POST", "/nodes/pve1/qemu", &card("one", "")).await;
}

#[tokio::test(start_paused = true)]
async fn services_of_the_cluster_are_an_administrators() {
    let cluster = cluster_without(PveVersion::V8_4, "");
    let cases = [
        ("POST", "/cluster/ha/resources", "sid=vm:9000", "/, Sys.Console"),
        ("GET", "/cluster/ha/status/current", "", "/, Sys.Audit"),
        ("POST", "/cluster/sdn/zones", "zone=lab&type=simple", "/sdn/zones, SDN.Allocate"),
        ("PUT", "/cluster/sdn", "", "/sdn, SDN.Allocate"),
        ("POST", "/cluster/firewall/rules", "type=in&action=ACCEPT&proto=vrrp", "/, Sys.Modify"),
        (
            "POST",
            "/nodes/pve1/aplinfo",
            "storage=local&template=x",
            "/storage/local, Datastore.AllocateTemplate",
        ),
        (
            "POST",
            "/nodes/pve1/storage/local/download-url",
            "content=iso&filename=x.iso&url=https://example.com/x.iso",
            "/storage/local, Datastore.AllocateTemplate",
        ),
    ];
    for (method, path, form, place) in cases {
        let reported = cluster.refused(method, path, form).await;
        assert_eq!(reported, format!("Permission check failed ({place})"), "{method} {path}");
    }
    // Lists show what the caller may see.
    let bridges = cluster.allowed("GET", "/nodes/pve1/network", "type=any_bridge").await;
    assert_eq!(bridges.as_array().unwrap().len(), 1);
    assert_eq!(cluster.allowed("GET", "/cluster/sdn/vnets", "").await, serde_json::json!([]));
    assert_eq!(cluster.allowed("GET", "/nodes/pve1/lxc", "").await, serde_json::json!([]));
}

#[tokio::test(start_paused = true)]
async fn an_old_node_reports_its_version() {
    let cluster = TokenCluster::with(PveVersion::V7_4, &[]);
    let version = cluster.allowed("GET", "/version", "").await;
    assert_eq!((&version["release"], &version["version"]), (&"7.4".into(), &"7.4-19".into()));
}

// Invariant (book: proxmox, section 4): a change of a drive needs the privileges for its old and
// its new content.

#[tokio::test(start_paused = true)]
async fn a_drive_asks_for_what_is_in_it_and_for_what_is_put_into_it() {
    let image = "local%3Aiso%2Fa.iso%2Cmedia%3Dcdrom";
    let cloudinit = "local-lvm%3Acloudinit";
    let disk = "local-lvm%3A1";
    for version in [PveVersion::V8_4, PveVersion::V9_2] {
        let with = async |privileges: &[&str]| {
            let own = [&["VM.Allocate", "VM.Config.Options"], privileges].concat();
            let storage: &[&str] = &["Datastore.AllocateSpace"];
            let rights = [("/vms", &own[..]), ("/storage", storage)];
            let cluster = TokenCluster::with(version, &rights);
            cluster.world.add_volume("pve1", "local:iso/a.iso", 1 << 20);
            cluster
        };
        let config = "/nodes/pve1/qemu/9000/config";
        let refused = |name: &str| format!("Permission check failed (/vms/9000, {name})");
        let [init, cdrom, disks] = ["VM.Config.Cloudinit", "VM.Config.CDROM", "VM.Config.Disk"];
        for (drive, what, needed) in [
            // ide2 holds the cloud-init image, ide3 and sata0 nothing, scsi0 a disk.
            ("ide2", image, vec![init, cdrom]),
            ("ide2", cloudinit, vec![init, cdrom]),
            ("ide3", image, vec![cdrom]),
            ("ide3", "none%2Cmedia%3Dcdrom", vec![cdrom]),
            ("sata0", cloudinit, vec![init, cdrom]),
            ("sata0", disk, vec![disks]),
            ("scsi0", image, vec![disks, cdrom]),
        ] {
            let form = format!("{drive}={what}");
            for missing in &needed {
                let rest: Vec<&str> =
                    needed.iter().filter(|one| *one != missing).copied().collect();
                let reported = with(&[&rest[..], &["VM.Config.CPU"]].concat()).await;
                let reported = reported.refused("PUT", config, &form).await;
                assert_eq!(reported, refused(missing), "{form}");
            }
            with(&needed).await.allowed("PUT", config, &form).await;
        }
        // Removing a drive needs the privilege for its content.
        let reported = with(&[init, disks]).await.refused("PUT", config, "delete=ide2").await;
        assert_eq!(reported, refused(cdrom));
        with(&[init, cdrom]).await.allowed("PUT", config, "delete=ide2").await;
    }
}

// Invariant: a list of volumes shows the caller only volumes that the caller may see.

#[tokio::test(start_paused = true)]
async fn volumes_are_shown_to_those_who_may_have_them() {
    let volumes = ["vm-777-disk-0.qcow2", "iso/a.iso", "snippets/a.yaml"];
    let visible = async |rights: &[(&str, &[&str])]| -> Vec<String> {
        let cluster = TokenCluster::with(PveVersion::V8_4, rights);
        for volume in volumes {
            let directory = if volume.contains('/') { "" } else { "777/" };
            cluster.world.add_volume("pve1", &format!("shared:{directory}{volume}"), 1 << 20);
        }
        let all = cluster.allowed("GET", "/nodes/pve1/storage/shared/content", "").await;
        let all = all.as_array().unwrap().iter();
        let ids = all.map(|one| one["volid"].as_str().unwrap().replace("shared:", ""));
        let mut ids: Vec<String> = ids.map(|id| id.replace("777/", "")).collect();
        ids.sort();
        ids
    };
    let audit: &[&str] = &["Datastore.Audit"];
    assert_eq!(visible(&[("/storage", audit)]).await, ["iso/a.iso"]);
    let disks: &[&str] = &["VM.Config.Disk"];
    let own = visible(&[("/storage", audit), ("/vms/777", disks)]).await;
    assert_eq!(own, ["iso/a.iso", "vm-777-disk-0.qcow2"]);
    let space: &[&str] = &["Datastore.AllocateSpace"];
    assert_eq!(visible(&[("/storage", space), ("/vms/777", disks)]).await, ["iso/a.iso"]);
    let all: &[&str] = &["Datastore.Audit", "Datastore.Allocate"];
    assert_eq!(visible(&[("/storage", all)]).await, ["iso/a.iso", "snippets/a.yaml", volumes[0]]);
}
