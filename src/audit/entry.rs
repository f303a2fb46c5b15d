//! What is recorded: names, numbers and digests. No entry has a field for a body, a token or a key.

use serde::{Deserialize, Serialize};

/// Characters of a text that comes from outside.
const TEXT_MAX: usize = 256;
/// The role that may look at things only.
const VIEWER: &str = "viewer";

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Entry {
    /// Somebody called a route of the API that may change something.
    Call(Call),
    /// Somebody opened a terminal in an agent.
    TerminalOpened(Terminal),
    /// A terminal in an agent ended. What was typed and shown there is recorded nowhere.
    TerminalEnded {
        /// Which one, and who had opened it.
        terminal: Terminal,
        /// How long it was open.
        seconds: u64,
        /// Bytes that were typed.
        typed_bytes: u64,
        /// Bytes that the agent sent.
        shown_bytes: u64,
        /// What ended it.
        why: String,
    },
    /// A configuration came into force.
    ConfigurationApplied {
        /// What made drover read it.
        cause: Cause,
        /// The SHA-256 of its files.
        digest: String,
        /// Counts the configurations since the start.
        generation: u64,
    },
    /// A configuration was refused, and the one before stays in force. The faults are in the log: they quote
    /// the files.
    ConfigurationRefused {
        /// What made drover read it.
        cause: Cause,
        /// The configuration that stays.
        generation: u64,
    },
    /// The process got a signal.
    Signal {
        /// Such as `SIGHUP`.
        name: String,
    },
    /// A sync brought the configuration of git into force, or failed in another way than the one before.
    Sync(Sync),
    /// The service began to serve, or this member to lead.
    Started {
        /// The version of drover.
        version: String,
        /// The name of this member, where several drovers share a store.
        member: Option<String>,
    },
    /// The service stopped in order, or this member leads no more.
    Stopped,
    /// A piece of a line is in the file before this record: a write broke off, as where the process died or the
    /// disk was full.
    TornLine {
        /// The length of the piece, with the end of its line.
        bytes: u64,
        /// The SHA-256 of the piece.
        sha256: String,
    },
    /// drover removed the oldest file, to stay within its bound.
    Removed {
        /// The file's name.
        file: String,
        /// The number of its last record.
        last_seq: u64,
        /// The hash of its last record.
        last_hash: String,
    },
    /// Records before this one could not be written.
    Lost {
        /// How many records.
        records: u64,
        /// What the system said.
        why: String,
    },
    /// A caller had so many calls that changed nothing, such as refused ones, that only some are recorded.
    LeftOut {
        /// Whose; none for callers that nobody knows.
        principal: Option<String>,
        /// How many are not recorded.
        calls: u64,
    },
}

/// A call of the API.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Call {
    /// `token:NAME`, `openid:NAME` of who logged in at the provider, `uid:N`, `source:NAME` of a webhook, or
    /// `agent:ID` of a guest; none for a caller that nobody knows.
    pub principal: Option<String>,
    /// What the caller may do.
    pub role: Option<String>,
    /// Where the call came from: an IP address, or `uid:N` on the Unix socket.
    pub peer: String,
    /// The member of the store that forwarded the call.
    pub member: Option<String>,
    /// The method of HTTP.
    pub method: String,
    /// The path as `openapi.json` has it; none where no route has the path.
    pub route: Option<String>,
    /// What the path names: `a1` of `/v1/agents/a1/retire`. The whole path, where no route has it.
    pub object: Option<String>,
    /// The status of the answer; none where the call ended without one.
    pub status: Option<u16>,
    /// The id of the request, which its answer has in the header `x-request-id`.
    pub request: String,
    /// What was done, in words, where method and path do not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub done: Option<String>,
}

/// A terminal in an agent, and who opened it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Terminal {
    /// The terminal's id.
    pub id: String,
    pub agent: String,
    /// `token:NAME` or `uid:N`.
    pub principal: String,
    /// What they may do.
    pub role: String,
    /// Where they were: an IP address, or `uid:N` on the Unix socket.
    pub peer: String,
}

/// What made drover read its configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Cause {
    /// The start of the service.
    Start,
    /// The files changed.
    Files,
    /// Somebody asked by the API, or a sync with git did.
    Request,
    /// The process got SIGHUP or SIGUSR2.
    Signal,
    /// The other members of the store have it too, now.
    Members,
}

/// How a sync with git went.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Sync {
    /// The commit; none where git could not be read.
    pub commit: Option<String>,
    /// Whether the sync failed, and the configuration before stays in force.
    pub failed: bool,
}

impl Entry {
    /// The same with texts that are bounded and on one line.
    pub(crate) fn bounded(self) -> Self {
        match self {
            Self::Call(call) => Self::Call(call.bounded()),
            Self::Lost { records, why } => Self::Lost { records, why: plain(&why) },
            Self::LeftOut { principal, calls } => {
                Self::LeftOut { principal: principal.as_deref().map(plain), calls }
            }
            Self::TerminalOpened(terminal) => Self::TerminalOpened(terminal.bounded()),
            Self::TerminalEnded { terminal, seconds, typed_bytes, shown_bytes, why } => {
                let (terminal, why) = (terminal.bounded(), plain(&why));
                Self::TerminalEnded { terminal, seconds, typed_bytes, shown_bytes, why }
            }
            entry @ (Self::ConfigurationApplied { .. }
            | Self::ConfigurationRefused { .. }
            | Self::Signal { .. }
            | Self::Sync(_)
            | Self::Started { .. }
            | Self::Stopped
            | Self::TornLine { .. }
            | Self::Removed { .. }) => entry,
        }
    }

