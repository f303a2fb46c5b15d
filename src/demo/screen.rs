//! The output of the demo: the live screen on a terminal, plain lines elsewhere, and a recording.

use std::io::{self, IsTerminal as _, Write as _};
use std::path::PathBuf;

use anstyle::{Ansi256Color, Effects};
use ratatui::buffer::{Buffer, Cell};
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier};

use super::draw::{self, SMALLEST, Theme};
use super::fault::DemoError;
use super::record::Recorder;
use super::state::{DemoState, one_line};
use super::svg::indexed;
use crate::terminal::{self, LiveTerminal};

pub struct Screen {
    live: Option<LiveTerminal>,
    theme: Theme,
    recorder: Option<Recorder>,
    /// Whether lines about agents are printed.
    prints_agents: bool,
    /// The last frame on the terminal.
    last: Option<Buffer>,
    /// Why nothing more can be written.
    broken: Option<io::Error>,
}

impl Screen {
    /// The screen for standard output: live on a terminal that is large enough, unless plain lines
    /// are wanted. A recording goes to a file.
    pub fn new(plain: bool, color: bool, record: Option<PathBuf>) -> Self {
        let is_terminal = io::stdout().is_terminal();
        let knows_cursor = std::env::var_os("TERM").is_some_and(|term| term != "dumb");
        let fits = terminal::size().is_some_and(is_large_enough);
        let mut screen = Self {
            live: None,
            theme: Theme { color },
            recorder: record.map(Recorder::new),
            prints_agents: true,
            last: None,
            broken: None,
        };
        if !plain && is_terminal && knows_cursor && fits {
            match LiveTerminal::enter() {
                Ok(live) => screen.live = Some(live),
                Err(error) => screen.broken = Some(error),
            }
            screen.prints_agents = false;
        }
        screen
    }

    /// Whether the live screen is on the terminal.
    pub fn is_live(&self) -> bool {
        self.live.is_some()
    }

    /// Fails once the output took no more; the first failure is given, and once.
    pub fn written(&mut self) -> Result<(), DemoError> {
        self.broken.take().map_or(Ok(()), |fault| Err(DemoError::Output(fault)))
    }

    /// Writes a text, unless nobody takes it any more.
    fn put(&mut self, text: &str) {
        if self.broken.is_some() {
            return;
        }
        let mut out = io::stdout();
        let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        self.broken = written.err();
    }

    /// Prints a line, where the live screen does not show it.
    pub fn say(&mut self, text: &str) {
        if self.live.is_none() {
            self.put(&format!("{}\n", one_line(text)));
        }
    }

    /// Prints a text of many lines, where the live screen is not on the terminal.
    pub fn detail(&mut self, text: &str) {
        text.lines().for_each(|line| self.say(line));
    }

    /// Prints a line about an agent, where they are wanted.
    pub fn agent(&mut self, line: &str) {
        if self.prints_agents {
            self.say(line);
        }
    }

    /// Whether lines about agents are printed from here on.
    pub fn print_agents(&mut self, wanted: bool) {
        self.prints_agents = wanted;
    }

    /// Draws the live screen and records it.
    pub fn draw(&mut self, state: &DemoState, now_ms: u64) {
        if let Some(recorder) = &mut self.recorder {
            let theme = Theme { color: true };
            recorder.frame(now_ms, |area, buf| draw::screen(state, now_ms, theme, area, buf));
        }
        let theme = self.theme;
        let Some(live) = self.live.as_mut().filter(|_| self.broken.is_none()) else { return };
        match live.draw(|area, buf| draw::screen(state, now_ms, theme, area, buf)) {
            // A terminal that became too small has no frame to keep.
            Ok(frame) if is_large_enough((frame.area.width, frame.area.height)) => {
                self.last = Some(frame);
            }
            Ok(_) => {}
            Err(error) => self.broken = Some(error),
        }
    }

    /// Gives the terminal back, with the last frame on it; lines are printed from here on.
    pub fn leave(&mut self) {
        if self.live.take().is_some()
            && let Some(frame) = self.last.take()
        {
            self.put(&text_of(&frame));
        }
    }

    /// Writes the recording into its file.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write_recording(&mut self) -> Result<(), DemoError> {
        self.recorder.take().map_or(Ok(()), Recorder::write)
    }
}

fn is_large_enough((columns, rows): (u16, u16)) -> bool {
    columns >= SMALLEST.0 && rows >= SMALLEST.1
}

/// A frame as lines for a terminal, without empty cells at their ends.
fn text_of(frame: &Buffer) -> String {
    let Rect { width, .. } = frame.area;
    let mut text = String::new();
    for row in frame.content.chunks(usize::from(width.max(1))) {
        let is_empty = |cell: &Cell| cell.symbol() == " " && cell.bg == Color::Reset;
        let end = row.iter().rposition(|cell| !is_empty(cell)).map_or(0, |last| last + 1);
        for run in row[..end].chunk_by(|one, other| style_of(one) == style_of(other)) {
            let style = run.first().map(style_of).unwrap_or_default();
            let symbols: String = run.iter().map(Cell::symbol).collect();
            text.push_str(&format!("{style}{symbols}{style:#}"));
        }
        text.push('\n');
    }
    text
}

fn style_of(cell: &Cell) -> anstyle::Style {
    let color = |color: Color| indexed(color).map(|number| Ansi256Color(number).into());
    let bold = if cell.modifier.contains(Modifier::BOLD) { Effects::BOLD } else { Effects::new() };
    anstyle::Style::new().fg_color(color(cell.fg)).bg_color(color(cell.bg)).effects(bold)
}
