#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use drover_ssh::{
    Backoff, ConnectError, HostKeyPolicy, Keep, Limits, PrivateKey, Session, Target, connect,
    connect_until,
};
use tokio::time::Instant;

use super::*;

const LIMIT: Duration = Duration::from_secs(10);

fn host() -> GreeterGuests {
    let quick = Duration::ZERO..Duration::from_millis(1);
    GreeterGuests::new(StubOptions {
        seed: 3,
        boot: quick.clone(),
        address_delay: quick.clone(),
        shutdown: quick,
        ssh_port: 24_224,
        ..StubOptions::default()
    })
}

/// Boots a guest that accepts a key; gives its SSH address and host key.
async fn boot(host: &GreeterGuests, vmid: u32, key: &PrivateKey) -> (Target, HostKeyPolicy) {
    let sshkeys = proxmox_client::transport::encode(&key.public_line("someone"));
    let config = BTreeMap::from([("sshkeys".to_owned(), sshkeys)]);
    let guest = GuestBoot {
        vmid,
        node: "pve1".to_owned(),
        hostname: format!("agent-{vmid}"),
        config,
        mac: None,
        boot: 1,
        resumed: false,
        config_from_disc: false,
        discs: Vec::new(),
    };
    host.boot(guest).await.unwrap();
    let GuestAddress { ip, port } = host.address(vmid).unwrap();
    let line = host.stub.host_key(vmid).unwrap().public_line("");
    let target = Target { host: ip, port, user: "debian".to_owned() };
    (target, HostKeyPolicy::Pinned(vec![line]))
}

async fn log_in(
    (target, policy): &(Target, HostKeyPolicy),
    key: &PrivateKey,
) -> Result<Session, ConnectError> {
    let deadline = Instant::now() + LIMIT;
    connect_until(deadline, target, key, policy, Backoff::default(), |_| {}).await
}

// Invariant: a greeter guest shows the host key that its agent reports, accepts only the keys of
// its configuration, and ends with its machine.

#[tokio::test]
async fn a_login_with_the_configured_key_can_run_a_command() {
    let (host, key) = (host(), PrivateKey::from_seed(&[1; 32], ""));
    let target = boot(&host, 31_001, &key).await;
    let session = log_in(&target, &key).await.unwrap();
    let limits = Limits { time: LIMIT, output_bytes_max: 1000, keep: Keep::First };
    let ran = session.exec("mkdir -p /somewhere", None, limits, None).await.unwrap();
    assert_eq!((ran.exit, ran.stdout), (Some(0), Vec::new()));
    session.close().await;
}

#[tokio::test]
async fn another_key_is_refused() {
    let (host, key) = (host(), PrivateKey::from_seed(&[1; 32], ""));
    let target = boot(&host, 31_002, &key).await;
    let refused = log_in(&target, &PrivateKey::from_seed(&[2; 32], "")).await;
    assert!(matches!(refused, Err(ConnectError::KeyRejected { .. })), "{refused:?}");
}

#[tokio::test]
async fn no_server_listens_once_the_guest_is_stopped() {
    let (host, key) = (host(), PrivateKey::from_seed(&[1; 32], ""));
    let target = boot(&host, 31_003, &key).await;
    log_in(&target, &key).await.unwrap().close().await;
    host.stop(31_003).await;
    let left = connect(&target.0, &key, &target.1, LIMIT).await;
    assert!(matches!(left, Err(ConnectError::Unreachable { .. })), "{left:?}");
}
