//! Three drovers on one real etcd: one leads, the others pass callers on and take over.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use drover_stores::StoreAddress;
use drover_stores::testing::{Cluster, ObjectServer};
use serde_json::Value;

use crate::gitea::demand;
use crate::gitea_server::Gitea;
use crate::harness::{Lines, Service, Sim, Site, WAIT_LIMIT, drover, note, world};

/// The seconds after which another member leads.
pub const LEASE_SECS: u64 = 3;

/// A process of one of the three.
struct Member {
    name: &'static str,
    config: PathBuf,
    socket: PathBuf,
    service: Option<Service>,
    log: Option<Lines>,
}

/// Three members of a store, and what they serve.
pub struct Members {
    site: Site,
    all: Vec<Member>,
    /// The store ends with them.
    _store: Box<dyn std::any::Any>,
}

impl Members {
    /// Starts three with this configuration, and waits until one leads.
    pub fn start(
        (store, address): (Box<dyn std::any::Any>, String),
        site: Site,
        yaml: &str,
    ) -> Self {
        let dir = site.dir.path().to_owned();
        site.write_secret("cluster.key", "0123456789abcdef0123456789abcdef");
        let yaml = yaml.replace(
            "service:\n",
            &format!(
                "service:\n  store: \"{address}\"\n  clusterKey: {{secretFile: \"{}/cluster.key\"}}\n  \
                 leaderLeaseSec: {LEASE_SECS}\n  listen: \"127.0.0.1:0\"\n",
                dir.display()
            ),
        );
        let all = ["a", "b", "c"].map(|name| {
            let config = dir.join(format!("{name}.d"));
            std::fs::create_dir(&config).unwrap();
            std::fs::write(config.join("drover.yaml"), &yaml).unwrap();
            let socket = dir.join(format!("{name}.sock"));
            Member { name, config, socket, service: None, log: None }
        });
        let mut members = Self { site, all: all.into(), _store: store };
        (0..3).for_each(|at| members.launch(at));
        members.leader();
        members
    }

    /// Starts a member, and waits until it stands by or leads.
    pub fn launch(&mut self, at: usize) {
        let dir = self.site.dir.path().to_owned();
        let member = &mut self.all[at];
        let mut command = drover();
        command.arg("--config").arg(&member.config).arg("--socket").arg(&member.socket);
        command.args(["run", "--member", member.name, "--state-dir"]);
        command.arg(dir.join(format!("state-{}", member.name))).stderr(Stdio::piped());
        let mut service = Service::launch(command);
        member.log = Some(Lines::of(member.name, service.child.0.stderr.take().unwrap()));
        service.hear("READY=1");
        service.drain();
        member.service = Some(service);
    }

    pub fn signal(&self, at: usize, name: &str) {
        self.all[at].service.as_ref().unwrap().child.signal(name);
    }

    pub fn kill(&mut self, at: usize) {
        self.signal(at, "KILL");
        self.all[at].service = None;
    }

    /// Runs a client command on a member's socket.
    pub fn command(&self, at: usize, args: &[&str]) -> Command {
        let mut command = drover();
        command.arg("--socket").arg(&self.all[at].socket).args(args);
        command.env("XDG_RUNTIME_DIR", self.site.dir.path());
        command
    }

    /// What a member answers to a read; none where that is no answer.
    fn asked(&self, at: usize, path: &str) -> Option<Value> {
        let mut curl = Command::new("curl");
        curl.args(["-sSf", "--max-time", "5", "--unix-socket"]).arg(&self.all[at].socket);
        let out = curl.arg(format!("http://drover{path}")).output().unwrap();
        out.status.success().then(|| serde_json::from_slice(&out.stdout).unwrap())
    }

    /// The same of a command that must succeed.
    pub fn json(&self, at: usize, args: &[&str]) -> Value {
        let out = self.command(at, &[&["--json"], args].concat()).output().unwrap();
        assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
        serde_json::from_slice(&out.stdout).unwrap()
    }

