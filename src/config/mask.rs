//! Masks secrets in a file's text before any of it is shown; every character keeps its place.
//!
//! It works on lines, not on the parsed tree, since faults also show files that do not parse. It
//! rather masks too much: outside the sections without secrets it shows only values of keys that
//! are known to be harmless (`keys::is_harmless`), for a typing error may have changed the name of
//! `credentials`.

use super::keys;

/// Names of secrets, which are no secrets themselves, though they can be in a masked part.
const SECRET_NAMES: [&str; 3] = ["password", "passwd", "chpasswd"];

/// A shorter masked word occurs in other texts by chance, and reveals nothing.
const MIN_WORD_BYTES: usize = 6;

/// A tokenId of this length without `@` is a pasted secret: secrets of tokens are UUIDs.
const PASTED_BYTES: usize = 30;

/// The text with secrets replaced by asterisks, as many bytes as before.
pub(super) fn masked(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut guarded = true;
    let mut in_key = false;
    for line in text.split_inclusive('\n') {
        if let Some((name, _)) = key_of(line)
            && !line.starts_with([' ', '\t', '-', '#'])
        {
            guarded = !keys::is_open(name);
        }
        if line.contains("PRIVATE KEY-----") {
            in_key = line.contains("-----BEGIN");
        }
        let from = if in_key || line.contains("PRIVATE KEY-----") {
            indent(line)
        } else if guarded {
            guarded_from(line).min(revealing_from(line))
        } else {
            revealing_from(line)
        };
        shown.push_str(&line[..from]);
        shown.extend(line[from..].chars().map(|c| match c {
            '\n' | '\r' => c.to_string(),
            other => "*".repeat(other.len_utf8()),
        }));
    }
    shown
}

/// The words of the text that [`masked`] masks, the longest first.
pub(super) fn hidden_words<'a>(text: &'a str, masked: &str) -> Vec<&'a str> {
    let mut words = Vec::new();
    for (line, shown) in text.lines().zip(masked.lines()) {
        let from = line.bytes().zip(shown.bytes()).position(|(there, shown)| there != shown);
        for word in line[from.unwrap_or(line.len())..].split_whitespace() {
            let marks = |c: char| "\"'{}[],:".contains(c);
            words.push(word.trim_matches(marks));
            words.extend(word.split(marks));
        }
    }
    let names = |word: &str| keys::is_known(word) || SECRET_NAMES.contains(&word);
    words.retain(|word| word.len() >= MIN_WORD_BYTES && !names(word));
    words.sort_by_key(|word| std::cmp::Reverse(word.len()));
    words.dedup();
    words
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// The key at the start of a text, and where its value starts.
fn key_of(text: &str) -> Option<(&str, usize)> {
    let start = text.find(|c: char| !c.is_whitespace() && !"-{[,".contains(c))?;
    let body = &text[start..];
    let colon = body.find(':')?;
    let name = body[..colon].trim().trim_matches(['"', '\'']);
    let plain = name.chars().all(|c| c.is_alphanumeric() || "_-. @".contains(c));
    let value = start + colon + 1;
    let apart = text[value..].chars().next().is_none_or(char::is_whitespace);
    let value = value + indent(&text[value..]);
    (plain && apart).then_some((name, value))
}

/// Where masking starts in a line of a guarded section: at the first value whose key is not
/// harmless, or the first text without a key.
fn guarded_from(line: &str) -> usize {
    let mut from = 0;
    loop {
        let rest = &line[from..];
        let open = rest.trim_matches(|c: char| c.is_whitespace() || "{}[],".contains(c));
        if open.is_empty() || open.bytes().all(|byte| byte == b'-') {
            return line.len();
        }
        // It may be a key that a slip made a comment.
        if open.starts_with('#') {
            return if from == 0 { path_in(line).unwrap_or(line.len()) } else { from };
        }
        let Some((name, value)) = key_of(rest) else { return from + indent(rest) };
        let nested = rest[value..].starts_with(['{', '[']);
        let nothing = rest[value..].trim().is_empty();
        if !nested && !nothing && !keys::is_harmless(name) {
            return from + value;
        }
        // Where a comma is missing, the next key stands in the value.
        let own = rest[value..].split(',').next().unwrap_or_default();
        if let Some(key) = own.find(": ").filter(|_| !nested) {
            return from + value + key;
        }
        from += match rest[value..].find(',') {
            _ if nested => value,
            Some(comma) => value + comma + 1,
            None => return line.len(),
        };
    }
}

/// Where the path of the first URL of a line starts: that of a webhook is a secret.
fn path_in(line: &str) -> Option<usize> {
    let host = line.find("://")? + "://".len();
    Some(host + line[host..].find('/')? + 1)
}

/// Words that name a secret where a value follows them.
const REVEALING: [&str; 6] = ["secret", "password", "passphrase", "passwd", "token", "webhook"];
/// Parameters of URLs that hold a secret.
const PARAMETERS: [&str; 4] = ["token=", "secret=", "password=", "key="];

