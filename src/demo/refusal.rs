//! What the service says of a refused configuration, in one line. Pure.

/// The message of the first fault, as the service says it.
fn message(text: &str) -> &str {
    let marked = text.lines().find_map(|line| line.trim_start().strip_prefix('×'));
    marked.or_else(|| text.lines().next()).unwrap_or_default().trim()
}

/// The number of the line with the first fault; none where the service names none.
pub fn line(text: &str) -> Option<usize> {
    let place = text.split_once("─[")?.1.split_once(']')?.0;
    let mut parts = place.rsplit(':');
    let _column = parts.next()?;
    parts.next()?.parse().ok()
}

/// The refusal in one sentence.
pub fn sentence(text: &str) -> String {
    let message = message(text);
    match line(text) {
        Some(line) => format!("refused edit: line {line}: {message}"),
        None => format!("refused edit: {message}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Invariant: a refused edit is shown with its line and the service's own words.

    #[test]
    fn a_refusal_keeps_its_line_and_its_message() {
        let text = "  × agentConfigurations.linux.instanceCap: expected a number\n   \
                    ╭─[/tmp/drover-demo-1/drover.yaml:45:18]\n 45 │     instanceCap: three\n";
        assert_eq!(
            sentence(text),
            "refused edit: line 45: agentConfigurations.linux.instanceCap: expected a number"
        );
        assert_eq!(sentence("unknown key"), "refused edit: unknown key");
    }
}
