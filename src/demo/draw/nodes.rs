//! The nodes: guests that run and are stopped, and a bar of the memory in use.

use pve_sim::world::NodeLoad;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::text_at;
use super::theme::{Ink, Theme};

/// Rows of a node with the empty one below it.
const NODE_ROWS: u16 = 3;
const BAR_COLUMNS: u16 = 11;
const GIB: u64 = 1 << 30;

pub fn draw(nodes: &[NodeLoad], theme: Theme, area: Rect, buf: &mut Buffer) {
    for (index, node) in nodes.iter().enumerate() {
        let row = u16::try_from(index).unwrap_or(u16::MAX).saturating_mul(NODE_ROWS);
        text_at(buf, area, 0, row, &node.name, theme.ink(Ink::Text));
        let ink = if node.running > 0 { Ink::Good } else { Ink::Dim };
        text_at(buf, area, 6, row, &format!("{} running", node.running), theme.ink(ink));
        text_at(buf, area, 17, row, &format!("{} stopped", node.stopped), theme.ink(Ink::Dim));
        let filled = share(node, BAR_COLUMNS);
        for column in 0..BAR_COLUMNS {
            let (symbol, ink) =
                if column < filled { ("█", Ink::Good) } else { ("░", Ink::Dim) };
            text_at(buf, area, column, row + 1, symbol, theme.ink(ink));
        }
        let text = format!("{} of {} GiB", gib(node.memory_used_bytes), node.memory_bytes / GIB);
        text_at(buf, area, BAR_COLUMNS + 1, row + 1, &text, theme.ink(Ink::Dim));
    }
}

/// The columns of a bar that are filled: at least one where anything is used.
fn share(node: &NodeLoad, columns: u16) -> u16 {
    let used = node.memory_used_bytes.min(node.memory_bytes);
    let filled = used.saturating_mul(u64::from(columns)).div_ceil(node.memory_bytes.max(1));
    u16::try_from(filled).unwrap_or(columns)
}

/// Bytes in GiB with one decimal.
fn gib(bytes: u64) -> String {
    let tenths = bytes.saturating_mul(10) / GIB;
    format!("{}.{}", tenths / 10, tenths % 10)
}
