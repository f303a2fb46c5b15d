//! Sources of demand: what they come to, and what is wrong with them.

use drover_ci::System;
use drover_ci::gitea::{Dialect, Scope};
use drover_ci::github::{
    Login, Registration, ScaleSetSpec, Scope as GitHubScope, Settings as GitHub,
};
use drover_ci::gitlab;
use drover_ci::jenkins::Launch;
use drover_model::demand::spec::ShareSpec;
use drover_model::id::{SourceId, VmId};
use secrecy::ExposeSecret;

use super::*;

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
    let service = "service:\n  listen: \"127.0.0.1:8080\"\n  \
                   tokens: [{name: a, role: viewer, secretFile: git}]\n";
    let yaml = with_demand(
        "  lan: {kind: gitea, url: \"https://git.lan/ci\", credentialsId: git, weight: 3,\n    \
         priority: 2, instanceCap: 7, labels: [linux], scope: repo/o/r, webhook: {secretFile: hook}}\n  \
         edge: {kind: forgejo, url: \"http://127.0.0.1:3000\", credentialsId: git, scope: org/o}\n  \
         api: {kind: leases, weight: 2}",
    );
    let checked = scene.good(&(service.to_owned() + &yaml));
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

// Invariant: where a source is changes with its URL and scope, and with nothing else.

