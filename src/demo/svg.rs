//! Rows of a terminal as SVG: blocks and frames are shapes, so that they meet; texts are texts. Pure.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use ratatui::buffer::Cell;
use ratatui::style::{Color, Modifier};

/// The size of a cell in pixels, and the space around the screen.
pub const CELL_WIDTH: u32 = 8;
pub const CELL_HEIGHT: u32 = 17;
pub const MARGIN: u32 = 14;

const BASELINE: u32 = 13;
const WINDOW: &str = "#14171c";
const TEXT: &str = "#d4d8de";

/// The number of a colour of the 256 of terminals; the screen uses no others.
pub fn indexed(color: Color) -> Option<u8> {
    if let Color::Indexed(number) = color { Some(number) } else { None }
}

/// The rules of classes: `cN` fills with colour N of 256, `b` is bold, `w` is the window.
pub fn style(colors: BTreeSet<u8>) -> String {
    let mut rules = format!(
        "text{{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,\"DejaVu Sans Mono\",\
         \"Liberation Mono\",monospace;fill:{TEXT};white-space:pre}}\n\
         .b{{font-weight:bold}}.w{{fill:{WINDOW}}}.l{{fill:none;stroke-width:1}}\n"
    );
    for color in colors {
        let rgb = rgb(color);
        let _ = writeln!(rules, ".c{color}{{fill:{rgb}}}.k{color}{{stroke:{rgb}}}");
    }
    rules
}

/// A row; empty where nothing is drawn.
pub fn row(cells: &[Cell]) -> String {
    let mut out = String::new();
    shapes(cells, &mut out);
    frames(cells, &mut out);
    texts(cells, &mut out);
    out
}

/// The eighths of a cell that a block fills, from the left; none for other characters.
fn eighths(symbol: &str) -> Option<u32> {
    ["▏", "▎", "▍", "▌", "▋", "▊", "▉", "█"]
        .iter()
        .zip(1..)
        .find(|(b, _)| **b == symbol)
        .map(|f| f.1)
}

/// Backgrounds and blocks. Neighbours of one colour are one rectangle.
fn shapes(cells: &[Cell], out: &mut String) {
    let mut runs: Vec<(u32, u32, u8, bool)> = Vec::new();
    let mut add = |from: u32, to: u32, color: Color, shaded: bool| {
        let Some(color) = indexed(color) else { return };
        match runs.last_mut() {
            Some(last) if last.1 == from && last.2 == color && last.3 == shaded => last.1 = to,
            Some(_) | None => runs.push((from, to, color, shaded)),
        }
    };
    for (index, cell) in (0..).zip(cells) {
        let (from, to) = (index * CELL_WIDTH, (index + 1) * CELL_WIDTH);
        match (cell.symbol(), eighths(cell.symbol())) {
            (_, Some(parts)) => {
                add(from, from + parts * CELL_WIDTH / 8, cell.fg, false);
                add(from + parts * CELL_WIDTH / 8, to, cell.bg, false);
            }
            ("▐", None) => add(from + CELL_WIDTH / 2, to, cell.fg, false),
            ("▒" | "░", None) => add(from, to, cell.fg, true),
            (_, None) => add(from, to, cell.bg, false),
        }
    }
    for (from, to, color, shaded) in runs.into_iter().filter(|run| run.1 > run.0) {
        let opacity = if shaded { " opacity=\".4\"" } else { "" };
        let (width, height) = (to - from, CELL_HEIGHT - 3);
        let _ = write!(
            out,
            "<path class=\"c{color}\"{opacity} d=\"M{from} 1h{width}v{height}h-{width}z\"/>"
        );
    }
}

