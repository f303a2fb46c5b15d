//! One mapping checked against its [`Table`], and one layer of values laid over another.
//!
//! In: nodes of the YAML, and single values of the environment. Out: [`Layer`]s, which know the
//! place and path of every key, and the `Raw…` structs of `keys`, filled from the last layer and
//! the defaults. Each mapping is checked once, however many clouds or templates inherit from it. A
//! wrong value is one fault, and the layer then treats the key as given but unusable: later checks
//! stay silent about it.
//!
//! ```text
//! agent:  environment < agentDefaults < agentDefaults-<node> < agentConfigurations.<key>
//! cloud:  environment < cloudDefaults < cloudConfigurations.<key>
//! ```
//!
//! Why the `config` crate does not merge these layers (it merges the families of variables in
//! `environment.rs`): its values know at most a file name, so a fault would lose line and column,
//! and the first wrong value would hide all others. It merges key by key, but here one key can
//! replace several others below (`nodes` replaces `node`, `caFile` replaces `pinSha256`). A hot
//! reload compares and reads the same texts that the check saw, and the crate would open the files
//! a second time.

use std::collections::BTreeMap;

use serde_yaml::{Mapping, Value as Yaml};

use super::fault::{Fault, Place};
use super::keys::{Key, Kind, Preset, Raw, Table};
use super::node::{Node, Value, flag_of};
use super::rules;

/// From this number on, faults are only counted and need no help text.
const MANY_FAULTS: usize = 10_000;
/// A message lists at most this number of known keys.
const MAX_LISTED: usize = 30;

/// A key as one layer gives it.
#[derive(Debug, Clone)]
struct Given {
    /// None for a variable of the environment.
    place: Option<Place>,
    path: String,
    state: State,
    /// The places of the items of a list.
    items: Vec<Place>,
    /// The mappings in the value.
    nested: Vec<Layer>,
}

#[derive(Debug, Clone)]
enum State {
    /// Written without a value: back to the default.
    Null,
    /// Wrong; a fault says so already.
    Faulty,
    Sound(Yaml),
}

impl Given {
    /// The key as it is written.
    fn name(&self) -> &str {
        self.path.rsplit('.').next().unwrap_or_default()
    }

    fn sound(&self) -> Option<&Yaml> {
        match &self.state {
            State::Sound(value) => Some(value),
            State::Null | State::Faulty => None,
        }
    }
}

/// A key as it is written, for people.
#[derive(Debug, Clone, Copy)]
pub(super) struct Written<'a> {
    /// None for a variable of the environment.
    pub place: Option<Place>,
    /// The path in the files, or the name of the variable.
    pub path: &'a str,
    pub value: &'a Yaml,
    /// The mappings in the value.
    pub nested: &'a [Layer],
}

/// One mapping, checked.
#[derive(Debug, Clone)]
pub(super) struct Layer {
    /// Where the mapping is; faults about missing keys point here.
    pub place: Option<Place>,
    pub path: String,
    table: &'static Table,
    given: BTreeMap<&'static str, Given>,
}

impl Layer {
    /// A layer without values.
    pub fn empty(place: Option<Place>, path: impl Into<String>, table: &'static Table) -> Self {
        Self { place, path: path.into(), table, given: BTreeMap::new() }
    }

