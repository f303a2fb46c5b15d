//! The jobs: state, machine, exit status, whether that is as expected, and the last line printed.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::text_at;
use super::theme::{Ink, Theme};
use crate::demo::state::{JobRow, JobState};

/// Where columns start.
const NAME: u16 = 2;
const STATE: u16 = 12;
const VMID: u16 = 20;
const REST: u16 = 26;
/// Where the output of a job starts that has ended.
const OUTPUT: u16 = 47;

pub fn draw(jobs: &[JobRow], theme: Theme, area: Rect, buf: &mut Buffer) {
    let rows = usize::from(area.height);
    // The first job that has not ended is on the screen.
    let first = jobs.iter().position(|row| row.state != JobState::Done).unwrap_or(jobs.len());
    let first = first.min(jobs.len().saturating_sub(rows));
    for (row, job) in (0..area.height).zip(&jobs[first..]) {
        let (mark, word, ink) = match job.state {
            JobState::Waiting => ("○", "waiting", Ink::Dim),
            JobState::Running => ("▶", "running", Ink::Busy),
            JobState::Done if job.as_expected => ("✓", "done", Ink::Good),
            JobState::Done => ("✗", "done", Ink::Bad),
        };
        text_at(buf, area, 0, row, mark, theme.ink(ink));
        text_at(buf, area, NAME, row, &job.job.name, theme.ink(Ink::Text));
        text_at(buf, area, STATE, row, word, theme.ink(ink));
        let vmid = job.vmid.map(|vmid| vmid.to_string()).unwrap_or_default();
        text_at(buf, area, VMID, row, &vmid, theme.ink(Ink::Dim));
        if job.state != JobState::Done {
            text_at(buf, area, REST, row, &job.output, theme.ink(Ink::Dim));
            continue;
        }
        let exit = job.exit.map_or("no exit".to_owned(), |exit| format!("exit {exit}"));
        let verdict = if job.as_expected { "as expected" } else { "NOT as expected" };
        // Blanks keep the output away from a longer verdict.
        let text = format!("{exit} {verdict}");
        if area.width > OUTPUT {
            let output = OUTPUT.max(REST + u16::try_from(text.len()).unwrap_or(0) + 1);
            text_at(buf, area, output, row, &job.output, theme.ink(Ink::Dim));
        }
        text_at(buf, area, REST, row, &text, theme.ink(ink));
    }
}
