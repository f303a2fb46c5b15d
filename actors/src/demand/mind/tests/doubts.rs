//! Runners of which their source says something that is no proof that their job is over.

use super::absent::{an_hour, busy, verdicts};
use super::*;

/// A row of the first runner that shows no job, for what that is worth.
fn row(online: bool, jobs: u32, idle: Idle) -> SourceObservation {
    let mut observation = observation(&[(1, online, jobs)], &[]);
    observation.rows[0].idle = idle;
    observation
}

fn asks(effects: &[Effect]) -> bool {
    reported(effects).contains(&"ask of l1".to_owned())
}

impl Play {
    fn shows(&mut self, online: bool, jobs: u32, idle: Idle) -> Vec<Effect> {
        self.poll(Ok(row(online, jobs, idle)))
    }

    /// A look that shows a job on the first runner, and that its source does not have its row any more.
    fn shows_removed(&mut self) -> Vec<Effect> {
        let removed = [name(1)].into();
        self.poll(Ok(SourceObservation { removed, ..row(false, 1, Idle::Known) }))
    }

    /// The first guest says that its runner's command ended with 0 at this moment, and may have left
    /// its runner running.
    fn leaves(&mut self, over: u64) {
        self.ends(Ending::Left);
        let kept = &mut self.runners.get_mut(&name(1)).expect("a runner").kept;
        kept.ended = kept.ended.map(|end| End { over: at(over).mono, ..end });
    }
}

/// A runner with a job whose command ended before that was seen.
fn daemon(spec: SourceSpec) -> Play {
    let mut play = Play::new(spec);
    play.start_runner(1);
    play.sees(&[(1, true, 0)], &[]);
    play.sees(&[(1, true, 1)], &[]);
    play.leaves(0);
    play
}

// Invariant: that a source draws from its clocks that a runner is idle ends nothing; its guest's word
// does.

#[test]
fn a_runner_with_a_job_that_its_source_guesses_to_be_idle_is_left_alone_and_its_guest_is_asked() {
    for idle in [Idle::Guessed, Idle::Spent] {
        for online in [true, false] {
            let mut play = busy();
            let effects = play.shows(online, 0, idle);
            assert!(asks(&effects), "{idle:?}: {:?}", reported(&effects));
            assert!(
                !reported(&effects).contains(&"quiet 1".to_owned()),
                "{:?}",
                reported(&effects)
            );
            let poll = |play: &mut Play| play.shows(online, 0, idle);
            let mut quiet = false;
            let verdicts = an_hour(&mut play, |play| {
                let effects = poll(play);
                quiet |= reported(&effects).contains(&"quiet 1".to_owned());
                effects
            });
            assert_eq!((verdicts, quiet), (Vec::new(), false), "{idle:?} {online}");
            let done = |reported: &String| reported == "l1 is done";
            assert!(play.hears_end(Ending::Badly).iter().any(done), "{idle:?} {online}");
        }
    }
}

// Invariant: a runner that stays after its job ends once it takes no other, and has sent the end of its log.

#[test]
fn a_runner_whose_job_its_source_says_is_over_is_cordoned_and_ends_seconds_after_it() {
    let mut play = busy();
    let first = reported(&play.shows(true, 0, Idle::Over));
    assert!(first.contains(&"quiet 1".to_owned()), "{first:?}");
    assert!(!first.contains(&"l1 is done".to_owned()), "{first:?}");
    assert_eq!(an_hour(&mut play, |play| play.shows(true, 0, Idle::Over)), ["l1 is done"]);
    // It waits from the look that shows that, however long it was idle before its job.
    let mut play = Play::new(spec());
    play.start_runner(1);
    play.sees(&[(1, true, 0)], &[]);
    play.sees(&[(1, true, 0)], &[]);
    assert_eq!(verdicts(&play.shows(true, 0, Idle::Over)), Vec::<String>::new());
}

#[test]
fn a_job_that_a_runner_took_before_it_was_cordoned_runs_to_its_end() {
    let mut play = busy();
    play.shows(true, 0, Idle::Over);
    let runs = |play: &mut Play| play.shows(true, 1, Idle::Known);
    assert_eq!(an_hour(&mut play, runs), Vec::<String>::new());
    assert_eq!(verdicts(&play.shows(true, 0, Idle::Over)), Vec::<String>::new());
    assert_eq!(an_hour(&mut play, |play| play.shows(true, 0, Idle::Over)), ["l1 is done"]);
}

