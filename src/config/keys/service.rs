//! Keys of `service`.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;

use drover_api::Role;
use drover_model::stop::StopPolicy;
use drover_model::tenant::LeaseLimits;

use super::credential::{SECRET_KEYS, SECRETS};
use super::history::{HISTORY, PRICES};
use super::notify::NOTIFY;
use super::openid::OPEN_ID;
use super::sync::{AGE_IDENTITY, CLUSTER_KEY, CONFIG_SYNC};
use super::traces::TRACES;
use super::{
    Key, Kind, LONG, MANY, Raw, Table, choice, flag, key, mapping, mappings, text, value, whole,
    zero_or,
};

pub(super) const ROLES: &[&str] = &["viewer", "operator", "admin"];
const IDS: std::ops::RangeInclusive<u64> = 0..=u32::MAX as u64;

table! {
    /// Keys of `service`.
    SERVICE => RawService {
        "stateDirectory" => state_directory: Option<PathBuf>, text().eg("/var/lib/drover"),
            "directory of the journal and keys; unset: STATE_DIRECTORY, else /var/lib/drover";
        "store" => store: Option<String>,
            text().eg(r#""etcd://10.0.0.1:2379,10.0.0.2:2379,10.0.0.3:2379/drover""#),
            "store of the journal that several drovers share, one of which leads: etcd://, s3:// or \
             gs://; DROVER_STORE of the environment wins; unset: the journal is a file of the state \
             directory, for one drover";
        "clusterKey", mapping(&CLUSTER_KEY).eg("{secretFile: /etc/drover/cluster.key}"),
            "key that all members of a store have; it encrypts what lies beside the journal; unset: the \
             file that DROVER_CLUSTER_KEY_FILE of the environment names";
        "leaderLeaseSec" => leader_lease_sec: u64, whole(2..=300).or(5),
            "seconds after which another member leads when the leader is silent; for a store";
        "socket" => socket: Option<PathBuf>, text().eg("/run/drover/drover.sock"),
            "Unix socket of the API; unset: drover.sock in RUNTIME_DIRECTORY, else in /run/drover";
        "socketMode" => socket_mode: Option<String>,
            text().check(value::octal_mode).eg(r#""0660""#),
            "permissions of the socket, octal; unset: 0666 with allowedUids or allowedGids, else \
             0600";
        "allowedUids" => allowed_uids: BTreeSet<u32>, key(Kind::Wholes).or_empty(),
            "users that may use the socket as operators; root and drover's own user are admins";
        "allowedGids" => allowed_gids: BTreeSet<u32>, key(Kind::Wholes).or_empty(),
            "groups that may use the socket as operators; only a caller's effective group counts, \
             not its supplementary ones (run `newgrp`, or use allowedUids)";
        "peers", mappings(&PEER),
            "users and groups of the socket with their roles, and groups whose leases they share";
        "listen" => listen: Option<SocketAddr>,
            text().check(value::listen).eg(r#""127.0.0.1:8080""#),
            "address and port of the API over TCP; unset: none";
        "listenPlain" => listen_plain: bool, flag().or_flag(false),
            "true: listens beyond this machine without TLS; others can read tokens on the way";
        "tokens", mappings(&TOKEN), "callers of the API over TCP";
        "openId", mapping(&OPEN_ID)
                .eg(
                    "{issuer: \"https://id.example.com\", clientId: drover, secretFile: /etc/drover/id, \
                     redirectUrl: \"https://drover.example.com/login/openid/callback\", \
                     groups: [{name: ci, role: viewer}]}",
                ),
            "provider of OpenID Connect at which people log in for the page; unset: none";
        "configSync", mapping(&CONFIG_SYNC)
                .eg(r#"{repository: "https://git.example.com/ci/machines.git", schedule: "*/5 * * * *"}"#),
            "git repository with part of the configuration; unset: none";
        "ageIdentity", mapping(&AGE_IDENTITY).eg("{secretFile: /etc/drover/age.key}"),
            "identity of age that reads each `secretAge`; unset: none";
        "leases", mapping(&LEASES)
                .eg(r#"{maxWaitSeconds: 3600, quotas: [{group: "build", maxLeases: 40}]}"#),
            "limits of leases; unset: the defaults of its keys";
        "audit", mapping(&AUDIT).eg("{onFailure: refuse}"),
            "the audit log; unset: the defaults of its keys";
        "blackBox", mapping(&BLACK_BOX).eg("{keepDays: 30}"),
            "what stays of agents that failed; unset: the defaults of its keys";
        "history", mapping(&HISTORY).eg("{keepDays: 365}"),
            "what drover keeps of the past for `drover usage` and `drover trace`; unset: the defaults of \
             its keys";
        "prices", mapping(&PRICES).eg(r#"{coreHour: "0.012", gibHour: "0.004", currency: EUR}"#),
            "what machines cost, for `drover usage`; unset: usage has no price";
        "notify", mapping(&NOTIFY)
                .eg(r#"{ntfy: [{name: phone, topic: drover-ops}]}"#),
            "messages to people about what is wrong; unset: none";
        "traces", mapping(&TRACES)
                .eg(
                    "{endpoint: \"https://otel.example.com:4318/v1/traces\", \
                     headers: [{name: Authorization, secretFile: /etc/drover/otel}]}",
                ),
            "collector of OpenTelemetry that takes a trace of each agent; unset: drover sends none";
        "onStop" => on_stop: StopPolicy,
            choice(&["keep", "retireIdle", "retireAll"]).or_text("keep"),
            "agents when drover stops: keep all, retireIdle, or retireAll with their leases and \
             holds";
        "stopTimeoutSec" => stop_timeout_sec: u64, whole(1..=LONG).or(90),
            "maximum seconds a stop waits for agents, less than the unit's TimeoutStopSec; the \
             next start continues with the others";
        "orphanCleanupPeriodSeconds" => orphan_cleanup_period_seconds: u64,
            zero_or(30..=LONG).or(0),
            "seconds between two reconciliations, for all clouds; 0: as each cloud says";
        "logLevel" => log_level: Option<String>, text().check(value::log_level).eg("info"),
            "error, warn, info, debug, trace or a filter; LOG_LEVEL of the environment wins";
    }
}

table! {
    /// Keys of each item of `service.tokens`.
    TOKEN, one_of: SECRET_KEYS, shared: SECRETS => RawToken {
        "name" => name: String, text().required().eg(r#""jenkins""#),
            "name of the caller, for the records";
        "role" => role: Role, choice(ROLES).required().eg("operator"), "what the caller may do";
        "group" => group: Option<String>, text().eg(r#""build""#),
            "group whose leases the caller shares; unset: none";
    }
}

static PEER_KEYS: [&str; 2] = ["uid", "gid"];

table! {
    /// Keys of each item of `service.peers`.
    PEER, one_of: PEER_KEYS => RawPeer {
        "uid" => uid: Option<u32>, whole(IDS).eg("1000"), "a user, by number";
        "gid" => gid: Option<u32>, whole(IDS).eg("1000"), "a group, by number";
        "role" => role: Role, choice(ROLES).or_text("operator"), "what they may do";
        "group" => group: Option<String>, text().eg(r#""build""#),
            "group whose leases they share; unset: none";
    }
}

/// What the service does where the audit log cannot be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in super::super) enum OnFailure {
    GoOn,
    Refuse,
}

/// The most that the files of the audit log have by default, in MiB.
pub(in super::super) const AUDIT_MIB: u64 = 512;

table! {
    /// Keys of `service.audit`.
    AUDIT => RawAudit {
        "onFailure" => on_failure: OnFailure, choice(&["goOn", "refuse"]).or_text("goOn"),
            "when no record can be written: goOn with an alarm, or refuse calls that change something";
        "keepMB" => keep_mb: u64, whole(32..=1_000_000).or(AUDIT_MIB),
            "maximum size in MiB of all files; drover removes the oldest";
    }
}

/// How long black boxes stay by default, in days, and how much of them, in MiB.
pub(in super::super) const BLACK_BOX_KEEP: (u64, u64) = (14, 256);

table! {
    /// Keys of `service.blackBox`.
    BLACK_BOX => RawBlackBox {
        "keepDays" => keep_days: u64, whole(1..=3650).or(BLACK_BOX_KEEP.0),
            "days after which drover removes what it kept of an agent that failed";
        "keepMB" => keep_mb: u64, whole(1..=1_000_000).or(BLACK_BOX_KEEP.1),
            "maximum size in MiB of all that is kept; drover removes the oldest";
    }
}

table! {
    /// Keys of `service.leases`.
    LEASES => RawLeases {
        "maxWaiting" => max_waiting: u32, whole(1..=MANY).or(LeaseLimits::WAITING as u64),
            "maximum number of leases that wait for an agent; drover refuses further ones";
        "maxWaitingPerPrincipal" => max_waiting_per_principal: u32,
            whole(1..=MANY).or(LeaseLimits::WAITING_EACH as u64),
            "the same for one principal (a token, or a user of the socket)";
        "maxWaitSeconds" => max_wait_seconds: u64,
            whole(1..=LONG).or(LeaseLimits::WAIT_SECONDS as u64),
            "seconds a lease waits for an agent, where its request does not say";
        "quotas", mappings(&QUOTA), "limits of single principals and groups";
    }
}

static QUOTA_KEYS: [&str; 2] = ["principal", "group"];

table! {
    /// Keys of each item of `service.leases.quotas`.
    QUOTA, one_of: QUOTA_KEYS => RawQuota {
        "principal" => principal: Option<String>, text().eg(r#""token:ci""#),
            "the principal, such as `token:ci` or `uid:1000`";
        "group" => group: Option<String>, text().eg(r#""build""#),
            "the group; its members count together";
        "maxLeases" => max_leases: Option<u32>, whole(1..=MANY).eg("40"),
            "maximum number of leases, waiting ones included; unset: unlimited";
        "maxWaiting" => max_waiting: Option<u32>, whole(1..=MANY).eg("20"),
            "maximum number of waiting leases; unset: unlimited";
        "maxCores" => max_cores: Option<u32>, whole(1..=8192).eg("16"),
            "maximum processor cores of one machine; unset: unlimited";
        "maxMemoryMB" => max_memory_mb: Option<u32>, whole(1..=100_000_000).eg("65536"),
            "maximum memory of one machine in MiB; unset: unlimited";
        "maxDiskGB" => max_disk_gb: Option<u32>, whole(1..=1_000_000).eg("200"),
            "maximum boot disk of one machine in GiB; unset: unlimited";
    }
}
