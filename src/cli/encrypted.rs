//! `drover config encrypt` and `drover config age-key`: secrets that git may hold.

use std::io::{self, Read as _};
use std::process::ExitCode;

use drover_config::{Environment, Identities, encrypt};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::json;

use super::config::config_path;
use super::global::Global;
use super::report::{USAGE, fail};
use super::stdout::{put, put_value};

/// The largest secret, in bytes.
const MAX_BYTES: u64 = 64 * 1024;

/// Encrypts what standard input has, and prints it as a key of the YAML.
pub(super) fn encrypted(global: &Global, recipient: Option<&str>) -> ExitCode {
    let recipient = match recipient.map(str::to_owned).map_or_else(|| own(global), Ok) {
        Ok(recipient) => recipient,
        Err(text) => return refused(global.json, USAGE, &text),
    };
    let secret = match given() {
        Ok(secret) => secret,
        Err(text) => return refused(global.json, USAGE, &text),
    };
    let armored = match encrypt(&recipient, &secret) {
        Ok(armored) => armored,
        Err(text) => return refused(global.json, USAGE, &text),
    };
    let lines: String = armored.trim().lines().map(|line| format!("  {line}\n")).collect();
    let text = format!("secretAge: |\n{lines}");
    match global.json {
        true => {
            let value = json!({ "recipient": recipient, "secretAge": armored });
            put_value(global.output(), &value, ExitCode::SUCCESS)
        }
        false => put(false, &text, ExitCode::SUCCESS),
    }
}

/// Prints a new identity, as its file.
pub(super) fn age_key(global: &Global) -> ExitCode {
    let (identities, file) = Identities::generate();
    match global.json {
        true => {
            let value = json!({
                "recipient": identities.recipients().join(" "),
                "identity": file.expose_secret(),
            });
            put_value(global.output(), &value, ExitCode::SUCCESS)
        }
        false => put(false, file.expose_secret(), ExitCode::SUCCESS),
    }
}

/// For whom the configuration can read secrets.
fn own(global: &Global) -> Result<String, String> {
    let path = config_path(global);
    let checked = drover_config::load(&path, &Environment::of_process())
        .map_err(|error| format!("{}; or give --recipient", error.render().trim_end()))?;
    checked.service.age_recipients.into_iter().next().ok_or_else(|| {
        "the configuration has no service.ageIdentity: give --recipient, or make an identity with \
         `drover config age-key`"
            .to_owned()
    })
}

fn given() -> Result<SecretString, String> {
    let mut text = String::new();
    let read = io::stdin().take(MAX_BYTES + 1).read_to_string(&mut text);
    read.map_err(|error| format!("standard input cannot be read: {error}"))?;
    if text.len() as u64 > MAX_BYTES {
        return Err(format!("the secret has more than {MAX_BYTES} bytes"));
    }
    let secret = text.trim_end_matches(['\r', '\n']);
    if secret.is_empty() {
        return Err("standard input has no secret: pipe one in".to_owned());
    }
    Ok(SecretString::from(secret))
}

fn refused(json: bool, code: u8, text: &str) -> ExitCode {
    fail(json, code, text, &format!("drover: {text}\n"))
}
