//! What people read when a cloud cannot be used: what, where, what to do.

use crate::harness::{Events, Service, Sim, Site};

fn checked(site: &Site, yaml: &str) -> (Option<i32>, String) {
    site.write_yaml(yaml);
    let mut command = crate::harness::drover();
    let out =
        command.arg("--config").arg(site.config()).args(["check", "--connect"]).output().unwrap();
    let said =
        format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    (out.status.code(), said)
}

/// Replaces what differs from run to run.
fn golden(name: &str, said: &str, site: &Site, sim: &Sim) {
    let mut text = said.replace(&site.dir.path().display().to_string(), "DIR");
    text = text.replace(sim.fact("url"), "https://127.0.0.1:PORT");
    text = text.replace(sim.fact("url").trim_start_matches("https://"), "127.0.0.1:PORT");
    text = text.replace(&sim.fact("fingerprint").replace(':', "").to_lowercase(), "FINGERPRINT");
    text = text.replace(sim.fact("fingerprint"), "FINGERPRINT");
    insta::with_settings!({snapshot_path => "../golden/wire", prepend_module_to_snapshot => false}, {
        insta::assert_snapshot!(name, text);
    });
}

// Invariant: every message about a cloud says what, where and what to do.

#[test]
fn clouds_that_cannot_be_used_say_what_where_and_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start_with(dir.path(), &["--guests", "none"]);
    let site = Site::new(&sim);
    let good = site.yaml(&sim, "");

    let (code, said) = checked(&site, &good);
    assert_eq!(code, Some(0), "{said}");
    golden("good", &said, &site, &sim);

    site.write_secret("token", "00000000-0000-0000-0000-000000000000");
    let (code, said) = checked(&site, &good);
    assert_eq!(code, Some(1), "{said}");
    golden("wrong_token", &said, &site, &sim);
    site.write_secret("token", sim.fact("tokenSecret"));

    let ca = format!("    caFile: \"{}/ca.pem\"\n", site.dir.path().display());
    let pin = format!("    pinSha256: [\"{}\"]\n", "ab".repeat(32));
    let (code, said) = checked(&site, &good.replace(&ca, &pin));
    assert_eq!(code, Some(1), "{said}");
    golden("wrong_pin", &said, &site, &sim);

    let (code, said) = checked(&site, &good.replace(&ca, ""));
    assert_eq!(code, Some(1), "{said}");
    golden("unknown_authority", &said, &site, &sim);

    let (code, said) = checked(&site, &good.replace(sim.fact("url"), "https://127.0.0.1:1"));
    assert_eq!(code, Some(1), "{said}");
    golden("no_route", &said, &site, &sim);
}

// Invariant: a missing right is named with the place it is missing at, where an operator looks.

#[test]
fn a_missing_privilege_is_named_in_the_status() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = dir.path().join("cluster.yaml");
    std::fs::write(&cluster, include_str!("narrow_cluster.yaml")).unwrap();
    let sim = Sim::start_with(dir.path(), &["--cluster", cluster.to_str().unwrap()]);
    let site = Site::new(&sim);
    site.write_secret("token", "11111111-2222-3333-4444-555555555555");
    let token = format!("\"{}\"", sim.fact("tokenId"));
    let narrow = |more| site.yaml(&sim, more).replace(&token, "\"ci@pve!narrow\"");
    site.write_yaml(&narrow(""));
    let _service = Service::start(&site);
    let mut events = Events::follow(&site);
    site.write_yaml(&narrow("    instanceMin: 1\n"));
    let said = events.until("template", |fact| !fact["template"]["cause"].is_null());
    let cause = said["template"]["cause"].as_str().unwrap();
    assert!(cause.contains("VM.Clone") && cause.contains("/vms/9000"), "{cause}");
    let status = String::from_utf8_lossy(&site.cli(&["status"]).stdout).into_owned();
    assert!(status.contains("VM.Clone"), "{status}");
}
