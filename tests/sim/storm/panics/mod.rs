//! A panic at every single knock of every actor at a port, one at a time: that actor alone is
//! started again, and the play comes to the same end. The root is not started again: the service is, and
//! so it is where an actor panics again and again. A call that is never answered holds nobody up.

mod asker;
mod play;

use std::collections::BTreeMap;

use libtest_mimic::Trial;

use crate::on_paused_clock;
use crate::world::World;
use crate::world::setup::Setup;
use crate::world::tap::Hit;
use play::{Blow, Scene, Spot, play};

/// Of the knocks of one kind of actor at one call, these first ones are hit in every run.
const FIRST: usize = 3;
/// Of those between the first and the last, one of so many is hit unless all are asked for: they repeat
/// one another.
const STRIDE: usize = 8;
/// A build that is not optimised plays one of so many of those again.
const SLOW: usize = if cfg!(debug_assertions) { 5 } else { 1 };

/// Calls that are over when they are made.
const AT_ONCE: [&str; 4] = ["now", "draw", "observe", "append"];

fn kind(spot: &Spot) -> &str {
    spot.actor.split(' ').next().unwrap()
}

fn article(kind: &str) -> &'static str {
    match kind {
        "agent" | "append" => "an",
        "herd" | "nobody" => "the",
        _ => "a",
    }
}

fn ordinal(number: usize) -> String {
    let end = match (number % 10, number % 100) {
        (1, at) if at != 11 => "st",
        (2, at) if at != 12 => "nd",
        (3, at) if at != 13 => "rd",
        _ => "th",
    };
    format!("{number}{end}")
}

/// Who may have been started again, and how often the service did not come up.
fn expected(spot: &Spot) -> Vec<(Vec<(String, bool)>, u32)> {
    match kind(spot) {
        // Written apart from its actor, where a panic is a failure to write, and tried again.
        "append" => vec![(Vec::new(), 0)],
        // While the root is made there is nobody to start it again: the start fails.
        // While it starts, the start fails too.
        "herd" => {
            let reported = vec![(spot.actor.clone(), true)];
            vec![(reported.clone(), 0), (reported, 1), (Vec::new(), 1)]
        }
        // Before the root is made nobody is there at all: the start fails.
        "nobody" => vec![(Vec::new(), 1)],
        _ => vec![(vec![(spot.actor.clone(), false)], 0)],
    }
}

fn hit(scene: Scene, number: usize, spot: &Spot, hit: Hit) {
    let played = on_paused_clock(play(scene, Some(Blow::Once(number, hit))));
    assert_eq!(played.knocks[number], *spot, "the play changed before the panic");
    let seen = (played.restarts, played.failed_starts);
    assert!(expected(spot).contains(&seen), "{spot:?}: {seen:?}");
}

/// Nobody panics for want of an answer, and the play comes to its end.
fn hold(scene: Scene, number: usize, spot: &Spot, hit: Hit) {
    let played = on_paused_clock(play(scene, Some(Blow::Once(number, hit))));
    assert_eq!(played.knocks[number], *spot, "the play changed before the call");
    assert_eq!((played.restarts, played.failed_starts), (Vec::new(), 0), "{spot:?}");
}

/// It is given up, and what it had in hand is taken up by the next start of the service; a cloud or a
/// source that left the configuration may be gone before it is given up.
fn fell(scene: Scene, number: usize, spot: &Spot) {
    let played = on_paused_clock(play(scene, Some(Blow::Fell(number))));
    let (last, before) = played.restarts.split_last().expect("nobody was started again");
    let gone = spot.actor.strip_prefix("cloud ").is_some_and(|cloud| {
        let gone = format!("CloudGone {{ cloud: {cloud} }}");
        played.log.iter().any(|line| line.contains(&gone))
    });
    // A source leaves twice, and comes back once: what counts is whether it left after that.
    let last_of = |what: &str| played.log.iter().rposition(|line| line.contains(what));
    let left = kind(spot) == "source" && last_of("SourceGone {") > last_of("Restarted {");
    let gone = gone || left;
    assert_eq!(*last, (spot.actor.clone(), last.1 || !gone), "{before:?}");
    assert!(before.iter().all(|one| *one == (spot.actor.clone(), false)), "{before:?}");
    assert!(played.failed_starts <= 1, "{} starts failed", played.failed_starts);
}

/// Whether an actor that panics at this knock does so again as soon as it is started again.
fn falls(spot: &Spot) -> bool {
    match kind(spot) {
        "agent" | "template" | "cloud" | "reconciler" | "source" => true,
        // It asks again about anyone who waits.
        "cluster" => spot.call == "locate",
        _ => false,
    }
}