    /// The member that leads, as a member that answers says; waits until one serves.
    pub fn leader(&self) -> usize {
        let deadline = Instant::now() + WAIT_LIMIT;
        let running = |at: &usize| self.all[*at].service.is_some();
        loop {
            for at in (0..self.all.len()).filter(running) {
                // The leader's own answer: it serves.
                let Some(all) = self.asked(at, "/v1/members") else { continue };
                let named = self.all.iter().position(|one| all["leader"] == one.name);
                let Some(leader) = named.filter(running) else { continue };
                if self.asked(leader, "/v1/leases").is_some() {
                    return leader;
                }
            }
            assert!(Instant::now() < deadline, "no member leads");
        }
    }

    /// Gives a member's files another cap of the template, at once.
    fn edit(&self, at: usize, cap: &str) {
        let file = self.all[at].config.join("drover.yaml");
        let text = std::fs::read_to_string(&file).unwrap();
        let line = |line: &str| match line.split_once("instanceCap: ") {
            Some((before, _)) => format!("{before}instanceCap: {cap}\n"),
            None => format!("{line}\n"),
        };
        let fresh = self.all[at].config.join(".new");
        std::fs::write(&fresh, text.lines().map(line).collect::<String>()).unwrap();
        std::fs::rename(fresh, file).unwrap();
    }

    /// What a member knows of one of all.
    fn known(&self, at: usize, of: usize) -> Value {
        let all = self.asked(at, "/v1/members").unwrap_or_default();
        let named = |one: &&Value| one["name"] == self.all[of].name;
        all["members"]
            .as_array()
            .and_then(|all| all.iter().find(named))
            .cloned()
            .unwrap_or_default()
    }

    fn cap(&self, at: usize) -> Value {
        let all = self.asked(at, "/v1/templates").unwrap_or_default();
        all["templates"][0]["cap"].clone()
    }

    /// The first member that is not this one.
    pub fn other(&self, than: usize) -> usize {
        (0..3).find(|at| *at != than && self.all[*at].service.is_some()).unwrap()
    }

    /// How long nothing is leased from now on, asked at one member.
    pub fn gap(&self, at: usize) -> Duration {
        let from = Instant::now();
        while self.asked(at, "/v1/leases").is_none() {
            assert!(from.elapsed() < WAIT_LIMIT, "nobody serves");
        }
        from.elapsed()
    }
}

fn three() -> Option<(tempfile::TempDir, Sim, Members)> {
    three_on(etcd()?)
}

pub fn etcd() -> Option<(Box<dyn std::any::Any>, String)> {
    let cluster = Cluster::start(3)?;
    let address = cluster.text("herd");
    Some((Box::new(cluster), address))
}

pub fn s3() -> Option<(Box<dyn std::any::Any>, String)> {
    let server = ObjectServer::start()?;
    let address = server.text("herd");
    Some((Box::new(server), address))
}

fn three_on(store: (Box<dyn std::any::Any>, String)) -> Option<(tempfile::TempDir, Sim, Members)> {
    let (dir, sim, site) = world();
    let yaml = site.yaml(&sim, "");
    let members = Members::start(store, site, &yaml);
    Some((dir, sim, members))
}

// Invariant: a leader's death costs no lease, and another member serves it.

#[test]
fn leases_outlive_three_leaders_that_are_killed() {
    if let Some(world) = three() {
        leases_outlive_leaders("etcd", world);
    }
}

#[test]
fn leases_outlive_three_leaders_that_are_killed_on_a_real_s3_server() {
    if let Some(world) = s3().and_then(three_on) {
        leases_outlive_leaders("versitygw", world);
    }
}

