//! The form of a line of text in the log.

use std::fmt;

use drover_model::outside::steers;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, FormattedFields};
use tracing_subscriber::registry::LookupSpan;

/// Time, level, where it comes from, and what is said. A span stands before that only where the line
/// does not say the same, so that an agent is named once.
#[derive(Debug, Clone, Copy)]
pub(super) struct Line {
    /// Whether the time is written.
    pub time: bool,
    /// Whether the level has a color.
    pub colored: bool,
}

const fn color(level: Level) -> &'static str {
    match level {
        Level::ERROR => "31",
        Level::WARN => "33",
        Level::INFO => "32",
        Level::DEBUG => "34",
        Level::TRACE => "35",
    }
}

impl<S, N> FormatEvent<S, N> for Line
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let about = event.metadata();
        if self.time {
            SystemTime.format_time(&mut writer)?;
            writer.write_char(' ')?;
        }
        match self.colored {
            true => write!(writer, "\x1b[{}m{:>5}\x1b[0m ", color(*about.level()), about.level())?,
            false => write!(writer, "{:>5} ", about.level())?,
        }
        let mut said = String::new();
        context.format_fields(Writer::new(&mut said), event)?;
        for span in context.event_scope().into_iter().flat_map(|scope| scope.from_root()) {
            let fields = span.extensions();
            let fields = fields.get::<FormattedFields<N>>().map_or("", |fields| &fields.fields);
            if fields.is_empty() {
                write!(writer, "{}: ", span.name())?;
            } else if !said.contains(fields) {
                write!(writer, "{}{{{fields}}}: ", span.name())?;
            }
        }
        writeln!(writer, "{}: {}", about.target(), in_its_place(&said))
    }
}

/// Text that cannot be taken for another line, nor move a cursor: guests and other programs may have said it.
fn in_its_place(said: &str) -> String {
    let mut text = String::with_capacity(said.len());
    for letter in said.chars() {
        match letter {
            '\n' => text.push_str("\n    | "),
            '\t' => text.push(letter),
            letter if steers(letter) => text.extend(letter.escape_default()),
            letter => text.push(letter),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;

    use parking_lot::Mutex;
    use tracing_subscriber::layer::SubscriberExt;
    use tracing_subscriber::{Registry, fmt};

    use super::*;

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    // Invariant: what somebody else said is never a line of its own.

    #[test]
    fn lines_within_a_text_look_like_no_lines_of_the_log() {
        assert_eq!(
            in_its_place("failed: a\n INFO audit: forged\r\u{1b}[2Kb\tc\u{202e}d"),
            "failed: a\n    |  INFO audit: forged\\r\\u{1b}[2Kb\tc\\u{202e}d"
        );
    }

    // Invariant: a line says who acts, and says it once.

    #[test]
    fn a_span_whose_fields_a_line_repeats_is_left_out_of_it() {
        let kept = Kept::default();
        let writer = kept.clone();
        let lines = fmt::layer().with_ansi(false).with_writer(move || writer.clone());
        let lines = lines.event_format(Line { time: false, colored: false });
        tracing::subscriber::with_default(Registry::default().with(lines), || {
            let agent = "7f3a";
            let _entered = tracing::info_span!("actor", %agent).entered();
            tracing::info!(%agent, to = "Ready", "agent moved");
            tracing::warn!(vmid = 101, "disc image stays behind");
            let _entered = tracing::info_span!("append").entered();
            tracing::info!("record not written");
        });
        let bytes = kept.0.lock();
        insta::assert_snapshot!(String::from_utf8_lossy(&bytes), @r#"
         INFO drover::telemetry::line::tests: agent moved agent=7f3a to="Ready"
         WARN actor{agent=7f3a}: drover::telemetry::line::tests: disc image stays behind vmid=101
         INFO actor{agent=7f3a}: append: drover::telemetry::line::tests: record not written
        "#);
    }
}
