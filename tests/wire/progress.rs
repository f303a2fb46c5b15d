//! The live line of long work on a pseudo-terminal, and its absence everywhere else.

use std::process::{Command, Stdio};

use crate::harness::{Service, world};
use crate::init::TERMINAL;

/// What a terminal shows at the end of this output.
fn rendered(raw: &str) -> String {
    let (mut lines, mut at, mut column) = (vec![Vec::new()], 0, 0);
    let mut rest = raw.chars();
    while let Some(one) = rest.next() {
        match one {
            '\r' => column = 0,
            '\n' => {
                (at, column) = (at + 1, 0);
                if at == lines.len() {
                    lines.push(Vec::new());
                }
            }
            '\u{1b}' => {
                assert_eq!(rest.next(), Some('['), "{raw:?}");
                let code: String = rest.by_ref().take_while(char::is_ascii_digit).collect();
                // The letter after the digits is taken with them: lines are cleared or left upwards.
                match code.as_str() {
                    "2" => lines[at].clear(),
                    "1" => at = at.saturating_sub(1),
                    "" => {}
                    other => panic!("the sequence {other} in {raw:?}"),
                }
            }
            letter => {
                let line: &mut Vec<char> = &mut lines[at];
                line.resize(line.len().max(column + 1), ' ');
                line[column] = letter;
                column += 1;
            }
        }
    }
    let lines = lines.into_iter().map(|line| line.into_iter().collect::<String>());
    lines.map(|line| line.trim_end().to_owned()).collect::<Vec<_>>().join("\n")
}

/// Runs a command on a pseudo-terminal; gives all that was written there.
fn on_a_terminal(plain: &Command, term: &str) -> String {
    let mut command = Command::new("python3");
    command.args(["-c", TERMINAL, "nothing is asked=>"]).arg(plain.get_program());
    command.args(plain.get_args()).env("TERM", term).stdin(Stdio::null());
    for (name, value) in plain.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let out = command.output().unwrap();
    assert!(out.status.success(), "{out:?}");
    String::from_utf8(out.stdout).unwrap()
}

// Invariant: a live line shows what goes on, nothing of it stays, and results are the same as on a pipe.

#[test]
fn a_live_line_stands_on_a_terminal_alone_and_leaves_the_results() {
    let (_dir, _sim, site) = world();
    let _service = Service::start(&site);
    let resync = site.command(["resync", "--dry-run"]);
    let raw = on_a_terminal(&resync, "xterm");
    assert!(raw.contains("drover compares its journal with the clusters"), "{raw:?}");
    let piped = site.cli(&["resync", "--dry-run"]);
    assert_eq!(rendered(&raw).trim_end(), String::from_utf8(piped.stdout).unwrap().trim_end());

    let dumb = on_a_terminal(&resync, "dumb");
    let json = on_a_terminal(&site.command(["resync", "--dry-run", "--json"]), "xterm");
    for text in [&dumb, &json] {
        assert!(!text.contains('\u{1b}') && !text.contains("drover compares"), "{text:?}");
    }

    let lease = on_a_terminal(&site.command(["lease", "--labels", "linux"]), "xterm");
    assert!(lease.contains("asking for a lease"), "{lease:?}");
    let shown = rendered(&lease);
    let starts: Vec<_> =
        shown.trim_end().lines().filter_map(|line| line.split(' ').next()).collect();
    let wanted = ["lease", "shell:", "copy:", "log", "renew:", "release:"];
    assert_eq!(starts, wanted, "{shown}");
    let words = ["lease", "--labels", "linux", "--", "printf 'half a'; echo ' line'; echo no >&2"];
    let ran = on_a_terminal(&site.command(words), "xterm");
    assert_eq!(rendered(&ran).trim_end().lines().collect::<Vec<_>>().len(), 2, "{ran:?}");
    assert!(rendered(&ran).contains("half a line") && rendered(&ran).contains("no"), "{ran:?}");
}

#[test]
fn the_doctor_says_where_it_looks_and_reports_the_same_on_a_terminal() {
    let (_dir, _sim, site) = world();
    let mut doctor = crate::harness::drover();
    doctor.arg("--config").arg(site.config()).arg("doctor");
    let piped = String::from_utf8(doctor.output().unwrap().stdout).unwrap();
    let raw = on_a_terminal(&doctor, "xterm");
    assert!(raw.contains("the doctor looks at cloud lab"), "{raw:?}");
    assert_eq!(rendered(&raw).trim_end(), piped.trim_end());
}
