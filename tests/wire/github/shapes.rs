//! Holds what the fake says and hears against what GitHub's schemas say, as `shapes.txt` has it.

use std::collections::BTreeMap;

use serde_json::Value;

struct Line {
    path: Vec<String>,
    optional: bool,
    types: Vec<String>,
    words: Vec<String>,
}

/// All that is known.
pub struct Shapes(BTreeMap<String, Vec<Line>>);

impl Shapes {
    pub fn read() -> Self {
        let mut all: BTreeMap<String, Vec<Line>> = BTreeMap::new();
        let mut head = String::new();
        for line in include_str!("shapes.txt").lines().filter(|line| !line.starts_with('#')) {
            let first = line.split(' ').next().unwrap();
            if ["answer", "body", "hook", "query"].contains(&first) {
                head = line.to_owned();
                all.insert(head.clone(), Vec::new());
            } else if head.starts_with("query") {
                let names = line.split_whitespace().map(|name| Line::of(name, true, "any"));
                all.get_mut(&head).unwrap().extend(names);
            } else if let Some((path, types)) = line.split_once(": ") {
                let optional = path.ends_with('?');
                let line = Line::of(path.trim_end_matches('?'), optional, types);
                all.get_mut(&head).unwrap().push(line);
            }
        }
        Self(all)
    }

    /// Whether the schemas say anything of it.
    pub fn knows(&self, head: &str) -> bool {
        self.0.contains_key(head)
    }

    /// What is wrong with a value.
    pub fn faults(&self, head: &str, value: &Value) -> Vec<String> {
        let Some(lines) = self.0.get(head) else { return vec![format!("{head}: not known")] };
        let mut faults = Vec::new();
        for line in lines {
            line.check(value, &line.path, &mut faults);
        }
        faults.into_iter().map(|fault| format!("{head}: {fault} in {value}")).collect()
    }

    /// Names in a query that mean nothing.
    pub fn strange<'a>(&self, head: &str, query: &'a str) -> Vec<&'a str> {
        let known = self.0.get(head).map(Vec::as_slice).unwrap_or_default();
        let names = query.split('&').filter_map(|pair| pair.split('=').next());
        let strange =
            |name: &&str| !name.is_empty() && !known.iter().any(|line| line.path == [*name]);
        names.filter(strange).collect()
    }
}

impl Line {
    fn of(path: &str, optional: bool, types: &str) -> Self {
        let path = path.replace("[]", ".[]");
        let path = path.trim_start_matches('.');
        let (types, words) = types.split_once(" (").unwrap_or((types, ""));
        let split =
            |text: &str, mark: char| text.split(mark).map(str::to_owned).collect::<Vec<_>>();
        let words = words.trim_end_matches(')');
        Self {
            path: split(path, '.'),
            optional,
            types: split(types, '|'),
            words: if words.is_empty() { Vec::new() } else { split(words, ' ') },
        }
    }

    fn check(&self, value: &Value, path: &[String], faults: &mut Vec<String>) {
        let Some((first, rest)) = path.split_first() else {
            let is = match value {
                Value::Null => "null",
                Value::Bool(_) => "boolean",
                Value::Number(_) => "integer",
                Value::String(_) => "string",
                Value::Array(_) => "array",
                Value::Object(_) => "object",
            };
            let typed = self.types.iter().any(|of| of == is || of == "any");
            let word = value.as_str().is_none_or(|text| {
                self.words.is_empty() || self.words.iter().any(|word| word == text)
            });
            if !typed || !word {
                faults.push(format!("{} is {value}", self.path.join(".")));
            }
            return;
        };
        if first == "[]" {
            for each in value.as_array().into_iter().flatten() {
                self.check(each, rest, faults);
            }
        } else if let Some(found) = value.get(first) {
            self.check(found, rest, faults);
        } else if !(value.is_null() || rest.is_empty() && self.optional || !rest.is_empty()) {
            faults.push(format!("{} is missing", self.path.join(".")));
        }
    }
}

// Invariant: what a schema does not say is found.

#[test]
fn what_the_schemas_do_not_say_is_found() {
    use serde_json::json;
    let shapes = Shapes::read();
    let head = "answer GET /orgs/{org}/actions/runners 200";
    let row = json!({ "id": 1, "name": "n", "os": "linux", "status": "online", "busy": false,
        "labels": [{ "name": "x", "type": "custom" }] });
    assert!(shapes.faults(head, &json!({ "total_count": 1, "runners": [row] })).is_empty());
    let mut wrong = row;
    wrong["busy"] = json!("no");
    wrong["labels"] = json!([{ "type": "other" }]);
    let faults = shapes.faults(head, &json!({ "runners": [wrong] }));
    assert_eq!(faults.len(), 4, "{faults:#?}");
    assert_eq!(shapes.strange("query GET /orgs/{org}/actions/runners", "page=1&x=2"), ["x"]);
}
