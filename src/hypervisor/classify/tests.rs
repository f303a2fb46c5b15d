//! Real texts of Proxmox VE 8.4 and 9.2, with the fault that each must become.

use bytes::Bytes;
use proxmox_client::transport::Method;
use proxmox_client::transport::Reply;

use super::*;

fn judged(method: Method, path: &str, status: u16, reason: &str, body: &str) -> Fault {
    let cloud = CloudId::new("primary");
    let place = CallOrigin { cloud: &cloud, login: "ci@pve!limited" };
    let reply = Reply {
        status,
        reason: reason.into(),
        content_type: None,
        body: Bytes::from(body.to_owned()),
    };
    refusal(place, &Call::new(method, path), &Refusal::of(&reply))
}

/// A fault in a few words: its kind and its culprit.
fn verdict(fault: &Fault) -> String {
    let detail = if let FaultKind::Locked { lock } = &fault.kind {
        format!("({lock})")
    } else if let FaultKind::Denied { privilege, path } = &fault.kind {
        format!("({} {})", privilege.as_deref().unwrap_or("-"), path.as_deref().unwrap_or("-"))
    } else {
        String::new()
    };
    format!("{}{detail} {:?}", fault.kind.label(), fault.culprit)
}

const VM: &str = "/nodes/pve1/qemu/101/config";
const CLONE: &str = "/nodes/pve1/qemu/100/clone";

// Invariant: a refused call is judged by its text, on nodes with and without `message`.

