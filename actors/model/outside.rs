//! Words from outside, such as names of jobs and labels, in texts for people.
//!
//! Texts have commands, keys and names between backticks, and the operator's page makes links and buttons of these. So
//! what somebody outside wrote must not look like one of drover's own.

/// The most characters that are shown of one.
const SHOWN_MAX: usize = 120;

/// A word from outside as texts have it: between backticks where it is one word, else between quotes.
pub fn outside(text: &str) -> String {
    let shown = plain(text);
    // No command has one word alone.
    let is_word = !shown.is_empty() && !shown.contains(char::is_whitespace);
    if is_word { format!("`{shown}`") } else { format!("\"{shown}\"") }
}

/// An expression of labels: between its words there are operators, so it is no command.
pub fn outside_expression(text: &str) -> String {
    format!("`{}`", plain(text))
}

/// Several of them.
pub fn outsides<'a>(all: impl IntoIterator<Item = &'a str>) -> String {
    all.into_iter().map(outside).collect::<Vec<_>>().join(", ")
}

/// Whether a character steers the text around it: a terminal obeys it, or it begins another line, or turns the
/// direction of writing (Unicode Standard Annex 9).
pub fn steers(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Foreign text on one line, with a question mark in the place of each character that steers.
pub fn clean(text: &str) -> String {
    text.chars().map(|letter| if steers(letter) { '?' } else { letter }).collect()
}

/// Without backticks, and without characters that steer; what is long is cut.
fn plain(text: &str) -> String {
    let mut letters = text.chars().filter(|letter| !steers(*letter));
    let shown: String = letters.by_ref().take(SHOWN_MAX).collect();
    let shown = shown.replace(['`', '"'], "'");
    if letters.next().is_some() { shown + "…" } else { shown }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Invariant: nobody outside writes a command into a text of drover.

    #[test]
    fn a_name_from_outside_is_no_command() {
        for (name, shown) in [
            ("linux", "`linux`"),
            ("drover reload", "\"drover reload\""),
            ("` `drover reload`", "\"' 'drover reload'\""),
            ("a`b", "`a'b`"),
            ("", "\"\""),
            ("x\u{202e}y\u{7}\n", "`xy`"),
        ] {
            assert_eq!(outside(name), shown);
        }
        assert_eq!(outsides(["drover", "reload"]), "`drover`, `reload`");
        assert_eq!(outside(&"x".repeat(5000)).chars().count(), SHOWN_MAX + 3);
    }
}
