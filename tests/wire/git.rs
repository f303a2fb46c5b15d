//! Part of the configuration in a real git repository: synced, refused, changed by people, planned,
//! returned to.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::Stdio;

use drover_git::testing::{HttpServer, Rules, SshServer};
use serde_json::{Value, json};

use crate::harness::{Events, Service, Site, world};
use crate::repo::{Repo, alarms, cap, ended, eventually};

// Invariant: what git has comes into force as a whole, and whatever is wrong with it leaves what runs.

#[test]
fn the_first_sync_brings_clouds_and_the_files_that_they_name_and_the_next_one_what_changed() {
    let (_dir, sim, site) = world();
    let repo = Repo::new(&site, &sim);
    let _service = Service::start(&site);
    assert_eq!(site.json(&["clouds"])["clouds"], json!([]));
    let out = site.json(&["sync"]);
    assert_eq!(out["result"], "applied");
    assert_eq!(out["inForce"]["subject"], "Begin");
    assert_eq!(out["inForce"]["author"], "Ann");
    let id = repo.head();
    assert_eq!(site.json(&["clouds"])["clouds"][0]["managedBy"], json!(id));
    assert_eq!(cap(&site), 4);
    assert_eq!(site.json(&["sync"])["result"], "unchanged");
    let next = repo.commit("Raise the cap", &repo.with_cap(7));
    assert_eq!(site.json(&["sync"])["inForce"]["commit"], json!(next));
    assert_eq!(cap(&site), 7);
    let status = site.json(&["sync", "--status"]);
    assert_eq!(status["history"].as_array().unwrap().len(), 2);
    assert_eq!(status["clouds"], json!(["lab"]));
}

#[test]
fn a_broken_file_and_a_repository_that_is_gone_leave_what_runs_and_are_alarms_until_that_is_over() {
    let (_dir, sim, site) = world();
    let repo = Repo::new(&site, &sim);
    let _service = Service::start(&site);
    site.json(&["sync"]);
    repo.commit("Break it", &repo.template.replace("instanceCap", "instnaceCap"));
    let (code, text) = ended(&site, &["sync"]);
    assert_eq!(code, 2, "{text}");
    assert!(text.contains("git:ci/cloud.yaml") && text.contains("instnaceCap"), "{text}");
    assert_eq!(cap(&site), 4);
    assert!(alarms(&site).contains("not synced with git"), "{}", alarms(&site));
    repo.set_gone(true);
    let (code, text) = ended(&site, &["sync"]);
    assert!(code == 1 && text.contains("cannot be read"), "{code}: {text}");
    repo.set_gone(false);
    repo.commit("Repair it", &repo.with_cap(5));
    assert_eq!(site.json(&["sync"])["result"], "applied");
    assert_eq!((cap(&site), alarms(&site)), (json!(5), String::new()));
}

#[test]
fn a_start_without_the_repository_goes_on_with_the_last_commit() {
    let (_dir, sim, site) = world();
    let repo = Repo::new(&site, &sim);
    let service = Service::start(&site);
    site.json(&["sync"]);
    drop(service);
    repo.set_gone(true);
    let _service = Service::start(&site);
    assert_eq!(cap(&site), 4);
    repo.set_gone(false);
}

#[test]
fn a_branch_that_was_moved_by_force_is_synced_like_any_other() {
    let (_dir, sim, site) = world();
    let repo = Repo::new(&site, &sim);
    let _service = Service::start(&site);
    repo.commit("One", &repo.with_cap(5));
    site.json(&["sync"]);
    repo.git(&["reset", "-q", "--hard", "HEAD~1"]);
    let other = repo.commit("Another one", &repo.with_cap(6));
    assert_eq!(site.json(&["sync"])["inForce"]["commit"], json!(other));
    assert_eq!(cap(&site), 6);
}

// Invariant: what leaves git is drained, and nobody's machine goes with it.

