//! The output of the demo: a block of updated lines on a terminal, plain lines elsewhere.

use std::io::{self, IsTerminal, Write};

use serde_json::Value;

use super::agents::AgentTable;
use super::jobs::ExpectedOutcome;
use super::{DemoError, Outcome, waterfall};

/// The width of a waterfall's bars in columns.
const BAR_COLUMNS: usize = 40;

pub struct Screen {
    live: bool,
    agents: AgentTable,
    drawn: usize,
    /// Why nothing more can be written.
    broken: Option<io::Error>,
}

impl Screen {
    /// The screen for standard output.
    pub fn new(plain: bool) -> Self {
        let live = !plain && std::io::stdout().is_terminal();
        Self { live, agents: AgentTable::default(), drawn: 0, broken: None }
    }

    /// Fails once the output took no more; the first failure is given, and once.
    pub fn written(&mut self) -> Result<(), DemoError> {
        self.broken.take().map_or(Ok(()), |fault| Err(DemoError::Output(fault)))
    }

    /// Writes a text, unless nobody takes it any more.
    fn put(&mut self, text: &str) {
        if self.broken.is_some() {
            return;
        }
        let mut out = io::stdout();
        let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        self.broken = written.err();
    }

    /// Prints a permanent line.
    pub fn say(&mut self, text: &str) {
        self.wipe();
        self.put(&format!("{}\n", plain(text)));
        self.draw();
    }

    /// Shows an event.
    pub fn event(&mut self, event: &Value) {
        let line = self.agents.update(event);
        if let Some(line) = line.filter(|_| !self.live) {
            self.put(&format!("{}\n", plain(&line)));
        }
        self.refresh();
    }

    /// The VMID of an agent's guest; none before it has one.
    pub fn vmid(&self, agent: &str) -> Option<u32> {
        self.agents.vmid(agent)
    }

    /// Removes the lines of agents and stops drawing them: further lines come last.
    pub fn end(&mut self) {
        self.wipe();
        self.live = false;
    }

    /// Draws the lines of agents again, with their current times.
    pub fn refresh(&mut self) {
        self.wipe();
        self.draw();
    }

    /// Prints how a job ended.
    pub fn job(&mut self, outcome: &Outcome) {
        let exit = outcome.exit.map_or("no exit status".to_owned(), |exit| format!("exit {exit}"));
        let word = if outcome.as_expected { "as expected" } else { "NOT as expected" };
        let output = outcome.output.lines().last().unwrap_or_default();
        self.say(&format!("job {:<8} {exit} ({word}): {output}", outcome.job.name));
    }

    /// Prints the waterfalls and the summary. True when all jobs ended as expected.
    pub fn summary(&mut self, outcomes: &[Outcome]) -> bool {
        self.wipe();
        let waterfalls: Vec<String> = self
            .agents
            .waterfalls()
            .iter()
            .map(|(title, phases)| waterfall::draw(title, phases, BAR_COLUMNS))
            .collect();
        let waterfalls = waterfalls.join("\n");
        self.put(&format!("\ntime of each agent in each state:\n{waterfalls}\n"));
        let good = outcomes.iter().filter(|outcome| outcome.as_expected).count();
        let failed = outcomes
            .iter()
            .filter(|outcome| outcome.job.expected == ExpectedOutcome::Exits(3))
            .count();
        let lost = outcomes
            .iter()
            .filter(|outcome| outcome.job.expected == ExpectedOutcome::LosesItsVm)
            .count();
        self.put(&format!(
            "{} jobs: {good} as expected; on purpose, {failed} fail and {lost} lose their VM\n\n",
            outcomes.len()
        ));
        self.drawn = 0;
        self.draw();
        good == outcomes.len()
    }

    fn wipe(&mut self) {
        if self.live && self.drawn > 0 {
            self.put(&format!("\x1b[{}A\x1b[J", self.drawn));
            self.drawn = 0;
        }
    }

    fn draw(&mut self) {
        if !self.live {
            return;
        }
        let lines = self.agents.lines();
        let mut text = String::new();
        for line in &lines {
            // A wrapped line would break the number of lines to erase.
            text.extend(plain(line).chars().take(100).chain(['\n']));
        }
        self.put(&text);
        self.drawn = lines.len();
    }
}

/// A text without what could move the cursor: the output of a job can hold anything.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' { '?' } else { c }).collect()
}
