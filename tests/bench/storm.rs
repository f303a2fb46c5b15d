//! How fast storms are played in virtual time.

use std::process::Command;
use std::time::Instant;

use crate::figure::{Figure, Report};

/// Seeds that are played.
const SEEDS: u32 = 100;

/// Plays storms with the storms' own test program.
pub fn tell(report: &mut Report) {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let run = |more: &[&str]| {
        let mut command = Command::new(&cargo);
        command.args(["test", "--locked", "--release", "-q", "--test", "storm"]).args(more);
        let begun = Instant::now();
        let done = command.output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
        begun.elapsed().as_secs_f64()
    };
    run(&["--no-run"]);
    let overhead = run(&["--", "--seeds", "0"]);
    let seeds = SEEDS.to_string();
    let took = run(&["--", "--seeds", &seeds, "--from", "1", "seeds"]) - overhead;
    report.add(Figure::alone("storm.seeds", f64::from(SEEDS) / took, "seeds/s"));
}
