//! What a key means for what is on the screen.

use std::time::Duration;

use clap::ValueEnum as _;

use super::super::options::TopNoun;
use super::super::table::Tone;
use super::action::{self, Action, ActionKey};
use super::detail::Detail;
use super::input::Effect;
use super::model::{Mode, Pane, Top};

/// How long a question stands before a key answers it: people have seen it then.
const SEEN_AFTER: Duration = Duration::from_millis(300);
/// The longest text that is typed, in characters.
const TYPED_MAX: usize = 100;
/// Nouns that Esc can go back to.
const BACK_MAX: usize = 20;

/// A key, whatever the terminal sends for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    Char(char),
    Ctrl(char),
    Enter,
    Esc,
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    End,
    Backspace,
    Tab,
}

impl Top {
    /// What comes of a key.
    pub(super) fn key(&mut self, key: Key) -> Vec<Effect> {
        self.note = None;
        let leaves = std::mem::take(&mut self.leaves);
        match std::mem::replace(&mut self.mode, Mode::Browse) {
            Mode::Browse => self.browse(key, leaves),
            Mode::Command(text) => self.command(key, text, leaves),
            Mode::Filter(text) => {
                self.filter(key, text);
                Vec::new()
            }
            Mode::Confirm(action) => self.confirm(key, action),
        }
    }

    /// Ends, unless a command runs that would be broken off and nobody said so twice.
    fn quit(&mut self, leaves: bool) -> Vec<Effect> {
        if self.running == 0 || leaves {
            return vec![Effect::End];
        }
        self.leaves = true;
        let text = "a command still runs: q again leaves, and breaks it off".to_owned();
        self.note = Some((Tone::Busy, text));
        Vec::new()
    }

    fn browse(&mut self, key: Key, leaves: bool) -> Vec<Effect> {
        let page = self.body_rows().saturating_sub(1).max(1);
        match key {
            Key::Char('q') => return self.quit(leaves),
            Key::Char(':') => self.mode = Mode::Command(String::new()),
            Key::Char('?') => self.lay(Pane::Help),
            Key::Esc => self.escape(),
            Key::Up | Key::Char('k') => self.scroll_by(|at| at.saturating_sub(1)),
            Key::Down | Key::Char('j') => self.scroll_by(|at| at.saturating_add(1)),
            Key::PageUp | Key::Ctrl('b') => self.scroll_by(|at| at.saturating_sub(page)),
            Key::PageDown | Key::Ctrl('f') | Key::Char(' ') => {
                self.scroll_by(|at| at.saturating_add(page));
            }
            Key::Home | Key::Char('g') => self.scroll_by(|_| 0),
            Key::End | Key::Char('G') => self.scroll_by(|_| usize::MAX),
            Key::Enter if self.pane.is_none() => self.open(),
            Key::Char('/') if self.pane.is_none() => {
                self.mode = Mode::Filter(self.shown.filter.clone());
            }
            Key::Char('s') if self.pane.is_none() => self.sort(),
            Key::Char('S') if self.pane.is_none() => {
                self.shown.sort = self.shown.sort.map(|(at, is_reversed)| (at, !is_reversed));
                self.shown.arrange();
            }
            Key::Char(other) => self.act(other),
            Key::Enter | Key::Ctrl(_) | Key::Backspace | Key::Tab => {}
        }
        Vec::new()
    }

    /// Leaves what lies on top: the pane, the filter, or the list.
    fn escape(&mut self) {
        if self.pane.take().is_some() {
            return;
        }
        if !self.shown.filter.is_empty() {
            self.shown.filter.clear();
            self.shown.arrange();
        } else if let Some(noun) = self.back.pop() {
            self.go(noun);
        }
    }

    fn scroll_by(&mut self, to: impl Fn(usize) -> usize) {
        match self.pane {
            Some(_) => {
                let most = self.scroll_most();
                self.scroll = to(self.scroll).min(most);
                self.is_at_end = most > 0 && self.scroll >= most;
            }
            None => self.shown.move_to(to(self.shown.cursor)),
        }
    }

    /// Opens the thing under the cursor, or the list that its row stands for.
    fn open(&mut self) {
        let Some(entry) = self.subject().cloned() else { return };
        if entry.noun == TopNoun::Herd {
            self.visit(TopNoun::Leases);
            return;
        }
        self.lay(Pane::Detail(Box::new(Detail::of(entry))));
    }

