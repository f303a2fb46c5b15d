//! Every key that clouds, agents, credentials and the service know: type, range, default, and what
//! zero means. The one place that says so; `configs/full.yaml` and the checks follow it.

mod addresses;
mod agent;
mod cloud;
mod demand;
mod guest;
mod leases;
mod placement;

use super::value::{self, Check};

pub(super) use addresses::ADDRESS_POOL;
pub(super) use agent::{AGENT, STEP, STEP_KEYS, UPLOAD, WINDOW};
pub(super) use cloud::CLOUD;
pub(super) use demand::{DEMAND, OF_KINDS};
pub(super) use guest::{NIC, SNIPPETS};
pub(super) use leases::{LEASES, PEER, QUOTA};
pub(super) use placement::{HEADROOM_KEYS, SIZES, TERM, WEIGHT_KEYS};

/// The most a duration in seconds or minutes may be: about three years of seconds.
const LONG: u64 = 100_000_000;
/// The largest VMID Proxmox knows.
const LAST_VMID: u64 = 999_999_999;

/// The keys of a mapping that stands in a key.
#[derive(Debug)]
pub(super) struct Shape {
    pub keys: &'static [Key],
    /// Exactly one of these is given; empty where it does not matter.
    pub one_of: &'static [&'static str],
}

