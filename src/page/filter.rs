//! Filters of lists: words that each row must have.
//!
//! `ready pve1` finds rows with both words anywhere, `state:ready` those with the word in one column, and
//! `-state:ready` all others. Letters count the same whether large or small. What `drover top` takes is taken too:
//! `state=ready` and `!pve1`.

/// Words of a filter that count; what stands behind them is ignored.
const TERMS_MAX: usize = 16;

/// What the rows of a list must have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    terms: Vec<Term>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Term {
    is_without: bool,
    column: Option<String>,
    word: String,
}

impl Filter {
    /// Reads a filter; every text is one. A word before a colon is a column where `columns` has it.
    pub fn of(text: &str, columns: &[&str]) -> Self {
        let terms = text.split_whitespace().filter_map(|whole| {
            let (is_without, rest) = match whole.strip_prefix(['-', '!']) {
                Some(rest) => (true, rest),
                None => (false, whole),
            };
            let (column, word) = match rest.split_once([':', '=']) {
                Some((column, word)) if columns.contains(&column) => {
                    (Some(column.to_owned()), word)
                }
                Some(_) | None => (None, rest),
            };
            let word = word.to_lowercase();
            (!word.is_empty()).then_some(Term { is_without, column, word })
        });
        Self { terms: terms.take(TERMS_MAX).collect() }
    }

    /// Whether a row is shown: its columns by name.
    pub fn has(&self, row: &[(&str, &str)]) -> bool {
        if self.terms.is_empty() {
            return true;
        }
        let row: Vec<(&str, String)> =
            row.iter().map(|(column, text)| (*column, text.to_lowercase())).collect();
        self.terms.iter().all(|term| {
            let found = row
                .iter()
                .filter(|(column, _)| term.column.as_ref().is_none_or(|wanted| wanted == column))
                .any(|(_, text)| text.contains(&term.word));
            found != term.is_without
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Invariant: a row is shown where all that is asked for holds.

    #[test]
    fn words_are_found_anywhere_or_in_their_column_or_must_be_absent() {
        let row = [("state", "Ready"), ("node", "pve1"), ("detail", "waits: a lease")];
        for (text, is_shown) in [
            ("", true),
            ("READY", true),
            ("ready pve1", true),
            ("ready pve2", false),
            ("state:ready", true),
            ("node:ready", false),
            ("-state:ready", false),
            ("!state=ready", false),
            ("state=ready !pve2", true),
            ("-node:pve2 lease", true),
            ("waits:", true),
            ("state:", true),
        ] {
            let filter = Filter::of(text, &["state", "node"]);
            assert_eq!(filter.has(&row), is_shown, "{text}");
        }
    }
}