#[test]
fn texts_of_requests_are_kept_apart() {
    use Method::{Delete, Get, Post, Put};
    let cases: &[(Method, &str, u16, &str, &str)] = &[
        (
            Get,
            VM,
            500,
            "Configuration file 'nodes/pve1/qemu-server/777.conf' does not exist",
            "gone Guest",
        ),
        (
            Post,
            CLONE,
            500,
            "unable to find configuration file for VM 777 on node 'pve1'",
            "broken Template",
        ),
        (Post, CLONE, 500, "unable to create VM 120: config file already exists", "id-taken Guest"),
        (
            Post,
            CLONE,
            500,
            "unable to create VM 101 - VM 101 already exists on node 'pve1'",
            "id-taken Guest",
        ),
        (Put, VM, 500, "VM is locked (backup)", "locked(backup) Guest"),
        (Post, CLONE, 500, "VM is locked (create)", "locked(create) Template"),
        (
            Put,
            VM,
            500,
            "can't lock file '/var/lock/qemu-server/lock-121.conf' - got timeout",
            "contention Guest",
        ),
        (Put, VM, 500, "checksum mismatch (file change by other user?)", "contention Guest"),
        (Post, CLONE, 500, "cluster not ready - no quorum?", "contention Cloud(primary)"),
        (
            Put,
            VM,
            500,
            "unable to open file '/etc/pve/nodes/pve1/qemu-server/100.conf.tmp.1234' - Permission denied",
            "contention Cloud(primary)",
        ),
        (
            Post,
            CLONE,
            500,
            "cfs-lock 'file-user_cfg' error: got lock request timeout",
            "contention Cloud(primary)",
        ),
        (
            Get,
            "/nodes/nope/status",
            500,
            "hostname lookup 'nope' failed - failed to get address info for: nope: Name or service not known",
            "broken Node(nope)",
        ),
        (Post, CLONE, 500, "storage 'nope' does not exist", "broken Storage(\"nope\")"),
        (Post, CLONE, 500, "parameter 'storage' not allowed for linked clones", "broken Template"),
        (
            Post,
            CLONE,
            500,
            "Linked clone feature is not supported for 'store:101/vm-101-disk-0.qcow2' (scsi0)",
            "broken Template",
        ),
        (Put, VM, 500, "SSH public key validation error", "broken Template"),
        (Put, VM, 500, "only root can set 'args' config", "denied(root@pam -) Template"),
        (
            Delete,
            "/nodes/pve1/qemu/100",
            500,
            "can't remove VM 100 - protection mode enabled",
            "broken Guest",
        ),
        (
            Delete,
            "/nodes/pve1/qemu/120",
            500,
            "VM 120 is running - destroy failed",
            "contention Guest",
        ),
        (
            Post,
            CLONE,
            403,
            "Permission check failed (/vms/100, VM.Clone)",
            "denied(VM.Clone /vms/100) Template",
        ),
        (
            Get,
            "/cluster/status",
            403,
            "Permission check failed (/, Sys.Audit)",
            "denied(Sys.Audit /) Cloud(primary)",
        ),
        (
            Put,
            VM,
            403,
            "Permission check failed (/storage/store2, Datastore.AllocateSpace)",
            "denied(Datastore.AllocateSpace /storage/store2) Storage(\"store2\")",
        ),
        (
            Put,
            VM,
            403,
            "Permission check failed (/, Sys.Modify for modifying tag 'x')",
            "denied(Sys.Modify /) Cloud(primary)",
        ),
        (
            Post,
            CLONE,
            403,
            "Permission check failed (pool 'nope' does not exist)",
            "broken Template",
        ),
        // The one privilege of a clone that Proxmox does not name.
        (Post, CLONE, 403, "Permission check failed", "denied(VM.Allocate -) Cloud(primary)"),
        (Post, "/nodes/pve1/qemu", 403, "Permission check failed", "denied(- -) Cloud(primary)"),
        (Get, "/nodes", 401, "No ticket", "denied(- -) Cloud(primary)"),
        (Get, VM, 595, "No route to host", "contention Node(pve1)"),
        (Post, CLONE, 595, "Connection refused", "contention Node(pve1)"),
        (Get, VM, 596, "Connection timed out", "contention Node(pve1)"),
        (Post, CLONE, 596, "Connection timed out", "unknown-outcome Node(pve1)"),
        (Post, CLONE, 599, "Too many redirections", "unknown-outcome Node(pve1)"),
        (Put, VM, 597, "broken", "unknown-outcome Node(pve1)"),
        (Post, "/nodes/pve1/qemu/900/agent/exec", 596, "Broken pipe", "unknown-outcome Node(pve1)"),
        (
            Get,
            "/cluster/nextid",
            500,
            "unable to get any free VMID in range [100, 200]",
            "capacity Cloud(primary)",
        ),
        (Get, "/nope", 501, "Method 'GET /nope' not implemented", "broken Cloud(primary)"),
    ];
    for (method, path, status, text, wanted) in cases {
        let old = judged(*method, path, *status, text, r#"{"data":null}"#);
        assert_eq!(verdict(&old), *wanted, "{text}");
        let body = serde_json::json!({"data": null, "message": format!("{text}\n")}).to_string();
        let new = judged(*method, path, *status, "whatever", &body);
        assert_eq!(verdict(&new), *wanted, "{text}");
    }
}

#[test]
fn parameter_errors_are_kept_apart() {
    let ask = |path: &str, errors: &str| {
        let body = format!(
            r#"{{"data":null,"message":"Parameter verification failed.\n","errors":{errors}}}"#
        );
        judged(Method::Get, path, 400, "Parameter verification failed.", &body)
    };
    let taken = ask("/cluster/nextid", r#"{"vmid":"VM 120 already exists"}"#);
    assert_eq!(verdict(&taken), "id-taken Guest");
    let task = ask("/nodes/pve1/tasks/x/status", r#"{"upid":"no such task"}"#);
    assert_eq!(verdict(&task), "gone Guest");
    let other = ask(VM, r#"{"cores":"type check ('integer') failed - got 'x'"}"#);
    assert_eq!(verdict(&other), "broken Template");
    insta::assert_snapshot!(other, @"`GET /nodes/pve1/qemu/101/config` on cloud `primary` failed: 400 Parameter verification failed. `cores`: type check ('integer') failed - got 'x';");
}

// Invariant: the exit status of a task is judged by the same rules.

#[test]
fn exit_statuses_are_kept_apart() {
    let cloud = CloudId::new("primary");
    let place = CallOrigin { cloud: &cloud, login: "ci@pve!limited" };
    let cases = [
        (
            "qmclone",
            "clone failed: can't lock file '/var/lock/pve-manager/pve-storage-local-lvm' - got timeout",
            "contention Storage(\"local-lvm\")",
        ),
        (
            "qmclone",
            "clone failed: cfs-lock 'storage-ceph' error: got lock request timeout",
            "contention Storage(\"ceph\")",
        ),
        (
            "qmclone",
            "clone failed: 'storage-ceph'-locked command timed out - aborting",
            "contention Storage(\"ceph\")",
        ),
        ("qmclone", "unable to create VM 140: config file already exists", "id-taken Guest"),
        (
            "qmclone",
            "close (rename) atomic file '/etc/pve/nodes/pve1/qemu-server/101.conf' failed: File exists",
            "id-taken Guest",
        ),
        (
            "qmclone",
            "can't lock file '/var/lock/qemu-server/lock-901.conf' - got timeout",
            "contention Guest",
        ),
        (
            "qmclone",
            "clone failed: copy failed: command '/usr/bin/qemu-img convert' failed: interrupted by signal",
            "contention Guest",
        ),
        (
            "qmclone",
            "clone failed: unable to create image: No space left on device",
            "capacity Template",
        ),
        (
            "qmclone",
            "clone failed: lvcreate 'pve/vm-101-disk-0' error: Volume group \"pve\" has insufficient free space (0 extents)",
            "capacity Template",
        ),
        ("qmstart", "VM is locked (clone)", "locked(clone) Guest"),
        (
            "qmstart",
            "start failed: command '/usr/bin/kvm -id 120' failed: got timeout",
            "contention Guest",
        ),
        ("qmstart", "start failed: QEMU exited with code 1", "broken Template"),
        ("qmstart", "you can't start a vm if it's a template", "broken Template"),
        ("qmshutdown", "VM quit/powerdown failed - got timeout", "contention Guest"),
        ("resize", "shrinking disks is not supported", "broken Template"),
        ("resize", "disk 'scsi9' does not exist", "broken Template"),
        (
            "qmdestroy",
            "Configuration file 'nodes/pve1/qemu-server/777.conf' does not exist",
            "gone Guest",
        ),
        ("qmdestroy", "received interrupt", "contention Guest"),
        ("imgcopy", "checksum mismatch: got '456a' != expect '0000'", "broken Template"),
        (
            "qmdestroy",
            "base volume 'store:100/base-100-disk-0.qcow2' is still in use by linked cloned",
            "broken Template",
        ),
    ];
    for (kind, exit, wanted) in cases {
        let fault = task(place, &NodeName::new("pve1"), kind, exit);
        assert_eq!(verdict(&fault), wanted, "{exit}");
    }
}

// Invariant: texts of containers mean what those of machines mean, and what they refuse at once is
// looked at.

#[test]
fn texts_of_containers_are_kept_apart() {
    use Method::{Delete, Post};
    let own = "/nodes/pve1/lxc/101";
    let cases = [
        (Post, format!("{own}/clone"), "CT is locked (disk)", "locked(disk) Template"),
        (Post, format!("{own}/status/start"), "CT 101 already running", "unknown-outcome Guest"),
        (Post, format!("{own}/status/stop"), "CT 101 not running", "contention Guest"),
        (
            Delete,
            own.to_owned(),
            "unable to destroy CT 101 - container is running",
            "contention Guest",
        ),
        (
            Post,
            "/nodes/pve1/lxc".to_owned(),
            "unable to create CT 101 - CT 101 already exists on node 'pve2'",
            "id-taken Guest",
        ),
        (
            Post,
            "/nodes/pve1/lxc".to_owned(),
            "storage 'shared' does not support container directories",
            "broken Storage(\"shared\")",
        ),
    ];
    for (method, path, reason, wanted) in cases {
        let fault = judged(method, &path, 500, reason, "");
        assert_eq!(verdict(&fault), wanted, "{reason}");
    }
    let cloud = CloudId::new("primary");
    let place = CallOrigin { cloud: &cloud, login: "ci@pve!limited" };
    for (kind, exit, wanted) in [
        ("vzclone", "clone failed: CT is locked (disk)", "locked(disk) Template"),
        ("vzstart", "startup for container '101' failed", "broken Template"),
        (
            "vzcreate",
            "unable to create CT 101 - can't lock file '/run/lock/lxc/pve-config-101.lock' - got timeout",
            "contention Guest",
        ),
    ] {
        let fault = task(place, &NodeName::new("pve1"), kind, exit);
        assert_eq!(verdict(&fault), wanted, "{exit}");
    }
}

// Invariant: messages say what happened, where, and what to do.

#[test]
fn a_download_that_failed_says_what_its_exit_code_means_however_long_its_url_is() {
    let cloud = CloudId::new("primary");
    let place = CallOrigin { cloud: &cloud, login: "ci@pve!limited" };
    let exit = |url: &str| {
        format!(
            "download failed: command '/usr/bin/wget --progress=dot:giga -O /x.tmp {url}' failed: \
             exit code 5"
        )
    };
    let fault = |url: &str| task(place, &NodeName::new("pve1"), "download", &exit(url));
    insta::assert_snapshot!(fault("https://a.example/x.qcow2"), @"task `download` on node `pve1` failed: download failed: command '/usr/bin/wget --progress=dot:giga -O /x.tmp https://a.example/x.qcow2' failed: exit code 5; wget means by exit code 5: the certificate of the server could not be verified");
    let long = fault(&format!("https://a.example/{}", "x".repeat(2000)));
    assert!(long.text.ends_with("the certificate of the server could not be verified"), "{long}");
}

#[test]
fn a_missing_privilege_says_what_to_grant() {
    let fault = judged(
        Method::Post,
        CLONE,
        403,
        "x",
        r#"{"data":null,"message":"Permission check failed (/vms/100, VM.Clone)\n"}"#,
    );
    insta::assert_snapshot!(fault, @"`POST /nodes/pve1/qemu/100/clone` needs the privilege `VM.Clone` on `/vms/100`: give `ci@pve!limited` a role with it there (with privilege separation, both the token and its user need it)");
    let text = "Permission check failed (/storage/store, Datastore.Audit|Datastore.AllocateSpace)";
    let fault = judged(Method::Get, "/nodes/pve1/storage/store/status", 403, text, "");
    insta::assert_snapshot!(fault, @"`GET /nodes/pve1/storage/store/status` needs one of the privileges `Datastore.Audit|Datastore.AllocateSpace` on `/storage/store`: give `ci@pve!limited` a role with it there (with privilege separation, both the token and its user need it)");
}

#[test]
fn a_clone_that_may_not_make_a_guest_says_where_that_is_granted() {
    let fault = judged(Method::Post, CLONE, 403, "Permission check failed", "");
    insta::assert_snapshot!(fault, @"`POST /nodes/pve1/qemu/100/clone` needs the privilege `VM.Allocate` on the new guest or, with `targetPool`, on that pool: give `ci@pve!limited` a role with it there (with privilege separation, both the token and its user need it)");
}

#[test]
fn a_refused_login_says_what_to_check() {
    let fault = judged(Method::Get, "/version", 401, "Authentication failed!", "");
    insta::assert_snapshot!(fault, @"cloud `primary` refused the login `ci@pve!limited` (Authentication failed!); check its id and secret, that it has not expired, and that its user is enabled");
}

#[test]
fn a_hostile_text_is_bounded_and_one_line() {
    let fault = judged(Method::Get, VM, 500, &format!("x\n{}", "y".repeat(10_000)), "");
    assert!(fault.text.len() < 1000 && !fault.text.contains('\n'));
}
