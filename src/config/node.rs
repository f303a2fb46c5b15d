//! The YAML parser: text in, a tree of [`Node`]s with places out.
//!
//! It resolves anchors, aliases and merge keys, and finds keys given twice; the tables of keys
//! decide what a value means. All YAML text of this package is parsed here, `--set` values and
//! cloud-init texts included, so one set of limits and one error text holds.
//!
//! The libraries: `saphyr-parser` gives events with spans, which is all that the tree needs.
//! `yaml_serde` has no spans and stops at its first error; it stays the data model of the layers,
//! the way from values to typed structs, and the writer of YAML. `serde-saphyr` has spans, but only
//! in typed structs: no tree to merge layers in, and its first error hides all others.

use std::collections::HashMap;

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Span, Tag};

use serde_yaml::Value as Yaml;

use super::fault::{Fault, Place};

/// The deepest nesting.
const MAX_DEPTH: usize = 64;
/// The most values, aliases expanded.
const MAX_VALUES: usize = 200_000;

/// A value and its place.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Node {
    pub place: Place,
    pub value: Value,
}

/// What a value is, before its key says what it means.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    /// A scalar as written; `plain` without quotes.
    Scalar { text: String, plain: bool },
    /// Items in the order written.
    List(Vec<Node>),
    /// A mapping, in the order written.
    Map(Vec<Entry>),
}

/// A key and its value.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Entry {
    pub key: String,
    pub place: Place,
    pub value: Node,
}

impl Node {
    /// Whether the value is blank, or YAML's null.
    pub fn is_null(&self) -> bool {
        match &self.value {
            Value::Scalar { text, plain } => {
                *plain && matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL")
            }
            Value::List(_) | Value::Map(_) => false,
        }
    }

    /// The value without places, plain scalars typed.
    fn to_yaml(&self) -> Yaml {
        match &self.value {
            Value::List(items) => Yaml::Sequence(items.iter().map(Self::to_yaml).collect()),
            Value::Map(entries) => {
                let pairs = entries.iter();
                let pairs = pairs.map(|one| (Yaml::from(one.key.as_str()), one.value.to_yaml()));
                Yaml::Mapping(pairs.collect())
            }
            Value::Scalar { .. } if self.is_null() => Yaml::Null,
            Value::Scalar { text, plain: false } => Yaml::from(text.as_str()),
            Value::Scalar { text, .. } => {
                let flag = || flag_of(text).map(Yaml::from);
                let whole = || text.parse::<i64>().ok().map(Yaml::from);
                let number = || text.parse::<f64>().ok().filter(|n| n.is_finite()).map(Yaml::from);
                flag().or_else(whole).or_else(number).unwrap_or_else(|| Yaml::from(text.as_str()))
            }
        }
    }

    /// The kind of the value, for messages.
    pub fn kind(&self) -> &'static str {
        match &self.value {
            Value::List(_) => "a list",
            Value::Map(_) => "a mapping",
            Value::Scalar { .. } if self.is_null() => "nothing",
            Value::Scalar { plain: false, .. } => "text",
            Value::Scalar { text, .. } if flag_of(text).is_some() => "a boolean",
            Value::Scalar { text, .. } if text.parse::<i128>().is_ok() => "a whole number",
            Value::Scalar { text, .. } if text.parse::<f64>().is_ok() => "a number with a fraction",
            Value::Scalar { .. } => "text",
        }
    }
}

/// The boolean of a plain scalar, also in the spellings of YAML 1.1, which Jenkins reads.
pub(super) fn flag_of(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" => Some(true),
        "false" | "no" | "off" => Some(false),
        _ => None,
    }
}

/// The first syntax fault of a file.
type Halt = Box<Fault>;

/// Parses one file: its tree (none when it is empty) and the keys given twice.
pub(super) fn parse(file: usize, text: &str) -> Result<(Option<Node>, Vec<Fault>), Halt> {
    let mut tree = Tree {
        file,
        parser: Parser::new_from_str(text),
        anchors: Vec::new(),
        doubled: Vec::new(),
        path: Vec::new(),
        size: 0,
    };
    let root = tree.document()?;
    Ok((root, tree.doubled))
}

/// Parses a single value, such as that of `--set`.
pub(super) fn value(text: &str) -> Result<Yaml, Fault> {
    let (root, doubled) = parse(0, text).map_err(|fault| *fault)?;
    match doubled.into_iter().next() {
        Some(fault) => Err(fault),
        None => Ok(root.map_or(Yaml::Null, |root| root.to_yaml())),
    }
}

