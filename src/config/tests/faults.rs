//! The rendered faults of single mistakes: golden texts.

use insta::assert_snapshot;

use super::reference::is_generated;
use super::*;

// Invariant: every fault says what, where and what to do.

/// Every case of `mistakes.txt`: `=== what (around)`, the YAML, `---`, the faults. `around` says
/// whether the YAML is a whole file, or the lines of an agent or of a cloud.
#[test]
fn every_mistake_is_shown() {
    let file = "src/config/tests/mistakes.txt";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(file);
    let scene = Scene::new();
    let again = |case: &str| {
        let (head, _) = case.split_once("\n---\n").unwrap();
        let (name, lines) = head.split_once('\n').unwrap();
        let text = match name.rsplit_once(' ').unwrap().1 {
            "(agent)" => with_agent(lines),
            "(cloud)" => with_cloud(lines),
            "(file)" => format!("{lines}\n"),
            around => panic!("`{around}` of `{name}` is none of (agent), (cloud), (file)"),
        };
        format!("=== {head}\n---\n{}\n", scene.faults(&text))
    };
    let golden = fs::read_to_string(path).unwrap();
    is_generated(file, &golden.split("=== ").skip(1).map(again).collect::<String>());
}

#[test]
fn a_log_has_faults_a_line_each_with_their_places_and_says_how_many_more_there_are() {
    let error = Scene::new().check(&with_agent("instanceCpa: 5")).unwrap_err();
    let lines = error.lines();
    let said = ": agentConfigurations.a.instanceCpa: unknown key `instanceCpa`; did you mean `instanceCap`?";
    assert!(
        lines.len() == 1 && lines[0].contains(".yaml:") && lines[0].ends_with(said),
        "{lines:?}"
    );
    let many: String = (0..9).map(|n| format!("nothing{n}: 1\n")).collect();
    let lines = Scene::new().check(&with_agent(&many)).unwrap_err().lines();
    assert_eq!((lines.len(), lines[5].as_str()), (6, "and 4 more: `drover check` shows all"));
}

#[test]
fn one_use_an_agent_beside_more_of_them_is_shown() {
    let scene = Scene::new();
    assert_snapshot!(scene.faults(&with_agent("maxTotalUses: 5\nsingleUse: true")));
    scene.good(&with_agent("maxTotalUses: 1\nsingleUse: true"));
}

#[test]
fn a_reset_beside_what_rules_it_out_is_shown() {
    let scene = Scene::new();
    assert_snapshot!(scene.faults(&with_agent("reset: DISK\nnumExecutors: 2\nsingleUse: true")));
    assert_snapshot!(scene.faults(&with_agent("reset: ALWAYS")));
    scene.good(&with_agent("reset: MEMORY\nmaxTotalUses: 2"));
}

#[test]
fn a_port_open_to_the_network_without_tls_is_shown() {
    let service = |lines: &str| {
        let token = "tokens: [{name: a, role: viewer, secretFile: token}]";
        format!("{}service:\n  {lines}\n  {token}\n", with_cloud("{}"))
    };
    let scene = Scene::new();
    assert_snapshot!(scene.faults(&service("listen: \"0.0.0.0:8080\"")));
    for fine in ["listen: \"[::1]:80\"", "listen: 10.0.0.1:80\n  listenPlain: true"] {
        assert_eq!(scene.good(&service(fine)).rendered_warnings(), "");
    }
}

#[test]
fn a_wrong_variable_of_the_environment_is_shown() {
    let scene = Scene::with(&[("PVE_ENDPOINT", "http://pve:8006"), ("PVE_TOKEN_ID", "a@pve!a")]);
    assert_snapshot!(scene.faults(&with_cloud("{}")));
}

#[test]
fn all_faults_are_shown_at_once_in_the_order_of_their_places() {
    let text = with_agent(
        "cores: -1\nmode: Exclusive\nstartupWaitSeconds: 1.5\n\
    searchDomian: lan\nguestNetworks: [10.0.0.0/8, 10.0.0.0]",
    )
    .replace("{name: C,", "{name: C, apiUrl: \"ftp://x\", startVmId: 900, endVmId: 800,")
    .replace("tokenId: drover@pve!drover", "tokenId: drover");
    let scene = Scene::new();
    assert_snapshot!(scene.faults(&text));
    let LoadError::Faults { faults, .. } = scene.check(&text).unwrap_err() else { panic!() };
    let places: Vec<_> = faults.iter().map(|fault| fault.place).collect();
    assert!(places.is_sorted());
    assert_eq!(faults.len(), 8);
}

#[test]
fn warnings_are_shown_apart() {
    let text = with_agent(
        "javaDistribution: OPENJDK\njavaMajorVersion: 17\ndiskSizeGb: 9\nciUser: ubuntu",
    )
    .replace("{name: C,", "{name: C, ignoreSslErrors: true,")
    .replacen("secretFile: token", "secret: hunter2-hunter2", 1);
    let shown = Scene::new().good(&text).rendered_warnings();
    assert!(!shown.contains("hunter2"));
    assert_snapshot!(shown);
}

