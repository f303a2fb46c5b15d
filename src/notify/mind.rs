//! What one channel sends, and when.
//!
//! ```text
//!            group            sent                 gone                recovery
//! (none) ──▶ Fresh ──▶ Tried ─────▶ Known ──────▶ Leaving ──────────▶ (none, its end was sent)
//!   ▲          │         │            ▲  └──repeat──┘ │
//!   └──gone────┘         └─── gone ───┼───────────────┘
//!                                     └── back within recovery
//! ```
//!
//! A message is due when the oldest news of the channel is `group` old, when a trouble is gone for `recovery`, or
//! when one that stands was sent `repeat` ago. It has all that is news by then. One message is under way
//! at most; failures wait longer each time.

use std::collections::BTreeMap;
use std::time::Duration;

use drover_model::time::WallTime;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::carry::Failure;
use super::kind::Kind;
use super::message::{Item, Message};
use super::settings::{Settings, Wanted};
use super::words::cut;
use super::{Severity, Trouble};

/// Troubles that a channel keeps; the most urgent ones, where more stand.
const KEPT_MAX: usize = 1000;
/// Troubles of one kind of news that a message names; the rest is a count.
pub(crate) const NAMED_MAX: usize = 20;
/// Characters of a text that are kept and sent.
const TEXT_CHARS: usize = 600;
/// Characters of a text that are kept for its recovery.
const KEPT_CHARS: usize = 160;
/// Messages of a channel within [`RATE_SPAN`].
const RATE: usize = 20;
const RATE_SPAN: i64 = 3_600_000;
/// How long a channel waits after failures in a row, in seconds.
const WAITS: [i64; 6] = [5, 15, 60, 180, 300, 900];
/// The longest wait that the other side may ask for.
const WAIT_MAX: i64 = 3_600_000;
/// How long after a start what was sent before counts as standing, where the service does not know it yet.
const START_GRACE: i64 = 120_000;
/// Failures in a row that are a trouble of the channel.
const FAILURES: u32 = 3;

/// What a channel sent: kept over restarts and shared with the next leader.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    known: BTreeMap<String, Known>,
    /// When the last messages were sent, the oldest first.
    recent: Vec<WallTime>,
}

/// A trouble as the channel knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Known {
    kind: Kind,
    about: String,
    text: String,
    /// The next look has it.
    #[serde(skip)]
    command: String,
    #[serde(skip)]
    path: String,
    since: WallTime,
    /// When the channel saw it first.
    seen: WallTime,
    /// A message with it may have arrived.
    #[serde(default)]
    tried: bool,
    /// When a message with it was sent last.
    #[serde(default)]
    sent: Option<WallTime>,
    /// Since when it does not stand.
    #[serde(default)]
    gone: Option<WallTime>,
    /// It stood since the start of this mind.
    #[serde(skip)]
    met: bool,
}

/// What a channel is to take in.
#[derive(Debug)]
pub enum Event<'a> {
    /// All that is wrong now.
    Stands(&'a [Trouble]),
    /// The message under way was taken.
    Sent,
    /// The message under way was not taken, as far as is known.
    Failed(&'a Failure),
    /// The message under way was not sent: this member may no more.
    Unsent,
}

/// What is to be done, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Keep what [`Mind::kept`] has.
    Keep,
    Send(Box<Message>),
    /// The channel itself has this trouble; none: it works.
    Trouble(Option<String>),
}

/// The mind of one channel.
#[derive(Debug)]
pub struct Mind {
    name: String,
    wanted: Wanted,
    group: i64,
    recovery: i64,
    repeat: Option<i64>,
    page: Option<String>,
    from: String,
    state: State,
    /// When it looked first.
    started: Option<WallTime>,
    under_way: Option<UnderWay>,
    failures: u32,
    /// Since when nothing is sent, and for how long.
    pause: Option<(WallTime, i64)>,
}

#[derive(Debug)]
struct UnderWay {
    opened: Vec<String>,
    ended: Vec<String>,
    again: Vec<String>,
}

fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}

/// How long ago a time was.
fn age(at: WallTime, now: WallTime) -> i64 {
    now.0.saturating_sub(at.0)
}

impl Mind {
    /// The mind of the channel `name` of these settings, which sent what `state` has; `from` is who sends.
    /// What the channel wants no more is forgotten, and nobody knows yet whether the rest stands.
    pub fn new(
        settings: &Settings,
        (name, wanted): (&str, &Wanted),
        from: &str,
        state: State,
    ) -> Self {
        let Settings { group, recovery, repeat, page, channels: _ } = settings;
        let mut state = state;
        state.known.retain(|_, one| wanted.has(one.kind));
        state.known.values_mut().for_each(|one| one.gone = None);
        Self {
            name: name.to_owned(),
            wanted: wanted.clone(),
            group: millis(*group),
            recovery: millis(*recovery),
            repeat: repeat.map(millis),
            page: page.clone(),
            from: from.to_owned(),
            state,
            started: None,
            under_way: None,
            failures: 0,
            pause: None,
        }
    }