struct Tree<'input> {
    file: usize,
    parser: Parser<'input, saphyr_parser::StrInput<'input>>,
    anchors: Vec<(usize, Node)>,
    doubled: Vec<Fault>,
    /// The keys around the value being read.
    path: Vec<String>,
    size: usize,
}

impl<'input> Tree<'input> {
    fn next(&mut self) -> Result<Option<(Event<'input>, Span)>, Halt> {
        let file = self.file;
        self.parser.next().transpose().map_err(|error| Box::new(syntax(file, &error)))
    }

    fn document(&mut self) -> Result<Option<Node>, Halt> {
        let mut root = None;
        while let Some((event, span)) = self.next()? {
            match event {
                Event::StreamStart
                | Event::StreamEnd
                | Event::DocumentEnd
                | Event::DocumentStart(_)
                | Event::Nothing => {}
                Event::Scalar(..)
                | Event::SequenceStart(..)
                | Event::MappingStart(..)
                | Event::Alias(_)
                | Event::SequenceEnd
                | Event::MappingEnd => {
                    if root.is_some() {
                        return Err(Box::new(
                            Fault::at(place(self.file, span), "", "a second YAML document").help(
                                "write one document in each file; `--config` takes a directory",
                            ),
                        ));
                    }
                    root = Some(self.node(event, span, 0)?);
                }
            }
        }
        Ok(root.filter(|node| !node.is_null()))
    }

    fn node(&mut self, event: Event<'input>, span: Span, depth: usize) -> Result<Node, Halt> {
        let start = place(self.file, span);
        self.size += 1;
        if depth > MAX_DEPTH || self.size > MAX_VALUES {
            let fault = Fault::at(start, "", "nested too deeply, or too many values").help(format!(
                "is this a configuration? drover reads {MAX_DEPTH} levels and {MAX_VALUES} values, \
                 each alias counted as what it stands for"
            ));
            return Err(Box::new(fault));
        }
        let (anchor, value) = match event {
            Event::Alias(id) => return self.alias(id, start),
            Event::Scalar(text, style, anchor, tag) => {
                known(tag.as_deref(), start)?;
                let text_tag = tag.is_some_and(|tag| tag.suffix == "str");
                let plain = style == ScalarStyle::Plain && !text_tag;
                (anchor, Value::Scalar { text: text.into_owned(), plain })
            }
            Event::SequenceStart(anchor, tag) => {
                known(tag.as_deref(), start)?;
                (anchor, Value::List(self.list(depth)?))
            }
            Event::MappingStart(anchor, tag) => {
                known(tag.as_deref(), start)?;
                (anchor, Value::Map(self.map(depth)?))
            }
            Event::Nothing
            | Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(_)
            | Event::DocumentEnd
            | Event::SequenceEnd
            | Event::MappingEnd => {
                return Err(Box::new(Fault::at(start, "", "a value is missing here")));
            }
        };
        let node = Node { place: start, value };
        if anchor > 0 {
            self.anchors.push((anchor, node.clone()));
        }
        Ok(node)
    }

    /// A copy of the value of an anchor, in the place of the alias.
    fn alias(&mut self, id: usize, at: Place) -> Result<Node, Halt> {
        let found = self.anchors.iter().rev().find(|(anchor, _)| *anchor == id);
        let Some((_, node)) = found else {
            return Err(Box::new(Fault::at(at, "", "the alias names itself or no anchor")));
        };
        let node = Node { place: at, value: node.value.clone() };
        self.size += count(&node);
        Ok(node)
    }

    fn list(&mut self, depth: usize) -> Result<Vec<Node>, Halt> {
        let mut items = Vec::new();
        while let Some((event, span)) = self.next()? {
            if event == Event::SequenceEnd {
                break;
            }
            items.push(self.node(event, span, depth + 1)?);
        }
        Ok(items)
    }

