//! Texts and what drover makes of them: golden files in `cases/`, one for each topic.
//!
//! ```text
//! === a size fills what the template leaves open (agent)
//! size: large
//! @sizes large: {cpu: 8}
//! ---
//! templates.c/a.cores: 8
//! ```
//!
//! A case is a name with the place of its lines, the lines, and behind `---` what comes of them:
//! faults; or warnings, and the values that differ from those without these lines. `+++` begins
//! another text of the same case. `cases/around.yaml` has the places and what is around the lines.
//!
//! | line | meaning |
//! |---|---|
//! | `@PLACE` | the place of the lines behind it; one line may follow at once |
//! | `@without TEXT` | leaves out the line around that begins so |
//! | `@environment NAME=value` | a variable |
//! | `@file NAME`, `@secret NAME` | the lines behind it are a file, which others can read or not |
//!
//! Lines with `#` before the first case and between cases are for people.
//! `DROVER_WRITE=1 cargo test -p drover-config cases` writes what comes of each text.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{Debug, Write as _};
use std::sync::LazyLock;

use super::*;
use crate::keys::{AGENT, CLOUD, IMAGE, MACHINE, SERVICE, Table};

/// What is around the lines of a case.
const AROUND: &str = include_str!("cases/around.yaml");
/// The line around from which on it is for cases about images alone.
const IMAGES: &str = "images:";
/// The same for cases about machines.
const MACHINES: &str = "machines:";

/// Each topic is a file and a test.
macro_rules! topics {
    ($($topic:ident)*) => {
        $(#[test]
        fn $topic() {
            holds(stringify!($topic));
        })*

        #[test]
        fn every_file_of_cases_is_a_topic() {
            let files = fs::read_dir(folder()).unwrap().map(|file| file.unwrap().file_name());
            let files: BTreeSet<String> = files.map(|name| name.into_string().unwrap()).collect();
            let topics = [$(concat!(stringify!($topic), ".txt")),*, "around.yaml"];
            assert_eq!(files, topics.map(str::to_owned).into());
        }
    };
}

topics! {
    addresses agents cloud_init clouds containers credentials demand environment github hardware images
    layers machines mappings networks origins placing service steps syntax windows
}

// Invariant: of every key there is a case of what it gives, and of what zero or blank means.

#[test]
fn every_key_has_its_case() {
    let topics: [(_, _, &Table); 5] = [
        ("clouds", "cloud", &CLOUD),
        ("agents", "agent", &AGENT),
        ("images", "image", &IMAGE),
        ("machines", "machine", &MACHINE),
        ("service", "service", &SERVICE),
    ];
    for (topic, place, table) in topics {
        let cases = fs::read_to_string(folder().join(format!("{topic}.txt"))).unwrap();
        for key in table.iter() {
            let head = format!("=== {} ({place})\n", key.name);
            assert!(cases.contains(&head), "`{}` has no case in {topic}.txt", key.name);
        }
    }
}

#[test]
fn a_configuration_without_a_key_has_the_defaults() {
    let images = WITH_IMAGE.iter().filter(|(name, _)| name.starts_with("images."));
    let lines: String =
        PLAIN.iter().chain(images).map(|(name, value)| format!("{name}: {value}\n")).collect();
    is_generated("src/config/tests/defaults.txt", &lines);
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases")
}

/// Holds every case of a topic.
fn holds(topic: &str) {
    let golden = fs::read_to_string(folder().join(format!("{topic}.txt"))).unwrap();
    let (note, cases) = golden.split_once("=== ").unwrap();
    let mut names = BTreeSet::new();
    let mut others = Vec::new();
    let again = cases.split("\n=== ").map(|case| {
        let (head, rest) = case.split_once('\n').unwrap();
        assert!(names.insert(head), "two cases are called `{head}`");
        let place = head.rsplit_once('(').and_then(|(_, end)| end.strip_suffix(')')).unwrap();
        let lines: Vec<&str> = rest.trim_end().lines().collect();
        let end = lines.iter().rposition(|line| !line.starts_with("# ")).map_or(0, |at| at + 1);
        let (texts, note) = lines.split_at(end);
        let texts = texts.split(|line| *line == "+++").map(|text| {
            let lines = text.split(|line| *line == "---").next().unwrap().join("\n");
            let lines = lines.trim_end();
            format!("{lines}\n---\n{}", outcome(&Text::of(place, lines)))
        });
        let note: String = note.iter().map(|line| format!("{line}\n")).collect();
        let gap = if note.is_empty() { "" } else { "\n" };
        let texts = texts.collect::<Vec<_>>().join("\n+++\n");
        let again = format!("=== {head}\n{texts}{gap}{note}");
        if again.trim_end() != format!("=== {case}").trim_end() {
            others.push((head, texts));
        }
        again
    });
    let again = again.collect::<Vec<_>>().join("\n");
    if let [(_, first), ..] = &others[..] {
        let names: Vec<_> = others.iter().map(|(name, _)| name).collect();
        let writes = std::env::var_os("DROVER_WRITE").is_some();
        assert!(writes, "these cases of {topic} come to something else: {names:#?}\n{first}");
    }
    is_generated(&format!("src/config/tests/cases/{topic}.txt"), &format!("{note}{again}"));
}

