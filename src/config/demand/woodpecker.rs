//! What is configured of a Woodpecker.

use drover_ci::System;
use drover_ci::woodpecker::Settings;

use super::{Ground, Manner};

pub(super) fn manner(ground: &mut Ground<'_, '_>) -> Option<Manner> {
    let token = ground.token();
    let grpc = grpc(ground);
    let secure = ground.raw.grpc_secure.unwrap_or(true);
    let (token, grpc) = (token?, grpc?);
    if !secure && !is_loopback(&grpc) {
        let message = "without TLS whoever stands between can read each agent's token";
        let fault = ground.layer.fault("grpcSecure", message);
        let help = "give the server's gRPC a certificate, and leave `grpcSecure` out";
        ground.vault.warnings.push(fault.help(help));
    }
    let settings = Settings { token, grpc, secure };
    // Its program ends after one workflow, but a guest that lies would be given more by its token.
    Some(Manner { early: true, ..Manner::of_single_jobs(System::Woodpecker(settings)) })
}

/// Where agents connect; its faults are told.
fn grpc(ground: &mut Ground<'_, '_>) -> Option<String> {
    const KEY: &str = "grpcServer";
    let (layer, help) = (ground.layer, "write host and port, such as `ci.lan:9000`");
    let Some(text) = ground.raw.grpc_server.as_deref() else {
        if !layer.is_faulty(KEY) {
            let fault = layer.fault(KEY, format!("`{KEY}` is missing"));
            ground.vault.faults.push(fault.help(help));
        }
        return None;
    };
    let parts = text.rsplit_once(':').filter(|(host, port)| {
        !host.is_empty()
            && !host.contains('/')
            && !host.contains(char::is_whitespace)
            && port.parse::<u16>().is_ok_and(|port| port > 0)
    });
    if parts.is_none() {
        let fault = layer.fault(KEY, format!("`{text}` is no address of a gRPC server"));
        ground.vault.faults.push(fault.help(help));
        return None;
    }
    Some(text.to_owned())
}

fn is_loopback(grpc: &str) -> bool {
    let host = grpc.rsplit_once(':').map_or(grpc, |(host, _)| host).trim_matches(['[', ']']);
    host == "localhost"
        || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}
