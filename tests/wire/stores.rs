//! Journals in stores that machines share: copies there and back.

use std::any::Any;
use std::path::Path;

use drover_stores::testing::{Cluster, ObjectServer};
use serde_json::{Value, json};

use crate::api::call;
use crate::harness::{Service, Site, drover, world};
use crate::members::{Members, etcd, s3};

/// What `drover journal` says, and its exit code.
fn journal(args: &[&str]) -> (i32, String) {
    let out = drover().arg("journal").args(args).output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    (out.status.code().unwrap(), text + &String::from_utf8_lossy(&out.stderr))
}

/// A lease of a service that was killed.
fn left_behind(site: &Site) -> Value {
    let mut service = Service::start(site);
    let lease = site.json(&["lease", "--labels", "linux"]);
    service.child.signal("KILL");
    service.child.wait();
    lease
}

/// What a journal holds, without its place and size.
fn held(place: &str) -> Vec<String> {
    let (code, text) = journal(&["verify", place]);
    assert_eq!(code, 0, "{place}: {text}");
    text.lines().skip(2).map(str::to_owned).collect()
}

// Invariant: a journal is the same wherever it lies.

#[test]
fn a_journal_goes_into_etcd_and_comes_back_to_a_service_that_knows_its_lease() {
    let Some(mut etcd) = Cluster::start(3) else { return };
    let (_dir, _sim, site) = world();
    let lease = left_behind(&site);

    let state = site.dir.path().join("state");
    let (state, file) = (state.to_str().unwrap(), site.dir.path().join("copy.redb"));
    let store = etcd.text("herd/ci");
    let (code, text) = journal(&["copy", state, &store, "--journal-only"]);
    assert!(code == 0 && text.contains("with one of the two alone"), "{code}: {text}");
    assert_eq!(held(&store), held(state));
    let agent = lease["agent"].as_str().unwrap();
    let (code, text) = journal(&["inspect", &store, "--about", agent]);
    assert!(code == 0 && text.contains("leaseGranted"), "{code}: {text}");

    // One of three members may be dead, and a prefix that is taken stays as it is.
    etcd.kill(0);
    let (code, text) = journal(&["copy", state, &store, "--journal-only"]);
    assert!(code == 1 && text.contains("nothing was copied"), "{code}: {text}");
    let (code, text) = journal(&["verify", &etcd.text("herd")]);
    assert!(code == 1 && text.contains("there is one at `/herd/ci`"), "{code}: {text}");
    let (code, text) = journal(&["copy", &store, file.to_str().unwrap()]);
    assert_eq!(code, 0, "{text}");
    assert_eq!(held(file.to_str().unwrap()), held(state));

    std::fs::rename(&file, format!("{state}/journal.redb")).unwrap();
    let _service = Service::start(&site);
    let known = call(&site, "GET", "/v1/leases", None).1["leases"][0].clone();
    assert_eq!((&known["id"], &known["agent"]), (&lease["id"], &lease["agent"]));
}

#[test]
fn a_journal_goes_into_an_object_store_and_comes_back() {
    let Some(mut server) = ObjectServer::start() else { return };
    let (_dir, _sim, site) = world();
    let lease = left_behind(&site);

    let state = site.dir.path().join("state");
    let (state, file) = (state.to_str().unwrap(), site.dir.path().join("copy.redb"));
    let store = server.text("herd/ci");
    let (code, text) = journal(&["copy", state, &store, "--journal-only"]);
    assert!(code == 0 && text.contains("with one of the two alone"), "{code}: {text}");
    assert_eq!(held(&store), held(state));
    let agent = lease["agent"].as_str().unwrap();
    let (code, text) = journal(&["inspect", &store, "--about", agent]);
    assert!(code == 0 && text.contains("leaseGranted"), "{code}: {text}");

    // A prefix that is taken stays as it is, and nothing is elsewhere.
    let (code, text) = journal(&["copy", state, &store, "--journal-only"]);
    assert!(code == 1 && text.contains("nothing was copied"), "{code}: {text}");
    let (code, text) = journal(&["verify", &server.text("herd")]);
    assert!(code == 1 && text.contains("there is one at `herd/ci`"), "{code}: {text}");
    let (code, text) = journal(&["copy", &store, file.to_str().unwrap()]);
    assert_eq!(code, 0, "{text}");
    assert_eq!(held(file.to_str().unwrap()), held(state));

    server.kill();
    let (code, text) = journal(&["verify", &store]);
    assert!(code == 1 && text.contains("the store was not reached"), "{code}: {text}");
    let (code, text) = journal(&["verify", "s3://herd?regoin=x"]);
    assert!(code == 2 && text.contains("`regoin` is no option"), "{code}: {text}");
}

