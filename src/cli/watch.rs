//! `--watch`: the same question again and again, until somebody stops it.
//!
//! A terminal is redrawn in place, and shows the top of what is longer than itself. On a pipe each answer
//! comes after an empty line.

use unicode_width::UnicodeWidthStr;

/// Moves the cursor to the top.
const HOME: &str = "\u{1b}[H";
/// Clears the rest of the line, and of the terminal.
const CLEAR_LINE: &str = "\u{1b}[K";
const CLEAR_BELOW: &str = "\u{1b}[J";

/// The lines and columns of a terminal.
#[derive(Debug, Clone, Copy)]
pub(super) struct Size {
    pub rows: usize,
    pub columns: usize,
}

/// What is written to show a text in place of the one before.
pub(super) fn frame(text: &str, is_terminal: bool, size: Option<Size>, is_first: bool) -> String {
    match (is_terminal, is_first) {
        (true, _) => {
            let start = if is_first { format!("{HOME}{CLEAR_BELOW}") } else { HOME.to_owned() };
            let text = size.map_or_else(|| text.to_owned(), |size| top(text, size));
            let lines: String = text.lines().map(|line| format!("{line}{CLEAR_LINE}\n")).collect();
            start + &lines + CLEAR_BELOW
        }
        (false, true) => text.to_owned(),
        (false, false) => format!("\n{text}"),
    }
}

/// The lines from the top that a terminal shows without scrolling, and how many more there are.
fn top(text: &str, size: Size) -> String {
    // The cursor stands in the last row.
    let room = size.rows.saturating_sub(1).max(1);
    let height = |line: &str| visible(line).max(1).div_ceil(size.columns.max(1));
    if text.lines().map(height).sum::<usize>() <= room {
        return text.to_owned();
    }
    let (mut used, mut shown) = (1, 0);
    for line in text.lines() {
        used += height(line);
        if used > room {
            break;
        }
        shown += 1;
    }
    let more = text.lines().count() - shown;
    let kept: String = text.lines().take(shown).map(|line| format!("{line}\n")).collect();
    let last = format!("{more} more lines than this terminal has");
    kept + &last.chars().take(size.columns).collect::<String>() + "\n"
}

/// The columns that a line takes, without what colours it.
fn visible(line: &str) -> usize {
    let mut parts = line.split('\u{1b}');
    let first = parts.next().map_or(0, UnicodeWidthStr::width);
    first
        + parts.map(|part| part.split_once('m').map_or(0, |(_, text)| text.width())).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    // Invariant: a terminal shows the last answer alone, and a pipe all of them, apart from each other.

    #[test]
    fn a_terminal_is_redrawn_and_a_pipe_goes_on() {
        assert_eq!(frame("a\nb\n", true, None, false), "\u{1b}[Ha\u{1b}[K\nb\u{1b}[K\n\u{1b}[J");
        assert!(frame("a\n", true, None, true).starts_with("\u{1b}[H\u{1b}[J"));
        assert_eq!(frame("a\n", false, None, true) + &frame("a\n", false, None, false), "a\n\na\n");
    }

    // Invariant: nothing scrolls: what is wrong stands first, and stays on the terminal.

    #[test]
    fn a_text_that_is_longer_than_the_terminal_is_shown_from_its_top() {
        let five = "1\n2\n3\n4\n5\n";
        let size = |rows, columns| Size { rows, columns };
        assert_eq!(top(five, size(6, 80)), five);
        assert_eq!(top(five, size(5, 80)), "1\n2\n3\n2 more lines than this terminal has\n");
        let coloured = "\u{1b}[1mabcdef\u{1b}[0m\n2\n3\n";
        assert_eq!(top(coloured, size(4, 6)), coloured);
        assert_eq!(top(coloured, size(4, 5)), "\u{1b}[1mabcdef\u{1b}[0m\n2 mor\n");
        assert_eq!(top(five, size(1, 3)), "5 m\n");
    }
}
