//! Messages to a server of ntfy, as JSON to its root (ntfy, documentation of v2, "Publish as JSON").

use serde_json::json;

use super::carry::{Delivered, Failure, call, client};
use super::kind::Severity;
use super::message::Message;
use super::settings::Ntfy;
use super::words;

/// ntfy makes a file of a message with more than 4,096 bytes.
const BYTES_MAX: usize = 4000;

pub(super) async fn send(to: &Ntfy, message: &Message) -> Result<Delivered, Failure> {
    let (by_severity, tag) = match message.severity {
        Some(Severity::Critical) => (5, "rotating_light"),
        Some(Severity::Warning) => (4, "warning"),
        None => (3, "white_check_mark"),
    };
    let mut body = json!({
        "topic": to.topic,
        "title": words::subject(message),
        "message": fitting(&words::body(message)),
        "priority": to.priority.unwrap_or(by_severity),
        "tags": [tag],
    });
    if let Some(page) = &message.page {
        body["click"] = json!(format!("{page}/"));
    }
    let mut request = client(&to.tls)?.post(to.url.clone()).json(&body);
    if let Some(token) = &to.token {
        request = request.bearer_auth(token.text());
    }
    call(request).await
}

/// Whether the server is healthy.
pub(super) async fn probe(to: &Ntfy) -> Result<String, Failure> {
    let health = to.url.join("v1/health").map_err(|error| Failure::lasting(error.to_string()))?;
    let Delivered { answer, refused: _ } = call(client(&to.tls)?.get(health)).await?;
    Ok(format!("the server answers {answer}; no message was sent"))
}

/// The lines of a text that fit.
fn fitting(text: &str) -> String {
    if text.len() <= BYTES_MAX {
        return text.to_owned();
    }
    let mut kept = String::new();
    for line in text.lines() {
        if kept.len() + line.len() > BYTES_MAX - 64 {
            break;
        }
        kept += line;
        kept.push('\n');
    }
    kept + "… the rest is cut off: `drover status` shows all"
}

#[cfg(test)]
mod tests {
    use super::*;

    // Invariant: no message becomes a file on a phone.

    #[test]
    fn a_text_that_is_too_long_ends_with_a_whole_line_and_says_so() {
        let line = "ä".repeat(100);
        let text = vec![line.as_str(); 100].join("\n");
        let kept = fitting(&text);
        assert!(kept.len() <= BYTES_MAX, "{}", kept.len());
        let (last, lines) = kept.split_last_line();
        assert!(last.starts_with("… the rest"), "{last}");
        assert!(lines.iter().all(|one| *one == line));
        assert_eq!(fitting("short\n"), "short\n");
    }

    trait Lines {
        fn split_last_line(&self) -> (&str, Vec<&str>);
    }

    impl Lines for String {
        fn split_last_line(&self) -> (&str, Vec<&str>) {
            let mut lines: Vec<&str> = self.lines().collect();
            (lines.pop().unwrap_or_default(), lines)
        }
    }
}
