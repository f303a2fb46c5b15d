//! The YAML edited by machines: as fast as they can, half of it wrong, under leases in use.

use std::cell::Cell;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::harness::{Events, Service, Sim, Site, drover, world};

/// How long the storm lasts, and how far apart its edits are.
const STORM: Duration = Duration::from_secs(10);
const PACE: Duration = Duration::from_millis(2);

/// The file of the templates, with this cap.
fn templates(site: &Site, sim: &Sim, cap: u32) -> String {
    let yaml = site.yaml(sim, "");
    let (_, templates) = yaml.split_at(yaml.find("agentConfigurations:").unwrap());
    templates.replace("instanceCap: 4", &format!("instanceCap: {cap}"))
}

/// Puts a directory in the place of the configuration's file.
fn split(site: &Site, sim: &Sim) {
    let yaml = site.yaml(sim, "");
    let base = yaml.split("agentConfigurations:").next().unwrap().to_owned();
    fs::remove_file(site.config()).unwrap();
    fs::create_dir(site.config()).unwrap();
    fs::write(site.config().join("base.yaml"), base).unwrap();
    fs::write(site.config().join("templates.yaml"), templates(site, sim, 4)).unwrap();
}

/// One edit of very many: right or wrong, in place or renamed over, whole or broken off.
fn edit(file: &Path, whole: &str, turn: usize) {
    let text = match turn % 4 {
        0 => whole.to_owned(),
        1 => whole.replace("instanceCap", "instnaceCap"),
        2 => whole[..whole.len() / 2].to_owned(),
        _ => whole.replace("    instanceCap", "    cores: 3\n    instanceCap"),
    };
    if turn.is_multiple_of(3) {
        let fresh = file.with_file_name(".templates.yaml.tmp");
        fs::write(&fresh, text).unwrap();
        fs::rename(fresh, file).unwrap();
    } else {
        fs::write(file, text).unwrap();
    }
}

/// Memory in use, in KiB, and open files.
fn use_of(pid: u32) -> (u64, usize) {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let memory = line.trim().trim_end_matches(" kB").parse().unwrap();
    (memory, fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count())
}

fn cap_of(site: &Site) -> u64 {
    site.json(&["templates"])["templates"][0]["cap"].as_u64().unwrap()
}

// Invariant: a storm of edits is one reload, of the last one, and costs no lease.

#[test]
#[expect(clippy::print_stderr, reason = "what was measured is worth reading")]
fn ten_seconds_of_five_hundred_edits_a_second_and_of_signals_are_one_reload() {
    let (_dir, sim, site) = world();
    split(&site, &sim);
    let service = Service::start(&site);
    service.drain();
    let leases: Vec<_> =
        (0..2).map(|_| site.json(&["lease", "--labels", "linux", "--ttl", "10m"])).collect();
    let generation = site.json(&["reload"])["generation"].as_u64();
    let mut events = Events::follow(&site);
    let pid = service.child.0.id();
    let before = use_of(pid);

    let over = AtomicBool::new(false);
    let (file, whole) = (site.config().join("templates.yaml"), templates(&site, &sim, 3));
    let (edits, signals) = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let (start, mut edits) = (Instant::now(), 0);
            while start.elapsed() < STORM {
                edit(&file, &whole, edits);
                edits += 1;
                let next = PACE * u32::try_from(edits).unwrap();
                std::thread::sleep(next.saturating_sub(start.elapsed()));
            }
            fs::write(&file, templates(&site, &sim, 7)).unwrap();
            over.store(true, Ordering::Relaxed);
            edits
        });
        let mut signals = 0;
        while !over.load(Ordering::Relaxed) {
            service.child.signal("HUP");
            signals += 1;
        }
        (writer.join().unwrap(), signals)
    });
    // Put after the last edit, the question is answered by it.
    let last = site.json(&["reload"])["generation"].as_u64();
    let (applied, refused) = (Cell::new(0), Cell::new(0));
    events.all_until(|fact| {
        let reported = fact["generation"].as_u64();
        match fact["kind"].as_str() {
            Some("configApplied") if reported > generation => applied.set(applied.get() + 1),
            Some("configRefused") => refused.set(refused.get() + 1),
            _ => {}
        }
        fact["kind"] == "configApplied" && reported == last
    });
    let after = use_of(pid);
    eprintln!(
        "note: {edits} edits and {signals} signals in {} s: {} reloads, {} refusals; \
         memory {} -> {} KiB, open files {} -> {}",
        STORM.as_secs(),
        applied.get(),
        refused.get(),
        before.0,
        after.0,
        before.1,
        after.1,
    );
    // The last edit; the question, and signals, when they came too late to be answered by it.
    assert!((1..=3).contains(&applied.get()), "{}", applied.get());
    assert_eq!(refused.get(), 0, "nothing unsettled is judged");
    assert_eq!(cap_of(&site), 7);
    assert!(after.0 < before.0 + 32 * 1024, "{before:?} {after:?}");
    assert!(after.1 <= before.1 + 4, "{before:?} {after:?}");

    for lease in &leases {
        let id = lease["id"].as_str().unwrap();
        let all = site.json(&["status"])["leases"].clone();
        let kept = all.as_array().unwrap().iter().find(|other| other["id"] == id).cloned();
        let kept = kept.unwrap_or_else(|| panic!("{all}"));
        assert_eq!((&kept["agent"], &kept["state"]), (&lease["agent"], &"ready".into()));
        assert!(site.cli(&["release", id]).status.success());
    }
}

