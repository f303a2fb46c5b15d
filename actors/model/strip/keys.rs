//! Private keys, also those of which a cut left the end, the beginning, or some lines alone.

use super::MASK;

/// How long the lines of keys are: in PEM (RFC 7468), in OpenSSH's form, and in MIME.
const LINE_LENGTHS: [usize; 3] = [64, 70, 76];
/// A shorter word behind others is none of a key.
const PART_MIN: usize = 8;
/// Lines of one key that are looked for before its end.
const LINES_MAX: usize = 200;

/// The text without private keys.
pub(super) fn stripped(text: &str) -> String {
    let lines: Vec<&str> = text.split('\n').collect();
    let mut hidden = vec![false; lines.len()];
    let mut at = 0;
    while at < lines.len() {
        let is_of_key = lines[at].contains("PRIVATE KEY");
        if lines[at].contains("-----BEGIN") {
            // Where its end is cut off, all that is left is of it.
            let own_end = lines[at].contains("-----END").then_some(at);
            let later = || lines[at + 1..].iter().position(|line| line.contains("-----END"));
            let end = own_end.or_else(|| later().map(|after| at + 1 + after));
            let last = end.unwrap_or(if is_of_key { lines.len() - 1 } else { at });
            hidden[at..=last].iter_mut().for_each(|hidden| *hidden |= is_of_key);
            at = last + 1;
            continue;
        }
        if is_of_key && lines[at].contains("-----END") {
            let before = lines[..at].iter().rev().take(LINES_MAX);
            let many = before.take_while(|line| can_be_of_key(line)).count();
            hidden[at - many..=at].iter_mut().for_each(|hidden| *hidden = true);
        }
        if is_full_line(lines[at]) {
            let run = lines[at..].iter().take_while(|line| is_full_line(line)).count();
            if run > 1 {
                let first = at.saturating_sub(usize::from(at > 0 && is_part(lines[at - 1])));
                let last = at + run;
                let more = usize::from(lines.get(last).is_some_and(|line| is_part(line)));
                hidden[first..last + more].iter_mut().for_each(|hidden| *hidden = true);
            }
            at += run;
            continue;
        }
        at += 1;
    }
    let mut shown: Vec<&str> = Vec::with_capacity(lines.len());
    for (at, line) in lines.iter().enumerate() {
        if !hidden[at] {
            shown.push(line);
        } else if at == 0 || !hidden[at - 1] {
            shown.push(MASK);
        }
    }
    shown.join("\n")
}

/// The last word of a line: before it stands at most when the line was written.
fn last(line: &str) -> &str {
    line.split_whitespace().next_back().unwrap_or_default()
}

fn is_base64(line: &str) -> bool {
    let word = last(line);
    !word.is_empty() && word.bytes().all(|c| c.is_ascii_alphanumeric() || b"+/=".contains(&c))
}

/// Whether a line can be a part of a key that is shorter than the others. Prose ends with letters as well.
fn is_part(line: &str) -> bool {
    let word = last(line);
    is_base64(line) && (word.len() >= PART_MIN || word.ends_with('=') || word == line.trim())
}

/// A line of base64 that is as long as the lines of keys are. Digests are of hexadecimal digits alone.
fn is_full_line(line: &str) -> bool {
    let word = last(line);
    LINE_LENGTHS.contains(&word.len())
        && is_base64(line)
        && !word.bytes().all(|c| c.is_ascii_hexdigit())
}

/// Whether a line can stand before the end of a key: one of base64, a header of it, or a blank one.
fn can_be_of_key(line: &str) -> bool {
    line.trim().is_empty()
        || is_part(line)
        || ["Proc-Type:", "DEK-Info:"].iter().any(|header| line.contains(header))
}
