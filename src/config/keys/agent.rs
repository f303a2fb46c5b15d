//! The keys that agents know.

use super::{Key, Kind, LAST_VMID, LONG, Preset, Shape, guest, key, placement, text, whole};
use crate::value;

/// Keys of `agentDefaults`, `agentDefaults-<node>` and each entry of `agentConfigurations`.
pub(crate) static AGENT: &[Key] = &[
    text(
        "name",
        Preset::Unset,
        "display name, by which leases may ask for it too; only in agentConfigurations; unset: its key",
    ),
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
    placement::PREFERRED,
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
    .checked(value::pattern)
    .also("templateNameRegex"),
    text("templateTag", Preset::Unset, "a tag that the template carries; the newest wins")
        .checked(value::template_tag),
    key(
        "templateSelectionMode",
        Kind::Choice(&["STATIC_ID", "NAME_REGEX", "TAG"]),
        Preset::Unset,
        "templateVmId, templateNamePattern or templateTag alone counts; unset: the one that is given",
    ),
    text("labelString", Preset::Text(""), "labels, separated by blanks"),
    whole("numExecutors", 1, 1000, 1, "uses at once on one agent"),
    key("cloneStrategy", Kind::Choice(&["FULL", "LINKED"]), Preset::Text("FULL"), "FULL or LINKED"),
    text("targetStorage", Preset::Text(""), "storage of full clones; blank: the template's")
        .checked(value::storage_or_none),
    key(
        "targetStorages",
        Kind::Texts,
        Preset::Unset,
        "several, for targetStorage: the one with most free space, with placement FIXED the first",
    )
    .checked(value::storage),
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
        .checked(value::bridge)
        .also("networkBridge"),
    whole("vlan", 0, 4094, 0, "VLAN tag of net0; 0: the template's"),
    guest::NETWORKS,
    key("onBoot", Kind::Flag, Preset::Flag(false), "true: agents start with their node"),
    key(
        "osType",
        Kind::Choice(&["LINUX", "WINDOWS"]),
        Preset::Text("LINUX"),
        "what runs in the guests; WINDOWS: prepared over OpenSSH, all that cloud-init would do is in the image",
    ),
    key(
        "windowsLoginShell",
        Kind::Choice(&["AUTO", "CMD", "POWERSHELL"]),
        Preset::Text("AUTO"),
        "DefaultShell of OpenSSH in guests of WINDOWS; AUTO: asked, commands are for cmd.exe anyway",
    ),
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
    text("jvmOptions", Preset::Text(""), "options of the JVM of Jenkins' agent"),
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
    text("namePrefix", Preset::Text(""), "put before the template's name in guests' names")
        .checked(value::name_prefix),
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
pub(crate) static WINDOW: Shape = Shape {
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

/// What a step of `prepare` does; exactly one is given.
pub(crate) const STEP_KEYS: [&str; 3] = ["run", "upload", "packages"];

/// Keys of each entry of `prepare`.
pub(crate) static STEP: Shape = Shape {
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
pub(crate) static UPLOAD: Shape = Shape {
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
