#![expect(clippy::unwrap_used, reason = "tests")]

use std::sync::Mutex;

use drover_limits::call_queue::CallPurpose;
use drover_model::fault::FaultKind;
use proxmox_client::connection::Login;
use proxmox_client::transport::Method;
use serde_json::{Value, json};
use tokio::time::{Duration, advance};

use super::*;
use crate::testing::{Clients as _, Script, Step, connection, token};

fn password() -> Login {
    Login::Password { username: "ci@pve".into(), secret: "hunter2".into() }
}

async fn read(client: &Client) -> Result<Value, PveError> {
    client.get("/version", Vec::new()).await
}

async fn put(client: &Client) -> Result<Value, PveError> {
    client.write(Method::Put, "/nodes/n/qemu/101/config", vec![("cores".into(), "2".into())]).await
}

/// Answers with these steps, one after the other.
fn in_order(steps: Vec<Step>) -> impl FnMut(&str) -> Step {
    let mut steps = steps.into_iter();
    move |asked| steps.next().unwrap_or_else(|| panic!("unexpected: {asked}"))
}

// Invariant: a read may be repeated once, a write never.

#[tokio::test(start_paused = true)]
async fn a_read_is_repeated_once_when_its_connection_closed() {
    let script =
        Script::new(in_order(vec![Step::Closed, Step::Data(json!(1)), Step::Closed, Step::Closed]));
    let client = script.client(&["a"], token());
    assert_eq!(read(&client).await.unwrap(), json!(1));
    let error = read(&client).await.unwrap_err();
    assert_eq!(client.fault(&error).kind, FaultKind::Contention);
    assert_eq!(script.seen().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_write_whose_connection_closed_is_unknown_and_not_repeated() {
    let script = Script::new(in_order(vec![Step::Closed]));
    let client = script.client(&["a", "b"], token());
    let error = put(&client).await.unwrap_err();
    let fault = client.fault(&error);
    assert_eq!(fault.kind, FaultKind::UnknownOutcome);
    insta::assert_snapshot!(fault, @"`PUT /nodes/n/qemu/101/config` got no answer from `https://a:8006`: the connection closed before the answer: connection reset");
    assert_eq!(script.seen().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_silent_node_costs_the_call_timeout_and_no_more() {
    let script = Script::new(|_| Step::Silence);
    let client = script.client(&["a"], token());
    let start = tokio::time::Instant::now();
    let error = put(&client).await.unwrap_err();
    assert_eq!(client.fault(&error).kind, FaultKind::UnknownOutcome);
    assert_eq!(start.elapsed(), Duration::from_secs(60));
    let error = read(&client).await.unwrap_err();
    assert_eq!(client.fault(&error).kind, FaultKind::Contention);
}

// Invariant: an endpoint that accepts no connection costs only the attempt; the first endpoint is
// preferred.

#[tokio::test(start_paused = true)]
async fn calls_move_on_stay_and_come_back() {
    let down = Arc::new(Mutex::new(true));
    let is_down = down.clone();
    let script = Script::by_host(move |host, _| match host {
        "a" if *is_down.lock().unwrap() => Step::NoRoute,
        _ => Step::Data(json!(1)),
    });
    let client = script.client(&["a", "b"], token());
    put(&client).await.unwrap();
    put(&client).await.unwrap();
    *down.lock().unwrap() = false;
    advance(Duration::from_secs(61)).await;
    put(&client).await.unwrap();
    put(&client).await.unwrap();
    let hosts: Vec<_> = script.seen().iter().map(|asked| asked[..1].to_owned()).collect();
    assert_eq!(hosts, ["a", "b", "b", "a", "a"]);
}

#[tokio::test(start_paused = true)]
async fn no_endpoint_at_all_says_which_were_tried() {
    let script = Script::new(|_| Step::NoRoute);
    let client = script.client(&["10.0.0.1", "10.0.0.2"], token());
    let fault = client.fault(&put(&client).await.unwrap_err());
    assert_eq!(fault.kind, FaultKind::Unreachable);
    insta::assert_snapshot!(fault, @"no endpoint of cloud `primary` has answered yet: check its `apiUrl` or `apiUrls`, and that this machine can reach them: `https://10.0.0.1:8006`, `https://10.0.0.2:8006`: no connection (No route to host)");
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_that_answered_before_is_reported_as_one_that_is_down() {
    let down = Arc::new(Mutex::new(false));
    let is_down = Arc::clone(&down);
    let script = Script::new(move |_| match *is_down.lock().unwrap() {
        true => Step::NoRoute,
        false => Step::Data(json!(1)),
    });
    let client = script.client(&["10.0.0.1"], token());
    put(&client).await.unwrap();
    *down.lock().unwrap() = true;
    let fault = client.fault(&put(&client).await.unwrap_err());
    insta::assert_snapshot!(fault, @"no endpoint of cloud `primary` answers any more: check on a node that `pveproxy` runs (`systemctl status pveproxy`), and that network and firewall let its port through: `https://10.0.0.1:8006`: no connection (No route to host)");
}

// Invariant: the login is sent in the form that Proxmox expects, and in no other.

#[tokio::test(start_paused = true)]
async fn a_token_goes_into_its_header() {
    let script = Script::new(|_| Step::Data(json!(1)));
    put(&script.client(&["a"], token())).await.unwrap();
    assert_eq!(script.headers(), ["Authorization: PVEAPIToken=ci@pve!drover=s3cret"]);
}

/// Grants tickets `T1`, `T2`, … and accepts only those that `fine` allows.
fn tickets(mut fine: impl FnMut(&str) -> Step + Send + 'static) -> Script {
    let mut granted = 0;
    Script::new(move |asked| {
        if asked.starts_with("POST /access/ticket") {
            granted += 1;
            let ticket = format!("PVE:ci@pve:T{granted}");
            return Step::Data(
                json!({"ticket": ticket, "CSRFPreventionToken": format!("C{granted}")}),
            );
        }
        fine(asked)
    })
}

#[tokio::test(start_paused = true)]
async fn a_ticket_is_fetched_once_and_renewed_by_itself_before_it_dies() {
    let script = tickets(|_| Step::Data(json!(1)));
    let client = script.client(&["a"], password());
    put(&client).await.unwrap();
    read(&client).await.unwrap();
    advance(Duration::from_secs(100 * 60)).await;
    read(&client).await.unwrap();
    assert_eq!(
        script.seen(),
        [
            "a POST /access/ticket username=ci@pve password=hunter2",
            "a PUT /nodes/n/qemu/101/config cores=2",
            "a GET /version",
            "a POST /access/ticket username=ci@pve password=PVE:ci@pve:T1",
            "a GET /version",
        ]
    );
    let headers = script.headers();
    assert_eq!(headers[1], "Cookie: PVEAuthCookie=PVE%3Aci%40pve%3AT1, CSRFPreventionToken: C1");
    assert_eq!(headers[2], "Cookie: PVEAuthCookie=PVE%3Aci%40pve%3AT1");
    assert_eq!(headers[4], "Cookie: PVEAuthCookie=PVE%3Aci%40pve%3AT2");
}

#[tokio::test(start_paused = true)]
async fn a_dead_ticket_is_not_shown_again() {
    let script = tickets(|_| Step::Data(json!(1)));
    let client = script.client(&["a"], password());
    read(&client).await.unwrap();
    advance(Duration::from_secs(3 * 60 * 60)).await;
    read(&client).await.unwrap();
    assert_eq!(script.seen()[2], "a POST /access/ticket username=ci@pve password=hunter2");
}

#[tokio::test(start_paused = true)]
async fn a_refused_ticket_is_fetched_again_once_even_for_a_write() {
    let mut refusals = 1;
    let script = tickets(move |_| {
        refusals -= 1;
        if refusals >= 0 { Step::Refuse(401, "invalid ticket") } else { Step::Data(json!(1)) }
    });
    put(&script.client(&["a"], password())).await.unwrap();
    assert_eq!(script.seen().len(), 4);

    let script = tickets(|_| Step::Refuse(401, "permission denied - invalid PVE ticket"));
    let client = script.client(&["a"], password());
    let fault = client.fault(&put(&client).await.unwrap_err());
    assert_eq!(fault.kind, FaultKind::Denied { privilege: None, path: None });
    assert_eq!(script.seen().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_wrong_password_says_what_to_check() {
    let script = Script::new(|_| Step::Refuse(401, "authentication failure\n"));
    let client = script.client(&["a"], password());
    let fault = client.fault(&read(&client).await.unwrap_err());
    insta::assert_snapshot!(fault, @"cloud `primary` refused the login `ci@pve` (authentication failure); check its id and secret, that it has not expired, and that its user is enabled");
}

#[tokio::test(start_paused = true)]
async fn a_second_factor_is_answered_with_what_to_use_instead() {
    let script = Script::new(|_| Step::Data(json!({"ticket": "PVE:!tfa!x", "NeedTFA": 1})));
    let client = script.client(&["a"], password());
    let fault = client.fault(&read(&client).await.unwrap_err());
    assert_eq!(fault.kind, FaultKind::Denied { privilege: None, path: None });
    insta::assert_snapshot!(fault, @"`ci@pve` needs a second factor, which a program cannot answer: use an API token, or a user without a second factor");
}

// Invariant: an answer that is not Proxmox's is reported, not guessed at.

#[tokio::test(start_paused = true)]
async fn an_answer_of_another_shape_is_named() {
    let script = Script::new(|_| Step::Data(json!({"hello": "world"})));
    let client = script.client(&["a"], token());
    let fault = client.fault(&client.version().await.unwrap_err());
    assert_eq!(fault.kind, FaultKind::Broken);
    insta::assert_snapshot!(fault, @"`https://a:8006` answered `GET /version` with data that does not match the Proxmox API: missing field `version` at line 1 column 25; check that the endpoint is a Proxmox VE node");
}

#[test]
fn a_cloud_without_endpoints_is_refused() {
    let script = Script::new(|_| Step::Silence);
    let connection = connection(&[], token());
    let error = Client::new(CloudId::new("primary"), &connection, &script).map(|_| ()).unwrap_err();
    assert_eq!(error.to_string(), "cloud `primary` has no endpoint: add one with `apiUrl`");
}

// Invariant: a call that waits in the queue was not sent, and is charged to no cloud or guest.

#[tokio::test(start_paused = true)]
async fn a_call_that_has_no_turn_in_time_is_not_sent_and_is_no_time_out_of_proxmox() {
    let script = Script::new(|_| Step::Silence);
    let client = script.client(&["a"], token());
    let start = tokio::time::Instant::now();
    let fourth = async {
        tokio::task::yield_now().await;
        let error = put(&client).await.unwrap_err();
        (client.fault(&error), start.elapsed(), script.seen().len())
    };
    let (_, _, _, (fault, waited, sent)) =
        tokio::join!(put(&client), put(&client), put(&client), fourth);
    assert_eq!(
        (fault.kind.clone(), waited, sent),
        (FaultKind::Contention, Duration::from_secs(30), 3)
    );
    insta::assert_snapshot!(fault, @"`PUT /nodes/n/qemu/101/config` was not sent to `https://a:8006`: the call waited 30 s to be sent, and 0 other calls wait");
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_asker_goes_away_leaves_its_place_to_the_next() {
    let script = Script::new(|asked| match asked {
        "GET /version" => Step::Data(json!(1)),
        _ => Step::Silence,
    });
    let client = script.client(&["a"], token());
    for _ in 0..20 {
        let given_up = tokio::time::timeout(Duration::from_secs(1), put(&client)).await;
        assert!(given_up.is_err());
    }
    assert_eq!(script.seen().len(), 20);
    assert_eq!(read(&client).await.unwrap(), json!(1));
}

#[tokio::test(start_paused = true)]
async fn health_is_asked_for_while_everything_else_waits() {
    let script = Script::new(|asked| match asked {
        "GET /version" => Step::Data(json!(1)),
        _ => Step::Silence,
    });
    let client = script.client(&["a"], token());
    let flood = futures_util::future::join_all((0..50).map(|n| {
        let path = format!("/nodes/n{n}/qemu/101/status/current");
        let client = Arc::clone(&client);
        async move { client.get::<Value>(&path, Vec::new()).await.is_err() }
    }));
    let health = async {
        tokio::task::yield_now().await;
        let start = tokio::time::Instant::now();
        let asked = crate::calls::as_purpose(CallPurpose::Vital, read(&client)).await;
        (asked.unwrap(), start.elapsed(), script.seen().len())
    };
    let (_, health) = tokio::join!(flood, health);
    assert_eq!(health, (json!(1), Duration::ZERO, 7));
}
