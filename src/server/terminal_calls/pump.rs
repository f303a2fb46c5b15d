//! Carries what a guest sends to the screen of its terminal, and ends the terminal when it is over: by its shell, by its
//! owner, by its age, or since its owner may not be there any more.

use std::sync::Arc;
use std::time::{Duration, Instant};

use drover_model::id::LeaseId;
use drover_shell::OpenTerminal;
use drover_ssh::{TerminalEnd, TerminalOutput};
use tokio::sync::mpsc;

use crate::auth::Caller;
use crate::pass::LOOK;
use crate::share::Share;
use crate::state::State;
use crate::terminals::{Right, Terminal, over, right};

/// How many bytes a guest may show in one [`SLICE`]: what comes faster waits in the guest.
const SLICE_BYTES: usize = 128 << 10;
const SLICE: Duration = Duration::from_millis(50);

/// Ends a terminal, whatever happens to its pump.
struct Over {
    state: Arc<State>,
    terminal: Arc<Terminal>,
    why: String,
    _place: Share<String>,
}

impl Drop for Over {
    fn drop(&mut self) {
        let Self { state, terminal, why, .. } = self;
        state.audit.note(terminal.ended(why));
        state.terminals.forget(terminal, why);
        terminal.end(why);
        let Caller { principal, .. } = &terminal.caller;
        let agent = terminal.agent.as_str();
        tracing::info!(principal, agent, reason = why.as_str(), "a terminal ended");
    }
}

/// Runs until the terminal is over.
pub(super) async fn pump(
    state: Arc<State>,
    terminal: Arc<Terminal>,
    open: OpenTerminal,
    place: Share<String>,
) {
    let OpenTerminal { input, mut output } = open;
    // The terminal has the other one, which ends with it.
    drop(input);
    let why = "its screen could not be drawn".to_owned();
    let mut over = Over { state, terminal, why, _place: place };
    over.why = until_over(&over.state, &over.terminal, &mut output).await;
}

async fn until_over(
    state: &State,
    terminal: &Terminal,
    output: &mut mpsc::Receiver<TerminalOutput>,
) -> String {
    let mut looks = tokio::time::interval(LOOK);
    let (mut slice, mut shown) = (Instant::now(), 0);
    let closed = terminal.until_closed();
    tokio::pin!(closed);
    loop {
        tokio::select! {
            biased;
            why = &mut closed => return why.to_owned(),
            () = state.stopping() => return "the service stops".to_owned(),
            _ = looks.tick() => {
                if let Some(why) = must_end(state, terminal) {
                    return why;
                }
            }
            next = output.recv() => match next {
                Some(TerminalOutput::Bytes(bytes)) => {
                    if slice.elapsed() >= SLICE {
                        (slice, shown) = (Instant::now(), 0);
                    }
                    shown += bytes.len();
                    terminal.answer(terminal.show(&bytes));
                    if shown >= SLICE_BYTES {
                        tokio::time::sleep(SLICE.saturating_sub(slice.elapsed())).await;
                    }
                }
                Some(TerminalOutput::Ended(end)) => return spelled(end),
                None => return spelled(TerminalEnd::Lost),
            },
        }
    }
}

fn spelled(end: TerminalEnd) -> String {
    match end {
        TerminalEnd::Exited(Some(status)) => format!("its shell ended with status {status}"),
        TerminalEnd::Exited(None) => "its shell ended".to_owned(),
        TerminalEnd::Lost => "the connection to the agent was lost".to_owned(),
        TerminalEnd::Closed => "it was closed".to_owned(),
    }
}

/// Why a terminal cannot stay open.
fn must_end(state: &State, terminal: &Terminal) -> Option<String> {
    if let Some(why) = over(terminal.ages(Instant::now())) {
        return Some(why.to_owned());
    }
    if let Some(why) = terminal.pass.fault(state) {
        return Some(why.to_owned());
    }
    match right_of(state, &terminal.caller, terminal) {
        None => Some("its agent is gone".to_owned()),
        Some(Right::Enter) => None,
        Some(Right::Hold) => Some("its agent is free, and drover may hand it out".to_owned()),
        Some(Right::Forbidden(why) | Right::Closed(why)) => Some(format!("of its agent: {why}")),
    }
}

fn right_of(state: &State, caller: &Caller, terminal: &Terminal) -> Option<Right> {
    let agent = state.doors.view.agent(&terminal.agent)?;
    Some(of_agent(state, caller, &agent))
}

/// What a caller may do with an agent's terminal now.
pub(super) fn of_agent(
    state: &State,
    caller: &Caller,
    agent: &drover_model::status::AgentStatus,
) -> Right {
    let by = caller.by();
    right(&by, agent, |lease: &LeaseId| {
        let known = state.doors.view.lease(lease);
        known.is_some_and(|lease| by.owns(&lease.principal, lease.group.as_deref()))
    })
}
