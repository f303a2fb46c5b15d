//! Keys of `agentDefaults`, `agentDefaults-<node>` and each entry of `agentConfigurations`.

use std::collections::{BTreeMap, BTreeSet};

use drover_model::container::GuestType;
use drover_model::os::LoginShell;
use drover_model::placement::Strategy;
use drover_model::spec::{CloneStrategy, JavaDistribution, Mode, ResetKind};
use serde::Deserialize;

use super::guest::{NIC, SNIPPETS};
use super::hardware::AGENT_HARDWARE;
use super::placement::{MOST_MEMORY, SIZE_LABELS, TERM, WEIGHTS};
use super::{
    Key, Kind, LAST_VMID, LONG, MANY, Raw, Table, choice, flag, key, mapping, mappings, names,
    text, texts, value, whole, zero_or,
};

/// How a used agent is made clean for its next lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum Reset {
    None,
    Disk,
    Memory,
}

impl Reset {
    pub(crate) fn kind(self) -> Option<ResetKind> {
        match self {
            Self::None => None,
            Self::Disk => Some(ResetKind::Disk),
            Self::Memory => Some(ResetKind::Memory),
        }
    }
}

/// Where drover learns the address of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum AddressFrom {
    GuestAgent,
    Static,
    Call,
}

/// The operating system of guests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum OsType {
    Linux,
    Windows,
}

/// The keys that find the template image.
pub(crate) const SOUGHT: [&str; 6] =
    ["templateVmId", "templateName", "templateNamePattern", "templateTag", "image", OS_TEMPLATE];

/// The key of what containers are made of in the place of a template image.
pub(crate) const OS_TEMPLATE: &str = "osTemplate";

/// The words of `templateSelectionMode`, each with the key that counts by it.
pub(crate) const SELECTION: [(&str, &str); 3] =
    [("STATIC_ID", SOUGHT[0]), ("NAME_REGEX", SOUGHT[2]), ("TAG", SOUGHT[3])];

/// The keys of storages of full clones.
pub(crate) const STORAGES: [&str; 2] = ["targetStorage", "targetStorages"];
/// The key of each text for cloud-init, and the key of a file with it.
pub(crate) const TEXTS: [[&str; 2]; 3] = [
    ["userData", "userDataFile"],
    ["metaData", "metaDataFile"],
    ["networkConfig", "networkConfigFile"],
];

static WAYS: [&[&str]; 6] =
    [&SOUGHT, &["node", "nodes"], &STORAGES, &TEXTS[0], &TEXTS[1], &TEXTS[2]];

