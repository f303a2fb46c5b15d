//! The standard output of commands that ask no service: a whole text at once, and what is said where
//! nobody takes it.
//!
//! `println!` panics on a full disk and on a pipe that was closed. Commands that ask a service print on
//! a [`Term`](super::term::Term), whose failures end here as well.

use std::io::{self, Write as _};
use std::process::ExitCode;

use causes::chain;
use serde::Serialize;
use serde_json::Value;

use super::error::CliError;
use super::report::{self, FAILED};
use super::screen::Output;
use super::term::{shown, spelled};

/// Writes a whole text to standard output and gives `done`; reports an output that takes it not.
pub(super) fn put(json: bool, text: &str, done: ExitCode) -> ExitCode {
    let mut out = io::stdout();
    match out.write_all(shown(text).as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => done,
        Err(error) => not_written(json, error),
    }
}

/// Writes a value to standard output as JSON or YAML, and gives `done`.
pub(super) fn put_value(output: Output, value: &impl Serialize, done: ExitCode) -> ExitCode {
    match spelled(output, value) {
        Ok(text) => put(true, &text, done),
        Err(error) => report::fail_by(true, &error, ""),
    }
}

/// Writes a value to standard output as JSON in one line, or as YAML, and gives `done`.
pub(super) fn put_line(output: Output, value: &Value, done: ExitCode) -> ExitCode {
    match output {
        Output::Yaml => put_value(output, value, done),
        Output::Table | Output::Wide | Output::Json | Output::Name => {
            put(true, &format!("{value}\n"), done)
        }
    }
}

/// Reports that standard output took nothing. Anyone who closed the pipe has read enough and hears
/// nothing more.
pub(super) fn not_written(json: bool, error: io::Error) -> ExitCode {
    if error.kind() == io::ErrorKind::BrokenPipe {
        return ExitCode::from(FAILED);
    }
    let error = CliError::Output(error);
    report::fail_by(json, &error, &format!("drover: {}\n", chain(&error)))
}
