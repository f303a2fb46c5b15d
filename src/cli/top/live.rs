//! The loop: the terminal, keys, signals, and the time.

use std::io::{self, IsTerminal as _};
use std::pin::pin;
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use causes::chain;
use jiff::Timestamp;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use tokio::sync::mpsc::{Sender, channel};
use tokio::task::LocalSet;

use super::super::client::Client;
use super::super::error::CliError;
use super::super::global::Global;
use super::super::options::TopOptions;
use super::super::progress::Live;
use super::super::screen::{Output, Screen};
use super::super::term::Term;
use super::super::{remote, report, stdout};
use super::draw::{self, Theme};
use super::feed::Feed;
use super::input::{Clock, Effect, Input};
use super::keys::Key;
use super::model::Top;
use crate::terminal::{self, LiveTerminal};

/// How often the screen looks at the time.
const TICK: Duration = Duration::from_millis(250);
/// Inputs that wait at most; who has more waits.
const INPUTS: usize = 256;
/// How soon the reader of keys sees that nobody wants them any more.
const KEY_POLL: Duration = Duration::from_millis(100);

/// Shows the herd until somebody ends it; gives the exit code.
pub(in crate::cli) fn run(global: &Global, options: &TopOptions) -> ExitCode {
    let json = global.json;
    let result = drawable(global).and_then(|()| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime
            .map_err(|error| CliError::Failed(format!("cannot start the runtime: {error}")))?;
        LocalSet::new().block_on(&runtime, live(global, options))
    });
    match result {
        Ok(code) => ExitCode::from(code),
        Err(CliError::Output(error)) => stdout::not_written(json, error),
        Err(error) => report::fail_by(json, &error, &format!("drover: {}\n", chain(&error))),
    }
}

/// Refuses what is no terminal, and forms that are for scripts.
fn drawable(global: &Global) -> Result<(), CliError> {
    let is_terminal = io::stdout().is_terminal() && io::stdin().is_terminal();
    let knows_cursor = std::env::var_os("TERM").is_some_and(|term| term != "dumb");
    if is_terminal && knows_cursor && global.output() == Output::Table {
        return Ok(());
    }
    Err(CliError::Usage(
        "`drover top` draws on a terminal, and this is none: `drover status --watch` prints the same again \
         and again, and `drover --json events` is for scripts"
            .into(),
    ))
}

async fn live(global: &Global, options: &TopOptions) -> Result<u8, CliError> {
    let screen = Screen::of_process(global.output(), global.color);
    let theme = Theme { color: screen.color };
    let client = {
        let (mut out, mut err) = (io::stdout(), io::stderr());
        let mut term = Term { out: &mut out, err: &mut err, screen, live: Live::default() };
        Rc::new(Client::proven(global, false, &mut term).await?.at_once())
    };
    let (inputs, mut wanted) = channel(INPUTS);
    let feed = Feed { client: client.clone(), global: Rc::new(global.clone()), inputs };
    let mut stop = pin!(remote::stop_signal()?);
    let started = Instant::now();
    let clock = || Clock { since_start: started.elapsed(), wall: Timestamp::now() };
    let mut top =
        Top::new(client.place(), client.program(), options.noun, options.readonly, clock());
    let mut terminal = LiveTerminal::enter()?;
    let _keys = Keys::read(feed.inputs.clone());
    tokio::task::spawn_local(feed.clone().follow());
    let mut drawn = None;
    let mut tick = tokio::time::interval(TICK);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        let mut next = tokio::select! {
            biased;
            code = &mut stop => return Ok(code),
            input = wanted.recv() => input,
            _ = tick.tick() => Some(Input::Tick),
        };
        if let Some((columns, rows)) = terminal::size().filter(|size| *size != top.size) {
            top.step(Input::Size(columns, rows), clock())
                .into_iter()
                .for_each(|one| feed.begin(one));
        }
        // What came meanwhile is on the same frame.
        let mut taken = 0;
        while let Some(input) = next {
            for effect in top.step(input, clock()) {
                if effect == Effect::End {
                    return Ok(0);
                }
                feed.begin(effect);
            }
            taken += 1;
            next = if taken < INPUTS { wanted.try_recv().ok() } else { None };
        }
        // A call of its own that panicked does not end the loop by itself.
        if !terminal::is_taken() {
            return Err(CliError::Failed("a part of drover top panicked".into()));
        }
        // Ages are in whole seconds.
        let frame = (top.revision, top.clock.wall.as_second());
        if drawn != Some(frame) {
            top.settle_pane();
            terminal.draw(|area, buf| draw::screen(&top, theme, area, buf))?;
            drawn = Some(frame);
        }
    }
}