    fn map(&mut self, depth: usize) -> Result<Vec<Entry>, Halt> {
        let mut entries = Entries::default();
        let mut merged = Vec::new();
        let mut first_merge: Option<Place> = None;
        while let Some((event, span)) = self.next()? {
            if event == Event::MappingEnd {
                break;
            }
            let key = self.node(event, span, depth + 1)?;
            let Value::Scalar { text, plain } = key.value else {
                return Err(Box::new(Fault::at(key.place, "", "a key must be text")));
            };
            let Some((event, span)) = self.next()? else { break };
            self.path.push(text.clone());
            let value = self.node(event, span, depth + 1)?;
            let path = self.path.join(".");
            self.path.pop();
            if plain && text == "<<" {
                if let Some(first) = first_merge {
                    let fault = doubled(&path, key.place, first, None);
                    self.doubled.push(fault.help("merge several by a list: `<<: [*one, *other]`"));
                }
                first_merge.get_or_insert(key.place);
                merged.push(value);
            } else if let Some(first) = entries.place(&text) {
                self.doubled.push(doubled(&path, key.place, first, None));
            } else {
                entries.push(Entry { key: text, place: key.place, value });
            }
        }
        for from in merged {
            merge(&mut entries, from)?;
        }
        Ok(entries.into_list())
    }
}

/// Entries in their order, with an index by key.
#[derive(Default)]
pub(super) struct Entries {
    list: Vec<Entry>,
    places: HashMap<String, Place>,
}

impl Entries {
    pub fn of(list: Vec<Entry>) -> Self {
        let places = list.iter().map(|entry| (entry.key.clone(), entry.place)).collect();
        Self { list, places }
    }

    pub fn place(&self, key: &str) -> Option<Place> {
        self.places.get(key).copied()
    }

    /// Adds an entry, whose key must be new.
    pub fn push(&mut self, entry: Entry) {
        self.places.insert(entry.key.clone(), entry.place);
        self.list.push(entry);
    }

    pub fn into_list(self) -> Vec<Entry> {
        self.list
    }
}

/// Refuses a tag that is not of YAML's own schema: what it asks for would not be done.
fn known(tag: Option<&Tag>, at: Place) -> Result<(), Halt> {
    const OWN: [&str; 7] = ["str", "int", "float", "bool", "null", "seq", "map"];
    let Some(Tag { handle, suffix }) = tag else { return Ok(()) };
    let is_own = handle == "tag:yaml.org,2002:" && OWN.contains(&suffix.as_str());
    // `!` alone says that a scalar is text.
    if is_own || suffix.is_empty() || (handle.is_empty() && suffix == "!") {
        return Ok(());
    }
    let shown = match handle.as_str() {
        "tag:yaml.org,2002:" => format!("!!{suffix}"),
        handle => format!("{handle}{suffix}"),
    };
    Err(Box::new(
        Fault::at(at, "", format!("`{shown}` is a tag that drover does not know"))
            .help("remove the tag; a value is read as its key says"),
    ))
}

/// Merges `<<`: the entries of the other mapping that are not given here.
fn merge(entries: &mut Entries, from: Node) -> Result<(), Halt> {
    match from.value {
        Value::Map(others) => {
            for other in others {
                if entries.place(&other.key).is_none() {
                    entries.push(other);
                }
            }
            Ok(())
        }
        Value::List(items) => items.into_iter().try_for_each(|item| merge(entries, item)),
        Value::Scalar { .. } => {
            Err(Box::new(Fault::at(from.place, "<<", "`<<` merges mappings only")))
        }
    }
}

fn count(node: &Node) -> usize {
    match &node.value {
        Value::Scalar { .. } => 1,
        Value::List(items) => 1 + items.iter().map(count).sum::<usize>(),
        Value::Map(entries) => 1 + entries.iter().map(|entry| count(&entry.value)).sum::<usize>(),
    }
}

/// The fault of a key given twice; `elsewhere` names the file of the first one where it is another.
pub(super) fn doubled(path: &str, place: Place, first: Place, elsewhere: Option<&str>) -> Fault {
    let file = elsewhere.map(|name| format!(" of {name}")).unwrap_or_default();
    Fault::at(place, path, format!("given twice, first on line {}{file}", first.line))
        .help("keep one of the two")
}

fn place(file: usize, span: Span) -> Place {
    let (start, end) = (span.start, span.end);
    let length = end.index().saturating_sub(start.index()).max(1);
    Place { file, line: start.line(), column: start.col() + 1, length }
}