#[test]
fn a_cloud_that_leaves_the_file_keeps_its_leased_agent_until_the_lease_ends() {
    let (_dir, sim, site) = world();
    let repo = Repo::new(&site, &sim);
    let _service = Service::start(&site);
    site.json(&["sync"]);
    let lease = site.json(&["lease", "--labels", "linux"]);
    let id = lease["id"].as_str().unwrap();
    repo.commit("Remove it", "# nothing\n");
    let (code, text) = ended(&site, &["sync"]);
    assert!(code == 2 && text.contains("all its clouds would go"), "{code}: {text}");
    repo.commit("Remove it", "cloudConfigurations: {}\n");
    let out = site.json(&["sync"]);
    assert_eq!((&out["result"], &out["drained"]), (&json!("applied"), &json!(["lab"])));
    let leases = site.json(&["leases"]);
    assert_eq!(leases["leases"][0]["state"], "ready", "{leases}");
    site.json(&["release", id]);
    site.until_empty();
}

// Invariant: a faulty edit of a copy changes nothing that runs, and keeps no service from starting.

#[test]
fn a_service_starts_with_what_git_says_where_an_edited_copy_is_faulty() {
    let (_dir, sim, site) = world();
    let repo = Repo::new(&site, &sim);
    let service = Service::start(&site);
    site.json(&["sync"]);
    let copy = site.dir.path().join("state/config-sync/in-force/files/ci/cloud.yaml");
    fs::write(&copy, repo.template.replace("instanceCap", "instnaceCap")).unwrap();
    let (code, text) = ended(&site, &["reload"]);
    assert!(code == 2 && text.contains("in-force/files/ci/cloud.yaml"), "{code}: {text}");
    drop(service);
    let service = Service::start(&site);
    assert_eq!(cap(&site), 4);
    let shown = eventually(|| alarms(&site), |alarms| alarms.contains("instnaceCap"));
    assert!(shown.contains("in-force/files/ci/cloud.yaml"), "{shown}");
    assert_eq!(site.json(&["sync"])["result"], "applied");
    assert_eq!(alarms(&site), "");
    drop(service);
    // A folder in its place is no file that anybody could read.
    fs::remove_file(&copy).unwrap();
    fs::create_dir(&copy).unwrap();
    let _service = Service::start(&site);
    assert_eq!(cap(&site), 4);
    let shown = eventually(|| alarms(&site), |alarms| alarms.contains("cannot be read"));
    assert!(shown.contains("in-force/files/ci/cloud.yaml"), "{shown}");
    assert_eq!(site.json(&["sync"])["result"], "applied");
    assert_eq!((alarms(&site), ended(&site, &["reload"]).0), (String::new(), 0));
}

// Invariant: manual changes hold until the next sync, are named, and are refused where they are not allowed.

#[test]
fn a_value_that_somebody_sets_is_an_alarm_until_the_next_sync_undoes_it() {
    let (_dir, sim, site) = world();
    let _repo = Repo::new(&site, &sim);
    let service = Service::start(&site);
    site.json(&["sync"]);
    let (code, text) = ended(&site, &["templates", "set", "linux", "--instance-cap", "2"]);
    assert_eq!((code, &*text), (0, "template linux: instanceCap 2\n"));
    assert_eq!(cap(&site), 2);
    drop(service);
    let _service = Service::start(&site);
    assert_eq!(cap(&site), 2, "it is durable");
    let wanted = "agentConfigurations.linux.instanceCap (cloud lab)";
    assert!(alarms(&site).contains(wanted), "{}", alarms(&site));
    let out = site.json(&["sync"]);
    assert_eq!((&out["result"], &out["undone"]), (&json!("unchanged"), &json!(1)));
    assert_eq!((cap(&site), alarms(&site)), (json!(4), String::new()));
}

