//! Single calls of the connector against the fake: limits, refusals, answers that are lost.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use drover_ci::SourceConnection;
use drover_ci::github::{Login, Registration, Scope, Settings};
use drover_ci::{Connector, RegisterRequest, Route, System, connector};
use drover_model::gate::Gate;
use drover_model::id::{CloudId, RunnerName, TemplateId, VmId};
use drover_model::ports::{Known, ShellTarget};
use drover_model::record::Want;
use drover_model::spec::TemplateSpec;
use proxmox_client::Tls;

use super::fake::{GitHub, TOKEN};

pub(super) fn connected(github: &GitHub, scope: Scope) -> Arc<dyn Connector> {
    let settings = Settings {
        scope,
        login: Login::Token(TOKEN.to_owned().into()),
        repositories: None,
        group: None,
        registration: Registration::Jit,
        scale_set: None,
        labels: None,
        poll: Duration::ZERO,
    };
    let connection = SourceConnection {
        url: format!("{}/api/v3", github.url).parse().unwrap(),
        tls: Tls::System,
        route: Route::Direct,
        system: System::GitHub(Box::new(settings)),
        command: None,
        webhook: None,
    };
    connector(&connection, Gate::default()).unwrap()
}

pub(super) fn run<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

pub(super) fn repository() -> Scope {
    Scope::Repository("o".into(), "app".into())
}

async fn register(connector: &dyn Connector, name: &str) -> Result<String, String> {
    let spec = TemplateSpec::bare(TemplateId::new(CloudId::new("lab"), "linux"), VmId(9000));
    let want = Want::Labels(["linux".to_owned()].into());
    let runner = RunnerName::new(name);
    let address = "127.0.0.1".parse().unwrap();
    let (ssh, os) = (spec.ssh.clone(), spec.os);
    let target = ShellTarget { address, ssh, os, host_keys: Vec::new() };
    let request = RegisterRequest { runner: &runner, spec: &spec, want: &want, target: &target };
    let bundle = connector.register(request).await.map_err(|error| error.to_string())?;
    assert!(
        bundle
            .files
            .iter()
            .all(|file| !bundle.command.contains(&*String::from_utf8_lossy(&file.content)))
    );
    Ok(bundle.command)
}

const NAME: &str = "drover-7k2m9qxw-4f8z1c3px9t2vkab";

// Invariant: looks that find nothing new cost nothing of the rate limit.

#[test]
fn looks_at_an_organisation_where_nothing_happens_are_free() {
    let github = GitHub::start();
    for n in 0..30 {
        let job = github.job(&format!("o/r{n}"), "old", &["self-hosted"], "true");
        github.state().jobs.iter_mut().find(|known| known.id == job).unwrap().status = "completed";
    }
    github.state().remaining = Some(1000);
    let hub = connected(&github, Scope::Organisation("o".into()));
    run(async {
        for _ in 0..20 {
            assert_eq!(hub.poll(&Known::new()).await.unwrap().jobs.len(), 0);
        }
    });
    let all = github.heard("");
    let free = all.iter().filter(|(_, status)| *status == 304).count();
    let ratio = free as f64 / all.len() as f64;
    crate::harness::note(&format!("GitHub: {free} of {} requests were free", all.len()));
    // The first look pays for all lists: one in twenty, and what no list answers for.
    assert!(ratio >= 0.94, "{free} of {}", all.len());
    assert!(github.state().remaining.unwrap() > 900);
    github.sound();
}

// Invariant: nothing is asked while nothing may be, and the report says until when.

#[test]
fn a_limit_that_is_used_up_ends_all_calls_and_says_so() {
    let github = GitHub::start();
    github.job("o/app", "it", &["self-hosted", "linux"], "true");
    github.state().remaining = Some(101);
    let hub = connected(&github, repository());
    run(async {
        let error = hub.poll(&Known::new()).await.unwrap_err().to_string();
        assert!(
            error.contains("rate limit") && error.contains("sends no requests before"),
            "{error}"
        );
        let heard = github.heard("").len();
        hub.poll(&Known::new()).await.unwrap_err();
        assert_eq!(github.heard("").len(), heard, "nothing was asked");
        register(&*hub, NAME).await.unwrap();
        github.state().remaining = Some(0);
        register(&*hub, NAME).await.unwrap_err();
        let heard = github.heard("").len();
        let error = register(&*hub, NAME).await.unwrap_err();
        assert!(error.contains("rate limit"), "{error}");
        assert_eq!(github.heard("").len(), heard, "nothing was asked");
    });
    github.sound();
}

