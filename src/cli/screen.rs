//! What standard output is, and what is wanted of it: looks at the process once.

use std::ffi::OsString;
use std::io::{self, IsTerminal as _};

use clap::ValueEnum;
use jiff::Timestamp;

use super::list_options::ViewOptions;
use super::table::View;
use super::watch::Size;

/// The form of what a command prints.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// Text for people
    #[default]
    Table,
    /// Lists with all columns, and ids in full
    Wide,
    /// JSON for scripts
    Json,
    /// The same value as YAML
    Yaml,
    /// Lists: the name or id alone, one a line
    Name,
}

/// When states are coloured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum ColorWhen {
    /// On a terminal, unless NO_COLOR is set; elsewhere where CLICOLOR_FORCE is
    #[default]
    Auto,
    Always,
    Never,
}

/// How a command prints.
#[derive(Debug, Clone, Copy, Default)]
pub struct Screen {
    pub output: Output,
    pub color: bool,
    pub is_terminal: bool,
}

impl Screen {
    /// As the options and the process's standard output have it.
    pub(super) fn of_process(output: Output, when: ColorWhen) -> Self {
        let is_terminal = io::stdout().is_terminal();
        let color = is_coloured(when, is_terminal, |name| std::env::var_os(name));
        Self { output, color, is_terminal }
    }

    /// The view at this moment: a terminal may have become narrower.
    pub(super) fn view(self, options: &ViewOptions) -> View {
        let complete = View { color: self.color, ..View::complete(Timestamp::now()) };
        if !self.is_terminal {
            return complete;
        }
        View {
            width: width(),
            wide: options.wide || self.output == Output::Wide,
            whole: options.no_trunc,
            utc: options.utc,
            ..complete
        }
    }
}

/// The columns of the terminal, else those of `COLUMNS`.
fn width() -> Option<usize> {
    let columns = size().map(|size| size.columns);
    columns.or_else(|| std::env::var("COLUMNS").ok()?.parse().ok().filter(|columns| *columns > 0))
}

/// The size of the terminal at this moment; none where it has none.
pub(super) fn size() -> Option<Size> {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
    let size = Size { rows: size.ws_row.into(), columns: size.ws_col.into() };
    (size.columns > 0 && size.rows > 0).then_some(size)
}

/// Whether states are coloured: a variable that is set and not empty counts, `0` turns
/// CLICOLOR_FORCE off.
fn is_coloured(
    when: ColorWhen,
    is_terminal: bool,
    variable: impl Fn(&str) -> Option<OsString>,
) -> bool {
    let is_set = |name: &str| variable(name).is_some_and(|value| !value.is_empty());
    let is = |name: &str, word: &str| variable(name).is_some_and(|value| value == word);
    match when {
        ColorWhen::Always => true,
        ColorWhen::Never => false,
        ColorWhen::Auto if is_set("NO_COLOR") => false,
        ColorWhen::Auto if is_set("CLICOLOR_FORCE") && !is("CLICOLOR_FORCE", "0") => true,
        ColorWhen::Auto => is_terminal && !is("TERM", "dumb") && !is("CLICOLOR", "0"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Invariant: colours are where somebody sees them or asked for them, and nowhere else.

    #[test]
    fn the_option_goes_before_the_variables_and_those_before_the_terminal() {
        let coloured = |when, is_terminal, set: &[(&str, &str)]| {
            is_coloured(when, is_terminal, |name| {
                let found = set.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| (*value).into())
            })
        };
        use ColorWhen::{Always, Auto, Never};
        assert!(coloured(Auto, true, &[]));
        assert!(!coloured(Auto, false, &[]));
        assert!(!coloured(Auto, true, &[("NO_COLOR", "1")]));
        assert!(coloured(Auto, true, &[("NO_COLOR", "")]));
        assert!(!coloured(Auto, true, &[("NO_COLOR", "1"), ("CLICOLOR_FORCE", "1")]));
        assert!(coloured(Auto, false, &[("CLICOLOR_FORCE", "1")]));
        assert!(!coloured(Auto, false, &[("CLICOLOR_FORCE", "0")]));
        assert!(!coloured(Auto, true, &[("TERM", "dumb")]));
        assert!(!coloured(Auto, true, &[("CLICOLOR", "0")]));
        assert!(coloured(Always, false, &[("NO_COLOR", "1")]));
        assert!(!coloured(Never, true, &[("CLICOLOR_FORCE", "1")]));
    }
}
