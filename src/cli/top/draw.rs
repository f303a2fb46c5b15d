//! The state as cells of a terminal. Pure.
//!
//! ```text
//! drover 0.1.0 ready  /run/drover/drover.sock  uid:0, admin          live
//! the numbers of the herd, or what is wrong with the connection
//! ─ agents: 12 of 40, /linux, by STATE                     data of 2s ago
//! the columns
//! rows, or the pane over them
//! what a key came to, or what is typed or asked
//! the keys that mean something here
//! ```

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use unicode_width::UnicodeWidthStr as _;

use super::super::options::TopNoun;
use super::super::sentences::clean;
use super::super::table::{GAP, Piece, Tone, View};
use super::input::{Fault, FaultKind};
use super::model::{CHROME_ROWS, Mode, Pane, Top};

/// The smallest terminal that the screen fits on, in columns and rows.
const SMALLEST: (u16, u16) = (40, 10);

/// How texts look. Only the colours that a terminal has of its own are used, and where there are none,
/// brightness alone.
#[derive(Debug, Clone, Copy)]
pub(super) struct Theme {
    pub color: bool,
}

impl Theme {
    fn tone(self, tone: Tone) -> Style {
        let (color, modifier) = match tone {
            Tone::Plain => (None, Modifier::empty()),
            Tone::Good => (Some(Color::Green), Modifier::empty()),
            Tone::Busy => (Some(Color::Yellow), Modifier::empty()),
            Tone::Bad => (Some(Color::Red), Modifier::BOLD),
            Tone::Gone => (None, Modifier::DIM),
        };
        let style = Style::new().add_modifier(modifier);
        color.filter(|_| self.color).map_or(style, |color| style.fg(color))
    }

    fn title(self) -> Style {
        let style = Style::new().add_modifier(Modifier::BOLD);
        if self.color { style.fg(Color::Cyan) } else { style }
    }
}

const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
const DIM: Style = Style::new().add_modifier(Modifier::DIM);

/// Draws the whole screen.
pub(super) fn screen(top: &Top, theme: Theme, area: Rect, buf: &mut Buffer) {
    if area.width < SMALLEST.0 || area.height < SMALLEST.1 {
        let text = format!(
            "{}x{}: drover top draws on {}x{} or more",
            area.width, area.height, SMALLEST.0, SMALLEST.1
        );
        put(buf, area, (0, 0), &text, Style::new());
        return;
    }
    head(top, theme, area, buf);
    title(top, theme, area, buf);
    let body = Rect { y: area.y + 3, height: area.height - (CHROME_ROWS - 1), ..area };
    match &top.pane {
        Some(_) => pane(top, theme, body, buf),
        None => list(top, theme, body, buf),
    }
    let last = area.height - 1;
    prompt(top, theme, (area, last - 1), buf);
    put(buf, area, (0, last), &hints(top, area.width), DIM);
}

/// The service, the caller, and how fresh all of it is; then the numbers, or the trouble.
fn head(top: &Top, theme: Theme, area: Rect, buf: &mut Buffer) {
    let mut at = put(buf, area, (0, 0), &clean(&format!("drover {} ", top.summary.version)), BOLD);
    let state = top.summary.tone.map_or(Tone::Gone, |tone| tone);
    at = put(buf, area, (at, 0), top.summary.state, theme.tone(state));
    let who = top.who.as_ref().map(|who| format!("  {}, {}", who.principal, who.role));
    let readonly = if top.is_readonly { "  READ ONLY" } else { "" };
    let text = format!("  {}{}{readonly}", top.place, who.unwrap_or_default());
    put(buf, area, (at, 0), &clean(&text), DIM);
    match (fault(top), top.link.is_streaming) {
        (Some(_), _) => right(buf, area, 0, "no connection", theme.tone(Tone::Bad)),
        (None, true) => right(buf, area, 0, "live", theme.tone(Tone::Good)),
        (None, false) => right(buf, area, 0, "no events yet", theme.tone(Tone::Busy)),
    }
    if let Some(fault) = fault(top) {
        let word = match fault.kind {
            FaultKind::NotReached => "NOT REACHED",
            FaultKind::NoLeader => "NO MEMBER LEADS",
            FaultKind::Refused => "REFUSED",
        };
        let since = top.link.since.map(|since| format!(" {}", view(top).since(&since.to_string())));
        let since = since.unwrap_or_default();
        let text = format!("{word}{since}, tried again: {}", one_line(&fault.text));
        put(buf, area, (0, 1), &text, theme.tone(Tone::Bad));
        return;
    }
    let mut at = put(buf, area, (0, 1), &top.summary.troubles(), theme.tone(Tone::Bad));
    if at > 0 {
        at = put(buf, area, (at, 1), " | ", DIM);
    }
    let numbers = top.summary.numbers(usize::from(area.width.saturating_sub(at)));
    put(buf, area, (at, 1), &numbers, Style::new());
}

