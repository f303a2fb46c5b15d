//! The agents: a row for each, with a bar of its phases on the common time axis.

use drover_model::phase::AgentPhase;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::axis::Axis;
use super::text_at;
use super::theme::{self, Ink, LEGEND, Theme};
use crate::demo::agents::{AgentRow, Segment};
use crate::demo::state::DemoState;

/// Rows of marks, axis and legend.
pub const FIXED_ROWS: u16 = 3;
/// Columns of the VMID, the template and the node of an agent.
const LABEL: u16 = 24;
/// Columns of its phase, behind its bar.
const PHASE: u16 = 12;
/// The parts of a column, each with the block that fills it from the left.
const BLOCKS: [&str; 8] = [" ", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
/// What is drawn while the service is down.
const DOWN: &str = "▒";

pub fn draw(state: &DemoState, now_ms: u64, theme: Theme, area: Rect, buf: &mut Buffer) {
    let columns = area.width.saturating_sub(LABEL + PHASE);
    let bars = Rect { x: area.x + LABEL, width: columns, ..area };
    let axis = Axis::until(now_ms, columns);
    let agents = shown(state.agents.rows(), area.height.saturating_sub(2));
    let count = u16::try_from(agents.len()).unwrap_or(u16::MAX).max(1);
    // A row for the marks where there is room.
    let marks = u16::from(area.height > count + 2);
    let room = area.height.saturating_sub(2 + marks);
    let spacing = if room + 1 >= 2 * count { 2 } else { 1 };
    if marks > 0 {
        draw_marks(state, axis, theme, bars, buf);
    }
    for (index, agent) in (0..).zip(&agents) {
        let row = marks + index * spacing;
        let style = theme.ink(if agent.is_gone() { Ink::Dim } else { Ink::Text });
        let vmid = agent.vmid.map_or_else(|| "-".to_owned(), |vmid| vmid.to_string());
        let template = agent.template.rsplit('/').next().unwrap_or_default();
        text_at(buf, area, 0, row, &format!("{vmid:<5} {template:<11} "), style);
        text_at(buf, area, 18, row, &agent.node, theme.ink(Ink::Dim));
        draw_bar(state, agent, now_ms, (axis, row), theme, bars, buf);
        let phase = agent.phase.to_string();
        text_at(buf, area, LABEL + columns + 1, row, &phase, theme.bar(Some(agent.phase)));
    }
    let last = (marks + (count - 1) * spacing + 1).min(area.height.saturating_sub(2));
    for (column, second) in axis.ticks() {
        let text = second.to_string();
        let column = column.min(columns.saturating_sub(u16::try_from(text.len()).unwrap_or(0)));
        text_at(buf, bars, column, last, &text, theme.ink(Ink::Dim));
    }
    let bottom = area.height.saturating_sub(1);
    legend(theme, Rect { y: area.y + bottom, height: 1, ..area }, buf);
}

/// The agents that fit: those that are gone leave first, oldest first.
fn shown(rows: &[AgentRow], room: u16) -> Vec<&AgentRow> {
    let mut over = rows.len().saturating_sub(usize::from(room));
    let mut kept: Vec<&AgentRow> = rows
        .iter()
        .filter(|row| {
            let leaves = over > 0 && row.is_gone();
            over -= usize::from(leaves);
            !leaves
        })
        .collect();
    kept.drain(..over.min(kept.len()));
    kept
}

fn draw_marks(state: &DemoState, axis: Axis, theme: Theme, bars: Rect, buf: &mut Buffer) {
    let mut free = 0;
    for (at_ms, text) in &state.marks {
        let Some(column) = axis.column_of(*at_ms) else { continue };
        let width = u16::try_from(text.chars().count() + 2).unwrap_or(u16::MAX);
        // One that has no room at its moment stands behind the one before; at the right end it
        // stands before its moment.
        let (column, text) = match (column + 1).checked_sub(width).filter(|start| *start >= free) {
            Some(start) if column + width > axis.columns => (start, format!("{text} ▼")),
            Some(_) | None => (column.max(free), format!("▼ {text}")),
        };
        text_at(buf, bars, column, 0, &text, theme.ink(Ink::Story));
        free = column + width + 1;
    }
}

fn draw_bar(
    state: &DemoState,
    agent: &AgentRow,
    now_ms: u64,
    (axis, row): (Axis, u16),
    theme: Theme,
    bars: Rect,
    buf: &mut Buffer,
) {
    let mut segments = agent.segments.clone();
    if let Some(last) = segments.last_mut().filter(|_| !agent.is_gone()) {
        last.to_ms = last.to_ms.max(now_ms);
    }
    let killed = agent.killed_at_ms.and_then(|at_ms| axis.column_of(at_ms));
    for column in 0..axis.columns {
        let (from, to) = (axis.start_of(column), axis.start_of(column + 1));
        let (left, right) = (at(&segments, from), at(&segments, to.saturating_sub(1)));
        let middle = at(&segments, from + (to - from) / 2);
        let is_down = state.outages.iter().any(|(start, end)| {
            *start < to && end.is_none_or(|end| end > from) && *start <= now_ms
        });
        let (symbol, style) = match (theme.color, middle) {
            (_, Some(middle)) if killed == Some(column) => {
                ("✗".to_owned(), killed_style(theme, middle.phase))
            }
            (true, Some(middle)) if is_down => (DOWN.to_owned(), theme.bar(middle.phase)),
            (false, Some(_)) if is_down => (DOWN.to_owned(), Style::new()),
            (false, Some(middle)) => (theme::letter_of(middle.phase).to_string(), Style::new()),
            (true, _) => block(left, right, (from, to), theme),
            (false, None) => continue,
        };
        text_at(buf, bars, column, row, &symbol, style);
    }
}

fn killed_style(theme: Theme, phase: Option<AgentPhase>) -> Style {
    let style = theme.ink(Ink::Bad);
    match (theme.color, theme.bar(phase).fg) {
        (true, Some(color)) => style.fg(ratatui::style::Color::Indexed(231)).bg(color),
        (true, None) | (false, _) => style,
    }
}

/// The segment of a moment.
fn at(segments: &[Segment], at_ms: u64) -> Option<Segment> {
    segments.iter().find(|s| s.from_ms <= at_ms && at_ms < s.to_ms).copied()
}

/// The cell of a column that starts in one segment and ends in another.
fn block(
    left: Option<Segment>,
    right: Option<Segment>,
    (from, to): (u64, u64),
    theme: Theme,
) -> (String, Style) {
    let parts = |at_ms: u64| {
        let part = at_ms.saturating_sub(from) * 8 / (to - from).max(1);
        usize::try_from(part).unwrap_or(0).min(7)
    };
    match (left, right) {
        (None, None) => (" ".to_owned(), Style::new()),
        (Some(left), Some(right)) if left.phase == right.phase => {
            ("█".to_owned(), theme.bar(left.phase))
        }
        (Some(left), Some(right)) if parts(left.to_ms) == 0 => {
            ("█".to_owned(), theme.bar(right.phase))
        }
        (Some(left), Some(right)) => {
            let style = theme.bar(left.phase);
            let style = theme.bar(right.phase).fg.map_or(style, |color| style.bg(color));
            (BLOCKS[parts(left.to_ms)].to_owned(), style)
        }
        (Some(left), None) => (BLOCKS[parts(left.to_ms)].to_owned(), theme.bar(left.phase)),
        // No block fills a column from the right but the half one.
        (None, Some(right)) => {
            let symbol = if parts(right.from_ms) < 4 { "█" } else { "▐" };
            (symbol.to_owned(), theme.bar(right.phase))
        }
    }
}

/// Names the phases: by their colour, or by the capital letter that is drawn for them.
fn legend(theme: Theme, area: Rect, buf: &mut Buffer) {
    let mut column = 0;
    let blocks = area.width >= 110 && theme.color;
    for phase in LEGEND {
        let name = if theme.color { phase.to_string() } else { theme::marked_name(phase) };
        let text = if blocks { format!("█ {name}") } else { name };
        text_at(buf, area, column, 0, &text, theme.bar(Some(phase)));
        column += u16::try_from(text.chars().count()).unwrap_or(0) + if blocks { 2 } else { 1 };
    }
    if area.width > column + 16 {
        let text = format!("{DOWN} service down");
        text_at(buf, area, column, 0, &text, theme.ink(Ink::Dim));
    }
}
