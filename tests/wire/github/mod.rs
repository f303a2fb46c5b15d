//! Jobs of a GitHub, which is a fake held against GitHub's schemas, on agents of the simulated cluster.

mod calls;
mod ends;
mod fake;
mod guest;
mod lists;
mod old;
mod scale;
mod server;
mod shapes;

use std::process::Command;
use std::time::Duration;

use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::{Value, json};
use sha2::Sha256;

use crate::harness::{Events, Service, Sim, Site, world};
use crate::open::{HOOK_SECRET, HOOKED, Open};
use fake::{GitHub, TOKEN};

/// What puts the runner of the tests' own into guests, where drover expects GitHub's.
fn prepare() -> String {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/wire/github");
    let [run, listener] = ["run.sh", "runner.py"]
        .map(|name| format!("{{upload: {{from: \"{folder}/{name}\", to: {name}}}}}"));
    let place = "/opt/actions-runner";
    let place = format!("mkdir -p {place} && install -m 755 run.sh runner.py {place}");
    format!("    prepare: [{run}, {listener}, {{run: \"{place}\"}}]\n")
}

/// A site with this GitHub as its source, whose guests have a small runner of the tests' own; more
/// credentials and keys of the source.
fn demand(site: &Site, yaml: &str, github: &GitHub, keys: &str) {
    site.write_secret("github", TOKEN);
    let dir = site.dir.path().display();
    let prepare = prepare();
    let token =
        format!("credentials:\n  github: {{kind: apiToken, secretFile: \"{dir}/github\"}}\n");
    let app = format!("  app: {{kind: githubApp, appId: 4711, secretFile: \"{dir}/app\"}}\n");
    let app = if keys.contains("credentialsId: app") { app } else { String::new() };
    let yaml = yaml.replace("credentials:\n", &format!("{token}{app}"));
    let url = &github.url;
    let login = if keys.contains("credentialsId") { "" } else { "credentialsId: github, " };
    site.write_yaml(&format!(
        "{yaml}{prepare}demand:\n  hub:\n    {{kind: github, url: \"{url}/api/v3\", {login}{keys}}}\n"
    ));
}

fn started(keys: &str) -> (tempfile::TempDir, Sim, Site, GitHub, Service, Events) {
    let github = GitHub::start();
    let (dir, sim, site) = world();
    demand(&site, &site.yaml(&sim, ""), &github, keys);
    let service = Service::start(&site);
    service.drain();
    let events = Events::follow(&site);
    (dir, sim, site, github, service, events)
}

/// Its rows, guests and jobs are as they were before anything was started.
fn left_nothing(github: &GitHub, sim: &Sim, site: &Site) {
    assert_eq!(site.json(&["status"])["lostJobs"], json!([]));
    cleared(github, sim, site);
}

fn cleared(github: &GitHub, sim: &Sim, site: &Site) {
    site.until_empty();
    assert!(github.state().runners.is_empty());
    assert_eq!(sim.guests(), Vec::<u64>::new());
    github.sound();
}

// Invariant: each job runs on an agent of its own, whatever the scope and the login, and nothing is
// left behind.

#[test]
fn jobs_of_a_repository_run_on_agents_of_their_own() {
    let (_dir, sim, site, github, _service, mut events) =
        started("scope: repo/o/app, pollSeconds: 1");
    github.job("o/app", "good", &["self-hosted", "linux"], "echo built");
    github.job("o/app", "bad", &["Self-Hosted", "linux", "x64"], "exit 3");
    let held = github.job("o/app", "held", &["self-hosted", "linux"], "true");
    github.state().jobs.iter_mut().find(|job| job.id == held).unwrap().status = "waiting";
    github.job("o/app", "theirs", &["ubuntu-latest"], "true");
    assert_eq!(events.finished(2).len(), 2, "each its own");
    let ends = [("bad", "failure"), ("good", "success"), ("held", "waiting"), ("theirs", "queued")];
    let ends = ends.map(|(name, end)| (name.to_owned(), end.to_owned()));
    assert_eq!(github.conclusions(), ends.into());
    left_nothing(&github, &sim, &site);
}

// Invariant: runners that are in one guest at once have a directory each.

