//! The screen of the demo, drawn from its state. Pure: state in, cells out.
//!
//! ```text
//! nodes        | jobs
//! agents: their phases on one time axis, the axis, the legend
//! the last lines of what happens; at the end, the five lines of the story
//! ```
//!
//! Files beside this one: `theme` (colours), `nodes`, `jobs`, `timeline` (agents), `axis`, `lines`
//! (the log).

mod axis;
mod jobs;
mod lines;
mod nodes;
mod theme;
mod timeline;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, BorderType, Borders, Widget as _};

use super::state::DemoState;
use crate::waterfall::seconds;

use theme::Ink;
pub use theme::Theme;

/// The smallest terminal that the screen fits on, in columns and rows.
pub const SMALLEST: (u16, u16) = (80, 24);

/// Rows from which panels have frames around them, and the screen a headline.
const ROOMY_ROWS: u16 = 30;
/// Rows of the log.
const LEAST_LOG_ROWS: u16 = 5;
const MOST_LOG_ROWS: u16 = 16;
/// Columns of the nodes' panel.
const NODES_COLUMNS: u16 = 30;

/// Draws the whole screen, `now_ms` milliseconds after the start of the demo.
pub fn screen(state: &DemoState, now_ms: u64, theme: Theme, area: Rect, buf: &mut Buffer) {
    if area.width < SMALLEST.0 || area.height < SMALLEST.1 {
        let text = format!(
            "{}x{}: the demo draws on {}x{} or more",
            area.width, area.height, SMALLEST.0, SMALLEST.1
        );
        text_at(buf, area, 0, 0, &text, Style::new());
        return;
    }
    let roomy = area.height >= ROOMY_ROWS;
    let frame = if roomy { 2 } else { 1 };
    let mut rest = area;
    if roomy {
        headline(now_ms, theme, take(&mut rest, 1), buf);
    }
    let job_rows =
        u16::try_from(state.jobs.len()).unwrap_or(u16::MAX).clamp(8, (rest.height / 3).max(8));
    let top = take(&mut rest, job_rows + frame);
    let agent_rows = agent_rows(state, roomy, rest.height - 2 * frame) + frame;
    let agents = take(&mut rest, agent_rows);
    let left = Rect { width: NODES_COLUMNS, ..top };
    let right = Rect { x: top.x + NODES_COLUMNS, width: top.width - NODES_COLUMNS, ..top };
    let panel = |title: &str, area: Rect, buf: &mut Buffer| panel(title, roomy, theme, area, buf);
    nodes::draw(&state.nodes, theme, panel("nodes", left, buf), buf);
    let done = state.jobs.iter().filter(|row| row.ended_at_ms.is_some()).count();
    let title = format!("jobs: {done} of {} done", state.jobs.len());
    jobs::draw(&state.jobs, theme, panel(&title, right, buf), buf);
    let title = "agents: phases, in seconds since the start";
    timeline::draw(state, now_ms, theme, panel(title, agents, buf), buf);
    let title = match (&state.ending, roomy) {
        (Some(_), _) => "what happened".to_owned(),
        (None, true) => "log".to_owned(),
        (None, false) => format!("drover demo, {}, Ctrl-C ends it", seconds(now_ms)),
    };
    lines::draw(state, theme, panel(&title, rest, buf), buf);
}

/// The rows for agents, of those that they share with the log.
fn agent_rows(state: &DemoState, roomy: bool, rows: u16) -> u16 {
    // Room for the agents of the batch from the start, so that nothing jumps.
    let agents = u16::try_from(state.agents.rows().len()).unwrap_or(u16::MAX).clamp(7, 40);
    let most = rows.saturating_sub(LEAST_LOG_ROWS);
    let (tight, wide) = (agents + timeline::FIXED_ROWS, 2 * agents + timeline::FIXED_ROWS);
    match roomy {
        false => most,
        true if wide <= most => wide.max(rows.saturating_sub(MOST_LOG_ROWS)),
        true => tight.min(most),
    }
}

/// Cuts rows off the top of an area.
fn take(rest: &mut Rect, rows: u16) -> Rect {
    let rows = rows.min(rest.height);
    let top = Rect { height: rows, ..*rest };
    *rest = Rect { y: rest.y + rows, height: rest.height - rows, ..*rest };
    top
}

fn headline(now_ms: u64, theme: Theme, area: Rect, buf: &mut Buffer) {
    text_at(buf, area, 1, 0, "drover demo", theme.ink(Ink::Title));
    let text = "a simulated Proxmox VE cluster, the real service, real jobs";
    text_at(buf, area, 14, 0, text, theme.ink(Ink::Dim));
    let clock = seconds(now_ms);
    let x = area.width.saturating_sub(u16::try_from(clock.len()).unwrap_or(0) + 1);
    text_at(buf, area, x, 0, &clock, theme.ink(Ink::Title));
}

/// Draws a panel's frame, and gives its inside.
fn panel(title: &str, roomy: bool, theme: Theme, area: Rect, buf: &mut Buffer) -> Rect {
    let title = Line::from(vec![
        Span::styled("─", theme.ink(Ink::Dim)),
        Span::styled(format!(" {title} "), theme.ink(Ink::Title)),
    ]);
    let block = Block::new()
        .borders(if roomy { Borders::ALL } else { Borders::TOP })
        .border_type(BorderType::Rounded)
        .border_style(theme.ink(Ink::Dim))
        .title(title);
    let inner = block.inner(area);
    block.render(area, buf);
    Rect { x: inner.x + 1, width: inner.width.saturating_sub(2), ..inner }
}

/// Writes a text into an area, cut off at its end; columns and rows count from its corner.
fn text_at(buf: &mut Buffer, area: Rect, column: u16, row: u16, text: &str, style: Style) {
    if row < area.height && column < area.width {
        let width = usize::from(area.width - column);
        buf.set_stringn(area.x + column, area.y + row, text, width, style);
    }
}

#[cfg(test)]
mod tests;