    /// Checks a mapping against the keys it may have.
    pub fn check(
        node: &Node,
        place: Place,
        path: &str,
        table: &'static Table,
        faults: &mut Vec<Fault>,
    ) -> Self {
        let mut layer = Self::empty(Some(place), path, table);
        let Value::Map(entries) = &node.value else {
            if !node.is_null() {
                faults.push(wrong_type(node, path, "a mapping"));
            }
            return layer;
        };
        for entry in entries {
            let path = format!("{path}.{}", entry.key);
            let Some(key) = table.find(&entry.key) else {
                faults.push(if faults.len() < MANY_FAULTS {
                    unknown(&entry.key, entry.place, &path, table.iter().map(|key| key.name))
                } else {
                    Fault::at(entry.place, path, "unknown key")
                });
                continue;
            };
            let before = faults.len();
            if let Some(first) = layer.given.get(key.name) {
                let message = format!("`{}` is already given as `{}`", key.name, first.name());
                faults.push(Fault::at(entry.place, &*path, message).help("keep one of the two"));
            }
            let nested = nested(&entry.value, &path, key.kind, faults);
            let state = match value_of(&entry.value, &path, key, faults) {
                _ if entry.value.is_null() => State::Null,
                Some(value) if faults.len() == before => State::Sound(value),
                _ => State::Faulty,
            };
            let items = match &entry.value.value {
                Value::List(items) => items.iter().map(|item| item.place).collect(),
                Value::Scalar { .. } | Value::Map(_) => Vec::new(),
            };
            let place = Some(entry.value.place);
            layer.given.insert(key.name, Given { place, path, state, items, nested });
        }
        layer
    }

    /// Gives a value from outside the files, such as a variable of the environment.
    pub fn put(&mut self, key: &'static str, variable: &str, value: Yaml) {
        let (state, path) = (State::Sound(value), variable.to_owned());
        let given = Given { place: None, path, state, items: Vec::new(), nested: Vec::new() };
        self.given.insert(key, given);
    }

    /// The value of a key here; none when it is not given, empty or wrong.
    pub fn get(&self, key: &str) -> Option<&Yaml> {
        self.given.get(key).and_then(Given::sound)
    }

