//! `tree=`: of an answer the fields that are asked for, and beneath each those in its brackets.
//!
//! It follows `NamedPathPruner.java` of jenkinsci/stapler at 053c9c16dd66, by which Jenkins reads it. It is
//! stricter in this: an answer that is asked for without it is refused, as is a range and `*`.

use std::collections::BTreeMap;

use serde_json::Value;

/// What stands beside the fields of an answer, whether it is asked for or not.
const CLASS: &str = "_class";

/// Fields, and what is asked for beneath each.
#[derive(Default)]
struct Tree(BTreeMap<String, Tree>);

impl Tree {
    /// What a text asks for, and what follows that in it.
    fn list(mut text: &str) -> Option<(Self, &str)> {
        let mut fields = BTreeMap::new();
        loop {
            let end = text.find([',', '[', ']']).unwrap_or(text.len());
            let (name, mut rest) = text.split_at(end);
            if name.is_empty() || !name.chars().all(|ch| ch.is_ascii_alphanumeric()) {
                return None;
            }
            let mut beneath = Self::default();
            if let Some(inner) = rest.strip_prefix('[') {
                let (tree, after) = Self::list(inner)?;
                (beneath, rest) = (tree, after.strip_prefix(']')?);
            }
            fields.insert(name.to_owned(), beneath);
            let Some(more) = rest.strip_prefix(',') else { return Some((Self(fields), rest)) };
            text = more;
        }
    }

    /// A value with nothing else in it.
    fn of(&self, value: Value) -> Value {
        match value {
            Value::Array(all) => all.into_iter().map(|each| self.of(each)).collect(),
            Value::Object(all) => {
                let reported =
                    all.into_iter().filter_map(|(name, value)| match self.0.get(&name) {
                        Some(tree) => Some((name, tree.of(value))),
                        None => (name == CLASS).then_some((name, value)),
                    });
                Value::Object(reported.collect())
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value,
        }
    }
}

/// An answer with what is asked for; none where that cannot be read.
pub fn pruned(value: Value, asked: &str) -> Option<Value> {
    let (tree, rest) = Tree::list(asked)?;
    rest.is_empty().then(|| tree.of(value))
}

// Invariant: what is not asked for is not reported.

#[test]
fn an_answer_has_the_fields_that_are_asked_for_and_no_other() {
    use serde_json::json;
    let whole = json!({
        "_class": "c", "a": 1, "b": {"_class": "d", "x": 1, "y": 2}, "d": [{"x": 1, "y": [1]}],
    });
    let reported = |asked: &str| pruned(whole.clone(), asked);
    assert_eq!(reported("a"), Some(json!({"_class": "c", "a": 1})));
    assert_eq!(reported("b"), Some(json!({"_class": "c", "b": {"_class": "d"}})));
    let both = json!({"_class": "c", "b": {"_class": "d", "x": 1}, "d": [{"y": [1]}]});
    assert_eq!(reported("b[x],d[y]"), Some(both));
    for wrong in ["", "a,", "b[x", "b]", "b[]", "*", "d[x]{0,1}"] {
        assert_eq!(reported(wrong), None, "{wrong}");
    }
}
