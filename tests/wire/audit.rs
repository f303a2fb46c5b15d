//! The audit log of a real service: what it records, what `drover audit` shows, and what the check finds.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::PathBuf;

use serde_json::Value;

use crate::harness::{Events, Service, Site, world};

fn folder(site: &Site) -> PathBuf {
    site.dir.path().join("state/audit")
}

/// The newest file.
fn newest(site: &Site) -> PathBuf {
    let mut files: Vec<PathBuf> =
        fs::read_dir(folder(site)).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    files.pop().unwrap()
}

fn records(site: &Site, more: &[&str]) -> Vec<Value> {
    let words: Vec<&str> = ["audit"].into_iter().chain(more.iter().copied()).collect();
    site.json(&words)["records"].as_array().unwrap().clone()
}

fn kinds(records: &[Value]) -> Vec<&str> {
    records.iter().map(|record| record["kind"].as_str().unwrap()).collect()
}

// Invariant: who changed something is in the audit log with what they did, over restarts and a kill.

#[test]
fn commands_signals_and_edits_are_recorded_and_the_chain_outlives_a_kill() {
    let (_dir, _sim, site) = world();
    let mut service = Service::start(&site);
    service.drain();
    let mut events = Events::follow(&site);
    site.json(&["reap"]);
    site.json(&["hold-next", "linux"]);
    site.json(&["status"]);
    let records = records(&site, &[]);
    assert_eq!(kinds(&records), ["started", "configurationApplied", "call", "call"]);
    let principal = records[2]["principal"].as_str().unwrap();
    assert!(principal.starts_with("uid:"), "{principal}");
    assert_eq!((&records[2]["role"], &records[2]["status"]), (&"admin".into(), &200.into()));
    let about = self::records(&site, &["--about", "linux", "--by", principal, "--since", "1h"]);
    assert_eq!(about.len(), 1);
    assert_eq!(about[0]["route"], "/v1/templates/{id}/hold-next");

    service.child.signal("HUP");
    events.until("configApplied", |_| true);
    let whole = fs::read_to_string(site.config()).unwrap();
    fs::write(site.config(), format!("{whole}nonsense: 1\n")).unwrap();
    events.until("configRefused", |_| true);
    let last = self::records(&site, &["--limit", "3"]);
    assert_eq!(kinds(&last), ["signal", "configurationApplied", "configurationRefused"]);
    assert!(last[1]["detail"].as_str().unwrap().contains("after a signal"), "{}", last[1]);
    assert!(last[2]["detail"].as_str().unwrap().contains("because its files changed"));
    fs::write(site.config(), &whole).unwrap();
    events.until("configApplied", |_| true);

    service.child.signal("KILL");
    service.child.wait();
    // As if it had died while it wrote.
    let path = folder(&site).display().to_string();
    let mut file = OpenOptions::new().append(true).open(newest(&site)).unwrap();
    let next = site.json(&["audit", "verify", &path])["seen"]["lastSeq"].as_u64().unwrap() + 1;
    let piece = format!("{{\"seq\":{next},\"at\":\"20");
    file.write_all(piece.as_bytes()).unwrap();
    assert_eq!(site.json(&["audit", "verify", &path])["seen"]["bytesBehind"], piece.len());
    let mut service = Service::start(&site);
    let after = self::records(&site, &["--limit", "3"]);
    assert_eq!(kinds(&after), ["tornLine", "started", "configurationApplied"]);
    service.child.signal("TERM");
    assert_eq!(service.child.wait(), Some(0));
    let checked = site.json(&["audit", "verify", &path]);
    assert_eq!((&checked["isWhole"], &checked["seen"]["tornLines"]), (&true.into(), &1.into()));
    let text = fs::read_to_string(newest(&site)).unwrap();
    assert!(text.trim_end().lines().last().unwrap().contains("stopped"), "{text}");
}

// Invariant: a record that somebody changed is found.

#[test]
fn a_changed_record_is_named_and_the_check_ends_with_1() {
    let (_dir, _sim, site) = world();
    let mut service = Service::start(&site);
    site.json(&["reap"]);
    service.child.signal("TERM");
    service.child.wait();
    // The folder is that of the configuration.
    let config = site.config().display().to_string();
    let verify = ["--config", &config, "audit", "verify"];
    let sound = site.cli(&verify);
    assert!(sound.status.success(), "{sound:?}");
    assert!(String::from_utf8_lossy(&sound.stdout).contains("is whole: "), "{sound:?}");
    let text = fs::read_to_string(newest(&site)).unwrap();
    fs::write(newest(&site), text.replace("/v1/reap", "/v1/read")).unwrap();
    let out = site.cli(&verify);
    let said = String::from_utf8(out.stderr).unwrap();
    assert_eq!(out.status.code(), Some(1), "{said}");
    assert!(said.contains("the chain is broken at record 3, line 3 of"), "{said}");
    let out = site.cli(&["--json", "audit", "verify", newest(&site).to_str().unwrap()]);
    let found: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!((out.status.code(), &found["broken"]["seq"]), (Some(1), &3.into()));
}

// Invariant: why an agent went names who wanted it.

#[test]
fn an_agent_that_somebody_retired_says_who_it_was() {
    let (_dir, _sim, site) = world();
    let _service = Service::start(&site);
    let mut events = Events::follow(&site);
    let agent = site.json(&["provision", "linux"])["agents"][0].as_str().unwrap().to_owned();
    assert!(site.cli(&["retire", &agent]).status.success());
    events.until("agentGone", |fact| fact["agent"]["id"] == *agent);
    let gone = site.json(&["agents", "--gone"])["gone"][0].clone();
    assert_eq!((&gone["id"], &gone["reason"]), (&Value::from(agent), &"asked".into()), "{gone}");
    let detail = gone["detail"].as_str().unwrap();
    assert!(detail.starts_with("an operator retired it (uid:"), "{detail}");
}
