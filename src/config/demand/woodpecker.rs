//! Settings of a Woodpecker source.

use drover_ci::System;
use drover_ci::woodpecker::Settings;

use super::{Behaviour, SourceInputs};

pub(super) fn behaviour(inputs: &mut SourceInputs<'_, '_>) -> Option<Behaviour> {
    let token = inputs.token();
    let grpc = grpc(inputs);
    let secure = inputs.raw.grpc_secure.unwrap_or(true);
    let (token, grpc) = (token?, grpc?);
    if !secure && !is_loopback(&grpc) {
        let message = "without TLS anyone on the way can read each agent's token";
        let fault = inputs.layer.fault("grpcSecure", message);
        let help = "give the gRPC port of the server a certificate, and remove `grpcSecure`";
        inputs.cx.warnings.push(fault.help(help));
    }
    let settings = Settings { token, grpc, secure };
    // The agent ends after one workflow, but a hostile guest could get more by its token.
    Some(Behaviour { early: true, ..Behaviour::of_single_jobs(System::Woodpecker(settings)) })
}

/// The address that agents connect to; none is a fault.
fn grpc(inputs: &mut SourceInputs<'_, '_>) -> Option<String> {
    const KEY: &str = "grpcServer";
    let (layer, help) = (inputs.layer, "write host and port, such as `ci.lan:9000`");
    let Some(text) = inputs.raw.grpc_server.as_deref() else {
        if !layer.is_faulty(KEY) {
            let fault = layer.fault(KEY, format!("`{KEY}` is missing"));
            inputs.cx.faults.push(fault.help(help));
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
        let fault = layer.fault(KEY, format!("`{text}` is not the address of a gRPC server"));
        inputs.cx.faults.push(fault.help(help));
        return None;
    }
    Some(text.to_owned())
}

fn is_loopback(grpc: &str) -> bool {
    let host = grpc.rsplit_once(':').map_or(grpc, |(host, _)| host).trim_matches(['[', ']']);
    host == "localhost"
        || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}