/// What a value must look like.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    /// Text; plain numbers count as text.
    Text,
    /// A whole number in a range.
    Whole(u64, u64),
    /// Zero, or a whole number in a range.
    ZeroOr(u64, u64),
    /// MiB of memory in a range, as a whole number or with a unit such as `4Gi`.
    Memory(u64, u64),
    /// true or false.
    Flag,
    /// One of some words.
    Choice(&'static [&'static str]),
    /// A list of texts.
    Texts,
    /// A list of whole numbers.
    Wholes,
    /// A mapping of names, whatever they are, to texts.
    Names,
    /// A mapping of names to lists of texts.
    Lists,
    /// A mapping with keys of its own.
    Mapping(&'static Shape),
    /// A list of mappings with keys of their own.
    Mappings(&'static Shape),
}

/// What holds when a key is not given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Preset {
    /// It must be given.
    Required,
    /// Nothing; `about` says what that means.
    Unset,
    /// This number.
    Whole(u64),
    /// This truth.
    Flag(bool),
    /// This text.
    Text(&'static str),
    /// The empty list.
    Empty,
}

/// One key.
#[derive(Debug, Clone, Copy)]
pub(super) struct Key {
    pub name: &'static str,
    pub kind: Kind,
    pub preset: Preset,
    /// One line for people, with the meaning of zero or blank.
    pub about: &'static str,
    /// Looks closer at each text.
    pub check: Option<Check>,
    /// Another spelling that is taken for it.
    pub also: Option<&'static str>,
}

const fn key(name: &'static str, kind: Kind, preset: Preset, about: &'static str) -> Key {
    Key { name, kind, preset, about, check: None, also: None }
}

const fn text(name: &'static str, preset: Preset, about: &'static str) -> Key {
    key(name, Kind::Text, preset, about)
}

const fn whole(name: &'static str, least: u64, most: u64, preset: u64, about: &'static str) -> Key {
    key(name, Kind::Whole(least, most), Preset::Whole(preset), about)
}

impl Key {
    const fn checked(mut self, check: Check) -> Self {
        self.check = Some(check);
        self
    }

    const fn also(mut self, name: &'static str) -> Self {
        self.also = Some(name);
        self
    }

    /// Whether it is called so.
    pub(super) fn is(&self, name: &str) -> bool {
        self.name == name || self.also == Some(name)
    }
}

/// Keys of each entry of `labelMappings`.
pub(super) static MAPPING: &[Key] = &[
    text("labels", Preset::Required, "the labels it carries, separated by blanks"),
    whole(
        "priority",
        0,
        1_000_000,
        0,
        "of several that carry the labels wanted, the highest decides",
    ),
    key(
        "templates",
        Kind::Texts,
        Preset::Required,
        "keys of agentConfigurations, or cloud/key, the first to be tried first",
    ),
];

/// Keys of `service`.
pub(super) static SERVICE: &[Key] = &[
    text(
        "stateDirectory",
        Preset::Unset,
        "journal and keys; unset: STATE_DIRECTORY, else /var/lib/drover",
    ),
    text(
        "socket",
        Preset::Unset,
        "Unix socket of the API; unset: drover.sock in RUNTIME_DIRECTORY, else /run/drover",
    ),
    text(
        "socketMode",
        Preset::Unset,
        "permissions of the socket, octal; unset: 0666 with allowedUids or allowedGids, else 0600",
    )
    .checked(value::octal_mode),
    key(
        "allowedUids",
        Kind::Wholes,
        Preset::Empty,
        "users that may use the socket as operators, beside root and drover's own as admins",
    ),
    key(
        "allowedGids",
        Kind::Wholes,
        Preset::Empty,
        "groups that may use the socket as operators; only a caller's effective group counts, not \
         its supplementary ones (run `newgrp`, or use allowedUids)",
    ),
    key(
        "peers",
        Kind::Mappings(&PEER),
        Preset::Empty,
        "users and groups of the socket with roles, and groups whose leases they share",
    ),
    text("listen", Preset::Unset, "address and port of the API over TCP; unset: none")
        .checked(value::listen),
    key(
        "listenPlain",
        Kind::Flag,
        Preset::Flag(false),
        "true: listen beyond this machine without TLS, tokens readable on the way",
    ),
    key("tokens", Kind::Mappings(&TOKEN), Preset::Empty, "who may use the API over TCP"),
    key("leases", Kind::Mapping(&LEASES), Preset::Unset, "how many leases wait, and for how long"),
    key(
        "onStop",
        Kind::Choice(&["keep", "retireIdle", "retireAll"]),
        Preset::Text("keep"),
        "agents at a stop: keep them all, retireIdle, or retireAll with their leases and holds",
    ),
    whole(
        "stopTimeoutSec",
        1,
        LONG,
        90,
        "seconds a stop waits for agents at most, less than the unit's TimeoutStopSec; the next start \
         takes up those that are left",
    ),
    key(
        "orphanCleanupPeriodSeconds",
        Kind::ZeroOr(30, LONG),
        Preset::Whole(0),
        "seconds between two reconciliations of every cloud, against what each says; 0: as they say",
    ),
    text(
        "logLevel",
        Preset::Unset,
        "error, warn, info, debug, trace or a filter; LOG_LEVEL in the environment wins",
    )
    .checked(value::log_level),
];

/// The ways to give a secret; exactly one is given.
pub(super) const SECRET_KEYS: [&str; 4] =
    ["secretFile", "secretEnv", "systemdCredential", "secret"];

const SECRET_FILE: Key = text("secretFile", Preset::Unset, "a file only its owner can read");
const SECRET_ENV: Key = text("secretEnv", Preset::Unset, "a variable of the environment");
const SYSTEMD: Key = text("systemdCredential", Preset::Unset, "a name given by LoadCredential=");
const SECRET: Key = text("secret", Preset::Unset, "the secret itself; warned about");

/// Keys of each entry of `service.tokens`.
pub(super) static TOKEN: Shape = Shape {
    keys: &[
        text("name", Preset::Required, "who it is, for the records"),
        key(
            "role",
            Kind::Choice(&["viewer", "operator", "admin"]),
            Preset::Required,
            "what it may do",
        ),
        text("group", Preset::Unset, "the group whose leases are its own too; unset: none"),
        SECRET_FILE,
        SECRET_ENV,
        SYSTEMD,
        SECRET,
    ],
    one_of: &SECRET_KEYS,
};

const KIND: Key = text("kind", Preset::Required, "what it is for");

/// Keys of a credential of kind `proxmoxToken`.
pub(super) static PROXMOX_TOKEN: &[Key] = &[
    KIND,
    text("tokenId", Preset::Required, "user@realm!token").checked(value::token_id),
    SECRET_FILE,
    SECRET_ENV,
    SYSTEMD,
    SECRET,
];

/// Keys of a credential of kind `proxmoxPassword`.
pub(super) static PROXMOX_PASSWORD: &[Key] = &[
    KIND,
    text("username", Preset::Required, "user@realm").checked(value::user_id),
    SECRET_FILE,
    SECRET_ENV,
    SYSTEMD,
    SECRET,
];

/// Keys of a credential of kind `sshKey`.
pub(super) static SSH_KEY: &[Key] = &[
    KIND,
    text("username", Preset::Required, "login in the guest"),
    text("privateKeyFile", Preset::Unset, "the key, a file only its owner can read"),
    SECRET_FILE,
    SECRET_ENV,
    SYSTEMD,
    SECRET,
    text("passphraseFile", Preset::Unset, "the key's passphrase, a file only its owner can read"),
];

/// Keys of a credential of kind `apiToken`.
pub(super) static API_TOKEN: &[Key] = &[KIND, SECRET_FILE, SECRET_ENV, SYSTEMD, SECRET];

/// Keys of a credential of kind `githubApp`.
pub(super) static GITHUB_APP: &[Key] = &[
    KIND,
    text("appId", Preset::Required, "the App's id, or its client id").checked(value::filled),
    key(
        "installationId",
        Kind::Whole(1, 1 << 53),
        Preset::Unset,
        "its installation; unset: looked up by the source's scope",
    ),
    SECRET_FILE,
    SECRET_ENV,
    SYSTEMD,
    SECRET,
];

/// Keys of a credential of kind `apiLogin`.
pub(super) static API_LOGIN: &[Key] = &[
    KIND,
    text("username", Preset::Required, "who logs in").checked(value::filled),
    SECRET_FILE,
    SECRET_ENV,
    SYSTEMD,
    SECRET,
];

/// The kinds of credentials and their keys.
pub(super) static CREDENTIAL_KINDS: [(&str, &[Key]); 6] = [
    ("proxmoxToken", PROXMOX_TOKEN),
    ("proxmoxPassword", PROXMOX_PASSWORD),
    ("sshKey", SSH_KEY),
    ("apiToken", API_TOKEN),
    ("githubApp", GITHUB_APP),
    ("apiLogin", API_LOGIN),
];

/// The top level; `agentDefaults-<node>` beside.
pub(super) const TOP: [&str; 10] = [
    "cloudDefaults",
    "cloudConfigurations",
    "agentDefaults",
    "agentConfigurations",
    "labelMappings",
    "addressPools",
    "demand",
    "sizes",
    "credentials",
    "service",
];

/// Keys of the top level that have a meaning in drover's design, but none in this version.
pub(super) const LATER: [&str; 2] = ["images", "machines"];

/// Whether a word is the name of a key or of a section.
pub(super) fn is_known(word: &str) -> bool {
    let nested = [TOKEN.keys, STEP.keys, UPLOAD.keys, WINDOW.keys, NIC.keys, SNIPPETS.keys];
    let placing = [TERM.keys, WEIGHT_KEYS.keys, HEADROOM_KEYS.keys, SIZES];
    let nested = nested.into_iter().chain(placing);
    let tables = [
        CLOUD,
        AGENT,
        MAPPING,
        ADDRESS_POOL,
        DEMAND,
        SERVICE,
        PROXMOX_TOKEN,
        PROXMOX_PASSWORD,
        SSH_KEY,
        GITHUB_APP,
    ];
    TOP.contains(&word) || tables.into_iter().chain(nested).flatten().any(|key| key.is(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Invariant: the tables themselves are sound.

    #[test]
    fn every_preset_is_of_its_kind_and_in_its_range() {
        let nested = [TOKEN.keys, STEP.keys, UPLOAD.keys, WINDOW.keys, NIC.keys, TERM.keys, SIZES];
        let nested = nested.concat();
        for key in [CLOUD, AGENT, MAPPING, ADDRESS_POOL, DEMAND, SERVICE]
            .concat()
            .into_iter()
            .chain(nested)
        {
            let sound = match (key.kind, key.preset) {
                (_, Preset::Required | Preset::Unset) => true,
                (Kind::Whole(least, most) | Kind::Memory(least, most), Preset::Whole(n)) => {
                    (least..=most).contains(&n)
                }
                (Kind::ZeroOr(least, most), Preset::Whole(n)) => {
                    n == 0 || (least..=most).contains(&n)
                }
                (Kind::Flag, Preset::Flag(_)) | (Kind::Text, Preset::Text(_)) => true,
                (Kind::Choice(words), Preset::Text(word)) => words.contains(&word),
                (Kind::Texts | Kind::Wholes | Kind::Names | Kind::Mappings(_), Preset::Empty) => {
                    true
                }
                _ => false,
            };
            assert!(sound, "{}", key.name);
        }
    }
}
