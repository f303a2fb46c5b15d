//! Consoles: the ticket that `vncproxy` gives. Nothing listens on the port it names.

use std::time::Duration;

use base64::Engine as _;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::ask::{Ask, failed};
use super::state::Kind;
use crate::call::{Answer, Outcome};

/// The first port of consoles.
const PORTS: usize = 5900;
/// How long the proxy waits for its one connection (qemu-server, API2/Qemu.pm, vncproxy).
const PATIENCE: Duration = Duration::from_secs(10);

/// `POST …/vncproxy`: a task that waits for a connection which never comes.
pub fn proxy(ask: &Ask, kind: Kind) -> Outcome {
    let (ticket, password, port) = {
        let mut state = ask.cluster.state();
        match kind {
            Kind::Vm => state.guest(&ask.node, ask.vmid),
            Kind::Ct => state.container(&ask.node, ask.vmid),
        }
        .map_err(failed)?;
        let running = state.tasks.running(&ask.node);
        let port = PORTS + running.filter(|task| task.upid.kind == "vncproxy").count();
        let signature = Sha256::digest(state.dice.uuid());
        let signature = base64::engine::general_purpose::STANDARD.encode(signature);
        let ticket = format!("PVEVNC:{:08X}::{signature}", state.clock.unix());
        let password: String = state.dice.uuid().chars().take(8).collect();
        (ticket, password, port)
    };
    let caller = &ask.call.caller;
    let task = ask.cluster.fork(caller, &ask.node, "vncproxy", ask.vmid, |worker| async move {
        worker.sleep(PATIENCE).await;
        Err("connection timed out".to_owned())
    });
    let mut data = json!({
        "user": caller.full_id(), "ticket": ticket, "port": port.to_string(), "upid": task.data,
        "cert": ask.cluster.certificates().ca_pem,
    });
    if ask.flag("generate-password") {
        data["password"] = password.into();
    }
    Ok(Answer::new(data))
}
