//! Keys of each entry of `demand`. A key that names kinds of sources is a fault in the others.

use std::collections::BTreeSet;

use drover_ci::github::Registration;
use serde::Deserialize;

use SourceKind::{Forgejo, GitHub, GitLab, Gitea, Jenkins, Leases, Woodpecker};

use super::credential::{SECRET_KEYS, SECRETS};
use super::{Key, LONG, MANY, Raw, Table, choice, flag, mapping, text, texts, value, whole};

/// The mode of Jenkins to connect agents.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Launch {
    Websocket,
    InboundTcp,
    Ssh,
}

/// How drover learns of GitHub's jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Mode {
    Poll,
    ScaleSet,
}

/// The kinds of sources.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum SourceKind {
    Gitea,
    Forgejo,
    GitHub,
    GitLab,
    Woodpecker,
    Jenkins,
    /// The lease API.
    Leases,
}

impl SourceKind {
    /// The kind as it is written.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Gitea => "gitea",
            Self::Forgejo => "forgejo",
            Self::GitHub => "github",
            Self::GitLab => "gitlab",
            Self::Woodpecker => "woodpecker",
            Self::Jenkins => "jenkins",
            Self::Leases => "leases",
        }
    }
}

/// All kinds as they are written.
static KINDS: [&str; 7] = [
    Gitea.word(),
    Forgejo.word(),
    GitHub.word(),
    GitLab.word(),
    Woodpecker.word(),
    Jenkins.word(),
    Leases.word(),
];
/// All kinds but the lease API.
pub(crate) const SYSTEMS: &[SourceKind] = &[Gitea, Forgejo, GitHub, GitLab, Woodpecker, Jenkins];
/// Kinds whose agents run a runner program, which another command can replace.
const WITH_RUNNERS: &[SourceKind] = &[Gitea, Forgejo, GitHub, GitLab, Woodpecker];
/// Kinds with scopes and webhooks.
pub(crate) const FORGES: &[SourceKind] = &[Gitea, Forgejo, GitHub, GitLab];

static WAYS: [&[&str]; 1] = [&["caFile", "pinSha256", "ignoreSslErrors"]];

table! {
    /// Keys of `webhook`.
    WEBHOOK, one_of: SECRET_KEYS, shared: SECRETS {}
}

