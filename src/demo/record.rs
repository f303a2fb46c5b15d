//! A recording of the screen as an animated SVG: frames of a real run, drawn by the same code.
//!
//! The frames lie beside each other on a strip, which jumps from one to the next. Each distinct row
//! is in the file once. A viewer that plays nothing shows the last frame.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use ratatui::buffer::{Buffer, Cell};
use ratatui::layout::Rect;

use super::fault::DemoError;
use super::svg::{self, CELL_HEIGHT, CELL_WIDTH, MARGIN};

/// Columns and rows of the recording.
const COLUMNS: u16 = 112;
const ROWS: u16 = 34;
/// The least time from one frame to the next.
const FRAME_MS: u64 = 700;
/// How long the last frame stays before the recording starts again.
const LAST_MS: u64 = 8_000;
/// The most frames that are kept; later ones replace the last.
const FRAMES_MAX: usize = 400;

pub struct Recorder {
    path: PathBuf,
    frames: Vec<(u64, Buffer)>,
}

impl Recorder {
    pub fn new(path: PathBuf) -> Self {
        Self { path, frames: Vec::new() }
    }

    /// Records a frame. One that comes too soon replaces the one before.
    pub fn frame(&mut self, at_ms: u64, draw: impl FnOnce(Rect, &mut Buffer)) {
        let area = Rect::new(0, 0, COLUMNS, ROWS);
        let mut buffer = Buffer::empty(area);
        draw(area, &mut buffer);
        let before = self.frames.len().checked_sub(2).and_then(|index| self.frames.get(index));
        let too_soon = before.is_some_and(|(before_ms, _)| at_ms < before_ms + FRAME_MS);
        if too_soon || self.frames.len() >= FRAMES_MAX {
            self.frames.pop();
        }
        self.frames.push((at_ms, buffer));
    }

    /// Writes the file.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(self) -> Result<(), DemoError> {
        let path = self.path.clone();
        std::fs::write(&path, self.svg()).map_err(|source| {
            let path = path.display().to_string();
            DemoError::Recording { path, source }
        })
    }

    fn svg(&self) -> String {
        let mut rows: BTreeMap<String, usize> = BTreeMap::new();
        let mut strip = String::new();
        let width = u32::from(COLUMNS) * CELL_WIDTH;
        for (index, (_, frame)) in (0_u32..).zip(&self.frames) {
            let _ = write!(strip, "<g transform=\"translate({},0)\">", index * width);
            for (row, cells) in (0_u32..).zip(frame.content.chunks(usize::from(COLUMNS))) {
                let drawn = svg::row(cells);
                if drawn.is_empty() {
                    continue;
                }
                let next = rows.len();
                let id = *rows.entry(drawn).or_insert(next);
                let _ = write!(strip, "<use href=\"#r{id}\" y=\"{}\"/>", row * CELL_HEIGHT);
            }
            strip.push_str("</g>");
        }
        let mut named: Vec<(usize, String)> = rows.into_iter().map(|(row, id)| (id, row)).collect();
        named.sort_unstable_by_key(|(id, _)| *id);
        let define = |(id, row): (usize, String)| format!("<g id=\"r{id}\">{row}</g>\n");
        let defined: String = named.into_iter().map(define).collect();
        let cells = || self.frames.iter().flat_map(|(_, frame)| &frame.content);
        let colors = cells().flat_map(|cell: &Cell| [cell.fg, cell.bg]).filter_map(svg::indexed);
        let height = u32::from(ROWS) * CELL_HEIGHT;
        let (outer_width, outer_height) = (width + 2 * MARGIN, height + 2 * MARGIN);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {outer_width} {outer_height}\" \
             width=\"{outer_width}\" height=\"{outer_height}\" role=\"img\">\n\
             <title>drover demo: a refused edit, a kill -9 with adoption, a lost machine</title>\n\
             <style>\n{}{}</style>\n<defs>\n{defined}</defs>\n\
             <rect class=\"w\" width=\"{outer_width}\" height=\"{outer_height}\" rx=\"8\"/>\n\
             <svg x=\"{MARGIN}\" y=\"{MARGIN}\" width=\"{width}\" height=\"{height}\">\
             <g class=\"s\">{strip}</g></svg>\n</svg>\n",
            svg::style(colors.collect()),
            self.animation(width),
        )
    }

    /// The rules by which the strip jumps from frame to frame.
    fn animation(&self, width: u32) -> String {
        let start = self.frames.first().map_or(0, |(at_ms, _)| *at_ms);
        let end = self.frames.last().map_or(0, |(at_ms, _)| *at_ms);
        let total = end.saturating_sub(start) + LAST_MS;
        let last = self.frames.len().saturating_sub(1);
        let mut steps = String::new();
        for (index, (at_ms, _)) in self.frames.iter().enumerate() {
            let thousandths = (at_ms - start) * 100_000 / total;
            let (whole, part) = (thousandths / 1000, thousandths % 1000);
            let x = index * width as usize;
            let _ = write!(steps, "{whole}.{part:03}%{{transform:translateX(-{x}px)}}");
        }
        let x = last * width as usize;
        format!(
            ".s{{transform:translateX(-{x}px);animation:p {total}ms step-end infinite}}\n\
             @keyframes p{{{steps}}}\n\
             @media (prefers-reduced-motion){{.s{{animation:none}}}}\n"
        )
    }
}