fn leases_outlive_leaders(store: &str, world: (tempfile::TempDir, Sim, Members)) {
    let (_dir, sim, mut members) = world;
    let first = members.leader();
    let standby = members.other(first);
    // Any member takes callers.
    let lease = members.json(standby, &["lease", "--labels", "linux"]);
    let (id, agent) = (lease["id"].clone(), lease["agent"].clone());
    let mut gaps = Vec::new();
    for _ in 0..3 {
        let leader = members.leader();
        let asked = members.other(leader);
        members.kill(leader);
        gaps.push(members.gap(asked).as_millis());
        let known = members.json(asked, &["leases"])["leases"][0].clone();
        assert_eq!((&known["id"], &known["agent"]), (&id, &agent), "{known}");
        let more = members.json(asked, &["lease", "--labels", "linux"]);
        members.json(asked, &["release", more["id"].as_str().unwrap()]);
        members.launch(leader);
    }
    note(&format!("{store}: no leader serves after a kill, of {LEASE_SECS} s: {gaps:?} ms"));
    let leader = members.leader();
    members.json(leader, &["release", id.as_str().unwrap()]);
    members.json(leader, &["reap", "--all"]);
    let deadline = Instant::now() + WAIT_LIMIT;
    while !sim.guests().is_empty() {
        assert!(Instant::now() < deadline, "guests are left: {:?}", sim.guests());
    }
}

#[test]
fn a_leader_that_was_paused_stands_by_when_it_goes_on() {
    if let Some(world) = three() {
        a_paused_leader_stands_by("etcd", world);
    }
}

#[test]
fn a_leader_that_was_paused_on_a_real_s3_server_stands_by_when_it_goes_on() {
    if let Some(world) = s3().and_then(three_on) {
        a_paused_leader_stands_by("versitygw", world);
    }
}

fn a_paused_leader_stands_by(store: &str, world: (tempfile::TempDir, Sim, Members)) {
    let (_dir, _sim, members) = world;
    let leader = members.leader();
    let asked = members.other(leader);
    let lease = members.json(asked, &["lease", "--labels", "linux"]);
    members.signal(leader, "STOP");
    let gap = members.gap(asked).as_millis();
    note(&format!("{store}: no leader serves after a pause, of {LEASE_SECS} s: {gap} ms"));
    let next = members.leader();
    assert_ne!(next, leader);
    members.signal(leader, "CONT");
    // It answers as a standby: what the next leader knows.
    let deadline = Instant::now() + WAIT_LIMIT;
    loop {
        let known = members.asked(leader, "/v1/leases");
        let all = members.asked(leader, "/v1/members");
        if let (Some(known), Some(all)) = (known, all)
            && all["leader"] == members.all[next].name
        {
            assert_eq!(known["leases"][0]["id"], lease["id"]);
            break;
        }
        assert!(Instant::now() < deadline, "it does not stand by");
    }
    assert_eq!(members.leader(), next);
}

#[test]
fn a_leader_that_is_asked_hands_over_to_the_one_that_is_named() {
    let Some((_dir, _sim, members)) = three() else { return };
    let leader = members.leader();
    let next = members.other(leader);
    let lease = members.json(leader, &["lease", "--labels", "linux"]);
    members.json(next, &["transfer-leadership", members.all[next].name]);
    let deadline = Instant::now() + WAIT_LIMIT;
    while members.leader() != next {
        assert!(Instant::now() < deadline, "it does not hand over");
    }
    let known = members.json(leader, &["leases"]);
    assert_eq!(known["leases"][0]["id"], lease["id"]);
    let status = members.command(leader, &["status"]).output().unwrap();
    let text = String::from_utf8_lossy(&status.stdout).into_owned();
    assert!(text.contains("MEMBERS") && text.contains("standby"), "{text}");
    let mut doctor = drover();
    doctor.arg("--config").arg(&members.all[leader].config).arg("doctor");
    let text = String::from_utf8_lossy(&doctor.output().unwrap().stdout).into_owned();
    let leads = format!("leader: member {} in term 2", members.all[next].name);
    assert!(text.contains("the members have this key") && text.contains(&leads), "{text}");
    let refused = members.command(leader, &["transfer-leadership", "nobody"]).output().unwrap();
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(text.contains("no member is called nobody"), "{text}");
}

