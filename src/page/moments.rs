//! Moments within sentences: how far they are, as people say it, with the exact time behind.
//!
//! A sentence of drover has a moment in RFC 3339. Without a script the page has it to the second; the script says
//! `for 42 s now` in the place of `since 2026-11-29T02:00:00Z`, and keeps that up to date.

use crate::show;

/// Words before a moment that go with it: the script replaces both.
const BEFORE: [&str; 3] = ["until ", "since ", "at "];

/// Whether a word is a moment such as `2026-11-29T02:00:00.5Z`.
pub(crate) fn is_moment(word: &str) -> bool {
    let bytes = word.as_bytes();
    let is_shaped = |place: usize, wanted: u8| bytes.get(place) == Some(&wanted);
    let digits = |from: usize, to: usize| {
        bytes.get(from..to).is_some_and(|part| part.iter().all(u8::is_ascii_digit))
    };
    let is_date = digits(0, 4) && is_shaped(4, b'-') && digits(5, 7) && is_shaped(7, b'-');
    let is_time = digits(8, 10) && is_shaped(10, b'T') && digits(11, 13) && is_shaped(13, b':');
    let rest = word.get(19..).and_then(|rest| rest.strip_suffix('Z'));
    is_date
        && is_time
        && digits(14, 16)
        && is_shaped(16, b':')
        && digits(17, 19)
        && rest.is_some_and(|rest| {
            rest.is_empty()
                || rest.strip_prefix('.').is_some_and(|rest| {
                    !rest.is_empty() && rest.bytes().all(|one| one.is_ascii_digit())
                })
        })
}

/// Adds a moment, with the word before it where that is one of those that the script replaces, too.
pub(crate) fn add(html: &mut String, moment: &str) {
    let is_word = |html: &str, word: &str| {
        html.strip_suffix(word).is_some_and(|rest| rest.is_empty() || rest.ends_with([' ', '(']))
    };
    let word = BEFORE.into_iter().find(|word| is_word(html, word)).unwrap_or_default();
    html.truncate(html.len() - word.len());
    let data = match word.trim_end() {
        "" => String::new(),
        word => format!(" data-word=\"{word}\""),
    };
    let shown = show::time(moment);
    *html += &format!("<time datetime=\"{moment}\"{data}>{word}{shown}</time>");
}

#[cfg(test)]
mod tests {
    use super::*;

    // Invariant: what is a moment becomes one, with the word that goes with it, and no other text is lost.

    #[test]
    fn a_moment_takes_the_word_before_it_with_it() {
        for (before, html) in [
            ("tripped until ", "tripped <time datetime=\"M\" data-word=\"until\">until S</time>"),
            ("that ", "that <time datetime=\"M\">S</time>"),
            ("at ", "<time datetime=\"M\" data-word=\"at\">at S</time>"),
        ] {
            let mut text = before.to_owned();
            add(&mut text, "2026-11-29T02:00:00Z");
            let text =
                text.replace("2026-11-29T02:00:00Z", "M").replace("2026-11-29 02:00:00", "S");
            assert_eq!(text, html);
        }
        assert!(is_moment("2026-11-29T02:00:00Z") && is_moment("2026-11-29T02:00:00.123456Z"));
        for text in ["2026-11-29", "2026-11-29T02:00:00", "2026-11-29T02:00:00.Z", "ääää-ää", ""]
        {
            assert!(!is_moment(text), "{text}");
        }
    }
}
