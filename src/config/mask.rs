//! Hides secrets in a file's text before any of it is shown, keeping every place where it is.
//!
//! Works on lines, not on the parsed tree: a file that does not parse is shown too. It rather hides
//! too much: outside of the sections for clouds and agents only values of keys known to be harmless
//! are shown, for a slip of the finger may have spoilt the name of `credentials`.

use super::keys;

/// Keys outside of [`OPEN`] whose values may be shown.
const HARMLESS: [&str; 36] = [
    "kind",
    "tokenId",
    "username",
    "privateKeyFile",
    "passphraseFile",
    "secretFile",
    "secretEnv",
    "systemdCredential",
    "name",
    "role",
    "stateDirectory",
    "listen",
    "listenPlain",
    "socket",
    "socketMode",
    "allowedUids",
    "allowedGids",
    "onStop",
    "stopTimeoutSec",
    "tokens",
    "logLevel",
    "peers",
    "uid",
    "gid",
    "group",
    "leases",
    "maxWaiting",
    "maxWaitingPerPrincipal",
    "maxWaitSeconds",
    "quotas",
    "principal",
    "maxLeases",
    "maxCores",
    "maxMemoryMB",
    "maxDiskGB",
    "id",
];

/// Words that name secrets and are none, though they may stand in what is hidden.
const NAMING: [&str; 3] = ["password", "passwd", "chpasswd"];

/// Hidden words shorter than this may be told by chance, and tell nothing.
const TELLING: usize = 6;

/// What stands for a token, is none and is as long as this was pasted: its secret is a UUID.
const PASTED: usize = 30;

/// The sections that hold no secrets; `agentDefaults-<node>` beside.
const OPEN: [&str; 8] = [
    "cloudDefaults",
    "cloudConfigurations",
    "agentDefaults",
    "agentConfigurations",
    "labelMappings",
    "addressPools",
    "demand",
    "sizes",
];

/// The text with secrets replaced by asterisks, as many bytes as before.
pub(super) fn masked(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut guarded = true;
    let mut in_key = false;
    for line in text.split_inclusive('\n') {
        if let Some((name, _)) = key_of(line)
            && !line.starts_with([' ', '\t', '-', '#'])
        {
            guarded = !OPEN.contains(&name) && !name.starts_with("agentDefaults-");
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

/// Words of the text that [`masked`] hid, the longest first.
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
    let names = |word: &str| keys::is_known(word) || NAMING.contains(&word);
    words.retain(|word| word.len() >= TELLING && !names(word));
    words.sort_by_key(|word| std::cmp::Reverse(word.len()));
    words.dedup();
    words
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// The key a text opens with, and where its value starts.
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

/// From where a line inside a guarded section is hidden: its first value whose key is not known
/// to be harmless, or the first text without a key.
fn guarded_from(line: &str) -> usize {
    let mut from = 0;
    loop {
        let rest = &line[from..];
        let open = rest.trim_matches(|c: char| c.is_whitespace() || "{}[],".contains(c));
        if open.is_empty() || open.starts_with('#') || open.bytes().all(|byte| byte == b'-') {
            return line.len();
        }
        let Some((name, value)) = key_of(rest) else { return from + indent(rest) };
        let nested = rest[value..].starts_with(['{', '[']);
        let nothing = rest[value..].trim().is_empty() || rest[value..].starts_with('#');
        if !nested && !nothing && !HARMLESS.contains(&name) {
            return from + value;
        }
        from += match rest[value..].find(',') {
            _ if nested => value,
            Some(comma) => value + comma + 1,
            None => return line.len(),
        };
    }
}

/// Words that name a secret where a value stands behind them.
const REVEALING: [&str; 6] = ["secret", "password", "passphrase", "passwd", "token", "webhook"];
/// Parameters of an address that hold one.
const PARAMETERS: [&str; 4] = ["token=", "secret=", "password=", "key="];

/// From where a line is hidden because it names a secret, or has a login inside an address.
fn revealing_from(line: &str) -> usize {
    let lower = line.to_ascii_lowercase();
    let named =
        REVEALING.iter().flat_map(|word| lower.match_indices(word)).filter_map(|(at, word)| {
            let rest = line[at + word.len()..].trim_start_matches(['"', '\'', ' ']);
            let value = rest.strip_prefix(':')?.trim_start();
            // Hooks are mappings, whose own keys say what is secret in them.
            (word != "webhook" || !value.starts_with('{')).then_some(line.len() - value.len())
        });
    let joined = lower.find("tokenid").and_then(|at| {
        let joined = lower[at..].find('=').map(|equals| at + equals + 1);
        let Some(colon) = lower[at..].find(':') else { return joined };
        let value = at + colon + 1;
        let end = value + lower[value..].find([',', '}', '\n']).unwrap_or(lower.len() - value);
        // A token is `user@realm!name`; anything as long as a secret there is one, pasted.
        let pasted = !lower[value..end].contains('@') && lower[value..end].trim().len() >= PASTED;
        if pasted { Some(value + indent(&line[value..])) } else { joined }
    });
    let parameter = PARAMETERS
        .iter()
        .filter(|_| lower.contains(['?', '&']))
        .filter_map(|name| Some(lower.find(name)? + name.len()));
    // What a script feeds to it stands before it.
    let fed = lower.contains("| chpasswd").then(|| key_of(line).map_or(indent(line), |(_, at)| at));
    let all = named.chain(logins_in(line)).chain(joined).chain(parameter).chain(fed);
    all.min().unwrap_or(line.len())
}

/// Where `user:password@host` stands in a line, with or without a scheme before it.
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