// Invariant: a member that is gone for good leaves the list when somebody says so, and no live one does.

#[test]
fn a_member_that_is_gone_for_good_is_forgotten_and_comes_back_when_it_starts() {
    let Some((_dir, _sim, mut members)) = three() else { return };
    let leader = members.leader();
    let gone = members.other(leader);
    let asked = (0..3).find(|at| ![leader, gone].contains(at)).unwrap();
    let name = |at: usize| ["a", "b", "c"][at];
    let forget = |members: &Members, name: &str| {
        let out = members.command(asked, &["members", "forget", name]).output().unwrap();
        (
            out.status.success(),
            String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned(),
        )
    };
    let listed = |members: &Members| {
        let all = members.json(leader, &["members"])["members"].clone();
        all.as_array().unwrap().iter().map(|one| one["name"].clone()).collect::<Vec<_>>()
    };
    let deadline = Instant::now() + WAIT_LIMIT;
    while listed(&members).len() < 3 {
        assert!(Instant::now() < deadline, "the members do not see each other");
    }
    for (member, says) in
        [(name(leader), "leads"), (name(gone), "is live"), ("nobody", "no member")]
    {
        let (done, text) = forget(&members, member);
        assert!(!done && text.contains(says), "{member}: {text}");
    }
    members.kill(gone);
    let deadline = Instant::now() + WAIT_LIMIT;
    loop {
        let (done, text) = forget(&members, name(gone));
        if done {
            assert!(text.contains("is no longer listed"), "{text}");
            break;
        }
        assert!(text.contains("is live"), "{text}");
        assert!(Instant::now() < deadline, "it never counts as silent: {text}");
    }
    assert!(!listed(&members).contains(&name(gone).into()));
    let events = members.command(leader, &["events", "--no-follow"]).output().unwrap();
    let events = String::from_utf8_lossy(&events.stdout).into_owned();
    assert!(events.contains(&format!("forgot member {}", name(gone))), "{events}");
    members.launch(gone);
    let deadline = Instant::now() + WAIT_LIMIT;
    while !listed(&members).contains(&name(gone).into()) {
        assert!(Instant::now() < deadline, "it does not come back");
    }
}

// Invariant: jobs of a CI system run once each, over changes of the leader.

#[test]
fn jobs_of_a_real_gitea_run_once_each_through_three_fail_overs() {
    if let Some(store) = etcd() {
        jobs_of_gitea_run_once_each("etcd", store);
    }
}

#[test]
fn jobs_of_a_real_gitea_run_once_each_through_three_fail_overs_on_a_real_s3_server() {
    if let Some(store) = s3() {
        jobs_of_gitea_run_once_each("versitygw", store);
    }
}