#[test]
fn an_edited_copy_comes_into_force_and_the_next_sync_undoes_it() {
    let (_dir, sim, site) = world();
    let repo = Repo::new(&site, &sim);
    let _service = Service::start(&site);
    site.json(&["sync"]);
    let copy = site.dir.path().join("state/config-sync/in-force/files/ci/cloud.yaml");
    fs::write(&copy, repo.with_cap(9)).unwrap();
    site.json(&["reload"]);
    assert_eq!(cap(&site), 9);
    let status = site.json(&["sync", "--status"]);
    let change = &status["manualChanges"][0];
    assert_eq!(change["path"], "agentConfigurations.linux.instanceCap");
    assert_eq!((&change["before"], &change["after"]), (&json!("4"), &json!("9")));
    assert_eq!(site.json(&["sync"])["undone"], 1);
    assert_eq!((cap(&site), alarms(&site)), (json!(4), String::new()));
}

#[test]
fn where_manual_changes_are_not_allowed_nobody_makes_any() {
    let (_dir, sim, site) = world();
    let repo = Repo::new(&site, &sim);
    let yaml = fs::read_to_string(site.config()).unwrap();
    site.write_yaml(&yaml.replace("ci/cloud.yaml}", "ci/cloud.yaml, allowManualChanges: false}"));
    let _service = Service::start(&site);
    site.json(&["sync"]);
    for args in [
        &["templates", "set", "linux", "--instance-cap", "2"][..],
        &["clouds", "set", "lab", "--instance-cap", "2"],
    ] {
        let (code, text) = ended(&site, args);
        assert!(code == 1 && text.contains("git manages cloud `lab`"), "{code}: {text}");
    }
    let copy = site.dir.path().join("state/config-sync/in-force/files/ci/cloud.yaml");
    fs::write(&copy, repo.with_cap(9)).unwrap();
    site.json(&["reload"]);
    assert_eq!((cap(&site), alarms(&site)), (json!(4), String::new()));
}

// Invariant: a return to a commit holds until somebody asks for the branch.

#[test]
fn a_return_to_a_commit_needs_no_git_and_holds_until_the_next_sync() {
    let (_dir, sim, site) = world();
    let repo = Repo::new(&site, &sim);
    let _service = Service::start(&site);
    site.json(&["sync"]);
    let first = repo.head();
    repo.commit("Raise the cap", &repo.with_cap(7));
    site.json(&["sync"]);
    repo.set_gone(true);
    assert_eq!(site.json(&["sync", "--back"])["inForce"]["commit"], json!(first));
    assert_eq!((cap(&site), &site.json(&["sync", "--status"])["pinned"]), (json!(4), &json!(true)));
    let (code, text) = ended(&site, &["sync", "--to", "beef"]);
    assert!(code == 1 && text.contains("no applied commit begins with `beef`"), "{code}: {text}");
    repo.set_gone(false);
    assert_eq!(site.json(&["sync"])["inForce"]["subject"], "Raise the cap");
    assert_eq!(site.json(&["sync", "--to", &first[..8]])["inForce"]["commit"], json!(first));
    assert_eq!(cap(&site), 4);
    // Who says it twice loses no way back.
    assert_eq!(site.json(&["sync", "--to", &first])["result"], "unchanged");
    let status = site.json(&["sync", "--status"]);
    let history = status["history"].as_array().unwrap();
    assert_eq!((history.len(), &status["pinned"]), (2, &json!(true)), "{status}");
}

// Invariant: a plan says what would happen, and changes nothing.

#[test]
fn a_plan_says_what_a_file_and_the_branch_would_change_and_changes_nothing() {
    let (_dir, sim, site) = world();
    let repo = Repo::new(&site, &sim);
    let _service = Service::start(&site);
    site.json(&["sync"]);
    let path = repo.file();
    let path = path.to_str().unwrap();
    assert_eq!(ended(&site, &["plan", path]), (0, "nothing to do\n".to_owned()));
    fs::write(repo.file(), repo.with_cap(6)).unwrap();
    let (code, text) = ended(&site, &["plan", path]);
    assert_eq!(code, 3, "{text}");
    assert_eq!(
        text,
        "~ template lab/linux: changed, agents stay as they are\n    the most agents: 4 -> 6\n\
         values\n  agentConfigurations.linux.instanceCap: 4 -> 6\n\
         nothing was changed: this is a plan\n"
    );
    assert_eq!(ended(&site, &["plan", "--git"]).0, 0);
    repo.commit("Raise the cap", &repo.with_cap(6));
    assert_eq!(ended(&site, &["plan", "--git"]).0, 3);
    fs::write(repo.file(), repo.template.replace("instanceCap", "cap")).unwrap();
    let (code, text) = ended(&site, &["plan", path]);
    assert!(code == 1 && text.contains("git:ci/cloud.yaml"), "{code}: {text}");
    assert_eq!(ended(&site, &["plan", "/nowhere.yaml"]).0, 2);
    assert_eq!(cap(&site), 4);
}

