//! Every key that clouds, agents, credentials and the service know: type, range, default, and what
//! zero means. The one place that says so; `configs/full.yaml` and the checks follow it.

mod addresses;
mod cloud;
mod guest;
mod placement;

use super::value::{self, Check};

pub(super) use addresses::ADDRESS_POOL;
pub(super) use cloud::CLOUD;
pub(super) use guest::{NIC, SNIPPETS};
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

/// Keys of `agentDefaults`, `agentDefaults-<node>` and each entry of `agentConfigurations`.
pub(super) static AGENT: &[Key] = &[
    text("name", Preset::Unset, "display name; only in agentConfigurations; unset: its key"),
    key("cloudIds", Kind::Texts, Preset::Required, "keys of cloudConfigurations it is on"),
    text(
        "node",
        Preset::Unset,
        "the node of its agents, selects agentDefaults-<node>; unset: the template's",
    ),
    key(
        "nodes",
        Kind::Texts,
        Preset::Unset,
        "several nodes for its agents, for node, or \"*\" for all; placement says which is taken",
    ),
    placement::PLACEMENT,
    placement::WEIGHTS,
    placement::SELECTOR,
    placement::AFFINITY,
    placement::ANTI_AFFINITY,
    placement::MAX_VMS,
    placement::MIN_FREE,
    key(
        "templateVmId",
        Kind::Whole(100, LAST_VMID),
        Preset::Unset,
        "VMID of the template; it or one of the next three must be given",
    ),
    text(
        "templateName",
        Preset::Unset,
        "name of the template, one alone on each node, a node's own first",
    )
    .checked(value::filled),
    text(
        "templateNamePattern",
        Preset::Unset,
        "regular expression that the whole name matches; the newest wins",
    )
    .checked(value::pattern),
    text("templateTag", Preset::Unset, "a tag that the template carries; the newest wins")
        .checked(value::tag),
    text("labelString", Preset::Text(""), "labels, separated by blanks"),
    whole("numExecutors", 1, 1000, 1, "uses at once on one agent"),
    key("cloneStrategy", Kind::Choice(&["FULL", "LINKED"]), Preset::Text("FULL"), "FULL or LINKED"),
    text("targetStorage", Preset::Text(""), "storage of full clones; blank: the template's"),
    key(
        "targetStorages",
        Kind::Texts,
        Preset::Unset,
        "several, for targetStorage: the one with most free space, with placement FIXED the first",
    ),
    placement::STORAGE_CLASS,
    key(
        "fallbackTemplates",
        Kind::Texts,
        Preset::Empty,
        "templates that stand in while this one is tripped or can not be cloned, in order",
    ),
    text("targetPool", Preset::Text(""), "resource pool of clones; blank: none"),
    placement::SIZE,
    whole("cores", 0, 8192, 0, "processor cores; 0: the template's"),
    key("memoryMb", Kind::ZeroOr(16, 67_108_864), Preset::Whole(0), "memory; 0: the template's"),
    whole(
        "diskSizeGb",
        0,
        131_072,
        0,
        "size of the disk it boots from, never shrunk; 0: the template's",
    ),
    text("bridge", Preset::Text(""), "bridge of net0; blank: the template's")
        .checked(value::bridge),
    whole("vlan", 0, 4094, 0, "VLAN tag of net0; 0: the template's"),
    guest::NETWORKS,
    key("onBoot", Kind::Flag, Preset::Flag(false), "true: agents start with their node"),
    text("remoteFs", Preset::Text(""), "working directory; blank: /home/<user>/agent")
        .checked(value::directory),
    key(
        "mode",
        Kind::Choice(&["NORMAL", "EXCLUSIVE"]),
        Preset::Text("EXCLUSIVE"),
        "NORMAL takes unlabelled demand too",
    ),
    text("credentialsId", Preset::Required, "an sshKey"),
    key(
        "javaDistribution",
        Kind::Choice(&["NONE", "OPENJDK", "CORRETTO"]),
        Preset::Text("NONE"),
        "Java to install",
    ),
    whole("javaMajorVersion", 1, 999, 21, "its major version; ignored for NONE"),
    text("javaPath", Preset::Text("java"), "the java binary, used for NONE; told when not there"),
    text("jvmOptions", Preset::Text(""), "options of the agent's JVM, for Jenkins alone"),
    text(
        "correttoRepositoryUrl",
        Preset::Text(""),
        "Corretto's package repository; blank: Amazon's for the guest's package manager",
    )
    .checked(value::repository),
    text(
        "correttoKeyUrl",
        Preset::Text(""),
        "the key of its signatures; blank: corretto.key in it (apk: amazoncorretto.rsa.pub)",
    )
    .checked(value::repository),
    whole("idleTerminationMinutes", 0, LONG, 30, "idle time before an agent goes; 0: never"),
    whole("instanceCap", 0, 1_000_000, 0, "most agents; 0: unlimited"),
    whole(
        "instanceMin",
        0,
        1_000_000,
        0,
        "agents kept, in use or not, at most instanceCap; 0: none",
    ),
    whole("idleMin", 0, 1_000_000, 0, "idle agents kept beside those in use, within caps; 0: none"),
    key("schedule", Kind::Mappings(&WINDOW), Preset::Empty, "times in which more is kept"),
    whole("maxTotalUses", 0, 1_000_000_000, 0, "uses before an agent goes; 0: unlimited"),
    key("singleUse", Kind::Flag, Preset::Flag(false), "true: one use an agent, as maxTotalUses 1"),
    text("namePrefix", Preset::Text(""), "put before the template's name in guests' names"),
    whole("startupWaitSeconds", 1, LONG, 60, "seconds from start to SSH login"),
    text("ciUser", Preset::Text(""), "cloud-init user; blank: the image's own"),
    text("ipConfig", Preset::Text("ip=dhcp"), "cloud-init ipconfig0; blank: the template's")
        .checked(value::ip_config),
    text("addressPool", Preset::Text(""), "the address pool its agents have their addresses of"),
    text("addressPool6", Preset::Text(""), "a second one, of IPv6 beside one of IPv4"),
    key(
        "addressFrom",
        Kind::Choice(&["guestAgent", "static", "call"]),
        Preset::Unset,
        "who tells the address; unset: static for a pool or one address in ipConfig, else guestAgent",
    ),
    key(
        "ipConfigs",
        Kind::Texts,
        Preset::Empty,
        "cloud-init ipconfig1 and so on, for further network cards",
    )
    .checked(value::ip_config),
    key(
        "ciUpgrade",
        Kind::Flag,
        Preset::Flag(false),
        "true: cloud-init upgrades all packages at the first boot",
    ),
    text("nameserver", Preset::Text(""), "cloud-init DNS servers; blank: the node's")
        .checked(value::nameserver),
    text("searchDomain", Preset::Text(""), "cloud-init DNS search domain; blank: the node's")
        .also("searchdomain"),
    guest::USER_DATA,
    guest::USER_DATA_FILE,
    guest::META_DATA,
    guest::META_DATA_FILE,
    guest::NETWORK_CONFIG,
    guest::NETWORK_CONFIG_FILE,
    guest::VALUES,
    guest::ISO_STORAGE,
    guest::CUSTOM,
    whole("sshPort", 1, 65_535, 22, "port of SSH in the guest"),
    key(
        "guestNetworks",
        Kind::Texts,
        Preset::Empty,
        "CIDRs the address must lie in; empty: any usable one",
    )
    .checked(value::cidr),
    key("tags", Kind::Texts, Preset::Empty, "tags beside drover's own").checked(value::tag),
    text("description", Preset::Text(""), "text for the guests' notes"),
    key(
        "prepare",
        Kind::Mappings(&STEP),
        Preset::Empty,
        "steps that prepare an agent over SSH after Java, in their order; never write a secret here",
    ),
    text("readyCommand", Preset::Text(""), "must succeed before an agent is ready; blank: none"),
    key(
        "reset",
        Kind::Choice(&["NONE", "DISK", "MEMORY"]),
        Preset::Text("NONE"),
        "after a lease the agent goes back to a snapshot, for the same owner only; NONE: no snapshot",
    ),
    whole("resetTimeoutSec", 1, LONG, 300, "seconds a reset may take, then the agent is destroyed"),
    key(
        "closeSshBeforeDelete",
        Kind::Flag,
        Preset::Flag(false),
        "true: SSH is closed off from inside, then the agent is stopped hard and destroyed",
    ),
    whole("queueTimeoutSec", 1, LONG, 600, "seconds waiting for a place to clone"),
    whole("cloneTimeoutSec", 1, LONG, 1800, "seconds for a clone in all, doubts included"),
    whole("prepareTimeoutSec", 1, LONG, 600, "seconds to prepare an agent over SSH"),
    whole("shutdownTimeoutSec", 0, LONG, 60, "seconds to shut down gracefully; 0: stop at once"),
    whole("retireTimeoutSec", 1, LONG, 900, "seconds to destroy an agent before the alarm"),
    whole(
        "maxLifetimeMinutes",
        0,
        LONG,
        0,
        "most minutes an agent lives, kept ones are renewed before; 0: unlimited",
    ),
    whole("breakerThreshold", 1, 1000, 3, "failures in a row after which a template pauses"),
    whole("breakerCooldownSec", 1, LONG, 120, "seconds of the first pause"),
    whole("breakerCooldownCapSec", 1, LONG, 1800, "seconds of the longest pause"),
];

