//! What keys do to the herd.

use clap::Parser as _;

use super::super::super::options::Cli;
use super::super::action::{self, Action};
use super::super::listing::Entry;
use super::*;

/// A screen with a list of things that actions are for.
fn seat_of(noun: TopNoun, role: &str) -> Seat {
    let mut seat = Seat::new(noun, role, (80, 24));
    seat.answer(Ask::Agents, agents());
    seat.answer(Ask::Leases, leases());
    seat.answer(Ask::Nodes, nodes());
    seat.answer(Ask::Templates, templates());
    let breaker = json!({"id": "node:pve1", "state": "tripped", "retryAt": null, "cause": null,
        "template": "lab/linux"});
    seat.answer(Ask::Breakers, json!({"breakers": [breaker]}));
    seat
}

/// Every key that does something, each with its command, and the role that it needs.
fn commands() -> Vec<(TopNoun, char, String)> {
    let all = action::every().map(|(noun, key)| {
        let noun = noun.unwrap_or(TopNoun::Agents);
        let mut seat = seat_of(noun, "admin");
        seat.types(&key.key.to_string());
        let effects = seat.types("y");
        let [Effect::Run(action), ..] = &effects[..] else { panic!("{key:?}: {effects:?}") };
        (noun, key.key, action.command("drover"))
    });
    all.collect()
}

// Invariant: an action is the command that is shown, it is one of the command line, and nothing runs before a
// yes.

#[test]
fn every_action_is_a_command_of_the_command_line() {
    let all = commands();
    let lines: Vec<String> =
        all.iter().map(|(noun, key, line)| format!("{:<10} {key}  {line}", noun.word())).collect();
    insta::assert_snapshot!(lines.join("\n"));
    for (_, _, line) in &all {
        let words: Vec<&str> = line.split(' ').collect();
        assert!(Cli::try_parse_from(words).is_ok(), "{line}");
    }
}

#[test]
fn what_is_pasted_or_typed_blindly_answers_no_question() {
    let mut seat = seat_of(TopNoun::Agents, "admin");
    assert_eq!(seat.types("type"), []);
    assert!(seat.text().contains("drover retire 4f8z1c3qx9t2vkab"), "{}", seat.text());
    assert_eq!(seat.types("n"), []);
    assert!(seat.text().contains("nothing was changed"));
}

#[test]
fn nothing_runs_unless_the_answer_is_yes() {
    for answer in [Key::Char('n'), Key::Enter, Key::Esc, Key::Char(' '), Key::Char('t')] {
        let mut seat = seat_of(TopNoun::Agents, "admin");
        assert_eq!(seat.types("t"), []);
        assert!(seat.text().contains("drover retire 4f8z1c3qx9t2vkab"));
        assert_eq!(seat.key(answer), [], "{answer:?}");
        assert!(seat.text().contains("nothing was changed"), "{answer:?}");
        assert_eq!(seat.types("y"), [], "the question is over");
    }
}

#[test]
fn the_question_is_about_the_thing_that_was_under_the_cursor_although_rows_move() {
    let mut seat = seat_of(TopNoun::Agents, "admin");
    seat.types("jt");
    let mut answer = agents();
    answer["agents"].as_array_mut().unwrap().remove(1);
    seat.answer(Ask::Agents, answer);
    let words = vec!["retire".to_owned(), "7kq0m2w8r5y1tdca".to_owned()];
    let least = drover_api::Role::Operator;
    assert_eq!(seat.types("y"), [Effect::Run(Action { words, least })]);
}

#[test]
fn a_node_names_its_cloud_only_where_there_are_several_clusters() {
    let entry = |cluster: &str| Entry {
        noun: TopNoun::Nodes,
        name: "pve 1".to_owned(),
        thing: json!({"cluster": cluster}),
    };
    let clouds = |all: &[(&str, &str)]| -> Vec<(String, String)> {
        all.iter().map(|(cloud, cluster)| ((*cloud).to_owned(), (*cluster).to_owned())).collect()
    };
    let line = |cluster: &str, all: &[(&str, &str)]| {
        Action::of('c', Some(&entry(cluster)), &clouds(all)).unwrap().command("drover")
    };
    assert_eq!(line("c1", &[("lab", "c1"), ("lab2", "c1")]), "drover cordon 'pve 1'");
    assert_eq!(line("c2", &[("lab", "c1"), ("rack", "c2")]), "drover cordon 'pve 1' --cloud rack");
    assert_eq!(line("c3", &[("lab", "c1"), ("rack", "c2")]), "drover cordon 'pve 1'");
}

