//! What is printed for people: tables, headings and sentences.
//!
//! Much of it comes from elsewhere, such as labels of callers and messages of guests. A page takes such
//! text only where it loses what a terminal obeys.

use anstyle::{AnsiColor, Effects, Style};
pub(in crate::cli) use drover_model::outside::clean;
use unicode_width::UnicodeWidthStr as _;

use super::Tone;
use super::draw::Table;
use super::view::View;

/// How far the lines after the first of a long sentence are moved to the right.
const INDENT: &str = "  ";

impl View {
    /// A text in the colour of its tone, where there are colours.
    pub(in crate::cli) fn paint(&self, tone: Tone, text: &str) -> String {
        self.style(
            text,
            match tone {
                Tone::Good => AnsiColor::Green.on_default(),
                Tone::Busy => AnsiColor::Yellow.on_default(),
                Tone::Bad => AnsiColor::Red.on_default(),
                Tone::Gone => Style::new().effects(Effects::DIMMED),
                Tone::Plain => return text.to_owned(),
            },
        )
    }

    pub(in crate::cli) fn bold(&self, text: &str) -> String {
        self.style(text, Style::new().effects(Effects::BOLD))
    }

    fn style(&self, text: &str, style: Style) -> String {
        if self.color && !text.is_empty() {
            format!("{style}{text}{style:#}")
        } else {
            text.to_owned()
        }
    }
}

/// What is printed for people.
#[derive(Debug)]
pub(in crate::cli) struct Page {
    view: View,
    text: String,
}

impl Page {
    pub(in crate::cli) fn new(view: &View) -> Self {
        Self { view: *view, text: String::new() }
    }

    pub(in crate::cli) fn view(&self) -> View {
        self.view
    }

    /// A heading, after an empty line where something stands above it.
    pub(in crate::cli) fn heading(&mut self, name: &str) {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.text += &format!("{}\n", self.view.bold(&clean(name)));
    }

    /// Some rows of a table, or what stands in the place of none.
    pub(in crate::cli) fn table(&mut self, table: &Table, order: &[usize], empty: &str) {
        match order {
            [] => self.line(empty),
            some => self.text += &table.draw_some(some, &self.view),
        }
    }

    /// Sentences below a table; on a terminal an empty line keeps them apart from its rows.
    pub(in crate::cli) fn below(&mut self, say: impl FnOnce(&mut Self)) {
        let end = self.text.len();
        say(self);
        let said = &self.text[end..];
        if self.view.width.is_some() && !said.is_empty() && !said.starts_with('\n') {
            self.text.insert(end, '\n');
        }
    }

    /// A sentence, in as many lines as the terminal needs for it.
    pub(in crate::cli) fn line(&mut self, text: &str) {
        self.toned(Tone::Plain, "", text);
    }

    /// A sentence behind a word that stands out.
    pub(in crate::cli) fn toned(&mut self, tone: Tone, word: &str, text: &str) {
        let line = clean(&format!("{word}{text}"));
        let lead = line.len() - line.trim_start().len();
        let room = self.view.width.filter(|_| !self.view.whole);
        let (mut indent, mut rest) = (String::new(), line.as_str());
        loop {
            let room = room.map(|room| room.saturating_sub(indent.width()));
            let (part, more) = wrapped(rest, room);
            let styled = match part.strip_prefix(word).filter(|_| indent.is_empty()) {
                Some(text) => self.view.paint(tone, word) + text,
                None => part.to_owned(),
            };
            self.text += &format!("{indent}{}\n", styled.trim_end());
            if more.is_empty() {
                return;
            }
            (indent, rest) = (" ".repeat(lead) + INDENT, more);
        }
    }

    /// Sentences, a line each.
    pub(in crate::cli) fn sentences(&mut self, text: &str) {
        text.lines().for_each(|line| self.line(line));
    }

    /// A line of drover's own words, with colours in it.
    pub(in crate::cli) fn own(&mut self, line: &str) {
        self.text += &format!("{line}\n");
    }

    /// Lines as they are, such as those of a file.
    pub(in crate::cli) fn lines(&mut self, text: &str) {
        for line in text.lines() {
            self.text += &format!("{}\n", clean(line).trim_end());
        }
    }

    pub(in crate::cli) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    pub(in crate::cli) fn into_text(self) -> String {
        self.text
    }
}

/// The words that fit into so many columns, and the rest; a longer word stays whole.
pub(super) fn wrapped(text: &str, room: Option<usize>) -> (&str, &str) {
    let Some(room) = room.filter(|room| text.width() > *room) else { return (text, "") };
    let lead = text.len() - text.trim_start().len();
    let mut spaces = text.match_indices(' ').map(|(at, _)| at).filter(|at| *at >= lead).peekable();
    let first = spaces.peek().copied();
    let fitting = spaces.take_while(|at| text[..*at].width() <= room).last();
    match fitting.or(first) {
        Some(end) => (&text[..end], text[end..].trim_start()),
        None => (text, ""),
    }
}
