//! Terms of affinity: which guests an agent must be beside, or must not be.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How a term looks at a guest's labels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Operator {
    /// The key has one of the values.
    In,
    /// The key has none of the values, or is not there.
    NotIn,
    /// The key is there, with any value or none.
    Exists,
}

/// One term (an item of `affinity` or `antiAffinity`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Term {
    /// What stands before `:`, `=` or `.` in a label, or all of it.
    pub key: String,
    /// How it is looked at.
    pub operator: Operator,
    /// What stands behind.
    #[serde(default)]
    pub values: Vec<String>,
}

impl Term {
    /// Whether a guest with these labels matches.
    pub fn matches<'a>(&self, labels: impl IntoIterator<Item = &'a str>) -> bool {
        let mut labels = labels.into_iter();
        match self.operator {
            Operator::In => labels.any(|label| self.has_value(label)),
            Operator::NotIn => !labels.any(|label| self.has_value(label)),
            Operator::Exists => labels.any(|label| self.value(label).is_some()),
        }
    }

    fn has_value(&self, label: &str) -> bool {
        self.value(label).is_some_and(|value| self.values.iter().any(|one| one == value))
    }

    /// What stands behind the key in a label: empty where the label is the key itself.
    fn value<'a>(&self, label: &'a str) -> Option<&'a str> {
        let rest = label.strip_prefix(self.key.as_str())?;
        if rest.is_empty() { Some(rest) } else { rest.strip_prefix([':', '=', '.']) }
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values = self.values.join(", ");
        match self.operator {
            Operator::In => write!(f, "{} in [{values}]", self.key),
            Operator::NotIn => write!(f, "{} not in [{values}]", self.key),
            Operator::Exists => f.write_str(&self.key),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn term(operator: Operator, values: &[&str]) -> Term {
        let values = values.iter().map(|value| (*value).to_owned()).collect();
        Term { key: "vm.type".into(), operator, values }
    }

    // Invariant: a key is matched as a whole, and its value in every spelling that labels and tags have.

    #[test]
    fn labels_and_tags_are_matched_by_key_and_value() {
        let database = term(Operator::In, &["database", "cache"]);
        for label in ["vm.type:database", "vm.type=cache", "vm.type.database"] {
            assert!(database.matches(["linux", label]), "{label}");
        }
        for label in ["vm.type", "vm.types:database", "vm.type:databases", "database"] {
            assert!(!database.matches([label]), "{label}");
        }
        let no_database = term(Operator::NotIn, &["database"]);
        assert!(no_database.matches(["vm.type:web"]) && no_database.matches([]));
        assert!(!no_database.matches(["vm.type:web", "vm.type:database"]));
        let any = term(Operator::Exists, &[]);
        assert!(any.matches(["vm.type"]) && any.matches(["vm.type:x"]) && !any.matches(["vm"]));
    }
}
