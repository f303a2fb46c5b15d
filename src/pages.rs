//! The book's pages, compiled in: `drover help` prints them, and the operator's page shows them.

use std::sync::Arc;

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
        &[$(Page { topic: $topic, text: include_str!(concat!("book/", $topic, ".md")) }),*]
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
    "page",
    "login",
    "operations",
    "top",
    "members",
    "audit",
    "usage",
    "history",
    "forecast",
    "state",
    "troubleshooting",
    "metrics",
    "notifications",
    "traces",
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

/// The pages and drawings as the operator's page shows them: each with its path without `.md`.
pub(crate) fn book() -> Arc<[(&'static str, String)]> {
    let drawing = ("demo.svg", include_str!("book/demo.svg").to_owned());
    PAGES.iter().map(|page| (page.topic, page.shown())).chain([drawing]).collect()
}

impl Page {
    /// The page as people read it: without the comments of those who write it.
    pub(crate) fn shown(&self) -> String {
        without_comments(self.text)
    }

    pub fn title(&self) -> &'static str {
        self.text.lines().find_map(|line| line.strip_prefix("# ")).unwrap_or(self.topic)
    }
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

#[cfg(test)]
mod tests {
    use super::*;

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