    /// The text of a key here.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.get(key).and_then(Yaml::as_str)
    }

    /// The mappings that a key holds, in their order.
    pub fn nested(&self, key: &str) -> &[Self] {
        self.given.get(key).map(|given| given.nested.as_slice()).unwrap_or_default()
    }

    /// Whether a key is written here with a value, right or wrong.
    pub fn has(&self, key: &str) -> bool {
        self.given.get(key).is_some_and(|given| !matches!(given.state, State::Null))
    }

    /// Whether a key is written here with a right value.
    pub fn is_sound(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    /// Which of these keys is given here; two of them contradict, which is the error. A flag counts
    /// where it is true.
    pub fn one_of<'k>(&self, keys: &[&'k str]) -> Result<Option<&'k str>, Fault> {
        let counts = |key: &&str| match self.get(key) {
            Some(Yaml::Bool(flag)) => *flag,
            Some(_) | None => self.has(key),
        };
        let given: Vec<&str> = keys.iter().copied().filter(counts).collect();
        if let [_, second, ..] = given[..] {
            let fault = self.fault(second, format!("{} contradict", given.join(" and ")));
            return Err(fault.help("keep one of them"));
        }
        Ok(given.first().copied())
    }

    /// Which key of the table's `one_of` is given here; none or several are a fault.
    pub fn chosen(&self) -> Result<&'static str, Fault> {
        let keys = self.table.one_of;
        let none = || self.own_fault(format!("none of {} is given", keys.join(", ")));
        self.one_of(keys)?.ok_or_else(|| none().help("add one of them"))
    }

    /// Whether a key is written here but wrong.
    pub fn is_faulty(&self, key: &str) -> bool {
        self.given.get(key).is_some_and(|given| matches!(given.state, State::Faulty))
    }

    /// Whether any key is written here but wrong.
    pub fn has_faulty(&self) -> bool {
        self.given.values().any(|given| matches!(given.state, State::Faulty))
    }

    /// Where a key is written; none when it is not, or in a variable.
    pub fn place_of(&self, key: &str) -> Option<Place> {
        self.given.get(key).and_then(|given| given.place)
    }

    /// Whether a key is written in this mapping itself, and not in a layer below.
    pub fn is_own(&self, key: &str) -> bool {
        !self.given.contains_key(key) || self.own(key).is_some()
    }

    fn own(&self, key: &str) -> Option<&Given> {
        self.given.get(key).filter(|given| given.path.starts_with(&self.path))
    }

    /// A fault about a key: in its place, or in the layer's own when it is not given.
    pub fn fault(&self, key: &str, message: impl Into<String>) -> Fault {
        let (place, path) = match self.given.get(key) {
            Some(given) => (given.place, given.path.clone()),
            None => (self.place, format!("{}.{key}", self.path)),
        };
        Fault { place, path, message: message.into(), help: None }
    }

    /// A fault about a key that is wrong beside another one, the `cause`. A key that is inherited may
    /// be right for other heirs: then the fault is at the cause, where this mapping itself writes it.
    pub fn fault_beside(&self, key: &str, cause: &str, message: impl Into<String>) -> Fault {
        let fault = self.fault(key, message);
        match (self.own(key), self.own(cause)) {
            (None, Some(Given { place: Some(place), .. })) => {
                Fault { place: Some(*place), path: format!("{}.{key}", self.path), ..fault }
            }
            (None, Some(_) | None) | (Some(_), _) => fault,
        }
    }

    /// A fault about the mapping as a whole.
    pub fn own_fault(&self, message: impl Into<String>) -> Fault {
        let (place, path) = (self.place, self.path.clone());
        Fault { place, path, message: message.into(), help: None }
    }

    /// A fault about a key in the place of the mapping itself.
    pub fn missing_fault(&self, key: &str, message: impl Into<String>) -> Fault {
        Fault { path: format!("{}.{key}", self.path), ..self.own_fault(message) }
    }

    /// A fault about one item of a key's list.
    pub fn item_fault(&self, key: &str, item: usize, message: impl Into<String>) -> Fault {
        let mut fault = self.fault(key, message);
        let place = self.given.get(key).and_then(|given| given.items.get(item));
        fault.place = place.copied().or(fault.place);
        fault.path = format!("{}[{item}]", fault.path);
        fault
    }

    /// This layer with another one over it: the upper one's values win, and faults about missing
    /// keys point to it. What it says in one way replaces all ways below (`Table::ways`).
    pub fn overlaid(&self, upper: &Self) -> Self {
        let mut given = self.given.clone();
        for ways in self.table.ways {
            if !matches!(upper.one_of(ways), Ok(None)) {
                given.retain(|key, _| !ways.contains(key));
            }
        }
        given.extend(upper.given.iter().map(|(key, value)| (*key, value.clone())));
        Self { place: upper.place, path: upper.path.clone(), table: self.table, given }
    }

    /// What is written here, in the order of the keys; without what the environment gives.
    pub fn to_yaml(&self) -> Mapping {
        let mut map = Mapping::new();
        for key in self.table.iter() {
            let written = self.given.get(key.name).filter(|given| given.place.is_some());
            let Some(given) = written.filter(|given| !matches!(given.state, State::Null)) else {
                continue;
            };
            let mut inner = given.nested.iter().map(|one| Yaml::from(one.to_yaml()));
            let value = match (key.kind, key.kind.table()) {
                (Kind::Mapping(_), Some(_)) => inner.next(),
                (_, Some(_)) => Some(Yaml::Sequence(inner.collect())),
                (_, None) => given.sound().cloned(),
            };
            if let Some(value) = value {
                map.insert(Yaml::from(key.name), value);
            }
        }
        map
    }

    /// Every key that may be written here, with what is written.
    pub fn written(&self) -> impl Iterator<Item = (&'static Key, Option<Written<'_>>)> {
        self.table.iter().map(|key| {
            let given = self.given.get(key.name);
            let written = given.and_then(|given| {
                let (value, nested) = (given.sound()?, &*given.nested);
                Some(Written { place: given.place, path: &given.path, value, nested })
            });
            (key, written)
        })
    }

    /// Whether another way to say the same is written; a flag is a way where it is true.
    pub fn is_replaced(&self, key: &Key) -> bool {
        let mut ways = self.table.ways.iter().filter(|ways| ways.contains(&key.name));
        ways.any(|ways| matches!(self.one_of(ways), Ok(Some(used)) if used != key.name))
    }

    /// Takes over a key as another layer gives it.
    pub fn take(&mut self, key: &str, from: &Self) {
        if let Some((key, given)) = from.given.get_key_value(key) {
            self.given.insert(*key, given.clone());
        }
    }

    /// Forgets a key.
    pub fn forget(&mut self, key: &str) {
        self.given.remove(key);
    }

    /// The values of all keys, defaults filled in, after the rules of the table. All faults are
    /// found: a missing key has something harmless for the rest of the check.
    pub fn typed<T: Raw>(&self, faults: &mut Vec<Fault>) -> Option<T> {
        rules::check(self, T::table(), faults);
        let mut map = Mapping::new();
        // The mappings in a key are read by themselves.
        for key in T::table().iter().filter(|key| key.kind.table().is_none()) {
            let needed = || (key.preset == Preset::Required).then(|| harmless(key.kind));
            let given = self.get(key.name).cloned();
            if let Some(value) = given.or_else(|| key.default()).or_else(needed) {
                map.insert(Yaml::from(key.name), value);
            }
        }
        let typed = serde_yaml::from_value(Yaml::Mapping(map));
        typed.map_err(|error| faults.push(self.own_fault(format!("cannot be read: {error}")))).ok()
    }

    /// The values of the mapping in a key.
    pub fn inner<T: Raw>(&self, key: &str, faults: &mut Vec<Fault>) -> Option<T> {
        self.nested(key).first()?.typed(faults)
    }
}

