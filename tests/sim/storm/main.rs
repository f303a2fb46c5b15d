//! Storms: tests made by the hundred from a table or from a seed, on the same herds in virtual time
//! as the scenarios beside them.
//!
//! `cargo test --release -p drover-storms -- --seeds 500 --from 1 [--every] [NAME…]`
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::wildcard_enum_match_arm,
    clippy::print_stderr,
    reason = "tests may end at the first surprise"
)]

mod panics;
mod points;
mod rights;
mod seeds;
#[path = "../world/mod.rs"]
mod world;

use std::path::{Path, PathBuf};

use libtest_mimic::{Arguments, Conclusion};

/// Seeds a run plays where nothing else is said.
const SEEDS: u64 = if cfg!(debug_assertions) { 50 } else { 500 };

/// Where a plan's file is looked for: cargo starts tests in the folder of their package.
const REPOSITORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../..");

/// Which seeds to play.
pub struct Seeds {
    from: u64,
    count: u64,
    /// A file with a plan to play instead.
    plan: Option<PathBuf>,
    /// Also the panics that repeat others.
    every: bool,
}

impl Seeds {
    pub fn numbers(&self) -> impl Iterator<Item = u64> {
        self.from..self.from + self.count
    }
}

/// Runs a future on a clock of its own that only moves when everybody waits.
pub fn on_paused_clock<F: Future>(future: F) -> F::Output {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().unwrap();
    runtime.block_on(future)
}

/// Takes `--seeds N`, `--from S`, `--plan FILE` and `--every` out of the arguments; the rest is as for
/// any test.
fn arguments() -> (Seeds, Vec<String>) {
    let mut seeds = Seeds { from: 1, count: SEEDS, plan: None, every: false };
    let (mut rest, mut given) = (Vec::new(), std::env::args());
    while let Some(word) = given.next() {
        let place = match word.as_str() {
            "--seeds" => &mut seeds.count,
            "--from" => &mut seeds.from,
            "--plan" => {
                seeds.plan = given.next().map(|file| Path::new(REPOSITORY).join(file));
                continue;
            }
            "--every" => {
                seeds.every = true;
                continue;
            }
            _ => {
                rest.push(word);
                continue;
            }
        };
        let number = given.next().and_then(|text| text.parse().ok());
        *place = number.unwrap_or_else(|| {
            eprintln!("`{word}` takes a number, such as `{word} 100`");
            std::process::exit(2);
        });
    }
    (seeds, rest)
}

fn main() {
    let (seeds, rest) = arguments();
    let mut trials = seeds::trials(&seeds);
    trials.extend(panics::trials(seeds.every));
    trials.extend(points::trials());
    trials.extend(rights::trials());
    let conclusion: Conclusion = libtest_mimic::run(&Arguments::from_iter(rest), trials);
    if let Some((played, took)) = seeds::played() {
        eprintln!("note: {played} seeds, {:.1} a second", played as f64 / took);
    }
    conclusion.exit();
}