table! {
    /// Keys of each entry of `demand`.
    DEMAND, ways: WAYS => RawDemand {
        "kind" => kind: SourceKind,
            choice(&KINDS).required().eg("gitea"),
            "kind of the source; leases is the lease API, which has a share like the others";
        "url" => url: Option<String>,
            text().check(value::url).only(SYSTEMS).eg(r#""https://git.lan""#),
            "URL of the CI system; unset: for github https://api.github.com, else required";
        "credentialsId" => credentials_id: Option<String>,
            text().only(SYSTEMS).eg(r#""git-token""#),
            "an apiToken of credentials; for github also a githubApp, for jenkins an apiLogin";
        "scope" => scope: Option<String>,
            text().check(value::filled).only(FORGES).eg("org/builders"),
            "whose jobs: gitea and forgejo server, org/NAME, user or repo/OWNER/NAME; github \
             repo/…, org/… or enterprise/NAME; gitlab server, group/PATH or project/PATH; unset: \
             server";
        "labels" => labels: Option<BTreeSet<String>>,
            texts().check(value::label).only(SYSTEMS).eg(r#"["linux", "x64"]"#),
            "labels that drover serves for this source; it ignores jobs with others; unset: all";
        "weight" => weight: u32, whole(1..=1000).or(1),
            "share of the machines, relative to the weights of the other sources";
        "priority" => priority: i32, whole(0..=1000).or(0),
            "the source with the highest priority goes first, until others have waited long";
        "instanceCap" => instance_cap: u32, whole(0..=MANY).or(0),
            "maximum number of agents of this source; 0: unlimited";
        "pollSeconds" => poll_seconds: u64, whole(1..=3600).or(10).only(SYSTEMS),
            "seconds between two polls; unset: for github 60";
        "registerTimeoutSec" => register_timeout_sec: u64, whole(5..=LONG).or(120).only(SYSTEMS),
            "seconds for a runner to connect";
        "idleTimeoutSec" => idle_timeout_sec: u64, whole(5..=LONG).or(300).only(SYSTEMS),
            "seconds a runner may be without a job";
        "jobTimeoutMinutes" => job_timeout_minutes: u64, whole(1..=LONG).or(360).only(SYSTEMS),
            "minutes for one job";
        "runnerCommand" => runner_command: Option<String>,
            text().check(value::filled).only(WITH_RUNNERS)
                .eg(r#""exec gitea-runner daemon --config config.yaml""#),
            "command that runs a runner, in its directory in the guest; unset: the kind's own \
             program";
        "runUntagged" => run_untagged: Option<bool>, flag().only(&[GitLab]).eg("true"),
            "true: serves jobs without tags too; unset: false";
        "grpcServer" => grpc_server: Option<String>,
            text().check(value::grpc_server).only(&[Woodpecker]).eg(r#""ci.lan:9000""#),
            "host and port that agents connect to; required for woodpecker";
        "grpcSecure" => grpc_secure: Option<bool>, flag().only(&[Woodpecker]).eg("false"),
            "true: agents connect by TLS; unset: true";
        "launch" => launch: Option<Launch>,
            choice(&["websocket", "inboundTcp", "ssh"]).only(&[Jenkins]).eg("ssh"),
            "how agents connect to Jenkins; ssh: Jenkins connects to them; unset: websocket";
        "launchCredentialsId" => launch_credentials_id: Option<String>,
            text().only(&[Jenkins]).eg("agent-key"),
            "for launch ssh: the credential in Jenkins that logs in to the agents";
        "webhook", mapping(&WEBHOOK).only(FORGES).eg("{secretFile: /etc/drover/git-webhook}"),
            "secret of the source's webhooks; unset: drover takes none";
        "caFile", text().only(SYSTEMS).eg("/etc/drover/git-ca.pem"),
            "PEM file of trusted CA certificates; without any TLS key: the system's CAs";
        "pinSha256",
            texts().check(value::pin).only(SYSTEMS).eg(r#"["AB:CD:..."]"#),
            "SHA-256 fingerprints of accepted certificates, in place of caFile";
        "ignoreSslErrors", flag().or_flag(false).only(SYSTEMS),
            "true: certificates are not verified; drover warns about it";
        "proxy" => proxy: Option<String>,
            text().check(value::proxy).only(SYSTEMS).eg("http://proxy.lan:3128"),
            "URL of the HTTP proxy; none: no proxy; unset: HTTPS_PROXY, HTTP_PROXY and NO_PROXY";
        "repositories" => repositories: Option<Vec<String>>,
            texts().check(value::filled).only(&[GitHub]).eg(r#"["builders/app"]"#),
            "repositories to serve: OWNER/NAME, or NAME in an org; unset: all of the scope";
        "runnerGroup" => runner_group: Option<String>,
            text().check(value::filled).only(&[GitHub]).eg(r#""Default""#),
            "runner group, name or id; unset: the default group";
        "registration" => registration: Option<Registration>,
            choice(&["jit", "token"]).only(&[GitHub]).eg("jit"),
            "jit: each guest gets the login of one runner; token: a registration token, for old \
             servers; unset: jit";
        "mode" => mode: Option<Mode>, choice(&["poll", "scaleSet"]).only(&[GitHub]).eg("scaleSet"),
            "poll: drover polls lists of jobs; scaleSet: a scale set reports them; unset: poll";
        "scaleSet" => scale_set: Option<String>,
            text().check(value::filled).only(&[GitHub]).eg("drover"),
            "name of the scale set, for mode scaleSet";
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test says what it expects")]

    use super::*;

    // Invariant: a kind that drover knows can be written, and one that can be written is known.

    #[test]
    fn every_kind_can_be_written_and_is_read() {
        let refused = serde_yaml::from_str::<SourceKind>("none").unwrap_err().to_string();
        let known: Vec<&str> = refused.split('`').skip(3).step_by(2).collect();
        assert_eq!(known, KINDS, "{refused}");
        assert_eq!(
            KINDS[..SYSTEMS.len()],
            *SYSTEMS.iter().map(|kind| kind.word()).collect::<Vec<_>>()
        );
    }
}
