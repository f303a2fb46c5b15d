//! What looks themselves find that keeps runners from being made.

use super::refusals::refusing;
use super::*;

/// A look at a source with two jobs, which finds this.
fn finds(play: &mut Play, obstacle: Option<&str>) -> Vec<String> {
    let obstacle = obstacle.map(str::to_owned);
    reported(
        &play.poll(Ok(SourceObservation {
            obstacle,
            ..observation(&[], &[&["linux"], &["linux"]])
        })),
    )
}

/// Since when it lets no runner be made by its status, and why.
fn refusal(play: &Play) -> Option<(WallTime, String)> {
    play.mind.status(0).refused
}

// Invariant: what a poll finds against runners is shown as long as polls find it, and costs no machine.

#[test]
fn what_a_look_finds_against_runners_is_reported_and_nothing_is_wanted_until_it_is_found_no_more() {
    let mut play = Play::new(spec());
    assert_eq!(finds(&mut play, Some("403: it lacks a right")), ["wants [] on []"]);
    let first = at(play.now).wall;
    assert_eq!(refusal(&play), Some((first, "403: it lacks a right".to_owned())));
    // A trial knows less than the look.
    play.step(Event::Probed(Ok(None)));
    for _ in 0..100 {
        assert_eq!(finds(&mut play, Some("it is too old")), ["wants [] on []"]);
    }
    assert_eq!(refusal(&play), Some((first, "it is too old".to_owned())), "since the first");
    assert_eq!(finds(&mut play, None), ["wants [2] on []"], "at once");
    assert_eq!((refusal(&play), play.mind.unserved()), (None, 0));
}

#[test]
fn a_runner_that_works_ends_what_was_refused_and_not_what_looks_find() {
    let mut play = refusing();
    play.start_runner(2);
    let works = |obstacle: Option<&str>| {
        let obstacle = obstacle.map(str::to_owned);
        Ok(SourceObservation { obstacle, ..observation(&[(2, true, 1)], &[]) })
    };
    play.poll(works(Some("no node can be made")));
    assert_eq!(refusal(&play).map(|(_, text)| text).as_deref(), Some("no node can be made"));
    assert_eq!(play.mind.unserved(), 0, "one works");
    play.poll(works(None));
    assert_eq!(refusal(&play), None);
}

#[test]
fn a_source_that_refused_a_runner_is_tried_with_one_when_a_look_finds_no_more_against_it() {
    let mut play = refusing();
    let lacks = "it lacks a right".to_owned();
    play.step(Event::Probed(Ok(Some(lacks))));
    finds(&mut play, Some("it is too old"));
    let effects = (0..20).flat_map(|_| finds(&mut play, None)).collect::<Vec<_>>();
    assert!(effects.contains(&"wants [1] on []".to_owned()), "{effects:?}");
    assert!(!effects.contains(&"wants [2] on []".to_owned()), "{effects:?}");
}

// Invariant: it is logged where it changed, and not at every look.

#[test]
fn what_a_look_finds_is_news_once() {
    let mut trouble = Trouble::default();
    let mut find = |found| trouble.find(found, at(0));
    let all = [Some("a"), Some("a"), Some("b"), Some("b"), None, None, Some("a")];
    assert_eq!(all.map(&mut find), [true, false, true, false, true, false, true]);
    let mut trouble = Trouble::default();
    trouble.refuse("another reason", at(0));
    assert!(!trouble.find(None, at(0)), "a refusal is not what looks found");
    assert!(trouble.is_on_trial());
}

// Invariant: a source that was silent before a start is shown as silent since then, until a poll succeeds.

#[test]
fn a_source_is_silent_since_before_a_start_until_it_answers() {
    let mut play = Play::new(spec());
    play.mind = play.mind.clone().silent_from(Some(at(3).wall));
    assert_eq!(play.mind.silent_since(), Some(at(3).wall), "nothing is known yet");
    assert_eq!(play.mind.status(0).outage, None);
    play.now = 100;
    play.poll(silent());
    assert_eq!(play.mind.status(0).outage.map(|(since, _)| since), Some(at(3).wall));
    play.poll(Ok(observation(&[], &[])));
    assert_eq!(play.mind.silent_since(), None);
    play.now = 900;
    play.poll(silent());
    assert_eq!(play.mind.silent_since(), Some(at(play.now).wall));
}
