//! The last lines of what happened, and at the end the five lines of the story.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::text_at;
use super::theme::{Ink, Theme};
use crate::demo::state::{DemoState, Tone};
use crate::waterfall::seconds;

/// Where the text of a line starts, behind its time or name.
const TEXT: u16 = 9;

pub fn draw(state: &DemoState, theme: Theme, area: Rect, buf: &mut Buffer) {
    let Some(ending) = &state.ending else { return log(state, theme, area, buf) };
    let rows = u16::try_from(ending.len()).unwrap_or(u16::MAX);
    // An empty row divides them from the log above.
    let above = area.height.saturating_sub(rows + 1);
    log(state, theme, Rect { height: above, ..area }, buf);
    let first = area.height.saturating_sub(rows);
    for (row, line) in (first..).zip(ending) {
        let (name, text) = line.split_at(line.len().min(usize::from(TEXT)));
        text_at(buf, area, 0, row, name, theme.ink(Ink::Title));
        text_at(buf, area, TEXT, row, text, theme.ink(Ink::Text));
    }
}

fn log(state: &DemoState, theme: Theme, area: Rect, buf: &mut Buffer) {
    let first = state.log.len().saturating_sub(usize::from(area.height));
    for (row, line) in (0..).zip(state.log.iter().skip(first)) {
        let clock = format!("{:>7}", seconds(line.at_ms));
        text_at(buf, area, 0, row, &clock, theme.ink(Ink::Dim));
        let ink = match line.tone {
            Tone::Plain => Ink::Text,
            Tone::Good => Ink::Good,
            Tone::Story => Ink::Story,
            Tone::Bad => Ink::Bad,
        };
        text_at(buf, area, TEXT, row, &line.text, theme.ink(ink));
    }
}