// Invariant: a command that was started is broken off by nobody who did not mean to.

#[test]
fn who_leaves_while_a_command_runs_says_so_twice() {
    for keys in ["q", ":q\n"] {
        let mut seat = seat_of(TopNoun::Agents, "admin");
        seat.types("t");
        seat.types("y");
        assert_eq!(seat.types(keys), [], "{keys}");
        assert!(seat.text().contains("a command still runs"), "{}", seat.text());
        seat.types("j");
        assert_eq!(seat.types("q"), [], "another key takes it back");
        assert_eq!(seat.types("q"), [Effect::End]);
    }
    let mut seat = seat_of(TopNoun::Agents, "admin");
    seat.types("t");
    seat.types("y");
    seat.step(Input::Did { text: "it goes".to_owned(), is_good: true });
    assert_eq!(seat.types("q"), [Effect::End], "nothing runs any more");
}

// Invariant: nobody is offered, and no key begins, what its role may not do; with --readonly nothing.

#[test]
fn a_role_has_the_keys_that_the_service_takes_from_it() {
    let mut offered = String::new();
    for role in ["viewer", "operator", "admin"] {
        for noun in [TopNoun::Agents, TopNoun::Templates, TopNoun::Leases] {
            let mut seat = seat_of(noun, role);
            let text = seat.text();
            offered +=
                &format!("{role} {}: {}\n", noun.word(), text.lines().last().unwrap().trim());
            for one in action::of_one(noun).iter().chain(action::of_all()) {
                seat.types(&one.key.to_string());
                let is_asked = seat.text().contains("y: run it");
                assert_eq!(is_asked, seat.top.role() >= Some(one.least), "{role} {one:?}");
                seat.key(Key::Esc);
            }
        }
    }
    insta::assert_snapshot!(offered);
}

#[test]
fn readonly_refuses_every_action_and_says_so() {
    for (noun, key, _) in commands() {
        let mut seat = seat_of(noun, "admin");
        seat.top.is_readonly = true;
        seat.types(&key.to_string());
        let text = seat.text();
        assert!(text.contains("drover top was started with --readonly"), "{noun:?} {key}: {text}");
        assert_eq!(seat.types("y"), [], "{noun:?} {key}");
        assert!(text.contains("READ ONLY") && !text.contains("retire"), "{text}");
    }
}

#[test]
fn a_viewer_does_not_see_what_the_service_asks_its_clusters_for() {
    let mut seat = seat_of(TopNoun::Agents, "viewer");
    seat.types(":nodes\n");
    assert_eq!(seat.top.shown.noun, TopNoun::Agents);
    assert!(seat.text().contains("only operators may see nodes"), "{}", seat.text());
    assert_eq!(seat.types("\n"), [], "nor why an agent waits");
    seat.types(":x\n");
    assert!(!seat.text().contains("nodes"), "{}", seat.text());
}

// Invariant: what a command printed is read in full, and the list is asked for again.

#[test]
fn what_an_action_printed_is_a_note_or_a_pane_of_its_own() {
    let mut seat = seat_of(TopNoun::Agents, "admin");
    seat.step(Input::Did { text: "2 agents asked to go\n".to_owned(), is_good: true });
    assert!(seat.text().contains("2 agents asked to go"));
    let key = "agent a is held\nthe key to log in with:\n-----BEGIN\u{7}-----\n";
    seat.step(Input::Did { text: key.to_owned(), is_good: true });
    let text = seat.text();
    assert!(
        text.contains("what the command printed") && text.contains("-----BEGIN?-----"),
        "{text}"
    );
    assert_eq!(seat.after(1000), [Effect::Ask(Ask::Agents)]);
    seat.key(Key::Esc);
    assert!(!seat.text().contains("BEGIN"), "Esc closes it");
}
