use ratatui::buffer::{Buffer, Cell};
use ratatui::layout::Rect;
use ratatui::style::Color;

use super::{Theme, screen};
use crate::demo::ending::five_lines;
use crate::demo::state::DemoState;
use crate::demo::story::{Adoption, Step, Story};
use crate::demo::tests::played;

const NOW_MS: u64 = 16_000;

fn drawn(state: &DemoState, width: u16, height: u16, color: bool) -> Buffer {
    let area = Rect::new(0, 0, width, height);
    let mut buffer = Buffer::empty(area);
    screen(state, NOW_MS, Theme { color }, area, &mut buffer);
    buffer
}

fn text(buffer: &Buffer) -> String {
    let rows = buffer.content.chunks(usize::from(buffer.area.width.max(1)));
    let lines = rows.map(|row| row.iter().map(Cell::symbol).collect::<String>());
    let lines: Vec<String> = lines.map(|line| line.trim_end().to_owned()).collect();
    lines.join("\n")
}

/// The state at the end of the story.
fn ended() -> DemoState {
    let mut state = played();
    let mut story = Story::default();
    story.took(Step::BreakConfig);
    story.refused("  × instanceCap: expected a number\n   ╭─[/tmp/d/drover.yaml:45:18]\n");
    story.took(Step::KillService);
    story.adopted(Adoption { before: 6, vmids: vec![10_000; 6], jobs: 2, outage_ms: 1100 });
    state.ending = Some(five_lines(&state, &story, false));
    state
}

// Invariant: everything is on the screen of the smallest terminal, and a larger one shows more.

#[test]
fn the_smallest_screen_shows_nodes_jobs_agents_and_the_last_lines() {
    insta::assert_snapshot!(text(&drawn(&played(), 80, 24, true)));
}

#[test]
fn a_larger_screen_has_frames_marks_and_the_output_of_jobs() {
    insta::assert_snapshot!(text(&drawn(&played(), 120, 40, true)));
}

#[test]
fn the_end_shows_the_five_lines() {
    insta::assert_snapshot!(text(&drawn(&ended(), 80, 24, true)));
    let ending = ended().ending.unwrap_or_default();
    for line in &ending {
        assert!(line.chars().count() <= 78, "{line}");
    }
}

#[test]
fn every_size_from_the_smallest_on_can_be_drawn_and_a_smaller_one_says_its_size() {
    let state = played();
    for width in [80, 81, 109, 110, 200, 400] {
        for height in [24, 25, 29, 30, 31, 60, 150] {
            let text = text(&drawn(&state, width, height, true));
            assert!(
                text.contains("loses-vm") && text.contains("10005"),
                "{width}x{height}:\n{text}"
            );
        }
    }
    assert_eq!(text(&drawn(&state, 60, 3, true)).trim(), "60x3: the demo draws on 80x24 or more");
    assert_eq!(text(&drawn(&state, 0, 0, true)), "");
}

#[test]
fn more_agents_and_jobs_than_rows_leave_the_newest_on_the_screen() {
    let mut state = played();
    state.jobs =
        super::super::state::DemoState::new(state.started, crate::demo::jobs::batch(200)).jobs;
    for vmid in 10_100..10_140 {
        let event = crate::demo::tests::agent(14_000, vmid, "linux", &[("Ready", 100)]);
        state.event(&event);
    }
    let text = text(&drawn(&state, 80, 24, true));
    assert!(text.contains("10139") && text.contains("jobs: 0 of 200 done"), "{text}");
}

// Invariant: without colours nothing is coloured, and letters stand for the phases.

#[test]
fn without_colours_letters_stand_for_phases() {
    let buffer = drawn(&played(), 80, 24, false);
    let reset = |cell: &Cell| (cell.fg, cell.bg) == (Color::Reset, Color::Reset);
    assert!(buffer.content.iter().all(reset));
    insta::assert_snapshot!(text(&buffer));
}

// Invariant: nothing that a job prints moves the cursor.

#[test]
fn control_characters_of_a_job_are_no_cells() {
    let all = text(&drawn(&played(), 200, 60, true));
    assert!(all.contains("compiled 3 of 8?[2J"), "{all}");
    assert!(!all.chars().any(|letter| letter.is_control() && letter != '\n'));
}
