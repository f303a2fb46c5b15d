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
pub fn stripped(text: &str) -> String {
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

/// What stands between pairs of names and values in one word.
const BETWEEN_PAIRS: [char; 6] = [',', '&', '?', ';', '{', '}'];

/// What the word before makes of a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Before {
    Plain,
    /// A name of a secret: after `=` or `:` comes its value.
    Name,
    /// The word is a secret.
    Secret,
    /// The word is a part of a secret that this quote ends.
    Quoted(char),
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
    if let Before::Quoted(quote) = before {
        let ends = word.trim_end_matches([',', ';', ')', ']', '}']).ends_with(quote);
        return (MASK.to_owned(), if ends { Before::Plain } else { before });
    }
    if before == Before::Secret {
        return (MASK.to_owned(), opened_quote(word).map_or(Before::Plain, Before::Quoted));
    }
    let (mut shown, mut next) = (String::with_capacity(word.len()), Before::Plain);
    for piece in without_login(word).split_inclusive(BETWEEN_PAIRS) {
        let (text, after) = pair_stripped(piece);
        shown.push_str(&text);
        next = after;
    }
    if next == Before::Plain && !bare.contains(['=', ':']) && is_secret_name(bare) {
        next = if bare.starts_with("--") { Before::Secret } else { Before::Name };
    }
    (shown, next)
}

/// A pair of a name and its value without what is secret of it, and what it makes of the next word. Names may
/// stand one in another, as in `--env=PASSWORD=x`.
fn pair_stripped(piece: &str) -> (String, Before) {
    let body = piece.trim_end_matches(BETWEEN_PAIRS);
    let mut from = 0;
    for (at, _) in body.match_indices(['=', ':']) {
        let (name, value) = (&body[from..at], &body[at + 1..]);
        from = at + 1;
        if !is_secret_name(name) || value.starts_with("//") {
            continue;
        }
        let bare = value.trim_matches(['"', '\'']);
        if bare.is_empty() || SCHEMES.contains(&bare.to_ascii_lowercase().as_str()) {
            return (piece.to_owned(), Before::Secret);
        }
        let next = opened_quote(value).map_or(Before::Plain, Before::Quoted);
        return (format!("{}{MASK}{}", &body[..from], &piece[body.len()..]), next);
    }
    let bare = body.trim_matches(|c: char| "\"'()[]=:".contains(c));
    let is_known = is_token(bare) && !bare.is_empty();
    (if is_known { piece.replace(bare, MASK) } else { piece.to_owned() }, Before::Plain)
}

/// The quote that a value begins with and does not end.
fn opened_quote(value: &str) -> Option<char> {
    let quote = value.chars().next().filter(|first| ['"', '\''].contains(first))?;
    (value.matches(quote).count() % 2 == 1).then_some(quote)
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
            (
                "https://x-access-token:ghp_0123456789abcdef0123@github.com/o/r",
                "https://***@github.com/o/r",
            ),
            ("https://gitlab-ci-token:word@git.lan", "https://***@git.lan"),
            ("https://h/x?a=1&token=word&b=2", "https://h/x?a=1&token=***&b=2"),
            (
                "{\"user\":\"x\",\"password\":\"y\",\"a\":1}",
                "{\"user\":\"x\",\"password\":***,\"a\":1}",
            ),
            ("--env=PASSWORD=word", "--env=PASSWORD=***"),
            ("PASSWORD=\"my secret pass\" make", "PASSWORD=*** *** *** make"),
            ("password: 'two words' next", "password: *** *** next"),
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
