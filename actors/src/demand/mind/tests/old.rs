//! Runners whose program is too old for their source.

use super::*;
use crate::runners::TooOld;

const TEXT: &str = "its actions/runner 2.310.2 is too old";

impl Play {
    /// The guest of one says that its runner ended so.
    fn broke(&mut self, n: u32, how: Ending) {
        let now = at(self.now).mono;
        let kept = &mut self.runners.get_mut(&name(n)).expect("a runner").kept;
        kept.ended = Some(End { at: now, over: now, how });
    }

    /// The guest of one that was started for a job with the label `linux` says that it is too old.
    fn says_too_old(&mut self, n: u32) {
        self.broke(n, Ending::Well);
        let (template, want, text) = (template(), labels(&["linux"]), TEXT.to_owned());
        let kept = &mut self.runners.get_mut(&name(n)).expect("a runner").kept;
        kept.too_old = Some(TooOld { template, want, text });
    }

    /// Looks until a look wants this; gives how long that took.
    fn until_wanted(&mut self, jobs: &[&[&str]], wanted: &str) -> u64 {
        let from = self.now;
        while !reported(&self.sees(&[], jobs)).iter().any(|reported| reported.starts_with(wanted)) {
            assert!(self.now - from < 1000, "{wanted} was not wanted");
        }
        self.now - from
    }
}

// Invariant: a runner that connects, is given no job and ends is given up as soon as its guest says so.

#[test]
fn a_runner_that_connected_and_ended_without_a_job_is_given_up_once_its_guest_says_so() {
    let ways: [fn(&mut Play); 2] =
        [|play| play.says_too_old(1), |play| play.broke(1, Ending::Badly)];
    for ends in ways {
        let mut play = Play::new(spec());
        play.start_runner(1);
        play.sees(&[(1, true, 0)], &[]);
        let effects = reported(&play.sees(&[(1, false, 0)], &[]));
        assert!(effects.contains(&"ask of l1".to_owned()), "{effects:?}");
        ends(&mut play);
        let effects = reported(&play.sees(&[(1, false, 0)], &[]));
        let text = "l1 fails: its runner had no job and ended after it connected to source `git`"
            .to_owned();
        assert!(effects.contains(&text), "{effects:?}");
    }
}

#[test]
fn a_runner_that_left_and_whose_guest_says_nothing_may_come_back() {
    let mut play = Play::new(spec());
    play.start_runner(1);
    play.sees(&[(1, true, 0)], &[]);
    let fails =
        |effects: Vec<Effect>| reported(&effects).iter().any(|reported| reported.contains("fails"));
    for _ in 0..5 {
        assert!(!fails(play.sees(&[(1, false, 0)], &[])), "at {}", play.now);
    }
    play.now += spec().register.as_secs();
    assert!(fails(play.sees(&[(1, false, 0)], &[])));
}

// Invariant: a template whose runners are too old costs few machines, is shown, and keeps no other job of the
// source waiting.

#[test]
fn what_runners_are_too_old_for_is_tried_ever_less_often_and_other_jobs_are_wanted_meanwhile() {
    let mut play = Play::new(spec());
    let jobs: &[&[&str]] = &[&["linux"], &["linux"], &["gpu"]];
    let mut pauses = Vec::new();
    for n in 1..5 {
        play.start_runner(n);
        play.sees(&[(n, true, 0)], jobs);
        play.says_too_old(n);
        let effects = reported(&play.sees(&[(n, false, 0)], jobs));
        assert_eq!(effects[0], format!("image of {} is too old", template()), "once for each");
        assert!(effects[1].starts_with(&format!("l{n} fails")), "{effects:?}");
        assert_eq!(effects[2], format!("wants [1] on [l{n} full]"), "the other kind alone");
        play.runners.clear();
        pauses.push(play.until_wanted(jobs, "wants [1 1]"));
    }
    assert_eq!(pauses, [20, 40, 80, 160]);
    let shown = play.mind.status(0);
    assert_eq!((shown.waiting, shown.unoffered, play.mind.unserved()), (1, 2, 4));
    let lacks = format!("runners of template {} are given no job: {TEXT}", template());
    assert_eq!(shown.lacks, std::slice::from_ref(&lacks));
    let unoffered = play.mind.report(&play.runners).unoffered;
    assert_eq!(unoffered, [Unoffered { want: labels(&["linux"]), lacks }]);

    play.start_runner(5);
    let effects = reported(&play.sees(&[(5, true, 1)], jobs));
    assert_eq!(effects.last(), Some(&"wants [2 1] on [l5 1]".to_owned()), "one works");
    assert_eq!((play.mind.unserved(), play.mind.status(1).unoffered), (0, 0));
}

