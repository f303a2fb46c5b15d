//! What is printed of nodes and of why templates begin nothing on them.

use drover_model::fact::What;
use drover_model::id::{AgentId, CloudId, TemplateId};
use drover_model::phase::AgentPhase;
use drover_model::record::Reason;

use super::super::*;
use super::global;
use drover_server::testing::{Served, empty_template, reported};

/// Runs a command; gives its result, and what it printed.
async fn cli(served: &Served, command: Command) -> (Result<u8, String>, String) {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut term = Term::new(&mut out, &mut err);
    let result = remote::run(&global(&served.socket), command, &mut term).await;
    (result.map_err(|fault| chain(&fault)), String::from_utf8(out).unwrap())
}

fn drain(node: &str, undrain: bool) -> Command {
    Command::Node { action: NodeAction::Drain { node: node.into(), undrain, cloud: None } }
}

// Invariant: what is free is shown with what takes it, and each refusal with its node.

#[tokio::test]
async fn nodes_drains_and_reasons_are_reported() {
    let served = Served::default();
    reported(&served.view, empty_template());
    let (state, kind) = (AgentPhase::Configuring, "denied".to_owned());
    let text = "`local` refuses disc images".to_owned();
    reported(
        &served.view,
        What::AgentGone {
            agent: AgentId::new("4f8z1c3px9t2vkab"),
            template: TemplateId::new(CloudId::new("lab"), "linux"),
            reason: Reason::Failed { state, kind, text },
            phases: Vec::new(),
        },
    );
    let mut all = String::new();
    let why =
        |of: Option<&str>| Command::Why { of: of.map(str::to_owned), view: ViewOptions::default() };
    let nodes = Command::Nodes(ListOptions::default());
    let at = |node: &str| ShownNode { node: node.into(), cloud: None };
    let orders = ["pve1", "pve2"].map(|node| {
        let (cordon, uncordon) = (Command::Cordon(at(node)), Command::Uncordon(at(node)));
        [cordon, uncordon, drain(node, false), drain(node, true)]
    });
    let orders = orders.into_iter().flatten();
    for command in [nodes].into_iter().chain(orders).chain([why(None)]) {
        let (code, said) = cli(&served, command).await;
        assert_eq!(code, Ok(0));
        all += &said;
    }
    let at = all.split("failed at ").nth(1).and_then(|rest| rest.split(": ").next()).unwrap();
    let all = all.replace(at, "AT");
    insta::assert_snapshot!(all, @r#"
    NODE  STATE   AGENTS  GUESTS    MEMORY    OTHERS  RESERVED      FREE  CPUS  FREE CPUS  CLUSTER           DETAIL
    pve1  online       3       1  8192 MiB  2048 MiB  6400 MiB  -256 MiB     8        1.5  9f31c0aa52e7d410
    pve1 takes none of lab/linux: no room
    storage local-lvm on pve1 is 96 % full: 2048 MiB are free
    node pve1 is cordoned: nothing is started there, nothing goes; 2 agents on it
    node pve1 is used again
    node pve1 is drained: nothing is started there; 2 agents on it, idle ones go
    node pve1 is used again
    node pve2 was already cordoned: nothing is started there, nothing goes; 2 agents on it
    node pve2 was neither cordoned nor drained: it is used as before
    node pve2 was already drained: nothing is started there; 2 agents on it, idle ones go
    node pve2 was neither cordoned nor drained: it is used as before
    lab/linux
      pve1: it is in maintenance
      pve2: not tried, the template has `node: pve1`
      its last agent failed at AT: Configuring failed (denied): `local` refuses disc images
    what to do: `drover help troubleshooting`, under "No node takes an agent"
    "#);
    let (unknown, _) = cli(&served, drain("pve9", false)).await;
    assert!(unknown.unwrap_err().contains("no node is called `pve9`"));
    let (unknown, _) = cli(&served, why(Some("linus"))).await;
    assert!(unknown.unwrap_err().contains("did you mean `linux`?"));
    served.stop().await;
}
