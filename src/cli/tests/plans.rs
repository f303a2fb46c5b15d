//! Plans of twenty changes as people read them, in `plans.txt` beside this file. `DROVER_WRITE=1` writes
//! it.

use std::fmt::Write as _;
use std::sync::Arc;

use drover_actors::plan::plan;
use drover_actors::roster::Living;
use drover_api::ValueChangeOut;
use drover_config::{Checked, Environment, Sources, changes, check, values};
use drover_model::id::{AgentId, CloudId, TemplateId};
use drover_model::overrides::Overrides;
use drover_model::phase::AgentPhase;
use drover_model::record::Want;
use drover_model::status::{AgentStatus, Standing};
use drover_model::time::WallTime;
use drover_ssh::PrivateKey;
use secrecy::ExposeSecret as _;

const BASE: &str = "
credentials:
  token: {kind: proxmoxToken, tokenId: ci@pve!drover, secretEnv: SECRET}
  other: {kind: proxmoxToken, tokenId: ci@pve!other, secretEnv: SECRET}
  git: {kind: apiToken, secretEnv: SECRET}
  key: {kind: sshKey, username: ci, secretEnv: KEY}
cloudDefaults: {credentialsId: token}
cloudConfigurations:
  lab: {name: Lab, apiUrl: 'https://lab:8006', instanceCap: 10}
  rack: {name: Rack, apiUrl: 'https://rack:8006'}
agentDefaults: {node: pve1, credentialsId: key, templateVmId: 9000}
agentConfigurations:
  linux: {cloudIds: [lab], labelString: linux docker, instanceCap: 6, instanceMin: 2}
  gpu: {cloudIds: [rack], labelString: linux gpu}
demand:
  forge: {kind: gitea, url: 'https://git.example.com', credentialsId: git}
";

/// What is replaced by what, each with its heading.
const CHANGES: [(&str, &str, &str); 20] = [
    ("nothing", "", ""),
    ("a comment", "demand:", "# A comment.\ndemand:"),
    ("the cap of a cloud", "instanceCap: 10", "instanceCap: 4"),
    ("no cap of a cloud", ", instanceCap: 10", ""),
    ("the cap of a template", "instanceCap: 6", "instanceCap: 3"),
    ("a larger warm pool", "instanceMin: 2", "instanceMin: 5"),
    ("a smaller warm pool", "instanceMin: 2", "instanceMin: 0"),
    ("idle agents kept", "instanceMin: 2", "instanceMin: 2, idleMin: 3"),
    ("a template image", "templateVmId: 9000", "templateVmId: 9001"),
    (
        "processors, rolled out by three",
        "instanceMin: 2",
        "instanceMin: 2, cores: 8, rolloutMaxUnavailable: 3",
    ),
    (
        "processors, rolled out by nobody",
        "instanceMin: 2",
        "instanceMin: 2, cores: 8, rolloutMaxUnavailable: 0",
    ),
    ("memory, proven first", "instanceMin: 2", "instanceMin: 2, memoryMb: 8192, canary: true"),
    ("a label less", "linux gpu", "linux"),
    ("a label more", "linux docker", "linux docker arm"),
    (
        "a new template",
        "demand:",
        "  mac: {cloudIds: [lab], labelString: mac, instanceMin: 2, idleMin: 1}\ndemand:",
    ),
    ("a template less", "  gpu: {cloudIds: [rack], labelString: linux gpu}\n", ""),
    (
        "a cloud less",
        "cloudIds: [rack], labelString: linux gpu",
        "cloudIds: [lab], labelString: linux gpu",
    ),
    (
        "a new cloud",
        "agentDefaults:",
        "  edge: {name: Edge, apiUrl: 'https://edge:8006', instanceCap: 2}\nagentDefaults:",
    ),
    ("other credentials", "rack:8006'", "rack:8006', credentialsId: other"),
    (
        "a source less",
        "  forge: {kind: gitea, url: 'https://git.example.com', credentialsId: git}\n",
        "",
    ),
];

fn checked(text: &str) -> Checked {
    let key = PrivateKey::from_seed(&[7; 32], "").to_openssh().unwrap();
    let secrets = [("SECRET", "0123456789abcdef"), ("KEY", key.expose_secret())];
    let environment = Environment::of(&secrets);
    check(Sources::of_text("drover.yaml", text), &environment)
        .unwrap_or_else(|error| panic!("{}", error.render()))
}

fn living(checked: &Checked, id: (&str, &str), agent: &str, standing: Standing) -> Living {
    let id = TemplateId::new(CloudId::new(id.0), id.1);
    let spec = Arc::clone(&checked.herd.templates[&id]);
    let started = AgentStatus::started(AgentId::new(agent), id.clone(), WallTime(0));
    let status = AgentStatus { phase: AgentPhase::Ready, standing, ..started };
    Living {
        template: id,
        spec,
        status: Arc::new(status),
        overrides: Overrides::default(),
        born: WallTime(0),
        place: None,
    }
}

// Invariant: a plan says in words what a change does to agents, pools and jobs, and values beside it.

#[test]
fn twenty_changes_are_planned_in_words() {
    let idle = Standing::Free { executors: 1, idle: true };
    let now = checked(BASE);
    let agents = [
        living(&now, ("lab", "linux"), "a1", idle),
        living(&now, ("lab", "linux"), "a2", idle),
        living(&now, ("lab", "linux"), "a3", Standing::Busy),
        living(&now, ("rack", "gpu"), "a4", Standing::Busy),
    ];
    let labels = |all: &[&str]| Want::Labels(all.iter().map(|one| (*one).to_owned()).collect());
    let jobs = [
        ("source forge".to_owned(), labels(&["gpu"])),
        ("source forge".to_owned(), labels(&["gpu"])),
    ];
    let environment = Environment::default();
    let mut text = String::new();
    for (name, from, to) in CHANGES {
        assert!(BASE.contains(from), "{name}");
        let next = match name {
            "a cloud less" => BASE
                .replace(from, to)
                .replace("  rack: {name: Rack, apiUrl: 'https://rack:8006'}\n", ""),
            _ => BASE.replacen(from, to, 1),
        };
        let next = checked(&next);
        let differ = changes(&values(&now, &environment), &values(&next, &environment));
        let differ = differ.into_iter().map(|one| ValueChangeOut {
            path: one.path,
            before: one.before,
            after: one.after,
            entry: one.entry,
        });
        let planned = plan(&now.herd, &next.herd, &agents, &jobs);
        let out = drover_server::plan_out(&planned, differ.collect());
        let _ = write!(text, "=== {name}\n{}\n", crate::cli::plan::shown(&out));
    }
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/cli/tests/plans.txt");
    if std::env::var_os("DROVER_WRITE").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    assert_eq!(std::fs::read_to_string(path).unwrap(), text);
}
