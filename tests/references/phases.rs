//! What each phase of an agent means to others: the table in the book, drawn from the questions of
//! [`AgentPhase`].

use std::collections::BTreeSet;

use drover_model::phase::AgentPhase;

use super::tree::root;

/// The name of a method of a phase, and the method.
type Question = (&'static str, fn(AgentPhase) -> bool);

/// The questions, in order of their columns.
const QUESTIONS: [Question; 11] = [
    ("has_guest", AgentPhase::has_guest),
    ("is_alive", AgentPhase::is_alive),
    ("should_run", AgentPhase::should_run),
    ("is_cloning", AgentPhase::is_cloning),
    ("is_starting", AgentPhase::is_starting),
    ("takes_leases", AgentPhase::takes_leases),
    ("takes_no_more", AgentPhase::takes_no_more),
    ("is_busy_unproven", AgentPhase::is_busy_unproven),
    ("is_leaving", AgentPhase::is_leaving),
    ("disk_is_shown", AgentPhase::disk_is_shown),
    ("uses_snapshots", AgentPhase::uses_snapshots),
];

/// The table: a row for each phase, a column for each question.
pub fn table() -> String {
    let line = |first: &str, cells: Vec<&str>| format!("| {first} | {} |\n", cells.join(" | "));
    let names = QUESTIONS.map(|(name, _)| format!("`{name}`"));
    let head = line("phase", names.iter().map(String::as_str).collect());
    let rule = format!("|{}\n", "---|".repeat(1 + QUESTIONS.len()));
    let rows = AgentPhase::ALL.map(|phase| {
        let answers = QUESTIONS.map(|(_, asked)| if asked(phase) { "yes" } else { "" });
        line(&format!("`{phase}`"), answers.into())
    });
    format!("{head}{rule}{}", rows.concat())
}

// Invariant: no question about a phase is missing in the table.

#[test]
fn the_table_has_every_question_that_the_code_answers() {
    let text = std::fs::read_to_string(root().join("actors/model/phase/agent.rs")).unwrap();
    let asked = text.lines().filter_map(|line| {
        let (name, rest) = line.trim_start().strip_prefix("pub const fn ")?.split_once('(')?;
        rest.starts_with("self) -> bool").then_some(name)
    });
    let shown = QUESTIONS.iter().map(|(name, _)| *name);
    assert_eq!(asked.collect::<BTreeSet<_>>(), shown.collect::<BTreeSet<_>>());
}