/// One trial for each knock, and one for each answer to a knock. All of them if `every`, or else the
/// ones that do not repeat others.
pub fn trials(every: bool) -> Vec<Trial> {
    let of_scene = |scene| of_scene(scene, every);
    let mut trials: Vec<Trial> = Scene::ALL.into_iter().flat_map(of_scene).collect();
    trials.push(Trial::test("panics::the_play_is_the_same_each_time", || {
        same_each_time();
        Ok(())
    }));
    trials.push(Trial::test("panics::an_actor_that_is_left_over_fails_its_test", || {
        let played = std::panic::catch_unwind(|| on_paused_clock(leak()));
        let said = played.expect_err("nobody minded");
        let said = said.downcast_ref::<String>().unwrap();
        assert!(said.contains("other actors live") && said.contains("template rack/old"), "{said}");
        Ok(())
    }));
    trials
}

/// Whether the knock with this ordinal, of so many alike, is one that a plain run hits.
fn is_hit(nth: usize, alike: usize) -> bool {
    nth <= FIRST || nth == alike || nth.is_multiple_of(STRIDE)
}

fn of_scene(scene: Scene, every: bool) -> Vec<Trial> {
    let knocks = on_paused_clock(play(scene, None)).knocks;
    let mut alike: BTreeMap<(String, &str), usize> = BTreeMap::new();
    for spot in &knocks {
        *alike.entry((kind(spot).to_owned(), spot.call)).or_default() += 1;
    }
    let mut seen: BTreeMap<(String, &str), usize> = BTreeMap::new();
    let mut trials = Vec::new();
    for (number, spot) in knocks.into_iter().enumerate() {
        let kind = kind(&spot).to_owned();
        let what = (kind.clone(), spot.call);
        let of = alike.get(&what).copied().unwrap_or_default();
        let nth = seen.entry(what).or_default();
        *nth += 1;
        if !every && !is_hit(*nth, of) {
            continue;
        }
        let with = scene.suffix();
        let place = format!("{}_{}_of_{}_{kind}{with}", ordinal(*nth), spot.call, article(&kind));
        let mut add = |name: String, how: Hit| {
            let spot = spot.clone();
            trials.push(Trial::test(name, move || {
                hit(scene, number, &spot, how);
                Ok(())
            }));
        };
        add(format!("panics::a_panic_at_the_{place}"), Hit::Panic);
        if !AT_ONCE.contains(&spot.call) {
            add(format!("panics::a_panic_at_the_answer_of_the_{place}"), Hit::PanicLater);
        }
        let mut add = |name: String, play: fn(Scene, usize, &Spot)| {
            let spot = spot.clone();
            trials.push(Trial::test(name, move || {
                play(scene, number, &spot);
                Ok(())
            }));
        };
        if !AT_ONCE.contains(&spot.call) {
            let never = "that_never_comes";
            add(format!("holds::the_{place}_{never}"), |scene, number, spot| {
                hold(scene, number, spot, Hit::Hold);
            });
            add(format!("holds::the_answer_of_the_{place}_{never}"), |scene, number, spot| {
                hold(scene, number, spot, Hit::HoldAnswer);
            });
        }
        if falls(&spot) {
            add(
                format!(
                    "fallen::{kind}{with}_that_panics_from_its_{}_{}_on",
                    ordinal(*nth),
                    spot.call
                ),
                fell,
            );
        }
    }
    trials.into_iter().step_by(if every { 1 } else { SLOW }).collect()
}

/// Whatever panics, the next run of the same trial must find the same: nothing but the seed decides.
fn same_each_time() {
    let panicking = Blow::Once(100, Hit::Panic);
    let blows = [None, Some(panicking)];
    for (scene, blow) in
        Scene::ALL.into_iter().flat_map(|scene| blows.iter().map(move |blow| (scene, blow.clone())))
    {
        let again = || on_paused_clock(play(scene, blow.clone()));
        let first = again();
        let others = std::thread::scope(|scope| {
            let plays: Vec<_> = (0..3).map(|_| scope.spawn(again)).collect();
            plays.into_iter().map(|play| play.join().unwrap()).collect::<Vec<_>>()
        });
        for other in others {
            for (number, (one, other)) in first.log.iter().zip(&other.log).enumerate() {
                assert_eq!(one, other, "fact {number}");
            }
            assert_eq!(first.knocks, other.knocks);
        }
    }
}

async fn leak() {
    let world = World::started(Setup::linux("")).await;
    world.check_census();
    world.plant_actor("template rack/old");
    world.end().await;
}
