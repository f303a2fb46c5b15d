//! One mapping held against the keys it may have, and several of them laid over one another.
//!
//! Each mapping is checked once, however many clouds or templates inherit from it.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde_yaml::Value as Yaml;

use super::fault::{Fault, Place};
use super::keys::{Key, Kind, Preset};
use super::node::{Node, Value, flag_of};
use drover_api::nearest;

/// With so many faults the later ones are counted and not shown, so they need no words.
const MANY: usize = 10_000;
/// So many names are still read in a message.
const FEW: usize = 30;

/// A key as one layer gives it.
#[derive(Debug, Clone)]
pub(super) struct Given {
    pub place: Option<Place>,
    pub path: String,
    state: State,
    /// Where the items of a list are.
    items: Vec<Place>,
    /// The mappings in it.
    nested: Vec<Layer>,
}

#[derive(Debug, Clone)]
enum State {
    /// Written, but empty: back to the default.
    Null,
    /// Wrong, and a fault says so already.
    Faulty,
    Sound(Yaml),
}

impl Given {
    /// The key as it is written.
    fn name(&self) -> &str {
        self.path.rsplit('.').next().unwrap_or_default()
    }
}

/// One mapping, checked.
#[derive(Debug, Clone)]
pub(super) struct Layer {
    /// Where it is, for what is missing in it.
    pub place: Option<Place>,
    /// Its path.
    pub path: String,
    given: BTreeMap<&'static str, Given>,
}

impl Layer {
    /// A layer that gives nothing.
    pub fn empty(place: Option<Place>, path: impl Into<String>) -> Self {
        Self { place, path: path.into(), given: BTreeMap::new() }
    }

