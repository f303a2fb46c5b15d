//! What is configured of a GitHub.

use std::time::Duration;

use super::{Ground, Manner};
use crate::config::credential::Credential;
use crate::demand::System;
use crate::demand::github::{Login, Registration, ScaleSetSpec, Scope, Settings};

/// Where GitHub's own API is.
pub(super) const URL: &str = "https://api.github.com";
const FORMS: &str = "`repo/OWNER/NAME`, `org/NAME` or `enterprise/NAME`";
/// Time between two looks at everything: its rate limit is counted by the hour.
const POLL: Duration = Duration::from_secs(60);
/// Time between two looks at runners and at what waits.
const BRISK: Duration = Duration::from_secs(10);
/// The most jobs a scale set is given where the source has no cap.
const CAPACITY: u32 = 100;

pub(super) fn manner(ground: &mut Ground<'_, '_>) -> Option<Manner> {
    let login = login(ground);
    // None is preset: whose runners they are is to be said.
    let scope = ground.scope("", scope, FORMS);
    let scale_set = scale_set(ground);
    let repositories = repositories(ground, scope.as_ref());
    let raw = ground.raw;
    let said = Duration::from_secs(raw.poll_seconds);
    let poll = if ground.layer.has("pollSeconds") { said } else { POLL };
    let registration =
        if raw.registration == "token" { Registration::Token } else { Registration::Jit };
    let settings = Settings {
        scope: scope?,
        login: login?,
        repositories: repositories?,
        group: raw.runner_group.clone(),
        registration,
        scale_set: scale_set?,
        labels: raw.labels.clone(),
        poll,
    };
    let system = System::GitHub(Box::new(settings));
    Some(Manner { poll: Some(POLL), brisk: Some(BRISK), ..Manner::of_single_jobs(system) })
}

fn scope(parts: &[&str]) -> Option<Scope> {
    Some(match parts {
        ["repo", owner, name] => Scope::Repository((*owner).to_owned(), (*name).to_owned()),
        ["org", name] => Scope::Organisation((*name).to_owned()),
        ["enterprise", name] => Scope::Enterprise((*name).to_owned()),
        _ => return None,
    })
}

fn login(ground: &mut Ground<'_, '_>) -> Option<Login> {
    const KINDS: &str = "apiToken or githubApp";
    match ground.credential(KINDS)? {
        Credential::Token(token) => Some(Login::Token(token.clone())),
        Credential::App(app) => Some(Login::App(app.clone())),
        Credential::Faulty => None,
        Credential::Proxmox(_) | Credential::SshKey(_) => {
            ground.of_another_kind(KINDS);
            None
        }
    }
}

/// A scale set and the mode go together.
fn scale_set(ground: &mut Ground<'_, '_>) -> Option<Option<ScaleSetSpec>> {
    let (raw, layer) = (ground.raw, ground.layer);
    let fault = match (raw.mode.as_str(), &raw.scale_set) {
        ("scaleSet", Some(_)) if raw.registration == "token" => {
            let fault = layer.fault("registration", "runners of a scale set need `jit`");
            fault.help("take it out")
        }
        ("scaleSet", Some(name)) => {
            let capacity = if raw.instance_cap > 0 { raw.instance_cap } else { CAPACITY };
            return Some(Some(ScaleSetSpec { name: name.clone(), capacity }));
        }
        ("scaleSet", None) => {
            let fault = layer.fault("mode", "`scaleSet` is missing");
            fault.help("name the scale set: `scaleSet: drover`; it is made where it is not there")
        }
        (_, Some(_)) => {
            let fault = layer.fault("scaleSet", "`scaleSet` means nothing without its mode");
            fault.help("say `mode: scaleSet`")
        }
        (_, None) => return Some(None),
    };
    ground.vault.faults.push(fault);
    None
}

/// Repositories by their full names.
fn repositories(ground: &mut Ground<'_, '_>, scope: Option<&Scope>) -> Option<Option<Vec<String>>> {
    let (raw, layer) = (ground.raw, ground.layer);
    let needed = raw.mode != "scaleSet" && matches!(scope, Some(Scope::Enterprise(_)));
    let fault = match (&raw.repositories, scope) {
        (Some(_), Some(Scope::Repository(..))) => {
            let fault = layer.fault("repositories", "the scope is one repository already");
            fault.help("take it out, or make it `scope: org/NAME`")
        }
        (None, _) if !needed => return Some(None),
        (None, _) => {
            let fault = layer.fault("scope", "an enterprise has no list of repositories");
            fault.help("name them: `repositories: [OWNER/NAME]`, or use `mode: scaleSet`")
        }
        (Some(names), _) => {
            let full = |name: &String| match (name.split('/').collect::<Vec<_>>().as_slice(), scope)
            {
                ([owner, name], _) if !owner.is_empty() && !name.is_empty() => {
                    Some(format!("{owner}/{name}"))
                }
                ([name], Some(Scope::Organisation(owner))) if !name.is_empty() => {
                    Some(format!("{owner}/{name}"))
                }
                _ => None,
            };
            match names.iter().find(|name| full(name).is_none()) {
                None if !names.is_empty() => return Some(Some(names.iter().filter_map(full).collect())),
                None => layer.fault("repositories", "no repository is listed").help("name one"),
                Some(wrong) => {
                    let text = format!("`{wrong}` names no repository");
                    layer.fault("repositories", text).help("write it as OWNER/NAME")
                }
            }
        }
    };
    ground.vault.faults.push(fault);
    None
}