#[test]
fn two_jobs_at_once_on_one_machine_have_a_runner_with_a_directory_of_its_own_each() {
    let github = GitHub::start();
    let (_dir, sim, site) = world();
    let yaml = site.yaml(&sim, "    numExecutors: 2\n").replace("instanceCap: 4", "instanceCap: 1");
    demand(&site, &yaml, &github, "scope: repo/o/app, pollSeconds: 1");
    let service = Service::start(&site);
    service.drain();
    let mut events = Events::follow(&site);
    let both = |own: &str, other: &str| {
        let wait = format!("touch ../../{own}; until test -e ../../{other}; do sleep 0.1; done");
        format!("{wait}; test ! -e /opt/actions-runner/.runner")
    };
    github.job("o/app", "one", &["self-hosted", "linux"], &both("one", "two"));
    github.job("o/app", "two", &["self-hosted", "linux"], &both("two", "one"));
    assert_eq!(events.finished(1).len(), 1, "both on one");
    assert_eq!(github.conclusions().into_values().collect::<Vec<_>>(), ["success", "success"]);
    left_nothing(&github, &sim, &site);
}

/// An App's key and what proves it.
fn app_key(site: &Site, github: &GitHub) {
    let openssl = |args: &[&str]| {
        let out = Command::new("openssl").args(args).output().unwrap();
        assert!(out.status.success(), "{out:?}");
        String::from_utf8(out.stdout).unwrap()
    };
    let key = openssl(&["genrsa", "-traditional", "2048"]);
    site.write_secret("app", &key);
    let path = site.dir.path().join("app");
    let public = openssl(&["rsa", "-in", path.to_str().unwrap(), "-pubout"]);
    github.state().public_key = Some(public);
}

#[test]
fn an_app_runs_jobs_of_an_organisation_in_a_group_of_its_runners() {
    let github = GitHub::start();
    let (_dir, sim, site) = world();
    app_key(&site, &github);
    github.job("o/one", "first", &["linux"], "true");
    github.job("o/two", "second", &["self-hosted", "x64"], "true");
    let keys = "scope: org/o, credentialsId: app, runnerGroup: machines, labels: [linux, x64], \
                pollSeconds: 1";
    demand(&site, &site.yaml(&sim, ""), &github, keys);
    let service = Service::start(&site);
    service.drain();
    let mut events = Events::follow(&site);
    events.until("source", |fact| fact["source"]["runners"] == 2);
    // What it has is taken back: it mints another, once.
    github.state().revoke();
    events.finished(2);
    assert_eq!(github.conclusions().into_values().collect::<Vec<_>>(), ["success", "success"]);
    let bodies = github.heard("generate-jitconfig");
    assert_eq!(bodies.iter().filter(|(_, status)| *status == 201).count(), 2, "{bodies:?}");
    assert_eq!(github.state().groups, [7, 7]);
    assert_eq!(github.state().minted, 2, "one that was taken back, and one after it");
    left_nothing(&github, &sim, &site);
}

#[test]
fn an_older_servers_guests_register_themselves_where_that_is_asked_for() {
    let run = "runnerCommand: 'exec python3 ../../runner.py \"$@\"'";
    let keys = format!("scope: repo/o/app, registration: token, pollSeconds: 1, {run}");
    let (_dir, sim, site, github, _service, mut events) = started(&keys);
    github.job("o/app", "it", &["self-hosted", "linux"], "true");
    events.finished(1);
    assert_eq!(github.conclusions(), [("it".to_owned(), "success".to_owned())].into());
    assert_eq!(github.heard("generate-jitconfig"), []);
    left_nothing(&github, &sim, &site);
}

// Invariant: a scale set's jobs are reported, not looked for, and its session is given back.

#[test]
fn a_scale_set_is_made_and_its_jobs_run_without_a_look_at_any_list() {
    let keys = "scope: org/o, mode: scaleSet, scaleSet: drover-lab, labels: [linux, x64], \
                pollSeconds: 3600";
    let (_dir, sim, site, github, mut service, mut events) = started(keys);
    github.until(|state| state.scale.owner.is_some());
    github.job("o/app", "one", &["linux"], "true");
    github.job("o/app", "two", &["linux", "x64"], "true");
    github.state().scale.expired = true;
    events.finished(2);
    assert_eq!(github.conclusions().into_values().collect::<Vec<_>>(), ["success", "success"]);
    assert_eq!(github.heard("/actions/runs"), []);
    left_nothing(&github, &sim, &site);
    service.child.signal("TERM");
    assert_eq!(service.child.wait(), Some(0));
    let state = github.state();
    assert_eq!(state.scale.sessions, (1, 1, 1), "opened, renewed, closed");
    assert!(state.scale.acknowledged.len() >= 3, "{:?}", state.scale.acknowledged);
    assert_eq!(state.scale.set.as_ref().unwrap().0, "drover-lab");
}

