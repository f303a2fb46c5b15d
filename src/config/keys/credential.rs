//! Keys of each entry of `credentials`, by its `kind`, and the keys of every secret.

use super::{Key, Table, text, value, whole};

/// The ways to give a secret; exactly one is given.
pub(super) const SECRET_KEYS: [&str; 5] =
    ["secretFile", "secretEnv", "systemdCredential", "secretAge", "secret"];

table! {
    /// Keys of every secret.
    SECRET {
        "secretFile", text().eg("/etc/drover/token"), "file that only its owner can read";
        "secretEnv", text().eg("PROXMOX_TOKEN"), "variable of the environment";
        "systemdCredential", text().eg("token"), "credential that the unit's LoadCredential= names";
        "secretAge", text().eg(r#""-----BEGIN AGE ENCRYPTED FILE----- ...""#),
            "secret encrypted for service.ageIdentity, as `drover config encrypt` prints it";
        "secret", text().secret().eg(r#""...""#), "the secret itself; drover warns about it";
    }
}

pub(super) static SECRETS: &[Key] = SECRET.keys;

const KIND: Key = text().required();
const KIND_HELP: &str = "kind of the credential";

table! {
    /// Keys of a credential of kind `proxmoxToken`.
    PROXMOX_TOKEN, one_of: SECRET_KEYS, shared: SECRETS {
        "kind", KIND, KIND_HELP;
        "tokenId", text().required().check(value::token_id).eg(r#""drover@pve!drover""#),
            "id of the API token, user@realm!token";
    }
}

table! {
    /// Keys of a credential of kind `proxmoxPassword`.
    PROXMOX_PASSWORD, one_of: SECRET_KEYS, shared: SECRETS {
        "kind", KIND, KIND_HELP;
        "username", text().required().check(value::user_id).eg(r#""drover@pve""#),
            "user of Proxmox, user@realm";
    }
}

/// The ways to give a private key for guests.
pub(crate) const KEY_SOURCES: [&str; 6] =
    ["privateKeyFile", "secretFile", "secretEnv", "systemdCredential", "secretAge", "secret"];

table! {
    /// Keys of a credential of kind `sshKey`.
    SSH_KEY, one_of: KEY_SOURCES, shared: SECRETS {
        "kind", KIND, KIND_HELP;
        "username",
            text().required().filled("the login is blank", "name the user").eg(r#""ubuntu""#),
            "login in the guest";
        "privateKeyFile", text().eg("/etc/drover/ed25519"),
            "file with the private key, which only its owner can read; or one of the secret keys";
        "passphraseFile", text().eg("/etc/drover/passphrase"),
            "file with the key's passphrase, which only its owner can read; unset: none";
    }
}

table! {
    /// Keys of a credential of kind `apiToken`.
    API_TOKEN, one_of: SECRET_KEYS, shared: SECRETS {
        "kind", KIND, KIND_HELP;
    }
}

table! {
    /// Keys of a credential of kind `githubApp`.
    GITHUB_APP, one_of: SECRET_KEYS, shared: SECRETS {
        "kind", KIND, KIND_HELP;
        "appId", text().required().check(value::filled).eg("12345"),
            "id or client id of the App";
        "installationId", whole(1..=1 << 53).eg("67890"),
            "installation of the App; unset: drover finds it by the source's scope";
    }
}

table! {
    /// Keys of a credential of kind `apiLogin`.
    API_LOGIN, one_of: SECRET_KEYS, shared: SECRETS {
        "kind", KIND, KIND_HELP;
        "username", text().required().check(value::filled).eg(r#""drover""#), "login name";
    }
}

/// The kinds of credentials.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CredentialKind {
    ProxmoxToken,
    ProxmoxPassword,
    SshKey,
    ApiToken,
    GithubApp,
    ApiLogin,
}

/// The kinds of credentials as they are written, and their keys.
pub(crate) static CREDENTIALS: [(&str, CredentialKind, &Table); 6] = [
    ("proxmoxToken", CredentialKind::ProxmoxToken, &PROXMOX_TOKEN),
    ("proxmoxPassword", CredentialKind::ProxmoxPassword, &PROXMOX_PASSWORD),
    ("sshKey", CredentialKind::SshKey, &SSH_KEY),
    ("apiToken", CredentialKind::ApiToken, &API_TOKEN),
    ("githubApp", CredentialKind::GithubApp, &GITHUB_APP),
    ("apiLogin", CredentialKind::ApiLogin, &API_LOGIN),
];