    /// Checks a mapping against the keys it may have.
    pub fn check(
        node: &Node,
        place: Place,
        path: &str,
        keys: &'static [Key],
        faults: &mut Vec<Fault>,
    ) -> Self {
        let mut layer = Self::empty(Some(place), path);
        let Value::Map(entries) = &node.value else {
            if !node.is_null() {
                faults.push(wrong_type(node, path, "a mapping"));
            }
            return layer;
        };
        for entry in entries {
            let path = format!("{path}.{}", entry.key);
            let Some(key) = keys.iter().find(|key| key.is(&entry.key)) else {
                let known = keys.iter().map(|key| key.name);
                faults.push(if faults.len() < MANY {
                    unknown(&entry.key, entry.place, &path, known)
                } else {
                    Fault::at(entry.place, path, "unknown key")
                });
                continue;
            };
            let before = faults.len();
            if let Some(first) = layer.given.get(key.name) {
                let message = format!("`{}` is given already, as `{}`", key.name, first.name());
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

    /// Gives a text from outside the files, such as a variable of the environment.
    pub fn put(&mut self, key: &'static str, variable: &str, value: Yaml) {
        let state = State::Sound(value);
        let given = Given {
            place: None,
            path: variable.to_owned(),
            state,
            items: Vec::new(),
            nested: Vec::new(),
        };
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

    /// Whether a key is written here, well or badly, and not empty.
    pub fn has(&self, key: &str) -> bool {
        self.given.get(key).is_some_and(|given| !matches!(given.state, State::Null))
    }

    /// Whether a key is written here but wrong.
    pub fn is_faulty(&self, key: &str) -> bool {
        self.given.get(key).is_some_and(|given| matches!(given.state, State::Faulty))
    }

    /// A fault about a key: in its place, or in the layer's own when it is not given.
    pub fn fault(&self, key: &str, message: impl Into<String>) -> Fault {
        let (place, path) = match self.given.get(key) {
            Some(given) => (given.place, given.path.clone()),
            None => (self.place, format!("{}.{key}", self.path)),
        };
        Fault { place, path, message: message.into(), help: None }
    }

    /// A fault about one item of a key's list.
    pub fn item_fault(&self, key: &str, item: usize, message: impl Into<String>) -> Fault {
        let mut fault = self.fault(key, message);
        let place = self.given.get(key).and_then(|given| given.items.get(item));
        fault.place = place.copied().or(fault.place);
        fault.path = format!("{}[{item}]", fault.path);
        fault
    }

    /// Lays `upper` over this layer: what it gives wins; the result stands where `upper` does.
    pub fn under(&self, upper: &Self) -> Self {
        let mut given = self.given.clone();
        given.extend(upper.given.iter().map(|(key, value)| (*key, value.clone())));
        Self { place: upper.place, path: upper.path.clone(), given }
    }

    /// What is written here, in the order of the keys; what comes from the environment is not.
    pub fn to_yaml(&self, keys: &'static [Key]) -> serde_yaml::Mapping {
        let mut map = serde_yaml::Mapping::new();
        for key in keys {
            let written = self.given.get(key.name).filter(|given| given.place.is_some());
            let Some(given) = written else { continue };
            let value = match key.kind {
                Kind::Mapping(shape) => {
                    given.nested.first().map(|inner| Yaml::Mapping(inner.to_yaml(shape.keys)))
                }
                Kind::Mappings(shape) => {
                    let inner =
                        given.nested.iter().map(|one| Yaml::Mapping(one.to_yaml(shape.keys)));
                    Some(Yaml::Sequence(inner.collect()))
                }
                Kind::Text
                | Kind::Whole(..)
                | Kind::ZeroOr(..)
                | Kind::Memory(..)
                | Kind::Flag
                | Kind::Choice(_)
                | Kind::Texts
                | Kind::Names
                | Kind::Wholes
                | Kind::Lists => given.sound().cloned(),
            };
            if let Some(value) = value.filter(|_| !matches!(given.state, State::Null)) {
                map.insert(Yaml::from(key.name), value);
            }
        }
        map
    }

    /// Gives a key as another layer gives it.
    pub fn take(&mut self, key: &str, from: &Self) {
        if let Some((key, given)) = from.given.get_key_value(key) {
            self.given.insert(*key, given.clone());
        }
    }

    /// Forgets a key.
    pub fn forget(&mut self, key: &str) {
        self.given.remove(key);
    }

    /// The typed form: what is given, else the defaults; a missing key that must be given is a
    /// fault, and the rest is still read so that its faults are found too.
    pub fn typed<T: DeserializeOwned>(
        &self,
        keys: &'static [Key],
        faults: &mut Vec<Fault>,
    ) -> Option<T> {
        let mut map = serde_yaml::Mapping::new();
        for key in keys {
            // What they hold is typed by itself.
            if matches!(key.kind, Kind::Mapping(_) | Kind::Mappings(_)) {
                continue;
            }
            let given = self.given.get(key.name).and_then(Given::sound).cloned();
            if given.is_none() && key.preset == Preset::Required && !self.is_faulty(key.name) {
                faults.push(missing(self, key));
            }
            if let Some(value) = given.or_else(|| preset(key)) {
                map.insert(Yaml::from(key.name), value);
            }
        }
        match serde_yaml::from_value(Yaml::Mapping(map)) {
            Ok(typed) => Some(typed),
            Err(error) => {
                let message = format!("can not be read: {error}");
                faults.push(Fault {
                    place: self.place,
                    path: self.path.clone(),
                    message,
                    help: None,
                });
                None
            }
        }
    }
}

impl Given {
    fn sound(&self) -> Option<&Yaml> {
        match &self.state {
            State::Sound(value) => Some(value),
            State::Null | State::Faulty => None,
        }
    }
}

fn missing(layer: &Layer, key: &Key) -> Fault {
    let fault = Fault {
        place: layer.place,
        path: format!("{}.{}", layer.path, key.name),
        message: format!("`{}` is missing", key.name),
        help: None,
    };
    fault.help(format!("add `{}:`, {}", key.name, key.about))
}

/// The default, or something harmless where there is none but the check must go on.
fn preset(key: &Key) -> Option<Yaml> {
    match key.preset {
        Preset::Unset => None,
        Preset::Whole(number) => Some(Yaml::from(number)),
        Preset::Flag(flag) => Some(Yaml::from(flag)),
        Preset::Text(text) => Some(Yaml::from(text)),
        Preset::Empty if matches!(key.kind, Kind::Names) => {
            Some(Yaml::Mapping(serde_yaml::Mapping::new()))
        }
        Preset::Empty => Some(Yaml::Sequence(Vec::new())),
        Preset::Required => Some(match key.kind {
            Kind::Text => Yaml::from(""),
            Kind::Choice(words) => Yaml::from(words.first().copied().unwrap_or_default()),
            Kind::Whole(least, _) | Kind::Memory(least, _) => Yaml::from(least),
            Kind::ZeroOr(..) => Yaml::from(0),
            Kind::Flag => Yaml::from(false),
            Kind::Texts | Kind::Wholes | Kind::Mappings(_) => Yaml::Sequence(Vec::new()),
            Kind::Mapping(_) | Kind::Names | Kind::Lists => {
                Yaml::Mapping(serde_yaml::Mapping::new())
            }
        }),
    }
}

/// An unknown key, with the nearest known one.
pub(super) fn unknown<'a>(
    key: &str,
    place: Place,
    path: &str,
    known: impl Iterator<Item = &'a str> + Clone,
) -> Fault {
    let fault = Fault::at(place, path, format!("unknown key `{key}`"));
    match nearest(key, known.clone()) {
        Some(name) => fault.help(format!("did you mean `{name}`?")),
        None if known.clone().count() > FEW => fault
            .help("configs/full.yaml shows every key, and `drover schema` tells them to editors"),
        None => fault.help(format!("known here: {}", known.collect::<Vec<_>>().join(", "))),
    }
}

/// A value of the wrong type.
pub(super) fn wrong_type(node: &Node, path: &str, wanted: &str) -> Fault {
    Fault::at(node.place, path, format!("expected {wanted}, found {}", node.kind()))
}

/// Reads a value as its key's kind; the faults say what is wrong when it gives none.
fn value_of(node: &Node, path: &str, key: &Key, faults: &mut Vec<Fault>) -> Option<Yaml> {
    if node.is_null() {
        return None;
    }
    let read = match key.kind {
        Kind::Text => text_of(node, path, key),
        Kind::Whole(least, most) => whole_of(node, path, (least, most), false),
        Kind::ZeroOr(least, most) => whole_of(node, path, (least, most), true),
        Kind::Memory(least, most) => memory_of(node, path, (least, most)),
        Kind::Flag => match &node.value {
            Value::Scalar { text, plain: true } if flag_of(text).is_some() => {
                Ok(Yaml::from(flag_of(text).unwrap_or_default()))
            }
            Value::Scalar { plain: false, text } if flag_of(text).is_some() => {
                Err(wrong_type(node, path, "true or false").help("remove the quotes"))
            }
            Value::Scalar { .. } | Value::List(_) | Value::Map(_) => {
                Err(wrong_type(node, path, "true or false"))
            }
        },
        Kind::Choice(words) => choice_of(node, path, words),
        Kind::Texts => return list_of(node, path, faults, |item, path| text_of(item, path, key)),
        Kind::Wholes => {
            let range = (0, u64::from(u32::MAX));
            return list_of(node, path, faults, |item, path| whole_of(item, path, range, false));
        }
        Kind::Names => return names_of(node, path, key, faults),
        Kind::Lists => return lists_of(node, path, key, faults),
        Kind::Mapping(_) => match &node.value {
            Value::Map(_) => Ok(Yaml::Mapping(serde_yaml::Mapping::new())),
            Value::Scalar { .. } | Value::List(_) => Err(wrong_type(node, path, "a mapping")),
        },
        Kind::Mappings(_) => match &node.value {
            Value::List(_) => Ok(Yaml::Sequence(Vec::new())),
            Value::Scalar { .. } | Value::Map(_) => {
                Err(wrong_type(node, path, "a list of mappings"))
            }
        },
    };
    read.map_err(|fault| faults.push(fault)).ok()
}

/// The mappings in a value, each held against its keys.
fn nested(node: &Node, path: &str, kind: Kind, faults: &mut Vec<Fault>) -> Vec<Layer> {
    let (shape, nodes) = match (kind, &node.value) {
        (Kind::Mapping(shape), Value::Map(_)) => (shape, std::slice::from_ref(node)),
        (Kind::Mappings(shape), Value::List(items)) => (shape, items.as_slice()),
        _ => return Vec::new(),
    };
    let alone = matches!(kind, Kind::Mapping(_));
    let layers = nodes.iter().enumerate().filter_map(|(at, item)| {
        let path = if alone { path.to_owned() } else { format!("{path}[{at}]") };
        if !matches!(item.value, Value::Map(_)) && !item.is_null() {
            faults.push(wrong_type(item, &path, "a mapping"));
            return None;
        }
        Some(Layer::check(item, item.place, &path, shape.keys, faults))
    });
    layers.collect()
}

/// A mapping of names to texts; a text may be empty.
fn names_of(node: &Node, path: &str, key: &Key, faults: &mut Vec<Fault>) -> Option<Yaml> {
    let Value::Map(entries) = &node.value else {
        faults.push(wrong_type(node, path, "a mapping of names to texts"));
        return None;
    };
    let mut names = serde_yaml::Mapping::new();
    for entry in entries {
        match text_of(&entry.value, &format!("{path}.{}", entry.key), key) {
            Ok(value) => drop(names.insert(Yaml::from(entry.key.as_str()), value)),
            Err(fault) => faults.push(fault),
        }
    }
    (names.len() == entries.len()).then_some(Yaml::Mapping(names))
}

fn list_of(
    node: &Node,
    path: &str,
    faults: &mut Vec<Fault>,
    read: impl Fn(&Node, &str) -> Result<Yaml, Fault>,
) -> Option<Yaml> {
    let Value::List(items) = &node.value else {
        faults.push(wrong_type(node, path, "a list").help("write it as `[one, two]`"));
        return None;
    };
    let mut values = Vec::new();
    for (at, item) in items.iter().enumerate() {
        match read(item, &format!("{path}[{at}]")) {
            Ok(value) => values.push(value),
            Err(fault) => faults.push(fault),
        }
    }
    (values.len() == items.len()).then_some(Yaml::Sequence(values))
}

fn lists_of(node: &Node, path: &str, key: &Key, faults: &mut Vec<Fault>) -> Option<Yaml> {
    let Value::Map(entries) = &node.value else {
        let fault = wrong_type(node, path, "a mapping of lists");
        faults.push(fault.help("write it as `{name: [one, two]}`"));
        return None;
    };
    let mut lists = serde_yaml::Mapping::new();
    for entry in entries {
        let path = format!("{path}.{}", entry.key);
        let list = list_of(&entry.value, &path, faults, |item, path| text_of(item, path, key));
        lists.insert(Yaml::from(entry.key.as_str()), list?);
    }
    Some(Yaml::Mapping(lists))
}

fn text_of(node: &Node, path: &str, key: &Key) -> Result<Yaml, Fault> {
    let Value::Scalar { text, plain } = &node.value else {
        return Err(wrong_type(node, path, "text"));
    };
    if node.is_null() {
        return Err(wrong_type(node, path, "text"));
    }
    if *plain && matches!(text.to_ascii_lowercase().as_str(), "true" | "false") {
        return Err(wrong_type(node, path, "text").help("put it in quotes if it is meant as text"));
    }
    match key.check.map_or(Ok(()), |check| check(text)) {
        Ok(()) => Ok(Yaml::from(text.as_str())),
        Err(bad) => Err(Fault::at(node.place, path, bad.message).help(bad.help)),
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
    Err(match nearest(text, words.iter().copied()) {
        Some(word) => fault.help(format!("did you mean `{word}`?")),
        None => fault,
    })
}

fn whole_of(node: &Node, path: &str, range: (u64, u64), or_zero: bool) -> Result<Yaml, Fault> {
    let wrong = || wrong_type(node, path, "a whole number");
    let Value::Scalar { text, plain } = &node.value else { return Err(wrong()) };
    let number: i128 = text.parse().map_err(|_| wrong())?;
    if !plain {
        return Err(wrong().help("remove the quotes"));
    }
    let (least, most) = range;
    match u64::try_from(number) {
        Ok(number) if (least..=most).contains(&number) || (or_zero && number == 0) => {
            Ok(Yaml::from(number))
        }
        _ => {
            let zero = if or_zero { "0, or " } else { "" };
            Err(Fault::at(node.place, path, format!("`{number}` is out of range"))
                .help(format!("give {zero}a number from {least} to {most}")))
        }
    }
}

/// Memory in MiB: as a plain number, or as a number with a unit that Kubernetes has.
fn memory_of(node: &Node, path: &str, range: (u64, u64)) -> Result<Yaml, Fault> {
    let Value::Scalar { text, plain } = &node.value else {
        return Err(wrong_type(node, path, "an amount of memory"));
    };
    let (least, most) = range;
    let amount = mebibytes(text, *plain);
    let number = amount.and_then(|amount| u64::try_from(amount).ok());
    if let Some(number) = number.filter(|number| (least..=most).contains(number)) {
        return Ok(Yaml::from(number));
    }
    let message = match amount {
        Some(_) => format!("`{text}` is out of range"),
        None => format!("`{text}` is no amount of memory"),
    };
    Err(Fault::at(node.place, path, message).help(format!(
        "give MiB as a plain number from {least} to {most}, or a whole number with Ki, Mi, Gi or Ti, \
         such as `4Gi`"
    )))
}

/// The MiB that a text means, rounded up. A number in quotes means none: to Kubernetes it is bytes.
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