#[test]
fn a_runner_that_is_guessed_to_be_idle_takes_no_other_job() {
    let mut play = busy();
    let effects = reported(&play.shows(true, 0, Idle::Guessed));
    assert!(effects.contains(&"wants [] on [l1 full]".to_owned()), "{effects:?}");
    let effects = reported(&play.shows(true, 1, Idle::Known));
    assert!(effects.contains(&"wants [] on [l1 1]".to_owned()), "{effects:?}");
}

#[test]
fn a_runner_without_a_job_that_is_guessed_to_be_idle_is_asked_to_go_and_goes_when_it_ended() {
    let mut play = Play::new(spec());
    play.start_runner(1);
    play.shows(true, 0, Idle::Guessed);
    play.now += 300;
    assert!(reported(&play.shows(true, 0, Idle::Guessed)).contains(&"quiet 1".to_owned()));
    let poll = |play: &mut Play| play.shows(true, 0, Idle::Guessed);
    assert_eq!(an_hour(&mut play, poll), Vec::<String>::new(), "it may have taken one before");
    assert_eq!(an_hour(&mut play, |play| play.sees(&[], &[])), Vec::<String>::new());
    play.ends(Ending::Well);
    assert_eq!(verdicts(&play.sees(&[], &[])), ["l1 is idle"]);
}

#[test]
fn a_runner_of_a_source_that_left_the_configuration_is_not_asked_to_go_by_one_guess() {
    let mut play = Play::new(spec());
    play.start_runner(1);
    play.step(Event::Apply(None));
    assert!(!reported(&play.shows(true, 0, Idle::Guessed)).contains(&"quiet 1".to_owned()));
    play.now += 60;
    assert!(reported(&play.shows(true, 0, Idle::Guessed)).contains(&"quiet 1".to_owned()));
}

// Invariant: a runner whose row stands but is not connected is given up once its guest says that it
// ended; until then its job is reported as lost, once.

#[test]
fn a_runner_that_is_off_for_long_with_a_job_is_given_up_once_its_guest_says_that_it_ended() {
    let mut play = busy();
    let off = |play: &mut Play| play.shows(false, 1, Idle::Known);
    let mut asked = 0;
    let all = an_hour(&mut play, |play| {
        let effects = off(play);
        asked += u32::from(asks(&effects));
        effects
    });
    assert_eq!(all, ["lost job 1 of 1"]);
    assert!((2..30).contains(&asked), "{asked}");
    play.ends(Ending::Badly);
    let all = an_hour(&mut play, off);
    assert_eq!(all.len(), 1, "{all:?}");
    assert!(all[0].starts_with("l1 fails: its runner is not connected"), "{all:?}");
}

#[test]
fn a_runner_that_is_off_for_long_and_comes_back_goes_on() {
    let mut play = busy();
    let all = an_hour(&mut play, |play| play.shows(false, 1, Idle::Known));
    assert_eq!(all, ["lost job 1 of 1"]);
    assert_eq!(verdicts(&play.shows(true, 1, Idle::Known)), Vec::<String>::new());
    assert_eq!(verdicts(&play.sees(&[], &[])), Vec::<String>::new());
    assert!(play.hears_end(Ending::Well).contains(&"l1 is done".to_owned()));
}

// Invariant: a row that its source does not have any more ends nothing; it is a reason to ask the guest at
// once, whose word does.

#[test]
fn a_runner_with_a_job_whose_row_was_removed_has_its_guest_asked_at_once_and_goes_by_its_word() {
    let mut play = busy();
    let effects = play.shows_removed();
    assert!(asks(&effects), "at once: {:?}", reported(&effects));
    assert_eq!(verdicts(&effects), Vec::<String>::new(), "its guest has not answered");
    play.ends(Ending::Badly);
    let all = verdicts(&play.shows_removed());
    assert_eq!(all.len(), 2, "{all:?}");
    assert_eq!(all[0], "lost job 1 of 1");
    assert!(all[1].starts_with("l1 fails: its runner ended with a job on it"), "{all:?}");
    assert!(play.now < 60, "{}", play.now);
}

#[test]
fn a_runner_whose_row_was_removed_and_whose_guest_says_nothing_is_left_as_one_that_is_off() {
    for removed in [true, false] {
        let mut play = busy();
        let (from, mut lost, mut asked) = (play.now, Vec::new(), 0);
        let all = an_hour(&mut play, |play| {
            let effects =
                if removed { play.shows_removed() } else { play.shows(false, 1, Idle::Known) };
            lost.extend((!verdicts(&effects).is_empty()).then_some(play.now - from));
            asked += u32::from(asks(&effects));
            effects
        });
        assert_eq!(all, ["lost job 1 of 1"], "removed: {removed}");
        assert!(lost[0] >= 600, "removed: {removed}, after {lost:?} s");
        assert!((2..30).contains(&asked), "ever less often: {asked}");
    }
    let mut play = daemon(spec());
    let all = an_hour(&mut play, Play::shows_removed);
    assert_eq!(all, ["lost job 1 of 1"], "its command may have left it running");
}

