//! Words that say that a secret follows.

/// Words in the name of a value that is kept to oneself.
const SECRET_NAMES: [&str; 18] = [
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "apikey",
    "api_key",
    "api-key",
    "access_key",
    "accesskey",
    "access-key",
    "private_key",
    "privatekey",
    "private-key",
    "authorization",
    "credential",
    "cookie",
    "signature",
];
/// What such a name can end with.
const SECRET_ENDS: [&str; 3] = ["pass", "pwd", "auth"];
/// What its last word can be.
const SECRET_WORDS: [&str; 4] = ["sig", "pw", "psk", "jwt"];
/// Names whose value may have several words.
const OF_REST: [&str; 2] = ["authorization", "cookie"];
/// Schemes of `Authorization`, whose value is the next word.
const SCHEMES: [&str; 3] = ["bearer", "basic", "pveapitoken"];
/// Beginnings of tokens.
const TOKEN_STARTS: [&str; 24] = [
    "ghp_",
    "gho_",
    "ghr_",
    "ghs_",
    "ghu_",
    "github_pat_",
    "glpat-",
    "glrt-",
    "gldt-",
    "glcbt-",
    "xoxa-",
    "xoxb-",
    "xoxp-",
    "xapp-",
    "AKIA",
    "ASIA",
    "AIza",
    "eyJ",
    "AGE-SECRET-KEY-",
    "npm_",
    "pypi-",
    "dckr_pat_",
    "hvs.",
    "sk_live_",
];
/// A shorter word behind a beginning is no token.
const TOKEN_MIN_BYTES: usize = 12;
/// Addresses whose path is a secret.
pub(super) const WEB_HOOKS: [&str; 3] =
    ["hooks.slack.com/services/", "discord.com/api/webhooks/", "discordapp.com/api/webhooks/"];
/// Options whose value is a name and a password, as of `curl`.
const LOGIN_OPTIONS: [&str; 3] = ["-u", "--user", "--proxy-user"];
/// Words of a command whose `-p` is a password.
const P_COMMANDS: [&str; 5] = ["sshpass", "login", "mysql", "mysqldump", "mariadb"];

pub(super) fn is_secret_name(name: &str) -> bool {
    let name = name.trim_matches(|c: char| "\"'\\()[]{}".contains(c)).to_ascii_lowercase();
    let last = name.rsplit(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default();
    // A command and a file have such names as well.
    !name.ends_with("chpasswd")
        && !name.ends_with("/passwd")
        && (SECRET_NAMES.iter().any(|secret| name.contains(secret))
            || SECRET_ENDS.iter().any(|end| name.ends_with(end))
            || SECRET_WORDS.contains(&last))
}

/// Whether the value of a name goes on to the end of its line.
pub(super) fn takes_rest(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    OF_REST.iter().any(|word| name.ends_with(word))
}

pub(super) fn is_scheme(word: &str) -> bool {
    SCHEMES.iter().any(|scheme| word.eq_ignore_ascii_case(scheme))
}

/// Whether the word behind an option is a secret.
pub(super) fn is_secret_option(word: &str) -> bool {
    word.starts_with('-') && !word.contains(['=', ':']) && is_secret_name(word)
}

pub(super) fn asks_for_login(word: &str) -> bool {
    LOGIN_OPTIONS.contains(&word)
}

/// Whether the word is a command whose `-p` is a password.
pub(super) fn makes_p_secret(word: &str) -> bool {
    P_COMMANDS.contains(&word.rsplit('/').next().unwrap_or(word))
}

pub(super) fn is_token(word: &str) -> bool {
    let start = TOKEN_STARTS.iter().find(|start| word.starts_with(**start));
    start.is_some_and(|start| word.len() >= start.len() + TOKEN_MIN_BYTES)
}
