//! `drover doctor` and sources of demand: what it says of each kind, and of what is wrong.

use crate::ci::{Fake, Server};
use crate::harness::{Sim, Site, world};
use crate::open::free_port;
use crate::ways::Kind;
use crate::{forgejo, gitlab, woodpecker};

/// What the doctor says of the source `ci`, and whether that is well; ports are not reported.
fn doctored(site: &Site) -> (String, bool) {
    let config = site.config().display().to_string();
    let out = site.cli(&["--config", &config, "doctor", "--source", "ci"]);
    let said = String::from_utf8(out.stdout).unwrap();
    let shown = said.split("127.0.0.1:").enumerate().map(|(at, part)| match at {
        0 => part.to_owned(),
        _ => format!("HOST{}", part.trim_start_matches(|ch: char| ch.is_ascii_digit())),
    });
    assert_eq!(String::from_utf8_lossy(&out.stderr), "");
    (shown.collect(), out.status.success())
}

fn configured<F: Fake>(
    kind: &Kind<F>,
    more: &str,
    change: impl Fn(&mut F),
) -> (Server<F>, Reported) {
    let server = (kind.start)();
    change(&mut server.fake());
    let (dir, sim, site) = world();
    let keys = kind.keys.replace("ADDRESS", &server.address());
    site.write_secret("api", "a token of operators");
    let folder = site.dir.path().display();
    let tokens = format!("tokens: [{{name: ops, role: operator, secretFile: \"{folder}/api\"}}]");
    let listen = format!("service:\n  listen: \"127.0.0.1:{}\"\n  {tokens}\n", free_port());
    let yaml = site.yaml(&sim, "").replace("service:\n", &listen);
    let runner = (kind.script, kind.program);
    server.source(&site, &yaml, runner, &format!("{keys}, {more}"));
    let reported = doctored(&site);
    (server, Reported { reported, _sim: sim, site, _dir: dir })
}

struct Reported {
    reported: (String, bool),
    _sim: Sim,
    site: Site,
    _dir: tempfile::TempDir,
}

fn said<F: Fake>(kind: &Kind<F>, more: &str, change: impl Fn(&mut F)) -> (String, bool) {
    configured(kind, more, change).1.reported
}

// Invariant: where all is well nothing else is said, and nothing is changed.

#[test]
fn sources_as_they_should_be_are_well() {
    let (lab, reported) = configured(&gitlab::kind(), "", |_| ());
    let reads = |call: &String| call.starts_with("GET ");
    let calls = lab.fake().core().calls.clone();
    assert!(!calls.is_empty() && calls.iter().all(reads), "{calls:?}");
    let bird = said(&woodpecker::kind(), "", |_| ());
    let edge = said(&forgejo::kind(), "pollSeconds: 60", |_| ());
    assert!(
        reported.reported.1 && bird.1 && edge.1,
        "{} {} {}",
        reported.reported.0,
        bird.0,
        edge.0
    );
    insta::assert_snapshot!([reported.reported.0, bird.0, edge.0].join("\n"));
}

// Invariant: each thing that is not as it should be is reported with what repairs it.

#[test]
fn what_a_login_may_not_do_is_reported() {
    let least =
        said(&gitlab::kind(), "", |fake| (fake.access, fake.scopes) = (30, vec!["read_api"]));
    let wrong = configured(&gitlab::kind(), "", |_| ());
    wrong.1.site.write_secret("ci", "another token");
    let wrong = doctored(&wrong.1.site);
    let plain = said(&woodpecker::kind(), "", |fake| fake.admin = false);
    assert!(!least.1 && !wrong.1 && !plain.1, "{} {} {}", least.0, wrong.0, plain.0);
    insta::assert_snapshot!([least.0, wrong.0, plain.0].join("\n"));
}

#[test]
fn a_source_that_does_not_answer_or_is_not_trusted_is_reported() {
    let (server, reported) = configured(&gitlab::kind(), "webhook: {secretFile: ci}", |fake| {
        fake.core().down = true;
    });
    assert!(!reported.reported.1, "{}", reported.reported.0);
    insta::assert_snapshot!(reported.reported.0);
    // Nobody listens there any more.
    let yaml = std::fs::read_to_string(reported.site.config()).unwrap();
    let port = free_port();
    reported.site.write_yaml(&yaml.replace(&server.url(), &format!("http://127.0.0.1:{port}")));
    let (text, well) = doctored(&reported.site);
    assert!(!well && text.contains("does not answer: ") && text.contains("refused"), "{text}");
    assert!(text.contains("> curl -v http://HOST/"), "{text}");
    // A certificate of an authority that nobody knows.
    reported.site.write_yaml(&yaml.replace(&server.url(), reported._sim.fact("url")));
    let (text, well) = doctored(&reported.site);
    assert!(!well && text.contains("fail  certificate: is not trusted; its SHA-256 is "), "{text}");
    assert!(text.contains("> pinSha256: [\""), "{text}");
}