/// Keys of each item of `schedule`.
pub(super) static WINDOW: Shape = Shape {
    one_of: &[],
    keys: &[
        text("cron", Preset::Required, "when it opens: minute, hour, day, month, day of the week")
            .checked(value::cron),
        key(
            "durationMinutes",
            Kind::Whole(1, 44_640),
            Preset::Required,
            "minutes it is open; idle agents it kept go when it closes",
        ),
        text("timeZone", Preset::Text("UTC"), "IANA time zone of the pattern")
            .checked(value::time_zone),
        whole("instanceMin", 0, 1_000_000, 0, "agents kept meanwhile, where that is more; 0: none"),
        whole(
            "idleMin",
            0,
            1_000_000,
            0,
            "idle agents kept meanwhile, where that is more; 0: none",
        ),
    ],
};

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
    text("listen", Preset::Unset, "address and port of the API over TCP; unset: none")
        .checked(value::listen),
    key(
        "listenPlain",
        Kind::Flag,
        Preset::Flag(false),
        "true: listen beyond this machine without TLS, tokens readable on the way",
    ),
    key("tokens", Kind::Mappings(&TOKEN), Preset::Empty, "who may use the API over TCP"),
    key(
        "onStop",
        Kind::Choice(&["keep", "retireIdle", "retireAll"]),
        Preset::Text("keep"),
        "agents at a stop: keep them all, retireIdle, or retireAll with their leases and holds",
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
        SECRET_FILE,
        SECRET_ENV,
        SYSTEMD,
        SECRET,
    ],
    one_of: &SECRET_KEYS,
};

