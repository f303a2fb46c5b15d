//! Draws the phases of an agent as a waterfall: a bar for each phase, at the place of its start.

use std::fmt::Write as _;

/// Draws phases (state, milliseconds) on `width` columns of bars.
pub fn draw(title: &str, phases: &[(String, u64)], width: usize) -> String {
    let total: u64 = phases.iter().map(|(_, ms)| ms).sum();
    let mut out = format!("{title}  {}\n", seconds(total));
    let mut before = 0;
    let named = phases.iter().map(|(state, _)| state.chars().count()).max().unwrap_or(0).max(12);
    for (state, ms) in phases {
        let from = column(before, total, width);
        before += ms;
        let to = column(before, total, width).max(from + usize::from(*ms > 0));
        let bar = format!("{}{}", " ".repeat(from), "█".repeat(to.saturating_sub(from)));
        let _ = writeln!(out, "  {state:<named$} {:>8}  {bar}", seconds(*ms));
    }
    out
}

fn column(at: u64, total: u64, width: usize) -> usize {
    if total == 0 {
        return 0;
    }
    let width = width as u64;
    usize::try_from(at.saturating_mul(width) / total).unwrap_or(0)
}

/// Milliseconds as seconds with two decimals.
pub fn seconds(ms: u64) -> String {
    format!("{}.{:02} s", ms / 1000, ms % 1000 / 10)
}

#[cfg(test)]
mod tests {
    use drover_model::phase::AgentPhase;

    use super::*;

    // Invariant: the drawing shows the total time and the order of phases.

    #[test]
    fn bars_start_where_the_phase_before_ended() {
        let phases = [
            (AgentPhase::Cloning, 500),
            (AgentPhase::Booting, 1500),
            (AgentPhase::Ready, 0),
            (AgentPhase::Leased, 2000),
        ]
        .map(|(phase, ms)| (phase.to_string(), ms));
        insta::assert_snapshot!(draw("linux-1", &phases, 16), @r"
        linux-1  4.00 s
          Cloning        0.50 s  ██
          Booting        1.50 s    ██████
          Ready          0.00 s          
          Leased         2.00 s          ████████
        ");
    }
}
