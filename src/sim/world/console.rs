//! The VNC console call. It returns a ticket and a port, but nothing listens on that port.

use std::time::Duration;

use base64::Engine as _;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::context::{CallContext, failed};
use super::state::GuestType;
use crate::call::{Answer, Outcome};

const FIRST_PORT: usize = 5900;
/// How long the proxy waits for its single connection (qemu-server, API2/Qemu.pm, vncproxy).
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);

/// `POST …/vncproxy`: a task that waits for a connection and times out.
pub(crate) fn vnc_proxy(ctx: &CallContext, kind: GuestType) -> Outcome {
    let (ticket, password, port) = {
        let mut state = ctx.cluster.state();
        match kind {
            GuestType::Vm => state.vm(&ctx.node, ctx.vmid),
            GuestType::Ct => state.container(&ctx.node, ctx.vmid),
        }
        .map_err(failed)?;
        let running = state.tasks.running(&ctx.node);
        let port = FIRST_PORT + running.filter(|task| task.upid.kind == "vncproxy").count();
        let signature = Sha256::digest(state.random.uuid());
        let signature = base64::engine::general_purpose::STANDARD.encode(signature);
        let ticket = format!("PVEVNC:{:08X}::{signature}", state.clock.unix());
        let password: String = state.random.uuid().chars().take(8).collect();
        (ticket, password, port)
    };
    let caller = &ctx.call.caller;
    let task = ctx.cluster.fork(caller, &ctx.node, "vncproxy", ctx.vmid, |worker| async move {
        worker.sleep(CONNECTION_TIMEOUT).await;
        Err("connection timed out".to_owned())
    });
    let mut data = json!({
        "user": caller.full_id(), "ticket": ticket, "port": port.to_string(), "upid": task.data,
        "cert": ctx.cluster.certificates().ca_pem,
    });
    if ctx.flag("generate-password") {
        data["password"] = password.into();
    }
    Ok(Answer::new(data))
}
