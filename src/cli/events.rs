//! `drover events`: follows the event stream.

use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd as _;
use std::pin::pin;
use std::time::{Duration, Instant};

use causes::chain;
use drover_api::{EventKind, sentence};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::io::Interest;
use tokio::net::unix::pipe::Sender;

use super::client::Client;
use super::error::{CallError, CliError};
use super::options::EventsOptions;
use super::sentences::clean;
use super::term::Term;
use drover_server::view::EventId;

/// The longest event taken, in bytes.
const EVENT_LIMIT: usize = 1024 * 1024;

/// How long after a stream was opened it is opened again at the earliest.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// How often a stream is opened again whose service answers nothing.
const TRIES: usize = 5;

/// Things whose last sentence is remembered.
const THINGS_MAX: usize = 4096;

/// The first comment of the stream: what happens after it is sent.
const OPEN: &str = ": open";

/// The comment behind the last event that happened before the stream was opened.
const UP_TO_DATE: &str = ": up to date";

/// Ends once nobody reads the standard output any more: without it a stream in which nothing happens
/// would be followed for ever, as by `drover events | head -1`.
pub(super) async fn unread() {
    let watched =
        io::stdout().as_fd().try_clone_to_owned().and_then(Sender::from_owned_fd_unchecked);
    // A file or a device cannot be watched: writing to it fails by itself.
    match watched {
        Ok(out) => drop(out.ready(Interest::ERROR).await),
        Err(_) => std::future::pending::<()>().await,
    }
}

/// Prints events until drover does not answer any more, or with `--no-follow` those that are kept; those of one
/// agent alone until it is gone. A stream that ends is opened again, so that the next leader's follow.
pub(super) async fn follow(
    client: &Client,
    options: &EventsOptions,
    agent: Option<&str>,
    json: bool,
    term: &mut Term<'_>,
) -> Result<(), CliError> {
    let since =
        options.since.map(|span| Timestamp::now().checked_sub(span).unwrap_or(Timestamp::MIN));
    let after = since.map(|_| oldest()).or_else(|| options.after.clone());
    let after = after.or_else(|| options.no_follow.then(oldest));
    let mut stream = Stream::open(client, after.as_deref()).await?;
    let mut said = Said::default();
    let (mut last, mut is_again) = (after, false);
    let mut unread = pin!(unread());
    loop {
        let event = tokio::select! {
            biased;
            () = &mut unread => return Err(io::Error::from(io::ErrorKind::BrokenPipe).into()),
            event = stream.next() => event,
        };
        let event = match event? {
            Ok(event) => event,
            Err(why) if options.no_follow => {
                return Err(CliError::Failed(why + &goes_on(client, last.as_deref())));
            }
            Err(why) => {
                let again = tokio::select! {
                    biased;
                    () = &mut unread => return Err(io::Error::from(io::ErrorKind::BrokenPipe).into()),
                    again = stream.again(client, last.as_deref()) => again,
                };
                stream = again
                    .ok_or_else(|| CliError::Failed(why + &goes_on(client, last.as_deref())))?;
                is_again = true;
                continue;
            }
        };
        last = field(&event, "id:").or(last);
        if event.trim() == UP_TO_DATE && options.no_follow {
            return Ok(());
        }
        if event.trim() == OPEN && !options.no_follow {
            // From here on nothing is missed.
            let place = client.place();
            let again = if is_again { " again" } else { "" };
            let text = format!("following events of drover on `{place}`{again}");
            term.progress(json, &text, json!({ "place": place }))?;
        }
        if is_before(&event, since) {
            continue;
        }
        if agent.is_some_and(|agent| !concerns(&event, agent)) {
            continue;
        }
        if let Some(line) = line(&event, json, &mut said) {
            let line = if json { line } else { client.worded(&line) };
            writeln!(term.out, "{line}")?;
            term.out.flush()?;
        }
        let gone = field(&event, "event:").as_deref() == Some("agentGone");
        if gone && agent.is_some() {
            return Ok(());
        }
    }
}

/// An open stream of events.
pub(super) struct Stream {
    response: reqwest::Response,
    pending: Vec<u8>,
    opened: Instant,
}

