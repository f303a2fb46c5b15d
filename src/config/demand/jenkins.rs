//! Settings of a Jenkins source.

use std::time::Duration;

use drover_ci::System;
use drover_ci::jenkins::{self, Settings};

use super::{Behaviour, SourceInputs};
use crate::keys::Launch;

/// Time between two polls while there are nodes: in between, a node could start a second build.
const BRISK: Duration = Duration::from_secs(2);

pub(super) fn behaviour(inputs: &mut SourceInputs<'_, '_>) -> Option<Behaviour> {
    let login = inputs.login();
    let launch = launch(inputs);
    let (username, secret) = login?;
    let settings = Settings { username, secret, launch: launch? };
    let system = System::Jenkins(settings);
    Some(Behaviour {
        whole: true,
        early: true,
        brisk: Some(BRISK),
        ..Behaviour::of_single_jobs(system)
    })
}

fn launch(inputs: &mut SourceInputs<'_, '_>) -> Option<jenkins::Launch> {
    let (layer, key) = (inputs.layer, "launchCredentialsId");
    let credential = inputs.raw.launch_credentials_id.as_deref().filter(|id| !id.is_empty());
    match (inputs.raw.launch.unwrap_or(Launch::Websocket), credential) {
        (Launch::Ssh, Some(id)) => return Some(jenkins::Launch::Ssh(id.to_owned())),
        (Launch::Websocket, None) => return Some(jenkins::Launch::WebSocket),
        (Launch::InboundTcp, None) => return Some(jenkins::Launch::InboundTcp),
        (Launch::Ssh, None) => {
            let fault = layer.fault(key, format!("`{key}` is missing: `launch: ssh` needs it"));
            let help = "name the credential in Jenkins that logs in to the guests";
            inputs.cx.faults.push(fault.help(help));
        }
        (Launch::Websocket | Launch::InboundTcp, Some(_)) => {
            let fault = layer.fault(key, format!("`{key}` needs `launch: ssh`"));
            inputs.cx.faults.push(fault.help("remove it, or add `launch: ssh`"));
        }
    }
    None
}
