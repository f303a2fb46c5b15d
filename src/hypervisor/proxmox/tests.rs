#![expect(clippy::unwrap_used, reason = "tests")]

mod figures;

use std::sync::atomic::{AtomicBool, Ordering};

use proxmox_client::Endpoint;
use proxmox_client::transport::Transport;
use serde_json::{Value, json};

use drover_model::spec::CloneStrategy;
use proxmox_client::PveError;

use super::*;
use crate::testing::{Script, Step, connection, marks, spec, token};

fn vm() -> VmRef {
    let (cloud, node) = (CloudId::new("primary"), NodeName::new("pve1"));
    VmRef { cloud, node, vmid: VmId(101), guest: GuestType::Vm }
}

fn port(script: &Script, clouds: &[&str]) -> Proxmox {
    let port = Proxmox::new(None, Arc::new(script.clone()), TASK_POLL_INTERVAL);
    for cloud in clouds {
        port.set_cloud(CloudId::new(cloud), &connection(&["a", "b"], token())).unwrap();
    }
    port
}

fn primary() -> CloudId {
    CloudId::new("primary")
}

fn status(quorate: u8) -> Value {
    json!([
        {"type": "cluster", "name": "lab", "quorate": quorate, "nodes": "2"},
        {"type": "node", "name": "pve1", "online": 1, "local": "1"},
        {"type": "node", "name": "pve2", "online": 0},
    ])
}

fn config() -> Value {
    json!({
        "name": marks().name("ci"),
        "description": marks().describe("x"),
        "digest": "abc",
        "tags": "drover;drover-7k2m9qxw",
        "cores": 2,
    })
}

// Invariant: a cluster is identified by its root authority, and quorum is what the endpoint itself
// says.