/// What a step of `prepare` does; exactly one is given.
pub(super) const STEP_KEYS: [&str; 3] = ["run", "upload", "packages"];

/// Keys of each entry of `prepare`.
pub(super) static STEP: Shape = Shape {
    keys: &[
        text("name", Preset::Unset, "shown while it runs; unset: its place and what it does")
            .checked(value::step_name),
        text(
            "run",
            Preset::Unset,
            "a command, run by the login user's shell; again after a lost connection",
        ),
        key("upload", Kind::Mapping(&UPLOAD), Preset::Unset, "a file to put into the guest"),
        key(
            "packages",
            Kind::Texts,
            Preset::Unset,
            "packages for the guest's own package manager: apt-get, dnf, yum, zypper or apk",
        )
        .checked(value::package),
        whole("timeoutSec", 1, LONG, 300, "seconds it may take, within prepareTimeoutSec"),
    ],
    one_of: &STEP_KEYS,
};

/// Keys of `upload` in an entry of `prepare`.
pub(super) static UPLOAD: Shape = Shape {
    keys: &[
        text(
            "from",
            Preset::Required,
            "a file beside this one, at most 4 MiB; read again when it changes",
        ),
        text(
            "to",
            Preset::Required,
            "its place, absolute or in the login user's home; the directory must be there",
        )
        .checked(value::guest_file),
        text("mode", Preset::Text("0644"), "its permissions, octal").checked(value::octal_mode),
    ],
    one_of: &[],
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

/// The kinds of credentials and their keys.
pub(super) static CREDENTIAL_KINDS: [(&str, &[Key]); 3] =
    [("proxmoxToken", PROXMOX_TOKEN), ("proxmoxPassword", PROXMOX_PASSWORD), ("sshKey", SSH_KEY)];

/// The top level; `agentDefaults-<node>` beside.
pub(super) const TOP: [&str; 9] = [
    "cloudDefaults",
    "cloudConfigurations",
    "agentDefaults",
    "agentConfigurations",
    "labelMappings",
    "addressPools",
    "sizes",
    "credentials",
    "service",
];

/// Keys of the top level that have a meaning in drover's design, but none in this version.
pub(super) const LATER: [&str; 3] = ["demand", "images", "machines"];

/// Whether a word is the name of a key or of a section.
pub(super) fn is_known(word: &str) -> bool {
    let nested = [TOKEN.keys, STEP.keys, UPLOAD.keys, WINDOW.keys, NIC.keys, SNIPPETS.keys];
    let placing = [TERM.keys, WEIGHT_KEYS.keys, HEADROOM_KEYS.keys, SIZES];
    let nested = nested.into_iter().chain(placing);
    let tables =
        [CLOUD, AGENT, MAPPING, ADDRESS_POOL, SERVICE, PROXMOX_TOKEN, PROXMOX_PASSWORD, SSH_KEY];
    TOP.contains(&word) || tables.into_iter().chain(nested).flatten().any(|key| key.is(word))
}

/// The known word nearest to a mistaken one, if one is near.
pub(crate) fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    // Words of other lengths are never near: text of any length is held against few names only.
    let near = |name: &str| name.len().abs_diff(word.len()) <= (name.len() / 3).max(2);
    known
        .filter(|name| near(name))
        .map(|name| (strsim::damerau_levenshtein(&word.to_lowercase(), &name.to_lowercase()), name))
        .filter(|(distance, name)| *distance <= (name.len() / 3).max(2))
        .min()
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Invariant: a slip of the finger finds its key; nonsense finds none.

    #[test]
    fn a_slip_finds_its_key_and_nonsense_none() {
        let known = || AGENT.iter().map(|key| key.name);
        assert_eq!(nearest("instanceCpa", known()), Some("instanceCap"));
        assert_eq!(nearest("instancecap", known()), Some("instanceCap"));
        assert_eq!(nearest("memory_mb", known()), Some("memoryMb"));
        assert_eq!(nearest("flavour", known()), None);
    }

    // Invariant: the tables themselves are sound.

    #[test]
    fn every_preset_is_of_its_kind_and_in_its_range() {
        let nested = [TOKEN.keys, STEP.keys, UPLOAD.keys, WINDOW.keys, NIC.keys, TERM.keys, SIZES];
        let nested = nested.concat();
        for key in [CLOUD, AGENT, MAPPING, ADDRESS_POOL, SERVICE].concat().into_iter().chain(nested)
        {
            let sound = match (key.kind, key.preset) {
                (_, Preset::Required | Preset::Unset) => true,
                (Kind::Whole(least, most), Preset::Whole(n)) => (least..=most).contains(&n),
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
