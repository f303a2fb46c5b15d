//! Runners that a look does not show.

use super::*;

/// A runner that was seen with a job.
pub(super) fn busy() -> Play {
    let mut play = Play::new(spec());
    play.start_runner(1);
    play.sees(&[(1, true, 1)], &[]);
    play
}

/// What is decided of its lease.
pub(super) fn verdicts(effects: &[Effect]) -> Vec<String> {
    let of_it = |text: &String| {
        text.starts_with("l1 is") || text.starts_with("l1 fails") || text.starts_with("lost")
    };
    reported(effects).into_iter().filter(of_it).collect()
}

/// All that is decided in an hour of such looks.
pub(super) fn an_hour(
    play: &mut Play,
    mut poll: impl FnMut(&mut Play) -> Vec<Effect>,
) -> Vec<String> {
    let (end, mut all) = (play.now + 3600, Vec::new());
    while play.now < end {
        all.extend(verdicts(&poll(play)));
    }
    all
}

// Invariant: that a list does not show a runner ends nothing.

#[test]
fn a_runner_with_a_job_that_no_list_shows_is_left_alone_and_its_guest_is_asked() {
    let mut play = busy();
    let effects = reported(&play.lists(&[]));
    assert_eq!(effects, ["ask of l1", "wants [] on [l1 1]"], "its job counts as it did");
    assert_eq!(an_hour(&mut play, |play| play.lists(&[])), Vec::<String>::new());
    assert_eq!(reported(&play.lists(&[(1, true, 1)])), ["wants [] on [l1 1]"]);
}

#[test]
fn a_runner_that_was_just_made_and_that_no_list_shows_is_left_alone() {
    for registers in [false, true] {
        let mut play = Play::new(SourceSpec { registers, ..spec() });
        play.start_runner(1);
        assert_eq!(an_hour(&mut play, |play| play.lists(&[])), Vec::<String>::new());
    }
}

#[test]
fn a_runner_that_now_one_page_misses_and_now_another_is_left_alone() {
    let mut play = Play::new(spec());
    play.start_runner(1);
    play.start_runner(2);
    play.sees(&[(1, true, 1), (2, true, 1)], &[]);
    for _ in 0..50 {
        assert_eq!(verdicts(&play.lists(&[(2, true, 1)])), Vec::<String>::new());
        assert_eq!(verdicts(&play.lists(&[(1, true, 1)])), Vec::<String>::new());
    }
}

#[test]
fn of_several_rows_of_one_name_the_one_with_a_job_counts() {
    for rows in [[(1, false, 0), (1, true, 1)], [(1, true, 1), (1, false, 0)]] {
        let mut play = busy();
        assert_eq!(an_hour(&mut play, |play| play.lists(&rows)), Vec::<String>::new());
    }
}

// Invariant: a runner that is not shown is over when its guest says that it ended.

#[test]
fn a_runner_that_no_list_shows_is_done_soon_after_its_guest_says_that_it_ended() {
    let mut play = busy();
    play.lists(&[]);
    assert_eq!(play.hears_end(Ending::Well), Vec::<String>::new(), "what it reported is under way");
    assert_eq!(verdicts(&play.lists(&[])), ["l1 is done"], "a look later");
}

#[test]
fn a_runner_whose_row_is_there_is_not_done_whatever_its_guest_says() {
    let mut play = busy();
    play.ends(Ending::Well);
    assert_eq!(an_hour(&mut play, |play| play.lists(&[(1, true, 1)])), Vec::<String>::new());
}

#[test]
fn a_command_that_may_have_left_its_runner_running_ends_with_its_row_alone() {
    let mut play = Play::new(spec());
    play.start_runner(1);
    play.ends(Ending::Left);
    assert_eq!(an_hour(&mut play, |play| play.lists(&[])), Vec::<String>::new());
    play.sees(&[], &[]);
    assert_eq!(verdicts(&play.sees(&[], &[])), ["l1 is done"]);
}