/// The reader of keys, which ends soon after this is dropped.
struct Keys(Arc<AtomicBool>);

impl Keys {
    fn read(inputs: Sender<Input>) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let over = is_over.clone();
        std::thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                let input = match event::poll(KEY_POLL) {
                    Ok(false) => continue,
                    Ok(true) => event::read().map(input),
                    Err(error) => Err(error),
                };
                // A terminal that gives no keys any more sends SIGHUP as well.
                let Ok(input) = input else { return };
                if let Some(input) = input
                    && inputs.blocking_send(input).is_err()
                {
                    return;
                }
            }
        });
        Self(is_over)
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// What an event of the terminal means here.
fn input(event: Event) -> Option<Input> {
    match event {
        Event::Key(key) if key.kind != KeyEventKind::Release => Some(Input::Key(key_of(key)?)),
        // The loop looks at the size by itself.
        Event::Resize(..) => Some(Input::Tick),
        Event::Key(_)
        | Event::FocusGained
        | Event::FocusLost
        | Event::Mouse(_)
        | Event::Paste(_) => None,
    }
}

fn key_of(key: KeyEvent) -> Option<Key> {
    let is_ctrl = key.modifiers.contains(KeyModifiers::CONTROL);
    let known = [
        (KeyCode::Enter, Key::Enter),
        (KeyCode::Esc, Key::Esc),
        (KeyCode::Up, Key::Up),
        (KeyCode::Down, Key::Down),
        (KeyCode::PageUp, Key::PageUp),
        (KeyCode::PageDown, Key::PageDown),
        (KeyCode::Home, Key::Home),
        (KeyCode::End, Key::End),
        (KeyCode::Backspace, Key::Backspace),
        (KeyCode::Tab, Key::Tab),
    ];
    if let KeyCode::Char(c) = key.code {
        // Terminals send Ctrl-J for Enter where they do not translate it.
        return Some(match (is_ctrl, c) {
            (true, 'j' | 'm') => Key::Enter,
            (true, c) => Key::Ctrl(c),
            (false, c) => Key::Char(c),
        });
    }
    known.into_iter().find(|(code, _)| *code == key.code).map(|(_, key)| key)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Invariant: a key of the terminal is one key here, however terminals spell it.

    #[test]
    fn keys_are_read_once_and_enter_is_enter_in_each_spelling() {
        let press = |code, modifiers| Event::Key(KeyEvent::new(code, modifiers));
        let read = |code, modifiers| match input(press(code, modifiers)) {
            Some(Input::Key(key)) => Some(key),
            Some(_) | None => None,
        };
        let (none, ctrl) = (KeyModifiers::NONE, KeyModifiers::CONTROL);
        for (code, modifiers, key) in [
            (KeyCode::Enter, none, Key::Enter),
            (KeyCode::Char('j'), ctrl, Key::Enter),
            (KeyCode::Char('j'), none, Key::Char('j')),
            (KeyCode::Char('G'), KeyModifiers::SHIFT, Key::Char('G')),
            (KeyCode::Char('c'), ctrl, Key::Ctrl('c')),
            (KeyCode::Esc, none, Key::Esc),
            (KeyCode::PageDown, none, Key::PageDown),
        ] {
            assert_eq!(read(code, modifiers), Some(key), "{code:?} {modifiers:?}");
        }
        assert_eq!(read(KeyCode::F(1), none), None);
        let mut released = KeyEvent::new(KeyCode::Enter, none);
        released.kind = KeyEventKind::Release;
        assert!(input(Event::Key(released)).is_none(), "a key counts when it goes down");
        assert!(matches!(input(Event::Resize(80, 24)), Some(Input::Tick)));
    }
}
