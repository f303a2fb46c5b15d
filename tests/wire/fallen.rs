//! A service that cannot go on: how it ends, who hears of it, and what the next one finds.
//!
//! What brings it down is a wall clock that fails or hangs on one of its threads (`clock.c`).

use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::api::{ask, call, ready, release};
use crate::harness::{Lines, Service, Site, world};

/// A service with such a clock.
struct Frail {
    service: Service,
    said: Lines,
    clock: PathBuf,
}

impl Frail {
    fn start(site: &Site, more: &[&str]) -> Self {
        let dir = site.dir.path();
        let (library, clock) = (dir.join("clock.so"), dir.join("clock"));
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/wire/clock.c");
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(source);
        assert!(compiler.status().unwrap().success(), "the clock is not compiled");
        let preload = format!("LD_PRELOAD={}", library.display());
        let orders = format!("FAULTY_CLOCK={}", clock.display());
        let wrapper = [&["env", &preload, &orders], more].concat();
        let mut service = Service::spawn_under(&wrapper, site, Stdio::piped());
        service.hear("READY=1");
        let said = Lines::of("drover run", service.child.0.stderr.take().unwrap());
        Self { service, said, clock }
    }

    /// From here on the clock of this thread does so.
    fn order(&self, words: &str) {
        let fresh = self.clock.with_extension("new");
        std::fs::write(&fresh, words).unwrap();
        std::fs::rename(fresh, &self.clock).unwrap();
    }

    /// Lets all threads have something to do, whatever they answer.
    fn stir(site: &Site) {
        let lease = serde_json::json!({"template": "linux", "ttlSeconds": 3600});
        let body = serde_json::to_string(&lease).unwrap();
        let mut curl = Command::new("curl");
        curl.args(["-sS", "--max-time", "30", "--unix-socket"]);
        curl.arg(site.dir.path().join("drover.sock"));
        curl.args(["-H", "content-type: application/json", "-d", &body]);
        // The service may be gone before it answers.
        let _ = curl.arg("http://drover/v1/leases").output().unwrap();
    }
}

/// A lease that is ready, a fall, and a start that has it still.
fn falls(order: &str, code: i32, last_words: &str) {
    let (_dir, sim, site) = world();
    let mut frail = Frail::start(&site, &[]);
    let lease = ask(&site, "linux", "held");
    let before = ready(&site, &lease);
    frail.order(order);
    Frail::stir(&site);
    let said = frail.said.rest();
    assert_eq!(frail.service.child.wait(), Some(code), "{said}");
    let last = said.lines().last().unwrap_or_default();
    assert!(last.starts_with("drover: ") && last.contains(last_words), "{said}");

    let _next = Service::start(&site);
    let after = ready(&site, &lease);
    assert_eq!((&after["agent"], &after["ssh"]), (&before["agent"], &before["ssh"]));
    release(&site, &lease);
    // What was asked for last may have been written down: it has an agent then.
    assert!(sim.guests().len() <= 2, "{:?}", sim.guests());
}

// Invariant: a service that cannot go on ends at once, with a code of its own and why as its last
// words, and the next one takes up what it had.

#[test]
fn actors_that_are_given_up_end_the_service_with_70() {
    falls("actors fails", 70, "the actors failed");
}

#[test]
fn a_journal_that_is_not_written_any_more_ends_the_service_with_74() {
    falls("journal fails", 74, "the journal cannot be written any more");
}

// Invariant: actors that hang are seen: by anyone who asks, and by systemd's watchdog, which kills.

#[test]
fn actors_that_hang_feed_no_watchdog_and_hold_up_no_stop() {
    let (_dir, _sim, site) = world();
    let mut frail = Frail::start(&site, &["WATCHDOG_USEC=4000000"]);
    frail.service.hear("WATCHDOG=1");
    frail.order("actors stops");
    Frail::stir(&site);
    frail.said.until(|line| line.contains("the watchdog is not fed"));
    for path in ["/healthz", "/readyz"] {
        let (status, problem) = call(&site, "GET", path, None);
        assert_eq!((status, &problem["type"]), (503, &"urn:drover:problem:stuck".into()));
    }
    frail.service.child.signal("TERM");
    frail.service.hear("STOPPING=1");
    frail.service.child.signal("TERM");
    frail.said.until(|line| line.contains("drover does not wait for their thread"));
    assert_eq!(frail.service.child.wait(), Some(0));
}

#[test]
fn the_unit_restarts_after_every_fall_and_not_after_a_bad_configuration() {
    let unit = include_str!("../../configs/drover.service");
    let has = |line: &str| unit.lines().any(|other| other == line);
    assert!(has("Restart=on-failure") && has("RestartPreventExitStatus=2"));
    assert!(!unit.contains("SuccessExitStatus"), "70 and 74 are failures");
    // Twice the age at which the pulse of the actors counts as none.
    assert!(has("WatchdogSec=30"));
}
