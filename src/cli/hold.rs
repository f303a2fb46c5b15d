//! `drover hold`: an agent kept for debugging, and how to log in to it.

use std::fmt::Write as _;

use super::client::CALL_LIMIT;
use super::remote::{path, print};
use super::{CliError, Client, HoldOptions, Term};
use crate::web::{HoldIn, HoldOut};

/// Asks for a hold and tells how to log in.
pub(super) async fn hold(
    client: &Client,
    options: &HoldOptions,
    json: bool,
    term: &mut Term<'_>,
) -> Result<(), CliError> {
    let wish = HoldIn {
        seconds: Some(options.span.as_secs()),
        ssh_public_key: options.public_key.as_deref().map(read_key).transpose()?,
    };
    let path = path("agents", &options.agent, "/hold");
    let out: HoldOut = client.post(&path, &wish, CALL_LIMIT).await?;
    print(term, json, &out, told)
}

fn read_key(path: &std::path::Path) -> Result<String, CliError> {
    let shown = path.display();
    let text = std::fs::read_to_string(path)
        .map_err(|fault| CliError::Usage(format!("cannot read the key file `{shown}`: {fault}")))?;
    Ok(text.trim().to_owned())
}

fn told(out: &HoldOut) -> String {
    let mut text = format!(
        "agent {} is held for {} s from the moment it is free, then destroyed\n\
         `drover agents` tells its state and its login\n",
        out.agent, out.seconds
    );
    if let Some(key) = &out.private_key {
        // Writing to a text can not fail.
        let _ = write!(
            text,
            "the key to log in with, told once; keep it in a file of mode 600:\n{key}"
        );
    }
    text
}