/// One text of a case: the lines of each place, and what is left out around them.
#[derive(Default)]
pub(super) struct Text<'a> {
    places: BTreeMap<&'a str, Vec<&'a str>>,
    without: Vec<&'a str>,
}

impl<'a> Text<'a> {
    pub fn of(place: &'a str, lines: &'a str) -> Self {
        let mut text = Self { places: [(place, Vec::new())].into(), ..Self::default() };
        let mut place = place;
        for line in lines.lines() {
            let Some(command) = line.strip_prefix('@') else {
                text.places.entry(place).or_default().push(line);
                continue;
            };
            match command.split_once(' ') {
                Some(("without", rest)) => text.without.push(rest),
                Some(("file" | "secret", _)) | None => place = command,
                Some((other, rest)) => {
                    place = other;
                    text.places.entry(place).or_default().push(rest);
                }
            }
            text.places.entry(place).or_default();
        }
        text
    }

    fn has_images(&self) -> bool {
        self.places.contains_key("image") || self.places.contains_key("images")
    }

    fn has_machines(&self) -> bool {
        self.places.contains_key("machine") || self.places.contains_key("machines")
    }

    /// The whole configuration.
    pub fn yaml(&self) -> String {
        if let Some(whole) = self.places.get("whole") {
            return whole.join("\n") + "\n";
        }
        let mut yaml = String::new();
        let mut left_out = false;
        for line in AROUND.lines() {
            let bare = line.trim_start();
            // Others need no image, nor its disc images on the cloud, and no machine.
            match line {
                IMAGES => left_out = !self.has_images(),
                MACHINES => left_out = !self.has_machines(),
                _ => {}
            }
            if left_out {
                continue;
            }
            let indent = &line[..line.len() - bare.len()];
            let Some(place) = bare.strip_prefix('@') else {
                if !self.without.iter().any(|text| bare.starts_with(text)) {
                    writeln!(yaml, "{line}").unwrap();
                }
                continue;
            };
            for own in self.places.get(place).into_iter().flatten() {
                writeln!(yaml, "{indent}{own}").unwrap();
            }
        }
        yaml
    }
}

/// What comes of a text.
fn outcome(text: &Text<'_>) -> String {
    let mut scene = Scene::new();
    for (place, lines) in &text.places {
        let lines = lines.join("\n");
        match place.split_once(' ') {
            Some(("file", name)) => scene.put(name, 0o644, &lines),
            Some(("secret", name)) => scene.put(name, 0o600, &lines),
            Some((other, _)) => panic!("`@{other}` is no place"),
            None if *place == "environment" => {
                let pairs: Vec<_> = lines.lines().filter_map(|pair| pair.split_once('=')).collect();
                scene.environment = Environment::of(&pairs);
            }
            None => assert!(
                *place == "whole" || AROUND.contains(&format!("@{place}\n")),
                "`@{place}` is no place"
            ),
        }
    }
    let checked = match scene.check(&text.yaml()) {
        Err(error) => return scene.shown(error),
        Ok(checked) => checked,
    };
    let mut shown = scene.placed(&checked.rendered_warnings());
    if !shown.is_empty() {
        shown.push('\n');
    }
    let plain = match (text.has_images(), text.has_machines()) {
        (true, _) => &WITH_IMAGE,
        (false, true) => &WITH_MACHINE,
        (false, false) => &PLAIN,
    };
    for (name, value) in &values(&checked) {
        if plain.get(name).or_else(|| plain.get(&of_plain(name))) != Some(value) {
            writeln!(shown, "{}", scene.placed(&format!("{name}: {value}"))).unwrap();
        }
    }
    if shown.is_empty() { "no fault\n".to_owned() } else { shown }
}

/// The values without any lines.
static PLAIN: LazyLock<BTreeMap<String, String>> =
    LazyLock::new(|| values(&Scene::new().good(&Text::default().yaml())));

