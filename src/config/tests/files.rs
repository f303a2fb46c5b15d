//! The files in `configs/`: they load and say what they must. `reference.rs` holds full.yaml
//! against the tables of keys.

use std::collections::BTreeMap;

use drover_ci::System;
use drover_ci::github::Login;
use drover_model::image::Recipe;
use secrecy::ExposeSecret;

use super::*;

fn shipped(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs").join(name)
}

/// A shipped file with the directory of its secrets replaced by the scene's.
fn placed(scene: &Scene, name: &str) -> String {
    let text = fs::read_to_string(shipped(name)).unwrap();
    text.replace("/etc/drover", &scene.dir.path().display().to_string())
}

// Invariant: configs/full.yaml states the true defaults, and loads.

#[test]
fn the_full_file_says_what_holds_without_it() {
    let scene = Scene::new();
    let full = scene.good(&placed(&scene, "full.yaml"));
    assert_eq!(full.rendered_warnings(), "");
    let bare = scene.good(
        "cloudConfigurations:\n  primary: {name: Production, credentialsId: proxmox-token}\n\
         agentConfigurations:\n  linux-builder: {cloudIds: [primary], node: pve1, \
         templateVmId: 9000, credentialsId: agent-key, labelString: linux}\n\
         images:\n  debian: {cloudIds: [primary], source: {templateVmId: 9000}, \
         storage: local-lvm, credentialsId: agent-key}\n\
         machines: {gitea: {cloud: primary, templateVmId: 9000, credentialsId: agent-key}}\n\
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

// Invariant: a fault of a secret is the fault of nothing that names what it is for.

#[test]
fn the_full_file_without_its_secrets_lacks_those_alone() {
    let scene = Scene::new();
    let text = placed(&scene, "full.yaml");
    for name in ["token", "ed25519"] {
        fs::remove_file(scene.path(name)).unwrap();
    }
    let LoadError::Faults { faults, .. } = scene.check(&text).unwrap_err() else { panic!() };
    let paths: Vec<&str> = faults.iter().map(|fault| fault.path.as_str()).collect();
    let [token, login, key] = ["proxmox-token", "proxmox-login", "agent-key"];
    let secrets = [(token, "secretFile"), (login, "secretFile"), (key, "privateKeyFile")];
    assert_eq!(paths, secrets.map(|(id, key)| format!("credentials.{id}.{key}")));
}

// Invariant: a dispatcher of runners that is set by its environment alone is drover with one file.

#[test]
fn the_file_of_a_dispatcher_makes_one_runner_at_a_time_for_its_repository() {
    let scene = Scene::with(&[
        ("PROXMOX_URL", "https://10.1.1.158:8006/api2/json"),
        ("PROXMOX_NODE", "proxmox"),
        ("PROXMOX_TOKEN_ID", "drover@pve!ci"),
        ("PROXMOX_TOKEN_SECRET", "a secret of Proxmox"),
        ("GITHUB_TOKEN", "a secret of GitHub"),
        ("TEMPLATE_NAME", "ubuntu-2204-runner-template"),
        ("RUNNER_ID_START", "200"),
        ("RUNNER_ID_END", "299"),
        ("REPO_OWNER", "NREL"),
        ("REPO_NAME", "EnergyPlus"),
        ("RUNNER_LABELS", "energyplus,linux,x64,ubuntu-22.04"),
    ]);
    let text = fs::read_to_string(shipped("dispatcher.yaml")).unwrap();
    let checked = scene.good(&text.replace("/etc/drover/agent-key", "ed25519"));
    let source = checked.demand.values().next().unwrap();
    let System::GitHub(hub) = &source.system else { panic!("{source:?}") };
    assert!(
        matches!(&hub.login, Login::Token(token) if token.expose_secret() == "a secret of GitHub")
    );
    let template = checked.herd.templates.values().next().unwrap();
    assert_eq!(template.cap, Some(1), "a single runner");
    let labels: Vec<&str> = template.labels.iter().map(String::as_str).collect();
    assert_eq!(labels, ["energyplus", "linux", "ubuntu-22.04", "x64"]);
    assert!(!checked.rendered_warnings().contains("secret of"));
}

#[test]
fn the_shipped_unit_stops_drover_as_late_as_its_warnings_say() {
    let unit = fs::read_to_string(shipped("drover.service")).unwrap();
    assert!(unit.lines().any(|line| line == "TimeoutStopSec=120"), "{unit}");
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
    for key in PLUGIN_KEYS.split_whitespace() {
        assert!(reference.contains(&format!("{key}:")), "{key} is missing in reference.yaml");
    }
}

// Invariant: each recipe of an image loads beside a cloud and a key, and yields a version.

#[test]
fn the_recipes_of_images_load() {
    let scene = Scene::new();
    let base = "cloudConfigurations: {primary: {name: Rack, credentialsId: api}}\ncredentials:\n  \
        api: {kind: proxmoxToken, tokenId: drover@pve!drover, secretFile: token}\n  \
        agent-key: {kind: sshKey, username: ci, privateKeyFile: ed25519}\n";
    for name in ["debian", "ubuntu", "alma", "runner"] {
        let recipe = fs::read_to_string(shipped(&format!("images/{name}.yaml"))).unwrap();
        let files = [("drover.yaml", base), ("image.yaml", recipe.as_str())];
        let checked = scene.check_files(&files);
        let checked = checked.unwrap_or_else(|error| panic!("{name}: {}", scene.shown(error)));
        let spec = &checked.herd.images[&TemplateId::new(CloudId::new("primary"), name)];
        Recipe::new(spec, &BTreeMap::new()).unwrap_or_else(|fault| panic!("{name}: {fault}"));
    }
}

/// Every key the plugin recognises (jenkinsci/proxmox-cloud-plugin b1ee0117,
/// `ProxmoxConfigLoader.java`).
const PLUGIN_KEYS: &str = "
    apiUrl credentialsId ignoreSslErrors operationTimeoutSec startVmId cleanupOrphanedAgents
    orphanCleanupPeriodSeconds orphanCleanupGracePeriodSeconds node name templateVmId
    templateSelectionMode templateNameRegex templateTag labelString numExecutors cloneStrategy
    osType windowsLoginShell targetStorage targetPool cores memoryMb diskSizeGb networkBridge
    remoteFs mode javaDistribution javaMajorVersion javaPath jvmOptions idleTerminationMinutes
    instanceCap instanceMin maxTotalUses namePrefix startupWaitSeconds ciUser ipConfig nameserver
    searchDomain cloudIds agentDefaults-pve1
";

// Invariant: commands find the socket, whatever faults an edit has that the service refused.

#[test]
fn the_socket_is_known_although_other_keys_are_at_fault() {
    let scene = Scene::new();
    let socket = |text: &str| {
        scene.put("drover.yaml", 0o644, text);
        let found = crate::socket(&scene.path("drover.yaml"), &scene.environment);
        match found {
            Ok(crate::Socket { path, doubt: None }) => Ok(path),
            Ok(crate::Socket { doubt: Some(error), .. }) | Err(error) => Err(scene.shown(error)),
        }
    };
    let named = "service: {socket: /run/ci.sock}\nagentConfigurations: {a: {nosuch: 1}}\n";
    assert_eq!(socket(named).unwrap(), PathBuf::from("/run/ci.sock"));
    assert!(socket("nosuch: {}\n").unwrap_err().contains("no cloud is configured"));
    assert!(socket("service: {sockets: /run/ci.sock}\n").unwrap_err().contains("`sockets`"));
    assert!(socket("service: {socket: \"/run\n").unwrap_err().contains("drover.yaml"));
}
