//! Keys of `service.configSync`, `service.ageIdentity` and `service.clusterKey`.

use std::path::PathBuf;

use super::{Key, Kind, Raw, Table, flag, key, text, value, whole};

table! {
    /// Keys of `service.configSync`.
    CONFIG_SYNC => RawConfigSync {
        "repository" => repository: String,
            text().required().check(value::git_repository)
                .eg(r#""https://git.example.com/ci/machines.git""#),
            "git repository: https, ssh, or file; without a login in it";
        "branch" => branch: String, text().or_text("main").check(value::branch),
            "branch to read";
        "path" => path: String, text().or_text("proxmox-cloud.yaml").check(value::path_in_git),
            "YAML file in the repository, or a folder of YAML files";
        "credentialsId" => credentials_id: Option<String>, text().eg("git"),
            "credential of kind apiToken, apiLogin or sshKey; unset: none";
        "schedule" => schedule: Option<String>, text().check(value::cron).eg(r#""*/5 * * * *""#),
            "cron pattern of the automatic sync; unset: only `drover sync`";
        "timeZone" => time_zone: String, text().or_text("UTC").check(value::time_zone),
            "IANA time zone of the schedule";
        "allowManualChanges" => allow_manual_changes: bool, flag().or_flag(true),
            "false: nobody can change what git manages, except in git; true: the next sync undoes \
             such changes";
        "caFile" => ca_file: Option<PathBuf>, text().eg("/etc/drover/git-ca.pem"),
            "CA certificates for https, PEM; unset: those of the system";
        "knownHosts" => known_hosts: Vec<String>,
            key(Kind::Texts).or_empty(),
            "host keys for ssh, as lines of known_hosts; `ssh-keyscan HOST` prints them";
        "timeoutSec" => timeout_sec: u64, whole(5..=3600).or(120),
            "maximum seconds of one sync";
    }
}

static IDENTITY_KEYS: [&str; 3] = ["secretFile", "secretEnv", "systemdCredential"];

table! {
    /// Keys of `service.ageIdentity`.
    AGE_IDENTITY, one_of: IDENTITY_KEYS {
        "secretFile", text().eg("/etc/drover/age.key"), "file that only its owner can read";
        "secretEnv", text().eg("DROVER_AGE_KEY"), "variable of the environment";
        "systemdCredential", text().eg("age"), "credential that the unit's LoadCredential= names";
    }
}

table! {
    /// Keys of `service.clusterKey`.
    CLUSTER_KEY, one_of: IDENTITY_KEYS {
        "secretFile", text().eg("/etc/drover/cluster.key"), "file that only its owner can read";
        "secretEnv", text().eg("DROVER_CLUSTER_KEY"), "variable of the environment";
        "systemdCredential", text().eg("cluster-key"),
            "credential that the unit's LoadCredential= names";
    }
}
