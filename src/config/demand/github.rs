//! Settings of a GitHub source.

use std::time::Duration;

use drover_ci::System;
use drover_ci::github::{Login, Registration, ScaleSetSpec, Scope, Settings};
use reqwest::Url;
use serde_yaml::Value as Yaml;

use super::names::{GITHUB_OWNER, GITHUB_REPOSITORY, Rule};
use super::{Behaviour, SourceInputs};
use crate::context::Context;
use crate::credential::Credential;
use crate::environment::{GITHUB_TOKEN, POLL_INTERVAL, REPOSITORY, half, setting};
use crate::fault::Fault;
use crate::keys::{DEMAND, Mode};
use crate::layer::Layer;

/// The API of github.com.
pub(super) const URL: &str = "https://api.github.com";
const FORMS: &str = "`repo/OWNER/NAME`, `org/NAME` or `enterprise/NAME`";
/// Time between two polls of everything: GitHub limits calls by the hour.
const POLL: Duration = Duration::from_secs(60);
/// Time between two polls of runners and queued jobs.
const BRISK: Duration = Duration::from_secs(10);
/// The capacity of a scale set where the source has no cap.
const CAPACITY: u32 = 100;

pub(super) fn behaviour(inputs: &mut SourceInputs<'_, '_>) -> Option<Behaviour> {
    let login = login(inputs);
    let scope = if inputs.layer.has("scope") {
        inputs.scope("", scope, FORMS)
    } else {
        let fault = inputs.layer.fault("scope", "`scope` is missing");
        let help = format!("add whose jobs to serve: {FORMS}; or set REPO_OWNER and REPO_NAME");
        inputs.cx.faults.push(fault.help(help));
        None
    };
    let scope = scope.filter(|scope| inputs.are_names("scope", &names(scope)));
    let scale_set = scale_set(inputs);
    let repositories = repositories(inputs, scope.as_ref());
    if matches!(scale_set, Some(Some(_))) && inputs.layer.has("repositories") {
        let message = "a scale set does not use them: it gets the jobs of its whole scope";
        let fault = inputs.layer.fault("repositories", message);
        let help =
            "remove them; the runner group in GitHub says which repositories may use the set";
        inputs.cx.warnings.push(fault.help(help));
    }
    let raw = inputs.raw;
    let said = Duration::from_secs(raw.poll_seconds);
    let poll = if inputs.layer.has("pollSeconds") { said } else { POLL };
    let registration = raw.registration.unwrap_or(Registration::Jit);
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
    let behaviour = Behaviour::of_single_jobs(system);
    Some(Behaviour { registers, poll: Some(POLL), brisk: Some(BRISK), ..behaviour })
}

