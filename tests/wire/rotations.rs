//! `drover setup rights --rotate` cut short: what it leaves behind is found by the next run.

use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Stdio;

use super::harness::{Kept, Lines, Service, Sim, Site, drover};
use super::rights::{run, setup, site, tokens};

/// A rotation that begins, with the service that it is asked to reach.
fn started(site: &Site, socket: &Path, grace: &str) -> (Kept, Lines) {
    let mut command = drover();
    command.arg("--config").arg(site.config()).arg("--socket").arg(socket);
    command.args(["setup", "rights", "--rotate", "--grace", grace, "--user", "root@pam"]);
    command.arg("--password-file").arg(site.dir.path().join("admin"));
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let said = Lines::of("the rotation", child.stdout.take().unwrap());
    (Kept(child), said)
}

fn until(what: &str, done: impl Fn() -> bool) {
    for _ in 0..600 {
        if done() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    panic!("{what} did not happen");
}

fn cut(mut rotation: Kept) {
    rotation.0.kill().unwrap();
    rotation.0.wait().unwrap();
}

fn works(site: &Site) {
    let out = run(site, &["doctor"]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stdout));
}

fn there(site: &Site, name: &str) -> bool {
    site.dir.path().join(name).exists()
}

fn prepared() -> (tempfile::TempDir, Sim, Site) {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start(dir.path());
    let site = site(&sim, "");
    assert_eq!(setup(&site, &[]).0, 0);
    (dir, sim, site)
}

// Invariant: wherever a rotation is cut short, the token in the YAML works, the next run names what is
// left with the command that removes it, and a rotation removes what is proven its own.

#[test]
fn a_token_whose_answer_never_came_is_named_and_then_removed() {
    let (dir, sim, site) = prepared();
    let faults = dir.path().join("faults.yaml");
    let order = |more: &str| {
        let route = "route: \"/access/users/{userid}/token/{tokenid}\", reset: true, times: 1";
        let rules = format!("calls: [{{{route}, method: POST, done: true}}{more}]\n");
        std::fs::write(&faults, rules.replace("ROUTE", route)).unwrap();
        sim.order(&format!("faults {}", faults.display()));
    };
    // Where the cluster still answers it is taken away at once.
    order("");
    let (code, reported) = setup(&site, &["--rotate", "--grace", "0"]);
    assert_eq!(code, 1, "{reported}");
    assert!(reported.contains("is in use and works; nothing is left over"), "{reported}");
    assert_eq!(tokens(&sim), ["ci"]);
    order(", {ROUTE, method: DELETE}");
    let (code, reported) = setup(&site, &["--rotate", "--grace", "0"]);
    assert_eq!(code, 1, "{reported}");
    assert!(reported.contains("pveum user token remove drover@pve ci-2"), "{reported}");
    assert_eq!(tokens(&sim), ["ci", "ci-2"]);
    sim.order("faults none");
    works(&site);

    let left = "token drover@pve!ci-2 was left by an interrupted rotation: \
                pveum user token remove drover@pve ci-2";
    let (code, dry) = setup(&site, &["--dry-run"]);
    assert_eq!(code, 0, "{dry}");
    assert!(dry.contains(&format!("# {left}\n")), "{dry}");
    let (code, reported) = setup(&site, &[]);
    assert_eq!(code, 0, "{reported}");
    assert!(reported.contains(&format!("note: {left}\n")), "{reported}");
    assert_eq!(tokens(&sim), ["ci", "ci-2"]);

    // One of the same name that somebody else made is no rotation's.
    sim.send("POST", "/access/users/drover@pve/token/ci-7", &[("comment", "the other machine's")]);
    let _service = Service::start(&site);
    let (code, done) = setup(&site, &["--rotate", "--grace", "0"]);
    assert_eq!(code, 0, "{done}");
    assert!(done.contains("done: removed drover@pve!ci-2, left by an interrupted rotation\n"));
    assert!(done.ends_with("ok: drover@pve!ci-2 is in use\n"), "{done}");
    assert!(
        done.contains("note: token drover@pve!ci-7 (the other machine's) exists beside"),
        "{done}"
    );
    assert_eq!(tokens(&sim), ["ci-2", "ci-7"]);
    works(&site);
}

