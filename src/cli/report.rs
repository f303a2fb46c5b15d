//! What commands say beside their results, on standard error: words for people, or with `--json` an
//! object a line.
//!
//! An error is `{"error": {"code", "text"}}`, with `faults` where a configuration has them; `code` is
//! the exit code. Warnings of a configuration are `{"warnings": […]}`. What goes on meanwhile is
//! `{"progress": {"text", …}}`.

use std::io::{self, Write as _};
use std::process::ExitCode;

use causes::chain;
use serde_json::{Value, json};

use super::error::CliError;
use super::term::{Term, shown};
use drover_config::{Checked, LoadError, LocatedFault};

/// The exit code of a command that failed.
pub(super) const FAILED: u8 = 1;
/// The exit code of wrong arguments or an invalid configuration.
pub(super) const USAGE: u8 = 2;

/// An error as scripts read it.
pub(super) fn line(code: u8, text: &str) -> String {
    faulty(code, text, &[])
}

fn faulty(code: u8, text: &str, faults: &[LocatedFault]) -> String {
    let mut error = json!({ "code": code, "text": text });
    if !faults.is_empty() {
        error["faults"] = json!(faults);
    }
    json!({ "error": error }).to_string()
}

/// Reports an error, in `plain` to people; gives its exit code.
pub(super) fn fail(json: bool, code: u8, text: &str, plain: &str) -> ExitCode {
    fail_with(json, code, (text, &[]), plain)
}

/// Reports an error with the faults of a configuration, in `plain` to people; gives its exit code.
pub(super) fn fail_with(
    json: bool,
    code: u8,
    (text, faults): (&str, &[LocatedFault]),
    plain: &str,
) -> ExitCode {
    if json {
        write(&(faulty(code, text, faults) + "\n"));
    } else {
        write(plain);
    }
    ExitCode::from(code)
}

/// Reports why a command ended, in `plain` to people; gives its exit code.
pub(super) fn fail_by(json: bool, error: &CliError, plain: &str) -> ExitCode {
    match error {
        CliError::Config(fault) => {
            fail_with(json, error.exit_code(), (&chain(&**fault), &fault.located()), plain)
        }
        CliError::Usage(_)
        | CliError::Call(_)
        | CliError::Failed(_)
        | CliError::Waited(_)
        | CliError::Over(_)
        | CliError::Output(_) => fail(json, error.exit_code(), &chain(error), plain),
    }
}

/// Reports what is wrong with a configuration; gives the exit code.
pub(super) fn fail_to_load(json: bool, code: u8, error: &LoadError) -> ExitCode {
    fail_with(json, code, (&chain(error), &error.located()), &error.render())
}

/// Reports what a configuration is warned of.
pub(super) fn warn(json: bool, checked: &Checked) {
    if !json {
        write(&checked.rendered_warnings());
    } else if !checked.warnings.is_empty() {
        write(&format!("{}\n", json!({ "warnings": checked.located_warnings() })));
    }
}

/// Reports what goes on; `facts` are the same for scripts.
pub(super) fn progress(json: bool, text: &str, mut facts: Value) {
    if json {
        facts["text"] = text.into();
        write(&format!("{}\n", json!({ "progress": facts })));
    } else {
        write(&format!("{text}\n"));
    }
}

fn write(text: &str) {
    // Nothing is left to report it to when even this fails.
    let _ = io::stderr().write_all(shown(text).as_bytes());
}

impl Term<'_> {
    /// Reports what goes on; `facts` are the same for scripts.
    pub(super) fn progress(&mut self, json: bool, text: &str, mut facts: Value) -> io::Result<()> {
        if !json {
            return writeln!(self.err, "{}", shown(text));
        }
        facts["text"] = text.trim().into();
        writeln!(self.err, "{}", json!({ "progress": facts }))
    }

    /// Reports how far work is: in the live line where one stands, elsewhere as a line of its own.
    pub(super) fn moved(&mut self, json: bool, text: &str, facts: Value) -> io::Result<()> {
        if self.live.stands() {
            self.live.say(text.trim());
            return Ok(());
        }
        self.progress(json, text, facts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Invariant: where no live line stands, how far work is gets a line of its own.

    #[test]
    fn without_a_live_line_every_report_is_a_line_of_its_own() {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut term = Term::new(&mut out, &mut err);
        let step = term.live.step("waiting");
        assert!(!step.say("still waiting"));
        assert!(term.moved(false, "  Cloning", json!({})).is_ok());
        drop(step);
        assert_eq!(String::from_utf8_lossy(&err), "  Cloning\n");
    }
}
