//! A table as text.

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use super::fit::{GAP, Want, fit};
use super::ids::Ids;
use super::page::{clean, wrapped};
use super::view::View;
use super::{Cell, Column, Kind, Tone};

/// A cell as a line has it: its text, filled up to the width of its column, and its tone.
pub(in crate::cli) type Piece = (String, Tone);

/// Rows under columns.
#[derive(Debug)]
pub(in crate::cli) struct Table {
    pub(super) columns: Vec<Column>,
    pub(super) rows: Vec<Vec<Cell>>,
}

impl Table {
    pub(in crate::cli) fn new(columns: &[Column], rows: Vec<Vec<Cell>>) -> Self {
        Self { columns: columns.to_vec(), rows }
    }

    /// The columns, in order.
    pub(in crate::cli) fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// The head, and of the rows in this order those from `first` on, at most `most`: one line each, cut to
    /// the width of the view. The columns have the widths that all the rows need, so that they stay where they
    /// are while somebody scrolls.
    pub(in crate::cli) fn window(
        &self,
        order: &[usize],
        (first, most): (usize, usize),
        view: &View,
    ) -> (Vec<Piece>, Vec<Vec<Piece>>) {
        let rows = self.spelled(order, view);
        let widths = self.widths(&rows, view);
        let filled = |cells: &[(String, Tone)]| {
            let cells = cells.iter().zip(&self.columns).zip(&widths);
            let shown = cells.filter_map(|((cell, column), width)| Some((cell, column, (*width)?)));
            let pieces = shown.map(|((text, tone), column, width)| {
                let text = cut(text, width);
                let pad = " ".repeat(width.saturating_sub(text.width()));
                let text = match column.kind {
                    Kind::Number => pad + &text,
                    Kind::Id | Kind::Name | Kind::State | Kind::Time | Kind::Text | Kind::Prose => {
                        text + &pad
                    }
                };
                (text, *tone)
            });
            pieces.collect::<Vec<Piece>>()
        };
        let names = self.columns.iter().map(|column| (column.name.to_owned(), Tone::Plain));
        let head = filled(&names.collect::<Vec<_>>());
        (head, rows.iter().skip(first).take(most).map(|row| filled(row)).collect())
    }

    /// All rows, as lines.
    pub(in crate::cli) fn draw(&self, view: &View) -> String {
        let all: Vec<usize> = (0..self.rows.len()).collect();
        self.draw_some(&all, view)
    }

    /// Some rows in this order; ids stay unique among all.
    pub(in crate::cli) fn draw_some(&self, order: &[usize], view: &View) -> String {
        let rows = self.spelled(order, view);
        let widths = self.widths(&rows, view);
        let mut text = String::new();
        let names = self.columns.iter().map(|column| (column.name.to_owned(), Tone::Plain));
        text += &self.line(&names.collect::<Vec<_>>(), &widths, view, true);
        for row in &rows {
            text += &self.line(row, &widths, view, false);
        }
        text
    }

    /// The cells of some rows as text, each with its tone.
    fn spelled(&self, order: &[usize], view: &View) -> Vec<Vec<(String, Tone)>> {
        let ids: Vec<Ids> = (0..self.columns.len()).map(|at| self.ids(at)).collect();
        order
            .iter()
            .filter_map(|at| self.rows.get(*at))
            .map(|row| {
                let cells = row.iter().zip(&self.columns).zip(&ids);
                let mut cells: Vec<_> = cells
                    .map(|((cell, column), ids)| spell(cell, column.kind, ids, view))
                    .collect();
                // Nothing stands behind the last text, which needs no mark of its place.
                let is_text = self
                    .columns
                    .last()
                    .is_some_and(|last| matches!(last.kind, Kind::Text | Kind::Prose));
                if let (true, Some(last), Some(Cell::None)) =
                    (is_text, cells.last_mut(), row.last())
                {
                    last.0.clear();
                }
                cells
            })
            .collect()
    }

    /// The ids of a column.
    fn ids(&self, at: usize) -> Ids {
        if self.columns[at].kind != Kind::Id {
            return Ids::default();
        }
        let cells = self.rows.iter().filter_map(|row| row.get(at));
        Ids::of(cells.flat_map(|cell| match cell {
            Cell::Text(id) => std::slice::from_ref(id),
            Cell::List(all) => all.as_slice(),
            Cell::None | Cell::State(..) | Cell::Time(_) => &[],
        }))
    }

