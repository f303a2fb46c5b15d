//! The ways a job can go, whichever system it comes from: each is played with each fake.

use std::time::Instant;

use serde_json::{Value, json};

use crate::ci::{Fake, Server, nothing_left};
use crate::harness::{Events, Service, Sim, Site, WAIT_LIMIT, world};

/// What differs between kinds of systems.
pub struct Kind<F: Fake> {
    /// Keys of the source.
    pub keys: &'static str,
    /// The runner of the tests' own, which guests are given.
    pub script: &'static str,
    /// The program whose place it takes in them.
    pub program: &'static str,
    /// What follows it in a command of an operator's own.
    pub arguments: &'static str,
    /// How a plain label is written.
    pub label: fn(&str) -> String,
    /// Starts a fake.
    pub start: fn() -> Server<F>,
}

/// A fake, the cluster, and the service between them.
pub struct Scene<F: Fake> {
    pub server: Server<F>,
    pub sim: Sim,
    /// The service's site.
    pub site: Site,
    pub events: Events,
    label: fn(&str) -> String,
    service: Service,
    _dir: tempfile::TempDir,
}

impl<F: Fake> Scene<F> {
    /// Starts all of it, with these keys of the source and this state of the fake.
    pub fn start(kind: &Kind<F>, more: &str, change: impl Fn(&mut F)) -> Self {
        Self::start_with(kind, more, |_, yaml| yaml, change)
    }

    /// Starts all of it, with a change of the YAML beside that.
    pub fn start_with(
        kind: &Kind<F>,
        more: &str,
        rewrite: impl FnOnce(&Site, String) -> String,
        change: impl Fn(&mut F),
    ) -> Self {
        let server = (kind.start)();
        change(&mut server.fake());
        let (dir, sim, site) = world();
        let [linux, x64] = ["linux", "x64"].map(kind.label);
        let yaml = rewrite(&site, site.yaml(&sim, ""));
        let yaml = yaml.replace("\"linux x64\"", &format!("\"{linux} {x64}\""));
        let keys = kind.keys.replace("ADDRESS", &server.address());
        let poll = if more.contains("pollSeconds") { "" } else { "pollSeconds: 1," };
        let keys = format!("{keys}, {poll} labels: [{linux}, {x64}], {more}");
        server.source(&site, &yaml, (kind.script, kind.program), &keys);
        let service = Service::start(&site);
        service.drain();
        let events = Events::follow(&site);
        let label = kind.label;
        Self { server, sim, site, events, label, service, _dir: dir }
    }

    /// Kills the service, and starts it again.
    pub fn restart(&mut self) {
        self.service.child.signal("KILL");
        self.service.child.wait();
        self.service = Service::start(&self.site);
        self.service.drain();
        self.events = Events::follow(&self.site);
    }

    /// A job that waits, or is held back by another.
    pub fn push(&self, name: &str, labels: &[&str], after: Option<u64>, run: &str) -> u64 {
        let labels: Vec<String> = labels.iter().map(|text| (self.label)(text)).collect();
        let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
        self.server.fake().core().push(name, &labels, after, run)
    }

