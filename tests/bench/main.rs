//! Figures of the whole system, each beside a reference of the same run: the simulator, the service
//! and the script to compare with are processes of their own on loopback.
//!
//! `./tests/all bench [NAME…]`
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for people, which may end at the first surprise"
)]

mod api;
mod append;
mod death;
mod figure;
#[expect(dead_code, reason = "the wire tests use all of it")]
#[path = "../wire/harness.rs"]
mod harness;
mod herd;
mod journal;
mod lease;
mod naive;
mod operations;
mod placement;
mod process;
mod provision;
mod record;
mod reset;
mod scheduler;
mod site;
mod snapshot;
mod stores;
mod storm;
mod watchers;
mod webhook;

use figure::Report;
use herd::Herd;
use site::Lanes;

/// What can be measured, by name.
const NAMES: [&str; 21] = [
    "provision-200",
    "workers-50",
    "lanes-200",
    "teardown-200",
    "provision-1000",
    "provision-10000",
    "idle",
    "recovery-1000",
    "journal",
    "append",
    "stores",
    "snapshot-200000",
    "placement",
    "wants-2000",
    "lease-warm",
    "death",
    "watchers-200",
    "webhook-200",
    "reset",
    "operations",
    "storm",
];

/// The one that takes many minutes, and is measured when it is named.
const LARGE: &str = "provision-10000";

/// Those that need a herd of a thousand, which is provisioned once.
const OF_THOUSAND: [&str; 3] = ["provision-1000", "idle", "recovery-1000"];

/// An HTTP client that gives connections up before a server does; it trusts the authority in a
/// file where one is given.
fn client(ca_file: Option<&str>) -> reqwest::Client {
    let idle = std::time::Duration::from_secs(4);
    let mut builder =
        reqwest::Client::builder().no_proxy().tcp_nodelay(true).pool_idle_timeout(idle);
    if let Some(file) = ca_file {
        let pem = std::fs::read(file).unwrap();
        let authority = reqwest::Certificate::from_pem(&pem).unwrap();
        builder = builder.tls_certs_only([authority]);
    }
    builder.build().unwrap()
}

fn main() {
    // Nobody else has chosen: there is one provider in this build.
    let _chosen = rustls::crypto::ring::default_provider().install_default();
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.first().is_some_and(|word| word == naive::WORD) {
        return naive::main();
    }
    if let Some(unknown) = words.iter().find(|word| !NAMES.contains(&word.as_str())) {
        eprintln!("unknown figure `{unknown}`: choose among {}", NAMES.join(", "));
        std::process::exit(2);
    }
    let wanted = |name: &str| words.is_empty() || words.iter().any(|word| word == name);
    let mut report = Report::default();
    println!("{}", figure::head());
    if wanted("provision-200") {
        provision::beside_script(&mut report, 200);
    }
    if wanted("workers-50") {
        provision::beside_workers(&mut report, 50);
    }
    if ["lanes-200", "teardown-200"].into_iter().any(wanted) {
        let (herd, provision) = Herd::provisioned(200, Lanes::Default);
        if wanted("lanes-200") {
            provision.report_lanes(&mut report);
        }
        if wanted("teardown-200") {
            herd.report_teardown(&mut report);
        }
    }
    if OF_THOUSAND.into_iter().any(wanted) {
        thousand(&mut report, wanted);
    }
    if wanted("journal") {
        journal::report(&mut report);
    }
    if wanted("append") {
        append::report(&mut report);
    }
    if wanted("stores") {
        stores::report(&mut report);
    }
    if wanted("snapshot-200000") {
        snapshot::report(&mut report);
    }
    if wanted("placement") {
        placement::report(&mut report);
    }
    if wanted("wants-2000") {
        scheduler::report(&mut report);
    }
    if words.iter().any(|word| word == LARGE) {
        provision::beside_tenth(&mut report, 10_000);
    }
    if wanted("lease-warm") {
        lease::report(&mut report);
    }
    if wanted("death") {
        death::report(&mut report);
    }
    if wanted("watchers-200") {
        watchers::report(&mut report);
    }
    if wanted("webhook-200") {
        webhook::report(&mut report);
    }
    if wanted("reset") {
        reset::report(&mut report);
    }
    if wanted("operations") {
        operations::report(&mut report);
    }
    if wanted("storm") {
        storm::report(&mut report);
    }
    report.print_json();
}

fn thousand(report: &mut Report, wanted: impl Fn(&str) -> bool) {
    let (mut herd, provision) = Herd::provisioned(1000, Lanes::Wide);
    if wanted("provision-1000") {
        provision.report(report, None);
    }
    if wanted("idle") {
        herd.report_idle(report);
    }
    if wanted("recovery-1000") {
        herd.report_recovery(report);
    }
}
