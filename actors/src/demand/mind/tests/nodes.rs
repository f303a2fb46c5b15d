//! Runners that are nodes: they take job after job until they are cordoned, and others may shut
//! them too.

use drover_model::demand::report::{Unoffered, UnreadJob};
use drover_model::ports::NodeObservation;

use super::*;

/// A source like Jenkins, with one runner that may take so many builds.
fn play(most: u32) -> Play {
    let mut play = Play::new(SourceSpec { whole: true, early: true, brisk: seconds(2), ..spec() });
    play.start_runner(1);
    play.runners.get_mut(&name(1)).expect("a runner").most = most;
    play
}

// Invariant: a node is cordoned as soon as it was seen with as many builds as it may
// take, each counted once, and goes when the last of them is over.

#[test]
fn builds_are_counted_once_each_however_often_they_are_seen() {
    let mut play = play(3);
    assert_eq!(play.node(&["a/1"], Shut::Open), ["1 began"]);
    assert!(play.node(&["a/1"], Shut::Open).is_empty());
    assert!(play.node(&[], Shut::Open).is_empty());
    assert_eq!(play.node(&["a/2"], Shut::Open), ["2 began"]);
    let reported = play.node(&["b/1"], Shut::Open);
    assert_eq!(reported, ["3 began", "quiet 1"], "one after the other, no pause seen");
    assert!(play.node(&["b/1"], Shut::Quiet).is_empty(), "cordoned once");
    assert_eq!(play.node(&[], Shut::Quiet), ["l1 is done"]);
}

#[test]
fn builds_on_several_executors_count_each() {
    let mut play = play(2);
    assert_eq!(play.node(&["a/1", "b/1"], Shut::Open), ["2 began", "quiet 1"]);
    assert!(play.node(&["b/1"], Shut::Quiet).is_empty());
    assert_eq!(play.node(&[], Shut::Quiet), ["l1 is done"]);
}

#[test]
fn builds_without_an_id_count_when_there_are_more_of_them() {
    let mut play = play(2);
    let mut poll = |jobs: u32| {
        let effects = reported(&play.sees(&[(1, true, jobs)], &[]));
        effects.iter().any(|reported| reported == "quiet 1")
    };
    assert_eq!([1, 1, 0, 1].map(&mut poll), [false, false, false, true]);
}

#[test]
fn reporting_a_node_is_tried_again_and_given_up_after_three_times() {
    let mut play = play(1);
    play.cordons = (0..9).map(|_| silent().map(drop)).collect();
    let mut reported = Vec::new();
    for _ in 0..5 {
        reported.extend(play.node(&["a/1"], Shut::Open));
    }
    assert_eq!(reported, ["quiet 1", "quiet 1", "quiet 1"]);
    assert_eq!(play.node(&[], Shut::Open), ["l1 is done"], "it goes all the same");
}

#[test]
fn a_node_goes_only_after_a_look_that_began_once_it_knew() {
    let mut play = play(1);
    play.node(&["a/1"], Shut::Open);
    // The answer to the word is not there yet.
    play.mind.observed.get_mut(&name(1)).expect("seen").cordoned = None;
    assert!(play.node(&[], Shut::Open).is_empty());
    play.step(Event::Cordoned(name(1), Ok(())));
    assert_eq!(play.node(&[], Shut::Quiet), ["l1 is done"]);
}

// Invariant: what an earlier start of the service cordoned stays cordoned.

#[test]
fn builds_that_were_counted_before_a_start_are_not_counted_again() {
    for (began, on, reported) in [
        (2, vec!["a/2"], vec![]),
        (2, vec!["a/2", "a/3"], vec![]),
        (3, vec!["a/2"], vec!["quiet 1"]),
        (0, vec!["a/1"], vec!["1 began"]),
    ] {
        let mut play = play(3);
        play.runners.get_mut(&name(1)).expect("a runner").kept.entry.began = began;
        assert_eq!(play.node(&on, Shut::Open), reported, "{began} {on:?}");
        assert_eq!(play.mind.observed[&name(1)].began, began.max(u32::from(began == 0)));
    }
}

