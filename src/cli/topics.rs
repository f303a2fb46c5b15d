//! The book's pages, compiled in; `drover help TOPIC` prints them (`help.rs`).
//!
//! A topic is a page's path below `src/book` without `.md`, such as `ci/gitea`; its last part will do
//! where only one page has it. [`PAGES`] follows the order of `SUMMARY.md`.

pub use crate::pages::{PAGES, Page};

/// Topics that are commands too: for the bare name `drover help` prints the help of the command.
pub(super) const COMMANDS_TOO: [&str; 8] =
    ["audit", "images", "leases", "machines", "members", "top", "usage", "agents"];

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
    /// What `drover help` prints the page for.
    fn asked_by(&self) -> String {
        let end = if COMMANDS_TOO.contains(&self.topic) { ".md" } else { "" };
        format!("{}{end}", self.topic)
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
}
