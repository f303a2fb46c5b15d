//! What is configured of a Jenkins.

use std::time::Duration;

use drover_ci::System;
use drover_ci::jenkins::{self, Settings};

use super::{Ground, Launch, Manner};

/// Between two looks while there are nodes: in between a second build may slip onto one.
const BRISK: Duration = Duration::from_secs(2);

pub(super) fn manner(ground: &mut Ground<'_, '_>) -> Option<Manner> {
    let login = ground.login();
    let launch = launch(ground);
    let (username, secret) = login?;
    let settings = Settings { username, secret, launch: launch? };
    let system = System::Jenkins(settings);
    Some(Manner { whole: true, early: true, brisk: Some(BRISK), ..Manner::of_single_jobs(system) })
}

fn launch(ground: &mut Ground<'_, '_>) -> Option<jenkins::Launch> {
    let (layer, key) = (ground.layer, "launchCredentialsId");
    let credential = ground.raw.launch_credentials_id.as_deref().filter(|id| !id.is_empty());
    match (ground.raw.launch.unwrap_or(Launch::Websocket), credential) {
        (Launch::Ssh, Some(id)) => return Some(jenkins::Launch::Ssh(id.to_owned())),
        (Launch::Websocket, None) => return Some(jenkins::Launch::WebSocket),
        (Launch::InboundTcp, None) => return Some(jenkins::Launch::InboundTcp),
        (Launch::Ssh, None) => {
            let fault = layer.fault(key, format!("`{key}` is missing beside `launch: ssh`"));
            let help = "name the credential in Jenkins that logs in to the guests";
            ground.vault.faults.push(fault.help(help));
        }
        (Launch::Websocket | Launch::InboundTcp, Some(_)) => {
            let fault = layer.fault(key, format!("`{key}` means nothing without `launch: ssh`"));
            ground.vault.faults.push(fault.help("take it out, or add `launch: ssh`"));
        }
    }
    None
}
