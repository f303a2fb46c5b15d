//! What wins over what.

use std::sync::Arc;

use drover_model::id::{CloudId, Generation, TemplateId};
use drover_model::spec::{HerdSpec, TemplateSpec};
use proxmox_client::{Endpoint, Login, Tls};

use super::*;

fn template<'a>(checked: &'a Checked, cloud: &str, name: &str) -> &'a Arc<TemplateSpec> {
    &checked.herd.templates[&TemplateId::new(CloudId::new(cloud), name)]
}

fn layered(defaults: &str, of_node: &str, own: &str) -> String {
    format!(
        "cloudConfigurations:\n  c: {{name: C, credentialsId: api}}\n\
         agentDefaults: {{cloudIds: [c], templateVmId: 9000, credentialsId: ssh, {defaults}}}\n\
         agentDefaults-pve1: {{{of_node}}}\n\
         agentConfigurations:\n  a: {{{own}}}\n{CREDENTIALS}"
    )
}

fn endpoints(texts: &[&str]) -> Vec<Endpoint> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

// Invariant: an agent's own keys win over its node's defaults, and those over everybody's.

#[test]
fn later_layers_win() {
    let scene = Scene::new();
    for (defaults, of_node, own, cores) in [
        ("", "", "node: pve1", None),
        ("cores: 1", "", "node: pve1", Some(1)),
        ("cores: 1", "cores: 2", "node: pve1", Some(2)),
        ("cores: 1", "cores: 2", "node: pve1, cores: 3", Some(3)),
        ("cores: 1", "cores: 2", "node: pve2", Some(1)),
        ("cores: 1", "cores: 2", "", Some(1)),
        ("cores: 1, node: pve1", "cores: 2", "", Some(2)),
        ("cores: 1, node: pve1", "cores: 2", "node: pve2", Some(1)),
        ("cores: 1", "cores: 2", "node: pve1, cores: 0", None),
    ] {
        let checked = scene.good(&layered(defaults, of_node, own));
        assert_eq!(template(&checked, "c", "a").cores, cores, "{defaults} | {of_node} | {own}");
    }
}

#[test]
fn blocks_under_keys_of_the_files_own_are_shared_by_anchors() {
    let scene = Scene::new();
    let own = "<<: *big, node: pve1";
    let text =
        format!("x-sizes: &big {{cores: 7}}\nx-note: [any, thing]\n{}", layered("", "", own));
    assert_eq!(template(&scene.good(&text), "c", "a").cores, Some(7));
}

#[test]
fn a_name_is_one_templates_alone_on_a_cloud() {
    let scene = Scene::new();
    let faults = |a: &str, b: &str| {
        let of = |key: &str, keys: &str| {
            format!("  {key}: {{templateVmId: 9000, credentialsId: ssh, {keys}}}\n")
        };
        let text = format!(
            "cloudDefaults: {{credentialsId: api}}\n\
             cloudConfigurations:\n  one: {{name: One}}\n  two: {{name: Two}}\n\
             agentConfigurations:\n{}{}{CREDENTIALS}",
            of("a", a),
            of("b", b)
        );
        scene.check(&text).err().map(|error| scene.shown(error)).unwrap_or_default()
    };
    let (one, two) = ("cloudIds: [one]", "cloudIds: [two]");
    let twice = faults(&format!("{one}, name: x"), &format!("{one}, name: x"));
    assert!(twice.contains("`agentConfigurations.a` has the name `x` too"), "{twice}");
    let key = faults(&format!("{one}, name: x"), &format!("{one}, name: a"));
    assert!(key.contains("`a` is the key of `agentConfigurations.a`"), "{key}");
    assert_eq!(faults(&format!("{one}, name: x"), &format!("{two}, name: x")), "");
    assert_eq!(faults(one, &format!("{two}, name: a")), "");
    let slash = faults(one, &format!("{one}, name: one/a"));
    assert!(slash.contains("a name cannot contain `/`"), "{slash}");
}

#[test]
fn a_template_is_on_each_of_its_clouds() {
    let scene = Scene::new();
    let checked = scene.good(&format!(
        "cloudDefaults: {{credentialsId: api, operationTimeoutSec: 7}}\n\
         cloudConfigurations:\n  one: {{name: One}}\n  \
         two: {{name: Two, operationTimeoutSec: 9}}\n\
         agentConfigurations:\n  \
         a: {{cloudIds: [one, two], templateVmId: 9000, credentialsId: ssh}}\n{CREDENTIALS}"
    ));
    assert_eq!(template(&checked, "one", "a").limits.operation.as_secs(), 7);
    assert_eq!(template(&checked, "two", "a").limits.operation.as_secs(), 9);
}

