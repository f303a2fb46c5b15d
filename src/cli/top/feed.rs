//! Calls to the service, the stream of its events, and commands, each as an input of the model.

use std::rc::Rc;
use std::time::Duration;

use causes::chain;
use clap::Parser as _;
use drover_api::{EventKind, WhySubjectOut};
use serde_json::Value;
use tokio::sync::mpsc::Sender;

use super::super::client::{CALL_LIMIT, Client, LONG_LIMIT};
use super::super::error::{CallError, CliError};
use super::super::events::{self, Stream};
use super::super::global::Global;
use super::super::options::Cli;
use super::super::progress::Live;
use super::super::screen::Screen;
use super::super::term::Term;
use super::super::{remote, why};
use super::action::Action;
use super::input::{Effect, Fault, FaultKind, Input};
use super::nouns::Ask;

/// How long after a stream ended the next one is opened.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// What every call needs.
#[derive(Clone)]
pub(super) struct Feed {
    pub client: Rc<Client>,
    pub global: Rc<Global>,
    pub inputs: Sender<Input>,
}

impl Feed {
    /// Begins what an effect asks for; it reports by an input. At the end nobody reads
    /// those any more, and nobody wants the rest.
    pub(super) fn begin(&self, effect: Effect) {
        let feed = self.clone();
        tokio::task::spawn_local(async move {
            let input = match effect {
                Effect::Ask(ask) => Input::Answer(ask, feed.ask(ask).await),
                Effect::Who => {
                    let who = feed.client.get("/v1/whoami", CALL_LIMIT).await;
                    Input::Who(who.map_err(|error| fault(&error)))
                }
                Effect::Why(name) => {
                    let path = why::query(&name);
                    let answer = feed.client.get::<WhySubjectOut>(&path, LONG_LIMIT).await;
                    Input::Why(name, answer.map(Box::new).map_err(|error| fault(&error)))
                }
                Effect::Run(action) => feed.run(&action).await,
                Effect::End => return,
            };
            let _ = feed.inputs.send(input).await;
        });
    }

    async fn ask(&self, ask: Ask) -> Result<Value, Fault> {
        let limit = if ask.asks_clusters() { LONG_LIMIT } else { CALL_LIMIT };
        self.client.get(ask.path(), limit).await.map_err(|error| fault(&error))
    }

    /// Runs the command of an action, as a shell would.
    async fn run(&self, action: &Action) -> Input {
        let words = std::iter::once("drover").chain(action.words.iter().map(String::as_str));
        let command = match Cli::try_parse_from(words) {
            Ok(cli) => cli.command,
            Err(error) => return Input::Did { text: error.to_string(), is_good: false },
        };
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut term =
            Term { out: &mut out, err: &mut err, screen: Screen::default(), live: Live::default() };
        let global = Global { json: false, output: None, ..(*self.global).clone() };
        let done = Box::pin(remote::once(&global, &self.client, command, &mut term)).await;
        let mut text = String::from_utf8_lossy(&out).into_owned();
        if let Err(error) = &done {
            text += &match error {
                CliError::Output(_) => String::new(),
                CliError::Usage(_)
                | CliError::Config(_)
                | CliError::Call(_)
                | CliError::Failed(_)
                | CliError::Waited(_)
                | CliError::Over(_) => chain(error),
            };
        }
        Input::Did { text, is_good: matches!(done, Ok(0)) }
    }

    /// Follows the events of the service, from the oldest that is kept on, until nobody reads the inputs any
    /// more. A stream that ends is opened again, from the last event on.
    pub(super) async fn follow(self) {
        let mut last = events::oldest();
        loop {
            let ended = match Stream::open(&self.client, Some(&last)).await {
                Ok(stream) => self.read(stream, &mut last).await,
                Err(error) => Some(fault(&error)),
            };
            let Some(fault) = ended else { return };
            if self.inputs.send(Input::StreamEnded(fault)).await.is_err() {
                return;
            }
            tokio::time::sleep(AGAIN_AFTER).await;
        }
    }

    /// Reads a stream to its end; none where nobody reads the inputs any more.
    async fn read(&self, mut stream: Stream, last: &mut String) -> Option<Fault> {
        self.inputs.send(Input::StreamOpen).await.ok()?;
        loop {
            let event = match stream.next().await {
                Ok(Ok(event)) => event,
                Ok(Err(text)) => return Some(Fault { kind: FaultKind::NotReached, text }),
                Err(error) => {
                    return Some(Fault { kind: FaultKind::NotReached, text: chain(&error) });
                }
            };
            let field = |name| events::field(&event, name);
            let Some(data) = field("data:") else { continue };
            let id = field("id:");
            if let Some(id) = &id {
                last.clone_from(id);
            }
            let kind = field("event:").unwrap_or_else(|| EventKind::Lagged.name().to_owned());
            let input = Input::Happened { id: id.unwrap_or_else(|| "-".into()), kind, data };
            self.inputs.send(input).await.ok()?;
        }
    }
}

/// Why a call gave nothing, and whether the same call may bring an answer later.
fn fault(error: &CallError) -> Fault {
    let kind = match error {
        error if error.lacks_leader() => FaultKind::NoLeader,
        CallError::Refused(_) if !error.is_passing() => FaultKind::Refused,
        CallError::Refused(_)
        | CallError::NoService { .. }
        | CallError::NotAllowed { .. }
        | CallError::Broken { .. }
        | CallError::PlainHttp { .. }
        | CallError::NotDrover { .. } => FaultKind::NotReached,
    };
    Fault { kind, text: chain(error) }
}

#[cfg(test)]
mod tests {
    use drover_api::Problem;

    use super::*;

    // Invariant: the head says which of the three it is: nobody answers, nobody leads, or the service said no.

    #[test]
    fn a_fault_is_of_the_connection_of_the_members_or_an_answer() {
        let place = || "/run/drover/drover.sock".to_owned();
        let refused = |status, name| CallError::Refused(Problem::new(status, name, "no", ""));
        let kind = |error: &CallError| fault(error).kind;
        assert_eq!(kind(&CallError::NoService { place: place() }), FaultKind::NotReached);
        assert_eq!(kind(&CallError::NotAllowed { place: place() }), FaultKind::NotReached);
        for (status, word, expected) in [
            (503, "no-leader", FaultKind::NoLeader),
            (503, "stopping", FaultKind::NotReached),
            (403, "forbidden", FaultKind::Refused),
            (404, "not-found", FaultKind::Refused),
        ] {
            assert_eq!(kind(&refused(status, word)), expected, "{status} {word}");
        }
    }
}
