//! What a guest says of a runner that was started in it.

use std::fmt;

/// How a runner's command stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Life {
    Runs,
    /// It ended with this status; none where nobody saw it.
    Ended(Option<u32>),
    /// It ended well, and may have started something that runs on.
    Left,
}

/// How a runner's command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// With 0, and nothing of it runs any more.
    Well,
    /// With another status, or by a signal.
    Badly,
    /// With 0, and it may have started something that runs on.
    Left,
}

/// What a guest says of a runner.
///
/// Guests may lie: it is shown to people, and never ends what its source holds for connected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Words {
    /// How its command stands.
    pub life: Life,
    /// How many seconds it has run, or ran.
    pub seconds: u64,
    /// How many seconds ago it ended, where it did.
    pub ago: u64,
    /// The last lines of its log, bounded and without what drover handed over.
    pub lines: String,
    /// Where its program is too old for its source: its version, the last day of that where it is known,
    /// and what to do about it.
    pub too_old: Option<String>,
}

impl Words {
    /// How its command ended; none while it runs.
    pub fn end(&self) -> Option<Ending> {
        match self.life {
            Life::Ended(Some(0)) => Some(Ending::Well),
            Life::Ended(_) => Some(Ending::Badly),
            Life::Left => Some(Ending::Left),
            Life::Runs => None,
        }
    }
}

impl fmt::Display for Words {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.seconds;
        if let Some(text) = &self.too_old {
            write!(to, "{text}; ")?;
        }
        match self.life {
            Life::Runs => write!(to, "it still runs, for {seconds} s")?,
            Life::Ended(Some(code)) => write!(to, "it ended with {code} after {seconds} s")?,
            Life::Ended(None) => write!(to, "it ended, nobody saw how")?,
            Life::Left => write!(to, "its command ended with 0 after {seconds} s")?,
        }
        match self.lines.as_str() {
            "" => write!(to, "; its log is empty"),
            // What a guest says is no line of its own wherever it is shown.
            lines => write!(to, "; its log: {}", lines.trim_end().replace('\n', " | ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Invariant: what became of a runner is said in one sentence.

    #[test]
    fn words_say_how_it_stands_for_how_long_and_what_it_said() {
        let words = |life, lines: &str| {
            let (lines, too_old) = (lines.to_owned(), None);
            Words { life, seconds: 3, ago: 0, lines, too_old }
        };
        let reported = |life, lines: &str| words(life, lines).to_string();
        let too_old = Some("its actions/runner 2.330.0 is too old".to_owned());
        let old = Words { too_old, ..words(Life::Ended(Some(7)), "Exiting runner...") };
        let all = [
            reported(Life::Runs, ""),
            reported(Life::Ended(Some(7)), "too old\nbye"),
            reported(Life::Ended(None), ""),
            reported(Life::Left, "started"),
            old.to_string(),
        ];
        assert_eq!(
            all,
            [
                "it still runs, for 3 s; its log is empty",
                "it ended with 7 after 3 s; its log: too old | bye",
                "it ended, nobody saw how; its log is empty",
                "its command ended with 0 after 3 s; its log: started",
                "its actions/runner 2.330.0 is too old; it ended with 7 after 3 s; its log: Exiting \
                 runner...",
            ]
        );
    }
}