impl Stream {
    pub(super) async fn open(client: &Client, after: Option<&str>) -> Result<Self, CallError> {
        let response = client.events(after).await?;
        Ok(Self { response, pending: Vec::new(), opened: Instant::now() })
    }

    /// The next event, or how the stream ended.
    ///
    /// # Errors
    /// An event is too long.
    pub(super) async fn next(&mut self) -> Result<Result<String, String>, CliError> {
        loop {
            let end = self.pending.windows(2).position(|pair| pair == b"\n\n");
            if let Some(end) = end {
                let event: Vec<u8> = self.pending.drain(..end + 2).collect();
                return Ok(Ok(String::from_utf8_lossy(&event).into_owned()));
            }
            if self.pending.len() > EVENT_LIMIT {
                return Err(CliError::Failed("an event is too long: is this a drover?".into()));
            }
            match self.response.chunk().await {
                Ok(Some(piece)) => self.pending.extend_from_slice(&piece),
                Ok(None) => return Ok(Err("the event stream ended: drover stops".to_owned())),
                Err(fault) => return Ok(Err(format!("the event stream broke: {}", chain(&fault)))),
            }
        }
    }

    /// The stream of the member that leads now, from the last event on; none where no drover answers.
    async fn again(&self, client: &Client, last: Option<&str>) -> Option<Self> {
        // A service that ends each stream at once is not asked without end.
        tokio::time::sleep(AGAIN_AFTER.saturating_sub(self.opened.elapsed())).await;
        for _ in 0..TRIES {
            match Self::open(client, last).await {
                Ok(stream) => return Some(stream),
                // A member that begins to lead, or ends, closes what it has not answered yet.
                Err(CallError::Broken { .. }) => tokio::time::sleep(AGAIN_AFTER).await,
                Err(_) => return None,
            }
        }
        None
    }
}

/// What follows the events after the last one, once drover runs again.
fn goes_on(client: &Client, last: Option<&str>) -> String {
    let last = last
        .map(|id| format!("; once it runs, `{} events --after {id}` goes on", client.program()));
    last.unwrap_or_default()
}

/// A field of an event.
pub(super) fn field(event: &str, name: &str) -> Option<String> {
    let mut lines = event.lines().filter_map(|line| line.strip_prefix(name));
    lines.next().map(|value| value.trim_start().to_owned())
}

/// What stands for the event before the first that is kept.
pub(super) fn oldest() -> String {
    EventId::OLDEST.to_string()
}

/// Whether an event is about this agent.
fn concerns(event: &str, agent: &str) -> bool {
    let Some(Ok(value)) = field(event, "data:").map(|data| serde_json::from_str::<Value>(&data))
    else {
        return false;
    };
    let named = ["/agent/id", "/step/agent", "/alarm/agent", "/lease/agent"];
    named.iter().any(|path| value.pointer(path).and_then(Value::as_str) == Some(agent))
}

/// Whether an event was reported before this moment; what has no time was not.
fn is_before(event: &str, since: Option<Timestamp>) -> bool {
    let reported = || {
        let value: Value = serde_json::from_str(&field(event, "data:")?).ok()?;
        value["at"].as_str()?.parse::<Timestamp>().ok()
    };
    since.is_some_and(|since| reported().is_some_and(|at| at < since))
}

/// What was said last of each thing. Much of what changes in a thing is in no sentence.
#[derive(Default)]
struct Said(HashMap<String, String>);

impl Said {
    /// Whether a sentence says of a thing what the last about it said.
    fn again(&mut self, kind: &str, value: &Value, sentence: &str) -> bool {
        let Some(
            EventKind::Agent
            | EventKind::Lease
            | EventKind::Template
            | EventKind::Cloud
            | EventKind::Source,
        ) = EventKind::of(kind)
        else {
            return false;
        };
        let Some(id) = value[kind]["id"].as_str() else { return false };
        if self.0.len() >= THINGS_MAX {
            self.0.clear();
        }
        let last = self.0.insert(format!("{kind} {id}"), sentence.to_owned());
        last.is_some_and(|last| last == sentence)
    }
}

