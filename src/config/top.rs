//! The top level of a configuration: its sections, each with the entries of all files.
//!
//! A configuration has two halves: the files of this machine, and the files that git manages
//! (`managed.rs`). Each half has its own defaults, so that neither changes the other. A name is
//! unique over both. Clouds, and what is on them, belong together in one half.

use super::context::Context;
use super::fault::{self, Fault, Place};
use super::keys::{NODE_DEFAULTS, SECTIONS, Table};
use super::layer::{Layer, unknown, wrong_type};
use super::node::{self, Entries, Entry, Value};
use super::source::{Sources, is_control};

/// Which half of a configuration something is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Half {
    /// The files of this machine.
    Local,
    /// The files that git manages.
    Managed,
}

/// The sections of both halves.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Top {
    /// Of the files of this machine.
    pub local: Vec<Entry>,
    /// Of the files that git manages.
    pub managed: Vec<Entry>,
}

impl Top {
    /// Reads the sections of all files together. A syntax fault is the error.
    pub fn of(sources: &Sources, faults: &mut Vec<Fault>) -> Result<Self, Box<Fault>> {
        let mut top = Self::default();
        for (index, file) in sources.files().iter().enumerate() {
            if let Some(sound) = file.sound {
                return Err(Box::new(fault::no_text(index, &file.text, sound)));
            }
            // The parser takes a zero byte for the end: the rest would look as if it had been removed.
            if let Some(at) = file.text.find(is_control) {
                return Err(Box::new(fault::control(index, &file.text, at)));
            }
            let (root, doubled) = node::parse(index, &file.text)?;
            faults.extend(doubled);
            let Some(root) = root else { continue };
            let Value::Map(entries) = root.value else {
                let fault = wrong_type(&root, "", "a mapping");
                faults.push(fault.help("begin with a section such as `cloudConfigurations:`"));
                continue;
            };
            let half = match sources.half(index) {
                Half::Local => &mut top.local,
                Half::Managed => &mut top.managed,
            };
            // These are the file's own, such as blocks that anchors name (as in Compose files).
            for entry in entries.into_iter().filter(|entry| !entry.key.starts_with("x-")) {
                match half.iter_mut().find(|earlier| earlier.key == entry.key) {
                    Some(earlier) => join(earlier, entry, sources, faults),
                    None => half.push(entry),
                }
            }
        }
        top.refuse_doubled(sources, faults);
        Ok(top)
    }

    /// The sections of one half.
    pub fn half(&self, half: Half) -> &[Entry] {
        match half {
            Half::Local => &self.local,
            Half::Managed => &self.managed,
        }
    }

    /// The entries of a section in both halves.
    pub fn entries(&self, name: &str) -> impl Iterator<Item = &Entry> {
        entries_in(&self.local, name).iter().chain(entries_in(&self.managed, name))
    }

    /// Whether both halves have no entry of a section.
    pub fn lacks(&self, name: &str) -> bool {
        self.entries(name).next().is_none()
    }

    /// A section of this machine's files, whatever it is.
    pub fn local(&self, name: &str) -> Option<&Entry> {
        self.local.iter().find(|entry| entry.key == name)
    }

    /// An entry that both halves give is a fault where git has it.
    fn refuse_doubled(&self, sources: &Sources, faults: &mut Vec<Fault>) {
        let shared = SECTIONS.iter().filter(|section| section.form.has_entries());
        for section in shared {
            let local = entries_in(&self.local, section.name);
            for entry in entries_in(&self.managed, section.name) {
                let Some(first) = local.iter().find(|local| local.key == entry.key) else {
                    continue;
                };
                let path = format!("{}.{}", section.name, entry.key);
                let name = sources.file(first.place.file).map(|file| file.name.as_str());
                let fault = node::doubled(&path, entry.place, first.place, name);
                faults.push(
                    fault.help(
                        "git manages it: remove it from the file of this machine, or from git",
                    ),
                );
            }
        }
    }

