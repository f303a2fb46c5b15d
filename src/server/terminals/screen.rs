//! The screen of a terminal: what a guest sends, as lines of text with colours. Pure.
//!
//! The service keeps the screen, so that a browser can go and come back, and so that a slow one gets the last state
//! of a screen and not each one before. Everything is bounded by the size of the screen and by [`ABOVE`].

use std::collections::BTreeMap;
use std::num::NonZeroU16;

use drover_api::{TerminalPiece, TerminalScreenOut};
use drover_ssh::TerminalSize;
use vt100::{Callbacks, Cell, Color, Parser};

use super::charset::Charset;

/// Lines that are kept after they left the screen.
pub(crate) const ABOVE: usize = 500;
/// Characters of a title that are kept.
const TITLE_MAX: usize = 200;
/// Bytes of answers to questions of programs in one piece of output.
const ANSWER_BYTES: usize = 256;

/// A line of the screen.
type Line = Vec<TerminalPiece>;

/// The screen as the emulator has it.
pub(crate) struct Screen {
    parser: Parser<Said>,
    charset: Charset,
    /// Counts sizes and resets: a reader must see all of what is there after one.
    sizes: u64,
    /// The lines above the screen that are kept, when they were counted last.
    kept: usize,
}

/// What programs say to the terminal itself.
#[derive(Debug, Default)]
struct Said {
    title: String,
    answers: Vec<u8>,
    /// Lines that are kept no longer.
    forgotten: u64,
}

impl Callbacks for Said {
    fn set_window_title(&mut self, _: &mut vt100::Screen, title: &[u8]) {
        let title = String::from_utf8_lossy(title);
        self.title = title.chars().filter(|one| !one.is_control()).take(TITLE_MAX).collect();
    }

    fn unhandled_csi(
        &mut self,
        screen: &mut vt100::Screen,
        first: Option<u8>,
        _second: Option<u8>,
        parameters: &[&[u16]],
        last: char,
    ) {
        let asked = parameters.first().and_then(|one| one.first()).copied().unwrap_or(0);
        // Programs wait for some of these (ECMA-48, 8.3.24 and 8.3.35).
        let answer = match (first, last, asked) {
            (None, 'n', 5) => "\u{1b}[0n".to_owned(),
            (None, 'n', 6) => {
                let (row, column) = screen.cursor_position();
                format!("\u{1b}[{};{}R", row + 1, column + 1)
            }
            (None, 'c', 0) => "\u{1b}[?6c".to_owned(),
            (Some(b'>'), 'c', 0) => "\u{1b}[>0;0;0c".to_owned(),
            _ => return,
        };
        if self.answers.len() + answer.len() <= ANSWER_BYTES {
            self.answers.extend_from_slice(answer.as_bytes());
        }
    }

    fn on_scroll(&mut self, _: vt100::capture::RowContents<'_>, is_other_screen: bool) {
        self.forgotten += u64::from(!is_other_screen);
    }
}

/// What a reader of a screen has.
#[derive(Debug, Clone, Default)]
pub(crate) struct Known {
    sizes: Option<u64>,
    lines: Vec<Line>,
    /// Lines that left the screen until then.
    left: u64,
}

impl Screen {
    pub(crate) fn new(size: TerminalSize) -> Self {
        let (rows, columns) = sides(size);
        let parser = Parser::new_with_callbacks(rows, columns, ABOVE, Said::default());
        Self { parser, charset: Charset::default(), sizes: 0, kept: 0 }
    }