// Invariant: a test of the connection reports repository, branch, file and configuration apart.

#[test]
fn a_test_of_the_connection_reports_each_part() {
    let (_dir, sim, site) = world();
    let repo = Repo::new(&site, &sim);
    let _service = Service::start(&site);
    let parts = |site: &Site| -> Vec<Value> {
        let out = site.cli(&["--json", "sync", "--test"]);
        let out: Value = serde_json::from_slice(&out.stdout).unwrap();
        out["checks"].as_array().unwrap().iter().map(|check| check["ok"].clone()).collect()
    };
    assert_eq!(parts(&site), [true, true, true, true]);
    repo.commit("Break it", "cloudConfigurations: 5\n");
    assert_eq!(parts(&site), [true, true, true, false]);
    repo.git(&["mv", "ci/cloud.yaml", "ci/other.yml"]);
    repo.git(&["commit", "-q", "-m", "Move it"]);
    assert_eq!(parts(&site), [json!(true), json!(true), json!(false), Value::Null]);
    repo.git(&["branch", "-m", "main", "trunk"]);
    assert_eq!(parts(&site), [json!(true), json!(false), Value::Null, Value::Null]);
    assert_eq!(site.json(&["clouds"])["clouds"], json!([]));
}

// Invariant: a schedule syncs by itself.

#[test]
fn a_schedule_syncs_at_the_start() {
    let (_dir, sim, site) = world();
    let _repo = Repo::new(&site, &sim);
    let yaml = fs::read_to_string(site.config()).unwrap();
    site.write_yaml(&yaml.replace("ci/cloud.yaml}", "ci/cloud.yaml, schedule: '*/5 * * * *'}"));
    let _service = Service::start(&site);
    let mut events = Events::follow_with(&site, &["--after", "0"]);
    let event = events.until("configSynced", |_| true);
    assert_eq!(event["subject"], "Begin");
    let mut events = Events::follow_with(&site, &["--after", "0"]);
    events.until("template", |event| event["template"]["cap"] == 4);
}

// Invariant: a repository elsewhere is read with the login that the machine's configuration names.

#[tokio::test]
async fn a_repository_over_http_is_synced_with_the_login_and_says_when_it_is_refused() {
    let (_dir, sim, site) = world();
    let root = tempfile::tempdir().unwrap();
    let login = Some(("ci".to_owned(), "s3cret-word".to_owned()));
    let rules = Rules { root: root.path().to_owned(), login, ..Rules::default() };
    let server = HttpServer::start(rules).await;
    let url = server.url("ci.git");
    let ended = tokio::task::spawn_blocking(move || {
        let repo =
            Repo::reached(&site, &sim, |_| format!("repository: '{url}', credentialsId: git"));
        let bare = root.path().join("ci.git");
        repo.git(&["clone", "-q", "--bare", ".", bare.to_str().unwrap()]);
        add_credential(&site, "git: {kind: apiLogin, username: ci, secretFile: 'git'}");
        site.write_secret("git", "s3cret-word\n");
        let _service = Service::start(&site);
        assert_eq!(site.json(&["sync"])["result"], "applied");
        assert_eq!((cap(&site), alarms(&site)), (json!(4), String::new()));
        site.write_secret("git", "another-word\n");
        site.json(&["reload"]);
        let refused = ended(&site, &["sync"]);
        let alarm = alarms(&site);
        site.write_secret("git", "s3cret-word\n");
        site.json(&["reload"]);
        assert_eq!(site.json(&["sync"])["result"], "unchanged");
        assert_eq!((cap(&site), alarms(&site)), (json!(4), String::new()));
        (refused, alarm)
    });
    let ((code, text), alarm) = ended.await.unwrap();
    assert!(code == 1 && text.contains("check that the credential is current"), "{code}: {text}");
    assert!(alarm.contains("not synced with git"), "{alarm}");
    assert!(!(text + &alarm).contains("another-word"));
}