#[test]
fn a_secret_that_was_written_before_the_yaml_is_named_and_then_removed() {
    let (_dir, sim, site) = prepared();
    // A service that never answers holds the rotation where the file is written, and the YAML is not.
    let socket = site.dir.path().join("silent.sock");
    let _silent = UnixListener::bind(&socket).unwrap();
    let (rotation, _said) = started(&site, &socket, "0");
    until("the new secret", || there(&site, "token.ci-2"));
    cut(rotation);
    let yaml = std::fs::read_to_string(site.config()).unwrap();
    assert!(yaml.contains("drover@pve!ci\""), "{yaml}");
    works(&site);

    let (code, reported) = setup(&site, &[]);
    assert_eq!(code, 0, "{reported}");
    let left = "token drover@pve!ci-2 was left by an interrupted rotation: \
                pveum user token remove drover@pve ci-2; rm SITE/token.ci-2\n";
    assert!(reported.contains(left), "{reported}");
    // Without the token its secret is of no use.
    sim.send("DELETE", "/access/users/drover@pve/token/ci-2", &[]);
    let (code, reported) = setup(&site, &[]);
    assert_eq!(code, 0, "{reported}");
    let left =
        "SITE/token.ci-2 is the secret of a token that no longer exists: rm SITE/token.ci-2\n";
    assert!(reported.contains(left), "{reported}");
    let _service = Service::start(&site);
    let (code, done) = setup(&site, &["--rotate", "--grace", "0"]);
    assert_eq!(code, 0, "{done}");
    assert!(done.contains("done: removed SITE/token.ci-2, left by an interrupted rotation\n"));
    assert_eq!(tokens(&sim), ["ci-2"]);
    assert!(!there(&site, "token") && there(&site, "token.ci-2"));
    works(&site);
}

#[test]
fn an_old_token_that_stayed_after_the_yaml_changed_is_named() {
    let (_dir, sim, site) = prepared();
    let service = Service::start(&site);
    let (rotation, _said) = started(&site, &site.dir.path().join("drover.sock"), "600");
    let swapped = || std::fs::read_to_string(site.config()).unwrap().contains("drover@pve!ci-2");
    until("the new YAML", swapped);
    cut(rotation);
    assert_eq!(tokens(&sim), ["ci", "ci-2"]);
    works(&site);
    let (code, reported) = setup(&site, &[]);
    assert_eq!(code, 0, "{reported}");
    let left = "token drover@pve!ci (made by drover setup rights) exists beside the one in the YAML; once \
                nothing uses it: pveum user token remove drover@pve ci; rm SITE/token\n";
    assert!(reported.contains(left), "{reported}");

    // The one after that is cut short as well: the one in the middle is proven to be a rotation's, and
    // is removed once the service has taken up another.
    let (rotation, _said) = started(&site, &site.dir.path().join("drover.sock"), "600");
    let swapped = || std::fs::read_to_string(site.config()).unwrap().contains("drover@pve!ci-3");
    until("the new YAML", swapped);
    cut(rotation);
    assert_eq!(tokens(&sim), ["ci", "ci-2", "ci-3"]);
    let (code, done) = setup(&site, &["--rotate", "--grace", "0"]);
    assert_eq!(code, 0, "{done}");
    assert_eq!(tokens(&sim), ["ci", "ci-4"]);
    assert!(!there(&site, "token.ci-2") && !there(&site, "token.ci-3"));
    assert!(
        done.contains("note: token drover@pve!ci (made by drover setup rights) exists beside"),
        "{done}"
    );
    drop(service);
    works(&site);
}

#[test]
fn an_old_token_stays_where_the_service_that_runs_reads_other_files() {
    let (_dir, sim, site) = prepared();
    // A service of its own files, at the socket that the rotation asks.
    let other = super::rights::site(&sim, "");
    std::fs::copy(site.dir.path().join("token"), other.dir.path().join("token")).unwrap();
    let _service = Service::start(&other);
    let (mut rotation, mut said) = started(&site, &other.dir.path().join("drover.sock"), "0");
    said.until(|line| line.contains("but no running service took it up"));
    assert!(rotation.0.wait().unwrap().success());
    assert_eq!(tokens(&sim), ["ci", "ci-2"]);
    works(&other);
    works(&site);
}

#[test]
fn two_rotations_of_one_configuration_do_not_run_at_once() {
    let (_dir, sim, site) = prepared();
    let socket = site.dir.path().join("silent.sock");
    let _silent = UnixListener::bind(&socket).unwrap();
    let (rotation, _said) = started(&site, &socket, "0");
    until("the new secret", || there(&site, "token.ci-2"));
    let (code, reported) = setup(&site, &["--rotate", "--grace", "0"]);
    assert_eq!(code, 1, "{reported}");
    assert!(reported.contains("another rotation of this configuration is under way"), "{reported}");
    assert_eq!(tokens(&sim), ["ci", "ci-2"]);
    cut(rotation);
}
