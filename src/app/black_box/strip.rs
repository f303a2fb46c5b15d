//! Takes secrets out of texts that are kept of guests and tasks.
//!
//! drover does not know the secrets of a job. So it masks what looks like one: values behind names such as
//! `password` and `token`, logins in URLs, tokens with well-known beginnings, private keys. It rather masks
//! too much.

/// What stands in place of a secret.
const MASK: &str = "***";
/// Words in the name of a value that is kept to oneself.
const SECRET_NAMES: [&str; 12] = [
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "apikey",
    "api_key",
    "api-key",
    "authorization",
    "credential",
    "apitoken",
    "private_key",
];
/// Beginnings of tokens.
const TOKEN_STARTS: [&str; 12] = [
    "ghp_",
    "gho_",
    "ghs_",
    "ghu_",
    "github_pat_",
    "glpat-",
    "glrt-",
    "xoxb-",
    "xoxp-",
    "AKIA",
    "eyJ",
    "AGE-SECRET-KEY-",
];
/// A shorter word behind a beginning is no token.
const TOKEN_MIN_BYTES: usize = 12;
/// Schemes of `Authorization`, whose value is the next word.
const SCHEMES: [&str; 3] = ["bearer", "basic", "pveapitoken"];

/// The text without what looks like a secret.
pub(super) fn stripped(text: &str) -> String {
    let mut shown = Vec::new();
    let mut in_key = false;
    for line in text.split('\n') {
        let begins = line.contains("-----BEGIN") && line.contains("PRIVATE KEY");
        if in_key || begins {
            if begins {
                shown.push(MASK.to_owned());
            }
            in_key = !line.contains("-----END");
            continue;
        }
        shown.push(line_stripped(line));
    }
    shown.join("\n")
}

/// What the word before makes of a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Before {
    Plain,
    /// A name of a secret: after `=` or `:` comes its value.
    Name,
    /// The word is a secret.
    Secret,
}

fn line_stripped(line: &str) -> String {
    let mut shown = String::with_capacity(line.len());
    let mut before = Before::Plain;
    for piece in line.split_inclusive(char::is_whitespace) {
        let word = piece.trim_end();
        if !word.is_empty() {
            let (text, next) = word_stripped(word, before);
            shown.push_str(&text);
            before = next;
        }
        shown.push_str(&piece[word.len()..]);
    }
    shown
}

/// A word without secrets, and what it makes of the next one.
fn word_stripped(word: &str, before: Before) -> (String, Before) {
    let bare = word.trim_matches(|c: char| "\"',;()[]{}".contains(c));
    let lower = bare.trim_end_matches([':', '=']).to_ascii_lowercase();
    let is_scheme = |word: &str| SCHEMES.contains(&word.to_ascii_lowercase().as_str());
    if before == Before::Name && matches!(bare, "=" | ":")
        || is_scheme(&lower) && bare.len() == lower.len()
    {
        return (word.to_owned(), Before::Secret);
    }
    if before == Before::Secret {
        return (MASK.to_owned(), Before::Plain);
    }
    if let Some(at) = bare.find(['=', ':']).filter(|at| is_secret_name(&bare[..*at])) {
        let begin = word.find(bare).unwrap_or_default() + at + 1;
        let value = word[begin..].trim_matches(|c: char| "\"',;".contains(c));
        return match value.is_empty() || is_scheme(value) {
            true => (word.to_owned(), Before::Secret),
            false => (format!("{}{MASK}", &word[..begin]), Before::Plain),
        };
    }
    if is_secret_name(bare) {
        let next = if bare.starts_with("--") { Before::Secret } else { Before::Name };
        return (word.to_owned(), next);
    }
    if is_token(bare) {
        return (word.replace(bare, MASK), Before::Plain);
    }
    (without_login(word), Before::Plain)
}

fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    SECRET_NAMES.iter().any(|secret| name.contains(secret))
}

fn is_token(word: &str) -> bool {
    let start = TOKEN_STARTS.iter().find(|start| word.starts_with(**start));
    start.is_some_and(|start| word.len() >= start.len() + TOKEN_MIN_BYTES)
}

/// A word without the login of a URL in it.
fn without_login(word: &str) -> String {
    let Some(begin) = word.find("://").map(|at| at + 3) else { return word.to_owned() };
    let end = word[begin..].find(['/', '?', '#']).map_or(word.len(), |at| begin + at);
    match word[begin..end].rfind('@') {
        Some(at) => format!("{}{MASK}{}", &word[..begin], &word[begin + at..]),
        None => word.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Invariant: what looks like a secret is not kept, and the rest of a text reads as before.

    #[test]
    fn values_of_secret_names_logins_and_tokens_are_masked() {
        for (text, kept) in [
            ("PASSWORD=hunter2 make", "PASSWORD=*** make"),
            ("password: hunter2", "password: ***"),
            ("db_password = hunter2", "db_password = ***"),
            ("the password is wrong", "the password is wrong"),
            ("--token abc123 --verbose", "--token *** --verbose"),
            ("--token=abc123", "--token=***"),
            ("{\"apiKey\": \"abc\"}", "{\"apiKey\": ***"),
            ("Authorization: Bearer abc.def", "Authorization: Bearer ***"),
            ("PVEAPIToken=root@pam!a=0f-1a", "PVEAPIToken=***"),
            ("https://me:word@git.lan/x.git", "https://***@git.lan/x.git"),
            ("see https://git.lan/a@b", "see https://git.lan/a@b"),
            ("using ghp_0123456789abcdef0123 now", "using *** now"),
            ("eyJ is short", "eyJ is short"),
            ("a\tb  c", "a\tb  c"),
        ] {
            assert_eq!(stripped(text), kept, "{text}");
        }
    }

    #[test]
    fn a_private_key_is_masked_as_a_whole_also_where_its_end_is_cut_off() {
        let key = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNz\naC1r\n";
        let whole = format!("before\n{key}-----END OPENSSH PRIVATE KEY-----\nafter");
        assert_eq!(stripped(&whole), "before\n***\nafter");
        assert_eq!(stripped(&format!("before\n{key}")), "before\n***");
        let public = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----";
        assert_eq!(stripped(public), public);
    }

    #[test]
    fn lines_that_hide_nothing_stay_as_they_are() {
        for line in [
            "TASK ERROR: start failed: command '/usr/bin/kvm -id 10417' failed: exit code 1",
            "2026-11-28T17:46:00Z cloud-init[612]: Cloud-init v. 24.1 finished",
            "can't open '/dev/zvol/rpool/vm-10417-disk-0': No such file or directory",
        ] {
            assert_eq!(stripped(line), line);
        }
    }
}