#[tokio::test(start_paused = true)]
async fn a_cluster_is_identified_in_three_calls() {
    let script = Script::new(|asked| match asked {
        "GET /version" => Step::Data(json!({"version": "8.4.21", "release": "8.4"})),
        "GET /cluster/status" => Step::Data(status(1)),
        _ => Step::Data(json!([
            {"filename": "pve-ssl.pem", "fingerprint": "11:22"},
            {"filename": "pve-root-ca.pem", "fingerprint": "9F:31:C0:AA:52:E7:D4:10:FF:00"},
        ])),
    });
    let observed = port(&script, &["primary"]).identify(&primary()).await.unwrap();
    assert_eq!(observed.cluster.as_str(), "9f31c0aa52e7d410");
    assert_eq!(observed.version, "8.4.21");
    assert!(observed.quorate);
    assert_eq!(observed.nodes, [(NodeName::new("pve1"), true), (NodeName::new("pve2"), false)]);
    assert_eq!(script.seen().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn two_clouds_on_one_cluster_share_what_is_its() {
    let script = Script::new(|asked| match asked {
        "GET /version" => Step::Data(json!({"version": "8.4.21"})),
        "GET /cluster/status" => Step::Data(status(1)),
        _ => Step::Data(
            json!([{"filename": "pve-root-ca.pem", "fingerprint": "9F:31:C0:AA:52:E7:D4:10"}]),
        ),
    });
    let port = port(&script, &["primary", "second"]);
    port.identify(&primary()).await.unwrap();
    port.identify(&CloudId::new("second")).await.unwrap();
    let cluster = |id: &str| port.cloud(&CloudId::new(id)).unwrap().cluster().clone();
    assert!(Arc::ptr_eq(&cluster("primary"), &cluster("second")));
}

#[tokio::test(start_paused = true)]
async fn a_cloud_that_is_not_there_is_unreachable() {
    let script = Script::new(|_| Step::Silence);
    let port = port(&script, &["primary"]);
    port.drop_cloud(&primary());
    assert_eq!(
        port.survey(&primary(), Duration::ZERO).await.unwrap_err().kind,
        FaultKind::Unreachable
    );
    assert!(script.seen().is_empty());
}

// Invariant: through a replaced connection no VMID counts as free before the new one is known to
// lead to the same cluster.

/// Identifies the cluster, and says that every VMID is free.
fn empty(root: &'static str) -> Script {
    Script::new(move |asked| match asked {
        "GET /version" => Step::Data(json!({"version": "8.4.21"})),
        "GET /cluster/status" => Step::Data(status(1)),
        "GET /nodes/localhost/certificates/info" => {
            Step::Data(json!([{"filename": "pve-root-ca.pem", "fingerprint": root}]))
        }
        "GET /cluster/nextid vmid=101" => Step::Data(json!("101")),
        asked => panic!("{asked}"),
    })
}

#[tokio::test(start_paused = true)]
async fn an_id_is_not_free_behind_another_cluster() {
    const HERE: &str = "9F:31:C0:AA:52:E7:D4:10";
    for (root, then) in [(HERE, IdStatus::Free), ("00:31:C0:AA:52:E7:D4:10", IdStatus::Unknown)] {
        let cluster = Arc::new(Mutex::new(empty(HERE)));
        let port = Proxmox::new(None, Arc::new(Switched(cluster.clone())), TASK_POLL_INTERVAL);
        let set = || port.set_cloud(primary(), &connection(&["a"], token())).unwrap();
        set();
        port.identify(&primary()).await.unwrap();
        assert_eq!(port.id_taken(&primary(), VmId(101)).await, Ok(IdStatus::Free));
        *cluster.lock() = empty(root);
        set();
        assert_eq!(port.id_taken(&primary(), VmId(101)).await, Ok(IdStatus::Unknown));
        set();
        assert_eq!(port.id_taken(&primary(), VmId(101)).await, Ok(IdStatus::Unknown));
        port.identify(&primary()).await.unwrap();
        assert_eq!(port.id_taken(&primary(), VmId(101)).await, Ok(then), "{root}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_guest_is_not_gone_where_the_name_leads_to_another_cluster_by_now() {
    let elsewhere = Arc::new(AtomicBool::new(false));
    let moved = elsewhere.clone();
    let script = Script::new(move |asked| match asked {
        "GET /version" => Step::Data(json!({"version": "8.4.21"})),
        "GET /cluster/status" => Step::Data(status(1)),
        "GET /nodes/localhost/certificates/info" => {
            let first = if moved.load(Ordering::Relaxed) { "00" } else { "9F" };
            let root = format!("{first}:31:C0:AA:52:E7:D4:10");
            Step::Data(json!([{"filename": "pve-root-ca.pem", "fingerprint": root}]))
        }
        "GET /cluster/nextid vmid=101" => Step::Data(json!("101")),
        asked => panic!("{asked}"),
    });
    let port = port(&script, &["primary"]);
    port.identify(&primary()).await.unwrap();
    assert_eq!(port.look(&vm()).await.unwrap().id, IdStatus::Free);
    elsewhere.store(true, Ordering::Relaxed);
    assert_eq!(port.look(&vm()).await.unwrap().id, IdStatus::Unknown);
}

/// Connects to the cluster that has the host name at the time.
struct Switched(Arc<Mutex<Script>>);

impl Dialer for Switched {
    fn dial(
        &self,
        endpoint: &Endpoint,
        connection: &Connection,
    ) -> Result<Arc<dyn Transport>, PveError> {
        self.0.lock().dial(endpoint, connection)
    }
}

// Invariant: a survey costs two calls, and distinguishes guests from other rows.

#[tokio::test(start_paused = true)]
async fn a_survey_reads_loose_rows() {
    let script = Script::new(|asked| match asked {
        "GET /cluster/status" => Step::Data(status(0)),
        _ => Step::Data(json!([
            {"type": "qemu", "vmid": "101", "node": "pve1", "status": "unknown", "tags": "B;a c", "lock": "clone"},
            {"type": "qemu", "vmid": 9000, "node": "pve1", "status": "stopped", "template": "1", "name": "tmpl"},
            {"type": "lxc", "vmid": 200, "node": "pve2", "name": 5},
            {"type": "storage", "id": "storage/pve1/local", "node": "pve1"},
        ])),
    });
    let survey = port(&script, &["primary"]).survey(&primary(), Duration::ZERO).await.unwrap();
    assert!(!survey.quorate);
    let [fresh, template, container] = survey.guests.as_slice() else { panic!("{survey:?}") };
    assert_eq!((fresh.vmid, fresh.name.as_ref()), (VmId(101), None));
    assert_eq!(fresh.tags, ["a", "b", "c"]);
    assert_eq!(fresh.lock.as_deref(), Some("clone"));
    assert!(template.template && !template.container);
    assert!(container.container && container.status == "unknown");
    let asked = ["a GET /cluster/status", "b GET /cluster/status"];
    assert_eq!(script.seen(), [asked[0], asked[1], "b GET /cluster/resources"]);
}

// Invariant: readers of a cluster's list share the one that was read shortly before.

fn listing() -> Script {
    Script::new(|asked| match asked {
        "GET /version" => Step::Data(json!({"version": "8.4.21"})),
        "GET /cluster/status" => Step::Data(status(1)),
        "GET /cluster/resources" => Step::Data(json!([
            {"type": "qemu", "vmid": 101, "node": "pve1", "status": "running"},
        ])),
        _ => Step::Data(
            json!([{"filename": "pve-root-ca.pem", "fingerprint": "9F:31:C0:AA:52:E7:D4:10"}]),
        ),
    })
}

fn lists(script: &Script) -> usize {
    script.seen().iter().filter(|call| call.contains("/cluster/resources")).count()
}

#[tokio::test(start_paused = true)]
async fn a_list_is_read_once_in_ten_seconds_for_all_clouds_of_a_cluster() {
    let (script, second) = (listing(), CloudId::new("second"));
    let port = port(&script, &["primary", "second"]);
    port.identify(&primary()).await.unwrap();
    port.identify(&second).await.unwrap();
    let within = Duration::from_secs(10);
    let (one, other, fleet) = tokio::join!(
        port.survey(&primary(), within),
        port.survey(&second, within),
        port.fleet(&second),
    );
    assert_eq!((one.unwrap().guests.len(), other.unwrap().guests.len()), (1, 1));
    assert_eq!(fleet.unwrap().guests().len(), 1);
    assert_eq!(lists(&script), 1);
    tokio::time::advance(Duration::from_secs(9)).await;
    let survey = port.survey(&primary(), within).await.unwrap();
    assert!(survey.age >= Duration::from_secs(9) && lists(&script) == 1, "{survey:?}");
    port.survey(&primary(), Duration::ZERO).await.unwrap();
    assert_eq!(lists(&script), 2, "somebody wants to know how it is now");
    tokio::time::advance(within).await;
    port.fleet(&second).await.unwrap();
    assert_eq!(lists(&script), 3);
}

#[tokio::test(start_paused = true)]
async fn a_list_that_could_not_be_read_is_refused_to_all_who_waited_for_it() {
    let script = Script::new(|asked| match asked {
        "GET /cluster/status" => Step::Data(status(1)),
        _ => Step::Silence,
    });
    let port = port(&script, &["primary"]);
    let all = futures_util::future::join_all((0..20).map(|_| port.fleet(&primary()))).await;
    assert!(all.iter().all(Result::is_err));
    assert_eq!(lists(&script), 1);
}

// Invariant: a VMID is free only if an endpoint with quorum says so.

async fn asked_id(
    answer: impl FnMut(&str, &str) -> Step + Send + 'static,
) -> (Result<IdStatus, FaultKind>, Vec<String>) {
    let script = Script::by_host(answer);
    let observed = port(&script, &["primary"]).id_taken(&primary(), VmId(101)).await;
    (observed.map_err(|fault| fault.kind), script.seen())
}

#[tokio::test(start_paused = true)]
async fn an_id_is_free_only_by_a_quorate_endpoint() {
    let (observed, seen) = asked_id(|host, asked| match (host, asked) {
        (_, "GET /cluster/nextid vmid=101") => Step::Data(json!("101")),
        ("a", _) => Step::Data(status(0)),
        _ => Step::Data(status(1)),
    })
    .await;
    assert_eq!(observed, Ok(IdStatus::Free));
    assert_eq!(seen.len(), 4, "{seen:?}");
    let (observed, _) = asked_id(|_, asked| match asked {
        "GET /cluster/status" => Step::Data(status(0)),
        _ => Step::Data(json!(101)),
    })
    .await;
    assert_eq!(observed, Ok(IdStatus::Unknown));
    let (observed, seen) =
        asked_id(|_, _| Step::Errors(json!({"vmid": "VM 101 already exists"}))).await;
    assert_eq!((observed, seen.len()), (Ok(IdStatus::Taken), 1));
    for silent in [
        |_: &str, _: &str| Step::Silence,
        |_: &str, _: &str| Step::NoRoute,
        |_: &str, _: &str| Step::Refuse(596, "x"),
    ] {
        assert_eq!(asked_id(silent).await.0, Ok(IdStatus::Unknown));
    }
}

// Invariant: a template that cannot be cloned is refused with the reason.

async fn located(answer: impl FnMut(&str) -> Step + Send + 'static) -> Result<NodeName, Fault> {
    let port = port(&Script::new(answer), &["primary"]);
    let found = port.locate(&primary(), &Sought::Id(VmId(9000)), None).await?;
    Ok(found.candidates[0].node.clone())
}

#[tokio::test(start_paused = true)]
async fn a_template_is_found_or_its_absence_explained() {
    let row = |kind: &str, template: u8| json!([{"type": kind, "vmid": 9000, "node": "pve2", "template": template}]);
    let stale = row("qemu", 0);
    let node = located(move |asked| match asked.contains("/config") {
        true => Step::Data(json!({"template": 1})),
        false => Step::Data(stale.clone()),
    });
    assert_eq!(node.await.unwrap().as_str(), "pve2");
    let plain = row("qemu", 0);
    let fault = located(move |asked| match asked.contains("/config") {
        true => Step::Data(json!({"name": "x"})),
        false => Step::Data(plain.clone()),
    });
    insta::assert_snapshot!(fault.await.unwrap_err(), @"guest `9000` on cloud `primary` is not a template: `qm template 9000` on its node makes it one for good");
    let container = row("lxc", 1);
    let fault = located(move |_| Step::Data(container.clone())).await.unwrap_err();
    insta::assert_snapshot!(fault, @"guest `9000` on cloud `primary` is a container, not a VM template: set `guestType: CONTAINER`, or name another template");
    let hidden = located(|asked| match asked {
        "GET /cluster/nextid vmid=9000" => Step::Errors(json!({"vmid": "VM 9000 already exists"})),
        "GET /access/permissions path=/vms/9000" => Step::Data(json!({})),
        _ => Step::Data(json!([])),
    });
    insta::assert_snapshot!(hidden.await.unwrap_err(), @"`ci@pve!drover` does not see guest `9000` on cloud `primary`: give it the privilege `VM.Audit` on `/vms/9000`");
    let young = located(|asked| match asked {
        "GET /access/permissions path=/vms/9000" => {
            Step::Data(json!({"/vms/9000": {"VM.Audit": 1}}))
        }
        "GET /cluster/nextid vmid=9000" => Step::Errors(json!({"vmid": "VM 9000 already exists"})),
        _ => Step::Data(json!([])),
    });
    let young = young.await.unwrap_err();
    insta::assert_snapshot!(young, @"guest `9000` is not in the list of cloud `primary` yet; drover looks again");
    assert!(!young.kind.counts_against_breaker());
    let gone = located(|asked| match asked {
        "GET /cluster/status" => Step::Data(status(1)),
        "GET /cluster/nextid vmid=9000" => Step::Data(json!("9000")),
        _ => Step::Data(json!([])),
    });
    insta::assert_snapshot!(gone.await.unwrap_err(), @"cloud `primary` has no guest `9000`: check `templateVmId`");
}

// Invariant: an inspection finds a guest on another node, and reports less when the login may see
// less.

#[tokio::test(start_paused = true)]
async fn a_guest_that_moved_is_found() {
    let script = Script::new(|asked| match asked {
        "GET /cluster/nextid vmid=101" => Step::Errors(json!({"vmid": "VM 101 already exists"})),
        "GET /nodes/pve1/qemu/101/config" => Step::Refuse(
            500,
            "Configuration file 'nodes/pve1/qemu-server/101.conf' does not exist\n",
        ),
        "GET /cluster/resources" => {
            Step::Data(json!([{"type": "qemu", "vmid": 101, "node": "pve2"}]))
        }
        "GET /nodes/pve2/qemu/101/config" => Step::Data(config()),
        _ => Step::Data(json!({"status": "running", "qmpstatus": "running"})),
    });
    let observed = port(&script, &["primary"]).look(&vm()).await.unwrap();
    assert_eq!(observed.node, Some(NodeName::new("pve2")));
    assert_eq!(observed.running, Some(true));
    assert!(drover_model::marks::is_ours(&observed.marks.unwrap(), &marks(), VmId(101)));
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_may_not_be_read_has_no_marks() {
    let script = Script::new(|asked| match asked.contains("nextid") {
        true => Step::Errors(json!({"vmid": "VM 101 already exists"})),
        false => Step::Refuse(403, "Permission check failed (/vms/101, VM.Audit)"),
    });
    let observed = port(&script, &["primary"]).look(&vm()).await.unwrap();
    assert_eq!((observed.id, observed.marks, observed.running), (IdStatus::Taken, None, None));
}

// Invariant: a clone carries its marks in the call itself.

#[tokio::test(start_paused = true)]
async fn a_clone_carries_its_marks() {
    let script = Script::new(|_| Step::Data(json!("UPID:pve1:1:1:1:qmclone:9000:ci@pve!drover:")));
    let port = port(&script, &["primary"]);
    let mut call = CloneCall {
        cloud: primary(),
        node: NodeName::new("pve1"),
        target: None,
        marks: marks(),
        spec: spec(),
    };
    let upid = port.clone_vm(call.clone()).await.unwrap();
    assert!(upid.as_str().contains(":qmclone:"));
    call.spec.clone = CloneStrategy::Full;
    call.spec.target_pool = None;
    call.target = Some(NodeName::new("pve2"));
    port.clone_vm(call).await.unwrap();
    let seen = script.seen();
    let head = "a POST /nodes/pve1/qemu/9000/clone newid=101 name=ci-linux-7k2m9qxw-4f8z1c3px9t2vkab description=built by the team\n\n```drover-1\ninstallation 7k2m9qxw\n";
    assert!(seen[0].starts_with(head), "{}", seen[0]);
    assert!(seen[0].ends_with("``` full=0 pool=ci") || seen[0].ends_with("```\n full=0 pool=ci"));
    assert!(seen[1].ends_with(" full=1 storage=fast target=pve2"));
}

// Invariant: a guest is fenced only under its own marks, with the digest that was read.

#[tokio::test(start_paused = true)]
async fn fencing_reads_and_tags_in_two_calls() {
    let script = Script::new(|asked| match asked.starts_with("GET") {
        true => Step::Data(config()),
        false => Step::Data(json!(null)),
    });
    let observed = port(&script, &["primary"]).fence(&vm(), &marks()).await.unwrap();
    assert_eq!(observed.id, IdStatus::Taken);
    assert_eq!(
        script.seen()[1],
        "a PUT /nodes/pve1/qemu/101/config tags=drover;drover-7k2m9qxw;drover-retiring digest=abc"
    );
}

#[tokio::test(start_paused = true)]
async fn fencing_leaves_strangers_and_locked_guests_unwritten() {
    let stranger = Script::new(|_| Step::Data(json!({"name": "theirs", "digest": "abc"})));
    let fault = port(&stranger, &["primary"]).fence(&vm(), &marks()).await.unwrap_err();
    assert_eq!((fault.kind, stranger.seen().len()), (FaultKind::Foreign, 1));
    let mut locked = config();
    locked["lock"] = json!("backup");
    let script = Script::new(move |_| Step::Data(locked.clone()));
    let fault = port(&script, &["primary"]).fence(&vm(), &marks()).await.unwrap_err();
    assert_eq!(fault.kind, FaultKind::Locked { lock: "backup".into() });
    assert_eq!(script.seen().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn fencing_goes_on_when_only_the_tag_is_refused() {
    let script = Script::new(|asked| match asked.starts_with("GET") {
        true => Step::Data(config()),
        false => Step::Refuse(403, "Permission check failed (/, Sys.Modify for modifying tag 'x')"),
    });
    assert!(port(&script, &["primary"]).fence(&vm(), &marks()).await.is_ok());
    let changed = Script::new(|asked| match asked.starts_with("GET") {
        true => Step::Data(config()),
        false => Step::Refuse(500, "checksum mismatch (file change by other user?)"),
    });
    let fault = port(&changed, &["primary"]).fence(&vm(), &marks()).await.unwrap_err();
    assert_eq!(fault.kind, FaultKind::Contention);
}

// Invariant: power calls and destroys have exactly the parameters that Proxmox needs.

#[tokio::test(start_paused = true)]
async fn power_calls_are_spelled_as_proxmox_wants() {
    let script = Script::new(|_| Step::Data(json!("UPID:pve1:1:1:1:x:101:ci@pve!drover:")));
    let port = port(&script, &["primary"]);
    port.start(&vm()).await.unwrap();
    port.shutdown(&vm(), Duration::from_secs(30)).await.unwrap();
    port.stop(&vm()).await.unwrap();
    port.destroy(&vm()).await.unwrap();
    assert_eq!(
        script.seen(),
        [
            "a POST /nodes/pve1/qemu/101/status/start",
            "a POST /nodes/pve1/qemu/101/status/shutdown forceStop=1 timeout=30",
            "a POST /nodes/pve1/qemu/101/status/stop overrule-shutdown=1",
            "a DELETE /nodes/pve1/qemu/101 purge=1 destroy-unreferenced-disks=0",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn configuring_awaits_the_resize() {
    let resized = "UPID:pve1:00000001:00000001:6B015BC1:resize:101:ci@pve!drover:";
    for (exit, wanted) in [
        ("OK", None),
        ("shrinking disks is not supported", Some("broken")),
        ("unexpected status", Some("unknown-outcome")),
    ] {
        let script = Script::new(move |asked| match asked {
            "GET /nodes/pve1/qemu/101/config" => {
                let mut config = config();
                config["scsi0"] = json!("store:101/vm-101-disk-0.qcow2,size=2G");
                Step::Data(config)
            }
            "GET /cluster/tasks" => {
                Step::Data(json!([{"upid": resized, "endtime": 5, "status": exit}]))
            }
            _ if asked.contains("/resize") => Step::Data(json!(resized)),
            _ => Step::Data(json!(null)),
        });
        let call = ConfigureCall { vm: vm(), marks: marks(), spec: spec() };
        let done = port(&script, &["primary"]).configure(call).await;
        assert_eq!(done.err().map(|fault| fault.kind.label()), wanted, "{exit}");
    }
}

// Invariant: a storage that did not answer is not taken for an empty one.

#[tokio::test(start_paused = true)]
async fn leftovers_are_looked_for_on_every_storage() {
    let script = Script::new(|asked| match asked {
        "GET /nodes/pve1/storage content=images enabled=1" => {
            Step::Data(json!([{"storage": "fast", "active": 1}, {"storage": "slow"}]))
        }
        "GET /nodes/pve1/storage/fast/content content=images vmid=101" => Step::Data(json!([])),
        _ => Step::Data(json!([{"volid": "slow:101/vm-101-disk-0.qcow2", "vmid": "101"}])),
    });
    let left = port(&script, &["primary"]).leftovers(&vm(), &[], None).await.unwrap();
    assert_eq!(left, ["slow:101/vm-101-disk-0.qcow2"]);
    let script = Script::new(|_| Step::Data(json!([{"storage": "nfs", "active": 0}])));
    let fault = port(&script, &["primary"]).leftovers(&vm(), &[], None).await.unwrap_err();
    assert_eq!(
        (fault.kind, fault.culprit),
        (FaultKind::Contention, Culprit::Storage("nfs".into()))
    );
}

// Invariant: only leftover volumes of the guest itself are removed, and only while its VMID is
// free; those that cannot be removed are reported.

/// The volumes left after a destroy, one of the guest and one of another, and how many removals
/// were tried.
async fn remains(taken: bool) -> (Vec<String>, usize) {
    let script = Script::new(move |asked| match asked {
        "GET /nodes/pve1/storage content=images enabled=1" => {
            Step::Data(json!([{"storage": "nfs"}]))
        }
        "GET /cluster/nextid vmid=101" if taken => {
            Step::Errors(json!({"vmid": "VM 101 already exists"}))
        }
        "GET /cluster/nextid vmid=101" => Step::Data(json!("101")),
        "GET /cluster/status" => Step::Data(status(1)),
        _ if asked.starts_with("DELETE") => {
            Step::Refuse(403, "Permission check failed (/storage/nfs, Datastore.Allocate)")
        }
        _ => Step::Data(json!([
            {"volid": "nfs:101/vm-101-disk-0.qcow2", "vmid": "101"},
            {"volid": "nfs:101/vm-101-disk-7.qcow2", "vmid": "101"},
        ])),
    });
    let ours = ["nfs:9000/base-9000-disk-0.qcow2/101/vm-101-disk-0.qcow2".to_owned()];
    let left = port(&script, &["primary"]).leftovers(&vm(), &ours, None).await.unwrap();
    let freed = "a DELETE /nodes/pve1/storage/nfs/content/nfs%3A101%2Fvm-101-disk-0.qcow2";
    let deletes: Vec<String> =
        script.seen().into_iter().filter(|one| one.contains("DELETE")).collect();
    assert!(deletes.iter().all(|one| one.trim_end() == freed), "{deletes:?}");
    (left, deletes.len())
}

#[tokio::test(start_paused = true)]
async fn volumes_that_were_the_guests_are_removed_once_its_id_is_free() {
    let both = ["nfs:101/vm-101-disk-0.qcow2", "nfs:101/vm-101-disk-7.qcow2"];
    let (left, deletes) = remains(true).await;
    assert_eq!((left, deletes), (both.map(str::to_owned).to_vec(), 0), "somebody has the id");
    let (left, deletes) = remains(false).await;
    assert_eq!((left, deletes), (both.map(str::to_owned).to_vec(), 1), "refused, and reported");
}

#[tokio::test(start_paused = true)]
async fn the_memory_of_a_snapshot_is_removed_on_any_storage_by_its_whole_name() {
    let script = Script::new(|asked| match asked {
        "GET /nodes/pve1/storage content=images enabled=1" => {
            Step::Data(json!([{"storage": "nfs"}, {"storage": "lvm"}]))
        }
        "GET /cluster/nextid vmid=101" => Step::Data(json!("101")),
        "GET /cluster/status" => Step::Data(status(1)),
        _ if asked.starts_with("DELETE") => {
            Step::Refuse(403, "Permission check failed (/storage/nfs, Datastore.Allocate)")
        }
        _ if asked.contains("/nfs/") => Step::Data(json!([
            {"volid": "nfs:101/vm-101-state-ram.raw", "vmid": "101"},
            {"volid": "nfs:101/vm-101-state-ram2.raw", "vmid": "101"},
        ])),
        _ => Step::Data(json!([{"volid": "lvm:vm-101-state-ram", "vmid": "101"}])),
    });
    let ours = ["vm-101-state-ram".to_owned()];
    port(&script, &["primary"]).leftovers(&vm(), &ours, None).await.unwrap();
    let seen = script.seen().into_iter();
    let mut freed: Vec<String> = seen.filter(|one| one.contains("DELETE")).collect();
    freed.sort();
    assert_eq!(freed.len(), 2, "{freed:?}");
    assert!(freed[0].contains("lvm%3Avm-101-state-ram"), "{freed:?}");
    assert!(freed[1].contains("nfs%3A101%2Fvm-101-state-ram.raw"), "{freed:?}");
}

// Invariant: with a runtime of its own, a call goes on when its answer is dropped.

#[tokio::test(start_paused = true)]
async fn a_dropped_call_is_not_taken_back() {
    let script = Script::new(|_| Step::Data(json!("UPID:pve1:1:1:1:x:101:ci@pve!drover:")));
    let port = Proxmox::new(Some(Handle::current()), Arc::new(script.clone()), TASK_POLL_INTERVAL);
    port.set_cloud(primary(), &connection(&["a"], token())).unwrap();
    drop(port.start(&vm()));
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(script.seen().len(), 1);
}
