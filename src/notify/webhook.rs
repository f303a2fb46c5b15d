//! Webhooks: a POST with JSON, signed where there is a secret.
//!
//! `X-Drover-Signature` is `sha256=` and the HMAC-SHA256 in hexadecimal digits of the text of
//! `X-Drover-Timestamp` (Unix seconds of the message), a dot, and the body.

use hmac::{Hmac, KeyInit as _, Mac as _};
use reqwest::Url;
use reqwest::header::CONTENT_TYPE;
use serde_json::{Value, json};
use sha2::Sha256;

use super::carry::{Delivered, Failure, answers, call, client};
use super::message::Message;
use super::settings::{Format, Webhook};
use super::words;

pub(super) async fn send(to: &Webhook, message: &Message) -> Result<Delivered, Failure> {
    let url = url(to)?;
    let body = body(to.format, message).to_string();
    let timestamp = (message.at.0 / 1000).to_string();
    let mut request = client(&to.tls)?
        .post(url)
        .header(CONTENT_TYPE, "application/json")
        .header("x-drover-message", &message.id)
        .header("x-drover-timestamp", &timestamp);
    if let Some(secret) = &to.secret {
        let signature = signature(secret.text(), &timestamp, &body);
        request = request.header("x-drover-signature", signature);
    }
    call(request.body(body)).await
}

/// Whether the server answers. What it says to a call that is no message says nothing about messages.
pub(super) async fn probe(to: &Webhook) -> Result<String, Failure> {
    let status = answers(client(&to.tls)?.head(url(to)?)).await?;
    Ok(format!("the server answers HEAD with status {status}; no message was sent"))
}

/// The error would show the URL.
fn url(to: &Webhook) -> Result<Url, Failure> {
    to.url.text().parse().map_err(|_| Failure::lasting("the URL is not valid"))
}

fn signature(secret: &str, timestamp: &str, body: &str) -> String {
    let mut key = hmac::digest::Key::<Hmac<Sha256>>::default();
    // As HMAC says: a key that is longer than a block is its digest.
    if secret.len() > key.len() {
        use sha2::Digest as _;
        let digest = Sha256::digest(secret);
        key[..digest.len()].copy_from_slice(&digest);
    } else {
        key[..secret.len()].copy_from_slice(secret.as_bytes());
    }
    let mut mac = Hmac::<Sha256>::new(&key);
    mac.update(format!("{timestamp}.{body}").as_bytes());
    let digits = mac.finalize().into_bytes();
    let digits: String = digits.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256={digits}")
}

fn body(format: Format, message: &Message) -> Value {
    match format {
        Format::Drover => message.json(),
        Format::Slack => {
            let (subject, text) = (words::subject(message), words::body(message));
            json!({"text": format!("*{}*\n```\n{}```", escaped(&subject), escaped(&text))})
        }
    }
}

/// What would be a link, a name to call or the end of the block in Slack.
fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    text.replace("```", "'''")
}

#[cfg(test)]
mod tests {
    use super::*;

    // Invariant: a signature is one that others compute, for keys of every length.

    #[test]
    fn a_signature_is_the_hmac_of_time_and_body() {
        // `printf '1.{}' | openssl dgst -sha256 -hmac KEY`.
        let long = "k".repeat(100);
        let all = ["short", long.as_str()].map(|key| signature(key, "1", "{}"));
        assert_eq!(
            all,
            [
                "sha256=728159537d5363b0cc888dd522b028b38c968c89fdea70bb71a65dbdfe03cc0e",
                "sha256=5a3cea565c7c1096e8ae387825a7997028a7399dfb36bf0eb69f7088a72092f4"
            ]
        );
    }
}