/// Where masking starts in a line that names a secret, or has a login in a URL.
fn revealing_from(line: &str) -> usize {
    let lower = line.to_ascii_lowercase();
    let named =
        REVEALING.iter().flat_map(|word| lower.match_indices(word)).filter_map(|(at, word)| {
            let rest = line[at + word.len()..].trim_start_matches(['"', '\'', ' ']);
            let value = rest.strip_prefix(':')?.trim_start();
            // Webhooks are mappings, whose own keys name the secrets.
            (word != "webhook" || !value.starts_with('{')).then_some(line.len() - value.len())
        });
    let joined = lower.find("tokenid").and_then(|at| {
        let joined = lower[at..].find('=').map(|equals| at + equals + 1);
        let Some(colon) = lower[at..].find(':') else { return joined };
        let value = at + colon + 1;
        let end = value + lower[value..].find([',', '}', '\n']).unwrap_or(lower.len() - value);
        let text = &lower[value..end];
        let pasted = !text.contains('@') && text.trim().len() >= PASTED_BYTES;
        if pasted { Some(value + indent(&line[value..])) } else { joined }
    });
    let parameter = PARAMETERS
        .iter()
        .filter(|_| lower.contains(['?', '&']))
        .filter_map(|name| Some(lower.find(name)? + name.len()));
    // The script's input stands before it.
    let fed = lower.contains("| chpasswd").then(|| key_of(line).map_or(indent(line), |(_, at)| at));
    let all = named.chain(logins_in(line)).chain(joined).chain(parameter).chain(fed);
    all.min().unwrap_or(line.len())
}

/// The places of `user:password@host` in a line, with or without a scheme.
fn logins_in(line: &str) -> impl Iterator<Item = usize> {
    let schemed = line.match_indices("://").map(|(at, scheme)| at + scheme.len());
    let schemed = schemed.filter(|at| {
        let host = line[*at..].split(|c: char| c.is_whitespace() || "/\"'".contains(c)).next();
        host.is_some_and(|host| host.contains('@'))
    });
    let ends = |c: char| c.is_whitespace() || "\"'{}[],".contains(c);
    let mut next = 0;
    let bare = line.split_inclusive(ends).filter_map(move |word| {
        let start = next;
        next += word.len();
        let host = word.split(['/', '?']).next().unwrap_or_default();
        let login = host.rfind('@').map(|at| &host[..at])?;
        login.contains(':').then_some(start)
    });
    schemed.chain(bare)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Invariant: no way of writing a secret down lets it through, and nothing moves.

    #[test]
    fn a_secret_is_hidden_however_it_is_written() {
        for text in [
            "credentials:\n  a:\n    secret: hunter2\n",
            "credentials:\n  a: {kind: proxmoxToken, secret: hunter2}\n",
            "credentials:\n  a:\n    secert: hunter2\n",
            "credentials:\n  a:\n    secret: |\n      hunter2\n",
            "credentials:\n  a:\n    secret:\n      hunter2\n",
            "credentials:\n- hunter2\n",
            "credentials: {a: {kind: x, secert: hunter2}}\n",
            "credentials:\n  a: {kind: x,\n    username: y, secert: hunter2}\n",
            "credentials:\n  a: {\"kind\":\"x\",\"secert\":\"hunter2\"}\n",
            "credentials:\n  a: {secert: \"x, kind: hunter2\", kind: hunter2}\n",
            "credentials:\n  a: hunter2\n",
            "credentials:\n  a:\n    tokenId: root@pam!ci=hunter2\n",
            "service: {tokens: [{secert: hunter2}]}\n",
            "credentils:\n  a:\n    \"secret\" : hunter2\n",
            "service:\n  tokens:\n    - {name: x, secret: hunter2}\n",
            "service:\n  tokens:\n    - secret: hunter2\n",
            "service:\n  tokens:\n    - {name: x secert: hunter2}\n",
            "service:\n  tokens:\n    - {name: x,# secert: hunter2}\n",
            "service:\n  notify:\n#    - {name: x, url: 'https://h.lan/hunter2'}\n",
            "cloudDefaults:\n  apiUrl: https://root:hunter2@pve:8006\n",
            "cloudDefaults:\n  apiUrl: root:hunter2@pve:8006\n",
            "cloudDefaults:\n  apiUrl: https://root:a,hunter2@pve:8006\n",
            "cloudDefaults:\n  tokenId= root@pam!ci=hunter2\n",
            "demand:\n  a: {url: \"https://git\", proxy: \"http://u:hunter2@h\"}\n",
            "demand:\n  a:\n    token: hunter2\n",
            "demand:\n  a: {tokenId: x@pve!y, token: hunter2}\n",
            "demand:\n  a:\n    webhook: hunter2\n",
            "demand:\n  a:\n    url: https://git/?access_token=hunter2\n",
            "cloudDefaults:\n  apiToken: hunter2\n",
            "cloudDefaults:\n  tokenId: hunter2-8b0e-4f6e-9c57-2d0f3c1a7b11\n",
            "agentDefaults:\n  userData: |\n    users: [{plain_text_passwd: hunter2}]\n",
            "agentDefaults:\n  userData: |\n    chpasswd: {list: ['root:hunter2']}\n",
            "agentDefaults:\n  userData: \"#!\\necho root:hunter2 | chpasswd\"\n",
            "agentDefaults:\n  userData: |\n    echo root:hunter2 | chpasswd\n",
            "x: |\n  -----BEGIN OPENSSH PRIVATE KEY-----\n  hunter2\n  \
            -----END OPENSSH PRIVATE KEY-----\n",
        ] {
            let shown = masked(text);
            assert!(!shown.contains("hunter2"), "{shown}");
            assert_eq!(shown.len(), text.len());
            assert_eq!(shown.lines().count(), text.lines().count());
        }
    }

    #[test]
    fn what_is_no_secret_stays_readable() {
        let text = "cloudDefaults:\n  credentialsId: \"x\" # the token\ncredentials:\n  \
        # one\n  y: {kind: sshKey, username: ci, privateKeyFile: key}\n  x:\n    \
        kind: proxmoxToken\n    secretFile: /etc/drover/token\nagentDefaults:\n  node: pve1\n";
        assert_eq!(masked(text), text);
    }
}