fn jobs_of_gitea_run_once_each(name: &str, store: (Box<dyn std::any::Any>, String)) {
    const JOBS: usize = 12;
    let gitea = Gitea::start();
    let (_dir, sim, site) = world();
    demand(&site, &site.yaml(&sim, ""), &gitea, "pollSeconds: 1");
    let yaml = std::fs::read_to_string(site.config()).unwrap();
    let mut members = Members::start(store, site, &yaml);
    let job =
        |number| format!("  j{number:02}:\n    runs-on: linux\n    steps:\n      - run: sleep 3\n");
    let jobs: String = (0..JOBS).map(job).collect();
    gitea.repository("app", &format!("on: [push]\njobs:\n{jobs}"));
    let done = || gitea.conclusions().into_values().filter(|end| end != "-").count();
    let deadline = Instant::now() + 4 * WAIT_LIMIT;
    let until = |count: usize| {
        while done() < count {
            assert!(Instant::now() < deadline, "{} of {JOBS} jobs ended", done());
        }
    };
    let mut gaps = Vec::new();
    for round in 1..=3 {
        until(round);
        let leader = members.leader();
        let asked = members.other(leader);
        members.kill(leader);
        gaps.push(members.gap(asked).as_millis());
        members.launch(leader);
    }
    until(JOBS);
    let all = gitea.conclusions();
    assert!(all.values().all(|end| end == "success"), "{all:?}");
    while gitea.runners() > 0 || !sim.guests().is_empty() {
        assert!(
            Instant::now() < deadline,
            "{} runners, guests {:?}",
            gitea.runners(),
            sim.guests()
        );
    }
    let path = format!("/nodes/{}/tasks?limit=500&typefilter=qmclone", sim.fact("node"));
    let clones = sim.call("GET", &path)["data"].as_array().unwrap().len();
    note(&format!(
        "{name}: {JOBS} jobs of Gitea through three fail-overs ({gaps:?} ms): {clones} machines"
    ));
    // A machine whose clone was in doubt when its leader died may have been made beside.
    assert!((JOBS..=JOBS + 3).contains(&clones), "{clones} machines for {JOBS} jobs");
}

// Invariant: a configuration comes into force when every member has it, and a member with another one does
// not lead.

#[test]
fn an_edit_waits_until_every_member_has_it() {
    let Some((_dir, _sim, members)) = three() else { return };
    let leader = members.leader();
    let edit = |at: usize| members.edit(at, "3");
    let cap = || members.json(leader, &["templates"])["templates"][0]["cap"].clone();
    assert_eq!(cap(), 4);
    edit(leader);
    let refused = members.command(leader, &["reload"]).output().unwrap();
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && text.contains("has another"), "{text}");
    assert_eq!(cap(), 4);
    // Newer files of the leader have faults when the edit comes into force: it goes on saying so.
    members.edit(leader, "many");
    let refused = members.command(leader, &["reload"]).output().unwrap();
    assert!(!refused.status.success());
    (0..3).filter(|at| *at != leader).for_each(edit);
    let deadline = Instant::now() + WAIT_LIMIT;
    while cap() != 3 {
        assert!(Instant::now() < deadline, "the edit does not come into force");
    }
    let text = String::from_utf8(members.command(leader, &["status"]).output().unwrap().stdout);
    let text = text.unwrap();
    assert!(text.contains("instanceCap"), "{text}");
    assert_eq!(members.leader(), leader);
}

#[test]
fn a_leader_that_dies_while_edits_are_under_way_is_followed_with_what_is_in_force() {
    let Some((_dir, _sim, mut members)) = three() else { return };
    let leader = members.leader();
    let others: Vec<usize> = (0..3).filter(|at| *at != leader).collect();
    let until = |members: &Members, what: &str, done: &dyn Fn() -> bool| {
        let deadline = Instant::now() + WAIT_LIMIT;
        while !done() {
            let all = members.asked(others[0], "/v1/members");
            assert!(Instant::now() < deadline, "it does not come to this: {what}; {all:?}");
        }
    };
    let in_force = members.known(leader, leader)["configuration"].clone();
    // Each of the others has an edit of its own, and the leader has none of them.
    members.edit(others[0], "3");
    members.edit(others[1], "2");
    until(&members, "the edits are known", &|| {
        let of = |at: usize| members.known(leader, at)["configuration"].clone();
        others.iter().all(|at| of(*at).is_string() && of(*at) != in_force)
    });
    members.kill(leader);
    let gap = members.gap(others[0]).as_millis();
    note(&format!("no leader serves after a kill amid edits, of {LEASE_SECS} s: {gap} ms"));
    let next = members.leader();
    assert_eq!(members.cap(next), 4);
    // An edit that all live ones have comes into force.
    let last = if next == others[0] { others[1] } else { others[0] };
    let wanted = if next == others[0] { 3 } else { 2 };
    members.edit(last, &wanted.to_string());
    until(&members, "the edit is in force", &|| members.cap(next) == wanted);
    assert_eq!(members.leader(), next);
}

