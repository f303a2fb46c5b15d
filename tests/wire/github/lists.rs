//! Lists of runners that are longer than drover reads, and that change while they are read.

use std::collections::BTreeSet;

use drover_ci::github::Scope;
use drover_model::id::RunnerName;
use drover_model::ports::Known;
use serde_json::json;

use super::calls::{connected, run};
use super::fake::GitHub;
use super::{cleared, started};

/// Two jobs of a GitHub that has so many runners of others, whose pages may shift between two reads.
fn run_beside(others: usize, shifts: bool) {
    let (_dir, sim, site, github, _service, mut events) =
        started("scope: repo/o/app, pollSeconds: 1");
    add(&github, others);
    github.state().shifts = shifts;
    for name in ["one", "two"] {
        github.job("o/app", name, &["self-hosted", "linux"], "sleep 6");
    }
    events.finished(2);
    let ends = github.conclusions().into_values().collect::<Vec<_>>();
    assert_eq!(ends, ["success", "success"], "beside {others} rows");
    assert_eq!(site.json(&["status"])["lostJobs"], json!([]));
    github.state().runners.retain(|runner| !runner.name.starts_with("theirs-"));
    cleared(&github, &sim, &site);
}

/// Adds runners of others.
fn add(github: &GitHub, others: usize) {
    for n in 0..others {
        github.state().enrol(&format!("theirs-{n}"), vec!["self-hosted".into()], 1);
    }
}

fn name(n: usize) -> RunnerName {
    RunnerName::new(format!("drover-7k2m9qxw-{n:016}"))
}

fn organisation() -> Scope {
    Scope::Organisation("o".into())
}

// Invariant: a runner that a list does not show is not done for that.

#[test]
fn jobs_run_to_their_end_beside_more_rows_than_are_read() {
    run_beside(2_100, false);
}

#[test]
fn jobs_run_to_their_end_while_the_pages_of_rows_shift() {
    run_beside(190, true);
}

#[test]
fn a_runner_that_no_list_shows_is_found_by_itself_and_gone_only_by_githubs_own_word() {
    for (others, shifts) in [(2_100, false), (190, true)] {
        let github = GitHub::start();
        add(&github, others);
        github.state().enrol(name(1).as_str(), vec!["linux".into()], 1);
        github.state().shifts = shifts;
        let hub = connected(&github, organisation());
        let known: Known = [name(1), name(2)].map(|name| (name, BTreeSet::new())).into();
        let look = || {
            let observation = run(hub.poll(&known)).unwrap();
            let rows: Vec<RunnerName> =
                observation.rows.into_iter().map(|row| row.runner).collect();
            (rows, observation.gone.into_iter().collect::<Vec<_>>(), observation.whole)
        };
        for _ in 0..3 {
            assert_eq!(look(), (vec![name(1)], vec![name(2)], false), "{others}");
        }
        github.state().runners.retain(|runner| runner.name != name(1).as_str());
        let (rows, gone, _) = look();
        assert_eq!((rows, gone), (vec![], vec![name(1), name(2)]));
        github.sound();
    }
}

#[test]
fn a_row_that_the_login_may_not_see_any_more_is_not_gone() {
    let github = GitHub::start();
    add(&github, 301);
    github.state().enrol(name(1).as_str(), vec!["linux".into()], 1);
    let hub = connected(&github, organisation());
    let known: Known = [(name(1), BTreeSet::new())].into();
    assert_eq!(run(hub.poll(&known)).unwrap().rows.len(), 1);
    github.state().refuse = Some(("/actions/runners", 404));
    let error = run(hub.poll(&known)).unwrap_err().to_string();
    assert!(error.contains("404") && error.contains("the login needs"), "{error}");
}

// Invariant: a job that runs on a runner says so, whatever lists show.

#[test]
fn a_runner_whose_job_is_under_way_is_busy_though_no_list_of_runners_shows_it() {
    let github = GitHub::start();
    let hub = connected(&github, organisation());
    github.job("o/app", "it", &["self-hosted"], "true");
    {
        let mut state = github.state();
        state.jobs[0].status = "in_progress";
        state.jobs[0].runner = Some(name(1).to_string());
    }
    let observation = run(hub.poll(&[(name(1), BTreeSet::new())].into())).unwrap();
    let rows = &observation.rows;
    assert_eq!((rows.len(), rows[0].jobs, rows[0].job.is_some()), (1, 1, true));
    assert_eq!(
        observation.removed,
        [name(1)].into(),
        "asked for that very row, it does not have it"
    );
    assert!(!rows[0].online && observation.gone.is_empty());
}

// Invariant: others' rows cost next to nothing of the rate limit.

#[test]
fn two_thousand_rows_of_others_that_change_all_the_time_do_not_use_up_the_limit() {
    for own in [1, 20, 100] {
        let github = GitHub::start();
        add(&github, 2_000);
        let known: Known = (0..own).map(|n| (name(n), BTreeSet::new())).collect();
        for name in known.keys() {
            github.state().enrol(name.as_str(), vec!["linux".into()], 1);
        }
        let hub = connected(&github, organisation());
        let paid = || github.heard("").iter().filter(|(_, status)| *status != 304).count();
        let (mut seen, mut first, looks) = (BTreeSet::new(), 0, 30);
        for at in 0..=looks {
            // All of others' rows change between two looks, and one of drover's.
            for (n, runner) in github.state().runners.iter_mut().enumerate() {
                runner.online ^= n < 2_000 || n == 2_000 + at % own;
            }
            let observation = run(hub.poll(&known)).unwrap();
            assert!(observation.gone.is_empty());
            seen.extend(observation.rows.into_iter().map(|row| row.runner));
            first = if at == 0 { paid() } else { first };
        }
        assert_eq!(seen, known.keys().cloned().collect(), "each is reported");
        // A look each 10 s, and the whole list each quarter of an hour.
        let hour = 4 * first + 360 * (paid() - first) / looks;
        let all = 360 * github.heard("").len() / looks;
        crate::harness::note(&format!(
            "GitHub, 2,000 rows of others and {own} of drover's: {hour} requests an hour count, \
             {all} are made"
        ));
        assert!(hour < 2_500, "{hour} of 5,000 with {own}");
    }
}
