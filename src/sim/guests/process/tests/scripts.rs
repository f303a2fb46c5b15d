//! drover's scripts that end the use of a guest: repairing it, and closing it off.

use drover_model::time::WallTime;
use drover_scripts::guest::{after_rollback, close_ssh};

use super::*;

fn now() -> WallTime {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    WallTime(i64::try_from(now.as_millis()).unwrap())
}

/// A guest with a session of drover and one of a user that runs `sleep`.
async fn occupied(rig: &Rig, vmid: u32) -> (Session, tokio::task::JoinHandle<Option<u32>>) {
    rig.up(vmid, 1).await;
    let other = rig.log_in(vmid).await;
    let asleep = tokio::spawn(async move {
        let slept = other.exec("touch ~/here; exec sleep 1000", None, limits(), None).await;
        slept.ok().and_then(|slept| slept.exit)
    });
    let session = rig.log_in(vmid).await;
    says(&session, "until [ -e ~/here ]; do sleep 0.05; done").await;
    (session, asleep)
}

// Invariant: a guest that is closed off accepts no user, and ends the users in it.

#[tokio::test]
async fn closing_off_a_guest_ends_its_users_and_refuses_new_ones() {
    let Some(rig) = Rig::isolated() else { return };
    let (session, asleep) = occupied(&rig, 1030).await;
    let keys = "~/.ssh/authorized_keys";
    let others =
        "echo 'ssh-ed25519 AAAA drover-lease-l1' >> FILE; echo 'ssh-ed25519 BBBB me' >> FILE";
    says(&session, &others.replace("FILE", keys)).await;
    let own = key(1).public_line("drover test");
    let closed = run(&session, &close_ssh(&own)).await;
    assert_eq!(closed.exit, Some(0), "{closed:?}");
    assert_eq!(asleep.await.unwrap(), None, "it was killed");
    assert_eq!(says(&session, &format!("cat {keys}")).await, "ssh-ed25519 BBBB me");
}

// Invariant: a guest that was rolled back is repaired, and is not trusted while a lease's key is in
// it.

#[tokio::test]
async fn repairing_a_guest_ends_all_other_sessions() {
    let Some(rig) = Rig::isolated() else { return };
    let (session, asleep) = occupied(&rig, 1031).await;
    let repaired = run(&session, &after_rollback(now(), 7)).await;
    assert_eq!(repaired.exit, Some(0), "{repaired:?}");
    assert_eq!(asleep.await.unwrap(), None, "it was killed");
    assert_eq!(says(&session, "echo still here").await, "still here");
}

#[tokio::test]
async fn the_key_of_a_lease_shows_that_a_guest_was_not_rolled_back() {
    let Some(rig) = Rig::isolated() else { return };
    rig.up(1032, 1).await;
    let session = rig.log_in(1032).await;
    says(&session, "echo 'ssh-ed25519 AAAA drover-lease-l1' >> ~/.ssh/authorized_keys").await;
    let repaired = run(&session, &after_rollback(now(), 7)).await;
    assert_eq!(repaired.exit, Some(1));
    assert!(
        String::from_utf8_lossy(&repaired.stderr).contains("the rollback did not happen"),
        "{repaired:?}"
    );
}

// Invariant: no guest sets the clock of the host.

#[tokio::test]
async fn setting_the_time_of_a_guest_does_not_change_the_host() {
    let Some(rig) = Rig::isolated() else { return };
    rig.up(1033, 1).await;
    let session = rig.log_in(1033).await;
    let before = now();
    let repaired = run(&session, &after_rollback(WallTime(before.0 - 7_200_000), 7)).await;
    assert_eq!(repaired.exit, Some(0), "{repaired:?}");
    assert!(now().0 >= before.0);
}