    /// Shows another list, from which Esc leads back.
    fn visit(&mut self, noun: TopNoun) {
        let before = self.shown.noun;
        self.go(noun);
        if self.shown.noun != before {
            self.back.push(before);
            let beyond = self.back.len().saturating_sub(BACK_MAX);
            self.back.drain(..beyond);
        }
    }

    /// Sorts by the next column, and behind the last one as the service has it.
    fn sort(&mut self) {
        let Some(listing) = &self.shown.listing else { return };
        let next = self.shown.sort.map_or(0, |(at, _)| at + 1);
        let is_column = next < listing.table.columns().len();
        self.shown.sort = is_column.then_some((next, false));
        self.shown.arrange();
    }

    /// Asks whether an action is to be run.
    fn act(&mut self, key: char) {
        let Some(action) = Action::of(key, self.subject(), &self.summary.clouds) else { return };
        match self.refusal(action.least) {
            Some(why) => self.note = Some((Tone::Bad, why)),
            None => {
                self.asked = self.clock.since_start;
                self.mode = Mode::Confirm(action);
            }
        }
    }

    fn confirm(&mut self, key: Key, action: Action) -> Vec<Effect> {
        // What was typed or pasted before the question was seen is no answer to it.
        if self.clock.since_start.saturating_sub(self.asked) < SEEN_AFTER {
            self.mode = Mode::Confirm(action);
            return Vec::new();
        }
        if matches!(key, Key::Char('y' | 'Y')) {
            self.note = Some((Tone::Busy, format!("runs: {}", action.command(&self.program))));
            self.running += 1;
            return vec![Effect::Run(action)];
        }
        self.note = Some((Tone::Plain, "nothing was changed".to_owned()));
        Vec::new()
    }

    fn command(&mut self, key: Key, mut text: String, leaves: bool) -> Vec<Effect> {
        if key == Key::Tab {
            self.mode = Mode::Command(TopNoun::of(&text).map_or(text, TopNoun::word));
        } else if key != Key::Enter {
            if edit(&mut text, key) {
                self.mode = Mode::Command(text);
            }
        } else if matches!(text.trim(), "q" | "quit") {
            return self.quit(leaves);
        } else if let Some(noun) = TopNoun::of(&text) {
            self.visit(noun);
        } else if !text.trim().is_empty() {
            let text = format!("`{}` is none of: {}", text.trim(), self.nouns().join(", "));
            self.note = Some((Tone::Bad, text));
        }
        Vec::new()
    }

    /// Takes a key while a filter is typed.
    fn filter(&mut self, key: Key, mut text: String) {
        let goes_on = key != Key::Enter && edit(&mut text, key);
        if goes_on {
            self.mode = Mode::Filter(text.clone());
        }
        self.shown.filter = if goes_on || key == Key::Enter { text } else { String::new() };
        self.shown.arrange();
    }

    /// The words of all lists that the caller may see.
    pub(super) fn nouns(&self) -> Vec<String> {
        let all = TopNoun::value_variants().iter().copied();
        all.filter(|noun| self.may_read(*noun)).map(TopNoun::word).collect()
    }

    /// The actions for what is shown that the caller may run.
    pub(super) fn actions(&self) -> impl Iterator<Item = &'static ActionKey> {
        let of_one = self.subject().map_or(&[][..], |entry| action::of_one(entry.noun));
        let all = of_one.iter().chain(action::of_all());
        all.filter(|one| self.refusal(one.least).is_none())
    }
}

/// Changes a text that is typed; false once Esc, or Backspace at its start, ends that.
fn edit(text: &mut String, key: Key) -> bool {
    match key {
        Key::Esc => return false,
        Key::Backspace => return text.pop().is_some(),
        Key::Ctrl('u') => text.clear(),
        Key::Char(c) if !c.is_control() && text.chars().count() < TYPED_MAX => text.push(c),
        Key::Char(_)
        | Key::Ctrl(_)
        | Key::Enter
        | Key::Up
        | Key::Down
        | Key::PageUp
        | Key::PageDown
        | Key::Home
        | Key::End
        | Key::Tab => {}
    }
    true
}