/// Something for a missing key that is harmless, so that the check goes on.
fn harmless(kind: Kind) -> Yaml {
    match kind {
        Kind::Text => Yaml::from(""),
        Kind::Choice(words) => Yaml::from(words.first().copied().unwrap_or_default()),
        Kind::Whole(least, _) | Kind::Memory(least, _) => Yaml::from(least),
        Kind::ZeroOr(..) => Yaml::from(0),
        Kind::Flag => Yaml::from(false),
        Kind::Texts
        | Kind::Wholes
        | Kind::Names
        | Kind::Lists
        | Kind::Mapping(_)
        | Kind::Mappings(_) => kind.empty(),
    }
}

/// An unknown key, with the nearest known one.
pub(super) fn unknown<'a>(
    key: &str,
    place: Place,
    path: &str,
    known: impl Iterator<Item = &'a str> + Clone,
) -> Fault {
    let all = if known.clone().count() > MAX_LISTED {
        "configs/full.yaml lists all keys; `drover schema` prints a schema for editors".to_owned()
    } else {
        format!("known here: {}", known.clone().collect::<Vec<_>>().join(", "))
    };
    Fault::at(place, path, format!("unknown key `{key}`")).nearest(key, known, all)
}

/// A value of the wrong type.
pub(super) fn wrong_type(node: &Node, path: &str, wanted: &str) -> Fault {
    Fault::at(node.place, path, format!("expected {wanted}, found {}", node.kind()))
}

/// Reads a value as its key's kind; the faults say what is wrong when it gives none.
fn value_of(node: &Node, path: &str, key: &Key, faults: &mut Vec<Fault>) -> Option<Yaml> {
    let is_map = matches!(node.value, Value::Map(_));
    let is_list = matches!(node.value, Value::List(_));
    let text = |node: &Node, path: &str, _: &mut Vec<Fault>| text_of(node, path, key);
    let read = match key.kind {
        _ if node.is_null() => return None,
        Kind::Text => text_of(node, path, key),
        Kind::Whole(least, most) => whole_of(node, path, (least, most), false),
        Kind::ZeroOr(least, most) => whole_of(node, path, (least, most), true),
        Kind::Memory(least, most) => memory_of(node, path, (least, most)),
        Kind::Flag => flag_at(node, path),
        Kind::Choice(words) => choice_of(node, path, words),
        Kind::Texts => list_of(node, path, faults, text),
        Kind::Wholes => list_of(node, path, faults, |item, path, _| {
            whole_of(item, path, (0, u64::from(u32::MAX)), false)
        }),
        Kind::Names => map_of(node, path, "a mapping of names to texts", faults, text),
        Kind::Lists => map_of(node, path, "a mapping of lists", faults, |list, path, faults| {
            list_of(list, path, faults, text)
        })
        .map_err(|fault| {
            if is_map { fault } else { fault.help("write it as `{name: [one, two]}`") }
        }),
        Kind::Mapping(_) if is_map => Ok(Mapping::new().into()),
        Kind::Mapping(_) => Err(wrong_type(node, path, "a mapping")),
        Kind::Mappings(_) if is_list => Ok(Yaml::Sequence(Vec::new())),
        Kind::Mappings(_) => Err(wrong_type(node, path, "a list of mappings")),
    };
    read.map_err(|fault| faults.push(fault)).ok()
}

