//! drover's scripts that end the use of a guest: repairing it, and closing it off.

use drover_model::ports::Sessions;
use drover_model::time::WallTime;
use drover_scripts::guest::{after_rollback, close_ssh, grant_access, revoke_access};

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

// Invariant: what the last holder of a guest started there ends with the lease, and nothing of
// anybody else's does.

#[tokio::test]
async fn the_programs_of_a_guests_last_lease_end_with_it() {
    let Some(rig) = Rig::isolated() else { return };
    let (session, asleep) = occupied(&rig, 1034).await;
    says(&session, &grant_access("l1", "ssh-ed25519 AAAA drover-lease-l1")).await;
    says(&session, "setsid sh -c 'touch ~/apart; exec sleep 1000' >/dev/null 2>&1 </dev/null &")
        .await;
    says(&session, "until [ -e ~/apart ]; do sleep 0.05; done").await;
    let over = run(&session, &revoke_access("l1", Sessions::End)).await;
    assert_eq!(over.exit, Some(0), "{over:?}");
    assert_eq!(asleep.await.unwrap(), None, "it was killed");
    assert_eq!(says(&session, "pgrep -c sleep || true").await, "0", "also what left its session");
}

#[tokio::test]
async fn the_end_of_a_lease_ends_no_session_where_somebody_else_is_in_the_guest() {
    let Some(rig) = Rig::isolated() else { return };
    let (session, asleep) = occupied(&rig, 1035).await;
    let end = async |lease: &str, sessions| {
        let over = run(&session, &revoke_access(lease, sessions)).await;
        assert_eq!(over.exit, Some(0), "{over:?}");
        says(&session, "pgrep -c sleep || true").await
    };
    assert_eq!(end("l1", Sessions::Stay).await, "1", "drover knows of somebody");
    for (at, other) in ["l2", "hold"].into_iter().enumerate() {
        says(&session, &grant_access(other, &format!("ssh-ed25519 AAAA drover-lease-{other}")))
            .await;
        assert_eq!(end(&format!("0{at}"), Sessions::End).await, "1", "{other} came meanwhile");
    }
    says(
        &session,
        "sed -i '/ drover-lease-/d' ~/.ssh/authorized_keys; mkdir -p ~/.drover-runners/r",
    )
    .await;
    assert_eq!(end("l3", Sessions::End).await, "1", "a runner came meanwhile");
    says(&session, "rmdir ~/.drover-runners/r").await;
    assert_eq!(end("l3", Sessions::End).await, "0", "nobody is left");
    assert_eq!(asleep.await.unwrap(), None, "it was killed");
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