/// The layer of the environment, with the variables of runner dispatchers.
pub(super) fn environment(cx: &mut Context<'_>) -> Layer {
    let mut layer = Layer::empty(None, "", &DEMAND);
    let environment = cx.environment;
    let [page, owner, name] = REPOSITORY.map(|name| environment.get(name));
    let both = match (owner, name) {
        (Some(owner), Some(name)) => Some(format!("{owner}/{name}")),
        (None, None) => None,
        (Some(_), None) => {
            cx.faults.push(half("REPO_OWNER", "REPO_NAME"));
            None
        }
        (None, Some(_)) => {
            cx.faults.push(half("REPO_NAME", "REPO_OWNER"));
            None
        }
    };
    let mut wrong = |text: &str, help: &str| {
        cx.faults.push(Fault::nowhere("REPO_URL", text).help(help));
    };
    match (page.map(of_page), both) {
        (Some(None), _) => {
            let text = "it is not the URL of a repository";
            wrong(text, "write it as https://github.com/OWNER/NAME");
        }
        (Some(Some((_, full))), Some(both)) if !full.eq_ignore_ascii_case(&both) => {
            let text = format!("it is not `{both}` of `REPO_OWNER` and `REPO_NAME`");
            wrong(&text, "give the same repository, or unset one of them");
        }
        (Some(Some((api, full))), _) => {
            layer.put("url", "REPO_URL", Yaml::from(api));
            layer.put("scope", "REPO_URL", Yaml::from(format!("repo/{full}")));
        }
        (None, Some(both)) => layer.put("scope", "REPO_NAME", Yaml::from(format!("repo/{both}"))),
        (None, None) => {}
    }
    let poll = environment.get(POLL_INTERVAL).zip(DEMAND.find("pollSeconds"));
    match poll.map(|(text, key)| setting(key, POLL_INTERVAL, text)) {
        Some(Ok(seconds)) => layer.put("pollSeconds", POLL_INTERVAL, seconds),
        Some(Err(fault)) => cx.faults.push(fault),
        None => {}
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

fn login(inputs: &mut SourceInputs<'_, '_>) -> Option<Login> {
    const KINDS: &str = "apiToken or githubApp";
    if !inputs.layer.has("credentialsId")
        && let Some(token) = inputs.cx.environment.get(GITHUB_TOKEN)
    {
        return Some(Login::Token(token.trim().to_owned().into()));
    }
    inputs.credential(KINDS, |found| match found {
        Credential::Token(token) => Some(Login::Token(token.clone())),
        Credential::App(app) => Some(Login::App(app.clone())),
        Credential::Faulty
        | Credential::Proxmox(_)
        | Credential::SshKey(_)
        | Credential::Login(..) => None,
    })
}

/// A scale set and the mode go together.
fn scale_set(inputs: &mut SourceInputs<'_, '_>) -> Option<Option<ScaleSetSpec>> {
    let (raw, layer) = (inputs.raw, inputs.layer);
    let (key, message, help) = match (raw.mode.unwrap_or(Mode::Poll), &raw.scale_set) {
        (Mode::ScaleSet, Some(_)) if raw.registration == Some(Registration::Token) => {
            ("registration", "runners of a scale set need `jit`", "remove it")
        }
        (Mode::ScaleSet, Some(name)) => {
            let capacity = if raw.instance_cap > 0 { raw.instance_cap } else { CAPACITY };
            return Some(Some(ScaleSetSpec { name: name.clone(), capacity }));
        }
        (Mode::ScaleSet, None) => (
            "mode",
            "`scaleSet` is missing",
            "name the scale set: `scaleSet: drover`; drover makes it if it does not exist",
        ),
        (Mode::Poll, Some(_)) => ("scaleSet", "`scaleSet` needs its mode", "add `mode: scaleSet`"),
        (Mode::Poll, None) => return Some(None),
    };
    let fault = layer.fault(key, message).help(help);
    inputs.cx.faults.push(fault);
    None
}

/// Repositories by their full names.
fn repositories(
    inputs: &mut SourceInputs<'_, '_>,
    scope: Option<&Scope>,
) -> Option<Option<Vec<String>>> {
    let (raw, layer) = (inputs.raw, inputs.layer);
    let needed = raw.mode != Some(Mode::ScaleSet) && matches!(scope, Some(Scope::Enterprise(_)));
    let fault = match (&raw.repositories, scope) {
        (Some(_), Some(Scope::Repository(..))) => {
            let fault = layer.fault("repositories", "the scope is already one repository");
            fault.help("remove it, or write `scope: org/NAME`")
        }
        (None, _) if !needed => return Some(None),
        (None, _) => {
            let fault =
                layer.fault("scope", "GitHub does not list the repositories of an enterprise");
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
                    return inputs.are_names("repositories", &parts).then_some(Some(all));
                }
                None => layer.fault("repositories", "no repository is listed").help("name one"),
                Some(wrong) => {
                    let text = format!("`{wrong}` is not a repository");
                    layer.fault("repositories", text).help("write it as OWNER/NAME")
                }
            }
        }
    };
    inputs.cx.faults.push(fault);
    None
}