/// The mappings in a value, each checked against its table.
fn nested(node: &Node, path: &str, kind: Kind, faults: &mut Vec<Fault>) -> Vec<Layer> {
    let (table, nodes) = match (kind, &node.value) {
        (Kind::Mapping(table), Value::Map(_)) => (table, std::slice::from_ref(node)),
        (Kind::Mappings(table), Value::List(items)) => (table, items.as_slice()),
        _ => return Vec::new(),
    };
    let alone = matches!(kind, Kind::Mapping(_));
    let layers = nodes.iter().enumerate().filter_map(|(at, item)| {
        let path = if alone { path.to_owned() } else { format!("{path}[{at}]") };
        if !matches!(item.value, Value::Map(_)) && !item.is_null() {
            faults.push(wrong_type(item, &path, "a mapping"));
            return None;
        }
        Some(Layer::check(item, item.place, &path, table, faults))
    });
    layers.collect()
}

/// Reads each entry of a mapping. All its faults are kept, the last one as the error.
fn map_of(
    node: &Node,
    path: &str,
    wanted: &str,
    faults: &mut Vec<Fault>,
    read: impl Fn(&Node, &str, &mut Vec<Fault>) -> Result<Yaml, Fault>,
) -> Result<Yaml, Fault> {
    let Value::Map(entries) = &node.value else { return Err(wrong_type(node, path, wanted)) };
    let mut map = Mapping::new();
    let mut last = None;
    for entry in entries {
        match read(&entry.value, &format!("{path}.{}", entry.key), faults) {
            Ok(value) => drop(map.insert(Yaml::from(entry.key.as_str()), value)),
            Err(fault) => faults.extend(last.replace(fault)),
        }
    }
    last.map_or(Ok(Yaml::Mapping(map)), Err)
}

/// Reads each item of a list. All its faults are kept, the last one as the error.
fn list_of(
    node: &Node,
    path: &str,
    faults: &mut Vec<Fault>,
    read: impl Fn(&Node, &str, &mut Vec<Fault>) -> Result<Yaml, Fault>,
) -> Result<Yaml, Fault> {
    let Value::List(items) = &node.value else {
        return Err(wrong_type(node, path, "a list").help("write it as `[one, two]`"));
    };
    let mut values = Vec::new();
    let mut last = None;
    for (at, item) in items.iter().enumerate() {
        match read(item, &format!("{path}[{at}]"), faults) {
            Ok(value) => values.push(value),
            Err(fault) => faults.extend(last.replace(fault)),
        }
    }
    last.map_or(Ok(Yaml::Sequence(values)), Err)
}

fn text_of(node: &Node, path: &str, key: &Key) -> Result<Yaml, Fault> {
    let wrong = || wrong_type(node, path, "text");
    let Value::Scalar { text, plain } = &node.value else { return Err(wrong()) };
    if node.is_null() {
        return Err(wrong());
    }
    if *plain && matches!(text.to_ascii_lowercase().as_str(), "true" | "false") {
        return Err(wrong().help("put it in quotes if you mean the text"));
    }
    match key.check.map_or(Ok(()), |check| check(text)) {
        Ok(()) => Ok(Yaml::from(text.as_str())),
        Err(bad) => Err(Fault::at(node.place, path, bad.message).help(bad.help)),
    }
}