// Invariant: the fault is shown with its place until it is repaired, and the old one goes on.

#[test]
fn a_bad_file_of_a_directory_is_shown_with_its_place_until_it_is_repaired() {
    let (_dir, sim, site) = world();
    split(&site, &sim);
    let service = Service::start(&site);
    let file = site.config().join("templates.yaml");
    let good = templates(&site, &sim, 6);
    let line = |word: &str| good.lines().position(|line| line.contains(word)).unwrap() + 1;
    for (bad, place, says) in [
        (
            good.replace("cores", "x").replace("instanceCap", "instnaceCap"),
            line("instanceCap"),
            "instanceCap",
        ),
        (good.replace("node: ", "node: \0"), line("node: "), "control character"),
        (good.replace("ciUser: ", "ciUser: ["), 0, "not valid YAML"),
    ] {
        fs::write(&file, &bad).unwrap();
        let out = site.cli(&["reload"]);
        assert_eq!(out.status.code(), Some(2));
        let reported = String::from_utf8_lossy(&out.stderr).into_owned();
        let status = String::from_utf8_lossy(&site.cli(&["status"]).stdout).into_owned();
        for said in [&reported, &status] {
            assert!(said.contains("templates.yaml:"), "{said}");
            assert!(place == 0 || said.contains(&format!("templates.yaml:{place}:")), "{said}");
            assert!(said.contains(says), "{said}");
        }
        assert_eq!(cap_of(&site), 4, "the old one goes on");
    }
    fs::remove_file(&file).unwrap();
    std::os::unix::fs::symlink("nowhere", &file).unwrap();
    let out = site.cli(&["reload"]);
    let reported = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(reported.contains("symbolic link to `nowhere`"), "{reported}");
    fs::remove_file(&file).unwrap();
    fs::write(&file, &good).unwrap();
    service.child.signal("HUP");
    assert!(site.cli(&["reload"]).status.success());
    assert_eq!(cap_of(&site), 6);
    let status = site.json(&["status"]);
    assert!(status["config"]["refusal"].is_null(), "{status}");
}

// Invariant: a value that only a restart applies shuts nobody out until then.

#[test]
fn commands_still_reach_a_service_whose_configuration_names_another_socket_by_now() {
    let (_dir, sim, site) = world();
    let mut service = Service::start(&site);
    let named = || {
        let mut command = drover();
        command.arg("--config").arg(site.config());
        command
    };
    let moved = site.yaml(&sim, "").replace("/drover.sock\"", "/elsewhere.sock\"");
    site.write_yaml(&moved);
    let out = named().arg("reload").output().unwrap();
    let (text, notes) =
        (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success(), "{notes}");
    assert!(text.ends_with("takes effect at the next start only: service.socket\n"), "{text}");
    assert!(notes.contains("note: a restart applies `service.socket: "), "{notes}");
    let said: Value = serde_json::from_slice(&site.cli(&["--json", "reload"]).stdout).unwrap();
    assert_eq!(said["restartDue"], serde_json::json!(["service.socket"]));
    service.child.signal("TERM");
    service.child.wait();
    let gone = named().arg("status").output().unwrap();
    assert_eq!(gone.status.code(), Some(69), "{}", String::from_utf8_lossy(&gone.stderr));
}

#[test]
fn commands_never_reach_a_service_of_another_configuration_that_listens_where_theirs_will() {
    let (_dir, sim, site) = world();
    let (_other_dir, _other_sim, other) = world();
    let (mut service, _others) = (Service::start(&site), Service::start(&other));
    let moved = site.yaml(&sim, "").replace(
        &site.dir.path().join("drover.sock").display().to_string(),
        &other.dir.path().join("drover.sock").display().to_string(),
    );
    site.write_yaml(&moved);
    let named = |args: &[&str]| {
        let out = drover().arg("--config").arg(site.config()).args(args).output().unwrap();
        let notes = String::from_utf8_lossy(&out.stderr).into_owned();
        (out.status.code(), String::from_utf8_lossy(&out.stdout).into_owned(), notes)
    };
    let (code, said, notes) = named(&["--json", "reload"]);
    assert_eq!(code, Some(0), "{notes}");
    let said: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(said["path"], site.config().to_str().unwrap());
    service.child.signal("TERM");
    service.child.wait();
    let (code, said, notes) = named(&["cordon", "pve1"]);
    assert_eq!((code, said.as_str()), (Some(2), ""), "{notes}");
    assert!(notes.contains(", and not by `"), "{notes}");
    let orders = other.cli(&["events", "--no-follow"]).stdout;
    assert!(!String::from_utf8_lossy(&orders).contains("cordoned"));
}