#[test]
fn another_url_or_scope_is_another_place_and_another_login_is_not() {
    let scene = Scene::new();
    let place = |keys: &str| {
        let yaml = with_demand(&format!("  lan: {{kind: gitea, credentialsId: git, {keys}}}"));
        scene.good(&yaml).herd.sources[&SourceId::new("lan")].place
    };
    let here = place("url: \"https://git.lan/ci\"");
    assert_ne!(here, place("url: \"https://git2.lan/ci\""));
    assert_ne!(here, place("url: \"https://git.lan/ci\", scope: org/o"));
    assert_eq!(here, place("url: \"https://git.lan/ci/\", pollSeconds: 3, ignoreSslErrors: true"));
    scene.put("git", 0o600, "another token\n");
    assert_eq!(here, place("url: \"https://git.lan/ci\""));
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
fn what_no_server_can_have_or_send_is_refused_before_one_is_asked() {
    let scene = Scene::new();
    insta::assert_snapshot!(scene.faults(&with_demand(
        "  a: {kind: gitea, url: \"https://git.lan\", credentialsId: git, labels: [linux, big box]}\n  \
         b: {kind: gitea, url: \"https://git.lan\", credentialsId: git, scope: org/../admin}\n  \
         c: {kind: forgejo, url: \"https://git.lan\", credentialsId: git, scope: repo/o/r.git}\n  \
         d: {kind: gitea, url: \"https://git.lan\", credentialsId: git, scope: org/a..b}\n  \
         e: {kind: github, credentialsId: git, scope: repo/my team/app}\n  \
         f: {kind: github, credentialsId: git, scope: repo/o/..}\n  \
         g: {kind: github, credentialsId: git, scope: org/o, repositories: [app, a/b c]}\n  \
         h: {kind: github, url: \"https://github.com\", credentialsId: git, scope: org/o}\n  \
         i: {kind: gitea, url: \"https://git.lan\", credentialsId: git, webhook: {secretFile: git}}\n  \
         leases: {kind: gitea, url: \"https://git.lan\", credentialsId: git}",
    )));
}

#[test]
fn names_that_servers_have_are_taken() {
    let scene = Scene::new();
    let scopes = [
        ("gitea", "org/a.b-c_d"),
        ("gitea", "repo/_old/-x.y"),
        ("forgejo", "repo/O/R"),
        ("github", "repo/octo-org/.github"),
        ("github", "repo/mona_octo/a..b_c-"),
        ("github", "enterprise/old--name-"),
    ];
    for (kind, scope) in scopes {
        scene.good(&with_demand(&format!(
            "  a: {{kind: {kind}, url: \"https://git.lan\", credentialsId: git, scope: {scope}{}}}",
            if scope.starts_with("enterprise") { ", mode: scaleSet, scaleSet: x" } else { "" }
        )));
    }
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

// Invariant: a GitHub is what is said of it, in the files or, as dispatchers of runners have it, in
// the environment.

fn github(checked: &Checked, id: &str) -> GitHub {
    match &checked.demand[&SourceId::new(id)].system {
        System::GitHub(settings) => settings.as_ref().clone(),
        System::Gitea(_) | System::GitLab(_) | System::Woodpecker(_) | System::Jenkins(_) => {
            panic!("{id} is no GitHub")
        }
    }
}

#[test]
fn a_github_is_read_with_all_its_keys_and_polled_by_the_minute() {
    let scene = Scene::new();
    scene.put("app", 0o600, include_str!("keys/app_pkcs1"));
    let text = with_demand(
        "  one: {kind: github, credentialsId: git, scope: repo/o/r}\n  \
         many: {kind: github, url: \"https://git.lan/api/v3\", credentialsId: app, scope: org/o,\n    \
         repositories: [a, other/b], runnerGroup: Machines, registration: token, pollSeconds: 30}\n  \
         set: {kind: github, credentialsId: app, scope: enterprise/e, mode: scaleSet,\n    \
         scaleSet: lab, instanceCap: 7}",
    );
    let app = "  app: {kind: githubApp, appId: 4711, secretFile: app}\n";
    let checked = scene.good(&text.replace("credentials:\n", &format!("credentials:\n{app}")));
    let one = github(&checked, "one");
    assert_eq!(one.scope, GitHubScope::Repository("o".into(), "r".into()));
    assert_eq!(checked.demand[&SourceId::new("one")].url.as_str(), "https://api.github.com/");
    let spec = |id: &str| &checked.herd.sources[&SourceId::new(id)];
    assert_eq!([spec("one").poll, spec("one").brisk].map(|time| time.as_secs()), [60, 10]);
    let many = github(&checked, "many");
    assert_eq!(many.repositories, Some(vec!["o/a".into(), "other/b".into()]));
    assert_eq!((many.group.as_deref(), many.registration), (Some("Machines"), Registration::Token));
    assert_eq!([many.poll, spec("many").poll].map(|time| time.as_secs()), [30, 30]);
    assert!(
        matches!(many.login, Login::App(app) if app.id == "4711" && app.installation.is_none())
    );
    let set = github(&checked, "set");
    assert_eq!(set.scale_set, Some(ScaleSetSpec { name: "lab".into(), capacity: 7 }));
}

#[test]
fn everything_that_is_wrong_with_githubs_is_shown() {
    let scene = Scene::new();
    let text = with_demand(
        "  a: {kind: github, credentialsId: git}\n  \
         b: {kind: github, credentialsId: ssh, scope: repo/o}\n  \
         c: {kind: github, credentialsId: git, scope: enterprise/e}\n  \
         d: {kind: github, credentialsId: git, scope: org/o, repositories: [a/b/c]}\n  \
         e: {kind: github, credentialsId: git, scope: repo/o/r, repositories: [x]}\n  \
         f: {kind: github, credentialsId: git, scope: org/o, mode: scaleSet}\n  \
         g: {kind: github, credentialsId: git, scope: org/o, scaleSet: x}\n  \
         h: {kind: github, credentialsId: git, scope: org/o, mode: scaleSet, scaleSet: x, registration: token}\n  \
         i: {kind: gitea, url: \"https://git.lan\", credentialsId: git, runnerGroup: x}\n  \
         j: {kind: gitea, url: \"https://git.lan\", credentialsId: app}",
    );
    let app = "  app: {kind: githubApp, secret: hush-hush-hush}\n";
    let shown = scene.faults(&text.replace("credentials:\n", &format!("credentials:\n{app}")));
    assert!(!shown.contains("hush-hush"), "{shown}");
    insta::assert_snapshot!(shown);
}

#[test]
fn repositories_that_a_scale_set_does_not_use_are_warned_about() {
    let checked = Scene::new().good(&with_demand(
        "  a: {kind: github, credentialsId: git, scope: org/o, mode: scaleSet, scaleSet: x,\n    \
         repositories: [app]}\n  \
         b: {kind: github, credentialsId: git, scope: org/o, repositories: [app]}\n  \
         c: {kind: github, credentialsId: git, scope: org/p, mode: scaleSet, scaleSet: x}",
    ));
    insta::assert_snapshot!(checked.rendered_warnings());
}

// Invariant: no job can want a label that its runner cannot have.

#[test]
fn a_label_that_the_runner_program_reads_as_something_else_is_refused() {
    let scene = Scene::new();
    let text = |label: &str, kind: &str, source: &str| {
        let token = "credentials:\n  git: {kind: apiToken, secretFile: git}\n";
        let yaml = with_agent(&format!("labelString: 'linux {label}'"));
        let yaml = yaml.replace("credentials:\n", token);
        let keys = format!("kind: {kind}, url: 'https://git.lan', credentialsId: git");
        format!("{yaml}demand:\n  lan: {{{keys}, {source}}}\n")
    };
    for (label, kind) in [("python:3", "gitea"), ("linux?x", "forgejo")] {
        let Err(LoadError::Faults { faults, .. }) = scene.check(&text(label, kind, "")) else {
            panic!("it has no fault")
        };
        let [one] = &faults[..] else { panic!("{faults:?}") };
        assert_eq!(one.path, "agentConfigurations.a.labelString");
        let message = format!("would start runners that cannot have the label `{label}`");
        assert!(one.message.contains(&message), "{}", one.message);
        scene.good(&text(label, kind, "labels: [linux]"));
        scene.good(&text(label, kind, "runnerCommand: mine"));
    }
    scene.good(&text("python:3", "woodpecker", "grpcServer: 'ci.lan:9000'"));
}

// Invariant: runners that are in one guest at once never start from one directory.

#[test]
fn a_source_that_would_start_several_runners_of_a_guest_from_one_directory_is_refused() {
    let scene = Scene::new();
    let text = |agent: &str, source: &str| {
        let token = "credentials:\n  git: {kind: apiToken, secretFile: git}\n";
        let yaml = with_agent(agent).replace("credentials:\n", token);
        let keys = "kind: github, credentialsId: git, scope: org/o";
        format!("{yaml}demand:\n  hub: {{{keys}, {source}}}\n")
    };
    let (two, token) = ("labelString: linux\nnumExecutors: 2", "registration: token");
    let windows = format!("{two}\nosType: WINDOWS\nremoteFs: 'C:\\ci'");
    for (agent, source) in [(two, token), (&*windows, "registration: jit")] {
        let Err(LoadError::Faults { faults, .. }) = scene.check(&text(agent, source)) else {
            panic!("it has no fault")
        };
        let reported: Vec<(&str, &str)> =
            faults.iter().map(|fault| (fault.path.as_str(), fault.message.as_str())).collect();
        let message = "source `hub` would start several runners of a guest in one directory, where \
                       each overwrites the login of the others";
        assert_eq!(reported, [("agentConfigurations.a.numExecutors", message)]);
    }
    for (agent, source) in [
        (two, "registration: jit"),
        (two, "registration: token, runnerCommand: 'run \"$@\"'"),
        (two, "registration: token, labels: [gpu]"),
        ("labelString: linux\nnumExecutors: 2\nsingleUse: true", token),
        ("labelString: linux", token),
    ] {
        scene.good(&text(agent, source));
    }
}

// Invariant: a dispatcher of runners that is set by its environment alone is drover with one file.

const DISPATCHER: [(&str, &str); 15] = [
    ("PROXMOX_URL", "https://10.1.1.158:8006/api2/json"),
    ("PROXMOX_NODE", "proxmox"),
    ("PROXMOX_TOKEN_ID", "drover@pve!ci"),
    ("PROXMOX_TOKEN_SECRET", "a secret of Proxmox"),
    ("PROXMOX_STORAGE", "local"),
    ("GITHUB_TOKEN", "a secret of GitHub"),
    ("TEMPLATE_NAME", "ubuntu-2204-runner-template"),
    ("RUNNER_ID_START", "200"),
    ("RUNNER_ID_END", "299"),
    ("RUNNER_NAME_PREFIX", "energyplus-runner"),
    ("REPO_OWNER", "NREL"),
    ("REPO_NAME", "EnergyPlus"),
    ("REPO_URL", "https://github.com/NREL/EnergyPlus"),
    ("RUNNER_LABELS", "energyplus,linux,x64,ubuntu-22.04"),
    ("POLL_INTERVAL", "15"),
];

#[test]
fn the_variables_of_a_dispatcher_make_one_runner_at_a_time_for_its_repository() {
    let scene = Scene::with(&DISPATCHER);
    let text = fs::read_to_string(super::files::shipped("dispatcher.yaml")).unwrap();
    let text = text.replace("/etc/drover/agent-key", "ed25519");
    let checked = scene.good(&text);
    let hub = github(&checked, "github");
    assert_eq!(hub.scope, GitHubScope::Repository("NREL".into(), "EnergyPlus".into()));
    assert!(
        matches!(&hub.login, Login::Token(token) if token.expose_secret() == "a secret of GitHub")
    );
    let spec = &checked.herd.sources[&SourceId::new("github")];
    assert_eq!(spec.poll.as_secs(), 15);
    assert_eq!(checked.demand[&spec.id].url.as_str(), "https://api.github.com/");
    let cloud = checked.herd.clouds.values().next().unwrap();
    assert_eq!((cloud.vmid_floor, cloud.vmid_ceiling), (VmId(200), VmId(300)), "200 to 299");
    let template = checked.herd.templates.values().next().unwrap();
    assert_eq!(template.cap, Some(1), "a single runner");
    let labels: Vec<&str> = template.labels.iter().map(String::as_str).collect();
    assert_eq!(labels, ["energyplus", "linux", "ubuntu-22.04", "x64"]);
    assert!(!checked.rendered_warnings().contains("secret of"));
}

#[test]
fn variables_of_a_repository_say_where_its_api_is_and_must_agree() {
    let text = with_demand("  hub: {kind: github, credentialsId: git}");
    let read = |variables: &[(&str, &str)]| Scene::with(variables).good(&text);
    let checked = read(&[("REPO_URL", "https://git.lan:8443/o/r.git")]);
    assert_eq!(checked.demand[&SourceId::new("hub")].url.as_str(), "https://git.lan:8443/api/v3");
    assert_eq!(github(&checked, "hub").scope, GitHubScope::Repository("o".into(), "r".into()));
    let wrong = |variables: &[(&str, &str)]| Scene::with(variables).faults(&text);
    let shown = [
        wrong(&[("REPO_OWNER", "o")]),
        wrong(&[("REPO_URL", "https://github.com/o"), ("POLL_INTERVAL", "soon")]),
        wrong(&[("REPO_URL", "https://github.com/o/r"), ("REPO_OWNER", "o"), ("REPO_NAME", "x")]),
    ];
    insta::assert_snapshot!(shown.join("\n"));
}
