//! Runners between their start in a guest and the first time that they are seen connected.

use super::*;

// Invariant: a guest whose runner never connects is retired by deadline, or as soon as it is known to
// have ended; what may yet come is waited for.

#[test]
fn a_runner_that_never_connects_fails() {
    let mut play = Play::new(spec());
    play.start_runner(1);
    play.sees(&[(1, false, 0)], &[]);
    play.now = 50;
    assert!(
        !reported(&play.sees(&[(1, false, 0)], &[]))
            .iter()
            .any(|reported| reported.contains("fails"))
    );
    play.now = 70;
    let effects = reported(&play.sees(&[(1, false, 0)], &[]));
    assert!(effects[0].starts_with("l1 fails: its runner did not connect"), "{effects:?}");
    let again = reported(&play.sees(&[(1, false, 0)], &[]));
    assert_eq!(again, ["wants [] on [l1 full]"], "once");
}

#[test]
fn a_look_that_began_before_a_runner_was_made_says_nothing_of_it() {
    let mut play = Play::new(spec());
    let mut out = play.tick();
    assert!(out.contains(&Effect::Poll), "{out:?}");
    play.now += 1;
    play.start_runner(1);
    out.extend(play.step(Event::Polled(Ok(Box::new(observation(&[], &[]))))));
    assert!(!reported(&out).contains(&"l1 is done".to_owned()), "{out:?}");
    let effects = reported(&play.sees(&[], &[]));
    assert!(effects.contains(&"ask of l1".to_owned()), "it may have had its job: {effects:?}");
}

/// A source whose runners make their rows themselves, with one that was just started.
fn late() -> Play {
    let mut play = Play::new(SourceSpec { registers: true, ..spec() });
    play.start_runner(1);
    play
}

fn verdict(effects: &[Effect]) -> Option<String> {
    reported(effects)
        .into_iter()
        .find(|reported| reported.starts_with("l1 is") || reported.starts_with("l1 fails"))
}

#[test]
fn a_runner_that_makes_its_own_row_may_do_so_until_its_time_is_over() {
    let mut play = late();
    let mut said = None;
    while said.is_none() {
        said = verdict(&play.sees(&[], &[]));
    }
    let limit = spec().register.as_secs();
    assert!((limit..limit + 20).contains(&play.now), "{}", play.now);
    let said = said.expect("a verdict");
    assert!(said.starts_with("l1 fails: its runner did not connect"), "{said}");

    let mut play = late();
    assert_eq!(verdict(&play.sees(&[], &[])), None);
    assert_eq!(verdict(&play.sees(&[(1, false, 0)], &[])), None);
    assert_eq!(verdict(&play.sees(&[], &[])), None);
    assert!(play.hears_end(Ending::Well).contains(&"l1 is done".to_owned()));
}

#[test]
fn a_runner_that_makes_its_own_row_and_was_never_seen_is_judged_by_how_it_ended() {
    let bad = "l1 fails: its runner ended before it connected";
    let all = [(Ending::Well, "l1 is done"), (Ending::Left, "l1 is done"), (Ending::Badly, bad)];
    for (how, expected) in all {
        let mut play = late();
        play.ends(how);
        let mut said = None;
        while said.is_none() && play.now < 60 {
            said = verdict(&play.sees(&[], &[]));
        }
        assert!(said.as_ref().is_some_and(|said| said.starts_with(expected)), "{said:?}");
        assert!(play.now < 30, "long before its time");
    }
}

#[test]
fn a_guest_whose_runner_is_not_seen_is_asked_about_it_ever_less_often() {
    let mut play = Play::new(SourceSpec { register: seconds(160), ..spec() });
    play.start_runner(1);
    let mut asked = Vec::new();
    while play.now < 150 {
        let effects = reported(&play.sees(&[(1, false, 0)], &[]));
        if effects.contains(&"ask of l1".to_owned()) {
            asked.push(play.now);
        }
    }
    assert_eq!(asked, [10, 20, 40, 80]);
}

#[test]
fn a_runner_that_ended_before_it_was_seen_fails_as_soon_as_its_source_has_said_so_again() {
    let mut play = Play::new(spec());
    play.start_runner(1);
    play.sees(&[(1, false, 0)], &[]);
    play.now = 8;
    play.ends(Ending::Badly);
    let fails =
        |effects: &[String]| effects.iter().any(|reported| reported.starts_with("l1 fails"));
    assert!(
        !fails(&reported(&play.sees(&[(1, false, 0)], &[]))),
        "what it reported last is under way"
    );
    let effects = reported(&play.sees(&[(1, false, 0)], &[]));
    assert!(
        effects[0].starts_with("l1 fails: its runner ended before it connected"),
        "{effects:?}"
    );
}

