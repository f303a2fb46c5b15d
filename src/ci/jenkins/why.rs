//! Jenkins' explanation of why a build waits, in English: the only place where Jenkins says which
//! label the build waits for.

use drover_model::labels::LabelExpression;
use drover_model::record::Want;

/// What a build waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Waits<'a> {
    /// A node with this label, or for which this expression holds.
    Label(&'a str),
    /// The node of this name, or a node with this label.
    Place(&'a str),
    /// The node of this name.
    Node(&'a str),
    /// Any node that takes builds without a label; also every build while Jenkins has no node.
    Anywhere,
    /// Something that says nothing about labels.
    Unknown,
}

/// Reads an explanation; Pipeline builds use the same texts.
///
/// The texts are those of Jenkins' source (`Queue`, `Node`), with curly or straight quotes; texts
/// about several nodes are joined by `; `. Unverified against a server.
pub(super) fn read(why: &str) -> Waits<'_> {
    let why = why.trim().trim_end_matches('.');
    if let Some(label) = quoted(why, "There are no nodes with the label ", "") {
        return Waits::Label(label);
    }
    if let Some(label) = quoted(why, "All nodes of label ", " are offline") {
        return Waits::Label(label);
    }
    if let Some(place) = quoted(why, "Waiting for next available executor on ", "") {
        return Waits::Place(place);
    }
    if why == "Waiting for next available executor" {
        return Waits::Anywhere;
    }
    let mut each = why.split("; ");
    let lacking = each.clone().find_map(|part| {
        let (_, label) = part.split_once("have label ")?;
        quoted(label, "", "")
    });
    if let Some(label) = lacking {
        return Waits::Label(label);
    }
    if let Some(node) = quoted(why, "", " is offline") {
        return Waits::Node(node);
    }
    let reserved = " is reserved for jobs with matching label expression";
    if each.any(|part| part.ends_with(reserved)) { Waits::Anywhere } else { Waits::Unknown }
}

/// The text in quotes between two texts, where there is nothing else.
fn quoted<'a>(text: &'a str, before: &str, after: &str) -> Option<&'a str> {
    const OPEN: [char; 4] = ['‘', '\'', '“', '"'];
    const CLOSE: [char; 4] = ['’', '\'', '”', '"'];
    let inner = text.strip_prefix(before)?.strip_suffix(after)?;
    let inner = inner.strip_prefix(OPEN)?.strip_suffix(CLOSE)?;
    // Two names in quotes are not one name.
    let one = !inner.is_empty() && !inner.contains(['‘', '’']);
    one.then_some(inner)
}

/// The demand of a label or an expression; none where the text is neither.
pub(super) fn want(text: &str) -> Option<Want> {
    let expression = LabelExpression::parse(text).ok()?;
    let labels = expression.conjunction();
    Some(labels.map_or_else(|| Want::Expression(expression), Want::Labels))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    // Invariant: what a build waits for is read from each of Jenkins' texts, and guessed from none.

    #[test]
    fn each_text_of_jenkins_is_read() {
        for (why, waits) in [
            ("There are no nodes with the label ‘linux’", Waits::Label("linux")),
            ("There are no nodes with the label 'linux'", Waits::Label("linux")),
            (
                "There are no nodes with the label ‘linux&&(x64||arm)’",
                Waits::Label("linux&&(x64||arm)"),
            ),
            ("There are no nodes with the label ‘\"a b\"’", Waits::Label("\"a b\"")),
            ("All nodes of label ‘linux’ are offline", Waits::Label("linux")),
            ("Waiting for next available executor on ‘linux’", Waits::Place("linux")),
            ("Waiting for next available executor", Waits::Anywhere),
            ("‘Built-In Node’ doesn’t have label ‘linux’", Waits::Label("linux")),
            ("'Jenkins' doesn't have label 'linux'", Waits::Label("linux")),
            (
                "‘a’ is reserved for jobs with matching label expression; ‘b’ doesn’t have label ‘c’",
                Waits::Label("c"),
            ),
            ("‘a’ is reserved for jobs with matching label expression", Waits::Anywhere),
            ("‘mac-1’ is offline", Waits::Node("mac-1")),
            ("‘a’ is offline; ‘b’ is offline", Waits::Unknown),
            ("‘a’ is not accepting tasks", Waits::Unknown),
            ("In the quiet period. Expires in 4.2 sec", Waits::Unknown),
            ("Jenkins is about to shut down", Waits::Unknown),
            ("Es gibt keine Knoten mit dem Label ‘linux’", Waits::Unknown),
            ("There are no nodes with the label ‘’", Waits::Unknown),
            ("", Waits::Unknown),
        ] {
            assert_eq!(read(why), waits, "{why}");
        }
    }

    #[test]
    fn labels_that_must_all_be_there_are_a_set_whatever_their_order() {
        let both = Want::Labels(["linux", "x64"].map(str::to_owned).into());
        assert_eq!(want("linux&&x64"), Some(both.clone()));
        assert_eq!(want("x64 && (linux)"), Some(both));
        let either = LabelExpression::parse("linux&&(x64||arm)").unwrap();
        assert_eq!(want("linux&&(x64||arm)"), Some(Want::Expression(either)));
        assert_eq!(want("linux &&"), None);
    }
}
