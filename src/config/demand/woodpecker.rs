//! Settings of a Woodpecker source.

use drover_ci::System;
use drover_ci::woodpecker::Settings;

use super::{Behaviour, SourceInputs, is_loopback};
use crate::value::GRPC_FORM;

pub(super) fn behaviour(inputs: &mut SourceInputs<'_, '_>) -> Option<Behaviour> {
    const SERVER: &str = "grpcServer";
    let token = inputs.token();
    let grpc = inputs.raw.grpc_server.clone();
    if grpc.is_none() && !inputs.layer.is_faulty(SERVER) {
        let fault = inputs.layer.fault(SERVER, format!("`{SERVER}` is missing"));
        inputs.cx.faults.push(fault.help(GRPC_FORM));
    }
    let secure = inputs.raw.grpc_secure.unwrap_or(true);
    let (token, grpc) = (token?, grpc?);
    let host = grpc.rsplit_once(':').map_or(&*grpc, |(host, _)| host);
    if !secure && !is_loopback(host) {
        let message = "without TLS anyone on the way can read each agent's token";
        let fault = inputs.layer.fault("grpcSecure", message);
        let help = "give the gRPC port of the server a certificate, and remove `grpcSecure`";
        inputs.cx.warnings.push(fault.help(help));
    }
    let settings = Settings { token, grpc, secure };
    // The agent ends after one workflow, but a hostile guest could get more by its token.
    Some(Behaviour { early: true, ..Behaviour::of_single_jobs(System::Woodpecker(settings)) })
}
