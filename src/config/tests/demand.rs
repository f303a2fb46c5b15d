//! Sources of demand: what they come to, and what is wrong with them.

use drover_actors::demand::spec::ShareSpec;
use drover_actors::id::SourceId;

use super::*;
use crate::demand::System;
use crate::demand::gitea::{Dialect, Scope};
use crate::demand::jenkins::Launch;

fn with_demand(lines: &str) -> String {
    let yaml = with_agent("");
    let token = "credentials:\n  git: {kind: apiToken, secretFile: git}\n";
    format!("{}demand:\n{lines}\n", yaml.replace("credentials:\n", token))
}

// Invariant: a source is what is said of it, and leases have a share like the others.

#[test]
fn sources_have_shares_and_ways_and_leases_a_share() {
    let scene = Scene::new();
    scene.put("hook", 0o600, "a secret of hooks\n");
    let checked = scene.good(&with_demand(
        "  lan: {kind: gitea, url: \"https://git.lan/ci\", credentialsId: git, weight: 3,\n    \
         priority: 2, instanceCap: 7, labels: [linux], scope: repo/o/r, webhook: {secretFile: hook}}\n  \
         edge: {kind: forgejo, url: \"http://127.0.0.1:3000\", credentialsId: git, scope: org/o}\n  \
         api: {kind: leases, weight: 2}",
    ));
    let [lan, edge] = ["lan", "edge"].map(SourceId::new);
    let spec = &checked.herd.sources[&lan];
    assert_eq!(spec.share, ShareSpec { weight: 3, priority: 2, cap: Some(7) });
    assert_eq!(spec.labels, Some(["linux".to_owned()].into()));
    assert_eq!(checked.herd.asked, ShareSpec { weight: 2, ..ShareSpec::default() });
    let way = |id: &SourceId| {
        let way = &checked.demand[id];
        let System::Gitea(gitea) = &way.system else { panic!("{way:?}") };
        (gitea.dialect, gitea.scope.clone(), way.webhook.is_some())
    };
    assert_eq!(way(&lan), (Dialect::Gitea, Scope::Repository("o".into(), "r".into()), true));
    assert_eq!(way(&edge), (Dialect::Forgejo, Scope::Organisation("o".into()), false));
    assert_ne!(spec.connection, checked.herd.sources[&edge].connection);
    assert_eq!(checked.rendered_warnings(), "", "on loopback nobody stands between");
}

#[test]
fn jenkins_has_its_agents_whole_and_is_looked_at_often_while_it_has_any() {
    let scene = Scene::new();
    let login = "  ci: {kind: apiLogin, username: drover, secretFile: jenkins}\n";
    let text = with_demand(
        "  a: {kind: jenkins, url: \"https://ci.lan/jenkins\", credentialsId: ci}\n  \
         b: {kind: jenkins, url: \"https://ci.lan\", credentialsId: ci, launch: ssh,\n    \
         launchCredentialsId: agents, pollSeconds: 1}",
    );
    let checked = scene.good(&text.replace("credentials:\n", &format!("credentials:\n{login}")));
    let [a, b] = ["a", "b"].map(|id| &checked.herd.sources[&SourceId::new(id)]);
    assert!(a.whole && a.early && a.single);
    assert_eq!((a.poll.as_secs(), a.brisk.as_secs()), (10, 2));
    assert_eq!((b.poll.as_secs(), b.brisk.as_secs()), (1, 1), "no slower than at any time");
    let launch = |id: &str| {
        let way = &checked.demand[&SourceId::new(id)];
        let System::Jenkins(jenkins) = &way.system else { panic!("{way:?}") };
        assert_eq!(jenkins.username, "drover");
        jenkins.launch.clone()
    };
    assert_eq!(launch("a"), Launch::WebSocket);
    assert_eq!(launch("b"), Launch::Ssh("agents".into()));
}

#[test]
fn what_is_wrong_with_a_jenkins_is_shown() {
    let scene = Scene::new();
    insta::assert_snapshot!(scene.faults(&with_demand(
        "  a: {kind: jenkins, url: \"https://ci.lan\", credentialsId: git, launch: ssh}\n  \
         b: {kind: jenkins, url: \"https://ci.lan\", credentialsId: git, launchCredentialsId: x}\n  \
         c: {kind: jenkins, url: \"https://ci.lan\", credentialsId: git, scope: server, \
         runnerCommand: run, launch: jnlp}\n  \
         d: {kind: gitea, url: \"https://ci.lan\", credentialsId: git, launch: ssh}",
    )));
}

// Invariant: what is wrong is said at its place, all at once, and no secret with it.

#[test]
fn everything_that_is_wrong_with_sources_is_shown() {
    let scene = Scene::new();
    let text = with_demand(
        "  a: {kind: gitea}\n  \
         b: {kind: drone, url: \"https://x\", credentialsId: git}\n  \
         c: {kind: gitea, url: \"git.lan\", credentialsId: nobody, scope: team/x}\n  \
         d: {kind: forgejo, url: \"https://me:pass@git.lan\", credentialsId: ssh, weight: 0}\n  \
         e: {kind: gitea, url: \"https://git.lan\", credentialsId: git, caFile: gone.pem,\n    \
         pinSha256: []}\n  \
         f: {kind: leases, url: \"https://git.lan\"}\n  \
         g: {kind: leases}\n  \
         h:\n    kind: gitea\n    url: \"https://git.lan\"\n    credentialsId: git\n    \
         webhook: {secret: hush-hush-hush, secretFile: hook}",
    );
    let shown = scene.faults(&text);
    assert!(!shown.contains("hush-hush"), "{shown}");
    insta::assert_snapshot!(shown);
}

#[test]
fn ways_that_others_can_listen_on_are_warned_about() {
    let scene = Scene::new();
    let checked = scene.good(&with_demand(
        "  a: {kind: gitea, url: \"http://git.lan\", credentialsId: git}\n  \
         b: {kind: gitea, url: \"https://git.lan\", credentialsId: git, ignoreSslErrors: true}",
    ));
    insta::assert_snapshot!(checked.rendered_warnings());
}
