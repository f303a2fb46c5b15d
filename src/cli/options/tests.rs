#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use clap::CommandFactory;

use std::time::Duration;

use super::read::read_span;
use super::*;

// Invariant: the arguments are consistent, and wrong ones are usage errors.

#[test]
fn the_command_line_is_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn spans_have_a_unit_and_are_not_zero() {
    assert_eq!(read_span("90s"), Ok(Duration::from_secs(90)));
    assert_eq!(read_span("2h"), Ok(Duration::from_secs(7200)));
    for wrong in ["", "5", "h", "0m", "1.5h", "99999999999999999999s", "1 h"] {
        assert!(read_span(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn everything_after_two_dashes_is_the_command() {
    let cli = Cli::try_parse_from([
        "drover",
        "lease",
        "--labels",
        "linux,big",
        "--",
        "make",
        "--json",
        "-i",
        "x",
    ])
    .unwrap();
    assert!(!cli.global.json);
    let Command::Lease { options: lease, action: None } = cli.command else {
        panic!("not a lease")
    };
    assert_eq!(lease.labels.unwrap(), ["linux", "big"]);
    assert_eq!(lease.command, ["make", "--json", "-i", "x"]);
    assert_eq!(lease.identity, None);
}

#[test]
fn sizes_of_machines_are_written_as_those_of_leases() {
    let line = ["drover", "machine", "resize", "a1", "--memory", "8g", "--disk", "1t"];
    let cli = Cli::try_parse_from(line).unwrap();
    let Command::Machine(MachineAction::Resize(sizes)) = cli.command else { panic!("no resize") };
    assert_eq!((sizes.cores, sizes.memory, sizes.disk), (None, Some(8192), Some(1024)));
}

#[test]
fn wrong_arguments_are_usage_errors() {
    for line in [
        &["drover", "lease"][..],
        &["drover", "lease", "--labels", "a", "--template", "b"],
        &["drover", "lease", "--labels", "a", "--ttl", "soon"],
        &["drover", "lease", "--labels", "a", "--cpu", "many"],
        &["drover", "lease", "--labels", "a", "--memory", "16k"],
        &["drover", "machine", "resize", "a1", "--memory", "much"],
        &["drover", "agents", "set", "a1"],
        &["drover", "agents", "set", "a1", "--idle", "soon"],
        &["drover", "agents", "--gone", "set", "a1", "--idle", "0"],
        &["drover", "sim", "--pve", "6.4"],
        &["drover", "nothing"],
    ] {
        assert_eq!(Cli::try_parse_from(line).unwrap_err().exit_code(), 2, "{line:?}");
    }
}
