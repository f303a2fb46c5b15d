//! Headings of the book's troubleshooting page, by what drover says.
//!
//! A quote of that page (`> …`, or code in the first column of a table) stands for a text; `…` stands for
//! what varies in it. So the page alone says which heading helps, and nothing else must be kept in step.

/// The page's name in the book.
pub const TROUBLESHOOTING: &str = "troubleshooting";
/// Fewer letters than this say nothing.
const LEAST: usize = 8;

/// A heading that says what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heading {
    pub title: String,
    /// The name by which links lead to it.
    pub anchor: String,
}

/// The headings of the page, each with what it quotes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Remedies {
    quotes: Vec<Quote>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Quote {
    heading: Heading,
    /// How deep the heading is: a deeper one says more.
    depth: usize,
    /// What the text must have, in this order.
    parts: Vec<String>,
}

impl Remedies {
    /// Reads the page's Markdown.
    pub fn of(markdown: &str) -> Self {
        let mut all = Self::default();
        let mut heading: Option<(Heading, usize)> = None;
        let mut quote = String::new();
        for line in markdown.lines().chain([""]) {
            match line.strip_prefix("> ") {
                Some(more) => {
                    quote.push_str(more);
                    quote.push(' ');
                    continue;
                }
                None => all.add(heading.as_ref(), &std::mem::take(&mut quote)),
            }
            if let Some((level, title)) = line.split_once(' ')
                && level.len() > 1
                && level.bytes().all(|one| one == b'#')
            {
                let title = plain(title);
                let anchor = anchor(&title);
                heading = Some((Heading { title, anchor }, level.len()));
            } else if let Some(row) = line.strip_prefix("| ") {
                let cell = row.split(" | ").next().unwrap_or_default();
                let codes = cell.split('`').skip(1).step_by(2);
                codes.for_each(|code| all.add(heading.as_ref(), code));
            }
        }
        all
    }

    fn add(&mut self, heading: Option<&(Heading, usize)>, text: &str) {
        let Some((heading, depth)) = heading else { return };
        let parts = text.split('…').map(|part| plain(part).trim().to_owned());
        let parts: Vec<String> = parts.filter(|part| part.len() > 3).collect();
        if parts.iter().map(String::len).sum::<usize>() >= LEAST {
            self.quotes.push(Quote { heading: heading.clone(), depth: *depth, parts });
        }
    }

    /// The heading for a text: the deepest one that quotes it, and of those the one that quotes most of it.
    pub fn find(&self, text: &str) -> Option<&Heading> {
        let text = plain(text);
        let found = self.quotes.iter().filter(|quote| quote.is_in(&text));
        let best = found
            .max_by_key(|quote| (quote.depth, quote.parts.iter().map(String::len).sum::<usize>()));
        best.map(|quote| &quote.heading)
    }

    /// Every heading with a quote.
    pub fn headings(&self) -> impl Iterator<Item = &Heading> {
        self.quotes.iter().map(|quote| &quote.heading)
    }
}

impl Quote {
    fn is_in(&self, text: &str) -> bool {
        let mut rest = text;
        self.parts.iter().all(|part| match rest.split_once(part.as_str()) {
            Some((_, behind)) => {
                rest = behind;
                true
            }
            None => false,
        })
    }
}

/// Text without backticks, and with one blank where several are.
fn plain(text: &str) -> String {
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    words.replace('`', "")
}

/// The name of a heading, as links of the book have it.
pub fn anchor(title: &str) -> String {
    let kept = title.chars().filter(|one| one.is_alphanumeric() || [' ', '-', '_'].contains(one));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# Troubleshooting\n\n## A template fails\n\n> its agents failed … and so on\n\n\
                        ### A missing `guest`\n\n> cloud … has no guest: check\n> `templateVmId`\n\n\
                        ## Nodes\n\n| it says | do |\n|---|---|\n| `it is drained` | undo `that thing` |\n";

    fn found(text: &str) -> Option<String> {
        Remedies::of(PAGE).find(text).map(|heading| heading.anchor.clone())
    }

    // Invariant: what the page quotes leads to its heading, the one that says most, and nothing else does.

    #[test]
    fn a_text_leads_to_the_deepest_heading_that_quotes_it() {
        let both = "its agents failed: cloud `lab` has no guest: check `templateVmId`, and so on";
        assert_eq!(found(both).as_deref(), Some("a-missing-guest"));
        assert_eq!(found("its agents failed twice and so on").as_deref(), Some("a-template-fails"));
        assert_eq!(found("and so on, its agents failed"), None);
        assert_eq!(found("node pve1: it is drained").as_deref(), Some("nodes"));
        assert_eq!(found("that thing"), None);
        assert_eq!(found(""), None);
    }
}
