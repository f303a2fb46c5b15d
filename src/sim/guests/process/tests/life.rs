//! Boot, sessions, reboot, end, disks.

use bytes::Bytes;
use drover_ssh::{ConnectError, ExecError, Output};
use tokio::sync::mpsc;

use super::*;

// Invariant: a guest behaves as a machine from its boot to its end.

#[tokio::test]
async fn a_whole_life_from_boot_to_poweroff_from_inside() {
    let Some(rig) = Rig::isolated() else { return };
    rig.guests.boot(guest(1001, 1)).await.unwrap();
    assert!(rig.guests.running(1001));
    rig.machine(1001).wait_until_up_or_off().await;
    let address = rig.guests.address(1001).unwrap();
    assert!(address.ip.to_string().starts_with("127.77.") && address.port == 2222);

    let session = rig.log_in(1001).await;
    assert_eq!(
        says(&session, "pwd; id -un; hostname; uname -n").await,
        "/home/ci\nci\nagent-1001\nagent-1001"
    );
    assert_eq!(run(&session, "echo oops >&2; exit 42").await.exit, Some(42));
    assert_eq!(run(&session, "kill -TERM $$").await.signal.as_deref(), Some("TERM"));
    assert_eq!(says(&session, "echo kept > /tmp/file; echo kept > file").await, "");
    assert_eq!(says(&session, "cat /tmp/file ~/file").await, "kept\nkept");
    session.upload("agent/run.sh", Bytes::new(), 0o755, SOON).await.unwrap_err();
    says(&session, "mkdir agent").await;
    session.upload("agent/run.sh", Bytes::from("echo ran $1"), 0o755, SOON).await.unwrap();
    assert_eq!(says(&session, "sh agent/run.sh it").await, "ran it");

    assert!(run(&session, "sudo poweroff").await.succeeded());
    rig.machine(1001).wait_until_off().await;
    assert!(!rig.guests.running(1001));
    assert_eq!(rig.guests.address(1001), None);
    session.exec("true", None, limits(), None).await.unwrap_err();
    assert_eq!(rig.ask(1001, AgentCall::Ping).await, Err(AgentError::NotRunning));
}

#[tokio::test]
async fn output_streams_and_input_flows_both_ways_at_once() {
    let Some(rig) = Rig::isolated() else { return };
    rig.up(1002, 1).await;
    let session = rig.log_in(1002).await;
    let (sink, mut pieces) = mpsc::channel(1);
    let job = "mkfifo /tmp/go; echo first; read -r word < /tmp/go; echo $word";
    let job = session.exec(job, None, limits(), Some(sink));
    let follow = async {
        let first = pieces.recv().await.unwrap();
        says(&session, "echo second > /tmp/go").await;
        (first, pieces.recv().await.unwrap())
    };
    let (result, (first, second)) = futures_util::future::join(job, follow).await;
    assert!(result.unwrap().succeeded());
    assert_eq!(first, Output::Stdout(Bytes::from("first\n")));
    assert_eq!(second, Output::Stdout(Bytes::from("second\n")));

    // More than all windows and pipes on the way can hold.
    let content = Bytes::from(vec![b'x'; 12 << 20]);
    let all = Limits { output_bytes_max: 16 << 20, ..limits() };
    let echoed = session.exec("cat", Some(content.clone()), all, None).await.unwrap();
    assert!(echoed.stdout == content && !echoed.truncated);
}

#[tokio::test]
async fn stop_kills_running_jobs_and_what_they_left_behind() {
    let Some(rig) = Rig::isolated() else { return };
    rig.up(1003, 1).await;
    let session = rig.log_in(1003).await;
    host::leave_running(&session, 98765).await;
    let (sink, mut pieces) = mpsc::channel(1);
    let job = session.exec("echo up; sleep 98766", None, limits(), Some(sink));
    let stop = async {
        pieces.recv().await.unwrap();
        assert_eq!(host::processes_with("98765").len(), 1);
        rig.guests.stop(1003).await;
    };
    let (result, ()) = futures_util::future::join(job, stop).await;
    let cut = matches!(result, Err(ExecError::Lost { .. }))
        || result.as_ref().is_ok_and(|end| end.signal.as_deref() == Some("KILL"));
    assert!(cut, "{result:?}");
    assert_eq!(host::processes_with("98765"), [0_u32; 0]);
    assert!(!rig.guests.running(1003));
    rig.guests.stop(1003).await;
}

#[tokio::test]
async fn a_shutdown_request_ends_the_guest() {
    let Some(rig) = Rig::isolated() else { return };
    rig.up(1004, 1).await;
    let machine = rig.machine(1004);
    rig.guests.shutdown(1004).await;
    machine.wait_until_off().await;
    assert!(!rig.guests.running(1004));
}

#[tokio::test]
async fn a_reboot_from_inside_comes_back_with_disk_and_host_key() {
    let Some(rig) = Rig::isolated() else { return };
    rig.up(1005, 1).await;
    let session = rig.log_in(1005).await;
    let first_key = rig.read(1005, HOST_KEY_FILE).await.unwrap();
    says(&session, "echo disk > file; echo gone > /tmp/file; sudo reboot").await;
    let machine = rig.machine(1005);
    machine.wait_until_not_up().await;
    machine.wait_until_up_or_off().await;
    assert!(rig.guests.running(1005));
    assert_eq!(rig.read(1005, HOST_KEY_FILE).await.unwrap(), first_key);
    let session = rig.log_in(1005).await;
    assert_eq!(says(&session, "cat file; ls /tmp").await, "disk");
}

// Invariant: only keys that are in the user's file at that moment can log in.

