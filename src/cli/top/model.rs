//! The state of the screen, folded from keys, answers, events and the time. Pure: what is to be done comes out
//! as [`Effect`]s.

use std::time::Duration;

use drover_api::{EventKind, Role, StatusOut, WhoAmIOut};
use jiff::Timestamp;
use serde_json::Value;

use super::super::options::TopNoun;
use super::super::table::Tone;
use super::action::Action;
use super::detail::{Detail, Why};
use super::fetching::Fetching;
use super::happenings::{Happening, Happenings};
use super::input::{Clock, Effect, Fault, FaultKind, Input};
use super::listing::{Entry, Listing};
use super::nouns::{Ask, moved};
use super::shown::Shown;
use super::summary::Summary;

/// Rows of the screen that are not the list: two of the head, the title, the columns, the line of notes, and the
/// keys.
pub(super) const CHROME_ROWS: u16 = 6;
/// How often the numbers of the head are asked for at most, where the list is another answer.
const SUMMARY_PAUSE: Duration = Duration::from_secs(5);
/// How often it is asked again why the thing in the detail waits.
const WHY_PAUSE: Duration = Duration::from_secs(15);
/// How often it is asked who the caller is, until the service answers.
const WHO_PAUSE: Duration = Duration::from_secs(2);

/// What keys are for at the moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Mode {
    Browse,
    /// A noun is typed behind `:`.
    Command(String),
    /// A filter is typed behind `/`; it holds while it is typed.
    Filter(String),
    /// The command of an action waits for a yes.
    Confirm(Action),
}

/// What lies over the list.
#[derive(Debug)]
pub(super) enum Pane {
    Help,
    Detail(Box<Detail>),
    /// What an action printed in several lines.
    Text(String),
}

/// What is known of the connection.
#[derive(Debug, Default)]
pub(super) struct Link {
    pub is_streaming: bool,
    pub call: Option<Fault>,
    pub stream: Option<Fault>,
    /// Since when something is wrong.
    pub since: Option<Timestamp>,
}

/// Everything on the screen.
#[derive(Debug)]
pub(super) struct Top {
    /// Where the service is, and how commands that ask it begin.
    pub place: String,
    pub program: String,
    pub is_readonly: bool,
    pub who: Option<WhoAmIOut>,
    pub summary: Summary,
    pub shown: Shown,
    pub mode: Mode,
    pub pane: Option<Pane>,
    /// The lines of the pane above the screen.
    pub scroll: usize,
    /// Whether the pane stays at its last line although lines come.
    pub(super) is_at_end: bool,
    pub note: Option<(Tone, String)>,
    pub link: Link,
    pub happenings: Happenings,
    pub size: (u16, u16),
    pub clock: Clock,
    /// When the question that is open was asked.
    pub(super) asked: Duration,
    /// Commands that run.
    pub(super) running: usize,
    /// Whether the last key asked to leave while one did.
    pub(super) leaves: bool,
    /// Nouns that Esc goes back to.
    pub(super) back: Vec<TopNoun>,
    pub(super) fetching: Fetching,
    /// Rises with everything that may change the screen, other than the time.
    pub revision: u64,
    /// Events came that the list of them does not have yet.
    has_news: bool,
    /// When the service was asked who the caller is, since the start of the command.
    who_asked: Option<Duration>,
    /// Whether an answer to that is awaited.
    is_who_open: bool,
}

impl Top {
    pub(super) fn new(
        place: &str,
        program: &str,
        noun: TopNoun,
        is_readonly: bool,
        clock: Clock,
    ) -> Self {
        Self {
            place: place.to_owned(),
            program: program.to_owned(),
            is_readonly,
            who: None,
            summary: Summary::default(),
            shown: Shown { noun, ..Shown::default() },
            mode: Mode::Browse,
            pane: None,
            scroll: 0,
            is_at_end: false,
            note: None,
            link: Link::default(),
            happenings: Happenings::default(),
            size: (80, 24),
            clock,
            asked: Duration::ZERO,
            running: 0,
            leaves: false,
            back: Vec::new(),
            fetching: Fetching::default(),
            revision: 0,
            has_news: true,
            who_asked: None,
            is_who_open: false,
        }
    }