// Invariant: what is missing is named, by scope.

#[test]
fn a_login_that_may_not_make_runners_hears_what_it_lacks_before_a_machine_is_started() {
    let scopes = [
        (repository(), "`Administration: write` (classic token: repo) for repository o/app"),
        (Scope::Organisation("o".into()), "`Self-hosted runners: write` of the organisation"),
        (Scope::Enterprise("e".into()), "manage_runners:enterprise"),
    ];
    for (scope, lacks) in scopes {
        let github = GitHub::start();
        github.state().refuse = Some(("registration-token", 403));
        let hub = connected(&github, scope);
        let error = run(hub.poll(&Known::new())).unwrap_err().to_string();
        assert!(error.contains(lacks), "{error}");
    }
    let github = GitHub::start();
    github.state().refuse = Some(("/actions/runs", 403));
    let error = run(connected(&github, repository()).poll(&Known::new())).unwrap_err().to_string();
    assert!(error.contains("`Actions: read`"), "{error}");
}

// Invariant: of one name there is one row at the most, whatever was lost before.

#[test]
fn a_name_that_is_taken_and_an_answer_that_was_lost_leave_one_row() {
    let github = GitHub::start();
    let hub = connected(&github, Scope::Organisation("o".into()));
    run(async {
        github.state().enrol(NAME, vec!["old".into()], 1);
        github.state().enrol("drover-7k2m9qxw-4f8z1c3px9t2vkac", vec!["other".into()], 1);
        github.state().lose = Some("generate-jitconfig");
        register(&*hub, NAME).await.unwrap_err();
        register(&*hub, NAME).await.unwrap();
        let rows: Vec<(String, BTreeSet<String>)> = github
            .state()
            .runners
            .iter()
            .map(|row| (row.name.clone(), row.labels.iter().cloned().collect()))
            .collect();
        assert_eq!(rows.len(), 2, "{rows:?}");
        assert_eq!(rows[1].0, NAME);
        assert_eq!(rows[1].1, ["linux".to_owned(), "self-hosted".to_owned()].into());
        hub.deregister(&RunnerName::new(NAME)).await.unwrap();
        hub.deregister(&RunnerName::new(NAME)).await.unwrap();
        assert_eq!(github.state().runners.len(), 1, "others' rows are not touched");
    });
    github.sound();
}

#[test]
fn a_runner_with_a_job_keeps_its_row_and_one_without_takes_none_after_it_is_reported() {
    let github = GitHub::start();
    let hub = connected(&github, repository());
    let name = RunnerName::new(NAME);
    run(async {
        register(&*hub, NAME).await.unwrap();
        github.job("o/app", "it", &["self-hosted"], "true");
        let give = |status| {
            let mut state = github.state();
            state.jobs[0].status = status;
            state.jobs[0].runner = Some(NAME.into());
        };
        give("in_progress");
        assert!(hub.cordon(&name).await.unwrap_err().to_string().contains("422"), "it has a job");
        let rows = hub.poll(&Known::new()).await.unwrap().rows;
        assert_eq!((rows.len(), rows[0].jobs, rows[0].job.is_some()), (1, 1, true));
        assert!(hub.deregister(&name).await.unwrap_err().to_string().contains("422"));
        give("completed");
        hub.cordon(&name).await.unwrap();
        assert!(hub.poll(&Known::new()).await.unwrap().rows.is_empty());
    });
    github.sound();
}

// Invariant: lists are read to their end.

#[test]
fn more_rows_and_jobs_than_a_page_holds_are_all_seen() {
    let github = GitHub::start();
    let names: Vec<String> = (0..250).map(|n| format!("drover-7k2m9qxw-{n:016}")).collect();
    for name in &names {
        github.state().enrol(name, vec!["linux".into()], 1);
    }
    for n in 0..120 {
        github.job("o/app", &format!("j{n}"), &["self-hosted", "linux"], "true");
    }
    let observation = run(connected(&github, repository()).poll(&Known::new())).unwrap();
    assert_eq!((observation.rows.len(), observation.jobs.len()), (250, 120));
    assert!(observation.whole);
    github.sound();
}
