use super::*;

const MOST: u32 = 16;

fn clone() -> Work {
    Work { name: "clone".into(), holds: None }
}

/// A machine that serves operations: each first works on its own, then waits for the one resource.
struct Machine {
    /// How long each works on its own, in milliseconds; used in turn.
    alone: Vec<u64>,
    /// How long each holds the resource, in milliseconds.
    held: u64,
    /// How long an operation waits for the resource before it fails, in milliseconds.
    time_limits: u64,
}

/// The result of many operations that all wait from the start.
#[derive(Debug)]
struct Played {
    failed: usize,
    took: u64,
    widest: u32,
}

impl Machine {
    /// Plays until `count` have completed; those that timed out try again.
    fn play(&self, limit: &mut AdaptiveLimit, rule: Adapt, most: u32, count: usize) -> Played {
        self.play_from(0, limit, rule, most, count)
    }

    fn play_from(
        &self,
        started: u64,
        limit: &mut AdaptiveLimit,
        rule: Adapt,
        most: u32,
        count: usize,
    ) -> Played {
        let mut now = started;
        let (mut done, mut failed, mut widest) = (0, 0, 0);
        // Each with the time at which it asks for the resource, or ends.
        let mut working: Vec<(u64, RunningWork)> = Vec::new();
        let mut waiting: VecDeque<(u64, RunningWork)> = VecDeque::new();
        let mut holder: Option<(u64, RunningWork)> = None;
        let mut alone = self.alone.iter().cycle();
        while done < count {
            while limit.running() < limit.width(&clone(), rule, most, Moment(now))
                && done + (limit.running() as usize) < count
            {
                let turn = limit.begin(clone(), Moment(now));
                working.push((now + alone.next().copied().unwrap_or(0), turn));
                widest = widest.max(limit.running());
            }
            let next = working.iter().map(|(at, _)| *at);
            let next = next.chain(holder.iter().map(|(at, _)| *at));
            let time_limits = waiting.front().map(|(since, _)| since + self.time_limits);
            now = next.chain(time_limits).min().unwrap_or(now + 1);
            if holder.as_ref().is_some_and(|(until, _)| *until <= now)
                && let Some((_, turn)) = holder.take()
            {
                limit.end(turn, WorkEnd::Done, Moment(now));
                done += 1;
            }
            let (ready, still): (Vec<_>, Vec<_>) =
                working.into_iter().partition(|(at, _)| *at <= now);
            working = still;
            waiting.extend(ready.into_iter().map(|(_, turn)| (now, turn)));
            if holder.is_none() {
                holder = waiting.pop_front().map(|(_, turn)| (now + self.held, turn));
            }
            while waiting.front().is_some_and(|(since, _)| since + self.time_limits <= now) {
                let Some((_, turn)) = waiting.pop_front() else { break };
                limit.end(turn, WorkEnd::Contended, Moment(now));
                failed += 1;
            }
        }
        Played { failed, took: now - started, widest }
    }

    fn best_fixed(&self, count: usize) -> u64 {
        let played = [1, 2, 4, 8, 16].map(|most| {
            let played = self.play(&mut AdaptiveLimit::default(), Adapt::Fixed, most, count);
            if played.failed == 0 { played.took } else { u64::MAX }
        });
        played.into_iter().min().unwrap_or(u64::MAX)
    }
}

// Invariant: no operation times out on a lock that is held for a few seconds, and the total time is
// at most a tenth longer than with the best configured width.

#[test]
fn no_lock_that_is_held_for_up_to_nine_seconds_is_waited_for_in_vain_nor_left_idle() {
    for held in [50, 200, 1_000, 2_000, 5_000, 9_000] {
        let machine = Machine { alone: vec![300, 500, 400], held, time_limits: 10_000 };
        let played = machine.play(&mut AdaptiveLimit::default(), Adapt::ByTimes, MOST, 300);
        assert_eq!(played.failed, 0, "{held}: {played:?}");
        let best = machine.best_fixed(300);
        assert!(played.took * 100 <= best * 110, "{held}: {played:?} beside {best}");
    }
}

