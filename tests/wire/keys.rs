//! Who may log in: keys of many leases on one guest, guests that refuse drover, and keys that are
//! replaced, over real SSH.

use std::process::{Command, Output};

use drover_ssh::PrivateKey;
use secrecy::ExposeSecret;
use serde_json::{Value, json};

use crate::api::{call, ready, release};
use crate::harness::{Events, Service, Sim, Site, WAIT_LIMIT, world};

/// A lease with a key of its own.
struct Keyed {
    id: String,
    /// The name of its private key in the site's folder.
    key: String,
    reported: Value,
}

/// Asks for leases that are to be ready at once.
fn leased(site: &Site, names: &[String]) -> Vec<Keyed> {
    let asked: Vec<(String, String)> =
        names.iter().map(|name| (ask(site, name), name.clone())).collect();
    let ready = |(id, key): (String, String)| Keyed { reported: ready(site, &id), id, key };
    asked.into_iter().map(ready).collect()
}

fn ask(site: &Site, name: &str) -> String {
    let mut seed = [9; 32];
    seed.iter_mut().zip(name.bytes()).for_each(|(at, byte)| *at = byte);
    let key = PrivateKey::from_seed(&seed, "holder");
    site.write_secret(name, key.to_openssh().unwrap().expose_secret());
    let body = json!({
        "template": "linux", "owner": "ann", "ttlSeconds": 3600, "sshPublicKey": key.public_line(""),
    });
    let (status, lease) = call(site, "POST", "/v1/leases", Some(&body));
    assert_eq!(status, 201, "{lease}");
    lease["id"].as_str().unwrap().to_owned()
}

impl Keyed {
    fn ssh(&self, site: &Site, command: &str) -> Output {
        let (host, port) =
            (self.reported["ssh"]["host"].as_str().unwrap(), &self.reported["ssh"]["port"]);
        Command::new("ssh")
            .args(["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null"])
            .args([
                "-o",
                "IdentitiesOnly=yes",
                "-o",
                "BatchMode=yes",
                "-p",
                &port.to_string(),
                "-i",
            ])
            .arg(site.dir.path().join(&self.key))
            .args([&format!("debian@{host}"), command])
            .output()
            .unwrap()
    }

    /// What a command says, once logged in.
    fn says(&self, site: &Site, command: &str) -> String {
        let out = self.ssh(site, command);
        assert!(out.status.success(), "{}: {out:?}", self.key);
        String::from_utf8(out.stdout).unwrap()
    }

    fn is_refused(&self, site: &Site) -> bool {
        let out = self.ssh(site, "echo IN");
        let refused = String::from_utf8_lossy(&out.stderr).contains("Permission denied");
        refused && out.stdout.is_empty()
    }
}

/// The only agent, once it is as wanted.
fn agent_until(site: &Site, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let deadline = std::time::Instant::now() + WAIT_LIMIT;
    loop {
        let agents = site.json(&["agents"])["agents"].clone();
        if let Some(agent) = agents.as_array().unwrap().iter().find(|agent| wanted(agent)) {
            return agent.clone();
        }
        assert!(std::time::Instant::now() < deadline, "{what}: {agents}");
    }
}

fn leases_of(agent: &Value) -> usize {
    agent["leases"].as_array().map_or(0, Vec::len)
}

// Invariant: of many leases on one guest, anyone who has one gets in, and nobody else.

#[test]
fn seven_leases_released_at_once_cost_the_eighth_nothing_and_let_nobody_in() {
    let (_dir, sim, site) = world();
    site.write_yaml(&site.yaml(&sim, "    numExecutors: 8\n    rolloutMaxUnavailable: 0\n"));
    let _service = Service::start(&site);
    let kept = leased(&site, &["kept".to_owned()]).remove(0);
    for round in 0..3 {
        let names: Vec<String> = (0..7).map(|n| format!("l{round}{n}")).collect();
        let leases = leased(&site, &names);
        assert!(leases.iter().all(|lease| lease.reported["agent"] == kept.reported["agent"]));
        std::thread::scope(|scope| {
            for lease in &leases {
                scope.spawn(|| release(&site, &lease.id));
            }
        });
        agent_until(&site, "one lease is left", |agent| leases_of(agent) == 1);
        let keys = kept.says(&site, "cat ~/.ssh/authorized_keys");
        assert_eq!(keys.matches(" drover-lease-").count(), 1, "round {round}: {keys}");
        for lease in &leases {
            assert!(lease.is_refused(&site), "{} of round {round} still gets in", lease.key);
        }
    }
    release(&site, &kept.id);
    agent_until(&site, "it is free", |agent| agent["state"] == "Ready");
    assert!(kept.is_refused(&site));
}