/// One event as a line; none for comments, and where people have read it before.
fn line(event: &str, json: bool, said: &mut Said) -> Option<String> {
    let field = |name: &str| field(event, name);
    let data = field("data:")?;
    if json {
        return Some(data);
    }
    let kind = field("event:").unwrap_or_default();
    let id = field("id:").unwrap_or_else(|| "-".into());
    let value: Value = serde_json::from_str(&data).unwrap_or_default();
    let at = value["at"].as_str().map(dated).unwrap_or_default();
    let sentence = sentence(&kind, &value);
    if said.again(&kind, &value, &sentence) {
        return None;
    }
    Some(clean(&format!("{id}  {at}  {sentence}")))
}

/// A time with milliseconds, so that all lines have theirs in one width.
fn dated(at: &str) -> String {
    at.parse::<Timestamp>().map_or_else(|_| at.to_owned(), |at| format!("{at:.3}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Invariant: each event is one line, and nothing in it can move the cursor.

    #[test]
    fn events_are_lines() {
        let agent = "id: 3-17\nevent: agent\ndata: {\"at\":\"2026-11-21T08:11:02Z\",\"agent\":\
                     {\"id\":\"a1\",\"template\":\"lab/linux\",\"state\":\"Booting\",\"detail\":\
                     \"\\u001b[2Jwaits\"}}\n\n";
        insta::assert_snapshot!(
            line(agent, false, &mut Said::default()).unwrap_or_default(),
            @"3-17  2026-11-21T08:11:02.000Z  agent a1 of lab/linux is Booting: ?[2Jwaits"
        );
        let lagged = "event: lagged\ndata: {\"missed\":10}\n\n";
        insta::assert_snapshot!(
            line(lagged, false, &mut Said::default()).unwrap_or_default(),
            @"-    missed 10 events; look at `drover status`"
        );
        assert!(concerns(agent, "a1") && !concerns(agent, "a2") && !concerns(lagged, "a1"));
        assert_eq!(line(": still here\n\n", false, &mut Said::default()), None);
        let elsewhere =
            "event: lagged\ndata: {\"missed\":null,\"after\":\"3-17\",\"before\":\"5-1\"}\n\n";
        insta::assert_snapshot!(
            line(elsewhere, false, &mut Said::default()).unwrap_or_default(),
            @"-    events after 3-17 and before 5-1 are not known to the member that leads now: another one led then"
        );
        let newer = "id: 3-18\nevent: comet\ndata: {\"at\":\"2026-11-21T08:11:02.5Z\",\"kind\":\"comet\",\
                     \"tail\":1}\n\n";
        insta::assert_snapshot!(
            line(newer, false, &mut Said::default()).unwrap_or_default(),
            @r#"3-18  2026-11-21T08:11:02.500Z  comet {"tail":1}"#
        );
        let moment = |text: &str| Some(text.parse().unwrap_or(Timestamp::MIN));
        assert!(is_before(agent, moment("2026-11-21T08:11:03Z")));
        assert!(!is_before(agent, moment("2026-11-21T08:11:02Z")) && !is_before(agent, None));
        assert!(!is_before(lagged, moment("2026-11-21T08:11:03Z")), "it has no time");
        assert_eq!(line(lagged, true, &mut Said::default()).as_deref(), Some("{\"missed\":10}"));
    }

    // Invariant: people see what changed, and programs everything.

    #[test]
    fn a_sentence_about_a_thing_is_not_said_twice_in_a_row() {
        let agent = |id: &str, state: &str| {
            let agent = json!({ "id": id, "template": "lab/linux", "state": state, "detail": "" });
            format!("id: 3-1\nevent: agent\ndata: {}\n\n", json!({ "agent": agent }))
        };
        let step = "id: 3-2\nevent: reconciled\ndata: {\"cluster\":\"c1\",\"findings\":[]}\n\n";
        let mut said = Said::default();
        let mut is_said = |event: &str| line(event, false, &mut said).is_some();
        assert!(is_said(&agent("a1", "Booting")) && !is_said(&agent("a1", "Booting")));
        assert!(is_said(&agent("a2", "Booting")) && is_said(&agent("a1", "Ready")));
        assert!(is_said(&agent("a1", "Booting")), "it is news again");
        assert!(is_said(step) && is_said(step), "each of them happened");
        assert!(line(&agent("a1", "Booting"), true, &mut said).is_some());
    }
}
