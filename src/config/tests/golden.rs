//! The faults of wrong values of every key: golden texts, generated from the tables so that no key
//! is missing.

use std::fmt::Write as _;

use super::*;
use crate::keys::{
    ADDRESS_POOL, AGENT, CLOUD, CREDENTIALS, IMAGE, Key, Kind, MACHINE, MAPPING, SERVICE, SIZES,
    Table,
};

/// Texts of which each check refuses one at least.
const ODD: [&str; 2] = ["a b", ""];

/// Values that a key does not take: of another type, out of its range, none of its words, and one
/// that its closer look refuses.
fn wrong(key: &Key) -> Vec<String> {
    let numbers = |least: u64, most: u64| {
        let below = least.checked_sub(1).filter(|below| *below > 0 || least == 1);
        let outside = below.into_iter().chain([most + 1]).map(|number| number.to_string());
        [vec!["many".to_owned()], outside.collect()].concat()
    };
    let mut wrong = match key.kind {
        Kind::Text => vec!["{}".to_owned()],
        Kind::Whole(least, most) => numbers(least, most),
        Kind::ZeroOr(least, most) | Kind::Memory(least, most) => numbers(least, most),
        Kind::Flag => vec!["perhaps".to_owned()],
        Kind::Choice(_) => vec!["[]".to_owned(), "none-of-them".to_owned()],
        Kind::Texts => vec!["{}".to_owned(), "[{}]".to_owned()],
        Kind::Wholes => vec!["{}".to_owned(), "[many]".to_owned()],
        Kind::Lists => vec!["5".to_owned(), "{a: 5}".to_owned()],
        Kind::Mapping(_) | Kind::Mappings(_) | Kind::Names => vec!["5".to_owned()],
    };
    if let Some(check) = key.check {
        let odd = ODD.into_iter().find(|odd| check(odd).is_err());
        let odd = odd.unwrap_or_else(|| panic!("`{}` takes all of {ODD:?}", key.name));
        let list = matches!(key.kind, Kind::Texts);
        let names = matches!(key.kind, Kind::Names);
        let lists = matches!(key.kind, Kind::Lists);
        wrong.push(match (names, list, lists) {
            (true, ..) => format!("{{x: \"{odd}\"}}"),
            (_, true, _) => format!("[\"{odd}\"]"),
            (_, _, true) => format!("{{x: [\"{odd}\"]}}"),
            (false, false, false) => format!("\"{odd}\""),
        });
    }
    wrong
}

/// The faults of each wrong value of each key, and of the keys of the mappings in them; `around`
/// puts a line into a whole configuration.
fn said(table: &Table, around: &dyn Fn(&str) -> String) -> String {
    let mut text = String::new();
    for key in table.iter() {
        for value in wrong(key) {
            text.push_str(&faults_of(key, &value, around));
        }
        if let Some(table) = key.kind.table() {
            let list = matches!(key.kind, Kind::Mappings(_));
            let (open, close) = if list { ("[{", "}]") } else { ("{", "}") };
            let within = |line: &str| around(&format!("{}: {open}{line}{close}", key.name));
            writeln!(text, "\nin {}\n\n{}", key.name, said(table, &within)).unwrap();
        }
    }
    text
}

/// What is said of one wrong value.
fn faults_of(key: &Key, value: &str, around: &dyn Fn(&str) -> String) -> String {
    let line = format!("{}: {value}", key.name);
    let Err(LoadError::Faults { faults, .. }) = Scene::new().check(&around(&line)) else {
        panic!("`{line}` is no fault");
    };
    let own = format!(".{}", key.name);
    // A value of a list has its number behind the key.
    let of_it = |path: &str| match path.strip_suffix(']').and_then(|path| path.rsplit_once('[')) {
        // A list of several stands behind its own name.
        Some((list, _)) => list.ends_with(&own) || list.contains(&format!("{own}.")),
        // That of a name in it stands behind a dot.
        None => path.ends_with(&own) || path.contains(&format!("{own}.")),
    };
    let reported: Vec<_> = faults.iter().filter(|fault| of_it(&fault.path)).collect();
    assert!(!reported.is_empty(), "`{line}` has no fault of its own: {faults:?}");
    let mut text = format!("{line}\n");
    for fault in reported {
        writeln!(text, "  {}", fault.message).unwrap();
        if let Some(help) = &fault.help {
            writeln!(text, "    {help}").unwrap();
        }
    }
    text
}

// Invariant: of every key there is a text for each way its value can be wrong.

#[test]
fn every_key_says_what_is_wrong() {
    let tables: [(&str, &Table, &str, &str); 8] = [
        ("cloud", &CLOUD, "cloud", "LINE"),
        ("agent", &AGENT, "agent", "LINE"),
        ("service", &SERVICE, "service", "LINE"),
        ("image", &IMAGE, "images", "m: {LINE}"),
        ("machine", &MACHINE, "machines", "x: {LINE}"),
        ("mapping", &MAPPING, "labelMappings", "m: {LINE}"),
        ("pool", &ADDRESS_POOL, "addressPools", "lab: {LINE}"),
        ("size", &SIZES, "sizes", "small: {LINE}"),
    ];
    for (name, table, place, entry) in tables {
        let around = |line: &str| with(place, &entry.replace("LINE", line));
        is_generated(&format!("src/config/tests/wrong/{name}.txt"), &said(table, &around));
    }
}

#[test]
fn every_key_of_a_credential_says_what_is_wrong() {
    let mut text = String::new();
    for (kind, _, table) in CREDENTIALS {
        let credential = |line: &str| {
            let kind =
                if line.starts_with("kind:") { String::new() } else { format!("kind: {kind}, ") };
            with("credentials", &format!("x: {{{kind}{line}}}"))
        };
        writeln!(text, "{kind}\n\n{}", said(table, &credential)).unwrap();
    }
    is_generated("src/config/tests/wrong/credential.txt", &text);
}
