//! What the demo prints: a block of live lines on a terminal, plain lines elsewhere.
#![expect(clippy::print_stdout, reason = "the demo talks to people")]

use std::io::{IsTerminal, Write};

use serde_json::Value;

use super::board::Board;
use super::jobs::Fate;
use super::{Outcome, waterfall};

/// Columns of a waterfall's bars.
const BARS: usize = 40;

/// The demo's face.
pub struct Show {
    live: bool,
    board: Board,
    drawn: usize,
}

impl Show {
    /// A face for standard output.
    pub fn new(plain: bool) -> Self {
        let live = !plain && std::io::stdout().is_terminal();
        Self { live, board: Board::default(), drawn: 0 }
    }

    /// Prints a line that stays.
    pub fn say(&mut self, text: &str) {
        self.wipe();
        println!("{text}");
        self.draw();
    }

    /// Takes an event in.
    pub fn event(&mut self, event: &Value) {
        let line = self.board.fold(event);
        if let Some(line) = line.filter(|_| !self.live) {
            println!("{line}");
        }
        self.refresh();
    }

    /// Where an agent's guest is.
    pub fn vmid(&self, agent: &str) -> Option<u32> {
        self.board.vmid(agent)
    }

    /// Takes the live lines away for good: what is said from here on stands last.
    pub fn end(&mut self) {
        self.wipe();
        self.live = false;
    }

    /// Draws the live lines anew, so that their clocks run.
    pub fn refresh(&mut self) {
        self.wipe();
        self.draw();
    }

    /// Prints how a job came out.
    pub fn job(&mut self, outcome: &Outcome) {
        let exit = outcome.exit.map_or("no exit status".to_owned(), |exit| format!("exit {exit}"));
        let word = if outcome.as_expected { "as expected" } else { "NOT as expected" };
        let output = outcome.output.lines().last().unwrap_or_default();
        self.say(&format!("job {:<8} {exit} ({word}): {output}", outcome.job.name));
    }

    /// Prints the waterfalls and the summary; says whether all jobs came out as they should.
    pub fn summary(&mut self, outcomes: &[Outcome]) -> bool {
        self.wipe();
        let living: Vec<String> = self
            .board
            .waterfalls()
            .iter()
            .map(|(title, phases)| waterfall::draw(title, phases, BARS))
            .collect();
        println!("\nhow long each agent spent where:\n{}", living.join("\n"));
        let good = outcomes.iter().filter(|outcome| outcome.as_expected).count();
        let failed = outcomes.iter().filter(|outcome| outcome.job.fate == Fate::Exits(3)).count();
        let lost =
            outcomes.iter().filter(|outcome| outcome.job.fate == Fate::LosesItsMachine).count();
        println!(
            "{} jobs: {good} as expected (of them {failed} that fail and {lost} that lose their \
             machine)\n",
            outcomes.len()
        );
        self.drawn = 0;
        self.draw();
        good == outcomes.len()
    }

    fn wipe(&mut self) {
        if self.live && self.drawn > 0 {
            print!("\x1b[{}A\x1b[J", self.drawn);
            self.drawn = 0;
        }
    }

    fn draw(&mut self) {
        if !self.live {
            return;
        }
        let lines = self.board.lines();
        for line in &lines {
            // Cut rather than wrapped: a wrapped line would break the count of lines to wipe.
            println!("{}", line.chars().take(100).collect::<String>());
        }
        self.drawn = lines.len();
        // A terminal that takes nothing is noticed by the next line.
        let _ = std::io::stdout().flush();
    }
}
