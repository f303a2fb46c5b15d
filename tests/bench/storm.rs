//! How fast storms are played in virtual time.

use std::process::Command;

use crate::figure::{Figure, Report};

/// Seeds that are played.
const SEEDS: u32 = 100;

/// Plays storms with the storms' own test program, which says how fast it was without its start.
pub fn report(report: &mut Report) {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let mut command = Command::new(&cargo);
    command.args(["test", "--locked", "--release", "-q", "-p", "drover-storms", "--"]);
    let seeds = SEEDS.to_string();
    let done = command.args(["--seeds", &seeds, "--from", "1", "leaves_nothing"]).output().unwrap();
    let said = String::from_utf8_lossy(&done.stdout) + String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{said}");
    let passed = number(&said, "test result: ok. ", " passed");
    assert!(passed >= f64::from(SEEDS), "{passed} of {SEEDS} were played: {said}");
    let speed = number(&said, "seeds, ", " a second");
    report.add(Figure::alone("storm.seeds", speed, "seeds/s"));
}

/// The number between two texts.
fn number(said: &str, before: &str, after: &str) -> f64 {
    let number = said.split_once(before).and_then(|(_, rest)| rest.split_once(after));
    let number = number.unwrap_or_else(|| panic!("no `{before}…{after}` in: {said}")).0;
    number.parse().unwrap_or_else(|error| panic!("`{number}`: {error}"))
}
