//! What is sent, as all channels have it.

use drover_model::time::WallTime;
use serde::Serialize;
use serde_json::{Value, json};

use super::kind::{Kind, Severity};
use super::words;

/// One message, whichever channel it goes over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The same where the same message is sent again.
    pub id: String,
    /// Which drover sends it.
    pub from: String,
    pub channel: String,
    pub at: WallTime,
    /// The most urgent of what stands; none where it only says what is over.
    pub severity: Option<Severity>,
    /// What is new.
    pub opened: Vec<Item>,
    /// How many more are new.
    pub opened_more: usize,
    /// What is over.
    pub recovered: Vec<Item>,
    pub recovered_more: usize,
    /// What was sent before, and still stands.
    pub still: Vec<Item>,
    pub still_more: usize,
    /// All that stands, sent or not.
    pub standing: usize,
    /// Where people reach the page.
    pub page: Option<String>,
    /// Somebody asked for it: nothing is wrong.
    pub is_test: bool,
}

/// A trouble in a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    pub kind: Kind,
    pub about: String,
    pub text: String,
    pub command: String,
    pub since: WallTime,
    /// When it was over.
    pub until: Option<WallTime>,
    pub link: Option<String>,
}

/// A trouble in the body of a webhook.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ItemOut<'a> {
    kind: Kind,
    severity: Severity,
    about: &'a str,
    text: &'a str,
    command: &'a str,
    since: String,
    until: Option<String>,
    link: Option<&'a str>,
}

fn out(items: &[Item]) -> Vec<ItemOut<'_>> {
    let all = items.iter().map(|item| {
        let Item { kind, about, text, command, since, until, link } = item;
        ItemOut {
            kind: *kind,
            severity: kind.severity(),
            about,
            text,
            command,
            since: since.rfc3339(),
            until: until.map(WallTime::rfc3339),
            link: link.as_deref(),
        }
    });
    all.collect()
}

impl Message {
    /// The body of a webhook: `src/book/notifications.md` has its schema.
    pub fn json(&self) -> Value {
        json!({
            "version": 1,
            "id": self.id,
            "from": self.from,
            "channel": self.channel,
            "at": self.at.rfc3339(),
            "test": self.is_test,
            "severity": self.severity,
            "subject": words::subject(self),
            "text": words::body(self),
            "opened": out(&self.opened),
            "openedMore": self.opened_more,
            "recovered": out(&self.recovered),
            "recoveredMore": self.recovered_more,
            "stillStanding": out(&self.still),
            "stillStandingMore": self.still_more,
            "standing": self.standing,
            "page": self.page,
        })
    }
}
