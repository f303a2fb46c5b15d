#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use serde_json::json;
use tokio::time::Instant;

use super::*;
use crate::guests::{StubGuests, StubOptions};

const READY: Duration = Duration::from_secs(60);

fn host() -> TroubledGuests {
    TroubledGuests::around(Arc::new(StubGuests::new(StubOptions::default())))
}

/// Boots guest 100 with tags, and waits until a guest without trouble is up.
async fn up(host: &TroubledGuests, tags: &str) {
    let config = BTreeMap::from([("tags".to_owned(), tags.to_owned())]);
    let boot = GuestBoot {
        vmid: 100,
        node: "pve1".into(),
        hostname: "web".into(),
        config,
        mac: Some("02:00:00:00:00:05".into()),
        boot: 1,
        resumed: false,
        config_from_disc: false,
        discs: Vec::new(),
    };
    host.boot(boot).await.unwrap();
    tokio::time::sleep(READY).await;
}

async fn ping(host: &TroubledGuests) -> Result<Value, AgentError> {
    host.agent(100, AgentCall::Ping).await
}

async fn runs_after_shutdown(host: &TroubledGuests) -> bool {
    host.shutdown(100).await;
    tokio::time::sleep(READY).await;
    host.running(100)
}

// Invariant: each trouble is a tag and an order, and takes exactly what it says.

#[tokio::test(start_paused = true)]
async fn a_guest_without_trouble_answers_and_shuts_down() {
    let host = host();
    up(&host, "ci;guest-apt").await;
    assert_eq!(ping(&host).await, Ok(json!({})));
    assert!(host.address(100).is_some());
    assert!(!runs_after_shutdown(&host).await);
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_never_boots_has_a_process_and_nothing_in_it() {
    let host = host();
    up(&host, "ci;guest-never-boots").await;
    assert!(host.running(100));
    assert_eq!(ping(&host).await, Err(AgentError::NotRunning));
    assert_eq!((host.address(100), host.agent_ready_in(100)), (None, None));
    assert!(runs_after_shutdown(&host).await);
    host.stop(100).await;
    assert!(!host.running(100));
    up(&host, "ci").await;
    assert_eq!(ping(&host).await, Ok(json!({})));
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_hangs_lets_the_agents_calls_time_out() {
    let host = host();
    let started = Instant::now();
    up(&host, "guest-hangs").await;
    assert_eq!(started.elapsed(), READY);
    assert_eq!(ping(&host).await, Err(AgentError::Timeout));
    assert!(host.address(100).is_some());
    assert!(runs_after_shutdown(&host).await);
}

#[tokio::test(start_paused = true)]
async fn a_guest_without_an_agent_lives_and_does_not_answer() {
    let host = host();
    up(&host, "guest-no-agent").await;
    assert_eq!(ping(&host).await, Err(AgentError::NotRunning));
    assert!(host.address(100).is_some());
    assert!(!runs_after_shutdown(&host).await);
}

#[tokio::test(start_paused = true)]
async fn a_guest_without_an_address_reports_its_card_alone() {
    let host = host();
    up(&host, "guest-no-address").await;
    let interfaces = host.agent(100, AgentCall::NetworkInterfaces).await.unwrap();
    assert_eq!(interfaces[0]["ip-addresses"][0]["ip-address"], "127.0.0.1");
    assert_eq!(interfaces[1]["name"], "eth0");
    assert_eq!(interfaces[1].get("ip-addresses"), None);
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_ignores_shutdown_can_only_be_stopped() {
    let host = host();
    up(&host, "guest-ignores-shutdown").await;
    assert_eq!(ping(&host).await, Ok(json!({})));
    assert!(runs_after_shutdown(&host).await);
    host.stop(100).await;
    assert!(!host.running(100));
}

#[tokio::test(start_paused = true)]
async fn orders_add_troubles_to_a_running_guest_and_none_takes_all_away() {
    let host = host();
    up(&host, "guest-ignores-shutdown").await;
    host.order(100, Some(Trouble::NoAgent)).await;
    assert_eq!(ping(&host).await, Err(AgentError::NotRunning));
    assert!(runs_after_shutdown(&host).await);
    host.order(100, None).await;
    assert_eq!(ping(&host).await, Ok(json!({})));
    host.stop(100).await;
    up(&host, "guest-ignores-shutdown").await;
    assert!(!runs_after_shutdown(&host).await, "an order outweighs the tags");
    host.forget(100);
    up(&host, "guest-ignores-shutdown").await;
    assert!(runs_after_shutdown(&host).await, "a new guest of the VMID has its tags");
}

#[tokio::test(start_paused = true)]
async fn no_guest_boots_after_the_end_of_its_world() {
    let host = host();
    up(&host, "").await;
    host.close();
    let again = GuestBoot {
        vmid: 101,
        node: "pve1".into(),
        hostname: "late".into(),
        config: BTreeMap::new(),
        mac: None,
        boot: 1,
        resumed: false,
        config_from_disc: false,
        discs: Vec::new(),
    };
    assert!(host.boot(again).await.is_err());
    assert!(!host.running(101));
}

#[test]
fn every_trouble_has_a_name_that_is_read_back() {
    for trouble in Trouble::ALL {
        assert_eq!(trouble.name().parse(), Ok(trouble));
    }
    let unknown = "sleepy".parse::<Trouble>().unwrap_err().to_string();
    assert!(unknown.starts_with("unknown trouble `sleepy`; the troubles are never-boots, hangs"));
}
