//! `drover hold`: an agent kept for debugging, and how to log in to it.

use std::path::Path;
use std::time::Duration;

use drover_api::{CloneOut, HoldIn, HoldNextOut, HoldOut};
use reqwest::Method;
use serde_json::json;

use super::client::{CALL_LIMIT, Client, path};
use super::error::CliError;
use super::identity;
use super::options::{CloneOptions, HoldNextOptions, HoldOptions};
use super::sentences::clean;
use super::term::{Term, print};

/// Asks for a hold and shows how to log in.
pub(super) async fn hold(
    client: &Client,
    options: &HoldOptions,
    json: bool,
    term: &mut Term<'_>,
) -> Result<(), CliError> {
    let command = terms(options.span, options.public_key.as_deref())?;
    let path = path("agents", &options.agent, "/hold");
    let out: HoldOut = client.post(&path, &command, CALL_LIMIT).await?;
    print(term, json, &out, reported)
}

/// Asks for the next failure of a template to be held, or takes that back.
pub(super) async fn hold_next(
    client: &Client,
    options: &HoldNextOptions,
    json: bool,
    term: &mut Term<'_>,
) -> Result<(), CliError> {
    let path = path("templates", &options.template, "/hold-next");
    if options.off {
        client.report(Method::DELETE, &path).await?;
        let line = format!("no failure of template {} is held\n", options.template);
        return print(term, json, &json!({ "released": options.template }), |_| line.clone());
    }
    let command = terms(options.span, options.public_key.as_deref())?;
    let out: HoldNextOut = client.post(&path, &command, CALL_LIMIT).await?;
    print(term, json, &out, reported_next)
}

/// Asks for a copy of a machine at this path of the API, and shows how to log in to it.
pub(super) async fn copy(
    client: &Client,
    path: &str,
    options: &CloneOptions,
    json: bool,
    term: &mut Term<'_>,
) -> Result<(), CliError> {
    let command = terms(options.span, options.public_key.as_deref())?;
    let out: CloneOut = client.post(path, &command, CALL_LIMIT).await?;
    print(term, json, &out, reported_copy)
}

/// How long it is held, and whom that lets in.
fn terms(span: Duration, public_key: Option<&Path>) -> Result<HoldIn, CliError> {
    let ssh_public_key = public_key.map(identity::public_line).transpose()?;
    Ok(HoldIn { seconds: Some(span.as_secs()), ssh_public_key })
}

fn reported_copy(out: &CloneOut) -> String {
    let text = format!(
        "agent {} is started as a copy of the machine of agent {}\n\
         it is held for {} s from the moment it is ready, then destroyed\n\
         `drover agents` shows its state and its login\n",
        clean(&out.agent),
        clean(&out.of),
        out.seconds
    );
    text + &key_reported(out.private_key.as_deref())
}

fn reported_next(out: &HoldNextOut) -> String {
    let reported = format!(
        "the next agent of {} that fails once it has a machine is held for {} s, then destroyed\n\
         `drover agents` shows why it failed and how to log in\n",
        out.template, out.seconds
    );
    reported + &key_reported(out.private_key.as_deref())
}

fn key_reported(private_key: Option<&str>) -> String {
    let Some(key) = private_key else { return String::new() };
    format!("the key to log in with, shown once; keep it in a file of mode 600:\n{key}")
}

fn reported(out: &HoldOut) -> String {
    let text = format!(
        "agent {} is held for {} s from the moment it is free, then destroyed\n\
         `drover agents` shows its state and its login\n",
        out.agent, out.seconds
    );
    text + &key_reported(out.private_key.as_deref())
}