/// The values without any lines, beside an image.
static WITH_IMAGE: LazyLock<BTreeMap<String, String>> =
    LazyLock::new(|| values(&Scene::new().good(&Text::of("image", "").yaml())));

/// The values without any lines, beside a machine.
static WITH_MACHINE: LazyLock<BTreeMap<String, String>> =
    LazyLock::new(|| values(&Scene::new().good(&Text::of("machine", "").yaml())));

/// The name of a value of another cloud or template for the one that is always there.
fn of_plain(name: &str) -> String {
    let mut parts: Vec<&str> = name.split('.').collect();
    match parts[..] {
        ["clouds" | "connections", _, ..] => parts[1] = "c",
        ["templates", _, ..] => parts[1] = "c/a",
        ["images", _, ..] => parts[1] = "c/i",
        ["machines", _, ..] => parts[1] = "m",
        _ => {}
    }
    parts.join(".")
}

/// Every value of a configuration, by the names on the way to it.
fn values(checked: &Checked) -> BTreeMap<String, String> {
    let mut values = BTreeMap::new();
    let mut add =
        |path: String, part: &dyn Debug| flatten(&path, &format!("{part:#?}"), &mut values);
    let herd = &checked.herd;
    herd.clouds.iter().for_each(|(id, cloud)| add(format!("clouds.{id}"), cloud));
    herd.templates.iter().for_each(|(id, template)| add(format!("templates.{id}"), template));
    herd.images.iter().for_each(|(id, image)| add(format!("images.{id}"), image));
    herd.declared.iter().for_each(|(name, machine)| add(format!("machines.{name}"), machine));
    herd.pools.iter().for_each(|(id, pool)| add(format!("pools.{id}"), pool));
    herd.sources.iter().for_each(|(id, source)| add(format!("sources.{id}"), source));
    add("mappings".to_owned(), &herd.mappings);
    add("asked".to_owned(), &herd.asked);
    add("leases".to_owned(), &herd.leases);
    add("service".to_owned(), &checked.service);
    for (id, connection) in &checked.connections {
        add(format!("connections.{id}"), connection);
    }
    for (id, key) in &checked.keys {
        add(format!("keys.{id}"), &(&key.username, &key.public_line));
    }
    for (id, source) in &checked.demand {
        add(format!("demand.{id}"), source);
        add(format!("demand.{id}.url"), &source.url.as_str());
    }
    values.retain(|name, value| {
        // Numbers that secrets change, the version, and parts of URLs.
        let opaque = [".connection", ".place", ".user_agent"].iter().any(|end| name.ends_with(end));
        if value.contains("REDACTED") {
            *value = "a secret".to_owned();
        }
        // What scripts do is no matter of the configuration.
        if let Some(((before, _), (_, after))) =
            value.split_once("#!/bin/sh").zip(value.rsplit_once("\\n'"))
        {
            *value = format!("{before}#!/bin/sh …'{after}");
        }
        !opaque && !name.contains(".url.")
    });
    values
}

/// Adds the values of a text by `{:#?}`, each with the names on the way to it. Of names of types it
/// keeps those of variants.
fn flatten(path: &str, shown: &str, values: &mut BTreeMap<String, String>) {
    let mut names = vec![path.to_owned()];
    // Of each bracket around the line: whether names are left out in it, and the number of values.
    let mut around = vec![(true, 0)];
    for line in shown.lines().map(|line| line.trim().trim_end_matches(',')) {
        if matches!(line, "}" | ")" | "]") {
            names.pop();
            around.pop();
            continue;
        }
        let (bare, count) = around.last_mut().unwrap();
        let is_name =
            |name: &str| name.starts_with('"') == name.ends_with('"') && !name.contains(' ');
        let named = line.split_once(": ").filter(|(name, _)| is_name(name));
        let (name, value) = named.map_or((String::new(), line), |(name, value)| {
            (format!(".{}", name.trim_matches('"')), value)
        });
        let name =
            if named.is_none() && !(*bare && *count == 0) { format!(".{count}") } else { name };
        *count += 1;
        let open = value.strip_suffix('{').map(|of| (of.trim(), false));
        let open = open.or_else(|| value.strip_suffix('[').map(|of| (of, false)));
        match open.or_else(|| value.strip_suffix('(').map(|of| (of, true))) {
            Some((of, bare)) => {
                let variant = (bare && of != "Some") || matches!(of, "Token" | "Password");
                names.push(if variant && !of.is_empty() { format!("{name}.{of}") } else { name });
                around.push((bare, 0));
            }
            None => drop(values.insert(names.concat() + &name, value.to_owned())),
        }
    }
}