/// What is wrong with the connection.
fn fault(top: &Top) -> Option<&Fault> {
    top.link.call.as_ref().or(top.link.stream.as_ref())
}

/// What is shown, what of it, and how old it is.
fn title(top: &Top, theme: Theme, area: Rect, buf: &mut Buffer) {
    let shown = &top.shown;
    let text = top.pane_title().unwrap_or_else(|| {
        let mut text = shown.noun.word();
        if let Some(listing) = &shown.listing {
            let (some, all) = (shown.order.len(), listing.entries.len());
            text += &if some == all { format!(": {all}") } else { format!(": {some} of {all}") };
            if listing.left_off > 0 {
                text += &format!(" ({} more are left off)", listing.left_off);
            }
            if let Some((at, is_reversed)) = shown.sort
                && let Some(column) = listing.table.columns().get(at)
            {
                text +=
                    &format!(", by {}{}", column.name, if is_reversed { " reversed" } else { "" });
            }
        }
        if !shown.filter.is_empty() {
            text += &format!(", /{}", shown.filter);
        }
        text
    });
    let rule = "─".repeat(usize::from(area.width));
    put(buf, area, (0, 2), &rule, DIM);
    put(buf, area, (2, 2), &format!(" {} ", clean(&text)), theme.title());
    let age = match (shown.noun, shown.fetched) {
        (TopNoun::Events, _) => " newest first ".to_owned(),
        (_, Some(at)) => format!(" data of {} ", view(top).time(&at.to_string())),
        (_, None) => " no data yet ".to_owned(),
    };
    right(buf, area, 2, &age, DIM);
}

fn view(top: &Top) -> View {
    View { utc: false, ..View::complete(top.clock.wall) }
}

fn list(top: &Top, theme: Theme, area: Rect, buf: &mut Buffer) {
    let shown = &top.shown;
    let Some(listing) = &shown.listing else {
        let text = match &shown.fault {
            Some(fault) => one_line(fault),
            None => "no answer yet".to_owned(),
        };
        put(buf, area, (0, 1), &text, theme.tone(Tone::Busy));
        return;
    };
    let view =
        View { width: Some(usize::from(area.width)), wide: false, whole: false, ..view(top) };
    let rows = usize::from(area.height.saturating_sub(1));
    let (names, lines) = listing.table.window(&shown.order, (shown.first, rows), &view);
    line(buf, area, 0, &names, |_| BOLD);
    if lines.is_empty() {
        let text = if listing.entries.is_empty() { "none" } else { "no row holds the filter" };
        put(buf, area, (0, 1), text, DIM);
    }
    for (row, cells) in (1..).zip(&lines) {
        line(buf, area, row, cells, |tone| theme.tone(tone));
        if shown.first + usize::from(row) - 1 == shown.cursor {
            let chosen = Rect { y: area.y + row, height: 1, ..area };
            buf.set_style(chosen, Style::new().add_modifier(Modifier::REVERSED));
        }
    }
}

/// The cells of a row, each in its column.
fn line(buf: &mut Buffer, area: Rect, row: u16, cells: &[Piece], style: impl Fn(Tone) -> Style) {
    let mut at = 0;
    for (text, tone) in cells {
        at = put(buf, area, (at, row), text, style(*tone));
        at = at.saturating_add(u16::try_from(GAP).unwrap_or(0));
    }
}

