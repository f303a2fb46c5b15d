//! The live line of long work: on a terminal one line of standard error says what goes on and for how
//! long, and is gone once the work is over.
//!
//! Elsewhere (a pipe, `TERM=dumb`, an output for scripts) there is no such line, and commands print
//! the lines that they print there. Whatever is printed while the line stands goes above it.

use std::fmt::Write as _;
use std::io::{self, IsTerminal as _, LineWriter, Write};
use std::sync::Arc;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use parking_lot::Mutex;

use super::screen::Output;
use super::sentences::clean;

/// How often the line is drawn while nothing is reported.
const TICK: Duration = Duration::from_millis(100);

/// Where a live line can stand; by default nowhere.
#[derive(Clone, Default)]
pub struct Live {
    /// The line while work goes on; the outer option is none where no line can stand.
    line: Option<Arc<Mutex<Option<ProgressBar>>>>,
}

impl Live {
    /// On the process's standard error, where that is a terminal and people read the output.
    pub(super) fn of_process(output: Output) -> Self {
        let term = std::env::var_os("TERM");
        let is_dumb = term.is_none_or(|term| term.is_empty() || term == "dumb");
        let can_stand = is_shown(output, io::stderr().is_terminal(), is_dumb);
        Self { line: can_stand.then(Arc::default) }
    }

    /// Begins a step. Inside another step its text takes the place of that one's until it ends.
    pub(super) fn step(&self, text: &str) -> Step {
        let mut before = None;
        if let Some(line) = &self.line {
            let mut line = line.lock();
            match &*line {
                Some(bar) => {
                    before = Some(bar.message());
                    bar.set_message(clean(text));
                }
                None => *line = Some(started(text)),
            }
        }
        Step { live: self.clone(), before }
    }

    /// Whether a line stands at this moment.
    pub(super) fn stands(&self) -> bool {
        self.line.as_ref().is_some_and(|line| line.lock().is_some())
    }

    /// Replaces the text, where a line stands.
    pub(super) fn say(&self, text: &str) {
        let line = self.line.as_ref().map(|line| line.lock());
        if let Some(bar) = line.as_ref().and_then(|line| line.as_ref()) {
            bar.set_message(clean(text));
        }
    }

    /// Does something while no line stands.
    fn without<T>(&self, work: impl FnOnce() -> T) -> T {
        let line = self.line.as_ref().map(|line| line.lock());
        match line.as_ref().and_then(|line| line.as_ref()) {
            Some(bar) => bar.suspend(work),
            None => work(),
        }
    }

    /// A stream whose whole lines go above the live line.
    pub(super) fn above<W: Write + Send + 'static>(&self, stream: W) -> Box<dyn Write + Send> {
        match &self.line {
            // Half a line must not stand where the live line is drawn.
            Some(_) => Box::new(LineWriter::new(Above { stream, live: self.clone() })),
            None => Box::new(stream),
        }
    }
}

/// Whether a live line is shown.
fn is_shown(output: Output, is_terminal: bool, is_dumb: bool) -> bool {
    let for_people = match output {
        Output::Table | Output::Wide => true,
        Output::Json | Output::Yaml | Output::Name => false,
    };
    for_people && is_terminal && !is_dumb
}

fn started(text: &str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    bar.set_style(style());
    bar.set_message(clean(text));
    bar.enable_steady_tick(TICK);
    bar
}

fn style() -> ProgressStyle {
    let style = ProgressStyle::with_template("{spinner} {wide_msg} {time}");
    let style = style.unwrap_or_else(|_| ProgressStyle::default_spinner());
    style.with_key("time", |state: &ProgressState, out: &mut dyn std::fmt::Write| {
        // A line without its time is one all the same.
        let _written = out.write_str(&spelled(state.elapsed()));
    })
}

/// A time that goes on, in seconds or minutes.
fn spelled(time: Duration) -> String {
    let seconds = time.as_secs();
    let mut text = String::new();
    if seconds >= 60 {
        let _written = write!(text, "{} min ", seconds / 60);
    }
    text + &format!("{} s", seconds % 60)
}

/// A part of long work. The line is gone when it ends, or is again that of the step around it.
#[must_use = "the line is gone when the step is dropped"]
pub(super) struct Step {
    live: Live,
    before: Option<String>,
}

impl Step {
    /// Replaces the text; false where no line stands.
    pub(super) fn say(&self, text: &str) -> bool {
        self.live.say(text);
        self.live.stands()
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        let Some(line) = &self.live.line else { return };
        let mut line = line.lock();
        match (self.before.take(), &*line) {
            (Some(text), Some(bar)) => bar.set_message(text),
            (_, Some(bar)) => {
                bar.finish_and_clear();
                *line = None;
            }
            (_, None) => {}
        }
    }
}

struct Above<W> {
    stream: W,
    live: Live,
}

impl<W: Write> Write for Above<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Self { stream, live } = self;
        live.without(|| stream.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Invariant: a live line stands where people look at a terminal, and nowhere else.

    #[test]
    fn scripts_pipes_and_dumb_terminals_have_no_live_line() {
        assert!(is_shown(Output::Table, true, false) && is_shown(Output::Wide, true, false));
        for output in [Output::Json, Output::Yaml, Output::Name] {
            assert!(!is_shown(output, true, false), "{output:?}");
        }
        assert!(!is_shown(Output::Table, false, false));
        assert!(!is_shown(Output::Table, true, true));
    }

    #[test]
    fn a_step_inside_another_gives_the_line_back() {
        let live = Live { line: Some(Arc::default()) };
        let message = || {
            let line = live.line.as_ref().map(|line| line.lock());
            line.and_then(|line| line.as_ref().map(ProgressBar::message))
        };
        let outer = live.step("outer\u{1b}[2J");
        assert_eq!(message().as_deref(), Some("outer?[2J"));
        let inner = live.step("inner");
        assert!(inner.say("further"));
        assert_eq!(message().as_deref(), Some("further"));
        drop(inner);
        assert_eq!(message().as_deref(), Some("outer?[2J"));
        drop(outer);
        assert_eq!((message(), live.stands()), (None, false));
    }

    // Invariant: a time is in units that people read.

    #[test]
    fn times_are_in_seconds_and_minutes() {
        assert_eq!(spelled(Duration::from_millis(900)), "0 s");
        assert_eq!(spelled(Duration::from_secs(59)), "59 s");
        assert_eq!(spelled(Duration::from_secs(135)), "2 min 15 s");
    }
}
