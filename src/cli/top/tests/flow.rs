//! Moving about, and when the service is asked.

use super::*;

fn of_agents() -> Seat {
    let mut seat = Seat::new(TopNoun::Agents, "operator", (80, 24));
    seat.answer(Ask::Agents, agents());
    seat
}

/// So many agents, each with its number as its id.
fn many(count: usize) -> Value {
    let all: Vec<Value> = (0..count)
        .map(|at| agent(&format!("{at:016}"), "lab/linux", "Ready", "pve1", ""))
        .collect();
    json!({ "agents": all, "gone": [] })
}

// Invariant: a key moves what is in front, the cursor stays on its thing, and is always on the screen.

#[test]
fn keys_move_the_cursor_by_rows_pages_and_to_both_ends() {
    let mut seat = Seat::new(TopNoun::Agents, "operator", (80, 24));
    seat.answer(Ask::Agents, many(100));
    let number = |seat: &Seat| seat.subject().parse::<usize>().unwrap();
    for (key, expected) in [
        (Key::Char('j'), 1),
        (Key::Down, 2),
        (Key::Char('k'), 1),
        (Key::Up, 0),
        (Key::Up, 0),
        (Key::PageDown, 17),
        (Key::PageDown, 34),
        (Key::PageUp, 17),
        (Key::Char('G'), 99),
        (Key::Down, 99),
        (Key::Char('g'), 0),
        (Key::End, 99),
        (Key::Home, 0),
    ] {
        seat.key(key);
        assert_eq!(number(&seat), expected, "{key:?}");
        assert!(seat.text().contains("\n>"), "{key:?}: the cursor is on the screen");
    }
}

#[test]
fn the_cursor_follows_its_thing_and_at_the_top_it_stays_at_the_top() {
    let mut seat = of_agents();
    seat.types("jj");
    assert_eq!(seat.subject(), "9d3h6n1b7s4xfpea");
    let mut answer = agents();
    answer["agents"].as_array_mut().unwrap().remove(0);
    seat.answer(Ask::Agents, answer.clone());
    assert_eq!(seat.subject(), "9d3h6n1b7s4xfpea");
    seat.types("g");
    seat.answer(Ask::Agents, agents());
    assert_eq!(seat.subject(), "4f8z1c3qx9t2vkab");
    answer["agents"] = json!([]);
    seat.answer(Ask::Agents, answer);
    assert_eq!(seat.subject(), "");
    assert_eq!(seat.types("jGkgt"), [], "an empty list has nothing to act on");
}

#[test]
fn words_and_their_starts_lead_to_lists_and_esc_leads_back() {
    let mut seat = of_agents();
    for (typed, noun) in [
        (":leases\n", TopNoun::Leases),
        (":temp\n", TopNoun::Templates),
        (":status\n", TopNoun::Herd),
        (":GONE\n", TopNoun::Gone),
    ] {
        seat.types(typed);
        assert_eq!(seat.top.shown.noun, noun, "{typed}");
    }
    for noun in
        [TopNoun::Herd, TopNoun::Templates, TopNoun::Leases, TopNoun::Agents, TopNoun::Agents]
    {
        seat.key(Key::Esc);
        assert_eq!(seat.top.shown.noun, noun);
    }
    seat.types(":al");
    seat.key(Key::Tab);
    seat.key(Key::Enter);
    assert_eq!(seat.top.shown.noun, TopNoun::Alarms);
    // Two lists begin so.
    seat.types(":a\n");
    assert!(seat.text().contains("`a` is none of: herd, agents"), "{}", seat.text());
    for end in [":q\n", "q"] {
        assert_eq!(seat.types(end), [Effect::End]);
    }
}

// Invariant: a filter leaves what it says and nothing else, while it is typed already.

#[test]
fn filters_are_texts_columns_and_their_contrary() {
    let mut seat = of_agents();
    let mut left = |filter: &str| {
        seat.key(Key::Esc);
        seat.types(&format!("/{filter}"));
        let typed = seat.top.shown.order.clone();
        seat.types("\n");
        assert_eq!(seat.top.shown.order, typed, "{filter}");
        typed
    };
    assert_eq!(left("linux"), [0, 1]);
    assert_eq!(left("!linux"), [2, 3]);
    assert_eq!(left("state=ready"), [1]);
    assert_eq!(left("PVE1 linux"), [0]);
    assert_eq!(left("nothing-such"), [0_usize; 0]);
    seat.key(Key::Esc);
    assert_eq!(seat.top.shown.order.len(), 4, "Esc takes it back");
    seat.types("/colour=red\n");
    assert!(seat.text().contains("this list has no column `colour`"), "{}", seat.text());
}

#[test]
fn the_sort_key_goes_through_the_columns_and_back_to_the_order_of_the_service() {
    let mut seat = of_agents();
    seat.types("sss");
    assert!(seat.text().contains("by STATE"), "{}", seat.text());
    assert_eq!(seat.top.shown.order, [0, 2, 1, 3]);
    seat.types("S");
    assert_eq!(seat.top.shown.order, [3, 1, 2, 0]);
    for _ in 0..7 {
        seat.types("s");
    }
    assert_eq!((seat.top.shown.sort, &seat.top.shown.order[..]), (None, &[0, 1, 2, 3][..]));
}

