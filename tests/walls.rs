//! The walls of the house: which package may depend on which. Arrows point down only, from a floor to
//! one beneath it. And which words are spelled in one room alone.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "walls/circles.rs"]
mod circles;
mod tree;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use tree::{files, root};

use drover_model::phase::{AgentPhase, BreakerPhase, CloudHealth, LeasePhase};

/// The floors, the ground first.
const FLOORS: [&[&str]; 7] = [
    &[
        "causes",
        "drover-audit",
        "drover-git",
        "drover-model",
        "drover-nocloud",
        "drover-ssh",
        "drover-vault",
    ],
    &[
        "drover-api",
        "drover-history",
        "drover-journal",
        "drover-limits",
        "drover-members",
        "drover-runtime",
        "drover-scripts",
        "proxmox-client",
    ],
    &[
        "drover-actors",
        "drover-hypervisor",
        "drover-notify",
        "drover-openid",
        "drover-page",
        "drover-shell",
        "drover-spans",
        "drover-stores",
        "pve-sim",
    ],
    &["drover-ci", "drover-forecast"],
    &["drover-config"],
    &["drover-admin", "drover-server"],
    &["drover"],
];

/// Packages of tests alone, which nothing depends on.
const OF_TESTS: [&str; 1] = ["drover-storms"];

/// Packages that stand alone, with all that they may depend on here.
const ALONE: [(&str, &[&str]); 15] = [
    ("causes", &[]),
    ("drover-audit", &[]),
    // A phase in an answer is the model's, not a text that server and command line each spell.
    ("drover-api", &["drover-model"]),
    ("drover-git", &[]),
    ("drover-history", &["drover-model"]),
    ("drover-model", &[]),
    ("drover-nocloud", &[]),
    ("drover-notify", &["causes", "drover-model", "drover-vault", "proxmox-client"]),
    ("drover-openid", &["causes", "proxmox-client"]),
    ("drover-page", &["drover-api", "drover-model"]),
    ("drover-spans", &["causes", "drover-model", "proxmox-client"]),
    ("drover-ssh", &[]),
    ("drover-vault", &[]),
    ("proxmox-client", &["causes"]),
    ("pve-sim", &["causes", "drover-nocloud", "drover-ssh", "proxmox-client"]),
];

/// Packages in which nothing does I/O, with all that they may use of others.
const PURE: [(&str, &[&str]); 7] = [
    ("drover-api", &["base64", "serde", "serde_json", "strsim", "thiserror", "utoipa"]),
    ("drover-history", &["serde", "serde_json", "sha2", "thiserror"]),
    // utoipa for the API's words alone, and only where the API is built: types, no I/O.
    ("drover-model", &["futures-util", "rand", "rand_chacha", "serde", "thiserror", "utoipa"]),
    ("drover-limits", &[]),
    ("drover-page", &["askama", "pulldown-cmark", "serde_json"]),
    ("drover-runtime", &["actix", "tokio", "tracing"]),
    ("drover-scripts", &[]),
];

/// What the compiler is asked in every package. It knows renamed crates, macros and what is compiled
/// for tests alone better than a search in texts does.
const ASKED: &str = "#![cfg_attr(not(test), warn(unused_crate_dependencies))]";

/// A package's manifest: its name, what it depends on beside its tests, and what its tests alone do.
struct Manifest {
    name: String,
    folder: PathBuf,
    uses: BTreeSet<String>,
    tests_use: BTreeSet<String>,
}

fn read(folder: PathBuf) -> Manifest {
    let text = std::fs::read_to_string(folder.join("Cargo.toml")).unwrap();
    let (mut section, mut name) = (String::new(), String::new());
    let (mut uses, mut tests_use) = (BTreeSet::new(), BTreeSet::new());
    for line in text.lines().map(str::trim) {
        if let Some(head) = line.strip_prefix('[') {
            section = head.trim_end_matches(']').to_owned();
        } else if let Some((key, value)) = line.split_once('=') {
            let key = key.trim().to_owned();
            match section.as_str() {
                "package" if key == "name" => name = value.trim().trim_matches('"').to_owned(),
                "dependencies" => drop(uses.insert(key)),
                "dev-dependencies" => drop(tests_use.insert(key)),
                _ => {}
            }
        }
    }
    Manifest { name, folder, uses, tests_use }
}