/// Frames of panels.
fn frames(cells: &[Cell], out: &mut String) {
    let (middle, height) = (CELL_HEIGHT / 2, CELL_HEIGHT);
    let mut path = String::new();
    let mut color = None;
    let mut cells = (0..).zip(cells).peekable();
    while let Some((index, cell)) = cells.next() {
        let (left, center): (u32, u32) = (index * CELL_WIDTH, index * CELL_WIDTH + CELL_WIDTH / 2);
        let right = left + CELL_WIDTH;
        let rest = height - middle;
        let _ = match cell.symbol() {
            "─" => {
                let mut end = right;
                while cells.next_if(|(_, next)| next.symbol() == "─").is_some() {
                    end += CELL_WIDTH;
                }
                write!(path, "M{left} {middle}H{end}")
            }
            "│" => write!(path, "M{center} 0v{height}"),
            "╭" => write!(path, "M{center} {height}v-{}q0 -4 4 -4", rest - 4),
            "╮" => write!(path, "M{left} {middle}q4 0 4 4v{}", rest - 4),
            "╰" => write!(path, "M{center} 0v{}q0 4 4 4", middle - 4),
            "╯" => write!(path, "M{left} {middle}q4 0 4 -4v-{}", middle - 4),
            _ => continue,
        };
        color = Some(cell.fg);
    }
    if path.is_empty() {
        return;
    }
    let class = color.and_then(indexed).map_or("l".to_owned(), |color| format!("l k{color}"));
    let _ = write!(out, "<path class=\"{class}\" d=\"{path}\"/>");
}

fn is_drawn(symbol: &str) -> bool {
    eighths(symbol).is_some() || ["▐", "▒", "░", "─", "│", "╭", "╮", "╰", "╯"].contains(&symbol)
}

/// Texts, each at its own place: two blanks end one.
fn texts(cells: &[Cell], out: &mut String) {
    let symbol = |index: usize| cells.get(index).map_or(" ", Cell::symbol);
    let look = |index: usize| cells.get(index).map(|cell| (cell.fg, cell.modifier));
    let mut index = 0;
    while index < cells.len() {
        if symbol(index) == " " || is_drawn(symbol(index)) {
            index += 1;
            continue;
        }
        let start = index;
        let mut text = String::new();
        while index < cells.len() && look(index) == look(start) && !is_drawn(symbol(index)) {
            if symbol(index) == " " && symbol(index + 1) == " " {
                break;
            }
            text.push_str(symbol(index));
            index += 1;
        }
        let (x, trimmed) = (start * CELL_WIDTH as usize, text.trim_end());
        let length = trimmed.chars().count() * CELL_WIDTH as usize;
        let class = cells.get(start).map(class_of).unwrap_or_default();
        let _ = write!(
            out,
            "<text{class} x=\"{x}\" y=\"{BASELINE}\" textLength=\"{length}\">{}</text>",
            escape(trimmed)
        );
    }
}

fn class_of(cell: &Cell) -> String {
    let mut classes: Vec<String> = Vec::new();
    classes.extend(indexed(cell.fg).map(|color| format!("c{color}")));
    if cell.modifier.contains(Modifier::BOLD) {
        classes.push("b".to_owned());
    }
    match classes.is_empty() {
        true => String::new(),
        false => format!(" class=\"{}\"", classes.join(" ")),
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// A colour of the 256 of terminals: 16 of the terminal's own, a cube of 216, 24 greys.
fn rgb(color: u8) -> String {
    let level = |step: u8| if step == 0 { 0 } else { 55 + 40 * step };
    let (red, green, blue) = match color {
        // The screen uses none of the terminal's own.
        0..16 => (200, 200, 200),
        16..232 => {
            let cube = color - 16;
            (level(cube / 36), level(cube / 6 % 6), level(cube % 6))
        }
        232.. => {
            let grey = 8 + 10 * (color - 232);
            (grey, grey, grey)
        }
    };
    format!("#{red:02x}{green:02x}{blue:02x}")
}

#[cfg(test)]
mod tests {
    use ratatui::style::Style;

    use super::*;

    // Invariant: a row is drawn where it stands, and a text in it cannot become SVG.

    #[test]
    fn a_row_is_blocks_frames_and_texts() {
        let mut buffer = ratatui::buffer::Buffer::empty(ratatui::layout::Rect::new(0, 0, 14, 1));
        let green = Style::new().fg(Color::Indexed(78));
        buffer.set_string(0, 0, "╭─ ", Style::new().fg(Color::Indexed(244)));
        buffer.set_string(3, 0, "a<b", green);
        buffer.set_string(8, 0, "██▌", green);
        insta::assert_snapshot!(row(&buffer.content).replace("><", ">\n<"), @r#"
        <path class="c78" d="M64 1h20v14h-20z"/>
        <path class="l k244" d="M4 17v-5q0 -4 4 -4M8 8H16"/>
        <text class="c78" x="24" y="13" textLength="24">a&lt;b</text>
        "#);
        assert_eq!(
            (rgb(16).as_str(), rgb(244).as_str(), rgb(203).as_str()),
            ("#000000", "#808080", "#ff5f5f")
        );
    }
}