    /// Takes what a guest sends; gives what the terminal answers by itself.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut exchanged = Vec::with_capacity(bytes.len());
        self.charset.exchanged(bytes, &mut exchanged);
        // A reset, `ESC c` wherever it stands, forgets all lines above and calls nobody.
        for piece in exchanged.split_inclusive(|byte| *byte == b'c') {
            self.parser.process(piece);
            let before = self.kept;
            self.count_kept();
            self.sizes += u64::from(self.kept < before);
        }
        std::mem::take(&mut self.parser.callbacks_mut().answers)
    }

    pub(crate) fn resize(&mut self, size: TerminalSize) {
        let (rows, columns) = sides(size);
        self.parser.set_size(rows, columns);
        self.count_kept();
        self.sizes += 1;
    }

    /// Counts the lines above the screen. An editor's screen has none, and shows none of the other's.
    fn count_kept(&mut self) {
        let screen = self.parser.screen();
        if !screen.alternate_screen() {
            self.kept = screen.scrollback_len();
        }
    }

    /// What a reader who has `known` does not have yet, and what it has then.
    pub(crate) fn since(&mut self, known: &Known) -> (TerminalScreenOut, Known) {
        let whole = known.sizes != Some(self.sizes);
        let lines = self.lines();
        let differs = |number: usize, line: &Line| whole || known.lines.get(number) != Some(line);
        let changed: BTreeMap<u16, Line> = (0u16..)
            .zip(&lines)
            .filter(|(number, line)| differs(usize::from(*number), line))
            .map(|(number, line)| (number, line.clone()))
            .collect();
        let (above, left) = self.above(if whole { 0 } else { known.left });
        let (screen, said) = (self.parser.screen(), self.parser.callbacks());
        let (rows, columns) = screen.size();
        let out = TerminalScreenOut {
            columns: columns.get(),
            rows: rows.get(),
            whole,
            cursor: (!screen.hide_cursor()).then(|| screen.cursor_position()),
            title: said.title.clone(),
            full_screen: screen.alternate_screen(),
            application_keys: screen.application_cursor(),
            bracketed_paste: screen.bracketed_paste(),
            above,
            lines: changed,
        };
        (out, Known { sizes: Some(self.sizes), lines, left })
    }

    fn lines(&self) -> Vec<Line> {
        let (rows, _) = self.parser.screen().size();
        (0..rows.get()).map(|row| self.line(row)).collect()
    }

    /// The lines that left the screen after so many, and how many did by now. An editor's screen keeps none.
    fn above(&mut self, known: u64) -> (Vec<Line>, u64) {
        let screen = self.parser.screen();
        if screen.alternate_screen() {
            return (Vec::new(), known);
        }
        let kept = screen.scrollback_len();
        let left = self.parser.callbacks().forgotten + u64::try_from(kept).unwrap_or(u64::MAX);
        let new = usize::try_from(left.saturating_sub(known)).unwrap_or(usize::MAX).min(kept);
        let mut lines = Vec::with_capacity(new);
        for back in (1..=new).rev() {
            self.parser.screen_mut().set_scrollback(back);
            lines.push(self.line(0));
        }
        self.parser.screen_mut().set_scrollback(0);
        (lines, left)
    }

    /// A line as it is in view, without blanks at its end.
    fn line(&self, row: u16) -> Line {
        let screen = self.parser.screen();
        let (_, columns) = screen.size();
        let mut line: Line = Vec::new();
        for column in 0..columns.get() {
            let Some(cell) = screen.cell(row, column) else { continue };
            if cell.is_wide_continuation() {
                continue;
            }
            let text = if cell.has_contents() { cell.contents() } else { " " };
            let style = style(cell);
            match line.last_mut() {
                Some(TerminalPiece(before, same)) if *same == style && !cell.is_wide() => {
                    before.push_str(text);
                }
                _ => line.push(TerminalPiece(text.to_owned(), style)),
            }
        }
        while let Some(TerminalPiece(text, style)) = line.last_mut()
            && style.is_empty()
        {
            text.truncate(text.trim_end_matches(' ').len());
            if !text.is_empty() {
                break;
            }
            line.pop();
        }
        line
    }
}

fn sides(size: TerminalSize) -> (NonZeroU16, NonZeroU16) {
    let side = |side: u16| NonZeroU16::new(side).unwrap_or(NonZeroU16::MIN);
    (side(size.rows), side(size.columns))
}