/// All manifests of the workspace but those of tests alone.
fn manifests() -> BTreeMap<String, Manifest> {
    let text = std::fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let members = text.lines().find_map(|line| line.strip_prefix("members = [")).unwrap();
    let members = members.trim_end_matches(']').split(',').map(|one| one.trim().trim_matches('"'));
    let folders = members.map(|one| root().join(one)).chain([PathBuf::from(root())]);
    let all = folders.map(read).filter(|one| !OF_TESTS.contains(&one.name.as_str()));
    all.map(|one| (one.name.clone(), one)).collect()
}

/// The sources of a package in a folder, without those of packages nested in it.
fn sources(folder: &Path) -> String {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let parts = entries.map(|path| {
        let is_source = path.extension().is_some_and(|end| end == "rs");
        let is_nested = path.join("Cargo.toml").exists() || path.ends_with("target");
        match (path.is_dir(), is_source) {
            (true, _) if !is_nested => sources(&path),
            (false, true) => std::fs::read_to_string(&path).unwrap(),
            (true | false, _) => String::new(),
        }
    });
    parts.collect()
}

fn floor(name: &str) -> Option<usize> {
    FLOORS.iter().position(|floor| floor.contains(&name))
}

// Invariant: a package depends on packages of the floors beneath its own, and on no other.

#[test]
fn every_package_has_its_floor_and_its_arrows_point_down() {
    let all = manifests();
    let named: BTreeSet<&str> = FLOORS.iter().flat_map(|floor| floor.iter().copied()).collect();
    assert_eq!(all.keys().map(String::as_str).collect::<BTreeSet<_>>(), named);
    for (name, manifest) in &all {
        for used in manifest.uses.iter().filter(|used| all.contains_key(*used)) {
            assert!(floor(used) < floor(name), "{name} depends on {used}, which is not beneath it");
        }
    }
}

#[test]
fn what_stands_alone_knows_nothing_of_drover() {
    let all = manifests();
    for (name, may) in ALONE {
        let ours = all[name].uses.iter().filter(|used| all.contains_key(*used));
        let ours: Vec<&str> = ours.map(String::as_str).collect();
        assert_eq!(ours, may, "of {name}");
    }
}

// Invariant: where nothing does I/O, no crate is at hand that could.

#[test]
fn pure_packages_use_no_crate_that_does_io() {
    let all = manifests();
    for (name, may) in PURE {
        for used in all[name].uses.iter().filter(|used| !all.contains_key(*used)) {
            assert!(may.contains(&used.as_str()), "{name} must not use {used}");
        }
    }
}

// Invariant: only the packages of actors know the actor system.

#[test]
fn actix_is_where_actors_are_and_where_they_are_asked() {
    let all = manifests();
    let with = all.values().filter(|one| one.uses.contains("actix"));
    let with: Vec<&str> = with.map(|one| one.name.as_str()).collect();
    assert_eq!(
        with,
        ["drover", "drover-actors", "drover-forecast", "drover-runtime", "drover-server"]
    );
}

/// Whether a source is a test, or what tests are made of.
fn is_test(file: &str) -> bool {
    let name = file.rsplit('/').next().unwrap_or(file);
    file.contains("/tests/")
        || file.contains("/testing/")
        || name == "tests.rs"
        || name == "testing.rs"
}

/// The code of a source without the tests at its end.
fn production(text: &str) -> &str {
    text.split("\nmod tests {").next().unwrap_or(text)
}

/// The words of phases that nothing else in the sources has a use for. Of the words for leases and
/// jobs only `granted` is such a one: Proxmox and CI systems have a `running` and a `waiting` too.
fn words_of_the_model() -> Vec<&'static str> {
    let agents = AgentPhase::ALL.map(AgentPhase::name);
    let breakers = BreakerPhase::ALL.map(BreakerPhase::name);
    let clouds = CloudHealth::ALL.map(CloudHealth::name);
    let leases = [LeasePhase::Granted.name()];
    agents.into_iter().chain(breakers).chain(clouds).chain(leases).collect()
}

// Invariant: the name of a phase is spelled where the phases are, and nowhere else: a word that is
// misspelled elsewhere would compile.