#[test]
fn a_standby_that_refuses_its_files_says_so_to_all_and_when_it_leads() {
    let Some((_dir, _sim, members)) = three() else { return };
    let leader = members.leader();
    let standby = members.other(leader);
    let until = |what: &str, done: &dyn Fn() -> bool| {
        let deadline = Instant::now() + WAIT_LIMIT;
        while !done() {
            assert!(Instant::now() < deadline, "it does not come to this: {what}");
        }
    };
    let metric = |at: usize| {
        let mut curl = Command::new("curl");
        curl.args(["-sS", "--unix-socket"]).arg(&members.all[at].socket);
        let out = curl.arg("http://drover/metrics").output().unwrap();
        String::from_utf8(out.stdout).unwrap()
    };
    members.edit(standby, "many");
    let refused = || members.known(leader, standby)["refused"].clone();
    until("a refusal", &|| refused().as_str().is_some_and(|why| why.contains("instanceCap")));
    assert_eq!(members.known(leader, standby)["role"], "standby", "it can lead as before");
    let out = members.command(leader, &["members"]).output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(text.contains("cannot use its newest configuration: "), "{text}");
    assert!(metric(standby).contains("drover_config_refused 1\n"), "{}", metric(standby));
    assert!(metric(leader).contains("drover_config_refused 0\n"));
    // The alarm is that of the member that leads then.
    members.json(leader, &["transfer-leadership", members.all[standby].name]);
    until("the alarm of the next leader", &|| {
        let alarms = members.asked(leader, "/v1/status").unwrap_or_default()["alarms"].to_string();
        alarms.contains("instanceCap")
    });
    members.edit(standby, "4");
    until("all is well", &|| {
        refused().is_null() && metric(standby).contains("drover_config_refused 0\n")
    });
}

#[test]
fn members_that_cannot_read_the_journal_of_a_newer_drover_stand_by_and_say_so() {
    let Some(store) = etcd() else { return };
    let address: StoreAddress = store.1.parse().unwrap();
    let Some((_dir, _sim, mut members)) = three_on(store) else { return };
    (0..3).for_each(|at| members.kill(at));
    // As a newer drover writes it.
    let mut log = address.log().unwrap();
    let last = log.last().unwrap();
    log.append(last, &[br#"{"version":2}"#.to_vec()], true).unwrap();
    (0..2).for_each(|at| members.launch(at));
    let deadline = Instant::now() + WAIT_LIMIT;
    let unfit = |at: usize| {
        let all = members.asked(at, "/v1/members").unwrap_or_default();
        let own =
            all["members"].as_array()?.iter().find(|one| one["name"] == members.all[at].name)?;
        let says = own["detail"].as_str().unwrap_or_default().contains("run the newer drover");
        (says && own["role"] == "unfit" && all["leader"].is_null()).then_some(())
    };
    while unfit(0).is_none() || unfit(1).is_none() {
        assert!(Instant::now() < deadline, "{:?}", members.asked(0, "/v1/members"));
    }
    assert_eq!(log.last().unwrap(), last + 1, "nobody wrote behind it");
}

#[test]
fn a_member_with_another_key_is_refused_and_says_what_to_do() {
    let Some((_dir, _sim, mut members)) = three() else { return };
    members.site.write_secret("other.key", &"k".repeat(40));
    let at = members.other(members.leader());
    members.kill(at);
    let file = members.all[at].config.join("drover.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("cluster.key", "other.key")).unwrap();
    let mut command = drover();
    command.arg("--config").arg(&members.all[at].config).arg("--socket");
    command.arg(&members.all[at].socket).args(["run", "--member", "x", "--state-dir"]);
    let out = command.arg(members.site.dir.path().join("state-x")).output().unwrap();
    let text = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(text.contains("another service.clusterKey"), "{text}");
    assert_eq!(out.status.code(), Some(1));
}