#[test]
fn a_node_that_was_reported_before_goes_when_it_is_idle() {
    let mut play = play(3);
    assert_eq!(play.node(&["a/1"], Shut::Quiet), ["1 began"]);
    assert_eq!(play.node(&[], Shut::Quiet), ["l1 is idle"]);
}

// Invariant: a node that a person shut is left to them, and one that its source shut is replaced.

#[test]
fn a_node_that_a_person_took_off_is_kept_and_takes_no_place() {
    let mut play = play(3);
    play.node(&["a/1"], Shut::Open);
    let all = |play: &mut Play, shut: Shut| {
        let mut observation = observation(&[(1, true, 0)], &[&["linux"]]);
        observation.rows[0].node = NodeObservation { shut, ..NodeObservation::default() };
        reported(&play.poll(Ok(observation)))
    };
    assert_eq!(all(&mut play, Shut::Person), ["wants [1] on [l1 full]"]);
    play.now += 10_000;
    assert_eq!(all(&mut play, Shut::Person), ["wants [1] on [l1 full]"], "idle for long");
    assert_eq!(all(&mut play, Shut::Open), ["wants [1] on [l1 0]"], "and given back");
    play.now += 300;
    assert_eq!(all(&mut play, Shut::Open)[0], "quiet 1");
}

#[test]
fn a_node_that_a_person_took_off_after_its_builds_goes() {
    let mut play = play(1);
    assert_eq!(play.node(&["a/1"], Shut::Person), ["quiet 1"]);
    assert_eq!(play.node(&[], Shut::Person), ["l1 is done"]);
}

#[test]
fn a_node_that_its_source_finds_unfit_fails_for_that_reason() {
    let mut play = play(3);
    play.node(&[], Shut::Open);
    let unfit = Shut::Unfit("Disk space is too low".into());
    assert_eq!(play.node(&["a/1"], unfit.clone()), ["1 began"], "it goes on");
    let reported = play.node(&[], unfit);
    assert_eq!(reported, ["l1 fails: source `git` took its runner off: Disk space is too low"]);
}

#[test]
fn why_a_node_is_not_connected_is_reported() {
    let mut play = play(1);
    let poll = |play: &mut Play| {
        let mut observation = observation(&[(1, false, 0)], &[]);
        observation.rows[0].node.reason = Some("Connection refused".into());
        reported(&play.poll(Ok(observation)))
    };
    poll(&mut play);
    play.now += 60;
    let reported = poll(&mut play);
    assert!(reported[0].ends_with("reaches it; Connection refused"), "{reported:?}");
}

// Invariant: the shorter of both idle times holds.

#[test]
fn a_template_may_be_less_patient_than_its_source() {
    let mut play = play(9);
    play.runners.get_mut(&name(1)).expect("a runner").idle = Some(seconds(30));
    play.node(&["a/1"], Shut::Open);
    play.node(&[], Shut::Open);
    play.now += 30;
    assert_eq!(play.node(&[], Shut::Open), ["quiet 1"]);
    assert_eq!(play.node(&[], Shut::Quiet), ["l1 is idle"]);
}

// Invariant: jobs that nobody serves are counted, and are not said to wait for drover.

#[test]
fn jobs_that_cannot_be_read_or_that_nobody_offers_are_counted() {
    let mut play = play(1);
    let mut observation = observation(&[], &[&["linux"], &["mars"]]);
    let unread = |id: &str| UnreadJob { id: id.into(), name: "app".into(), since: at(0).wall };
    observation.unread = vec![unread("7"), unread("8")];
    play.poll(Ok(observation));
    let mars = Unoffered { want: labels(&["mars"]), lacks: "no template has `mars`".into() };
    play.step(Event::NotOffered(Arc::from([mars])));
    let reported = play.mind.status(0);
    assert_eq!((reported.waiting, reported.unoffered, reported.ignored), (1, 1, 2));
    assert_eq!(play.mind.report(&play.runners).unread, [unread("7"), unread("8")]);
    assert_eq!(reported.lacks, ["no template has `mars`"]);
}
