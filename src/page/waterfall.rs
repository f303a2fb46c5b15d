//! The phases of an agent as bars, each at the place of its start.

use drover_api::PhaseOut;

use crate::show;

/// The width of all bars together, in units of the drawing.
const WIDTH: u64 = 1000;

/// A phase and its bar.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Bar {
    pub(crate) state: String,
    pub(crate) class: String,
    pub(crate) length: String,
    /// Where the bar begins, and how wide it is.
    pub(crate) x: u64,
    pub(crate) width: u64,
    /// Whether it is a step within a phase.
    pub(crate) is_step: bool,
}

/// The bars of phases that follow each other.
pub(crate) fn bars(phases: &[PhaseOut]) -> Vec<Bar> {
    let total: u64 = phases.iter().map(|one| one.ms).sum();
    let place = |ms: u64| ms.saturating_mul(WIDTH).checked_div(total).unwrap_or(0);
    let mut before = 0;
    let mut bar = |one: &PhaseOut| {
        let x = place(before);
        before += one.ms;
        let (phase, step) = one.state.split_once(": ").unwrap_or((&one.state, ""));
        Bar {
            state: if step.is_empty() { named(phase) } else { step.to_owned() },
            class: show::class(phase),
            length: show::length(one.ms),
            x,
            // What took time at all is seen.
            width: (place(before) - x).max(u64::from(one.ms > 0) * 2),
            is_step: !step.is_empty(),
        }
    };
    phases.iter().map(&mut bar).collect()
}

fn named(phase: &str) -> String {
    match phase {
        "Earlier" => "before the last start of drover".to_owned(),
        _ => phase.to_owned(),
    }
}

/// The length of all phases.
pub(crate) fn total(phases: &[PhaseOut]) -> String {
    show::length(phases.iter().map(|one| one.ms).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    // Invariant: a bar begins where the one before ended, and nothing that took time is invisible.

    #[test]
    fn bars_follow_each_other_over_the_whole_width() {
        let phase = |state: &str, ms| PhaseOut { state: state.to_owned(), ms };
        let phases = [
            phase("Cloning", 500),
            phase("Preparing: cloud-init", 1),
            phase("Ready", 499),
            phase("Leased", 0),
        ];
        let bars = bars(&phases);
        let places: Vec<_> = bars.iter().map(|bar| (bar.x, bar.width)).collect();
        assert_eq!(places, [(0, 500), (500, 2), (501, 499), (1000, 0)]);
        assert_eq!((bars[1].state.as_str(), bars[1].is_step), ("cloud-init", true));
        assert_eq!(total(&phases), "1.0 s");
    }
}