    /// What must be kept.
    pub fn kept(&self) -> State {
        let mut state = self.state.clone();
        state.known.values_mut().for_each(|one| one.text = cut(&one.text, KEPT_CHARS));
        state
    }

    /// Takes in what happened.
    pub fn step(&mut self, event: &Event<'_>, now: WallTime) -> Vec<Effect> {
        match event {
            Event::Stands(all) => {
                self.clamp(now);
                self.compare(all, now);
                self.send_what_is_due(now)
            }
            Event::Sent => self.sent(now),
            Event::Failed(failure) => self.failed(failure, now),
            Event::Unsent => {
                self.under_way = None;
                Vec::new()
            }
        }
    }

    /// What lies ahead of the clock is now: the clock was set back.
    fn clamp(&mut self, now: WallTime) {
        let Self { state: State { known, recent }, pause, started, .. } = self;
        let known = known.values_mut().flat_map(|one| {
            let Known { since, seen, sent, gone, .. } = one;
            [Some(since), Some(seen), sent.as_mut(), gone.as_mut()].into_iter().flatten()
        });
        let pause = pause.iter_mut().map(|(began, _)| began);
        known.chain(recent).chain(pause).chain(started).for_each(|at| *at = (*at).min(now));
    }

    /// Brings what is known up to what stands.
    fn compare(&mut self, all: &[Trouble], now: WallTime) {
        let own = format!("channel/{}", self.name);
        let wanted = all.iter().filter(|one| self.wanted.has(one.kind) && one.key != own);
        let mut standing: BTreeMap<&str, &Trouble> =
            wanted.map(|one| (one.key.as_str(), one)).collect();
        if standing.len() > KEPT_MAX {
            let known = &self.state.known;
            let mut order: Vec<&Trouble> = standing.into_values().collect();
            order.sort_by_key(|one| (!known.contains_key(&one.key), one.kind, one.since));
            order.truncate(KEPT_MAX);
            standing = order.into_iter().map(|one| (one.key.as_str(), one)).collect();
        }
        let is_new = age(*self.started.get_or_insert(now), now) < START_GRACE;
        self.state.known.retain(|key, known| {
            if standing.contains_key(key.as_str()) {
                (known.gone, known.met) = (None, true);
                return true;
            }
            if is_new && !known.met {
                return true;
            }
            known.gone = known.gone.or(Some(now));
            known.tried || known.sent.is_some()
        });
        self.forget_old_ends();
        for (key, one) in standing {
            let known = self.state.known.entry(key.to_owned()).or_insert_with(|| Known {
                kind: one.kind,
                about: String::new(),
                text: String::new(),
                command: String::new(),
                path: String::new(),
                since: one.since.unwrap_or(now).min(now),
                seen: now,
                tried: false,
                sent: None,
                gone: None,
                met: true,
            });
            known.about = cut(&one.about, KEPT_CHARS);
            known.text = cut(&one.text, TEXT_CHARS);
            known.command = cut(&one.command, TEXT_CHARS);
            known.path = cut(&one.path, TEXT_CHARS);
        }
    }

    /// The ends that a channel owes have a bound, where it takes no message for days: the oldest go unsent.
    fn forget_old_ends(&mut self) {
        let known = &mut self.state.known;
        let ends = known.values().filter(|one| one.gone.is_some()).count();
        let Some(too_many) = ends.checked_sub(KEPT_MAX).filter(|count| *count > 0) else { return };
        let ends = known.iter().filter_map(|(key, one)| Some((one.gone?, key.clone())));
        let mut ends: Vec<(WallTime, String)> = ends.collect();
        ends.sort_unstable();
        for (_, key) in ends.iter().take(too_many) {
            known.remove(key);
        }
    }

    fn send_what_is_due(&mut self, now: WallTime) -> Vec<Effect> {
        if self.under_way.is_some() || !self.may_send(now) {
            return Vec::new();
        }
        let (mut opened, mut ended) = (Vec::new(), Vec::new());
        let (mut is_due, mut repeats) = (false, false);
        let (group, recovery, repeat) = (self.group, self.recovery, self.repeat);
        for (key, known) in &self.state.known {
            match (known.gone, known.sent) {
                (Some(gone), _) if age(gone, now) >= recovery => {
                    ended.push(key.clone());
                    is_due = true;
                }
                (Some(_), _) => {}
                // Nobody knows yet whether it stands.
                (None, _) if !known.met => {}
                (None, Some(sent)) => {
                    repeats |= repeat.is_some_and(|repeat| age(sent, now) >= repeat)
                }
                (None, None) => {
                    opened.push(key.clone());
                    is_due |= age(known.seen, now) >= group;
                }
            }
        }
        if !is_due && !repeats {
            return Vec::new();
        }
        let stands = self.state.known.iter().filter(|(_, known)| known.gone.is_none());
        let again = stands.filter(|(_, known)| repeats && known.met && known.sent.is_some());
        let again: Vec<String> = again.map(|(key, _)| key.clone()).collect();
        let under_way = UnderWay { opened, ended, again };
        let message = self.message(&under_way, now);
        for key in &under_way.opened {
            if let Some(known) = self.state.known.get_mut(key) {
                known.tried = true;
            }
        }
        self.under_way = Some(under_way);
        vec![Effect::Keep, Effect::Send(Box::new(message))]
    }