#[test]
fn its_guest_is_asked_ever_less_often() {
    let mut play = busy();
    let mut asked = Vec::new();
    while play.now < 800 {
        if reported(&play.lists(&[])).contains(&"ask of l1".to_owned()) {
            asked.push(play.now);
        }
    }
    assert_eq!(asked, [10, 20, 40, 80, 160, 320, 620]);
}

#[test]
fn a_runner_that_had_its_jobs_as_its_source_says_is_done_at_once() {
    let mut play = busy();
    let observation = SourceObservation { done: [name(1)].into(), ..observation(&[], &[]) };
    assert_eq!(verdicts(&play.poll(Ok(observation))), ["l1 is done"]);
}

// Invariant: a runner whose row is gone while its guest does not say that it ended is left until its
// deadline, and its job is reported as lost once.

#[test]
fn a_job_whose_runner_has_no_row_any_more_is_reported_as_lost_and_its_machine_is_left() {
    let mut play = busy();
    assert_eq!(an_hour(&mut play, |play| play.sees(&[], &[])), ["lost job 1 of 1"]);
    play.dies(1);
    let effects = reported(&play.sees(&[], &[]));
    assert!(!effects.iter().any(|reported| reported.starts_with("lost")), "once: {effects:?}");
}

#[test]
fn a_runner_without_a_job_whose_row_somebody_removed_is_left_until_its_guest_says_it_ended() {
    let mut play = Play::new(spec());
    play.start_runner(1);
    play.sees(&[(1, true, 0)], &[]);
    assert_eq!(an_hour(&mut play, |play| play.sees(&[], &[])), Vec::<String>::new());
    assert!(play.hears_end(Ending::Badly).contains(&"l1 is done".to_owned()));
}

#[test]
fn a_runner_that_was_let_go_without_a_job_goes_with_its_row() {
    let mut play = Play::new(spec());
    play.start_runner(1);
    play.sees(&[(1, true, 0)], &[]);
    play.now += 300;
    assert!(reported(&play.sees(&[(1, true, 0)], &[])).contains(&"quiet 1".to_owned()));
    assert_eq!(verdicts(&play.lists(&[])), Vec::<String>::new(), "it may be there");
    assert_eq!(verdicts(&play.sees(&[], &[])), ["l1 is idle"]);
}

#[test]
fn a_runner_that_could_not_be_let_go_does_not_go_with_its_row() {
    let mut play = Play::new(spec());
    play.cordons = (0..9).map(|_| silent().map(drop)).collect();
    play.start_runner(1);
    play.sees(&[(1, true, 0)], &[]);
    play.now += 300;
    for _ in 0..2 {
        assert_eq!(verdicts(&play.sees(&[(1, true, 0)], &[])), Vec::<String>::new());
    }
    play.step(Event::Cordoned(name(1), silent().map(drop)));
    assert_eq!(verdicts(&play.sees(&[], &[])), Vec::<String>::new());
}

// Invariant: a runner whose row is gone is over once its source says of its job that it is, whatever its
// guest says.

/// A look that finds the row of the first runner gone, and its job over so.
fn over(play: &mut Play, why: &'static str) -> Vec<String> {
    let (gone, over) = ([name(1)].into(), [(name(1), why)].into());
    verdicts(&play.poll(Ok(SourceObservation { gone, over, ..observation(&[], &[]) })))
}

#[test]
fn a_runner_whose_job_somebody_cancelled_is_over_as_cancelled_within_seconds_and_nothing_is_lost() {
    let mut play = busy();
    assert_eq!(over(&mut play, "cancelled"), Vec::<String>::new(), "its guest has a moment");
    assert_eq!((over(&mut play, "cancelled"), play.now), (vec!["l1 is cancelled".to_owned()], 15));
    play.dies(1);
    assert_eq!(over(&mut play, "cancelled"), Vec::<String>::new());
}

