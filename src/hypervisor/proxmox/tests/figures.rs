//! What is measured of calls.

use super::*;

// Invariant: each call to Proxmox is counted once, with its route, its outcome and its own duration.

#[tokio::test(start_paused = true)]
async fn each_call_is_measured_by_its_route_and_outcome() {
    let script = Script::new(|asked| match asked {
        _ if asked.contains("/status/start") => {
            Step::Data(json!("UPID:pve1:1:1:1:x:101:ci@pve!drover:"))
        }
        _ if asked.contains("/status/stop") => Step::Refuse(500, "got timeout"),
        _ => Step::Silence,
    });
    let port = Proxmox::new(None, Arc::new(script), TASK_POLL_INTERVAL);
    let measured = Arc::new(Mutex::new(Vec::new()));
    let taken = Arc::clone(&measured);
    port.measure_calls(Box::new(move |route, outcome, took| {
        taken.lock().push((route.name, outcome.name(), took.as_secs()));
    }));
    port.set_cloud(primary(), &connection(&["a"], token())).unwrap();
    port.start(&vm()).await.unwrap();
    port.stop(&vm()).await.unwrap_err();
    let client = Arc::clone(&port.clouds.lock()[&primary()].client);
    client.version().await.unwrap_err();
    let power = "POST /nodes/*/GUEST/status/*";
    let expected = [(power, "done", 0), (power, "refused", 0), ("GET /version", "timeout", 60)];
    assert_eq!(*measured.lock(), expected);
}
