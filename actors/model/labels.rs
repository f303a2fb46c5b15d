//! Label expressions, with the operators and the precedence Jenkins gives them.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

/// The longest expression, in bytes.
const LENGTH_MAX: usize = 4096;
/// How deep parentheses and negations may nest.
const DEPTH_MAX: u32 = 64;

/// Which sets of labels will do: `linux && (x64 || !slow)`, `arch=arm64`, `"label with blanks"`.
///
/// From the tightest: `!`, `&&`, `||`, `->` (if the left holds, so does the right), `<->` (both or
/// neither). A label `key=value` is matched as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct LabelExpression {
    text: String,
    root: Node,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Node {
    Label(String),
    Not(Box<Node>),
    Pair(Operator, Box<Node>, Box<Node>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    And,
    Or,
    Implies,
    Same,
}

/// From the loosest to the tightest; all of them group to the left.
const LEVELS: [Operator; 4] = [Operator::Same, Operator::Implies, Operator::Or, Operator::And];

impl Operator {
    const fn sign(self) -> &'static str {
        match self {
            Self::And => "&&",
            Self::Or => "||",
            Self::Implies => "->",
            Self::Same => "<->",
        }
    }
}

/// What is wrong with an expression, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("at character {at} of the label expression: {what}")]
pub struct ExpressionError {
    /// The character, counted from 1.
    pub at: usize,
    /// What was found there, and what would do.
    pub what: String,
}

impl LabelExpression {
    /// Reads an expression.
    ///
    /// # Errors
    /// When it is blank, too long, nested too deeply, or breaks the grammar.
    pub fn parse(text: &str) -> Result<Self, ExpressionError> {
        if text.len() > LENGTH_MAX {
            let what = format!("it is longer than {LENGTH_MAX} bytes");
            return Err(ExpressionError { at: LENGTH_MAX, what });
        }
        let mut reader = Reader { text, at: 0, depth: 0 };
        let root = reader.level(&LEVELS)?;
        match reader.peek() {
            None => Ok(Self { text: text.trim().to_owned(), root }),
            Some(_) => Err(reader.fault("`&&`, `||` or the end")),
        }
    }

    /// Whether somebody with these labels will do.
    pub fn matches(&self, labels: &BTreeSet<String>) -> bool {
        self.root.holds(labels)
    }

    /// The labels it speaks of.
    pub fn names(&self) -> BTreeSet<&str> {
        let mut names = BTreeSet::new();
        self.root.names(&mut names);
        names
    }

    /// The labels that must all be there, where it asks for nothing else: `a && b`.
    pub fn conjunction(&self) -> Option<BTreeSet<String>> {
        let mut labels = BTreeSet::new();
        self.root.is_conjunction().then(|| {
            self.root.names(&mut labels);
            labels.into_iter().map(str::to_owned).collect()
        })
    }

    /// The expression as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl Ord for LabelExpression {
    /// By how they are written, which says all of an expression.
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.text.cmp(&other.text)
    }
}

impl PartialOrd for LabelExpression {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for LabelExpression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl TryFrom<String> for LabelExpression {
    type Error = ExpressionError;

    fn try_from(text: String) -> Result<Self, ExpressionError> {
        Self::parse(&text)
    }
}

impl From<LabelExpression> for String {
    fn from(expression: LabelExpression) -> Self {
        expression.text
    }
}

impl Node {
    fn names<'a>(&'a self, names: &mut BTreeSet<&'a str>) {
        match self {
            Self::Label(label) => {
                names.insert(label);
            }
            Self::Not(inner) => inner.names(names),
            Self::Pair(_, left, right) => {
                left.names(names);
                right.names(names);
            }
        }
    }

    fn is_conjunction(&self) -> bool {
        match self {
            Self::Label(_) => true,
            Self::Pair(Operator::And, left, right) => {
                left.is_conjunction() && right.is_conjunction()
            }
            Self::Not(_) | Self::Pair(Operator::Or | Operator::Implies | Operator::Same, ..) => {
                false
            }
        }
    }

    fn holds(&self, labels: &BTreeSet<String>) -> bool {
        match self {
            Self::Label(label) => labels.contains(label),
            Self::Not(inner) => !inner.holds(labels),
            Self::Pair(operator, left, right) => {
                let (left, right) = (left.holds(labels), right.holds(labels));
                match operator {
                    Operator::And => left && right,
                    Operator::Or => left || right,
                    Operator::Implies => !left || right,
                    Operator::Same => left == right,
                }
            }
        }
    }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    depth: u32,
}

