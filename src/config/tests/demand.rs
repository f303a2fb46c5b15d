//! Sources of demand: what they come to, and what is wrong with them.

use drover_actors::demand::spec::ShareSpec;
use drover_actors::id::SourceId;

use super::*;
use crate::demand::System;
use crate::demand::gitea::{Dialect, Scope};
use crate::demand::gitlab;

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
        let System::Gitea(gitea) = &way.system else { panic!("{:?}", way.system) };
        (gitea.dialect, gitea.scope.clone(), way.webhook.is_some())
    };
    assert_eq!(way(&lan), (Dialect::Gitea, Scope::Repository("o".into(), "r".into()), true));
    assert_eq!(way(&edge), (Dialect::Forgejo, Scope::Organisation("o".into()), false));
    assert_ne!(spec.connection, checked.herd.sources[&edge].connection);
    assert_eq!(checked.rendered_warnings(), "", "on loopback nobody stands between");
}

#[test]
fn a_gitlab_and_a_woodpecker_have_what_is_theirs_alone() {
    let scene = Scene::new();
    let checked = scene.good(&with_demand(
        "  lab: {kind: gitlab, url: \"https://lab.lan\", credentialsId: git, runUntagged: true,\n    \
         scope: group/build/tools, jobTimeoutMinutes: 20, idleTimeoutSec: 30}\n  \
         all: {kind: gitlab, url: \"https://lab.lan\", credentialsId: git}\n  \
         one: {kind: gitlab, url: \"https://lab.lan\", credentialsId: git, scope: project/7}\n  \
         bird: {kind: woodpecker, url: \"https://ci.lan\", credentialsId: git,\n    \
         grpcServer: \"ci.lan:9000\"}\n  \
         near: {kind: woodpecker, url: \"https://ci.lan\", credentialsId: git,\n    \
         grpcServer: \"127.0.0.1:9000\", grpcSecure: false}",
    ));
    let lab = |id: &str| {
        let way = &checked.demand[&SourceId::new(id)];
        let System::GitLab(lab) = &way.system else { panic!("{:?}", way.system) };
        (lab.scope.clone(), lab.run_untagged, lab.job.as_secs(), lab.idle.as_secs())
    };
    assert_eq!(lab("lab"), (gitlab::Scope::Group("build/tools".into()), true, 1200, 30));
    assert_eq!(lab("all"), (gitlab::Scope::Server, false, 21_600, 300));
    assert_eq!(lab("one"), (gitlab::Scope::Project("7".into()), false, 21_600, 300));
    let bird = |id: &str| {
        let way = &checked.demand[&SourceId::new(id)];
        let System::Woodpecker(bird) = &way.system else { panic!("{:?}", way.system) };
        (bird.grpc.clone(), bird.secure)
    };
    assert_eq!(bird("bird"), ("ci.lan:9000".to_owned(), true));
    assert_eq!(bird("near"), ("127.0.0.1:9000".to_owned(), false));
    assert_eq!(checked.rendered_warnings(), "");
}

#[test]
fn what_is_wrong_with_a_gitlab_or_a_woodpecker_is_shown() {
    let scene = Scene::new();
    insta::assert_snapshot!(scene.faults(&with_demand(
        "  a: {kind: gitlab, url: \"https://lab.lan\", credentialsId: git, scope: repo/o/r,\n    \
         grpcServer: \"lab.lan:9000\"}\n  \
         b: {kind: gitlab, url: \"https://lab.lan\", credentialsId: git, scope: group/}\n  \
         c: {kind: woodpecker, url: \"https://ci.lan\", credentialsId: git}\n  \
         d: {kind: woodpecker, url: \"https://ci.lan\", credentialsId: git, scope: server,\n    \
         grpcServer: \"https://ci.lan\", runUntagged: true, webhook: {secretFile: git}}",
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
         b: {kind: gitea, url: \"https://git.lan\", credentialsId: git, ignoreSslErrors: true}\n  \
         c: {kind: woodpecker, url: \"https://ci.lan\", credentialsId: git,\n    \
         grpcServer: \"ci.lan:9000\", grpcSecure: false}",
    ));
    insta::assert_snapshot!(checked.rendered_warnings());
}