    /// Waits until its jobs ended so.
    pub fn ends(&self, expected: &[(&str, &'static str)]) {
        let expected = expected.iter().map(|(name, end)| ((*name).to_owned(), *end)).collect();
        self.server.until(&format!("{expected:?}"), |core| core.ends() == expected);
    }

    /// Switches an agent's machine off while a job is on it, and waits until that is found lost.
    pub fn lose(&mut self) -> Value {
        self.events.until("source", |fact| fact["source"]["running"] == 1);
        let agents = self.site.json(&["agents"]);
        let agent = agents["agents"][0]["id"].as_str().unwrap().to_owned();
        assert!(self.site.cli(&["retire", &agent]).status.success());
        let vmid = agents["agents"][0]["vmid"].as_u64().unwrap();
        let node = self.sim.fact("node");
        self.sim.call("POST", &format!("/nodes/{node}/qemu/{vmid}/status/stop"));
        // The cluster's list mentions it in its next cycle.
        let end = Instant::now() + WAIT_LIMIT;
        while self.site.json(&["status"])["lostJobs"] == json!([]) && Instant::now() < end {
            assert!(self.site.cli(&["resync"]).status.success());
        }
        self.events.until("jobLost", |_| true)
    }

    /// Waits for the end of so many agents, and until the source has no runner.
    pub fn gone(&mut self, count: usize) -> Vec<Value> {
        let (mut gone, mut runners) = (Vec::new(), None);
        while gone.len() < count || runners != Some(0) {
            let fact = self.events.next_of(&["agentGone", "source"]);
            if fact["kind"] == "source" {
                runners = fact["source"]["runners"].as_u64();
            } else {
                gone.push(fact["agent"].clone());
            }
        }
        gone
    }
}

/// Jobs that succeed, fail, wait on others, and want what nobody has.
pub fn jobs_have_agents_of_their_own<F: Fake>(kind: &Kind<F>) -> Server<F> {
    let mut scene = Scene::start(kind, "", |_| ());
    let good = scene.push("good", &["linux"], None, "echo built");
    scene.push("bad", &["linux", "x64"], None, "exit 3");
    scene.push("later", &["linux"], Some(good), "echo later");
    scene.push("other", &["windows"], None, "echo never");
    let gone = scene.gone(3);
    let mut agents: Vec<&str> = gone.iter().map(|agent| agent["id"].as_str().unwrap()).collect();
    agents.sort_unstable();
    agents.dedup();
    assert_eq!(agents.len(), 3, "each its own");
    assert!(gone.iter().all(|agent| agent["reason"] == "used-up"), "{gone:?}");
    scene.ends(&[("good", "success"), ("bad", "failure"), ("later", "success"), ("other", "-")]);
    nothing_left(&scene.server, &scene.sim, &scene.site);
    let log = scene.server.fake().core().jobs[0].log.clone();
    assert!(log.contains("built"), "{log}");
    let status = scene.site.json(&["status"]);
    assert_eq!(status["sources"][0]["ignored"], 1, "{status}");
    assert_eq!(status["lostJobs"], json!([]));
    scene.server
}

/// The system answers nothing for a while.
pub fn an_outage_is_reported_and_over_when_it_is<F: Fake>(kind: &Kind<F>) {
    let mut scene = Scene::start(kind, "", |_| ());
    scene.server.fake().core().down = true;
    let reported = scene.events.until("source", |fact| fact["source"]["silentSince"].is_string());
    let text = reported["source"]["detail"].as_str().unwrap();
    assert!(text.contains("503") && !text.contains("back soon"), "{text}");
    scene.push("it", &["linux"], None, "echo served");
    scene.server.fake().core().down = false;
    scene.gone(1);
    scene.ends(&[("it", "success")]);
    nothing_left(&scene.server, &scene.sim, &scene.site);
}

/// Somebody removes a runner's row before it has its job.
pub fn a_removed_row_costs_its_agent_and_not_the_job<F: Fake>(kind: &Kind<F>) {
    let mut scene = Scene::start(kind, "idleTimeoutSec: 10", |fake| fake.core().holds = true);
    scene.push("it", &["linux"], None, "echo served");
    let called = |row: &crate::ci::Row| row.called && row.name.starts_with("drover-");
    scene.server.until("connected", |core| core.rows.iter().any(called));
    scene.server.fake().core().rows.retain(|row| !row.name.starts_with("drover-"));
    scene.events.until("agentGone", |_| true);
    scene.server.fake().core().holds = false;
    scene.gone(1);
    scene.ends(&[("it", "success")]);
    nothing_left(&scene.server, &scene.sim, &scene.site);
}

/// Runners are on no page of their list that is read.
pub fn a_job_runs_to_its_end_while_lists_shift<F: Fake>(kind: &Kind<F>) {
    let mut scene = Scene::start(kind, "", |fake| {
        let core = fake.core();
        core.shifts = true;
        for n in 0..60 {
            core.row(&format!("theirs {n}"), Vec::new());
        }
    });
    scene.push("it", &["linux"], None, "sleep 5; echo served");
    let gone = scene.gone(1);
    assert_eq!(gone[0]["reason"], "used-up", "{gone:?}");
    scene.ends(&[("it", "success")]);
    assert_eq!(scene.site.json(&["status"])["lostJobs"], json!([]));
    nothing_left(&scene.server, &scene.sim, &scene.site);
}

/// The guest's program does something else.
pub fn a_runner_that_never_calls_is_given_up<F: Fake>(kind: &Kind<F>) {
    let more = "registerTimeoutSec: 5, runnerCommand: \"exec sleep 1000\"";
    let mut scene = Scene::start(kind, more, |_| ());
    scene.push("it", &["linux"], None, "echo never");
    let gone = scene.events.until("agentGone", |_| true);
    let why = gone["agent"]["detail"].as_str().unwrap();
    assert!(why.contains("its runner did not connect to source `ci` within 5 s"), "{why}");
    assert!(why.contains("it still runs, for ") && why.contains("its log is empty"), "{why}");
}

/// The guest's program does its job and complains at its end.
pub fn a_runner_that_ends_badly_after_its_job_is_done<F: Fake>(kind: &Kind<F>) {
    let command = format!("python3 ../../runner.py {}; exit 9", kind.arguments);
    let more = format!("registerTimeoutSec: 5, runnerCommand: \"{command}\"");
    let mut scene = Scene::start(kind, &more, |_| ());
    scene.push("it", &["linux"], None, "echo served");
    let gone = scene.gone(1);
    assert_eq!(gone[0]["reason"], "used-up", "{gone:?}");
    scene.ends(&[("it", "success")]);
    nothing_left(&scene.server, &scene.sim, &scene.site);
}

/// The guest's program ends at once, as of a wrong version.
pub fn a_runner_that_ends_at_once_is_reported_before_its_time<F: Fake>(kind: &Kind<F>) {
    let command = "cat *.env; echo version 1 is too old >&2; exit 7";
    let more = format!("registerTimeoutSec: 40, runnerCommand: \"{command}\"");
    let mut scene = Scene::start(kind, &more, |_| ());
    scene.push("it", &["linux"], None, "echo never");
    let gone = scene.events.until("agentGone", |_| true);
    let why = gone["agent"]["detail"].as_str().unwrap();
    assert!(why.contains("it ended with 7 after "), "{why}");
    assert!(why.contains("version 1 is too old") && why.contains("***"), "{why}");
    let rows = scene.server.fake().core().rows.clone();
    assert!(rows.iter().all(|row| !why.contains(&row.secret)), "{why}");
    assert!(why.contains("before it connected to source `ci`"), "{why}");
}

/// The guest's program is too old for the system, which this says.
pub fn a_runner_that_is_too_old_is_reported<F: Fake>(kind: &Kind<F>, more: &str, reported: &str) {
    let mut scene = Scene::start(kind, &format!("registerTimeoutSec: 20, {more}"), |_| ());
    let id = scene.push("it", &["linux"], None, "echo never").to_string();
    let (mut why, mut lacks) = (None, None);
    while why.is_none() || lacks.is_none() {
        let fact = scene.events.next_of(&["agentGone", "source"]);
        why = why.or_else(|| fact["agent"]["detail"].as_str().map(str::to_owned));
        lacks = lacks.or_else(|| fact["source"]["lacks"][0].as_str().map(str::to_owned));
    }
    let why = why.unwrap();
    assert!(why.contains(reported) && why.contains("it ended with 1 after "), "{why}");
    let expected = format!("runners of template lab/linux are given no job: {reported}");
    assert!(lacks.unwrap().contains(&expected), "{expected}");
    let jobs = scene.site.json(&["jobs"]);
    let jobs = jobs["jobs"].as_array().unwrap();
    let job = jobs.iter().find(|job| job["id"] == *id).unwrap();
    assert_eq!(job["state"], "unserved", "{job}");
    assert!(job["lacks"].as_str().unwrap().contains(reported), "{job}");
    let said = scene.site.json(&["why", &id]).to_string();
    assert!(said.contains(reported), "{said}");
}

/// The token reads, and no more.
pub fn a_token_that_may_make_no_row_is_reported<F: Fake>(kind: &Kind<F>) {
    let mut scene = Scene::start(kind, "", |fake| fake.core().may_make = false);
    scene.push("it", &["linux"], None, "echo served");
    let gone = scene.events.until("agentGone", |_| true);
    let why = gone["agent"]["detail"].as_str().unwrap();
    assert!(why.contains("source `ci`") && why.contains("403"), "{why}");
    scene.server.fake().core().may_make = true;
    scene.ends(&[("it", "success")]);
    scene.events.until("agentGone", |_| true);
    scene.server.until("removed", |core| core.own().is_empty());
}