#[tokio::test]
async fn keys_are_accepted_as_long_as_they_are_in_the_users_file() {
    let Some(rig) = Rig::isolated() else { return };
    rig.up(1006, 1).await;
    let policy = HostKeyPolicy::TrustOnFirst;
    let rejected = rig.log_in_as(1006, &key(2), &policy).await.unwrap_err();
    assert!(matches!(rejected, ConnectError::KeyRejected { .. }), "{rejected:?}");

    let session = rig.log_in(1006).await;
    let line = key(2).public_line("lease");
    says(&session, &format!("echo '{line}' >> ~/.ssh/authorized_keys")).await;
    let leased = rig.log_in_as(1006, &key(2), &policy).await.unwrap();
    assert_eq!(says(&leased, "id -un").await, "ci");
    says(&session, "sed -i /lease/d ~/.ssh/authorized_keys").await;
    rig.log_in_as(1006, &key(2), &policy).await.unwrap_err();
    // A pipe in its place must not block the server.
    says(&session, "rm ~/.ssh/authorized_keys; mkfifo ~/.ssh/authorized_keys").await;
    rig.log_in_as(1006, &key(1), &policy).await.unwrap_err();
}

// Invariant: a guest has what a job expects of a whole machine.

#[tokio::test]
async fn stand_ins_replace_the_programs_of_a_machine() {
    let Some(rig) = Rig::isolated() else { return };
    rig.up(1007, 1).await;
    let session = rig.log_in(1007).await;
    let address = rig.guests.address(1007).unwrap().ip;
    assert_eq!(says(&session, "cloud-init status --wait").await, "status: done");
    assert_eq!(says(&session, "sudo -n -u root -- A=b sh -c 'echo $A'").await, "b");
    assert_eq!(says(&session, "systemctl is-active qemu-guest-agent").await, "active");
    assert_eq!(says(&session, "hostname -I").await, address.to_string());
    assert!(says(&session, "ip -4 addr show").await.contains(&format!("inet {address}/8")));
    says(&session, "sudo apt-get update && sudo apt-get install -y openjdk-21-jre-headless git")
        .await;
    let log = says(&session, "cat /var/log/guest-packages.log").await;
    assert!(log.ends_with("apt-get install -y openjdk-21-jre-headless git"), "{log}");
    let unknown = run(&session, "sudo dnf install -y no-such-package").await;
    assert_eq!(unknown.exit, Some(1), "dnf's own status");
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("no-such-package"));
    assert_eq!(says(&session, "env | grep -c '^GUEST'; true").await, "0");
}

// Invariant: snapshots, clones, rollbacks and removals cover the whole disk.

#[tokio::test]
async fn snapshots_restore_disks_and_clones_get_their_own_host_key() {
    let Some(rig) = Rig::isolated() else { return };
    rig.up(1008, 1).await;
    let session = rig.log_in(1008).await;
    let old_key = rig.read(1008, HOST_KEY_FILE).await.unwrap();
    says(&session, "echo old > file; ln -s file link").await;
    rig.guests.snapshot(1008, "clean", false).await.unwrap();
    says(&session, "echo new > file; touch more; chmod 000 more; mkdir -m 000 shut").await;
    rig.guests.stop(1008).await;
    rig.guests.rollback(1008, "clean").await.unwrap();
    rig.up(1008, 2).await;
    let session = rig.log_in(1008).await;
    assert_eq!(says(&session, "ls; cat link").await, "file\nlink\nold");
    assert_eq!(rig.read(1008, HOST_KEY_FILE).await.unwrap(), old_key);

    rig.guests.clone_disk(1008, 1009, true).await.unwrap();
    rig.up(1009, 1).await;
    assert_ne!(rig.read(1009, HOST_KEY_FILE).await.unwrap(), old_key);
    let session = rig.log_in(1009).await;
    assert_eq!(says(&session, "cat link; hostname").await, "old\nagent-1009");

    rig.guests.forget(1009);
    assert!(!rig.dir.path().join("guests/1009").exists());
    assert_eq!(rig.guests.address(1009), None);
}

#[tokio::test]
async fn a_snapshot_from_before_the_first_boot_restores_an_empty_disk() {
    let Some(rig) = Rig::isolated() else { return };
    rig.guests.snapshot(1012, "new", false).await.unwrap();
    rig.up(1012, 1).await;
    let session = rig.log_in(1012).await;
    says(&session, "echo old > file").await;
    rig.guests.stop(1012).await;
    rig.guests.rollback(1012, "new").await.unwrap();
    rig.up(1012, 1).await;
    let session = rig.log_in(1012).await;
    assert_eq!(says(&session, "ls").await, "");
}

#[tokio::test]
async fn an_invalid_guest_is_refused_with_the_reason() {
    let Some(rig) = Rig::isolated() else { return };
    let mut bad = guest(1010, 1);
    bad.config.insert("ciuser".to_owned(), "../../etc".to_owned());
    assert!(rig.guests.boot(bad).await.unwrap_err().contains("../../etc"));
    assert!(!rig.guests.running(1010));
    rig.up(1010, 1).await;
    let twice = rig.guests.boot(guest(1010, 1)).await.unwrap_err();
    assert_eq!(twice, "the guest is already running");
}

#[tokio::test]
async fn an_address_that_another_program_uses_is_not_taken() {
    let Some(rig) = Rig::isolated() else { return };
    let (taken, _held) = rig.guests.inner.find_address(&guest(1011, 1)).unwrap();
    rig.up(1011, 1).await;
    assert_ne!(rig.guests.address(1011).unwrap().ip, std::net::IpAddr::V4(taken));
    assert_eq!(says(&rig.log_in(1011).await, "echo here").await, "here");
}
