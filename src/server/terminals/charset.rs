//! The line-drawing letters of a DEC terminal (VT100 User Guide, table 3-9), as Unicode. Pure.
//!
//! Programs such as `dialog` draw boxes by `ESC ( 0`, letters, and `ESC ( B`; others by Shift Out and Shift In. The
//! emulator knows neither, so that what comes after either is exchanged before it.

/// The letters from 0x60 to 0x7e.
const LINES: [char; 31] = [
    '◆', '▒', '␉', '␌', '␍', '␊', '°', '±', '␤', '␋', '┘', '┐', '┌', '└', '┼', '⎺', '⎻', '─', '⎼',
    '⎽', '├', '┤', '┴', '┬', '│', '≤', '≥', 'π', '≠', '£', '·',
];

const ESCAPE: u8 = 0x1b;

/// Which of the two sets draw lines, and what a sequence has so far.
#[derive(Debug, Default)]
pub(crate) struct Charset {
    /// Of the set that is used, and of the one after Shift Out.
    draws: [bool; 2],
    is_shifted: bool,
    at: At,
}

/// Where in what a guest sends.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum At {
    #[default]
    Text,
    /// Behind an escape.
    Escape,
    /// Behind `ESC (` or `ESC )`: the next byte chooses the letters of this set.
    Choice(usize),
    /// Behind `ESC [`, until a letter.
    Control,
    /// In a text for the terminal, such as a title, until BEL or `ESC \`.
    Message,
    /// In such a text, behind an escape.
    End,
}

impl Charset {
    /// Exchanges the letters that draw lines.
    pub(crate) fn exchanged(&mut self, bytes: &[u8], into: &mut Vec<u8>) {
        for byte in bytes {
            let was = self.at;
            self.at = self.next(*byte);
            let draws = self.draws[usize::from(self.is_shifted)];
            let line = byte.checked_sub(0x60).and_then(|place| LINES.get(usize::from(place)));
            match line {
                Some(line) if draws && was == At::Text => {
                    into.extend_from_slice(line.encode_utf8(&mut [0; 4]).as_bytes());
                }
                Some(_) | None => into.push(*byte),
            }
        }
    }

    fn next(&mut self, byte: u8) -> At {
        match (self.at, byte) {
            (At::Text | At::Control | At::Escape, ESCAPE) => At::Escape,
            (At::Text, 0x0e | 0x0f) => {
                self.is_shifted = byte == 0x0e;
                At::Text
            }
            (At::Text, _) => At::Text,
            (At::Escape, b'(') => At::Choice(0),
            (At::Escape, b')') => At::Choice(1),
            (At::Escape, b'[') => At::Control,
            (At::Escape, b']' | b'P' | b'^' | b'_' | b'X') => At::Message,
            (At::Escape, b'c') => {
                *self = Self::default();
                At::Text
            }
            // An intermediate byte; the sequence goes on.
            (At::Escape, 0x20..=0x2f) => At::Escape,
            (At::Escape, _) => At::Text,
            (At::Choice(set), _) => {
                self.draws[set] = byte == b'0';
                At::Text
            }
            (At::Control, 0x40..=0x7e) => At::Text,
            (At::Control, _) => At::Control,
            (At::Message, 0x07) => At::Text,
            (At::Message, ESCAPE) => At::End,
            (At::Message, _) => At::Message,
            (At::End, b'\\') => At::Text,
            (At::End, _) => At::Message,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exchanged(pieces: &[&str]) -> String {
        let mut charset = Charset::default();
        let mut into = Vec::new();
        for piece in pieces {
            charset.exchanged(piece.as_bytes(), &mut into);
        }
        String::from_utf8_lossy(&into).into_owned()
    }

    // Invariant: letters draw lines between the two sequences, and nothing within a sequence is changed.

    #[test]
    fn boxes_are_drawn_in_either_way_and_sequences_stay_as_they_are() {
        assert_eq!(exchanged(&["lqk\u{1b}(0lqk\u{1b}(Blqk"]), "lqk\u{1b}(0┌─┐\u{1b}(Blqk");
        assert_eq!(exchanged(&["\u{1b})0a\u{e}q\u{f}q"]), "\u{1b})0a\u{e}─\u{f}q");
        let coloured = "\u{1b}(0\u{1b}[38;5;9mx\u{1b}]0;title\u{7}x";
        assert_eq!(exchanged(&[coloured]), "\u{1b}(0\u{1b}[38;5;9m│\u{1b}]0;title\u{7}│");
        // Cut anywhere.
        assert_eq!(exchanged(&["\u{1b}", "(", "0q", "\u{1b}[", "1m", "q"]), "\u{1b}(0─\u{1b}[1m─");
        assert_eq!(exchanged(&["\u{1b}(0\u{1b}cq"]), "\u{1b}(0\u{1b}cq", "a reset ends it");
        assert_eq!(exchanged(&["é\u{1b}(0é"]), "é\u{1b}(0é");
    }
}
