//! Sentences without what a button beside them says: a command that the page carries out itself.

/// Text without each clause with a command for which `has_button` holds. A text that has no other clause stays.
pub(crate) fn without(text: &str, has_button: impl Fn(&str) -> bool) -> String {
    let mut rest = text.to_owned();
    // Each round takes one clause out, or ends.
    while let Some((from, to)) = clause(&rest, &has_button) {
        if rest.get(..from).is_none_or(|before| before.trim().is_empty()) {
            return rest;
        }
        rest.replace_range(from..to, "");
    }
    rest
}

/// The first clause with such a command, with the sign before it.
fn clause(text: &str, has_button: impl Fn(&str) -> bool) -> Option<(usize, usize)> {
    let mut from = 0;
    let mut is_code = false;
    let mut at = 0;
    let mut has_one = false;
    for part in text.split('`') {
        if is_code {
            has_one |= has_button(part);
        } else {
            let signs = part.match_indices(['(', ')', ';', ':']);
            for (place, sign) in signs {
                let is_followed = part.get(place + 1..).is_none_or(|rest| {
                    sign == "(" || sign == ")" || rest.is_empty() || rest.starts_with(' ')
                });
                if !is_followed {
                    continue;
                }
                if has_one && sign != ":" {
                    // A bracket goes with both of its ends.
                    let is_bracket = text.get(from..).is_some_and(|text| text.starts_with(" ("));
                    let to = at + place + usize::from(is_bracket && sign == ")");
                    return Some((from, to));
                }
                if sign != ")" && !has_one {
                    let place = at + place;
                    let has_space = sign == "(" && text.get(..place)?.ends_with(' ');
                    from = place - usize::from(has_space);
                }
            }
        }
        at += part.len() + 1;
        is_code = !is_code;
    }
    has_one.then_some((from, text.len()))
}

/// Stands where a line ends: no text of drover's has it.
pub(crate) const BREAK: char = '\u{2028}';

/// Text with a [`BREAK`] behind each clause that a semicolon ends, but for those in code and in brackets.
pub(crate) fn apart(text: &str) -> String {
    let (mut apart, mut is_code, mut depth) = (String::with_capacity(text.len()), false, 0_usize);
    let mut signs = text.chars().filter(|sign| *sign != BREAK).peekable();
    while let Some(sign) = signs.next() {
        apart.push(sign);
        match sign {
            '`' => is_code = !is_code,
            '(' if !is_code => depth += 1,
            ')' if !is_code => depth = depth.saturating_sub(1),
            ';' if !is_code && depth == 0 && signs.next_if_eq(&' ').is_some() => {
                apart.extend([' ', BREAK]);
            }
            _ => {}
        }
    }
    apart
}

#[cfg(test)]
mod tests {
    use super::*;

    // Invariant: clauses are set apart where the sentence ends one, and nowhere else.

    #[test]
    fn a_clause_ends_at_a_semicolon_outside_of_code_and_brackets() {
        let shown = |text: &str| apart(text).replace(BREAK, "|");
        assert_eq!(shown("a; b (c; d); `e; f`; g;h"), "a; |b (c; d); |`e; f`; |g;h");
        assert_eq!(shown("a\u{2028}b"), "ab", "a text that has one ends no line");
    }

    // Invariant: what a button says is not said again, and every other clause stays.

    #[test]
    fn a_clause_with_a_command_that_has_a_button_goes_alone() {
        let has_button = |command: &str| command.starts_with("drover uncordon");
        for (text, left) in [
            ("it is drained: `drover uncordon pve1` lets it be used again", "it is drained"),
            (
                "pve1: it is drained: `drover uncordon pve1` ends that; pve2: it is off",
                "pve1: it is drained; pve2: it is off",
            ),
            ("it is drained (`drover uncordon pve1` ends that) by `ops`", "it is drained by `ops`"),
            ("no; once repaired, `drover uncordon pve1` tries", "no"),
            ("a; `drover uncordon a` b; `drover uncordon b` c; d", "a; d"),
            ("`drover uncordon pve1` ends that", "`drover uncordon pve1` ends that"),
            (
                "see 10.0.0.7:22; `drover doctor` checks it",
                "see 10.0.0.7:22; `drover doctor` checks it",
            ),
            ("a: `drover uncordon a` at 10:22 says more", "a"),
            ("", ""),
        ] {
            assert_eq!(without(text, has_button), left, "{text}");
        }
    }
}