    /// Faults of the top level itself: unknown sections, sections that are not mappings, and a
    /// section of git that only this machine's files may have.
    pub fn check(&self, faults: &mut Vec<Fault>) {
        let names = || SECTIONS.iter().map(|section| section.name);
        for entry in self.local.iter().chain(&self.managed) {
            let of_node =
                entry.key.strip_prefix(NODE_DEFAULTS).is_some_and(|node| !node.is_empty());
            if !of_node && !names().any(|name| name == entry.key) {
                let known = names().chain(["agentDefaults-<node>"]);
                faults.push(unknown(&entry.key, entry.place, &entry.key, known));
            } else if !matches!(entry.value.value, Value::Map(_)) && !entry.value.is_null() {
                faults.push(wrong_type(&entry.value, &entry.key, "a mapping"));
            }
        }
        if let Some(service) = self.managed.iter().find(|entry| entry.key == "service") {
            let message = "git does not manage drover itself";
            let fault = Fault::at(service.place, "service", message);
            faults.push(fault.help("move the section to the configuration of drover's machine"));
        }
    }

    /// A section of one half that is one mapping of keys.
    pub fn one(
        &self,
        half: Half,
        name: &str,
        table: &'static Table,
        faults: &mut Vec<Fault>,
    ) -> Layer {
        let section = self.half(half).iter().find(|entry| entry.key == name);
        match section.filter(|entry| matches!(entry.value.value, Value::Map(_))) {
            Some(entry) => Layer::check(&entry.value, entry.place, name, table, faults),
            None => Layer::empty(None, name, table),
        }
    }

    /// A section whose entries are mappings of keys.
    pub fn many(
        &self,
        name: &str,
        table: &'static Table,
        faults: &mut Vec<Fault>,
    ) -> Vec<(String, Layer)> {
        let mut layers = Vec::new();
        for entry in self.entries(name) {
            let path = format!("{name}.{}", entry.key);
            if entry.key.is_empty() || entry.key.contains(|c: char| c == '/' || c.is_control()) {
                let fault = Fault::at(entry.place, &*path, "the name is blank or contains `/`");
                faults.push(fault.help("choose another: agents are named `cloud/template`"));
            }
            let layer = Layer::check(&entry.value, entry.place, &path, table, faults);
            layers.push((entry.key.clone(), layer));
        }
        layers
    }
}

/// The entries of a section; none where it is missing or no mapping.
fn entries_in<'a>(half: &'a [Entry], name: &str) -> &'a [Entry] {
    match half.iter().find(|entry| entry.key == name).map(|entry| &entry.value.value) {
        Some(Value::Map(entries)) => entries,
        Some(Value::Scalar { .. } | Value::List(_)) | None => &[],
    }
}

/// Joins a section of one file with the same section of an earlier file; an entry of both is a
/// fault.
fn join(earlier: &mut Entry, entry: Entry, sources: &Sources, faults: &mut Vec<Fault>) {
    let name = |place: Place| sources.file(place.file).map(|file| file.name.as_str());
    let (Value::Map(known), Value::Map(added)) = (&mut earlier.value.value, entry.value.value)
    else {
        faults.push(node::doubled(&entry.key, entry.place, earlier.place, name(earlier.place)));
        return;
    };
    let mut all = Entries::of(std::mem::take(known));
    for new in added {
        match all.place(&new.key) {
            Some(old) => {
                let path = format!("{}.{}", entry.key, new.key);
                faults.push(node::doubled(&path, new.place, old, name(old)));
            }
            None => all.push(new),
        }
    }
    *known = all.into_list();
}

/// Why a mapping cannot name something in the other half of the configuration: only what a half has
/// itself changes with it. None where both are in one half.
pub(super) fn other_half(
    layer: &Layer,
    named: &str,
    place: Option<Place>,
    cx: &Context<'_>,
) -> Option<String> {
    let other = place.map_or(Half::Local, |place| cx.half(place));
    match (cx.half_of(layer), other) {
        (Half::Local, Half::Local) | (Half::Managed, Half::Managed) => None,
        (Half::Managed, Half::Local) => {
            Some(format!("{named} is in the configuration of drover's machine, not in git"))
        }
        (Half::Local, Half::Managed) => Some(format!("git manages {named}")),
    }
}

/// What to do about it.
pub(super) const ONE_HALF: &str = "keep a cloud and all that is on it in one of the two";
