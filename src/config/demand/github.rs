//! What is configured of a GitHub.

use std::time::Duration;

use drover_ci::System;
use drover_ci::github::{Login, Registration, ScaleSetSpec, Scope, Settings};
use reqwest::Url;
use serde_yaml::Value as Yaml;

use super::names::{GITHUB_OWNER, GITHUB_REPOSITORY, Rule};
use super::{Ground, Manner};
use crate::credential::{Credential, Vault};
use crate::environment::{GITHUB_TOKEN, POLL_INTERVAL, REPOSITORY};
use crate::fault::Fault;
use crate::layer::Layer;

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
    let scope = if ground.layer.has("scope") {
        ground.scope("", scope, FORMS)
    } else {
        let fault = ground.layer.fault("scope", "`scope` is missing");
        let help = format!("say whose jobs: {FORMS}; or set REPO_OWNER and REPO_NAME");
        ground.vault.faults.push(fault.help(help));
        None
    };
    let scope = scope.filter(|scope| ground.are_names("scope", &names(scope)));
    let scale_set = scale_set(ground);
    let repositories = repositories(ground, scope.as_ref());
    if matches!(scale_set, Some(Some(_))) && ground.layer.has("repositories") {
        let message = "a scale set does not use them: it is given the jobs of its whole scope";
        let fault = ground.layer.fault("repositories", message);
        let help = "take them out; GitHub's runner group says which repositories may use the set";
        ground.vault.warnings.push(fault.help(help));
    }
    let raw = ground.raw;
    let said = Duration::from_secs(raw.poll_seconds);
    let poll = if ground.layer.has("pollSeconds") { said } else { POLL };
    let registration = if raw.registration.as_deref() == Some("token") {
        Registration::Token
    } else {
        Registration::Jit
    };
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
    let registers = registration == Registration::Token;
    let system = System::GitHub(Box::new(settings));
    let manner = Manner::of_single_jobs(system);
    Some(Manner { registers, poll: Some(POLL), brisk: Some(BRISK), ..manner })
}

/// What the environment says of it, as dispatchers of runners are told.
pub(super) fn environment(vault: &mut Vault<'_>) -> Layer {
    let mut layer = Layer::empty(None, "");
    let environment = vault.environment;
    let [page, owner, name] = REPOSITORY.map(|name| environment.get(name));
    let mut wrong = |name: &str, text: &str, help: &str| {
        vault.faults.push(Fault::nowhere(name, text).help(help));
    };
    let both = match (owner, name) {
        (Some(owner), Some(name)) => Some(format!("{owner}/{name}")),
        (None, None) => None,
        (Some(_), None) => {
            wrong("REPO_OWNER", "`REPO_NAME` is not set", "set both, or neither");
            None
        }
        (None, Some(_)) => {
            wrong("REPO_NAME", "`REPO_OWNER` is not set", "set both, or neither");
            None
        }
    };
    let read = page.map(|page| (page, of_page(page)));
    match (&read, both) {
        (Some((_, None)), _) => {
            let text = "it is no URL of a repository";
            wrong("REPO_URL", text, "write it as https://github.com/OWNER/NAME");
        }
        (Some((_, Some((_, full)))), Some(both)) if !full.eq_ignore_ascii_case(&both) => {
            let text = format!("it is not `{both}`, as `REPO_OWNER` and `REPO_NAME` have it");
            wrong("REPO_URL", &text, "let them agree, or unset one of them");
        }
        (Some((_, Some((api, full)))), _) => {
            layer.put("url", "REPO_URL", Yaml::from(api.as_str()));
            layer.put("scope", "REPO_URL", Yaml::from(format!("repo/{full}")));
        }
        (None, Some(both)) => layer.put("scope", "REPO_NAME", Yaml::from(format!("repo/{both}"))),
        (None, None) => {}
    }
    if let Some(text) = environment.get(POLL_INTERVAL) {
        match text.parse::<u64>() {
            Ok(seconds) if (1..=3600).contains(&seconds) => {
                layer.put("pollSeconds", POLL_INTERVAL, Yaml::from(seconds));
            }
            _ => {
                let message = format!("`{text}` is no whole number from 1 to 3600");
                wrong(POLL_INTERVAL, &message, "set seconds between two looks, or unset it");
            }
        }
    }
    layer
}

/// The API and the full name behind a repository's page.
fn of_page(page: &str) -> Option<(String, String)> {
    let mut url: Url = page.parse().ok()?;
    let path = url.path().trim_matches('/').trim_end_matches(".git").to_owned();
    let parts: Vec<&str> = path.split('/').collect();
    if !matches!(parts.as_slice(), [owner, name] if !owner.is_empty() && !name.is_empty()) {
        return None;
    }
    if url.host_str() == Some("github.com") {
        return Some((URL.to_owned(), path));
    }
    url.set_path("api/v3");
    Some((url.to_string(), path))
}

fn scope(parts: &[&str]) -> Option<Scope> {
    Some(match parts {
        ["repo", owner, name] => Scope::Repository((*owner).to_owned(), (*name).to_owned()),
        ["org", name] => Scope::Organisation((*name).to_owned()),
        ["enterprise", name] => Scope::Enterprise((*name).to_owned()),
        _ => return None,
    })
}

fn names(scope: &Scope) -> Vec<(&str, &'static Rule)> {
    match scope {
        Scope::Repository(owner, name) => {
            vec![(owner, &GITHUB_OWNER), (name, &GITHUB_REPOSITORY)]
        }
        Scope::Organisation(name) | Scope::Enterprise(name) => vec![(name, &GITHUB_OWNER)],
    }
}

fn login(ground: &mut Ground<'_, '_>) -> Option<Login> {
    const KINDS: &str = "apiToken or githubApp";
    if !ground.layer.has("credentialsId")
        && let Some(token) = ground.vault.environment.get(GITHUB_TOKEN)
    {
        return Some(Login::Token(token.trim().to_owned().into()));
    }
    match ground.credential(KINDS)? {
        Credential::Token(token) => Some(Login::Token(token.clone())),
        Credential::App(app) => Some(Login::App(app.clone())),
        Credential::Faulty => None,
        Credential::Proxmox(_) | Credential::SshKey(_) | Credential::Login(..) => {
            ground.of_another_kind(KINDS);
            None
        }
    }
}

/// A scale set and the mode go together.
fn scale_set(ground: &mut Ground<'_, '_>) -> Option<Option<ScaleSetSpec>> {
    let (raw, layer) = (ground.raw, ground.layer);
    let fault = match (raw.mode.as_deref().unwrap_or("poll"), &raw.scale_set) {
        ("scaleSet", Some(_)) if raw.registration.as_deref() == Some("token") => {
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
    let needed =
        raw.mode.as_deref() != Some("scaleSet") && matches!(scope, Some(Scope::Enterprise(_)));
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
                None if !names.is_empty() => {
                    let all: Vec<String> = names.iter().filter_map(full).collect();
                    let parts = all.iter().filter_map(|full| full.split_once('/'));
                    let parts = parts.flat_map(|(owner, name)| {
                        [(owner, &GITHUB_OWNER), (name, &GITHUB_REPOSITORY)]
                    });
                    let parts: Vec<(&str, &Rule)> = parts.collect();
                    return ground.are_names("repositories", &parts).then_some(Some(all));
                }
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