table! {
    /// Keys of `agentDefaults`, `agentDefaults-<node>` and each entry of `agentConfigurations`.
    AGENT, ways: WAYS => RawAgent {
        "name" => name: Option<String>,
            text().filled("the name is blank", "remove the key: the name is then the key")
                .eg(r#""linux-builder""#),
            "display name, which leases may ask for; only in agentConfigurations; unset: the key";
        "cloudIds" => cloud_ids: Vec<String>,
            texts().required().eg(r#"["primary"]"#)
                .filled("no cloud is listed", "list at least one key of cloudConfigurations"),
            "keys of cloudConfigurations: the clouds that the template is on";
        "node" => node: Option<String>, text().eg(r#""pve1""#),
            "node of the agents, also selects agentDefaults-<node>; unset: the template's node";
        "nodes" => nodes: Option<Vec<String>>, texts().eg(r#"["pve1", "pve2"]"#),
            "several nodes in place of node, or \"*\" for all; placement chooses among them";
        "preferredNodes" => preferred_nodes: Vec<String>,
            texts().or_empty().check(value::filled),
            "nodes that drover uses first while they have room";
        "placement" => placement: Strategy,
            choice(&["TOPSIS", "SPREAD", "PACK", "FIXED"]).or_text("TOPSIS"),
            "choice of a node with room: TOPSIS most free resources, SPREAD fewest agents, PACK \
             the fullest, FIXED the first listed";
        "placementWeights", mapping(&WEIGHTS).eg("{memory: 60, cpu: 40}"),
            "weights of free memory and free processors for TOPSIS; unset: 60 and 40";
        "nodeSelector" => node_selector: Vec<String>, texts().or_empty().check(value::filled),
            "labels of nodeLabels that a node must have; without node and nodes, all such nodes";
        "affinity", mappings(&TERM),
            "for each term, the node must run an agent, or a guest with a tag, that matches it";
        "antiAffinity", mappings(&TERM),
            "the node must run no agent and no guest that matches any of these terms";
        "maxVmsPerNode" => max_vms_per_node: u32, whole(0..=MANY).or(0),
            "maximum number of running guests on a node, those of others included; 0: unlimited";
        "minFreeMemoryMb" => min_free_memory_mb: u64,
            key(Kind::Memory(0, MOST_MEMORY)).or(0).alias("minFreeMemory"),
            "memory that stays free on a node, beside headroom: MiB, or with a unit such as 4Gi; \
             0: none";
        "templateVmId" => template_vm_id: Option<u32>, whole(100..=LAST_VMID).eg("9000"),
            "VMID of the template image; this or one of the next five keys is required";
        "templateName",
            text().check(value::filled).eg(r#""debian-13""#).variable("TEMPLATE_NAME"),
            "name of the template image, unique on each node; the agent's node comes first";
        "templateNamePattern",
            text().check(value::pattern).alias("templateNameRegex").eg(r"'debian-13-\d+'"),
            "regular expression for the whole name; drover takes the newest match";
        "templateTag", text().check(value::template_tag).eg(r#""golden""#),
            "tag of the template image; drover takes the newest match";
        "image", text().check(value::filled).eg(r#""debian""#),
            "one of images: drover takes its newest version that the node reaches";
        "canary" => canary: bool, flag().or_flag(false),
            "one agent must get ready with a new configuration or template image before others have it";
        "rolloutMaxUnavailable" => rollout_max_unavailable: Option<u32>,
            whole(0..=MANY).eg("1"),
            "idle agents that a change of the template replaces at once; unset: a tenth of those that \
             are kept, at least one; 0: none, agents stay until they go by themselves";
        "osTemplate" => os_template: Option<String>, text().check(value::os_template)
                .eg(r#""local:vztmpl/debian-13-standard_13.1-2_amd64.tar.zst""#),
            "container template that new CONTAINER agents are made of, in place of a template \
             image; the node downloads it where it is missing";
        "templateSelectionMode",
            choice(&[SELECTION[0].0, SELECTION[1].0, SELECTION[2].0]).eg("TAG"),
            "which key counts: templateVmId, templateNamePattern or templateTag; unset: the one \
             given";
        "guestType" => guest_type: GuestType, choice(&["VM", "CONTAINER"]).or_text("VM"),
            "what the agents are: virtual machines, or LXC containers";
        "osTemplateUrl" => os_template_url: Option<String>,
            text().check(value::download).eg(r#""https://images.example.com/debian-13.tar.zst""#),
            "where the node downloads a missing osTemplate; unset: from Proxmox's own list";
        "osTemplateChecksum" => os_template_checksum: Option<String>,
            text().check(value::filled).eg(r#""9bc6028870ae…""#),
            "its checksum in hexadecimal digits; required with osTemplateUrl";
        "osTemplateChecksumAlgorithm" => os_template_checksum_algorithm: String,
            choice(&["md5", "sha1", "sha224", "sha256", "sha384", "sha512"]).or_text("sha256"),
            "what kind of checksum that is";
        "unprivileged" => unprivileged: bool, flag().or_flag(true),
            "false: root in new containers is root of the node; a clone is as its template is";
        "nesting" => nesting: bool, flag().or_flag(false),
            "true: containers may run inside the containers; false: as in the template image";
        "swapMb" => swap_mb: Option<u32>, whole(0..=MOST_MEMORY).eg("512"),
            "swap of containers in MiB; unset: that of the template image, else Proxmox's default";
        "labelString" => label_string: String, text().or_text("").variable("RUNNER_LABELS"),
            "labels, separated by blanks";
        "numExecutors" => num_executors: u32, whole(1..=1000).or(1),
            "number of leases or jobs at a time on one agent";
        "cloneStrategy" => clone_strategy: CloneStrategy,
            choice(&["FULL", "LINKED"]).or_text("FULL"),
            "FULL copies the disks, LINKED shares those of the template image";
        "targetStorage" => target_storage: String,
            text().or_text("").check(value::storage_or_none),
            "storage of full clones; blank: that of the template image";
        "targetStorages" => target_storages: Option<Vec<String>>,
            texts().check(value::storage).eg(r#"["nfs", "ceph"]"#),
            "several storages in place of targetStorage: the one with most free space, with \
             placement FIXED the first";
        "storageClass" => storage_class: String, text().or_text(""),
            "thin, thick, or one of the cloud's storageClasses: its storage with most free space; \
             blank: none";
        "fallbackTemplates", texts().or_empty(),
            "templates to use, in order, while this one's circuit breaker is open or its image \
             cannot be cloned";
        "targetPool" => target_pool: String, text().or_text(""),
            "resource pool of the clones; blank: none";
        "size" => size: String, text().or_text(""),
            "one of sizes, or such as cpu:4,memory:8192,disk:50; for cores, memoryMb and \
             diskSizeGb where they are 0";
        "cores" => cores: u32, whole(0..=8192).or(0),
            "processor cores; 0: those of the template image";
        "memoryMb" => memory_mb: u32, zero_or(16..=MOST_MEMORY).or(0),
            "memory in MiB; 0: that of the template image";
        "diskSizeGb" => disk_size_gb: u32, whole(0..=131_072).or(0),
            "size of the boot disk in GiB, never smaller than the template image's; 0: the same";
        "sizeLabels", mapping(&SIZE_LABELS).eg("{cpu: {max: 16}, memory: {max: 64Gi}}"),
            "labels such as cpu=8 that give an agent another size, with limits; unset: none does";
        "bridge" => bridge: String,
            text().or_text("").check(value::bridge).alias("networkBridge"),
            "bridge of net0; blank: that of the template image";
        "vlan" => vlan: u16, whole(0..=4094).or(0), "VLAN tag of net0; 0: as in the template image";
        "networks", mappings(&NIC),
            "all network cards, in place of bridge, vlan, ipConfig and ipConfigs; empty: as in the \
             template image";
        "hardware", mapping(&AGENT_HARDWARE),
            "virtual hardware that differs from the template image's";
        "onBoot" => on_boot: bool, flag().or_flag(false),
            "true: agents start when their node boots";
        "osType" => os_type: OsType, choice(&["LINUX", "WINDOWS"]).or_text("LINUX"),
            "operating system of the guests; a WINDOWS image must have OpenSSH and all settings \
             that cloud-init makes in Linux";
        "windowsLoginShell" => windows_login_shell: LoginShell,
            choice(&["AUTO", "CMD", "POWERSHELL"]).or_text("AUTO"),
            "login shell of OpenSSH in WINDOWS guests; AUTO: drover asks the guest; commands run \
             in cmd.exe in any case";
        "remoteFs" => remote_fs: String, text().or_text("").check(value::directory),
            "working directory in the guest; blank: /home/<user>/agent";
        "mode" => mode: Mode, choice(&["NORMAL", "EXCLUSIVE"]).or_text("EXCLUSIVE"),
            "NORMAL: the agents also take jobs and leases without labels";
        "credentialsId" => credentials_id: String,
            text().required().filled("the id is blank", "name an sshKey").eg(r#""agent-key""#),
            "an sshKey of credentials: drover's login in the guests";
        "javaDistribution" => java_distribution: JavaDistribution,
            choice(&["NONE", "OPENJDK", "CORRETTO"]).or_text("NONE"),
            "Java that drover installs in the guests; NONE: none";
        "javaMajorVersion" => java_major_version: u32, whole(1..=999).or(21),
            "major version of that Java; NONE ignores it";
        "javaPath" => java_path: String, text().or_text("java"),
            "java command of the image, for NONE; drover reports it when it is missing";
        "jvmOptions" => jvm_options: String, text().or_text(""),
            "JVM options of the Jenkins agent";
        "correttoRepositoryUrl" => corretto_repository_url: String,
            text().or_text("").check(value::repository),
            "package repository of Corretto; blank: Amazon's for the guest's package manager";
        "correttoKeyUrl" => corretto_key_url: String,
            text().or_text("").check(value::repository),
            "signing key of that repository; blank: corretto.key in it (apk: \
             amazoncorretto.rsa.pub)";
        "idleTerminationMinutes" => idle_termination_minutes: u64, whole(0..=LONG).or(30),
            "minutes an agent is idle before drover retires it; 0: never";
        "instanceCap" => instance_cap: u32, whole(0..=MANY).or(0),
            "maximum number of agents of the template; 0: unlimited";
        "instanceMin" => instance_min: u32, whole(0..=MANY).or(0).at_most("instanceCap"),
            "minimum number of agents, busy ones included; at most instanceCap; 0: none";
        "idleMin" => idle_min: u32, whole(0..=MANY).or(0).at_most("instanceCap"),
            "minimum number of idle agents, within all caps; 0: none";
        "schedule", mappings(&WINDOW),
            "times of the week with higher minimums";
        "maxTotalUses" => max_total_uses: u32, whole(0..=1_000_000_000).or(0),
            "leases or jobs before an agent retires; 0: leases unlimited, one job per executor";
        "singleUse" => single_use: bool, flag().or_flag(false),
            "true: each agent is used once, like maxTotalUses 1";
        "namePrefix" => name_prefix: String,
            text().or_text("").check(value::name_prefix).variable("RUNNER_NAME_PREFIX"),
            "text before the template's name in the names of guests";
        "startupWaitSeconds" => startup_wait_seconds: u64, whole(1..=LONG).or(60),
            "seconds from the start of the guest to the first SSH login";
        "ciUser" => ci_user: String, text().or_text(""),
            "cloud-init user; blank: that of the image";
        "ipConfig" => ip_config: String, text().or_text("ip=dhcp").check(value::ip_config),
            "cloud-init ipconfig0; blank: as in the template image";
        "addressPool" => address_pool: String, text().or_text(""),
            "one of addressPools: drover gives each agent an address of it; blank: none";
        "addressPool6" => address_pool6: String, text().or_text(""),
            "a second pool with IPv6 addresses, beside an IPv4 one; blank: none";
        "addressFrom" => address_from: Option<AddressFrom>,
            choice(&["guestAgent", "static", "call"]).eg("guestAgent"),
            "where drover learns the address: the QEMU guest agent, the configuration, or a call \
             of the guest; unset: static for a pool or one address in ipConfig, else guestAgent";
        "ipConfigs" => ip_configs: Vec<String>, texts().or_empty().check(value::ip_config),
            "cloud-init ipconfig1 and so on, for further network cards";
        "ciUpgrade" => ci_upgrade: bool, flag().or_flag(false),
            "true: cloud-init upgrades all packages at the first boot";
        "nameserver" => nameserver: String, text().or_text("").check(value::nameserver),
            "cloud-init DNS servers; blank: those of the node";
        "searchDomain" => search_domain: String, text().or_text("").alias("searchdomain"),
            "cloud-init DNS search domains; blank: those of the node";
        "userData", text().eg(r##""#cloud-config\nhostname: ${hostname}\n""##),
            "cloud-init user data, in place of ciUser and Proxmox's other cloud-init keys; no \
             secrets";
        "userDataFile", text().eg(r#""files/user-data.yaml""#).variable("USER_DATA_TEMPLATE"),
            "file with the user data, relative to this file, in place of userData";
        "metaData", text().eg(r#""instance-id: ${instanceId}""#),
            "cloud-init meta data, a YAML mapping; unset: id and name of the agent";
        "metaDataFile", text().eg(r#""files/meta-data.yaml""#),
            "file with the meta data, relative to this file, in place of metaData";
        "networkConfig", text().eg(r#""version: 2""#),
            "cloud-init network config; unset: drover writes it from networks";
        "networkConfigFile", text().eg(r#""files/network-config.yaml""#),
            "file with the network config, relative to this file, in place of networkConfig";
        "userDataValues" => user_data_values: BTreeMap<String, String>, names().or_empty(),
            "values for ${name} in these texts, beside the built-in ones; no secrets";
        "cloudInitIsoStorage" => cloud_init_iso_storage: Option<String>,
            text().check(value::storage_or_none).eg(r#""local""#),
            "storage of the ISO images with these texts; unset: that of the cloud";
        "cloudInitCustom", mapping(&SNIPPETS).eg(r#"{user: "local:snippets/ci.yaml"}"#),
            "snippets on a storage, in place of userData; Proxmox's API cannot upload them";
        "sshPort" => ssh_port: u16, whole(1..=65_535).or(22), "SSH port of the guests";
        "guestNetworks" => guest_networks: Vec<String>, texts().or_empty().check(value::cidr),
            "CIDRs for the guest's address; empty: drover takes any usable address";
        "tags" => tags: BTreeSet<String>, texts().or_empty().check(value::tag),
            "Proxmox tags of the guests, beside drover's own";
        "description" => description: String, text().or_text(""), "text for the guests' notes";
        "prepare", mappings(&STEP),
            "steps that prepare an agent over SSH, in order, after Java; no secrets";
        "readyCommand" => ready_command: String, text().or_text(""),
            "command that must succeed before an agent is ready; blank: none";
        "reset" => reset: Reset, choice(&["NONE", "DISK", "MEMORY"]).or_text("NONE"),
            "after a lease the agent goes back to a snapshot of its disks, or of disks and memory, \
             and serves the same owner again; NONE: no snapshot";
        "resetTimeoutSec" => reset_timeout_sec: u64, whole(1..=LONG).or(300),
            "seconds for a reset; then drover destroys the agent";
        "closeSshBeforeDelete" => close_ssh_before_delete: bool, flag().or_flag(false),
            "true: before drover destroys an agent, it blocks SSH inside the guest and stops the \
             guest hard";
        "queueTimeoutSec" => queue_timeout_sec: u64, whole(1..=LONG).or(600),
            "seconds a new agent waits for its turn to be cloned";
        "cloneTimeoutSec" => clone_timeout_sec: u64, whole(1..=LONG).or(1800),
            "seconds for a clone in all, checks of an uncertain outcome included";
        "prepareTimeoutSec" => prepare_timeout_sec: u64, whole(1..=LONG).or(600),
            "seconds for all of the preparation over SSH";
        "shutdownTimeoutSec" => shutdown_timeout_sec: u64, whole(0..=LONG).or(60),
            "seconds for a graceful shutdown; 0: drover stops the guest at once";
        "retireTimeoutSec" => retire_timeout_sec: u64, whole(1..=LONG).or(900),
            "seconds to destroy an agent before drover raises an alarm";
        "maxLifetimeMinutes" => max_lifetime_minutes: u64, whole(0..=LONG).or(0),
            "maximum minutes an agent lives; drover replaces idle ones earlier; 0: unlimited";
        "breakerThreshold" => breaker_threshold: u32, whole(1..=1000).or(3),
            "failures in a row that open the template's circuit breaker";
        "breakerCooldownSec" => breaker_cooldown_sec: u64,
            whole(1..=LONG).or(120).at_most("breakerCooldownCapSec"),
            "seconds the circuit breaker stays open the first time";
        "breakerCooldownCapSec" => breaker_cooldown_cap_sec: u64, whole(1..=LONG).or(1800),
            "maximum seconds the circuit breaker stays open";
    }
}

table! {
    /// Keys of each item of `schedule`.
    WINDOW => RawWindow {
        "cron" => cron: String, text().required().check(value::cron).eg(r#""0 8 * * mon-fri""#),
            "when the window opens: minute, hour, day of the month, month, day of the week";
        "durationMinutes" => duration_minutes: u64, whole(1..=44_640).required().eg("600"),
            "minutes the window is open; then drover retires the idle agents it kept for it";
        "timeZone" => time_zone: String, text().or_text("UTC").check(value::time_zone),
            "IANA time zone of the pattern";
        "instanceMin" => instance_min: u32, whole(0..=MANY).or(0),
            "instanceMin in the window, where that is more; 0: none";
        "idleMin" => idle_min: u32, whole(0..=MANY).or(0),
            "idleMin in the window, where that is more; 0: none";
    }
}

/// What a step of `prepare` does; exactly one is given.
static STEP_WORK: [&str; 3] = ["run", "upload", "packages"];

table! {
    /// Keys of each item of `prepare`.
    STEP, one_of: STEP_WORK => RawStep {
        "name" => name: Option<String>, text().check(value::step_name).eg(r#""docker""#),
            "name shown while the step runs; unset: its number and what it does";
        "run" => run: Option<String>,
            text().filled("it is empty", "remove the step").eg(r#""systemctl is-active docker""#),
            "command for the login shell; drover runs it again after a lost connection";
        "upload", mapping(&UPLOAD), "a file to copy into the guest";
        "packages" => packages: Option<Vec<String>>,
            texts().check(value::package).filled("it is empty", "remove the step")
                .eg(r#"["git", "jq"]"#),
            "packages for the guest's own package manager: apt-get, dnf, yum, zypper or apk";
        "timeoutSec" => timeout_sec: u64, whole(1..=LONG).or(300),
            "seconds for the step, within prepareTimeoutSec";
    }
}

table! {
    /// Keys of `upload` in a step of `prepare`.
    UPLOAD => RawUpload {
        "from" => from: String, text().required().eg(r#""files/ci.conf""#),
            "file relative to this one, at most 4 MiB; drover reads it again when it changes";
        "to" => to: String, text().required().check(value::guest_file).eg(r#""ci.conf""#),
            "path in the guest, absolute or in the login user's home; its directory must exist";
        "mode" => mode: String, text().or_text("0644").check(value::octal_mode),
            "permissions of the file, octal";
    }
}
