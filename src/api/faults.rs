//! Faults of a refused configuration: each with its place, and all in one line.
//!
//! A refusal travels as the text that people read, in which each fault is drawn with the lines around it. The
//! parts of that drawing are read here; `drover-config` draws it, and tests there that nothing is lost.

use serde::{Deserialize, Serialize};

/// One fault of a refused configuration.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct FaultOut {
    /// The key with what is wrong with it.
    pub what: String,
    /// The file; null for a variable of the environment and for something that is missing altogether.
    pub file: Option<String>,
    /// The line, from 1.
    pub line: Option<usize>,
    /// The column in characters, from 1.
    pub column: Option<usize>,
    /// The lines of the file around it; empty where one is too long to be shown.
    pub excerpt: Vec<ExcerptOut>,
    /// What to do about it.
    pub help: Option<String>,
}

/// A line of a file, with what is wrong in it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ExcerptOut {
    /// Its number, from 1.
    pub number: usize,
    /// The text before the fault; the whole line where the fault is in another one.
    pub before: String,
    /// The text that is wrong; empty where the fault is in another line.
    pub wrong: String,
    /// The text behind it.
    pub after: String,
}

/// The faults of a refusal, each by its parts; none where it is a text that draws none.
pub fn faults_of(refusal: &str) -> Vec<FaultOut> {
    let mut faults: Vec<FaultOut> = Vec::new();
    // Whether the last lines were of a help, which may have several.
    let mut in_help = false;
    for line in refusal.lines() {
        if let Some(what) = line.trim_start().strip_prefix('×') {
            faults.push(FaultOut { what: what.trim().to_owned(), ..FaultOut::default() });
            in_help = false;
        } else if let Some(fault) = faults.last_mut() {
            in_help = fault.read(line, in_help);
        }
    }
    faults
}

impl FaultOut {
    /// Reads a line of its drawing; gives whether the next one may go on with the help.
    fn read(&mut self, line: &str, in_help: bool) -> bool {
        let trimmed = line.trim();
        if let Some((_, place)) = line.split_once("╭─[") {
            let mut parts = place.trim_end_matches(']').rsplitn(3, ':');
            self.column = parts.next().and_then(|column| column.parse().ok());
            self.line = parts.next().and_then(|line| line.parse().ok());
            self.file = parts.next().map(str::to_owned);
        } else if let Some(help) = trimmed.strip_prefix("help: ") {
            self.help = Some(help.to_owned());
            return true;
        } else if let Some(help) = self.help.as_mut().filter(|_| in_help && !trimmed.is_empty()) {
            *help += &format!(" {trimmed}");
            return true;
        } else if let Some((number, text)) = line.split_once('│')
            && let Ok(number) = number.trim().parse()
        {
            let before = text.strip_prefix(' ').unwrap_or(text).to_owned();
            self.excerpt.push(ExcerptOut { number, before, ..ExcerptOut::default() });
        } else if let Some(marks) = trimmed.strip_prefix('·')
            && let Some(last) = self.excerpt.last_mut().filter(|last| last.wrong.is_empty())
        {
            last.mark(marks.strip_prefix(' ').unwrap_or(marks));
        } else if let Some(more) = trimmed.strip_prefix('│').filter(|_| self.file.is_none()) {
            self.what += &format!(" {}", more.trim());
        }
        false
    }
}

impl ExcerptOut {
    /// Cuts the line where the line below it is drawn.
    fn mark(&mut self, below: &str) {
        let start = below.chars().take_while(|one| *one == ' ').count();
        let is_drawn = |one: &char| matches!(one, '─' | '┬' | '▲');
        let length = below.chars().skip(start).take_while(is_drawn).count();
        let text: Vec<char> = self.before.chars().collect();
        let part = |from: usize, to: usize| text.iter().take(to).skip(from).collect::<String>();
        if length > 0 && start <= text.len() {
            self.wrong = part(start, start + length);
            self.after = part(start + length, text.len());
            self.before = part(0, start);
        }
    }
}

/// The faults of a refused configuration in one line, each with its place: what is drawn of the file
/// itself is left out.
pub fn faults_in_one_line(refusal: &str) -> String {
    let mut faults: Vec<String> = Vec::new();
    for line in refusal.lines().map(str::trim) {
        if let Some(fault) = line.strip_prefix('×') {
            faults.push(fault.trim().to_owned());
        } else if let Some((_, place)) = line.split_once("╭─[")
            && let Some(fault) = faults.last_mut()
        {
            *fault += &format!(" ({})", place.trim_end_matches(']'));
        }
    }
    if faults.is_empty() {
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        return match refusal.split_once("\n  help: ") {
            Some((what, help)) => format!("{}; {}", words(what), words(help)),
            None => words(refusal),
        };
    }
    faults.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    // Invariant: a line for faults names each of them, and where it is.

    // Invariant: what was drawn for people is read back by its parts.

    #[test]
    fn each_fault_has_its_place_the_text_that_is_wrong_and_what_helps() {
        let drawn = "  × templates.linux: expected a whole number,\n  │ found text\n    \
                     ╭─[/etc/drover/a:b.yaml:32:18]\n 31 │     a: b\n 32 │     instanceCap: many # \
                     x\n    ·                  ──┬─\n    ·                    ╰── here\n    ╰────\n  \
                     help: write a number,\n        such as 4\n\n  × PVE_TOKEN: it is not set\n\n  the \
                     configuration has 2 faults\n";
        let line = |number, before: &str, wrong: &str, after: &str| ExcerptOut {
            number,
            before: before.to_owned(),
            wrong: wrong.to_owned(),
            after: after.to_owned(),
        };
        let first = FaultOut {
            what: "templates.linux: expected a whole number, found text".to_owned(),
            file: Some("/etc/drover/a:b.yaml".to_owned()),
            line: Some(32),
            column: Some(18),
            excerpt: vec![
                line(31, "    a: b", "", ""),
                line(32, "    instanceCap: ", "many", " # x"),
            ],
            help: Some("write a number, such as 4".to_owned()),
        };
        let second =
            FaultOut { what: "PVE_TOKEN: it is not set".to_owned(), ..FaultOut::default() };
        assert_eq!(faults_of(drawn), [first, second]);
        assert_eq!(faults_of("valid and not in force: member b has another"), []);
    }

    #[test]
    fn each_fault_stands_in_the_line_with_its_place() {
        let drawn = "  × agentConfigurations.linux.instanceCap: expected a whole number, found text\n    \
                     ╭─[/etc/drover/drover.yaml:32:18]\n 31 │     a: b\n 32 │     instanceCap: many\n    \
                     ·                  ──┬─\n    ╰────\n  help: write a number\n\n  × unknown key `clouds`\n    \
                     ╭─[/etc/drover/drover.yaml:40:1]\n";
        assert_eq!(
            faults_in_one_line(drawn),
            "agentConfigurations.linux.instanceCap: expected a whole number, found text \
             (/etc/drover/drover.yaml:32:18); unknown key `clouds` (/etc/drover/drover.yaml:40:1)"
        );
        assert_eq!(
            faults_in_one_line("drover.yaml:3:1\n  unknown key"),
            "drover.yaml:3:1 unknown key"
        );
    }
}
