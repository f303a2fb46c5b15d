//! Drover's own scripts that end people's stay, in guests: mending and closing off.

use drover_model::time::WallTime;
use drover_scripts::guest::{after_rollback, close_ssh};

use super::*;

fn now() -> WallTime {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    WallTime(i64::try_from(now.as_millis()).unwrap())
}

/// A guest, one session of drover's, and somebody who sleeps in another.
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

// Invariant: who is shut out of a guest stays out, and whoever is in it is ended.

#[tokio::test]
async fn a_guest_that_is_closed_off_lets_nobody_in_and_nobody_stay() {
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

// Invariant: a guest that was put back is mended, and never believed while a lease's key is in it.

#[tokio::test]
async fn a_guest_is_mended_and_nobody_else_is_in_it() {
    let Some(rig) = Rig::isolated() else { return };
    let (session, asleep) = occupied(&rig, 1031).await;
    let mended = run(&session, &after_rollback(now(), 7)).await;
    assert_eq!(mended.exit, Some(0), "{mended:?}");
    assert_eq!(asleep.await.unwrap(), None, "it was killed");
    assert_eq!(says(&session, "echo still here").await, "still here");
}

#[tokio::test]
async fn the_key_of_a_lease_in_a_guest_tells_that_it_was_not_put_back() {
    let Some(rig) = Rig::isolated() else { return };
    rig.up(1032, 1).await;
    let session = rig.log_in(1032).await;
    says(&session, "echo 'ssh-ed25519 AAAA drover-lease-l1' >> ~/.ssh/authorized_keys").await;
    let mended = run(&session, &after_rollback(now(), 7)).await;
    assert_eq!(mended.exit, Some(1));
    assert!(
        String::from_utf8_lossy(&mended.stderr).contains("the rollback did not happen"),
        "{mended:?}"
    );
}

// Invariant: the clock of the host is nobody's to set.

#[tokio::test]
async fn a_guest_may_be_told_another_time_and_the_host_keeps_its_own() {
    let Some(rig) = Rig::isolated() else { return };
    rig.up(1033, 1).await;
    let session = rig.log_in(1033).await;
    let before = now();
    let told = run(&session, &after_rollback(WallTime(before.0 - 7_200_000), 7)).await;
    assert_eq!(told.exit, Some(0), "{told:?}");
    assert!(now().0 >= before.0);
}