// Invariant: what a layer says about endpoints or trust replaces all that those below say.

#[test]
fn a_cloud_replaces_its_defaults_endpoints_and_trust_as_a_whole() {
    let scene = Scene::new();
    let clouds = |defaults: &str, own: &str| {
        let text = format!(
            "cloudDefaults: {{credentialsId: api, name: C, {defaults}}}\n\
             cloudConfigurations:\n  c: {{{own}}}\n{CREDENTIALS}"
        );
        scene.good(&text).connections.remove(&CloudId::new("c")).unwrap()
    };
    let pin = "ab".repeat(32);
    let pins = format!("pinSha256: [{pin}]");
    let many = "apiUrls: [\"https://a:8006\", \"https://b:8006\"]";
    assert_eq!(
        clouds(many, "apiUrl: \"https://c:8006\"").endpoints,
        endpoints(&["https://c:8006"])
    );
    assert_eq!(clouds("apiUrl: \"https://c:8006\"", many).endpoints.len(), 2);
    assert_eq!(clouds("ignoreSslErrors: true", &pins).tls, Tls::Pins(vec![[0xab; 32]]));
    assert_eq!(clouds(&pins, "ignoreSslErrors: true").tls, Tls::Ignore);
    assert_eq!(clouds(&pins, "ignoreSslErrors: false").tls, Tls::Pins(vec![[0xab; 32]]));
    assert!(matches!(clouds(&pins, "caFile: ca.pem").tls, Tls::Bundle(_)));
    assert_eq!(clouds("ignoreSslErrors: true", "ignoreSslErrors: false").tls, Tls::System);
}

// Invariant: the YAML wins over the environment, key by key.

#[test]
fn the_yaml_wins_over_the_environment() {
    let scene = Scene::with(&[
        ("PROXMOX_API_URL", "https://environment:8006"),
        ("PROXMOX_TOKEN_ID", "e@pve!e"),
        ("PROXMOX_TOKEN_SECRET", "from the environment"),
        ("PVE_INSECURE_SKIP_VERIFY", "true"),
        ("PVE_NODE_SELECTOR", "pve1"),
    ]);
    let checked = scene.good(&format!(
        "cloudConfigurations:\n  a: {{name: A}}\n  \
         b: {{name: B, apiUrl: \"https://yaml:8006\", \
         credentialsId: login, ignoreSslErrors: false}}\n\
         agentDefaults: {{templateVmId: 9000, credentialsId: ssh}}\n\
         agentConfigurations:\n  a: {{cloudIds: [a]}}\n  \
         b: {{cloudIds: [a], node: pve2, preferredNodes: [pve3]}}\n\
         {CREDENTIALS}"
    ));
    let a = &checked.connections[&CloudId::new("a")];
    let b = &checked.connections[&CloudId::new("b")];
    assert_eq!(a.endpoints, endpoints(&["https://environment:8006"]));
    assert!(matches!(&a.login, Login::Token { id, .. } if id == "e@pve!e"));
    assert_eq!(a.tls, Tls::Ignore);
    assert_eq!(b.endpoints, endpoints(&["https://yaml:8006"]));
    assert!(matches!(&b.login, Login::Password { .. }));
    assert_eq!(b.tls, Tls::System);
    let preferred = |name: &str| format!("{:?}", template(&checked, "a", name).placement.preferred);
    assert_eq!([preferred("a"), preferred("b")], ["[pve1]", "[pve3]"]);
}

// Invariant: PROXMOX_NODE names the node of agents, and what they inherit; a preferred node does
// not.

#[test]
fn the_defaults_of_a_node_are_chosen_by_a_node_that_is_named_alone() {
    let text = format!(
        "cloudConfigurations:\n  a: {{name: A, apiUrl: \"https://yaml:8006\", \
         credentialsId: login}}\n\
         agentDefaults: {{templateVmId: 9000, credentialsId: ssh, cloudIds: [a]}}\n\
         agentDefaults-pve1: {{cores: 4}}\n\
         agentConfigurations:\n  a: {{}}\n  b: {{node: pve2}}\n  \
         c: {{preferredNodes: [pve1]}}\n\
         {CREDENTIALS}"
    );
    for (variable, cores) in
        [("PROXMOX_NODE", [Some(4), None, Some(4)]), ("PVE_NODE_SELECTOR", [None, None, None])]
    {
        let checked = Scene::with(&[(variable, "pve1")]).good(&text);
        let found = ["a", "b", "c"].map(|name| template(&checked, "a", name).cores);
        assert_eq!(found, cores, "{variable}");
    }
}