    fn widths(&self, rows: &[Vec<(String, Tone)>], view: &View) -> Vec<Option<usize>> {
        let wants: Vec<Want> = self
            .columns
            .iter()
            .enumerate()
            .map(|(at, column)| {
                let cells = || rows.iter().filter_map(move |row| row.get(at));
                let widest = cells().map(|(text, _)| text.width()).max().unwrap_or(0);
                Want {
                    kind: column.kind,
                    rank: column.rank,
                    natural: widest.max(column.name.width()),
                    is_empty: cells().all(|(text, _)| matches!(&**text, "-" | "")),
                }
            })
            .collect();
        let widths = fit(&wants, view.width, view.wide);
        if !view.whole {
            return widths;
        }
        widths.iter().zip(&wants).map(|(width, want)| width.map(|_| want.natural)).collect()
    }

    /// A row: one line, and more where prose goes on.
    fn line(
        &self,
        cells: &[(String, Tone)],
        widths: &[Option<usize>],
        view: &View,
        is_heading: bool,
    ) -> String {
        let shown = cells.iter().zip(&self.columns).zip(widths);
        let shown =
            shown.filter_map(|((cell, column), width)| Some((cell, column.kind, (*width)?)));
        let shown: Vec<_> = shown
            .map(|((text, tone), kind, width)| match kind {
                Kind::Prose => (paragraph(text, width), *tone, kind, width),
                Kind::Id | Kind::Name | Kind::State | Kind::Time | Kind::Number | Kind::Text => {
                    (vec![cut(text, width)], *tone, kind, width)
                }
            })
            .collect();
        let height = shown.iter().map(|(lines, ..)| lines.len()).max().unwrap_or(1);
        let mut drawn = String::new();
        for row in 0..height {
            let mut line = String::new();
            for (at, (lines, tone, kind, width)) in shown.iter().enumerate() {
                let text = lines.get(row).map_or("", String::as_str);
                let pad = " ".repeat(width.saturating_sub(text.width()));
                let text = match is_heading {
                    true => view.bold(text),
                    false => view.paint(*tone, text),
                };
                if at > 0 {
                    line += &" ".repeat(GAP);
                }
                line += &match kind {
                    Kind::Number => pad + &text,
                    Kind::Id | Kind::Name | Kind::State | Kind::Time | Kind::Text | Kind::Prose => {
                        text + &pad
                    }
                };
            }
            drawn += &format!("{}\n", line.trim_end());
        }
        drawn
    }
}

/// A text in lines of at most so many columns, broken between words; a longer word is broken too.
fn paragraph(text: &str, width: usize) -> Vec<String> {
    let (mut lines, mut rest) = (Vec::new(), text);
    while rest.width() > width {
        let (part, more) = wrapped(rest, Some(width));
        if part.width() <= width {
            lines.push(part.to_owned());
            rest = more;
            continue;
        }
        let end = rest
            .char_indices()
            .find(|(at, c)| *at > 0 && rest[..at + c.len_utf8()].width() > width)
            .map_or(rest.len(), |(at, _)| at);
        lines.push(rest[..end].to_owned());
        rest = &rest[end..];
    }
    if !rest.is_empty() || lines.is_empty() {
        lines.push(rest.to_owned());
    }
    lines
}

/// A cell as text, and its tone.
fn spell(cell: &Cell, kind: Kind, ids: &Ids, view: &View) -> (String, Tone) {
    let id = |text: &String| match kind == Kind::Id && !view.wide && !view.whole {
        true => ids.short(text),
        false => text.clone(),
    };
    let (text, tone) = match cell {
        Cell::None => ("-".to_owned(), Tone::Gone),
        Cell::Text(text) => (id(text), Tone::Plain),
        Cell::List(all) => {
            let between = if all.iter().any(|one| one.contains(' ')) { ", " } else { "," };
            (all.iter().map(id).collect::<Vec<_>>().join(between), Tone::Plain)
        }
        Cell::State(word, tone) => (word.clone(), *tone),
        Cell::Time(at) => (view.time(at), Tone::Plain),
    };
    (clean(&text), tone)
}

/// A text in at most so many columns; `…` says that there is more.
fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let (mut used, mut kept) = (1, String::new());
    for c in text.chars() {
        used += c.width().unwrap_or(0);
        if used > width {
            break;
        }
        kept.push(c);
    }
    kept.truncate(kept.trim_end().len());
    kept + "…"
}