fn flag_at(node: &Node, path: &str) -> Result<Yaml, Fault> {
    let wrong = || wrong_type(node, path, "true or false");
    let Value::Scalar { text, plain } = &node.value else { return Err(wrong()) };
    match flag_of(text) {
        Some(flag) if *plain => Ok(Yaml::from(flag)),
        Some(_) => Err(wrong().help("remove the quotes")),
        None => Err(wrong()),
    }
}

fn choice_of(node: &Node, path: &str, words: &'static [&'static str]) -> Result<Yaml, Fault> {
    let wanted = words.join(", ");
    let Value::Scalar { text, .. } = &node.value else {
        return Err(wrong_type(node, path, &format!("one of {wanted}")));
    };
    if words.contains(&text.as_str()) {
        return Ok(Yaml::from(text.as_str()));
    }
    let fault = Fault::at(node.place, path, format!("`{text}` is none of {wanted}"));
    Err(fault.nearest(text, words.iter().copied(), ""))
}

fn whole_of(node: &Node, path: &str, range: (u64, u64), or_zero: bool) -> Result<Yaml, Fault> {
    let (least, most) = range;
    let help = || {
        let (zero, unit) = (if or_zero { "0, or " } else { "" }, unit_of(path));
        format!("give {zero}a number{unit} from {least} to {most}")
    };
    let wrong = || wrong_type(node, path, "a whole number").help(help());
    let Value::Scalar { text, plain } = &node.value else { return Err(wrong()) };
    let number: i128 = text.parse().map_err(|_| wrong())?;
    if !plain {
        return Err(wrong().help("remove the quotes"));
    }
    match u64::try_from(number) {
        Ok(number) if (least..=most).contains(&number) || (or_zero && number == 0) => {
            Ok(Yaml::from(number))
        }
        _ => {
            let message = format!("`{number}` is out of range");
            Err(Fault::at(node.place, path, message).help(help()))
        }
    }
}

/// The unit that the name of a key ends with, as a help says it; keys with one take no other.
fn unit_of(path: &str) -> &'static str {
    let units = [
        ("Mb", " of MiB"),
        ("Gb", " of GiB"),
        ("Seconds", " of seconds"),
        ("Sec", " of seconds"),
        ("Minutes", " of minutes"),
    ];
    let found = units.iter().find(|(end, _)| path.ends_with(end));
    found.map_or("", |(_, unit)| unit)
}

/// Memory in MiB: a plain number, or a number with a unit of Kubernetes.
fn memory_of(node: &Node, path: &str, (least, most): (u64, u64)) -> Result<Yaml, Fault> {
    let Value::Scalar { text, plain } = &node.value else {
        return Err(wrong_type(node, path, "an amount of memory"));
    };
    let amount = mebibytes(text, *plain);
    let number = amount.and_then(|amount| u64::try_from(amount).ok());
    if let Some(number) = number.filter(|number| (least..=most).contains(number)) {
        return Ok(Yaml::from(number));
    }
    let message = match amount {
        Some(_) => format!("`{text}` is out of range"),
        None => format!("`{text}` is not an amount of memory"),
    };
    Err(Fault::at(node.place, path, message).help(format!(
        "give MiB as a plain number from {least} to {most}, or a whole number with Ki, Mi, Gi or Ti, \
         such as `4Gi`"
    )))
}

/// The MiB that a text means, rounded up. A number in quotes is refused: to Kubernetes it is bytes.
fn mebibytes(text: &str, plain: bool) -> Option<i128> {
    if plain && let Ok(number) = text.parse() {
        return Some(number);
    }
    let units: [(&str, u128); 4] = [("Ki", 1), ("Mi", 1 << 10), ("Gi", 1 << 20), ("Ti", 1 << 30)];
    let found = units.iter().find_map(|(unit, size)| Some((text.strip_suffix(*unit)?, *size)));
    let (digits, size) = found?;
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let kibibytes = digits.parse::<u128>().ok()?.saturating_mul(size);
    i128::try_from(kibibytes.div_ceil(1024)).ok()
}