impl<'a> Reader<'a> {
    /// What follows, without blanks before it.
    fn rest(&mut self) -> &'a str {
        let rest = &self.text[self.at..];
        let trimmed = rest.trim_start();
        self.at += rest.len() - trimmed.len();
        trimmed
    }

    fn peek(&mut self) -> Option<char> {
        self.rest().chars().next()
    }

    fn eat(&mut self, sign: &str) -> bool {
        let found = self.rest().starts_with(sign);
        self.at += if found { sign.len() } else { 0 };
        found
    }

    fn fault(&mut self, wanted: &str) -> ExpressionError {
        let found = match self.peek() {
            Some(found) => format!("`{}`", found.escape_debug()),
            None => "the end".to_owned(),
        };
        let at = self.text[..self.at].chars().count() + 1;
        ExpressionError { at, what: format!("{found} stands where {wanted} should") }
    }

    /// A chain of the first operator over chains of the others.
    fn level(&mut self, levels: &[Operator]) -> Result<Node, ExpressionError> {
        let Some((operator, tighter)) = levels.split_first() else { return self.unary() };
        let mut left = self.level(tighter)?;
        while self.eat(operator.sign()) {
            let right = self.level(tighter)?;
            left = Node::Pair(*operator, Box::new(left), Box::new(right));
        }
        Ok(left)
    }

    fn unary(&mut self) -> Result<Node, ExpressionError> {
        if self.depth == DEPTH_MAX {
            return Err(self.fault("less nesting"));
        }
        self.depth += 1;
        let node = if self.eat("!") {
            Node::Not(Box::new(self.unary()?))
        } else if self.eat("(") {
            let inner = self.level(&LEVELS)?;
            if !self.eat(")") {
                return Err(self.fault("`)`"));
            }
            inner
        } else {
            self.label()?
        };
        self.depth -= 1;
        Ok(node)
    }

    fn label(&mut self) -> Result<Node, ExpressionError> {
        if self.eat("\"") {
            let rest = &self.text[self.at..];
            return match rest.find('"') {
                Some(end) if end > 0 => {
                    self.at += end + 1;
                    Ok(Node::Label(rest[..end].to_owned()))
                }
                Some(_) => Err(self.fault("a label between the quotes")),
                None => {
                    self.at = self.text.len();
                    Err(self.fault("the closing quote"))
                }
            };
        }
        let rest = self.rest();
        let special = |c: char| c.is_whitespace() || c.is_control() || "&|!()<>\"'".contains(c);
        let end = rest.find(special).unwrap_or(rest.len());
        let label = &rest[..end];
        // `a->b` is an implication; a label may end in a minus only before something else.
        let cut = label.strip_suffix('-').filter(|_| rest[end..].starts_with('>'));
        let label = cut.unwrap_or(label);
        if label.is_empty() {
            return Err(self.fault("a label, `!` or `(`"));
        }
        self.at += label.len();
        Ok(Node::Label(label.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]
    use proptest::prelude::*;

    use super::*;

    fn set(labels: &str) -> BTreeSet<String> {
        labels.split_whitespace().map(str::to_owned).collect()
    }

    fn holds(text: &str, labels: &str) -> bool {
        LabelExpression::parse(text).unwrap().matches(&set(labels))
    }

    fn refused(text: &str) -> String {
        LabelExpression::parse(text).unwrap_err().to_string()
    }

    // Invariant: an expression means what it means to Jenkins.

    #[test]
    fn a_label_is_matched_as_a_whole() {
        assert!(holds("linux", "linux x64"));
        assert!(!holds("linux", "linux-arm"));
        assert!(holds("arch=arm64", "arch=arm64"));
        assert!(!holds("arch", "arch=arm64"));
        assert!(!holds("\"a b\"", "a b") && holds(" gpu:a100 ", "gpu:a100"));
    }

    #[test]
    fn operators_bind_as_tightly_as_in_jenkins() {
        assert!(holds("a && (b || !c)", "a"));
        assert!(!holds("a && (b || !c)", "a c"));
        assert!(holds("a || b && c", "a"));
        assert!(!holds("(a || b) && c", "a"));
        assert!(holds("!a && b", "b"));
        assert!(!holds("!(a && b)", "a b"));
        assert!(holds("a -> b || c", "a c"));
        assert!(!holds("a->b", "a"));
        assert!(holds("a->b", "x"));
        assert!(holds("a <-> b -> c", "a c"));
        assert!(!holds("a <-> b", "b"));
        assert!(holds("a&&b||c", "c"));
        assert!(holds("!!a", "a"));
    }

    // Invariant: what cannot be read is refused with its place and what would do.

    #[test]
    fn what_is_wrong_is_named_with_its_place() {
        let at = "of the label expression:";
        assert_eq!(
            refused(""),
            format!("at character 1 {at} the end stands where a label, `!` or `(` should")
        );
        assert_eq!(
            refused("a b"),
            format!("at character 3 {at} `b` stands where `&&`, `||` or the end should")
        );
        assert_eq!(
            refused("a & b"),
            format!("at character 3 {at} `&` stands where `&&`, `||` or the end should")
        );
        assert_eq!(refused("(a"), format!("at character 3 {at} the end stands where `)` should"));
        assert_eq!(
            refused("\"a"),
            format!("at character 3 {at} the end stands where the closing quote should")
        );
        assert!(refused(&"!".repeat(100)).contains("less nesting"));
        assert!(refused(&"(".repeat(100)).contains("less nesting"));
        assert!(refused(&"a".repeat(5000)).contains("longer than 4096 bytes"));
    }

    proptest! {
        // Invariant: nothing anybody sends breaks the reader, and what it reads it reads again.

        #[test]
        fn any_text_is_read_or_refused(text in "[ab&|!()<>\" =é-]{0,40}") {
            match LabelExpression::parse(&text) {
                Ok(read) => prop_assert_eq!(LabelExpression::parse(read.as_str()).unwrap(), read),
                Err(fault) => prop_assert!(fault.at <= text.chars().count() + 1),
            }
        }
    }
}