// Invariant: files of a directory are one configuration; what two of them give is a fault.

#[test]
fn files_are_joined_section_by_section() {
    let scene = Scene::new();
    let clouds = "cloudConfigurations:\n  a: {name: A, credentialsId: api}\n";
    let more = "cloudConfigurations:\n  b: {name: B, credentialsId: api}\n";
    let files = [("10.yaml", clouds), ("20.yaml", more), ("30.yaml", CREDENTIALS), ("40.yaml", "")];
    let checked = scene.check_files(&files).unwrap();
    assert_eq!(checked.herd.clouds.len(), 2);
    let twice = scene.check_files(&[("10.yaml", clouds), ("20.yaml", clouds)]).unwrap_err();
    assert!(scene.shown(twice).contains("given twice, first on line 2 of 10.yaml"));
}

// Invariant: a reload leaves what did not change untouched, generation included.

#[test]
fn only_what_changed_looks_new_after_a_reload() {
    let scene = Scene::new();
    let text = |cores: u32| {
        with_agent("cores: 1").replace(
            "agentConfigurations:",
            &format!("agentConfigurations:\n  b: {{cores: {cores}}}"),
        )
    };
    let mut first = scene.good(&text(2));
    first.follow(&HerdSpec::default(), Generation(1));
    let mut second = scene.good(&text(3));
    second.follow(&first.herd, Generation(2));
    assert_eq!(second.herd.generation, Generation(2));
    assert!(Arc::ptr_eq(template(&first, "c", "a"), template(&second, "c", "a")));
    assert_eq!(template(&second, "c", "a").generation, Generation(1));
    assert_eq!(template(&second, "c", "b").generation, Generation(2));
    let cloud = CloudId::new("c");
    assert!(Arc::ptr_eq(&first.herd.clouds[&cloud], &second.herd.clouds[&cloud]));
}

#[test]
fn another_secret_changes_the_connection_of_its_cloud() {
    let scene = Scene::new();
    let number =
        |scene: &Scene| scene.good(&with_cloud("{}")).herd.clouds[&CloudId::new("c")].connection;
    let before = number(&scene);
    assert_eq!(before, number(&scene));
    scene.put("token", 0o600, "another");
    assert_ne!(before, number(&scene));
}

// Invariant: what the service says of all clouds stands against what they say.

#[test]
fn a_period_of_the_service_stands_in_every_cloud() {
    let scene = Scene::new();
    let periods = |lines: &str| {
        let text = with_cloud("orphanCleanupPeriodSeconds: 100");
        let text = text.replace("\n  c:\n", "\n  d: {name: D}\n  c:\n");
        let checked = scene.good(&format!("{text}service: {{{lines}}}\n"));
        let clouds = checked.herd.clouds.values();
        let own: Vec<u64> = clouds.map(|cloud| cloud.reconcile_period.as_secs()).collect();
        (own, checked.herd.reconcile_period.map(|period| period.as_secs()))
    };
    assert_eq!(periods("orphanCleanupPeriodSeconds: 45"), (vec![45, 45], Some(45)));
    assert_eq!(periods("orphanCleanupPeriodSeconds: 0"), (vec![100, 600], None));
    assert_eq!(periods(""), (vec![100, 600], None));
}

// Invariant: a key that has two spellings is one key.

#[test]
fn another_spelling_of_a_key_is_the_same_key() {
    let scene = Scene::new();
    for line in ["searchDomain: lan", "searchdomain: lan"] {
        let checked = scene.good(&with_agent(line));
        let spec = checked.herd.templates.values().next().unwrap();
        assert_eq!(spec.cloud_init.search_domain.as_deref(), Some("lan"), "{line}");
    }
    let both = scene.faults(&with_agent("searchDomain: lan\nsearchdomain: lan"));
    assert!(both.contains("`searchDomain` is already given as `searchDomain`"), "{both}");
}
