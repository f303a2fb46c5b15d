//! Who records a call that comes by way of a standby.

use drover_audit::{Call, Entry, Wanted, find};

use super::*;

/// The calls in an audit log.
fn calls(audit: &Audit) -> Vec<Call> {
    let wanted = Wanted { limit: 100, ..Wanted::default() };
    let found = find(audit.folder(), &wanted).unwrap();
    let call = |entry| {
        let Entry::Call(call) = entry else { return None };
        Some(call)
    };
    found.into_iter().filter_map(|record| call(record.entry)).collect()
}

/// The audit log of a standby, to be read.
fn log_of(served: &Served, member: &str) -> Audit {
    Audit::open(&served.directory.path().join(member), Options::default()).unwrap()
}

// Invariant: a call leaves its record with the member that answered it, and once.

#[tokio::test]
async fn the_leader_records_what_a_standby_forwards_with_the_standbys_name() {
    let (leader, standby) = pair();
    let url = format!("{}/v1/agents/a1/retire", standby.base);
    let retire = from(9).post(&url).bearer_auth("operator-token").header("x-request-id", "r-1");
    assert_eq!(answer(retire).await.0, 404);
    assert_eq!(answer(local(&standby.socket).post("http://drover/v1/reap")).await.0, 200);
    let calls = self::calls(&leader.doors().audit);
    let seen: Vec<_> = calls
        .iter()
        .map(|call| {
            let principal = call.principal.as_deref().unwrap();
            (principal, call.member.as_deref().unwrap(), call.peer.as_str(), call.status.unwrap())
        })
        .collect();
    let user = format!("uid:{}", own_uid(&leader));
    let wanted = [("token:operator", "b", "127.0.0.9", 404), (&*user, "b", &*user, 200)];
    assert_eq!(seen, wanted);
    assert_eq!((&*calls[0].request, calls[0].object.as_deref()), ("r-1", Some("a1")));
    assert_eq!(self::calls(&log_of(&leader, "b")), [], "the standby answered none itself");
    stop(leader, standby).await;
}

#[tokio::test]
async fn a_standby_records_what_reached_no_leader() {
    let leader = Served::leading();
    let standby = standing_by(&leader, doors(None));
    let reap = local(&standby.socket).post("http://drover/v1/reap");
    assert_eq!(answer(reap).await.0, 503);
    let calls = self::calls(&log_of(&leader, "b"));
    let [call] = &calls[..] else { panic!("{calls:?}") };
    let user = format!("uid:{}", own_uid(&leader));
    assert_eq!((call.principal.as_ref(), call.status), (Some(&user), Some(503)));
    assert_eq!((call.object.as_deref(), &call.member), (Some("/v1/reap"), &None));
    assert_eq!(self::calls(&leader.doors().audit), []);
    stop(leader, standby).await;
}