    /// Who asked, where an entry is about somebody.
    pub fn principal(&self) -> Option<&str> {
        match self {
            Self::Call(call) => call.principal.as_deref(),
            Self::LeftOut { principal, .. } => principal.as_deref(),
            Self::TerminalOpened(terminal) | Self::TerminalEnded { terminal, .. } => {
                Some(&terminal.principal)
            }
            Self::ConfigurationApplied { .. }
            | Self::ConfigurationRefused { .. }
            | Self::Signal { .. }
            | Self::Sync(_)
            | Self::Started { .. }
            | Self::Stopped
            | Self::TornLine { .. }
            | Self::Removed { .. }
            | Self::Lost { .. } => None,
        }
    }

    /// Whether an entry is about this: an object, one of its parts, or a word of the route's path.
    pub fn is_about(&self, thing: &str) -> bool {
        if let Self::TerminalOpened(terminal) | Self::TerminalEnded { terminal, .. } = self {
            return [&*terminal.id, &*terminal.agent, "terminals"].contains(&thing);
        }
        let Self::Call(call) = self else { return false };
        let object = call.object.as_deref().unwrap_or_default();
        let route = call.route.as_deref().unwrap_or_default();
        object == thing || object.split('/').chain(route.split('/')).any(|part| part == thing)
    }
}

impl Call {
    fn bounded(self) -> Self {
        Self {
            principal: self.principal.as_deref().map(plain),
            role: self.role.as_deref().map(plain),
            peer: plain(&self.peer),
            member: self.member.as_deref().map(plain),
            method: plain(&self.method),
            route: self.route.as_deref().map(plain),
            object: self.object.as_deref().map(plain),
            status: self.status,
            request: plain(&self.request),
            done: self.done.as_deref().map(plain),
        }
    }

    /// Whether the call changed nothing, as far as is known of its caller.
    pub(crate) fn changes_nothing(&self) -> bool {
        let is_nobodys = self.principal.is_none() || self.role.is_none();
        is_nobodys || self.is_refused() || self.role.as_deref() == Some(VIEWER)
    }

    /// Whether the answer says that nothing was done for this caller.
    fn is_refused(&self) -> bool {
        self.status.is_some_and(|status| (400..500).contains(&status))
    }
}

impl Terminal {
    fn bounded(self) -> Self {
        let Self { id, agent, principal, role, peer } = self;
        let [id, agent, principal, role, peer] =
            [id, agent, principal, role, peer].map(|it| plain(&it));
        Self { id, agent, principal, role, peer }
    }
}

/// The beginning of a text, without what a line must not have.
fn plain(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_control()).take(TEXT_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    // Invariant: a record is short and on one line, whatever a caller sends.

    #[test]
    fn texts_from_outside_are_cut_and_have_no_control_characters() {
        let long = format!("a\n\u{1b}[31m{}", "x".repeat(5000));
        let call = Call { principal: Some(long.clone()), object: Some(long), ..Call::default() };
        let Entry::Call(call) = Entry::Call(call).bounded() else { panic!("it is a call") };
        for text in [call.principal, call.object].into_iter().flatten() {
            assert_eq!(text.chars().count(), TEXT_MAX);
            assert!(text.starts_with("a[31mx") && !text.contains(char::is_control), "{text}");
        }
    }

    #[test]
    fn a_terminal_is_found_by_its_agent_and_by_who_opened_it() {
        let terminal = Terminal {
            id: "t1".to_owned(),
            agent: "a1".to_owned(),
            principal: "token:ops\n".to_owned(),
            ..Terminal::default()
        };
        let why = "the shell ended".to_owned();
        let ended = Entry::TerminalEnded {
            terminal: terminal.clone(),
            seconds: 1,
            typed_bytes: 2,
            shown_bytes: 3,
            why,
        };
        for entry in [Entry::TerminalOpened(terminal), ended] {
            let entry = entry.bounded();
            assert_eq!(entry.principal(), Some("token:ops"));
            assert!(["a1", "t1", "terminals"].into_iter().all(|thing| entry.is_about(thing)));
            assert!(!entry.is_about("a2"));
        }
    }

    // Invariant: people find a call by each name in it.

    #[test]
    fn a_call_is_about_its_object_its_parts_and_the_words_of_its_route() {
        let call = Call {
            route: Some("/v1/agents/{id}/snapshots/{name}".to_owned()),
            object: Some("a1/before".to_owned()),
            ..Call::default()
        };
        let call = Entry::Call(call);
        for thing in ["a1", "before", "a1/before", "snapshots", "agents"] {
            assert!(call.is_about(thing), "{thing}");
        }
        for thing in ["a", "a1/", "snap", "{i"] {
            assert!(!call.is_about(thing), "{thing}");
        }
        assert!(!Entry::Stopped.is_about("agents"));
    }
}