#[test]
fn a_session_goes_on_after_polls_that_were_not_answered() {
    let keys =
        "scope: org/o, mode: scaleSet, scaleSet: drover-lab, labels: [linux], pollSeconds: 3600";
    let (_dir, sim, site, github, _service, mut events) = started(keys);
    github.until(|state| state.scale.owner.is_some());
    github.state().scale.broken = 3;
    github.job("o/app", "one", &["linux"], "true");
    events.finished(1);
    left_nothing(&github, &sim, &site);
    assert_eq!(github.state().scale.sessions, (1, 0, 0), "opened once, and held");
}

#[test]
fn a_session_that_a_kill_cut_off_is_given_back_by_the_next_start_which_has_one_at_once() {
    let keys =
        "scope: org/o, mode: scaleSet, scaleSet: drover-lab, labels: [linux], pollSeconds: 3600";
    let (_dir, _sim, site, github, mut service, mut events) = started(keys);
    let ran = |state: &fake::State| state.jobs.iter().all(|job| job.conclusion.is_some());
    github.job("o/app", "one", &["linux"], "true");
    events.until("agentGone", |_| true);
    service.child.signal("KILL");
    service.child.wait();
    let _service = Service::start(&site);
    github.job("o/app", "two", &["linux"], "true");
    github.until(ran);
    assert_eq!(github.state().scale.sessions, (2, 0, 1), "the first was given back");
}

#[test]
fn sessions_that_are_opened_and_never_heard_of_are_opened_ever_less_often() {
    let github = GitHub::start();
    // Another try would be answered the same: the session ends with it.
    github.state().scale.refuses = Some(404);
    let (_dir, sim, site) = world();
    let keys =
        "scope: org/o, mode: scaleSet, scaleSet: drover-lab, labels: [linux], pollSeconds: 3600";
    demand(&site, &site.yaml(&sim, ""), &github, keys);
    let service = Service::start(&site);
    service.drain();
    github.until(|state| state.scale.opened.len() >= 4);
    let opened = github.state().scale.opened.clone();
    let pauses: Vec<Duration> = opened.windows(2).map(|two| two[1] - two[0]).collect();
    // Each is twice the one before it, and made longer by up to a half.
    let least = [2, 4, 8].map(Duration::from_secs);
    assert!(pauses.iter().zip(least).all(|(pause, least)| *pause >= least), "{pauses:?}");
    assert!(github.state().scale.sessions.2 >= 3, "each is given back");
}

#[test]
fn labels_of_a_scale_set_that_is_there_are_brought_up_to_date() {
    let github = GitHub::start();
    github.state().scale.set = Some(("drover-lab".into(), vec!["old".into(), "linux".into()]));
    let (_dir, sim, site) = world();
    let keys = "scope: org/o, mode: scaleSet, scaleSet: drover-lab, labels: [linux, x64]";
    demand(&site, &site.yaml(&sim, ""), &github, keys);
    let _service = Service::start(&site);
    let is_new = |labels: &[String]| labels == ["linux", "x64"];
    github.until(|state| state.scale.set.as_ref().is_some_and(|(_, labels)| is_new(labels)));
}

#[test]
fn a_scale_set_that_another_holds_is_reported() {
    let github = GitHub::start();
    let theirs = ("drover-lab".to_owned(), vec!["theirs".to_owned()]);
    github.state().scale.set = Some(theirs.clone());
    github.state().scale.owner = Some("other".into());
    let (_dir, sim, site) = world();
    let keys = "scope: org/o, mode: scaleSet, scaleSet: drover-lab";
    demand(&site, &site.yaml(&sim, ""), &github, keys);
    let service = Service::start(&site);
    service.drain();
    let mut events = Events::follow(&site);
    let is = |reported: &Value| reported.to_string().contains("another process holds the session");
    let status = site.json(&["status"])["sources"].clone();
    let text = if is(&status) { status } else { events.until("source", is) }.to_string();
    assert!(text.contains("give each drover a scale set of its own"), "{text}");
    assert_eq!(github.state().scale.set, Some(theirs), "what another holds is not changed");
}

// Invariant: a signed hook makes drover look at once, at the repository it names; one that is lost or
// comes again does no harm.

