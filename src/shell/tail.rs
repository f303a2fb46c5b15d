//! The end of what a command printed.

use drover_model::ports::Ran;
use drover_scripts::guest::report;
use drover_ssh::ExecResult;

/// How many lines of output a fault shows.
pub(super) const FAULT_LINES: usize = 12;
/// How many lines a guest may report of itself: as many as the script prints, and some.
const REPORT_LINES: usize = 80;

/// What is kept of a command: its exit status and its last lines.
pub(super) fn ran_of(command: &str, result: &ExecResult) -> Ran {
    let most = if command == report() { REPORT_LINES } else { FAULT_LINES };
    Ran { exit: result.exit, tail: tail(result, most) }
}

/// The last lines of both streams, without control characters.
pub(super) fn tail(result: &ExecResult, most: usize) -> String {
    let text =
        [&result.stdout, &result.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    let lines: Vec<&str> = text.iter().flat_map(|text| text.lines()).collect();
    let from = lines.len().saturating_sub(most);
    lines[from..].join("\n").chars().filter(|ch| !ch.is_control() || *ch == '\n').collect()
}