// Invariant: what is shown is asked for at most once a second, after an event that moved it, and nothing else is.

#[test]
fn events_bring_the_list_again_and_a_storm_of_them_does_so_once_a_second() {
    let mut seat = of_agents();
    let mut asked = Vec::new();
    for tenth in 0..50 {
        let mut effects = seat.step(happened(&format!("1-{tenth}"), "Ready"));
        effects.extend(seat.after(100));
        for effect in effects {
            let Effect::Ask(ask) = effect else { panic!("{effect:?}") };
            asked.push((ask, seat.now_ms));
            let answer = if ask == Ask::Agents { agents() } else { status() };
            seat.answer(ask, answer);
        }
    }
    let of_agents: Vec<u64> =
        asked.iter().filter(|(ask, _)| *ask == Ask::Agents).map(|(_, ms)| *ms).collect();
    assert_eq!(of_agents, [1000, 2000, 3000, 4000, 5000]);
    assert_eq!(asked.iter().filter(|(ask, _)| *ask == Ask::Status).count(), 1, "{asked:?}");
}

#[test]
fn calls_do_not_pile_up_while_the_service_answers_nothing() {
    let top = Top::new("/run/drover/drover.sock", "drover", TopNoun::Agents, false, clock(0));
    let mut seat = Seat { top, now_ms: 0 };
    let mut calls = seat.after(0);
    for _ in 0..600 {
        calls.extend(seat.after(250));
    }
    assert_eq!(calls, [Effect::Ask(Ask::Agents), Effect::Ask(Ask::Status), Effect::Who]);
    let mut seat = of_agents();
    let mut whys = usize::from(seat.types("\n") == [Effect::Why("4f8z1c3qx9t2vkab".to_owned())]);
    for _ in 0..600 {
        whys += seat.after(250).iter().filter(|one| matches!(one, Effect::Why(_))).count();
    }
    assert_eq!(whys, 1);
}

#[test]
fn a_detail_follows_its_thing_and_says_when_it_left_the_list() {
    let mut seat = of_agents();
    seat.types("\n");
    let mut answer = agents();
    answer["agents"][0]["detail"] = json!("answers now");
    seat.answer(Ask::Agents, answer);
    assert!(seat.text().contains("answers now"), "{}", seat.text());
    seat.answer(Ask::Agents, json!({"agents": [], "gone": []}));
    assert!(seat.text().contains("(not in the list any more)"), "{}", seat.text());
}

#[test]
fn a_detail_of_a_node_stays_with_it_where_another_cluster_has_one_of_its_name() {
    let mut seat = Seat::new(TopNoun::Nodes, "admin", (80, 24));
    let answer = |clusters: &[&str]| {
        let node = |cluster: &&str| {
            json!({"cluster": cluster, "node": "pve1", "state": "online", "agents": 2, "guests": 1,
                "room": null, "refuses": []})
        };
        json!({ "nodes": clusters.iter().map(node).collect::<Vec<_>>(), "unread": [] })
    };
    seat.answer(Ask::Nodes, answer(&["c1", "c2"]));
    seat.types("j\n");
    seat.answer(Ask::Nodes, answer(&["c1", "c2"]));
    seat.types("d");
    let effects = seat.types("y");
    let [Effect::Run(action), ..] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!(action.command("drover"), "drover drain pve1 --cloud rack");
    seat.answer(Ask::Nodes, answer(&["c1"]));
    assert!(seat.text().contains("(not in the list any more)"), "{}", seat.text());
}

#[test]
fn a_detail_at_its_end_stays_there_and_elsewhere_where_it_is() {
    let mut seat = of_agents();
    seat.types("\nG");
    let last = |seat: &Seat| seat.text().contains("drover retire 4f8z1c3qx9t2vkab");
    assert!(last(&seat), "{}", seat.text());
    seat.step(happened("1-1", "Cloning"));
    seat.step(happened("1-2", "Booting"));
    assert!(last(&seat), "{}", seat.text());
    seat.types("k");
    assert!(!last(&seat), "{}", seat.text());
    let before = seat.top.scroll;
    seat.step(happened("1-3", "Ready"));
    assert_eq!(seat.top.scroll, before);
}

#[test]
fn the_row_of_leases_in_the_herd_leads_to_the_leases() {
    let mut seat = Seat::new(TopNoun::Herd, "viewer", (80, 24));
    seat.types("G");
    assert_eq!(seat.types("\n"), [Effect::Ask(Ask::Leases)]);
    assert_eq!(seat.top.shown.noun, TopNoun::Leases);
    seat.key(Key::Esc);
    assert_eq!(seat.top.shown.noun, TopNoun::Herd);
}

// Invariant: a list of any length takes bounded room, and says what it leaves off.

#[test]
fn rows_beyond_the_limit_are_counted_and_not_kept() {
    let mut seat = Seat::new(TopNoun::Agents, "viewer", (80, 24));
    seat.answer(Ask::Agents, many(super::super::ROWS_MAX + 7));
    assert!(seat.text().contains("agents: 10000 (7 more are left off)"), "{}", seat.text());
}
