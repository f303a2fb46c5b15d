//! What the screen shows.

use super::*;

// Invariant: the screen shows everything that it has room for, on a small terminal as on a large one, and no
// line is wider than the terminal.

const SMALL: (u16, u16) = (80, 24);
const LARGE: (u16, u16) = (160, 40);

fn of_agents(size: (u16, u16)) -> Seat {
    let mut seat = Seat::new(TopNoun::Agents, "operator", size);
    seat.answer(Ask::Agents, agents());
    seat
}

/// The first agent in full, with why it waits and what happened to it.
fn detail(size: (u16, u16)) -> Seat {
    let mut seat = of_agents(size);
    seat.step(happened("1-7", "Cloning"));
    seat.step(happened("1-8", "Booting"));
    assert_eq!(seat.types("\n"), [Effect::Why("4f8z1c3qx9t2vkab".to_owned())]);
    let why = json!({"subject": "agent 4f8z1c3qx9t2vkab", "state": "Booting: waits for its address",
        "account": null, "templates": []});
    let why = Ok(Box::new(serde_json::from_value(why).unwrap()));
    seat.step(Input::Why("4f8z1c3qx9t2vkab".to_owned(), why));
    seat
}

#[test]
fn the_herd_shows_alarms_then_clouds_with_their_templates_then_who_waits() {
    let drawn = [SMALL, LARGE].map(|size| Seat::new(TopNoun::Herd, "admin", size).text());
    insta::assert_snapshot!(drawn.join("\n\n"));
}

#[test]
fn agents_are_rows_under_the_columns_of_the_list_command() {
    insta::assert_snapshot!([SMALL, LARGE].map(|size| of_agents(size).text()).join("\n\n"));
}

#[test]
fn a_detail_has_facts_bars_the_cause_and_events() {
    let mut small = detail(SMALL);
    let first = small.text();
    small.types("G");
    insta::assert_snapshot!([first, small.text(), detail(LARGE).text()].join("\n\n"));
}

#[test]
fn events_are_the_sentences_of_the_events_command_with_the_newest_first() {
    let mut seat = Seat::new(TopNoun::Events, "viewer", SMALL);
    seat.step(happened("1-7", "Cloning"));
    seat.step(happened("1-8", "Booting"));
    seat.after(250);
    insta::assert_snapshot!(seat.text());
}

#[test]
fn a_question_shows_the_whole_command() {
    let mut seat = of_agents(SMALL);
    seat.types("t");
    insta::assert_snapshot!(seat.text().lines().skip(22).collect::<Vec<_>>().join("\n"));
}

#[test]
fn help_names_the_lists_and_keys_of_the_role() {
    let help = |role| {
        let mut seat = Seat::new(TopNoun::Herd, role, (100, 40));
        seat.types("?");
        seat.text()
    };
    insta::assert_snapshot!(["viewer", "operator", "admin"].map(help).join("\n\n"));
}

// Invariant: whatever is wrong with the connection stands on the screen, and the last answer stays with its age.

#[test]
fn a_service_that_is_not_reached_leaves_the_last_answer_with_its_age() {
    let mut seat = of_agents(SMALL);
    seat.now_ms = 5000;
    seat.step(Input::StreamEnded(down(FaultKind::NotReached, "the event stream ended")));
    let fault = down(FaultKind::NotReached, "no drover is listening on `/run/drover/drover.sock`");
    seat.step(Input::Answer(Ask::Agents, Err(fault)));
    seat.after(42_000);
    let unreached = seat.text();
    let fault = down(FaultKind::NoLeader, "no member of the store leads");
    seat.step(Input::Answer(Ask::Agents, Err(fault)));
    let head = |text: &str| text.lines().take(5).collect::<Vec<_>>().join("\n");
    let no_leader = seat.text();
    seat.answer(Ask::Agents, agents());
    seat.step(Input::StreamOpen);
    insta::assert_snapshot!(
        [unreached, no_leader, seat.text()].map(|text| head(&text)).join("\n\n")
    );
}

#[test]
fn a_list_that_the_service_refuses_says_why() {
    let mut seat = Seat::new(TopNoun::Members, "viewer", SMALL);
    let fault = down(FaultKind::Refused, "this drover has no members:\nit stands alone");
    seat.step(Input::Answer(Ask::Members, Err(fault)));
    let text = seat.text();
    assert!(text.contains("this drover has no members: it stands alone"), "{text}");
    assert!(text.lines().next().unwrap().ends_with("live"), "{text}");
}

// Invariant: nothing that came from elsewhere moves the cursor, and without colours nothing is coloured.

#[test]
fn every_size_can_be_drawn_and_no_cell_holds_what_a_terminal_obeys() {
    for noun in [TopNoun::Herd, TopNoun::Agents] {
        for (width, height) in [(0, 0), (1, 1), (39, 24), (40, 10), (79, 11), (400, 150)] {
            let mut seat = Seat::new(noun, "admin", (width, height));
            seat.answer(Ask::Agents, agents());
            seat.types("G");
            let buffer = seat.drawn(true);
            let is_obeyed = |cell: &&Cell| cell.symbol().chars().any(char::is_control);
            assert_eq!(buffer.content.iter().find(is_obeyed), None, "{noun:?} {width}x{height}");
        }
    }
    assert!(of_agents(LARGE).text().contains("evil?[2J: its clone was refused"));
    let small = Seat::new(TopNoun::Herd, "admin", (60, 3)).text();
    assert_eq!(small.trim(), "60x3: drover top draws on 40x10 or more");
}

#[test]
fn without_colours_nothing_is_coloured_and_the_cursor_is_still_seen() {
    use ratatui::style::Color;
    let seat = of_agents(SMALL);
    let colours = |color: bool| {
        let buffer = seat.drawn(color);
        buffer
            .content
            .iter()
            .filter(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset)
            .count()
    };
    assert!(colours(true) > 0);
    assert_eq!(colours(false), 0);
    assert_eq!(seat.text().lines().filter(|line| line.starts_with('>')).count(), 1);
}