fn syntax(file: usize, error: &ScanError) -> Fault {
    let marker = error.marker();
    let place = Place { file, line: marker.line().max(1), column: marker.col() + 1, length: 1 };
    Fault::at(place, "", format!("not valid YAML: {}", error.info()))
        .help("check the indentation, colons and quotes here and on the line before")
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test says what it expects")]

    use super::*;

    fn entries(text: &str) -> Vec<Entry> {
        match parse(0, text).unwrap().0.unwrap().value {
            Value::Map(entries) => entries,
            Value::Scalar { .. } | Value::List(_) => panic!("no mapping"),
        }
    }

    // Invariant: every key and value knows its line and column, counted from one.

    #[test]
    fn keys_and_values_have_their_places() {
        let top = entries("# note\na:\n  bc: 12\n  d: [x, yz]\n");
        let Value::Map(inner) = &top[0].value.value else { panic!() };
        let at = |line, column, length| Place { file: 0, line, column, length };
        assert_eq!(inner[0].place, at(3, 3, 2));
        assert_eq!(inner[0].value.place, at(3, 7, 2));
        let Value::List(items) = &inner[1].value.value else { panic!() };
        assert_eq!(items[1].place, at(4, 10, 2));
    }

    #[test]
    fn an_alias_and_a_merge_key_stand_for_what_they_name() {
        let top = entries("a: &base {x: 1, y: 2}\nb:\n  <<: *base\n  y: 3\nc: *base\n");
        let Value::Map(b) = &top[1].value.value else { panic!() };
        let seen: Vec<_> = b.iter().map(|entry| entry.key.as_str()).collect();
        assert_eq!(seen, ["y", "x"]);
        let twice = "a: &a {x: 1}\nb: &b {y: 1}\nc:\n  <<: *a\n  <<: *b\n";
        let faults = parse(0, twice).unwrap().1;
        assert_eq!(faults.len(), 1);
        assert_eq!(faults[0].to_string(), "c.<<: given twice, first on line 4");
        assert_eq!(top[2].value.value, top[0].value.value);
    }

    // Invariant: nothing that a text asks for is passed over in silence.

    #[test]
    fn a_tag_that_means_nothing_here_is_refused() {
        for (value, tag) in [
            ("!!python/object:os.system {x: 1}", "!!python/object:os.system"),
            ("!!python/tuple [1]", "!!python/tuple"),
            ("!secret token", "!secret"),
            ("!<tag:example.com,2026:x> 1", "tag:example.com,2026:x"),
            ("!!binary aGk=", "!!binary"),
        ] {
            let fault = parse(0, &format!("a: {value}\n")).unwrap_err();
            assert_eq!(fault.message, format!("`{tag}` is a tag that drover does not know"));
        }
        for own in ["!!str 5", "!!int 5", "!!map {x: 1}", "!!seq [1]", "! 5", "!!null ~"] {
            assert!(parse(0, &format!("a: {own}\n")).is_ok(), "{own}");
        }
    }

    // Invariant: no text makes the parser run away.

    #[test]
    fn a_swarm_of_aliases_is_refused() {
        let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
        for n in 1..12 {
            let refs = vec![format!("*a{}", n - 1); 10].join(", ");
            text.push_str(&format!("a{n}: &a{n} [{refs}]\n"));
        }
        assert!(parse(0, &text).unwrap_err().message.contains("too many"));
    }

    #[test]
    fn deep_nesting_is_refused() {
        for (open, close) in [("[", "]"), ("{a: ", "}"), ("- ", ""), ("? ", ""), ("[{a: ", "}]")] {
            let text = format!("a:\n {}{}", open.repeat(200_000), close.repeat(200_000));
            assert!(parse(0, &text).is_err(), "{open}");
        }
        let blocks = (0..2_000).map(|n| format!("{}a:\n", " ".repeat(n))).collect::<String>();
        assert!(parse(0, &blocks).is_err());
    }

    #[test]
    fn a_mapping_with_very_many_keys_is_read_or_refused_at_once() {
        let keys = |count: u32| (0..count).map(|n| format!("k{n}: v\n")).collect::<String>();
        assert_eq!(entries(&keys(99_000)).len(), 99_000);
        assert!(parse(0, &keys(300_000)).is_err());
        let merged =
            format!("a: &a {{{}}}\nb: {{<<: [*a, *a]}}\n", keys(30_000).replace('\n', ", "));
        assert_eq!(entries(&merged).len(), 2);
    }

    #[test]
    fn a_second_document_is_refused() {
        assert!(parse(0, "a: 1\n---\nb: 2\n").is_err());
    }

    proptest::proptest! {
        #[test]
        fn any_text_gives_a_tree_or_a_fault(text in "[ a-z:\\-\\[\\]{}&*<\"'\n#|>!%,?]{0,80}") {
            let _ = parse(0, &text);
        }
    }
}