#[test]
fn no_phase_is_spelled_outside_the_model() {
    let words: Vec<String> =
        words_of_the_model().into_iter().map(|word| format!("\"{word}\"")).collect();
    let mut spelled = Vec::new();
    let files = ["actors", "src"].iter().flat_map(|folder| files(&root().join(folder), &["rs"]));
    for path in files {
        let file = path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
        if is_test(&file) || file.starts_with("actors/model/phase/") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        for (at, line) in (1..).zip(production(&text).lines()) {
            if words.iter().any(|word| line.contains(word.as_str())) {
                spelled.push(format!("{file}:{at}: {}", line.trim()));
            }
        }
    }
    assert!(spelled.is_empty(), "use drover_model::phase:\n{}", spelled.join("\n"));
}

// Invariant: tests of a module are in it, in `tests.rs` or beneath `tests/`, and what they are made of is in
// `testing.rs` or beneath `testing/`: the name of a file says whether it is compiled for tests alone.

#[test]
fn what_is_for_tests_alone_has_the_name_of_tests() {
    let mut wrong = Vec::new();
    let files = ["actors", "src"].iter().flat_map(|folder| files(&root().join(folder), &["rs"]));
    for path in files {
        let text = std::fs::read_to_string(&path).unwrap();
        let mut lines = text.lines().map(str::trim).peekable();
        while let Some(line) = lines.next() {
            let module = lines.peek().and_then(|next| next.split("mod ").nth(1)?.strip_suffix(';'));
            let is_misnamed = line == "#[cfg(test)]"
                && module.is_some_and(|name| !["tests", "testing"].contains(&name));
            if is_misnamed || line.starts_with("#[path") {
                wrong.push(format!("{}: {line} {}", path.display(), module.unwrap_or_default()));
            }
        }
    }
    assert!(wrong.is_empty(), "call these `tests` or `testing`:\n{}", wrong.join("\n"));
}

// Invariant: a file holds one noun. One of more lines than this holds several.

#[test]
fn no_source_file_is_over_600_lines() {
    const LINES_MAX: usize = 600;
    let folders = ["actors", "src", "tests"];
    let files = folders.iter().flat_map(|folder| files(&root().join(folder), &["rs"]));
    let long: Vec<String> = files
        .map(|path| (std::fs::read_to_string(&path).unwrap().lines().count(), path))
        .filter(|(lines, _)| *lines > LINES_MAX)
        .map(|(lines, path)| format!("{lines} {}", path.display()))
        .collect();
    assert!(long.is_empty(), "split these:\n{}", long.join("\n"));
}

// Invariant: what people read goes through writers that report a full disk or a closed pipe: `println!`
// panics there. The lint finds each use; nothing may turn it off.

#[test]
fn nothing_turns_the_lint_off_that_finds_println() {
    let mut off = Vec::new();
    for path in ["actors", "src"].iter().flat_map(|folder| files(&root().join(folder), &["rs"])) {
        let file = path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
        let text = std::fs::read_to_string(&path).unwrap();
        let names_it = ["print_stdout", "print_stderr"].iter().any(|lint| text.contains(lint));
        if names_it && !is_test(&file) && !file.contains("/examples/") {
            off.push(file);
        }
    }
    assert!(off.is_empty(), "write to a `Term`, or by `term::put`: {off:?}");
}

// Invariant: no manifest names a crate in vain.

#[test]
fn the_compiler_is_asked_for_unused_dependencies_in_every_package() {
    for (name, manifest) in manifests() {
        let roots = ["lib.rs", "src/lib.rs"].map(|file| manifest.folder.join(file));
        let lib = roots.iter().find_map(|file| std::fs::read_to_string(file).ok()).unwrap();
        assert!(lib.lines().any(|line| line == ASKED), "{name} does not ask `{ASKED}`");
    }
}

#[test]
fn dependencies_of_tests_are_named_in_their_package() {
    for (name, manifest) in manifests() {
        let sources = sources(&manifest.folder);
        for used in &manifest.tests_use {
            let krate = used.replace('-', "_");
            let is_named = [format!("{krate}::"), format!("use {krate};")];
            let is_named = is_named.iter().any(|path| sources.contains(path.as_str()));
            assert!(is_named, "no source of {name} names `{used}`");
        }
    }
}
