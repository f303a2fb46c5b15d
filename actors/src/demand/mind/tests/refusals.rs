//! Sources that let no runner be made: what drover still wants of them.

use super::*;

// Invariant: runners that cannot be made do not use up one machine after the other.

#[test]
fn after_a_runner_that_could_not_be_started_nothing_is_wanted_for_ever_longer() {
    let mut play = Play::new(spec());
    play.sees(&[], &[&["linux"]]);
    for pause in [20, 40, 80] {
        let mut out = Vec::new();
        out.extend(play.step(Event::NotServed));
        assert_eq!(reported(&out), ["wants [] on []"]);
        let (failed, mut wanted) = (play.now, None);
        while wanted.is_none() {
            let effects = reported(&play.sees(&[], &[&["linux"]]));
            wanted =
                effects.iter().any(|reported| reported == "wants [1] on []").then_some(play.now);
        }
        assert_eq!(wanted, Some(failed + pause));
    }
    play.start_runner(1);
    play.sees(&[(1, true, 1)], &[&["linux"]]);
    assert_eq!(play.mind.unserved(), 0, "one runs");
}

/// What a source wants while it lets no runner be made, by the seconds at which that changes.
fn wanted(play: &mut Play, seconds: u64) -> Vec<(u64, String)> {
    let (end, mut all) = (play.now + seconds, Vec::<(u64, String)>::new());
    while play.now < end {
        for reported in reported(&play.sees(&[], &[&["linux"], &["linux"]])) {
            if all.last().is_none_or(|(_, before)| *before != reported) {
                all.push((play.now, reported));
            }
        }
    }
    all
}

/// A source with two jobs that did not let the first runner be made.
pub(super) fn refusing() -> Play {
    let mut play = Play::new(SourceSpec { poll: seconds(30), brisk: seconds(30), ..spec() });
    play.sees(&[], &[&["linux"], &["linux"]]);
    play.start_runner(1);
    play.dies(1);
    let kept = &mut play.runners.get_mut(&name(1)).expect("a runner").kept;
    (kept.runner_started, kept.refused) = (None, Some("403: no".to_owned()));
    play.step(Event::NotServed);
    assert_eq!(reported(&play.tick()), ["prove"]);
    play
}

// Invariant: a source that lets no runner be made costs no machine as long as that is seen without
// one, and else a single one after each pause.

#[test]
fn a_source_that_is_seen_to_let_no_runner_be_made_wants_none_until_it_does() {
    let mut play = refusing();
    let refused = play.mind.refused().expect("a refusal").clone();
    assert_eq!((refused.since, refused.text.as_str()), (at(0).wall, "403: no"));
    let mut out = Vec::new();
    for _ in 0..20 {
        let lacks = "it needs write:admin".to_owned();
        out.extend(play.step(Event::Probed(Ok(Some(lacks)))));
        let effects = reported(&play.sees(&[], &[&["linux"], &["linux"]]));
        let wants = effects
            .iter()
            .any(|reported| reported.starts_with("wants [1") || reported.contains("[2"));
        assert!(!wants, "{effects:?}");
    }
    assert_eq!(play.mind.refused().expect("still").text, "it needs write:admin");
    out.extend(play.step(Event::Probed(Err(silent().expect_err("a fault")))));
    assert!(!reported(&out).contains(&"wants [1] on []".to_owned()), "no news is no proof");
    out.clear();
    out.extend(play.step(Event::Probed(Ok(None))));
    assert_eq!(reported(&out), ["wants [1] on []"], "at once, and one alone");
    play.start_runner(2);
    let effects = reported(&play.sees(&[(2, true, 0)], &[&["linux"], &["linux"]]));
    assert!(effects.iter().any(|reported| reported.starts_with("wants [2]")), "{effects:?}");
    assert_eq!((play.mind.refused(), play.mind.unserved()), (None, 0));
}

#[test]
fn a_source_of_which_nothing_is_seen_is_tried_by_one_machine_after_the_pause() {
    let mut play = refusing();
    play.step(Event::Probed(Ok(None)));
    let all = wanted(&mut play, 120);
    let wants: Vec<&(u64, String)> =
        all.iter().filter(|(_, reported)| reported.starts_with("wants")).collect();
    assert_eq!(wants[0].1, "wants [] on []");
    assert_eq!((wants[1].0, wants[1].1.as_str()), (60, "wants [1] on []"));
}

#[test]
fn a_source_that_is_configured_again_is_tried_again_at_once() {
    let mut play = refusing();
    let mut out = Vec::new();
    out.extend(play.step(Event::Probed(Ok(Some("it lacks a right".into())))));
    let spec = SourceSpec { connection: 2, ..(**play.mind.spec()).clone() };
    out.extend(play.step(Event::Apply(Some(Arc::new(spec)))));
    let effects = reported(&play.sees(&[], &[&["linux"], &["linux"]]));
    assert!(effects.contains(&"wants [2] on []".to_owned()), "{effects:?}");
    assert_eq!(play.mind.refused(), None);
}

// Invariant: what no template serves is said to be so, also while the source lets no runner be made.

#[test]
fn jobs_that_are_held_back_are_still_asked_about() {
    let mut play = refusing();
    let all = play.sees(&[], &[&["linux"], &["mars"]]);
    let mut kinds = all.iter().filter_map(|effect| match effect {
        Effect::Publish(levels, _) => {
            Some(levels.iter().map(|level| (level.want.clone(), level.since.len())).collect())
        }
        _ => None,
    });
    let kinds: Vec<(Want, usize)> = kinds.next().expect("a report");
    assert_eq!(kinds, [(labels(&["linux"]), 0), (labels(&["mars"]), 0)]);
}
