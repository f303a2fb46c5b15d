//! Nodes that a template never tries.

use super::TemplateSpec;
use crate::id::NodeName;

impl TemplateSpec {
    /// Those of a cluster's nodes that it never tries, since it names others, each with why.
    pub fn untried<'a>(&self, all: impl Iterator<Item = &'a NodeName>) -> Vec<(NodeName, String)> {
        let named = self.nodes();
        if named.is_empty() || self.placement.anywhere {
            return Vec::new();
        }
        let names: Vec<&str> = named.iter().map(NodeName::as_str).collect();
        let (key, remedy) = if self.nodes.is_empty() {
            ("node", "give both in `nodes` instead")
        } else {
            ("nodes", "add it to `nodes`")
        };
        let named_alone = format!("the template has `{key}: {}`", names.join(", "));
        let placement = &self.placement;
        let why = |node: &NodeName| {
            let own = placement.labels.get(node);
            let has_all = own.is_some_and(|own| placement.selector.is_subset(own));
            if placement.selector.is_empty() || !has_all {
                return named_alone.clone();
            }
            let labels: Vec<String> =
                placement.selector.iter().map(|label| format!("`{label}`")).collect();
            let labels = labels.join(", ");
            format!("{named_alone}; it has {labels}, which `nodeSelector` requires: {remedy}")
        };
        all.filter(|node| !named.contains(node)).map(|node| (node.clone(), why(node))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::template;

    fn untried(spec: &TemplateSpec) -> Vec<(String, String)> {
        let nodes = ["pve1", "pve2", "pve3"].map(NodeName::new);
        let all = spec.untried(nodes.iter()).into_iter();
        all.map(|(node, why)| (node.to_string(), why)).collect()
    }

    // Invariant: a node that stands empty is said to be left out, and by which key.

    #[test]
    fn nodes_beside_those_that_a_template_names_are_not_tried() {
        let nodes = vec![NodeName::new("pve1"), NodeName::new("pve2")];
        let mut spec = TemplateSpec { nodes, node: None, ..template("c/t", &[]) };
        let by_names = "the template has `nodes: pve1, pve2`";
        assert_eq!(untried(&spec), [("pve3".to_owned(), by_names.to_owned())]);
        spec.placement.selector = ["gpu".to_owned()].into();
        assert_eq!(untried(&spec)[0].1, by_names, "it has no such label");
        spec.placement.labels.insert(NodeName::new("pve3"), ["gpu".to_owned()].into());
        let labelled =
            format!("{by_names}; it has `gpu`, which `nodeSelector` requires: add it to `nodes`");
        assert_eq!(untried(&spec)[0].1, labelled);
        spec.placement.anywhere = true;
        assert_eq!(untried(&spec), []);
        let one = TemplateSpec { node: Some(NodeName::new("pve2")), ..template("c/t", &[]) };
        let by_name = "the template has `node: pve2`".to_owned();
        assert_eq!(untried(&one), ["pve1", "pve3"].map(|node| (node.to_owned(), by_name.clone())));
    }
}