    /// Whether the channel may send: not after a failure, right after a message, or where it sent many.
    fn may_send(&mut self, now: WallTime) -> bool {
        if self.pause.is_some_and(|(began, wait)| age(began, now) < wait) {
            return false;
        }
        let recent = &mut self.state.recent;
        recent.retain(|at| age(*at, now) < RATE_SPAN);
        recent.len() < RATE && recent.last().is_none_or(|last| age(*last, now) >= self.group)
    }

    fn message(&self, under_way: &UnderWay, now: WallTime) -> Message {
        let known = &self.state.known;
        let items = |keys: &[String]| {
            let all = keys.iter().filter_map(|key| known.get(key));
            let mut all: Vec<&Known> = all.collect();
            all.sort_by_key(|one| (one.kind.severity(), one.kind, one.since));
            let more = all.len().saturating_sub(NAMED_MAX);
            let all = all.into_iter().take(NAMED_MAX);
            (all.map(|one| self.item(one)).collect::<Vec<Item>>(), more)
        };
        let (opened, opened_more) = items(&under_way.opened);
        let (recovered, recovered_more) = items(&under_way.ended);
        let (still, still_more) = items(&under_way.again);
        let news = under_way.opened.iter().chain(&under_way.again).filter_map(|key| known.get(key));
        Message {
            id: self.id(under_way),
            from: self.from.clone(),
            channel: self.name.clone(),
            at: now,
            severity: news.map(|one| one.kind.severity()).min(),
            opened,
            opened_more,
            recovered,
            recovered_more,
            still,
            still_more,
            standing: known.values().filter(|one| one.gone.is_none()).count(),
            page: self.page.clone(),
            is_test: false,
        }
    }

    fn item(&self, known: &Known) -> Item {
        let at = |page: &String| format!("{page}{}", known.path);
        Item {
            kind: known.kind,
            about: known.about.clone(),
            text: known.text.clone(),
            command: known.command.clone(),
            since: known.since,
            until: known.gone,
            link: self.page.as_ref().map(at).filter(|_| !known.path.is_empty()),
        }
    }

    /// The same for a message that is sent again because nobody knows whether it arrived.
    fn id(&self, under_way: &UnderWay) -> String {
        let mut digest = Sha256::new();
        let all =
            [("new", &under_way.opened), ("ended", &under_way.ended), ("still", &under_way.again)];
        digest.update(&self.name);
        for (what, keys) in all {
            for (key, known) in
                keys.iter().filter_map(|key| Some((key, self.state.known.get(key)?)))
            {
                let sent = known.sent.unwrap_or_default().0;
                digest.update(format!("\n{what} {key} {} {sent}", known.seen.0));
            }
        }
        digest.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }

    fn sent(&mut self, now: WallTime) -> Vec<Effect> {
        let Some(UnderWay { opened, ended, again }) = self.under_way.take() else {
            return Vec::new();
        };
        let known = &mut self.state.known;
        for key in opened.iter().chain(&again) {
            if let Some(one) = known.get_mut(key) {
                one.sent = Some(now);
            }
        }
        for key in &ended {
            // One that came back meanwhile is news again.
            match known.get_mut(key) {
                Some(one) if one.gone.is_none() => {
                    (one.sent, one.tried, one.seen, one.since) = (None, false, now, now);
                }
                Some(_) => drop(known.remove(key)),
                None => {}
            }
        }
        self.state.recent.push(now);
        (self.failures, self.pause) = (0, None);
        vec![Effect::Keep, Effect::Trouble(None)]
    }

    fn failed(&mut self, failure: &Failure, now: WallTime) -> Vec<Effect> {
        self.under_way = None;
        let step = usize::try_from(self.failures).unwrap_or(usize::MAX).min(WAITS.len() - 1);
        self.failures = self.failures.saturating_add(1);
        let asked = failure.retry_after.map_or(0, millis).min(WAIT_MAX);
        let wait = asked.max(WAITS.get(step).map_or(WAIT_MAX, |seconds| seconds * 1000));
        self.pause = Some((now, wait));
        if failure.is_final || self.failures >= FAILURES {
            return vec![Effect::Trouble(Some(failure.text.clone()))];
        }
        Vec::new()
    }
}

/// The message of a test.
pub(crate) fn test_message(settings: &Settings, name: &str, from: &str, now: WallTime) -> Message {
    let digest = Sha256::digest(format!("test {name} {}", now.0));
    Message {
        id: digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect(),
        from: from.to_owned(),
        channel: name.to_owned(),
        at: now,
        severity: None::<Severity>,
        opened: Vec::new(),
        opened_more: 0,
        recovered: Vec::new(),
        recovered_more: 0,
        still: Vec::new(),
        still_more: 0,
        standing: 0,
        page: settings.page.clone(),
        is_test: true,
    }
}

#[cfg(test)]
mod tests;