#[test]
fn a_runner_that_ended_well_and_whose_row_was_removed_may_have_done_its_job() {
    let mut play = busy();
    play.shows_removed();
    play.ends(Ending::Well);
    let from = play.now;
    while play.now < from + 300 {
        assert_eq!(verdicts(&play.shows_removed()), Vec::<String>::new(), "at {}", play.now);
    }
    let done = verdicts(&play.sees(&[], &[]));
    assert!(done.iter().all(|one| !one.starts_with("lost")), "{done:?}");
}

#[test]
fn a_runner_with_a_job_whose_row_came_back_goes_on() {
    let mut play = busy();
    play.shows_removed();
    play.ends(Ending::Badly);
    assert_eq!(verdicts(&play.shows(true, 1, Idle::Known)), Vec::<String>::new());
    assert_eq!(an_hour(&mut play, |play| play.sees(&[(1, true, 1)], &[])), Vec::<String>::new());
}

// Invariant: a command that ended with 0 has ended its runner where it ended after its job was seen;
// one that ended before may have left it running, and a row that is gone is no proof against that.

#[test]
fn a_command_that_left_its_runner_running_does_not_end_it_with_a_job_whose_row_is_gone() {
    let mut play = daemon(spec());
    assert_eq!(an_hour(&mut play, |play| play.sees(&[], &[])), ["lost job 1 of 1"]);
}

#[test]
fn a_command_that_ended_after_its_job_was_seen_has_ended_its_runner() {
    let mut play = busy();
    play.now += 5;
    play.leaves(play.now);
    assert_eq!(verdicts(&play.sees(&[], &[])), ["l1 is done"]);
    let mut play = busy();
    play.now += 5;
    play.leaves(play.now);
    assert_eq!(verdicts(&play.shows(true, 0, Idle::Guessed)), ["l1 is done"]);
}

#[test]
fn where_a_row_that_is_gone_has_no_job_a_second_look_ends_a_command_that_left_its_runner() {
    let mut play = daemon(SourceSpec { firm: true, ..spec() });
    assert_eq!(verdicts(&play.sees(&[], &[])), Vec::<String>::new(), "one answer is none");
    assert_eq!(verdicts(&play.sees(&[], &[])), ["l1 is done"]);
}

#[test]
fn a_runner_that_was_never_seen_with_a_job_and_was_left_running_goes_with_its_row() {
    let mut play = Play::new(spec());
    play.start_runner(1);
    play.leaves(0);
    assert_eq!(verdicts(&play.sees(&[], &[])), Vec::<String>::new(), "one answer is none");
    assert_eq!(verdicts(&play.sees(&[], &[])), ["l1 is done"]);
}

#[test]
fn a_second_look_that_may_end_a_lease_does_not_wait_for_the_next_poll() {
    let mut play = daemon(SourceSpec { firm: true, ..spec() });
    let hourly = SourceSpec { firm: true, poll: seconds(3600), brisk: seconds(3600), ..spec() };
    play.step(Event::Apply(Some(Arc::new(hourly))));
    play.sees(&[], &[]);
    let from = play.now;
    assert_eq!(verdicts(&play.sees(&[], &[])), ["l1 is done"]);
    assert!((5..8).contains(&(play.now - from)), "{}", play.now - from);
    play.sees(&[], &[]);
    assert!(play.now - from > 3600, "no more looks than that");
}

#[test]
fn a_runner_whose_job_is_over_before_it_is_asked_to_run_is_looked_at_again_soon() {
    let mut play = Play::new(SourceSpec { poll: seconds(3600), brisk: seconds(3600), ..spec() });
    play.start_runner(1);
    let runner_started =
        play.runners.get_mut(&name(1)).expect("a runner").kept.runner_started.take();
    let observation = SourceObservation { done: [name(1)].into(), ..observation(&[], &[]) };
    assert_eq!(verdicts(&play.poll(Ok(observation.clone()))), Vec::<String>::new());
    play.runners.get_mut(&name(1)).expect("a runner").kept.runner_started = runner_started;
    let from = play.now;
    assert_eq!(verdicts(&play.poll(Ok(observation))), ["l1 is done"]);
    assert!(play.now - from < 8, "{}", play.now - from);
}