    /// Takes one input, and says what is to be done.
    pub(super) fn step(&mut self, input: Input, clock: Clock) -> Vec<Effect> {
        self.clock = clock;
        self.revision += u64::from(!matches!(input, Input::Tick));
        // While many come at once the list of events stays as it is.
        let is_quiet = !matches!(input, Input::Happened { .. });
        let mut effects = match input {
            Input::Key(key) => self.key(key),
            Input::Size(columns, rows) => {
                self.size = (columns, rows);
                Vec::new()
            }
            Input::Tick => Vec::new(),
            Input::Answer(ask, answer) => {
                self.answered(ask, answer);
                Vec::new()
            }
            Input::Who(answer) => {
                self.is_who_open = false;
                if let Ok(who) = self.heard(answer) {
                    self.who = Some(who);
                }
                Vec::new()
            }
            Input::Why(name, answer) => {
                if let Some(Pane::Detail(detail)) = &mut self.pane {
                    detail.heard(&name, answer);
                }
                Vec::new()
            }
            Input::Did { text, is_good } => {
                self.running = self.running.saturating_sub(1);
                self.did(text, is_good);
                Vec::new()
            }
            Input::StreamOpen => {
                self.link.is_streaming = true;
                self.link.stream = None;
                // The role of the caller, or the member that leads, may be another one.
                self.who_asked = None;
                Vec::new()
            }
            Input::Happened { id, kind, data } => {
                for ask in EventKind::of(&kind).map_or(&[][..], moved) {
                    self.fetching.moved(*ask);
                }
                self.happenings.add(Happening::of(&id, &kind, &data));
                self.has_news = true;
                Vec::new()
            }
            Input::StreamEnded(fault) => {
                self.link.is_streaming = false;
                self.link.stream = Some(fault);
                Vec::new()
            }
        };
        let is_well = self.link.call.is_none() && self.link.stream.is_none();
        self.link.since = if is_well { None } else { self.link.since.or(Some(clock.wall)) };
        effects.extend(self.due());
        if self.shown.noun == TopNoun::Events && self.has_news && is_quiet {
            self.has_news = false;
            let listing = self.happenings.listing();
            self.list(listing);
        }
        self.shown.settle(self.body_rows());
        effects
    }

    /// An answer, or the fault, which the head shows.
    fn heard<T>(&mut self, answer: Result<T, Fault>) -> Result<T, ()> {
        match answer {
            Ok(answer) => {
                self.link.call = None;
                Ok(answer)
            }
            Err(fault) => {
                self.link.call = Some(fault);
                Err(())
            }
        }
    }

    fn answered(&mut self, ask: Ask, answer: Result<Value, Fault>) {
        self.fetching.ended(ask, answer.is_err());
        let is_shown = self.shown.noun.ask() == Some(ask);
        // That a drover which stands alone has no members says nothing about the connection.
        if is_shown && let Err(Fault { kind: FaultKind::Refused, text }) = &answer {
            self.link.call = None;
            self.shown.listing = None;
            self.shown.fault = Some(text.clone());
            return;
        }
        let Ok(answer) = self.heard(answer) else { return };
        if ask == Ask::Status
            && let Ok(status) = serde_json::from_value::<StatusOut>(answer.clone())
        {
            self.summary = Summary::of(&status);
        }
        if !is_shown {
            return;
        }
        match Listing::of(self.shown.noun, &answer, self.clock.wall) {
            Some(listing) => {
                self.shown.fetched = Some(self.clock.wall);
                self.list(listing);
            }
            None => {
                let text = "the service's answer is not one that this drover knows".to_owned();
                self.link.call = Some(Fault { kind: FaultKind::Refused, text });
            }
        }
    }

    /// Takes rows into the list, and the thing of the detail from them.
    fn list(&mut self, listing: Listing) {
        self.revision += 1;
        if let Some(Pane::Detail(detail)) = &mut self.pane {
            detail.renew(&listing);
        }
        self.shown.listing = Some(listing);
        self.shown.arrange();
    }

    fn did(&mut self, text: String, is_good: bool) {
        let tone = if is_good { Tone::Good } else { Tone::Bad };
        let text = text.trim_end().to_owned();
        if text.lines().count() > 1 {
            self.lay(Pane::Text(text));
        } else {
            self.note = Some((tone, text));
        }
        for ask in self.asks() {
            self.fetching.moved(ask);
        }
    }