#[test]
fn a_store_that_cannot_serve_is_named_and_nothing_is_written_elsewhere() {
    let Some(mut etcd) = Cluster::start(3) else { return };
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("copy.redb");
    let file = file.to_str().unwrap();
    etcd.kill(0);
    etcd.kill(1);
    let store = etcd.text("herd");
    let store = store.as_str();
    for args in [["verify", store].as_slice(), &["copy", store, file]] {
        let (code, text) = journal(args);
        assert_eq!(code, 1, "{text}");
        assert!(text.contains(&format!("the journal `{store}` could not be read")), "{text}");
    }
    assert!(!std::path::Path::new(file).exists());
    let (code, text) = journal(&["verify", "etcd://"]);
    assert!(code == 2 && text.contains("write etcd://HOST:PORT"), "{code}: {text}");
}

// Invariant: what lies beside a journal goes with it, and is encrypted where others can read it.

#[test]
fn a_copy_takes_along_what_lies_beside_the_journal_under_the_key_of_the_members() {
    let Some(etcd) = Cluster::start(1) else { return };
    let (_dir, _sim, site) = world();
    let mut service = Service::start(&site);
    let asked = json!({"labels": ["linux"], "userData": "the token of a team"});
    let lease = call(&site, "POST", "/v1/leases", Some(&asked)).1;
    service.child.signal("KILL");
    service.child.wait();
    let dir = site.dir.path();
    let state = dir.join("state");
    let (store, text) = (etcd.text("herd"), state.to_str().unwrap());
    let key = |name: &str, letter: &str| {
        site.write_secret(name, &letter.repeat(32));
        dir.join(name).to_str().unwrap().to_owned()
    };
    let (key, other) = (key("cluster.key", "k"), key("other.key", "o"));

    // Without the key nothing goes anywhere.
    let (code, said) = journal(&["copy", text, &store]);
    assert!(code == 1 && said.contains("give --cluster-key-file"), "{code}: {said}");
    let (code, said) = journal(&["verify", &store]);
    assert!(code == 1 && said.contains("no journal is at"), "{code}: {said}");

    let (code, said) = journal(&["copy", text, &store, "--cluster-key-file", &key]);
    assert!(code == 0 && said.contains("beside it: copied too"), "{code}: {said}");
    let back = dir.join("back");
    let (code, said) =
        journal(&["copy", &store, back.to_str().unwrap(), "--cluster-key-file", &key]);
    assert!(code == 1 && said.contains("make the state directory first"), "{code}: {said}");
    std::fs::create_dir(&back).unwrap();
    let path = back.to_str().unwrap();
    let (code, said) = journal(&["copy", &store, path, "--cluster-key-file", &other]);
    assert!(code == 1 && said.contains("another service.clusterKey"), "{code}: {said}");
    assert_eq!(std::fs::read_dir(&back).unwrap().count(), 0);
    let (code, said) = journal(&["copy", &store, path, "--cluster-key-file", &key]);
    assert_eq!(code, 0, "{said}");
    let user_data = format!("user-data/{}", lease["id"].as_str().unwrap());
    for name in ["call-in.key", &user_data] {
        let read = |folder: &Path| std::fs::read(folder.join(name)).unwrap();
        assert_eq!(read(&back), read(&state), "{name}");
    }
    assert_eq!(held(path), held(text));

    // A file of another name keeps nothing beside it, and says so.
    let file = dir.join("copy.redb");
    let (code, said) = journal(&["copy", text, file.to_str().unwrap()]);
    assert!(code == 0 && said.contains("not copied, only a state directory"), "{code}: {said}");
}

