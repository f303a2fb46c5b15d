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
    GreeterGuests::new(NoneOptions {
        seed: 3,
        boot: quick.clone(),
        addressless: quick.clone(),
        shutdown: quick,
        ssh_port: 24_224,
        ..NoneOptions::default()
    })
}

/// Boots a guest that a key may log in to, and gives the way to it.
async fn boot(host: &GreeterGuests, vmid: u32, key: &PrivateKey) -> (Target, HostKeyPolicy) {
    let sshkeys = proxmox_client::transport::encode(&key.public_line("someone"));
    let config = BTreeMap::from([("sshkeys".to_owned(), sshkeys)]);
    let hostname = format!("agent-{vmid}");
    let node = "pve1".to_owned();
    let (mac, boot, resumed, disc) = (None, 1, false, false);
    host.boot(GuestBoot { vmid, node, hostname, config, mac, boot, resumed, disc }).await.unwrap();
    let GuestAddress { ip, port } = host.address(vmid).unwrap();
    let line = host.none.host_key(vmid).unwrap().public_line("");
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

// Invariant: a guest that greets shows the key its agent tells, admits the keys of its
// configuration alone, and ends with its machine.

#[tokio::test]
async fn a_login_with_the_configured_key_gets_a_command_done() {
    let (host, key) = (host(), PrivateKey::from_seed(&[1; 32], ""));
    let way = boot(&host, 31_001, &key).await;
    let session = log_in(&way, &key).await.unwrap();
    let limits = Limits { time: LIMIT, output_bytes_max: 1000, keep: Keep::First };
    let ran = session.exec("mkdir -p /somewhere", None, limits, None).await.unwrap();
    assert_eq!((ran.exit, ran.stdout), (Some(0), Vec::new()));
    session.close().await;
}

#[tokio::test]
async fn another_key_is_refused() {
    let (host, key) = (host(), PrivateKey::from_seed(&[1; 32], ""));
    let way = boot(&host, 31_002, &key).await;
    let refused = log_in(&way, &PrivateKey::from_seed(&[2; 32], "")).await;
    assert!(matches!(refused, Err(ConnectError::KeyRejected { .. })), "{refused:?}");
}

#[tokio::test]
async fn nobody_listens_once_the_guest_was_stopped() {
    let (host, key) = (host(), PrivateKey::from_seed(&[1; 32], ""));
    let way = boot(&host, 31_003, &key).await;
    log_in(&way, &key).await.unwrap().close().await;
    host.stop(31_003).await;
    let left = connect(&way.0, &key, &way.1, LIMIT).await;
    assert!(matches!(left, Err(ConnectError::Unreachable { .. })), "{left:?}");
}