#[test]
fn what_a_guest_says_of_a_runner_that_was_given_up_already_counts_once() {
    let mut play = Play::new(spec());
    play.start_runner(1);
    play.now = 70;
    let effects = reported(&play.sees(&[(1, false, 0)], &[&["linux"]]));
    assert!(effects[0].starts_with("l1 fails: its runner did not connect"), "{effects:?}");
    play.says_too_old(1);
    for _ in 0..3 {
        play.wait(1);
    }
    // The one that did not connect, and that it is too old.
    assert_eq!(play.mind.unserved(), 2);
    assert_eq!(play.mind.status(1).lacks.len(), 1);
}

#[test]
fn a_runner_of_an_operators_own_command_that_is_too_old_is_not_waited_for() {
    let mut play = Play::new(spec());
    play.start_runner(1);
    play.says_too_old(1);
    play.broke(1, Ending::Left);
    let mut effects = Vec::new();
    while effects.is_empty() {
        assert!(play.now < 30, "it is waited for");
        effects = reported(&play.sees(&[(1, false, 0)], &[]));
        effects.retain(|reported| reported.contains("fails"));
    }
    assert!(
        effects[0].starts_with("l1 fails: its runner ended before it connected"),
        "{effects:?}"
    );
}

#[test]
fn a_configuration_that_comes_into_force_has_what_runners_were_too_old_for_tried_at_once() {
    let mut play = Play::new(spec());
    play.start_runner(1);
    play.sees(&[(1, true, 0)], &[]);
    play.says_too_old(1);
    play.sees(&[(1, false, 0)], &[]);
    play.runners.clear();
    let same = Arc::new((**play.mind.spec()).clone());
    play.step(Event::Apply(Some(same)));
    assert_eq!(play.until_wanted(&[&["linux"], &["linux"]], "wants [1]"), 0);
}

#[test]
fn a_runner_whose_row_went_after_a_job_that_no_look_saw_ends_what_was_too_old() {
    for badly in [false, true] {
        let mut play = Play::new(spec());
        play.start_runner(1);
        play.sees(&[(1, true, 0)], &[]);
        play.says_too_old(1);
        play.sees(&[(1, false, 0)], &[]);
        play.runners.clear();
        play.start_runner(2);
        play.sees(&[(2, true, 0)], &[]);
        play.broke(2, if badly { Ending::Badly } else { Ending::Well });
        let effects = reported(&play.sees(&[], &[]));
        assert!(effects.contains(&"l2 is done".to_owned()), "{effects:?}");
        assert_eq!(play.mind.unserved(), u32::from(badly));
    }
}

#[test]
fn what_runners_were_too_old_for_is_reported_until_no_job_has_wanted_it_for_a_quarter_of_an_hour() {
    let mut play = Play::new(spec());
    play.start_runner(1);
    play.sees(&[(1, true, 0)], &[&["linux"]]);
    play.says_too_old(1);
    play.sees(&[(1, false, 0)], &[&["linux"]]);
    play.runners.clear();
    play.sees(&[], &[]);
    play.sees(&[], &[&["linux"]]);
    play.sees(&[], &[]);
    let from = play.now;
    while play.mind.unserved() > 0 {
        assert!(play.now - from < 5000, "it is shown for ever");
        play.sees(&[], &[]);
    }
    assert_eq!(play.now - from, 900);
}

// Invariant: runners that connect and end without a job are tried ever less often, whatever they say.

#[test]
fn after_runners_that_connected_and_ended_without_a_job_nothing_is_wanted_for_ever_longer() {
    let mut play = Play::new(spec());
    let mut pauses = Vec::new();
    for n in 1..4 {
        play.start_runner(n);
        play.sees(&[(n, true, 0)], &[&["linux"]]);
        play.broke(n, Ending::Badly);
        play.sees(&[(n, false, 0)], &[&["linux"]]);
        play.runners.clear();
        pauses.push(play.until_wanted(&[&["linux"]], "wants [1]"));
    }
    assert_eq!(pauses, [20, 40, 80]);
    play.start_runner(4);
    play.sees(&[(4, true, 1)], &[]);
    assert_eq!(play.mind.unserved(), 0);
}