// Invariant: a copy shows what a drover left behind, and never what one is about to change.

#[test]
fn nothing_is_copied_from_or_into_an_etcd_while_a_drover_leads_there() {
    if let Some(store) = etcd() {
        nothing_is_copied_while_a_drover_leads(store);
    }
}

#[test]
fn nothing_is_copied_from_or_into_an_object_store_while_a_drover_leads_there() {
    if let Some(store) = s3() {
        nothing_is_copied_while_a_drover_leads(store);
    }
}

fn nothing_is_copied_while_a_drover_leads((store, address): (Box<dyn Any>, String)) {
    let (dir, sim, site) = world();
    let yaml = site.yaml(&sim, "");
    let mut members = Members::start((store, address.clone()), site, &yaml);
    members.leader();
    let text_copy = dir.path().join("copy.jsonl");
    let text_copy = text_copy.to_str().unwrap();
    // What a text repeats of the options is the affair of the address.
    let shown = address.split('?').next().unwrap();
    let (code, text) = journal(&["copy", &address, text_copy]);
    assert!(code == 1 && text.contains(&format!("leads in `{shown}")), "{code}: {text}");
    assert!(!std::path::Path::new(text_copy).exists());

    // A leader that was killed said nothing: its lease has to stand still for its whole time.
    (0..3).for_each(|at| members.kill(at));
    let (code, text) = journal(&["copy", &address, text_copy]);
    assert!(code == 0 && text.contains("watching for 3 seconds"), "{code}: {text}");

    members.launch(0);
    members.leader();
    let (code, text) = journal(&["copy", text_copy, &address]);
    assert!(code == 1 && text.contains(&format!("`a` leads in `{shown}")), "{code}: {text}");
}

#[test]
fn a_look_into_a_journal_finds_it_as_a_start_does_and_says_what_is_not_there() {
    let Some(etcd) = Cluster::start(1) else { return };
    let (_dir, _sim, site) = world();
    let lease = left_behind(&site);
    let state = site.dir.path().join("state");
    let store = etcd.text("herd/ci");
    let (code, text) = journal(&["copy", state.to_str().unwrap(), &store, "--journal-only"]);
    assert_eq!(code, 0, "{text}");
    let agent = lease["agent"].as_str().unwrap();
    let by_variable = |args: &[&str]| {
        let out = drover().env("DROVER_STORE", &store).arg("journal").args(args).output().unwrap();
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        (out.status.code().unwrap(), text + &String::from_utf8_lossy(&out.stderr))
    };
    let (code, text) = by_variable(&["verify"]);
    assert!(code == 0 && text.contains(&format!("{store} is sound")), "{code}: {text}");
    let (code, text) = by_variable(&["inspect", "--about", &agent[..8]]);
    assert!(code == 0 && text.contains("leaseGranted"), "{code}: {text}");
    let (code, text) = by_variable(&["inspect", "--about", "nope"]);
    assert!(code == 0 && text.contains("no record after that is about `nope`"), "{code}: {text}");

    let (code, text) = journal(&["verify", &etcd.text("herd/ci/lab")]);
    assert!(code == 1 && text.contains("there is one at `/herd/ci`"), "{code}: {text}");
    let other = site.dir.path().join("notes.txt");
    std::fs::write(&other, "no journal").unwrap();
    let (code, text) = journal(&["verify", other.to_str().unwrap()]);
    assert!(code == 1 && text.contains("notes.txt` is no journal, or a damaged one"), "{text}");
    let (code, text) = journal(&["verify", "/nowhere/herd"]);
    assert!(code == 1 && text.contains("there is no such file"), "{code}: {text}");
    let (code, text) = journal(&["verify", "http://127.0.0.1:2379/herd"]);
    assert!(code == 2 && text.contains("write etcd://HOST:PORT"), "{code}: {text}");
}