#[test]
fn a_runner_whose_job_ended_by_itself_has_a_minute_to_end_too() {
    let (mut play, mut said) = (busy(), Vec::new());
    while said.is_empty() {
        said = over(&mut play, "done");
    }
    assert_eq!((said, play.now), (vec!["l1 is done".to_owned()], 70));
}

#[test]
fn a_job_that_was_over_before_its_machine_went_is_not_lost() {
    let mut play = busy();
    play.dies(1);
    let all: Vec<String> = (0..4).flat_map(|_| over(&mut play, "cancelled")).collect();
    assert_eq!(all, Vec::<String>::new());
}

#[test]
fn a_job_that_is_over_says_nothing_of_a_runner_that_was_made_elsewhere() {
    let mut play = Play::new(spec());
    play.start_runner(1);
    play.runners.get_mut(&name(1)).expect("a runner").kept.entry.place = Some(2);
    assert_eq!(an_hour(&mut play, |play| play.sees(&[], &[])), Vec::<String>::new());
    assert_eq!(over(&mut play, "cancelled"), Vec::<String>::new());
}

// Invariant: a runner whose row is gone takes no further job, also where its job was forgotten with the
// last start of the service.

#[test]
fn a_runner_without_a_row_has_no_room_for_a_job_that_waits() {
    let mut play = Play::new(spec());
    play.start_runner(1);
    let effects = reported(&play.sees(&[], &[&["linux"]]));
    assert_eq!(effects, ["ask of l1", "wants [1] on [l1 full]"]);
    let effects = reported(&play.sees(&[(1, true, 0)], &[&["linux"]]));
    assert_eq!(effects, ["wants [1] on [l1 0]"], "it is there after all");
}

#[test]
fn a_runner_of_an_earlier_start_that_no_look_shows_is_not_counted_on_for_a_job_that_waits() {
    let mut play = Play::new(spec());
    play.start_runner(1);
    let lists = |play: &mut Play, rows: &[(u32, bool, u32)]| {
        let observation = SourceObservation { whole: false, ..observation(rows, &[&["linux"]]) };
        reported(&play.poll(Ok(observation))).pop()
    };
    assert_eq!(lists(&mut play, &[]).as_deref(), Some("wants [1] on [l1 0]"), "it was just made");
    play.runners.get_mut(&name(1)).expect("a runner").kept.restored = true;
    assert_eq!(lists(&mut play, &[]).as_deref(), Some("wants [1] on [l1 full]"));
    assert_eq!(an_hour(&mut play, |play| play.lists(&[])), Vec::<String>::new(), "nothing ends");
    assert_eq!(lists(&mut play, &[(1, true, 0)]).as_deref(), Some("wants [1] on [l1 0]"));
    assert_eq!(lists(&mut play, &[]).as_deref(), Some("wants [1] on [l1 0]"), "pages shift");
}

#[test]
fn a_runner_that_has_not_made_its_row_yet_has_room() {
    let mut play = Play::new(SourceSpec { registers: true, ..spec() });
    play.start_runner(1);
    assert_eq!(reported(&play.sees(&[], &[&["linux"]])), ["wants [1] on [l1 0]"]);
}

// Invariant: what a source does not have says nothing of runners that were made elsewhere, in
// whichever start of the service.

#[test]
fn a_runner_that_may_have_been_made_elsewhere_is_over_by_its_guests_word_alone() {
    for place in [None, Some(2)] {
        for (how, over) in [(Ending::Well, true), (Ending::Badly, true), (Ending::Left, false)] {
            let mut play = Play::new(spec());
            play.start_runner(1);
            play.runners.get_mut(&name(1)).expect("a runner").kept.entry.place = place;
            assert_eq!(an_hour(&mut play, |play| play.sees(&[], &[])), Vec::<String>::new());
            let heard = play.hears_end(how);
            assert_eq!(heard.contains(&"l1 is done".to_owned()), over, "{place:?} {how:?}");
        }
    }
}

