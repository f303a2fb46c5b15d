//! The files in `configs/`: complete, true to the keys, and loading.

use std::fmt::Write as _;

use super::super::keys::{
    ADDRESS_POOL, AGENT, CLOUD, DEMAND, Key, Kind, MAPPING, Preset, SERVICE, SIZES, Shape,
};
use super::*;

pub(super) fn shipped(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs").join(name)
}

/// What stands for a key that has no default: an example, commented out.
fn example(section: &str, key: &Key) -> &'static str {
    match (section, key.name) {
        ("cloud", "name") => "\"Production\"",
        ("cloud", "apiUrls") => "[\"https://pve1:8006\", \"https://pve2:8006\"]",
        ("cloud", "credentialsId") => "\"proxmox-token\"",
        ("cloud", "caFile") => "/etc/drover/pve-root-ca.pem",
        ("cloud", "caPem") => "\"-----BEGIN CERTIFICATE-----\\n...\"",
        ("cloud", "pinSha256") => "[\"AB:CD:...\"]",
        ("cloud", "nodeLabels") => "{pve1: [\"ssd\", \"gpu\"]}",
        ("cloud", "storageClasses") => "{fast: [\"nvme1\", \"nvme2\"]}",
        ("cloud", "headroom") => "{memoryMb: 4096, memoryPercent: 10}",
        ("agent", "placementWeights") => "{memory: 60, cpu: 40}",
        ("step", "key") => "\"vm.type\"",
        ("step", "values") => "[\"database\"]",
        ("agent", "name") => "\"linux-builder\"",
        ("agent", "cloudIds") => "[\"primary\"]",
        ("agent", "node") => "\"pve1\"",
        ("agent", "nodes") => "[\"pve1\", \"pve2\"]",
        ("agent", "templateVmId") => "9000",
        ("agent", "templateName") => "\"debian-13\"",
        ("agent", "templateNamePattern") => "'debian-13-\\d+'",
        ("agent", "templateTag") => "\"golden\"",
        ("agent", "templateSelectionMode") => "TAG",
        ("agent", "targetStorages") => "[\"nfs\", \"ceph\"]",
        ("agent", "credentialsId") => "\"agent-key\"",
        ("agent", "userData") => "\"#cloud-config\\nhostname: ${hostname}\\n\"",
        ("agent", "userDataFile") => "\"files/user-data.yaml\"",
        ("agent", "metaData") => "\"instance-id: ${instanceId}\"",
        ("agent", "metaDataFile") => "\"files/meta-data.yaml\"",
        ("agent", "networkConfig") => "\"version: 2\"",
        ("agent", "networkConfigFile") => "\"files/network-config.yaml\"",
        ("agent", "cloudInitIsoStorage") => "\"local\"",
        ("agent", "cloudInitCustom") => "{user: \"local:snippets/ci.yaml\"}",
        ("cloudInitCustom", "user") => "\"local:snippets/ci.yaml\"",
        ("cloudInitCustom", "meta") => "\"local:snippets/meta.yaml\"",
        ("cloudInitCustom", "network") => "\"local:snippets/network.yaml\"",
        ("cloudInitCustom", "vendor") => "\"local:snippets/vendor.yaml\"",
        ("networks", "name") => "\"lan\"",
        ("networks", "bridge") => "\"vmbr0\"",
        ("networks", "mac") => "\"BC:24:11:00:00:01\"",
        ("networks", "ip") => "\"10.20.0.50/24\"",
        ("networks", "gateway") => "\"10.20.0.1\"",
        ("networks", "ip6") => "auto",
        ("networks", "gateway6") => "\"fd00::1\"",
        ("networks", "dns") => "[\"10.20.0.2\"]",
        ("networks", "firewall") => "true",
        ("networks", "model") => "virtio",
        ("step", "cron") => "\"0 8 * * mon-fri\"",
        ("step", "durationMinutes") => "600",
        ("agent", "addressFrom") => "guestAgent",
        ("pool", "ranges") => "[\"10.20.0.50-10.20.0.99\"]",
        ("pool", "prefix") => "24",
        ("pool", "gateway") => "10.20.0.1",
        ("mapping", "labels") => "\"linux docker\"",
        ("mapping", "templates") => "[\"linux-builder\"]",
        ("step", "name") => "\"docker\"",
        ("step", "run") => "\"systemctl is-active docker\"",
        ("step", "packages") => "[\"git\", \"jq\"]",
        ("step", "from") => "\"files/ci.conf\"",
        ("step", "to") => "\"ci.conf\"",
        ("service", "stateDirectory") => "/var/lib/drover",
        ("service", "socket") => "/run/drover/drover.sock",
        ("service", "socketMode") => "\"0660\"",
        ("service", "listen") => "\"127.0.0.1:8080\"",
        ("service", "logLevel") => "info",
        ("service", "leases") => {
            "{maxWaitSeconds: 3600, quotas: [{group: \"build\", maxLeases: 40}]}"
        }
        ("source", "kind") => "gitea",
        ("source", "url") => "\"https://git.lan\"",
        ("source", "credentialsId") => "\"git-token\"",
        ("source", "scope") => "org/builders",
        ("source", "labels") => "[\"linux\", \"x64\"]",
        ("source", "runnerCommand") => "\"exec gitea-runner daemon --config config.yaml\"",
        ("source", "runUntagged") => "true",
        ("source", "grpcServer") => "\"ci.lan:9000\"",
        ("source", "grpcSecure") => "false",
        ("source", "webhook") => "{secretFile: /etc/drover/git-webhook}",
        ("source", "launch") => "ssh",
        ("source", "launchCredentialsId") => "agent-key",
        ("source", "proxy") => "http://proxy.lan:3128",
        ("source", "caFile") => "/etc/drover/git-ca.pem",
        ("source", "repositories") => "[\"builders/app\"]",
        ("source", "runnerGroup") => "\"Default\"",
        ("source", "registration") => "jit",
        ("source", "mode") => "scaleSet",
        ("source", "scaleSet") => "drover",
        ("source", "pinSha256") => "[\"AB:CD:...\"]",
        (_, name) => panic!("`{name}` has no example"),
    }
}