    /// The answers that the screen needs.
    fn asks(&self) -> impl Iterator<Item = Ask> + use<> {
        let shown = self.shown.noun.ask();
        shown.into_iter().chain((shown != Some(Ask::Status)).then_some(Ask::Status))
    }

    /// The calls that are due.
    fn due(&mut self) -> Vec<Effect> {
        let now = self.clock.since_start;
        let mut effects = Vec::new();
        for ask in self.asks() {
            let is_shown = self.shown.noun.ask() == Some(ask);
            let pause = if is_shown { ask.pause() } else { SUMMARY_PAUSE };
            if self.may_read(self.shown.noun) || !is_shown {
                effects.extend(self.fetching.begins(ask, now, pause).then_some(Effect::Ask(ask)));
            }
        }
        let is_old = |asked: Option<Duration>, pause| {
            asked.is_none_or(|asked| now.saturating_sub(asked) >= pause)
        };
        let is_who_wanted = self.who.is_none() || self.who_asked.is_none();
        if is_who_wanted && !self.is_who_open && is_old(self.who_asked, WHO_PAUSE) {
            (self.who_asked, self.is_who_open) = (Some(now), true);
            effects.push(Effect::Who);
        }
        let is_operator = self.role() >= Some(Role::Operator);
        if let Some(Pane::Detail(detail)) = &mut self.pane
            && is_operator
            && detail.entry.noun.has_why()
            && !detail.is_open
            && is_old(detail.asked, WHY_PAUSE)
        {
            if matches!(detail.why, Why::Not) {
                detail.why = Why::Asked;
            }
            (detail.asked, detail.is_open) = (Some(now), true);
            effects.push(Effect::Why(detail.entry.name.clone()));
        }
        effects
    }

    /// Brings the scrolling of the pane into a state that can be drawn. The whole text of the pane is made for it, so
    /// this is for each frame, and not for each input.
    pub(super) fn settle_pane(&mut self) {
        let most = self.scroll_most();
        self.scroll = if self.is_at_end { most } else { self.scroll.min(most) };
    }

    /// Lays a pane over the list.
    pub(super) fn lay(&mut self, pane: Pane) {
        self.pane = Some(pane);
        (self.scroll, self.is_at_end) = (0, false);
    }

    /// The lines above the screen where the pane is at its end.
    pub(super) fn scroll_most(&self) -> usize {
        self.pane_lines().saturating_sub(self.body_rows())
    }

    /// Shows another list.
    pub(super) fn go(&mut self, noun: TopNoun) {
        if !self.may_read(noun) {
            let text =
                format!("only operators may see {}: the service asks its clusters", noun.word());
            self.note = Some((Tone::Bad, text));
            return;
        }
        self.pane = None;
        self.shown = Shown { noun, ..Shown::default() };
        self.has_news = true;
        if let Some(ask) = noun.ask() {
            self.fetching.at_once(ask);
        }
    }

    /// The role of the caller, once the service said it.
    pub(super) fn role(&self) -> Option<Role> {
        self.who.as_ref().map(|who| who.role)
    }

    /// Whether the caller may see this; until the service says who that is, it answers for itself.
    pub(super) fn may_read(&self, noun: TopNoun) -> bool {
        self.role().is_none_or(|role| role >= noun.least())
    }

    /// Why the caller may not do this; none where it may.
    pub(super) fn refusal(&self, least: Role) -> Option<String> {
        if self.is_readonly {
            return Some("nothing is changed: drover top was started with --readonly".to_owned());
        }
        let Some(who) = &self.who else {
            return Some("the service has not said yet what you may do".to_owned());
        };
        let (principal, role) = (&who.principal, who.role);
        (role < least)
            .then(|| format!("this needs the role {least}, and {principal} has the role {role}"))
    }

    /// The thing that keys are about: that of the detail, else that under the cursor.
    pub(super) fn subject(&self) -> Option<&Entry> {
        match &self.pane {
            Some(Pane::Detail(detail)) => Some(&detail.entry),
            Some(Pane::Help | Pane::Text(_)) => None,
            None => self.shown.chosen(),
        }
    }

    /// The rows of the screen for the list or the pane.
    pub(super) fn body_rows(&self) -> usize {
        usize::from(self.size.1.saturating_sub(CHROME_ROWS).max(1))
    }
}
