//! Texts of others, made safe to show: bounded, on one line, without control characters.

/// The last character of a text that was cut.
const CUT: char = '…';

/// The text on one line, of at most `limit` characters. Line ends become spaces; other control
/// characters, and characters that turn the direction of writing, become the replacement character.
pub(super) fn clean(text: &str, limit: usize) -> String {
    let mut clean: String = text
        .trim()
        .chars()
        .map(|c| match c {
            '\n' | '\r' | '\t' => ' ',
            c if is_unsafe(c) => char::REPLACEMENT_CHARACTER,
            c => c,
        })
        .take(limit.saturating_add(1))
        .collect();
    if clean.chars().count() > limit {
        clean = clean.chars().take(limit.saturating_sub(1)).collect();
        clean.push(CUT);
    }
    clean
}

/// Whether a character has an effect on what shows it beside being drawn. The model has the same rule, and this package
/// knows nothing of drover.
pub(super) fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}