/// Every key of a section with its default, its meaning above it.
fn section(name: &str, keys: &[Key]) -> String {
    let mut text = String::new();
    for key in keys {
        let line = match key.preset {
            Preset::Whole(number) => format!("{}: {number}", key.name),
            Preset::Flag(flag) => format!("{}: {flag}", key.name),
            Preset::Text(preset) => format!("{}: \"{preset}\"", key.name),
            Preset::Empty if matches!(key.kind, Kind::Names) => format!("{}: {{}}", key.name),
            Preset::Empty => format!("{}: []", key.name),
            Preset::Unset => format!("# {}: {}", key.name, example(name, key)),
            Preset::Required => format!("# {}: {}  # required", key.name, example(name, key)),
        };
        writeln!(text, "  # {}\n  {line}", key.about).unwrap();
        if let ("agent" | "cloud", Kind::Mappings(shape) | Kind::Mapping(shape)) = (name, key.kind)
        {
            text += &inner(key.name, shape, "  # ");
        }
    }
    text
}

/// Every key of the mappings in a key, commented out.
fn inner(of: &str, shape: &Shape, margin: &str) -> String {
    let of = if ["networks", "cloudInitCustom"].contains(&of) { of } else { "step" };
    let mut text = String::new();
    if !shape.one_of.is_empty() {
        writeln!(text, "{margin}each with exactly one of {}:", shape.one_of.join(", ")).unwrap();
    }
    for key in shape.keys {
        let value = match (key.kind, key.preset) {
            (Kind::Mapping(shape), _) => {
                format!("\n{}", inner(of, shape, &format!("{margin}    ")))
            }
            (_, Preset::Whole(number)) => format!(" {number}\n"),
            (_, Preset::Text(preset)) => format!(" \"{preset}\"\n"),
            _ => format!(" {}\n", example(of, key)),
        };
        write!(text, "{margin}  # {}\n{margin}  {}:{value}", key.about, key.name).unwrap();
    }
    text
}

/// Every key of one entry of a section, with an example where it must be given.
fn entry(name: &str, keys: &[Key]) -> String {
    let mut text = String::new();
    for line in section(name, keys).lines() {
        let given = line.strip_prefix("  # ").and_then(|line| line.strip_suffix("  # required"));
        writeln!(text, "    {}", given.unwrap_or(&line[2..])).unwrap();
    }
    text
}