#[test]
fn what_nobody_waits_for_runs_as_widely_as_configured() {
    let machine = Machine { alone: vec![60_000, 40_000, 75_000], held: 20, time_limits: 10_000 };
    let mut limit = AdaptiveLimit::default();
    machine.play(&mut limit, Adapt::ByTimes, MOST, 60);
    let learned = machine.play(&mut limit, Adapt::ByTimes, MOST, 200);
    assert_eq!((learned.failed, learned.widest), (0, MOST));
    let best = machine.best_fixed(200);
    assert!(learned.took * 100 <= best * 110, "{learned:?} beside {best}");
}

#[test]
fn a_lock_held_beyond_all_waiting_fails_once_and_is_then_taken_one_by_one() {
    let machine = Machine { alone: vec![100], held: 12_000, time_limits: 10_000 };
    let played = machine.play(&mut AdaptiveLimit::default(), Adapt::ByTimes, MOST, 40);
    assert_eq!(played.failed, 1);
}

#[test]
fn a_storage_that_gets_slower_narrows_the_width_and_one_that_gets_faster_widens_it() {
    let slow = Machine { alone: vec![300, 500], held: 3_000, time_limits: 10_000 };
    let fast =
        Machine { held: 40, ..Machine { alone: vec![300, 500], held: 0, time_limits: 10_000 } };
    let mut limit = AdaptiveLimit::default();
    let rule = Adapt::ByTimes;
    let wide = fast.play(&mut limit, rule, MOST, 100).widest;
    let slowed = slow.play_from(1_000_000, &mut limit, rule, MOST, 100);
    let narrow = limit.width(&clone(), rule, MOST, Moment(1_999_999));
    fast.play_from(3_000_000, &mut limit, rule, MOST, 200);
    let again = limit.width(&clone(), rule, MOST, Moment(3_999_999));
    assert!(narrow <= 3 && wide > 6 && again > 6, "{wide}, {narrow}, {again}");
    assert!(slowed.failed <= 24, "{slowed:?}");
}

// Invariant: faults narrow the width, and time widens it again.

#[test]
fn faults_halve_what_runs_at_once_and_timeouts_that_come_together_count_once() {
    let mut limit = AdaptiveLimit::default();
    let turns: Vec<RunningWork> = (0..8).map(|_| limit.begin(clone(), Moment(0))).collect();
    for turn in turns {
        limit.end(turn, WorkEnd::Contended, Moment(10_000));
    }
    let now = Moment(10_000);
    assert_eq!(limit.width(&clone(), Adapt::ByFaults, MOST, now), 4);
    let turn = limit.begin(clone(), now);
    limit.end(turn, WorkEnd::Done, Moment(11_000));
    assert_eq!(limit.width(&clone(), Adapt::ByFaults, MOST, now), 5);
    for _ in 0..20 {
        let turn = limit.begin(clone(), Moment(20_000));
        limit.end(turn, WorkEnd::Done, Moment(21_000));
    }
    assert_eq!(
        limit.width(&clone(), Adapt::ByFaults, MOST, Moment(30_000)),
        7,
        "eight at once failed"
    );
    assert_eq!(limit.width(&clone(), Adapt::ByFaults, MOST, Moment(700_000)), MOST);
}

#[test]
fn what_never_began_changes_nothing() {
    let mut limit = AdaptiveLimit::default();
    for _ in 0..10 {
        let turn = limit.begin(clone(), Moment(0));
        limit.end(turn, WorkEnd::Inconclusive, Moment(60_000));
    }
    assert_eq!(limit.width(&clone(), Adapt::ByTimes, MOST, Moment(60_000)), INITIAL_WIDTH);
    assert_eq!(limit.width(&clone(), Adapt::ByFaults, MOST, Moment(60_000)), MOST);
}

#[test]
fn a_fixed_width_stays_and_no_width_is_zero() {
    let limit = AdaptiveLimit::default();
    assert_eq!(limit.width(&clone(), Adapt::Fixed, 9, Moment(0)), 9);
    assert_eq!(limit.width(&clone(), Adapt::Fixed, 0, Moment(0)), 1);
    assert_eq!(limit.width(&clone(), Adapt::ByTimes, 1, Moment(0)), 1);
}