#[test]
fn a_repository_over_ssh_is_synced_with_the_key_of_the_machine_and_an_unknown_host_is_refused() {
    if !SshServer::is_there() {
        return;
    }
    let (_dir, sim, site) = world();
    let server = SshServer::start(true);
    let keys = |known: &str, dir: &Path| {
        format!(
            "repository: 'ssh://{}@127.0.0.1:{}{}', credentialsId: git, knownHosts: ['{}']",
            server.user,
            server.port,
            dir.display(),
            known.trim()
        )
    };
    let repo = Repo::reached(&site, &sim, |dir| keys(&server.known_hosts, dir));
    add_credential(
        &site,
        &format!("git: {{kind: sshKey, username: {}, privateKeyFile: 'git'}}", server.user),
    );
    site.write_secret("git", &server.key);
    let _service = Service::start(&site);
    assert_eq!(site.json(&["sync"])["result"], "applied");
    assert_eq!((cap(&site), alarms(&site)), (json!(4), String::new()));
    let yaml = fs::read_to_string(site.config()).unwrap();
    let wrong = server.wrong_known_hosts();
    site.write_yaml(&yaml.replace(server.known_hosts.trim(), wrong.trim()));
    site.json(&["reload"]);
    repo.commit("Raise the cap", &repo.with_cap(7));
    let (code, text) = ended(&site, &["sync"]);
    assert!(code == 1 && text.contains("host key"), "{code}: {text}");
    assert_eq!(cap(&site), 4);
    site.write_yaml(&yaml);
    site.json(&["reload"]);
    assert_eq!(site.json(&["sync"])["inForce"]["subject"], "Raise the cap");
}

// Invariant: a repository that never answers keeps nobody from what needs no repository.

#[test]
fn a_return_ends_a_sync_with_a_repository_that_hangs_and_a_plan_of_files_does_not_wait_for_it() {
    let (_dir, sim, site) = world();
    let repo = Repo::new(&site, &sim);
    let _service = Service::start(&site);
    site.json(&["sync"]);
    let first = repo.head();
    repo.commit("Raise the cap", &repo.with_cap(7));
    site.json(&["sync"]);
    let _silent = hang(&site, &repo);
    let syncing = site.command(["sync"]).stderr(Stdio::piped()).stdout(Stdio::null()).spawn();
    while site.json(&["sync", "--status"])["running"] != true {}
    let path = repo.file();
    assert_eq!(ended(&site, &["plan", path.to_str().unwrap()]).0, 0);
    assert_eq!(site.json(&["sync", "--back"])["inForce"]["commit"], json!(first));
    let out = syncing.unwrap().wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{text}");
    assert!(text.contains("somebody returned to a commit"), "{text}");
    assert_eq!(cap(&site), 4);
    let alarms = alarms(&site);
    assert!(alarms.contains("stays at commit") && alarms.lines().count() == 1, "{alarms}");
}

/// Puts a server that never answers in the place of the repository.
fn hang(site: &Site, repo: &Repo) -> TcpListener {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/ci.git", silent.local_addr().unwrap());
    let yaml = fs::read_to_string(site.config()).unwrap();
    let here = format!("'{}'", repo.dir.path().display());
    site.write_yaml(&yaml.replace(&here, &format!("'{url}', timeoutSec: 600")));
    site.json(&["reload"]);
    silent
}

/// Gives this machine's file one more credential.
fn add_credential(site: &Site, entry: &str) {
    let yaml = fs::read_to_string(site.config()).unwrap();
    site.write_yaml(&yaml.replace("credentials:\n", &format!("credentials:\n  {entry}\n")));
}
