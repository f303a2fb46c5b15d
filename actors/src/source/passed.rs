//! Why nothing can be cloned, in one sentence.

/// What was passed over, in order; a reason that several nodes have alike is said once, of all of them.
pub(super) fn in_a_sentence(passed: &[String]) -> String {
    let mut reasons: Vec<(Vec<&str>, &str)> = Vec::new();
    for text in passed {
        let of_node = text.strip_prefix("node `").and_then(|rest| rest.split_once("`: "));
        let (node, why) = of_node.map_or((None, text.as_str()), |(node, why)| (Some(node), why));
        match reasons.iter_mut().find(|(nodes, one)| *one == why && !nodes.is_empty()) {
            Some((nodes, _)) if node.is_some() => nodes.extend(node),
            Some(_) | None => reasons.push((node.into_iter().collect(), why)),
        }
    }
    let said = reasons.into_iter().map(|(nodes, why)| match nodes.as_slice() {
        [] => why.to_owned(),
        nodes => format!("node `{}`: {why}", nodes.join("`, node `")),
    });
    said.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    // Invariant: each node and each reason is said, and none twice.

    #[test]
    fn what_several_nodes_have_alike_is_said_once() {
        let said = |texts: &[&str]| {
            let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
            in_a_sentence(&texts)
        };
        assert_eq!(said(&["node `a`: it is off"]), "node `a`: it is off");
        assert_eq!(
            said(&["node `a`: no gpu", "no template", "node `b`: it is off", "node `c`: no gpu"]),
            "node `a`, node `c`: no gpu; no template; node `b`: it is off"
        );
        assert_eq!(said(&["x", "node `a`: x"]), "x; node `a`: x");
    }
}