/// `configs/full.yaml` as the keys demand it.
fn full() -> String {
    format!(
        "# Every key drover knows, with its default.
# Keys behind `#` have none: what stands there is an example.
# Secrets come from secretFile, secretEnv or systemdCredential; nobody but drover may read the files.

# What every cloud inherits.
cloudDefaults:
{clouds}
# One entry for each way into a Proxmox cluster; any key of cloudDefaults may be given again.
cloudConfigurations:
  primary:
    name: \"Production\"
    credentialsId: \"proxmox-token\"

# What every agent inherits.
agentDefaults:
{agents}
# What agents on one node inherit: `agentDefaults-` and the node's name; wins over agentDefaults.
agentDefaults-pve1:
  templateVmId: 9000

# One entry for each kind of agent; any key of agentDefaults may be given again.
agentConfigurations:
  linux-builder:
    cloudIds: [\"primary\"]
    node: \"pve1\"
    templateVmId: 9000
    credentialsId: \"agent-key\"
    labelString: \"linux\"

# Labels that a list of templates serves, in its order; they alone, whatever labels templates carry.
labelMappings:
  builds:
{mappings}
# Addresses given to agents one by one, whichever clouds they are on.
addressPools:
  lab:
{pools}
# CI systems whose jobs agents are begun for; and leases, which have a share like them.
demand:
  git:
{demand}  api:
    kind: leases

# Sizes of agents by name, for size.
sizes:
  small:
{sizes}
# What the ids in credentialsId stand for.
credentials:
  proxmox-token:
    kind: proxmoxToken
    tokenId: \"drover@pve!drover\"
    # a file only drover can read; or, for any secret here:
    # secretEnv: PROXMOX_TOKEN       a variable of the environment
    # systemdCredential: token       a name given by LoadCredential=
    # secret: \"...\"                  the secret itself; warned about
    secretFile: /etc/drover/token
  proxmox-login:
    kind: proxmoxPassword
    username: \"drover@pve\"
    secretFile: /etc/drover/token
  git-token:
    kind: apiToken
    secretFile: /etc/drover/git
  # github-app: {{kind: githubApp, appId: 12345, secretFile: /etc/drover/app.pem}}
  #   installationId: its installation; unset: looked up by the source's scope
  jenkins-login:
    kind: apiLogin
    username: \"drover\"
    secretFile: /etc/drover/jenkins
  agent-key:
    kind: sshKey
    username: \"ubuntu\"
    privateKeyFile: /etc/drover/ed25519
    # passphraseFile: /etc/drover/passphrase

# drover itself.
service:
{service}  # each token: a name for the records, a role (viewer, operator, admin), and a secret
  # tokens:
  #   - {{name: \"jenkins\", role: operator, secretFile: /etc/drover/jenkins}}
",
        clouds = section("cloud", CLOUD),
        agents = section("agent", AGENT),
        mappings = entry("mapping", MAPPING),
        pools = entry("pool", ADDRESS_POOL),
        // Only leases are without them.
        demand = entry("source", DEMAND)
            .replace("# url:", "url:")
            .replace("# credentialsId:", "credentialsId:"),
        sizes = entry("size", SIZES),
        service = section("service", SERVICE),
    )
}

/// A shipped file with the directory of its secrets replaced by the scene's.
fn placed(scene: &Scene, name: &str) -> String {
    let text = fs::read_to_string(shipped(name)).unwrap();
    text.replace("/etc/drover", &scene.dir.path().display().to_string())
}

// Invariant: configs/full.yaml states every key and its true default, and loads.
// After a change of the keys, `DROVER_WRITE_FULL=1 cargo test every_key_is_in` writes it anew.

#[test]
fn every_key_is_in_the_full_file_with_its_default() {
    if std::env::var_os("DROVER_WRITE_FULL").is_some() {
        fs::write(shipped("full.yaml"), full()).unwrap();
    }
    let shipped = fs::read_to_string(shipped("full.yaml")).unwrap();
    let different = shipped.lines().zip(full().lines().map(str::to_owned).collect::<Vec<_>>());
    for (at, (there, wanted)) in different.enumerate() {
        assert_eq!(there, wanted, "line {} of configs/full.yaml", at + 1);
    }
    assert_eq!(shipped, full());
}

#[test]
fn the_full_file_says_what_holds_without_it() {
    let scene = Scene::new();
    let full = scene.good(&placed(&scene, "full.yaml"));
    assert_eq!(full.rendered_warnings(), "");
    let bare = scene.good(
        "cloudConfigurations:\n  primary: {name: Production, credentialsId: proxmox-token}\n\
         agentConfigurations:\n  linux-builder: {cloudIds: [primary], node: pve1, \
         templateVmId: 9000, credentialsId: agent-key, labelString: linux}\n\
         labelMappings: {builds: {labels: docker linux, templates: [linux-builder]}}\n\
         addressPools: {lab: {ranges: [10.20.0.50-10.20.0.99], prefix: 24}}\n\
         demand: {git: {kind: gitea, url: \"https://git.lan\", credentialsId: git-token}}\n\
         credentials:\n  \
         proxmox-token: {kind: proxmoxToken, tokenId: drover@pve!drover, secretFile: token}\n  \
         git-token: {kind: apiToken, secretFile: git}\n  \
         agent-key: {kind: sshKey, username: ubuntu, privateKeyFile: ed25519}\n",
    );
    assert_eq!(full.herd, bare.herd);
    assert_eq!(format!("{:?}", full.service), format!("{:?}", bare.service));
}

// Invariant: a file with every key of the plugin's format loads, given its credentials beside it.

#[test]
fn the_reference_file_loads_with_credentials_beside_it() {
    let scene = Scene::new();
    let credentials = "credentials:\n  \
        proxmox-api-token: {kind: proxmoxToken, tokenId: ci@pve!ci, secretFile: token}\n  \
        proxmox-ssh-key: {kind: sshKey, username: ubuntu, privateKeyFile: ed25519}\n";
    let reference = fs::read_to_string(shipped("reference.yaml")).unwrap();
    let files = [("credentials.yaml", credentials), ("reference.yaml", reference.as_str())];
    let checked =
        scene.check_files(&files).unwrap_or_else(|error| panic!("{}", scene.shown(error)));
    let ids: Vec<_> = checked.herd.templates.keys().map(ToString::to_string).collect();
    let expected = ["east/docker", "east/linux", "east/windows", "west/arm", "west/linux"];
    assert_eq!(ids, expected);
    for key in PLUGIN_KEYS {
        assert!(reference.contains(&format!("{key}:")), "{key} is missing in reference.yaml");
    }
}

/// Every key the plugin recognises (jenkinsci/proxmox-cloud-plugin b1ee0117, `ProxmoxConfigLoader.java`).
const PLUGIN_KEYS: [&str; 43] = [
    "apiUrl",
    "credentialsId",
    "ignoreSslErrors",
    "operationTimeoutSec",
    "startVmId",
    "cleanupOrphanedAgents",
    "orphanCleanupPeriodSeconds",
    "orphanCleanupGracePeriodSeconds",
    "node",
    "name",
    "templateVmId",
    "templateSelectionMode",
    "templateNameRegex",
    "templateTag",
    "labelString",
    "numExecutors",
    "cloneStrategy",
    "osType",
    "windowsLoginShell",
    "targetStorage",
    "targetPool",
    "cores",
    "memoryMb",
    "diskSizeGb",
    "networkBridge",
    "remoteFs",
    "mode",
    "javaDistribution",
    "javaMajorVersion",
    "javaPath",
    "jvmOptions",
    "idleTerminationMinutes",
    "instanceCap",
    "instanceMin",
    "maxTotalUses",
    "namePrefix",
    "startupWaitSeconds",
    "ciUser",
    "ipConfig",
    "nameserver",
    "searchDomain",
    "cloudIds",
    "agentDefaults-pve1",
];

// Invariant: whoever asks the service finds it, whatever is wrong with an edit that it refused.

#[test]
fn the_socket_is_known_although_other_keys_are_at_fault() {
    let scene = Scene::new();
    let socket = |text: &str| {
        scene.put("drover.yaml", 0o644, text);
        let found = crate::socket(&scene.path("drover.yaml"), &scene.environment);
        found.map_err(|error| scene.shown(error))
    };
    let named = "service: {socket: /run/ci.sock}\nagentConfigurations: {a: {nosuch: 1}}\n";
    assert_eq!(socket(named).unwrap(), PathBuf::from("/run/ci.sock"));
    assert_eq!(socket("nosuch: {}\n").unwrap(), PathBuf::from("/run/drover/drover.sock"));
    assert!(socket("service: {sockets: /run/ci.sock}\n").unwrap_err().contains("`sockets`"));
    assert!(socket("service: {socket: \"/run\n").unwrap_err().contains("drover.yaml"));
}
