//! The book's pages, compiled in; `drover help TOPIC` prints them (`help.rs`).
//!
//! A topic is a page's path below `src/book` without `.md`, such as `ci/gitea`; its last part will do
//! where only one page has it. [`PAGES`] follows the order of `SUMMARY.md`.

/// A page of the book.
#[derive(Debug, Clone, Copy)]
pub struct Page {
    /// Its path below `src/book`, without `.md`.
    pub topic: &'static str,
    /// The page in Markdown.
    pub text: &'static str,
}

macro_rules! pages {
    ($($topic:literal),* $(,)?) => {
        &[$(Page { topic: $topic, text: include_str!(concat!("../book/", $topic, ".md")) }),*]
    };
}

/// Every page, in the order of the book.
pub static PAGES: &[Page] = pages![
    "introduction",
    "quickstart",
    "install",
    "concepts",
    "configuration",
    "reference/configuration",
    "git",
    "reference/cli",
    "images",
    "containers",
    "ci/index",
    "ci/gitea",
    "ci/forgejo",
    "ci/github",
    "ci/gitlab",
    "ci/jenkins",
    "ci/woodpecker",
    "ci/others",
    "ci/from-the-jenkins-plugin",
    "ci/from-garm-or-scripts",
    "leases",
    "machines",
    "operations",
    "members",
    "audit",
    "state",
    "troubleshooting",
    "metrics",
    "rights",
    "security",
    "simulator",
    "reference/simulator",
    "architecture",
    "agents",
    "minds",
    "safety",
    "proxmox",
    "contributing",
];

/// Topics that are commands too: for the bare name `drover help` prints the help of the command.
pub(super) const COMMANDS_TOO: [&str; 6] =
    ["audit", "images", "leases", "machines", "members", "agents"];

/// Other words for pages, each with the topic.
const ALIASES: [(&str, &str); 8] = [
    ("upgrade", "install"),
    ("upgrades", "install"),
    ("update", "install"),
    ("downgrade", "install"),
    ("backup", "install"),
    ("backups", "install"),
    ("restore", "install"),
    ("errors", "troubleshooting"),
];

impl Page {
    /// The page as people read it: without the comments of those who write it.
    pub(super) fn shown(&self) -> String {
        without_comments(self.text)
    }

    /// What `drover help` prints the page for.
    fn asked_by(&self) -> String {
        let end = if COMMANDS_TOO.contains(&self.topic) { ".md" } else { "" };
        format!("{}{end}", self.topic)
    }

    pub fn title(&self) -> &'static str {
        self.text.lines().find_map(|line| line.strip_prefix("# ")).unwrap_or(self.topic)
    }

    /// Whether a word names it: its whole name, with or without `.md`; the folder of an index; or
    /// the last part of its name.
    fn is_called(&self, word: &str) -> bool {
        let word = word.strip_suffix(".md").unwrap_or(word);
        let of_folder = self.topic.strip_suffix("/index");
        self.topic == word || of_folder == Some(word)
    }

    pub(super) fn last_part(&self) -> &'static str {
        self.topic.rsplit('/').next().unwrap_or(self.topic)
    }
}

/// The page of a topic.
pub fn page(word: &str) -> Option<&'static Page> {
    let whole = PAGES.iter().find(|page| page.is_called(word));
    let mut parts = PAGES.iter().filter(|page| page.last_part() == word);
    let other = || {
        let (_, topic) = ALIASES.iter().find(|(alias, _)| *alias == word)?;
        PAGES.iter().find(|page| page.topic == *topic)
    };
    whole.or_else(|| parts.next().filter(|_| parts.next().is_none())).or_else(other)
}

/// A text of Markdown without its HTML comments; a line that was a comment alone goes with it, and so
/// does the empty line behind it where one stands before it.
fn without_comments(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once("<!--") {
        let Some((_, after)) = behind.split_once("-->") else { break };
        shown.push_str(before);
        let is_line = before.is_empty() || before.ends_with('\n');
        rest = match after.strip_prefix('\n').filter(|_| is_line) {
            Some(next) if shown.ends_with("\n\n") => next.strip_prefix('\n').unwrap_or(next),
            Some(next) => next,
            None => after,
        };
    }
    shown.push_str(rest);
    shown
}

/// All topics with their titles, for the end of `drover help`.
pub(super) fn list() -> String {
    let width = PAGES.iter().map(|page| page.asked_by().len()).max().unwrap_or(0);
    let line = |page: &Page| format!("  {:<width$}  {}\n", page.asked_by(), page.title());
    let lines: String = PAGES.iter().map(line).collect();
    format!("Topics of the book, for `drover help TOPIC`:\n{}", lines.trim_end())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    // Invariant: each page is found by its name.

    #[test]
    fn every_page_is_found_by_its_name_and_by_that_of_its_file() {
        for known in PAGES {
            assert_eq!(page(known.topic).unwrap().topic, known.topic);
            assert_eq!(page(&format!("{}.md", known.topic)).unwrap().topic, known.topic);
            assert!(known.text.starts_with("# "), "{} has no heading", known.topic);
            assert!(list().contains(known.title()), "{}", known.topic);
        }
        assert!(page("nothing").is_none());
    }

    #[test]
    fn other_words_lead_to_pages_that_are_there_and_hide_no_topic() {
        for (alias, topic) in ALIASES {
            assert_eq!(page(alias).map(|page| page.topic), Some(topic), "{alias}");
        }
        assert!(page("upgrade").unwrap().text.contains("\n## Upgrade\n"));
    }

    // Invariant: nobody reads what was written for those who write the book.

    #[test]
    fn comments_are_left_out_with_their_lines() {
        let text =
            "# A\n\n<!-- Generated:\n`x`. -->\n\nB <!-- of C -->D\n<!-- end -->\nE <!-- open\n";
        assert_eq!(without_comments(text), "# A\n\nB D\nE <!-- open\n");
        for known in PAGES {
            assert!(!known.shown().contains("<!--"), "{}", known.topic);
            assert!(!known.shown().contains("\n\n\n"), "{}", known.topic);
        }
    }
}