// Invariant: a lease that was ready is ready, whatever its guest says to drover after a restart.

#[test]
fn a_lease_whose_guest_refuses_drover_outlives_kill_9() {
    let (_dir, sim, site) = world();
    let mut service = Service::start(&site);
    let lease = leased(&site, &["ann".to_owned()]).remove(0);
    lease.says(&site, "mv ~/.ssh ~/.ssh-old");
    assert!(lease.is_refused(&site));
    service.child.signal("KILL");
    service.child.wait();
    let _again = Service::start(&site);
    let refused = |agent: &Value| {
        let detail = agent["detail"].as_str().unwrap_or_default();
        detail.starts_with("SSH login refused since ") && detail.contains("; the lease goes on")
    };
    let agent = agent_until(&site, "the refusal is reported", refused);
    assert_eq!((&agent["id"], &agent["state"]), (&lease.reported["agent"], &"Leased".into()));
    let reported = ready(&site, &lease.id);
    assert_eq!(reported["agent"], lease.reported["agent"]);
    assert_eq!(sim.guests().len(), 1);
    let shown = site.json(&["templates"])["templates"][0]["breaker"].clone();
    assert_eq!(shown, "flowing");
    // Its end needs no login.
    let mut events = Events::follow(&site);
    release(&site, &lease.id);
    events.until("agentGone", |fact| fact["agent"]["id"] == lease.reported["agent"]);
    assert_eq!(sim.guests(), Vec::<u64>::new());
}

// Invariant: an agent is logged in to with the key it was born with, for as long as it lives.

fn new_key(site: &Site) {
    let key = PrivateKey::from_seed(&[8; 32], "drover-test");
    site.write_secret("key", key.to_openssh().unwrap().expose_secret());
}

fn kept_keys(site: &Site) -> usize {
    std::fs::read_dir(site.dir.path().join("state/ssh-keys")).unwrap().count()
}

fn rotated(change: impl Fn(&Site, &mut Service), sim: &Sim, site: &Site) {
    site.write_yaml(&site.yaml(sim, "    numExecutors: 2\n    rolloutMaxUnavailable: 0\n"));
    let mut service = Service::start(site);
    let leases = leased(site, &["ann".to_owned(), "ben".to_owned()]);
    assert_eq!(leases[0].reported["agent"], leases[1].reported["agent"]);
    change(site, &mut service);
    let _again = Service::start(site);
    assert_eq!(kept_keys(site), 2);
    for lease in &leases {
        assert_eq!(ready(site, &lease.id)["agent"], lease.reported["agent"]);
    }
    release(site, &leases[0].id);
    agent_until(site, "one lease is left", |agent| leases_of(agent) == 1);
    let keys = leases[1].says(site, "cat ~/.ssh/authorized_keys");
    assert_eq!(keys.matches(" drover-lease-").count(), 1, "{keys}");
    assert!(leases[0].is_refused(site));
    let mut events = Events::follow(site);
    release(site, &leases[1].id);
    agent_until(site, "it is free", |agent| agent["state"] == "Ready");
    assert!(leases[1].is_refused(site));
    assert!(site.cli(&["reap", "--all"]).status.success());
    events.until("agentGone", |fact| fact["agent"]["id"] == leases[0].reported["agent"]);
    // The new key is for those that are born now.
    let lease = leased(site, &["cat".to_owned()]).remove(0);
    assert_ne!(lease.reported["agent"], leases[0].reported["agent"]);
    assert_eq!(kept_keys(site), 1, "the former key goes with the last agent born with it");
}

fn stop(service: &mut Service) {
    service.child.signal("TERM");
    assert_eq!(service.child.wait(), Some(0));
}

#[test]
fn a_lease_outlives_a_key_that_is_replaced_by_a_reload_and_a_restart() {
    let (_dir, sim, site) = world();
    let change = |site: &Site, service: &mut Service| {
        new_key(site);
        assert!(site.cli(&["reload"]).status.success());
        stop(service);
    };
    rotated(change, &sim, &site);
}

#[test]
fn a_lease_outlives_a_key_that_is_replaced_while_the_service_is_stopped() {
    let (_dir, sim, site) = world();
    let change = |site: &Site, service: &mut Service| {
        stop(service);
        new_key(site);
    };
    rotated(change, &sim, &site);
}