#[test]
fn a_command_that_may_have_started_its_runner_and_ended_has_not_ended_it() {
    let mut play = Play::new(spec());
    play.start_runner(1);
    play.ends(Ending::Left);
    while play.now + 10 < spec().register.as_secs() {
        assert_eq!(verdict(&play.sees(&[(1, false, 0)], &[])), None);
    }
}

#[test]
fn a_runner_that_ended_after_its_job_is_done_whatever_it_ended_with() {
    for rows in [&[(1, true, 1)][..], &[(1, false, 1)], &[(1, true, 0)], &[]] {
        let mut play = Play::new(spec());
        play.start_runner(1);
        play.ends(Ending::Badly);
        let mut effects = Vec::new();
        while play.now < 40 {
            effects.extend(reported(&play.sees(rows, &[])));
        }
        effects.extend(reported(&play.sees(&[], &[])));
        assert!(effects.contains(&"l1 is done".to_owned()), "{rows:?}: {effects:?}");
        assert!(
            !effects.iter().any(|reported| reported.contains("fails")),
            "{rows:?}: {effects:?}"
        );
    }
}

// Invariant: what is not seen at another URL, or with another login, means nothing for runners that
// were made before.

fn moved(play: &mut Play) {
    let other = Arc::new(SourceSpec { connection: 99, ..(**play.mind.spec()).clone() });
    let mut out = Vec::new();
    out.extend(play.step(Event::Apply(Some(other))));
}

#[test]
fn a_runner_that_is_not_seen_where_its_source_moved_is_left_to_end() {
    let mut play = Play::new(spec());
    play.start_runner(1);
    play.sees(&[(1, true, 1)], &[]);
    play.now += 1;
    moved(&mut play);
    let mut asked = false;
    while play.now < 3 * spec().register.as_secs() {
        let effects = play.sees(&[], &[]);
        assert_eq!(verdict(&effects), None, "at {}", play.now);
        asked |= reported(&effects).contains(&"ask of l1".to_owned());
    }
    assert!(asked, "its guest knows");
    play.ends(Ending::Well);
    let mut said = None;
    while said.is_none() {
        said = verdict(&play.sees(&[], &[]));
    }
    assert_eq!(said.as_deref(), Some("l1 is done"));
}

#[test]
fn a_runner_that_is_seen_with_another_login_too_is_judged_as_ever() {
    let mut play = Play::new(spec());
    play.start_runner(1);
    play.sees(&[(1, true, 1)], &[]);
    play.now += 1;
    moved(&mut play);
    assert_eq!(verdict(&play.sees(&[(1, true, 1)], &[])), None);
    assert_eq!(verdict(&play.sees(&[], &[])), None);
    assert!(play.hears_end(Ending::Left).contains(&"l1 is done".to_owned()));
}

// Invariant: runners that end as soon as they begin do not use up one machine after the other.

#[test]
fn after_runners_that_never_connected_nothing_is_wanted_for_ever_longer() {
    let mut play = Play::new(spec());
    let mut pauses = Vec::new();
    for n in 1..4 {
        play.start_runner(n);
        play.runners.get_mut(&name(n)).expect("a runner").kept.ended =
            Some(End { at: at(play.now).mono, over: at(play.now).mono, how: Ending::Badly });
        let fails = |effects: &[Effect]| {
            reported(effects).iter().any(|reported| reported.starts_with(&format!("l{n} fails")))
        };
        while !fails(&play.sees(&[(n, false, 0)], &[&["linux"]])) {}
        play.runners.clear();
        let from = play.now;
        let wants = |effects: &[Effect]| {
            reported(effects)
                .iter()
                .any(|reported| reported.starts_with("wants ") && !reported.starts_with("wants []"))
        };
        while !wants(&play.sees(&[], &[&["linux"]])) {}
        pauses.push(play.now - from);
    }
    assert!(pauses.is_sorted() && pauses[2] > pauses[0], "{pauses:?}");
    assert_eq!(play.mind.unserved(), 3);
}