#[test]
fn storages_that_linked_clones_do_not_use_are_warned_about() {
    let said = |lines: &str| Scene::new().good(&with_agent(lines)).rendered_warnings();
    for storages in ["targetStorage: nfs", "targetStorages: [nfs, ceph]"] {
        assert_eq!(said(&format!("cloneStrategy: FULL\n{storages}")), "");
        let shown = said(&format!("cloneStrategy: LINKED\n{storages}"));
        let key = storages.split(':').next().unwrap();
        let text = format!("agentConfigurations.a.{key}: linked clones do not use it");
        assert!(shown.contains(&text), "{shown}");
    }
    assert_eq!(said("cloneStrategy: LINKED\ntargetStorage: ''"), "");
    assert_eq!(said("cloneStrategy: LINKED\ntargetStorages: []"), "");
}

#[test]
fn what_is_wrong_with_steps_is_shown() {
    let scene = Scene::new();
    scene.put("big", 0o644, &"x".repeat((4 << 20) + 1));
    let steps = [
        "{}",
        "{run: id, packages: [git]}",
        "{run: \" \"}",
        "{packages: []}",
        "{packages: [git, -y]}",
        "{name: \"\", run: id}",
        "{name: same, run: id}",
        "{name: same, run: id}",
        "{run: id, timeout: 5}",
        "{run: id, timeoutSec: 0}",
        "{upload: ci.conf}",
        "{upload: {form: ci.conf}}",
        "{upload: {from: missing, to: ci.conf}}",
        "{upload: {from: big, to: ci.conf}}",
        "{upload: {from: token, to: ~/x, mode: 888}}",
        "id",
    ];
    let text = with_agent(&format!("prepare:\n  - {}", steps.join("\n  - ")));
    assert_snapshot!(scene.faults(&text));
}

#[test]
fn too_many_steps_are_refused() {
    let text = with_agent(&format!("prepare: [{}]", "{run: id}, ".repeat(41)));
    assert!(Scene::new().faults(&text).contains("41 steps exceed the maximum of 40"));
}

// Invariant: a fault of the defaults is said once, not for each that inherits it.

#[test]
fn a_fault_in_the_defaults_is_said_once() {
    let text = with_cloud("{}")
        .replace("  credentialsId: api\n", "  credentialsId: nobody\n")
        .replace("\n  c:\n", "\n  d: {name: D}\n  e: {name: E}\n  c:\n");
    assert_eq!(Scene::new().faults(&text).matches("unknown credential").count(), 1);
    let text = with_agent("{}")
        .replace("agentDefaults:\n", "agentDefaults:\n  prepare: [{upload: {from: gone}}]\n")
        .replace("agentConfigurations:\n", "agentConfigurations:\n  b: {name: B}\n");
    let shown = Scene::new().faults(&text);
    assert_eq!(shown.matches("`to` is missing").count(), 1, "{shown}");
}

// Invariant: a missing configuration is not a fault of one.

#[test]
fn no_cloud_and_no_credentials_are_missing_not_wrong() {
    let scene = Scene::new();
    for text in ["", "# nothing\n", "cloudDefaults: {}\n", "cloudConfigurations: {}\n"] {
        let error = scene.check(text).unwrap_err();
        assert!(matches!(error, LoadError::Missing { .. }), "{}", scene.shown(error));
    }
    let bare = "cloudConfigurations:\n  a: {name: A}\n";
    let error = scene.check(bare).unwrap_err();
    assert!(matches!(error, LoadError::Missing { .. }), "{}", scene.shown(error));
    let environment = [("PROXMOX_TOKEN_ID", "a@pve!a"), ("PROXMOX_TOKEN_SECRET", "x")];
    assert!(Scene::with(&environment).check(bare).is_ok());
}

// Invariant: an unreadable configuration is an error with a help.

#[test]
fn a_configuration_that_is_not_there_is_distinguished_from_one_that_is_no_text() {
    let scene = Scene::new();
    scene.put("binary.yaml", 0o600, "");
    fs::write(scene.path("binary.yaml"), b"\xff\xfe").unwrap();
    fs::create_dir(scene.path("bare")).unwrap();
    let said = ["none.yaml", "binary.yaml", "bare"]
        .map(|name| scene.shown(load(&scene.path(name), &scene.environment).unwrap_err()));
    assert_snapshot!(said.concat(), @r"
    `/etc/drover/none.yaml` cannot be read: No such file or directory (os error 2)
      help: name a YAML file, or a directory of them, with --config or DROVER_CONFIG
      × the text is not UTF-8 from here on
       ╭─[/etc/drover/binary.yaml:1:1]
     1 │ ******
       · ┬
       · ╰── here
       ╰────
      help: save it as plain UTF-8 text

    the configuration has 1 fault
    `/etc/drover/bare` contains no YAML file
      help: put at least one file there whose name ends in .yaml or .yml
    ");
}