fn pane(top: &Top, theme: Theme, area: Rect, buf: &mut Buffer) {
    let text = top.pane_text();
    let is_command = matches!(top.pane, Some(Pane::Text(_)));
    let rows = usize::from(area.height.saturating_sub(1));
    for (row, line) in (1..).zip(text.lines().skip(top.scroll).take(rows)) {
        let is_heading =
            !is_command && line.chars().all(|c| c.is_ascii_uppercase()) && !line.is_empty();
        let style = if is_heading { theme.title() } else { Style::new() };
        put(buf, area, (1, row), line, style);
    }
    let all = text.lines().count();
    if all > rows {
        let last = (top.scroll + rows).min(all);
        right(buf, area, 0, &format!("{last} of {all} lines"), DIM);
    }
}

/// What is typed or asked, else what the last key came to.
fn prompt(top: &Top, theme: Theme, (area, row): (Rect, u16), buf: &mut Buffer) {
    match &top.mode {
        Mode::Command(text) => drop(put(buf, area, (0, row), &format!(":{text}▏"), BOLD)),
        Mode::Filter(text) => drop(put(buf, area, (0, row), &format!("/{text}▏"), BOLD)),
        Mode::Confirm(action) => {
            let command = clean(&action.command(&top.program));
            let at = put(buf, area, (0, row), &command, theme.tone(Tone::Bad));
            put(buf, area, (at, row), "  y: run it, any other key: no", BOLD);
        }
        Mode::Browse => {
            let fault = top.shown.fault.as_ref().filter(|_| top.shown.listing.is_some());
            let fault = fault.map(|fault| (Tone::Bad, fault.clone()));
            if let Some((tone, text)) = top.note.clone().or(fault) {
                put(buf, area, (0, row), &one_line(&text), theme.tone(tone));
            }
        }
    }
}

/// The keys that mean something here, as many as a line has room for.
fn hints(top: &Top, width: u16) -> String {
    let of_list = [": list", "/ filter", "Enter detail", "s sort"];
    let mut hints: Vec<String> = Vec::new();
    match (&top.mode, &top.pane) {
        (Mode::Command(_), _) => return "Enter show  Tab complete  Esc no".to_owned(),
        (Mode::Filter(_), _) => return "Enter keep  Esc none".to_owned(),
        (Mode::Confirm(_), _) => return String::new(),
        (Mode::Browse, Some(_)) => hints.extend(["Esc back", "j k scroll"].map(str::to_owned)),
        (Mode::Browse, None) => hints.push("? help".to_owned()),
    }
    hints.extend(top.actions().map(|one| format!("{} {}", one.key, one.word)));
    if top.pane.is_none() {
        hints.extend(of_list.map(str::to_owned));
    }
    hints.push("q quit".to_owned());
    let mut line = String::new();
    for hint in hints {
        let between = if line.is_empty() { "" } else { "  " };
        if line.width() + between.len() + hint.width() <= usize::from(width) {
            line += &format!("{between}{hint}");
        }
    }
    line
}

/// A text of several lines in one, without what a terminal obeys.
fn one_line(text: &str) -> String {
    clean(&text.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Writes a text into an area, cut off at its end, and gives the column behind it; columns and rows count
/// from the corner of the area.
fn put(buf: &mut Buffer, area: Rect, (column, row): (u16, u16), text: &str, style: Style) -> u16 {
    if row >= area.height || column >= area.width {
        return column;
    }
    let width = usize::from(area.width - column);
    let (end, _) = buf.set_stringn(area.x + column, area.y + row, text, width, style);
    end - area.x
}

/// Writes a text at the end of a row.
fn right(buf: &mut Buffer, area: Rect, row: u16, text: &str, style: Style) {
    let width = u16::try_from(text.width()).unwrap_or(area.width);
    put(buf, area, (area.width.saturating_sub(width), row), text, style);
}
