//! Keys of each entry of `demand`.

use super::{
    Key, Kind, LONG, Preset, SECRET, SECRET_ENV, SECRET_FILE, SECRET_KEYS, SYSTEMD, Shape,
};
use super::{key, text, whole};
use crate::value;

/// Keys of `webhook`.
static WEBHOOK: Shape =
    Shape { keys: &[SECRET_FILE, SECRET_ENV, SYSTEMD, SECRET], one_of: &SECRET_KEYS };

/// Keys that not every kind has, with the kinds that have them.
pub(crate) static OF_KINDS: &[(&str, &[&str])] = &[
    ("url", SYSTEMS),
    ("credentialsId", SYSTEMS),
    ("scope", &["gitea", "forgejo", "github", "gitlab"]),
    ("labels", SYSTEMS),
    ("pollSeconds", SYSTEMS),
    ("registerTimeoutSec", SYSTEMS),
    ("idleTimeoutSec", SYSTEMS),
    ("jobTimeoutMinutes", SYSTEMS),
    ("runnerCommand", WITH_RUNNERS),
    ("launch", &["jenkins"]),
    ("launchCredentialsId", &["jenkins"]),
    ("runUntagged", &["gitlab"]),
    ("grpcServer", &["woodpecker"]),
    ("grpcSecure", &["woodpecker"]),
    ("webhook", &["gitea", "forgejo", "github", "gitlab"]),
    ("caFile", SYSTEMS),
    ("pinSha256", SYSTEMS),
    ("ignoreSslErrors", SYSTEMS),
    ("proxy", SYSTEMS),
    ("repositories", &["github"]),
    ("runnerGroup", &["github"]),
    ("registration", &["github"]),
    ("mode", &["github"]),
    ("scaleSet", &["github"]),
];

/// All kinds but the lease API.
const SYSTEMS: &[&str] = &["gitea", "forgejo", "github", "gitlab", "woodpecker", "jenkins"];

/// Those whose agents run a program of theirs that can be another.
const WITH_RUNNERS: &[&str] = &["gitea", "forgejo", "github", "gitlab", "woodpecker"];

pub(crate) static DEMAND: &[Key] = &[
    key(
        "kind",
        Kind::Choice(&["gitea", "forgejo", "github", "gitlab", "woodpecker", "jenkins", "leases"]),
        Preset::Required,
        "the kind of system; leases: the lease API, which has a share like the others",
    ),
    text("url", Preset::Unset, "where it is, such as https://git.lan; unset: of github https://api.github.com; not of leases")
        .checked(value::url),
    text(
        "credentialsId",
        Preset::Unset,
        "an apiToken, of github also a githubApp, of jenkins an apiLogin; not of leases",
    ),
    text(
        "scope",
        Preset::Unset,
        "whose jobs: server, org/NAME, user, repo/OWNER/NAME; of github org, repo or enterprise/NAME; \
         of gitlab server, group/PATH, project/PATH; unset: the server's",
    )
    .checked(value::filled),
    key(
        "labels",
        Kind::Texts,
        Preset::Unset,
        "labels that its jobs may want; jobs that want others are left alone; unset: all",
    )
    .checked(value::label),
    whole("weight", 1, 1000, 1, "its part of the machines beside the others' weights"),
    whole("priority", 0, 1000, 0, "a higher one goes first, until others have waited long"),
    whole("instanceCap", 0, 1_000_000, 0, "most agents at once; 0: unlimited"),
    whole("pollSeconds", 1, 3600, 10, "seconds between two looks; unset: of github 60"),
    whole("registerTimeoutSec", 5, LONG, 120, "seconds a runner may take to connect"),
    whole("idleTimeoutSec", 5, LONG, 300, "seconds a runner may be without a job"),
    whole("jobTimeoutMinutes", 1, LONG, 360, "minutes a job may take"),
    text(
        "runnerCommand",
        Preset::Unset,
        "what runs a runner, in its folder in the guest; unset: the kind's own program",
    )
    .checked(value::filled),
    key(
        "runUntagged",
        Kind::Flag,
        Preset::Unset,
        "of gitlab: whether jobs without tags are wanted; unset: false",
    ),
    text(
        "grpcServer",
        Preset::Unset,
        "of woodpecker: host and port that agents connect to; required there",
    )
    .checked(value::filled),
    key(
        "grpcSecure",
        Kind::Flag,
        Preset::Unset,
        "of woodpecker: whether agents connect by TLS; unset: true",
    ),
    key(
        "launch",
        Kind::Choice(&["websocket", "inboundTcp", "ssh"]),
        Preset::Unset,
        "how agents come to Jenkins; unset: websocket; ssh: Jenkins connects to them",
    ),
    text(
        "launchCredentialsId",
        Preset::Unset,
        "for launch ssh: the credential in Jenkins that logs in to agents",
    ),
    key(
        "webhook",
        Kind::Mapping(&WEBHOOK),
        Preset::Unset,
        "the secret of its webhooks; unset: none",
    ),
    text("caFile", Preset::Unset, "PEM bundle to trust; with no TLS key at all: system roots"),
    key(
        "pinSha256",
        Kind::Texts,
        Preset::Unset,
        "certificate fingerprints, any of them, for caFile",
    )
    .checked(value::pin),
    key("ignoreSslErrors", Kind::Flag, Preset::Flag(false), "true: no verification; warned about"),
    text(
        "proxy",
        Preset::Unset,
        "URL of the proxy it is reached by; none: directly; unset: as HTTPS_PROXY, HTTP_PROXY and NO_PROXY say",
    )
    .checked(value::proxy),
    key(
        "repositories",
        Kind::Texts,
        Preset::Unset,
        "github: repositories whose jobs are read, OWNER/NAME or of an org NAME; unset: all of the org",
    )
    .checked(value::filled),
    text("runnerGroup", Preset::Unset, "github: the runners' group, name or id; unset: the default one")
        .checked(value::filled),
    key(
        "registration",
        Kind::Choice(&["jit", "token"]),
        Preset::Unset,
        "github: jit: guests get one runner's login; token: one for any number, for old servers; unset: jit",
    ),
    key(
        "mode",
        Kind::Choice(&["poll", "scaleSet"]),
        Preset::Unset,
        "github: poll: lists of jobs are read; scaleSet: a scale set tells of them; unset: poll",
    ),
    text("scaleSet", Preset::Unset, "github: the scale set's name, for mode scaleSet")
        .checked(value::filled),
];