#[test]
fn a_hook_has_its_job_run_long_before_the_next_look_and_counts_once() {
    let github = GitHub::start();
    let (_dir, sim, site) = world();
    let (open, yaml) = Open::of(&site, &site.yaml(&sim, ""));
    let ready = github.job("o/other", "theirs", &["ubuntu-latest"], "true");
    github.state().jobs.iter_mut().find(|job| job.id == ready).unwrap().status = "completed";
    github.state().repositories.push("o/app".into());
    demand(&site, &yaml, &github, &format!("scope: org/o, {HOOKED}"));
    let service = Service::start(&site);
    service.drain();
    let mut events = Events::follow(&site);
    let send = |event: &str, body: &Value, id: &str| {
        let body = body.to_string();
        let mut mac = Hmac::<Sha256>::new_from_slice(HOOK_SECRET.as_bytes()).unwrap();
        mac.update(body.as_bytes());
        let digits: String =
            mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        let headers = [
            format!("X-Hub-Signature-256: sha256={digits}"),
            format!("X-GitHub-Delivery: {id}"),
            format!("X-GitHub-Event: {event}"),
            "Content-Type: application/json".to_owned(),
        ];
        open.send("hub", &headers, &body)
    };
    assert_eq!(send("ping", &json!({ "zen": "Keep it logically awesome." }), "p"), "200");
    let first = github.job("o/app", "sent", &["self-hosted", "linux"], "true");
    let other = github.heard("/repos/o/other/").len();
    let body = github.hook(first);
    let sent = [("a", "202"), ("a", "200"), ("b", "200")];
    for (id, status) in sent {
        assert_eq!(send("workflow_job", &body, id), status, "delivery {id}");
    }
    let gone = events.until("agentGone", |_| true);
    assert_eq!(gone["agent"]["reason"], "used-up", "{gone}");
    assert_eq!(github.conclusions()["sent"], "success");
    // Nobody hears of this one: it waits for the next look at all, and nothing is the worse for it.
    github.job("o/app", "unsent", &["self-hosted", "linux"], "true");
    assert_eq!(github.conclusions()["unsent"], "queued");
    assert_eq!(github.heard("/repos/o/other/").len(), other, "nobody spoke of it");
    github.sound();
}

// Invariant: a dispatcher of runners that is set by its environment is drover with the same variables.

#[test]
fn a_dispatchers_environment_runs_one_runner_at_a_time_in_its_range_and_removes_what_is_stopped() {
    let github = GitHub::start();
    let (_dir, sim, site) = world();
    let yaml = site.yaml(&sim, "").replace("    startVmId: 10000\n", "");
    let yaml = yaml.replace("    labelString: \"linux x64\"\n", "");
    let yaml = yaml.replace("    instanceCap: 4\n", "    instanceCap: 1\n");
    let prepare = prepare();
    let run = "exec python3 ../../runner.py \\\"$@\\\"";
    let source = format!("{{kind: github, registration: token, runnerCommand: \"{run}\"}}");
    site.write_yaml(&format!("{yaml}{prepare}demand:\n  github: {source}\n"));
    let page = format!("{}/NREL/EnergyPlus", github.url);
    let environment = [
        ("GITHUB_TOKEN", TOKEN),
        ("REPO_OWNER", "NREL"),
        ("REPO_NAME", "EnergyPlus"),
        ("REPO_URL", page.as_str()),
        ("POLL_INTERVAL", "1"),
        ("RUNNER_LABELS", "energyplus,linux,x64,ubuntu-22.04"),
        ("RUNNER_ID_START", "200"),
        ("RUNNER_ID_END", "299"),
    ];
    let mut service = Service::spawn_with(&site, &[], &environment);
    service.hear("READY=1");
    service.drain();
    let mut events = Events::follow(&site);
    for name in ["one", "two", "three"] {
        github.job("NREL/EnergyPlus", name, &["self-hosted", "energyplus"], "true");
    }
    let mut living = std::collections::BTreeSet::new();
    let (mut gone, mut most) = (0, 0);
    while gone < 3 {
        let fact = events.next_of(&["agent", "agentGone"]);
        let id = fact["agent"]["id"].as_str().unwrap().to_owned();
        if fact["kind"] == "agentGone" {
            living.remove(&id);
            gone += 1;
        } else {
            living.insert(id);
            let vmid = fact["agent"]["vmid"].as_u64();
            assert!(vmid.is_none_or(|vmid| (200..300).contains(&vmid)), "{fact}");
        }
        most = most.max(living.len());
    }
    assert_eq!(most, 1, "a single runner");
    assert_eq!(github.conclusions().into_values().collect::<Vec<_>>(), ["success"; 3]);
    // One that is switched off is removed, its row too.
    github.job("NREL/EnergyPlus", "long", &["self-hosted", "energyplus"], "sleep 600");
    events.until("source", |fact| fact["source"]["running"] == 1);
    let vmid = sim.guests()[0];
    sim.call("POST", &format!("/nodes/{}/qemu/{vmid}/status/stop", sim.fact("node")));
    github.state().jobs.retain(|job| job.name != "long");
    assert!(site.cli(&["resync"]).status.success());
    events.until("agentGone", |_| true);
    github.until(|state| state.runners.is_empty());
    cleared(&github, &sim, &site);
}