#[test]
fn a_runner_that_had_its_job_and_was_left_running_goes_when_its_source_shows_none_for_a_while() {
    let mut play = daemon(spec());
    let from = play.now;
    let spent = |play: &mut Play| play.shows(true, 0, Idle::Spent);
    assert_eq!(an_hour(&mut play, spent), ["l1 is done"]);
    let mut play = daemon(spec());
    while play.now < from + 60 {
        assert_eq!(verdicts(&spent(&mut play)), Vec::<String>::new());
        assert_eq!(verdicts(&play.shows(true, 1, Idle::Known)), Vec::<String>::new());
    }
    let mut play = daemon(spec());
    let waits = |play: &mut Play| play.shows(true, 0, Idle::Guessed);
    assert_eq!(an_hour(&mut play, waits), Vec::<String>::new(), "nobody says that it had its job");
}

#[test]
fn a_command_that_starts_a_runner_which_makes_its_own_row_is_waited_for() {
    let mut play = Play::new(SourceSpec { registers: true, ..spec() });
    play.start_runner(1);
    play.ends(Ending::Left);
    while play.now < 10 {
        assert_eq!(verdicts(&play.sees(&[], &[])), Vec::<String>::new(), "at {}", play.now);
    }
    assert_eq!(verdicts(&play.sees(&[(1, true, 1)], &[])), Vec::<String>::new());
}

// Invariant: each question has its own pauses: a normal end is noticed within seconds, however often
// the guest was asked before.

#[test]
fn a_guest_that_was_asked_often_before_its_runner_connected_is_asked_at_once_when_it_is_missed() {
    let mut play = Play::new(SourceSpec { register: seconds(1600), ..spec() });
    play.start_runner(1);
    while play.now < 1590 {
        play.sees(&[(1, false, 0)], &[]);
    }
    play.sees(&[(1, true, 1)], &[]);
    assert!(asks(&play.sees(&[], &[])), "at once");
    assert!(asks(&play.sees(&[], &[])), "and 10 s later");
}

#[test]
fn a_runner_that_was_missed_and_shown_again_is_asked_about_as_at_first() {
    let mut play = busy();
    while play.now < 800 {
        play.lists(&[]);
    }
    play.sees(&[(1, true, 1)], &[]);
    let asked: Vec<bool> = (0..3).map(|_| asks(&play.lists(&[]))).collect();
    assert_eq!(asked, [true, true, false]);
    // One that is missed by every second look is not asked about at each.
    let mut play = Play::new(SourceSpec { brisk: seconds(1), poll: seconds(1), ..spec() });
    play.start_runner(1);
    play.sees(&[(1, true, 1)], &[]);
    let (until, mut asked) = (play.now + 100, 0);
    while play.now < until {
        asked += u32::from(asks(&play.lists(&[])));
        play.sees(&[(1, true, 1)], &[]);
    }
    assert!(asked <= 10, "{asked} times in 100 s");
}

// Invariant: a runner that could not be cordoned because a job is on it has that job.

#[test]
fn a_runner_that_takes_a_job_while_it_is_asked_to_go_is_left_alone() {
    let locked = || {
        let culprit = Culprit::Source(SourceId::new("git"));
        Fault::new(FaultKind::Locked { lock: "job".into() }, culprit, "422")
    };
    let mut play = Play::new(spec());
    play.cordons = (0..9).map(|_| Err(locked())).collect();
    play.start_runner(1);
    play.sees(&[(1, true, 0)], &[]);
    play.now += 300;
    // Its row may lag behind.
    for _ in 0..9 {
        assert_eq!(verdicts(&play.sees(&[(1, true, 0)], &[])), Vec::<String>::new());
    }
    assert_eq!(verdicts(&play.sees(&[], &[])), Vec::<String>::new());
}

// Invariant: the numbers of rows are known beyond a start of the service.

#[test]
fn numbers_of_rows_are_written_down_once_and_asked_for_where_they_were_given() {
    let mut play = Play::new(spec());
    play.start_runner(1);
    let numbers: drover_model::ports::Known = [(name(1), [7].into()), (name(2), [8].into())].into();
    let observed = SourceObservation { numbers, ..observation(&[(1, true, 1)], &[]) };
    let effects = reported(&play.poll(Ok(observed.clone())));
    assert!(effects.contains(&"1 has {7}".to_owned()), "{effects:?}");
    let kept = &mut play.runners.get_mut(&name(1)).expect("a runner").kept;
    kept.entry.rows = [7].into();
    let effects = reported(&play.poll(Ok(observed)));
    assert!(!effects.contains(&"1 has {7}".to_owned()), "{effects:?}");
    assert_eq!(play.mind.known(&play.runners), [(name(1), [7].into())].into());
    play.runners.get_mut(&name(1)).expect("a runner").kept.entry.place = Some(2);
    assert_eq!(play.mind.known(&play.runners), [(name(1), [].into())].into());
}