fn style(cell: &Cell) -> String {
    let mut words = Vec::new();
    let mut flag = |is_on: bool, word: &str| {
        if is_on {
            words.push(word.to_owned());
        }
    };
    flag(cell.bold(), "b");
    flag(cell.dim(), "d");
    flag(cell.italic(), "i");
    flag(cell.underline(), "u");
    flag(cell.inverse(), "r");
    flag(cell.is_wide(), "w");
    for (letter, colour) in [('f', cell.fgcolor()), ('g', cell.bgcolor())] {
        match colour {
            Color::Default => {}
            Color::Idx(number) => words.push(format!("{letter}{number}")),
            Color::Rgb(red, green, blue) => {
                words.push(format!("{letter}#{red:02x}{green:02x}{blue:02x}"));
            }
        }
    }
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn screen(columns: u16, rows: u16) -> Screen {
        Screen::new(TerminalSize { columns, rows })
    }

    fn piece(text: &str, style: &str) -> TerminalPiece {
        TerminalPiece(text.to_owned(), style.to_owned())
    }

    fn text(lines: &[Line]) -> Vec<String> {
        lines.iter().map(|line| line.iter().map(|piece| &*piece.0).collect()).collect()
    }

    /// A reader as the page is one.
    #[derive(Default)]
    struct Reader {
        known: Known,
        above: Vec<String>,
        lines: Vec<String>,
    }

    impl Reader {
        fn reads(&mut self, screen: &mut Screen) -> TerminalScreenOut {
            let (out, known) = screen.since(&self.known);
            self.known = known;
            if out.whole {
                self.above.clear();
                self.lines = vec![String::new(); usize::from(out.rows)];
            }
            self.above.extend(text(&out.above));
            for (number, line) in &out.lines {
                self.lines[usize::from(*number)] = text(std::slice::from_ref(line)).remove(0);
            }
            out
        }
    }

    // Invariant: a reader has what is on the screen, however the screen came to it.

    #[test]
    fn colours_wide_letters_and_the_cursor_are_as_the_guest_wrote_them() {
        let mut screen = screen(40, 5);
        screen.take(
            "a\u{1b}[1;31mred\u{1b}[0;48;5;120mg\u{1b}[38;2;1;2;255;7mx\u{1b}[m 漢é".as_bytes(),
        );
        let (out, _) = screen.since(&Known::default());
        let wanted = [
            piece("a", ""),
            piece("red", "b f1"),
            piece("g", "g120"),
            piece("x", "r f#0102ff g120"),
            piece(" ", ""),
            piece("漢", "w"),
            piece("é", ""),
        ];
        assert_eq!(out.lines[&0], wanted);
        assert_eq!(out.cursor, Some((0, 10)));
        screen.take("\u{1b}[?25l\u{1b}]2;vim\u{7}".as_bytes());
        let (out, _) = screen.since(&Known::default());
        assert_eq!((out.cursor, &*out.title), (None, "vim"));
    }

    #[test]
    fn only_what_changed_is_sent_and_all_of_it_after_another_size() {
        let mut screen = screen(40, 5);
        let mut reader = Reader::default();
        assert!(reader.reads(&mut screen).whole);
        screen.take(b"one\r\ntwo");
        let out = reader.reads(&mut screen);
        assert_eq!((out.whole, out.lines.len()), (false, 2));
        assert_eq!(reader.reads(&mut screen).lines.len(), 0);
        screen.resize(TerminalSize { columns: 30, rows: 6 });
        let out = reader.reads(&mut screen);
        assert_eq!((out.whole, out.columns, out.rows, out.lines.len()), (true, 30, 6, 6));
        assert_eq!(reader.lines[..2], ["one", "two"]);
    }

    #[test]
    fn lines_that_left_the_screen_come_once_and_the_oldest_are_forgotten() {
        let mut screen = screen(40, 5);
        let mut reader = Reader::default();
        for number in 0..20 {
            screen.take(format!("line {number}\r\n").as_bytes());
            if number % 7 == 0 {
                reader.reads(&mut screen);
            }
        }
        reader.reads(&mut screen);
        let wanted: Vec<String> = (0..16).map(|number| format!("line {number}")).collect();
        assert_eq!(reader.above, wanted);
        for number in 20..2000 {
            screen.take(format!("line {number}\r\n").as_bytes());
        }
        let mut late = Reader::default();
        late.reads(&mut screen);
        assert_eq!((late.above.len(), &*late.above[0]), (ABOVE, "line 1496"));
        assert_eq!(late.lines[0], "line 1996");
    }

    #[test]
    fn after_a_reset_the_lines_that_left_the_screen_since_then_come_and_no_others() {
        for reset in ["\u{1b}c", "\u{1b}[?1049h\u{1b}c", "\u{1b}]0;title\u{1b}c"] {
            let mut screen = screen(40, 5);
            let mut reader = Reader::default();
            let lines = |from: u16| -> String {
                (from..from + 20).map(|number| format!("line {number}\r\n")).collect()
            };
            screen.take(lines(0).as_bytes());
            reader.reads(&mut screen);
            screen.take(format!("{reset}{}", lines(100)).as_bytes());
            reader.reads(&mut screen);
            let wanted: Vec<String> = (100..116).map(|number| format!("line {number}")).collect();
            assert_eq!(reader.above, wanted, "{reset:?}");
        }
    }

    #[test]
    fn an_editor_has_a_screen_of_its_own_and_the_one_before_comes_back() {
        let mut screen = screen(40, 5);
        let mut reader = Reader::default();
        screen.take(b"$ vim");
        screen.take(b"\x1b[?1049h\x1b[?1h\x1b[?2004h\x1b[H~");
        let out = reader.reads(&mut screen);
        assert!(out.full_screen && out.application_keys && out.bracketed_paste);
        assert_eq!(reader.lines[0], "~");
        screen.take(b"\x1b[?1049l\x1b[?1l");
        let out = reader.reads(&mut screen);
        assert!(!out.full_screen && !out.application_keys);
        assert_eq!(reader.lines[0], "$ vim");
    }

    #[test]
    fn a_program_that_asks_where_the_cursor_is_gets_an_answer_and_a_flood_of_questions_few() {
        let mut screen = screen(40, 5);
        assert_eq!(screen.take(b"ab\x1b[6n"), b"\x1b[1;3R");
        assert_eq!(screen.take(b"\x1b[c"), b"\x1b[?6c");
        assert!(screen.take(&b"\x1b[6n".repeat(10_000)).len() <= ANSWER_BYTES);
    }

    // Invariant: no guest breaks the screen, whatever it sends, and no reader is out of step with it.

    proptest! {
        #[test]
        fn whatever_a_guest_sends_a_reader_of_changes_has_what_a_new_reader_has(
            pieces in prop::collection::vec(
                prop_oneof![
                    prop::collection::vec(any::<u8>(), 0..40),
                    "\\x1b\\[[0-9;?]{0,8}[@-~]".prop_map(String::into_bytes),
                    "\\x1bc([a-z]\r\n){0,12}".prop_map(String::into_bytes),
                    "([a-z]\r\n){0,12}".prop_map(String::into_bytes),
                    "[a-z漢é\\r\\n\\t\\x1b\\x08]{0,30}".prop_map(String::into_bytes),
                ],
                0..60,
            ),
            sizes in prop::collection::vec((20u16..300, 5u16..120), 0..4),
        ) {
            let mut screen = screen(20, 5);
            let mut reader = Reader::default();
            let mut sizes = sizes.into_iter();
            for (number, piece) in pieces.into_iter().enumerate() {
                screen.take(&piece);
                if number % 3 == 0 {
                    reader.reads(&mut screen);
                }
                if number % 20 == 19 && let Some((columns, rows)) = sizes.next() {
                    screen.resize(TerminalSize { columns, rows });
                }
            }
            reader.reads(&mut screen);
            let mut new = Reader::default();
            new.reads(&mut screen);
            prop_assert_eq!(&reader.lines, &new.lines);
            // A reader may have lines that are forgotten by now.
            let known = reader.above.len().saturating_sub(new.above.len());
            prop_assert_eq!(&reader.above[known..], &new.above[..]);
        }
    }
}
