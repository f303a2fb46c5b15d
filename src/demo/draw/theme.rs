//! Colours, and what stands for them where there are none.

use drover_model::phase::AgentPhase;
use ratatui::style::{Color, Modifier, Style};

/// What a text is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ink {
    Text,
    Dim,
    Title,
    Good,
    Busy,
    Story,
    Bad,
}

#[derive(Debug, Clone, Copy)]
pub struct Theme {
    pub color: bool,
}

impl Theme {
    pub fn ink(self, ink: Ink) -> Style {
        let (color, modifier) = match ink {
            Ink::Text => (None, Modifier::empty()),
            Ink::Dim => (Some(244), Modifier::empty()),
            Ink::Title => (Some(75), Modifier::BOLD),
            Ink::Good => (Some(78), Modifier::empty()),
            Ink::Busy => (Some(221), Modifier::empty()),
            Ink::Story => (Some(215), Modifier::empty()),
            Ink::Bad => (Some(203), Modifier::BOLD),
        };
        let style = Style::new().add_modifier(modifier);
        match color.filter(|_| self.color) {
            Some(color) => style.fg(Color::Indexed(color)),
            None => style,
        }
    }

    /// The style of a bar of this phase.
    pub fn bar(self, phase: Option<AgentPhase>) -> Style {
        match self.color {
            true => Style::new().fg(Color::Indexed(color_of(phase))),
            false => Style::new(),
        }
    }
}

/// The phases that the legend names, in the order of an agent's life.
pub const LEGEND: [AgentPhase; 9] = [
    AgentPhase::Queued,
    AgentPhase::Cloning,
    AgentPhase::Configuring,
    AgentPhase::Booting,
    AgentPhase::Connecting,
    AgentPhase::Preparing,
    AgentPhase::Ready,
    AgentPhase::Leased,
    AgentPhase::Retiring,
];

/// The colour of a phase, of the 256 of terminals.
pub fn color_of(phase: Option<AgentPhase>) -> u8 {
    match phase {
        None | Some(AgentPhase::Gone) => 240,
        Some(AgentPhase::Queued) => 245,
        Some(AgentPhase::Cloning) => 68,
        Some(AgentPhase::Configuring) => 37,
        Some(AgentPhase::Booting) => 179,
        Some(AgentPhase::Connecting) => 169,
        Some(AgentPhase::Preparing) => 140,
        Some(AgentPhase::Ready) => 151,
        Some(AgentPhase::Leased) => 71,
        Some(AgentPhase::Draining | AgentPhase::Resetting) => 30,
        Some(AgentPhase::Held) => 208,
        Some(AgentPhase::Retiring) => 131,
        Some(AgentPhase::InDoubt | AgentPhase::Stranded) => 196,
    }
}

/// The letter of a phase where there are no colours: the capital letter of its [`marked_name`].
pub fn letter_of(phase: Option<AgentPhase>) -> char {
    match phase {
        None => '?',
        Some(AgentPhase::Queued) => 'Q',
        Some(AgentPhase::Cloning) => 'C',
        Some(AgentPhase::InDoubt) => 'D',
        Some(AgentPhase::Configuring) => 'F',
        Some(AgentPhase::Booting) => 'B',
        Some(AgentPhase::Connecting) => 'N',
        Some(AgentPhase::Preparing) => 'P',
        Some(AgentPhase::Ready) => 'R',
        Some(AgentPhase::Leased) => 'L',
        Some(AgentPhase::Draining) => 'A',
        Some(AgentPhase::Resetting) => 'S',
        Some(AgentPhase::Held) => 'H',
        Some(AgentPhase::Retiring) => 'T',
        Some(AgentPhase::Stranded) => 'X',
        Some(AgentPhase::Gone) => ' ',
    }
}

/// The name of a phase in small letters, with its letter as a capital: `coNnecting`.
pub fn marked_name(phase: AgentPhase) -> String {
    let name = phase.to_string().to_lowercase();
    let letter = letter_of(Some(phase));
    match name.find(letter.to_ascii_lowercase()) {
        Some(at) => format!("{}{letter}{}", &name[..at], &name[at + 1..]),
        None => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Invariant: without colours each phase of the legend has a letter of its own, which its name shows.

    #[test]
    fn each_phase_of_the_legend_has_its_own_letter() {
        let names: Vec<String> = LEGEND.iter().map(|phase| marked_name(*phase)).collect();
        let expected =
            "Queued Cloning conFiguring Booting coNnecting Preparing Ready Leased reTiring";
        assert_eq!(names.join(" "), expected);
        let mut letters: Vec<char> = LEGEND.iter().map(|phase| letter_of(Some(*phase))).collect();
        letters.sort_unstable();
        letters.dedup();
        assert_eq!(letters.len(), LEGEND.len());
    }
}