#[test]
fn one_that_registers_itself_elsewhere_is_not_expected_here() {
    let mut play = Play::new(SourceSpec { registers: true, ..spec() });
    play.start_runner(1);
    play.runners.get_mut(&name(1)).expect("a runner").kept.entry.place = Some(2);
    assert_eq!(an_hour(&mut play, |play| play.sees(&[], &[])), Vec::<String>::new());
}

// Invariant: whether a job was lost with its machine is asked until the source says so.

#[test]
fn a_job_whose_machine_went_is_looked_for_until_its_row_is_shown() {
    let mut play = busy();
    play.dies(1);
    assert_eq!(reported(&play.lists(&[])), ["wants [] on []"], "neither reported nor deregistered");
    let effects = reported(&play.lists(&[(1, false, 1)]));
    assert_eq!(effects, ["lost job 1 of 1", "wants [] on []", "deregister 1"]);
}

#[test]
fn a_job_whose_machine_went_and_that_no_look_mentions_is_lost_after_some() {
    let mut play = busy();
    play.dies(1);
    let all: Vec<Vec<String>> = (0..4).map(|_| verdicts(&play.lists(&[]))).collect();
    assert_eq!(all, [vec![], vec![], vec!["lost job 1 of 1".to_owned()], vec![]]);
    let mut play = busy();
    play.ends(Ending::Well);
    play.dies(1);
    let all: Vec<String> = (0..4).flat_map(|_| verdicts(&play.lists(&[]))).collect();
    assert_eq!(all, Vec::<String>::new(), "it ended before");
}

// Invariant: a poll asks for each runner that is waited for, and for no other.

#[test]
fn a_look_is_to_mention_runners_that_were_made_and_are_not_settled() {
    let mut play = Play::new(spec());
    [1, 2, 3].into_iter().for_each(|n| play.start_runner(n));
    play.runners.get_mut(&name(2)).expect("a runner").kept.runner_started = None;
    play.dies(3);
    play.sees(&[(7, false, 0)], &[]);
    let known: Vec<u32> = play.mind.known(&play.runners).keys().map(number).collect();
    assert_eq!(known, [1, 3, 7], "the last is unknown");
    play.ends(Ending::Well);
    play.sees(&[(7, false, 0)], &[]);
    let known: Vec<u32> = play.mind.known(&play.runners).keys().map(number).collect();
    assert_eq!(known, [3, 7]);
}

// Invariant: people see which machine has a runner without a row, for as long as it has none.

#[test]
fn a_machine_whose_runner_has_no_row_any_more_is_shown_until_it_has_one() {
    let mut play = busy();
    let shown = |play: &Play| play.mind.report(&play.runners).rowless;
    play.lists(&[]);
    assert_eq!(shown(&play), [], "a list that does not show it proves nothing");
    play.sees(&[], &[]);
    let rowless = shown(&play);
    assert_eq!((rowless.len(), &rowless[0].lease), (1, &LeaseId::new("l1")));
    play.sees(&[(1, true, 1)], &[]);
    assert_eq!(shown(&play), []);
}

// Invariant: a runner whose row is gone and that still runs is not forgotten until the next poll.

#[test]
fn the_guest_of_a_runner_without_a_row_is_asked_again_however_rarely_its_source_is_polled() {
    let hour = Duration::from_secs(3600);
    let mut play = Play::new(SourceSpec { poll: hour, brisk: hour, ..spec() });
    play.start_runner(1);
    play.sees(&[(1, true, 1)], &[]);
    assert!(reported(&play.sees(&[], &[])).contains(&"ask of l1".to_owned()));
    let mut asked = Vec::new();
    for since in [play.now; 4] {
        if reported(&play.sees(&[], &[])).contains(&"ask of l1".to_owned()) {
            asked.push(play.now - since);
        }
    }
    assert_eq!(asked, [10, 30, 70, 150]);
}
