//! Guests of Windows. Their stand-ins take drover's own scripts for Windows, letter by letter, lines of their
//! login shell, and nothing of a POSIX shell.

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

use crate::api::{ask, call, ready, release};
use crate::harness::{Service, Sim, Site, world};
use crate::parity::{agents, yaml};

/// Gives the template what an image of Windows brings along: the key of its user.
pub fn bake(sim: &Sim) {
    let key = drover_ssh::PrivateKey::from_seed(&[7; 32], "drover-test").public_line("");
    let key = utf8_percent_encode(&key, NON_ALPHANUMERIC).to_string();
    let path = format!("/nodes/{}/qemu/{}/config", sim.fact("node"), sim.facts["templateVmId"]);
    let answer = sim.send("PUT", &path, &[("sshkeys", &key)]);
    assert!(answer["errors"].is_null(), "{answer}");
}

/// Keys of a template of Windows, with some of which no guest could be logged in to if it were reported them.
fn keys(site: &Site, traits: &str, more: &str) -> String {
    let file = site.dir.path().join("ci.conf");
    std::fs::write(&file, "retries = 3\n").unwrap();
    format!(
        "osType: WINDOWS, remoteFs: 'C:\\ci', startupWaitSeconds: 300, instanceCap: 1, \
         ciUser: nobody, nameserver: 10.0.0.53, searchDomain: lan, tags: [guest-{traits}], \
         prepare: [{{run: 'ver'}}, {{upload: {{from: \"{}\", to: 'C:\\ci\\ci.conf'}}}}], \
         readyCommand: 'type C:\\ci\\ci.conf && echo it is''s own'{more}",
        file.display()
    )
}

/// What a command says on an agent of a template, and how it ends.
fn says(site: &Site, template: &str, command: &str) -> (Option<i32>, String, String) {
    let out = site.cli(&["lease", "--template", template, "--", command]);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).replace('\r', "");
    (out.status.code(), text(&out.stdout), text(&out.stderr))
}

// Invariant: a guest of Windows gets ready and is used without a POSIX shell and without cloud-init.

#[test]
fn a_windows_guest_is_prepared_without_cloud_init_and_lets_a_lease_in() {
    let (_dir, sim, site) = world();
    bake(&sim);
    let templates = [
        ("cmd", keys(&site, "windows", "")),
        ("posh", keys(&site, "windows-powershell", "")),
        ("set", keys(&site, "windows-powershell", ", windowsLoginShell: POWERSHELL")),
    ];
    let templates = templates.each_ref().map(|(name, keys)| (*name, keys.as_str()));
    site.write_yaml(&yaml(&site, &sim, &[], &templates));
    let _service = Service::start(&site);

    let lease = ask(&site, "cmd", "wire");
    ready(&site, &lease);
    let agent = agents(&site, "cmd").remove(0);
    let phases: Vec<&str> = agent["phases"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|phase| phase["state"].as_str()?.strip_prefix("Preparing: "))
        .collect();
    let steps = ["remoteFs", "step 1 (run)", "step 2 (upload)", "readyCommand"];
    assert_eq!(phases, steps, "no cloud-init is waited for");
    let node = sim.fact("node");
    let own = sim.config(node, agent["vmid"].as_u64().unwrap());
    let base = sim.config(node, sim.facts["templateVmId"].as_u64().unwrap());
    for key in ["ciuser", "sshkeys", "ipconfig0", "nameserver", "searchdomain", "ciupgrade"] {
        assert_eq!(own[key], base[key], "{key}");
    }
    release(&site, &lease);

    let conf = r"type C:\ci\ci.conf";
    let said = says(&site, "cmd", &format!("echo hello && {conf}"));
    assert_eq!((said.0, said.1.as_str()), (Some(0), "hello\nretries = 3\n"), "{}", said.2);
    let keys = says(&site, "cmd", r"type .ssh\authorized_keys").1;
    assert_eq!(keys.matches(" drover-lease-").count(), 1, "those before it went: {keys}");
    for template in ["posh", "set"] {
        let said = says(&site, template, &format!("cmd /c '{conf}'"));
        assert_eq!((said.0, said.1.as_str()), (Some(0), "retries = 3\n"), "{}", said.2);
    }
    let posix = says(&site, "cmd", "sh -c id");
    assert_eq!(posix.0, Some(1), "{}", posix.1);
    assert!(posix.2.contains("'sh' is not recognized as an internal or external command"));
}

// Invariant: what a guest of Windows cannot take is refused before it is waited for.

#[test]
fn user_data_is_refused_for_a_template_of_windows() {
    let (_dir, sim, site) = world();
    site.write_yaml(&yaml(&site, &sim, &[], &[("w", &keys(&site, "windows", "")), ("l", "")]));
    let _service = Service::start(&site);
    let wanted = |template: &str| -> (u16, Value) {
        let body = json!({"template": template, "userData": "A=1", "ttlSeconds": 60});
        call(&site, "POST", "/v1/leases", Some(&body))
    };
    let (status, reported) = wanted("w");
    assert_eq!(status, 409, "{reported}");
    assert!(reported.to_string().contains("whose guests take no user data"), "{reported}");
    assert_eq!(wanted("l").0, 201);
}

// Invariant: a guest that does not take its command says so in the failure of its step.

#[test]
fn a_step_that_windows_does_not_know_is_reported_as_windows_says_it() {
    let (_dir, sim, site) = world();
    bake(&sim);
    let keys = keys(&site, "windows", "").replace("run: 'ver'", "run: 'apt-get update'");
    site.write_yaml(&yaml(&site, &sim, &[], &[("w", &keys)]));
    let _service = Service::start(&site);
    let mut events = crate::harness::Events::follow(&site);
    ask(&site, "w", "wire");
    let gone = events.until("agentGone", |_| true);
    let text = gone["agent"]["detail"].as_str().unwrap_or_default().to_owned();
    assert!(text.contains("the step `step 1 (run)` ended with exit status 1"), "{text}");
    assert!(text.contains("'apt-get' is not recognized as an internal"), "{text}");
}
