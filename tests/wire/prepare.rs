//! Preparing guests over SSH: cloud-init, the working directory, Java, on machines of every family.
//!
//! A guest's traits are its tags `guest-…`; see the process guests' stand-ins.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};

use serde_json::Value;

use crate::harness::{Events, Service, Sim, Site, world};

/// A template of its own beside the first one: its name, the traits of its guests, more keys.
type Template<'a> = (&'a str, &'a str, String);

/// Adds templates that are kept warm, so that nobody has to ask for them.
fn add(site: &Site, sim: &Sim, templates: &[Template<'_>]) {
    let mut yaml = site.yaml(sim, "");
    for (name, traits, keys) in templates {
        let tags: Vec<String> = traits.split(' ').map(|word| format!("guest-{word}")).collect();
        write!(
            yaml,
            "  {name}:\n    {{cloudIds: [lab], node: {}, templateVmId: {}, cloneStrategy: LINKED, \
             credentialsId: agents, ciUser: debian, sshPort: 2222, breakerThreshold: 100, \
             guestNetworks: [127.77.0.0/16], instanceMin: 1, instanceCap: 1, tags: {tags:?}, {keys}}}\n",
            sim.fact("node"),
            sim.facts["templateVmId"],
        )
        .unwrap();
    }
    site.write_yaml(&yaml);
}

/// What a command says on an agent of a template.
fn says(site: &Site, template: &str, command: &str) -> String {
    let out = site.cli(&["lease", "--template", template, "--", command]);
    let said = String::from_utf8_lossy(&out.stdout).trim_end().to_owned();
    assert!(out.status.success(), "{template}: {said}{}", String::from_utf8_lossy(&out.stderr));
    said
}

/// Why the first agent of a template failed.
fn failure(site: &Site, template: &str) -> String {
    let id = format!("lab/{template}");
    let gone = Events::follow(site).until("agentGone", |fact| fact["agent"]["template"] == *id);
    gone["agent"]["detail"].as_str().unwrap().to_owned()
}

/// The agent of a template once it is ready, before anybody uses it.
fn ready(site: &Site, template: &str) -> Value {
    let id = format!("lab/{template}");
    let is = |agent: &Value| agent["template"] == *id && agent["state"] == "Ready";
    let mut events = Events::follow(site);
    let agents = site.json(&["agents"])["agents"].as_array().cloned().unwrap();
    match agents.into_iter().find(is) {
        Some(agent) => agent,
        None => events.until("agent", |fact| is(&fact["agent"]))["agent"].clone(),
    }
}

const JAVA: &str = "java -version 2>&1; command -v java; readlink -f \"$(command -v java)\"";
/// What package managers were asked, without options.
const ASKED: &str = "sed 's/ DPkg[^ ]*//; s/ --*[a-z-]*//g' /var/log/guest-packages.log";

/// A package repository on loopback, of every family's form, with Corretto 21 and 25.
struct Repository(String);

impl Repository {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            listener.incoming().flatten().for_each(|stream| drop(Self::answer(stream)));
        });
        Self(url)
    }

    fn answer(mut stream: TcpStream) -> std::io::Result<()> {
        let mut reader = BufReader::new(stream.try_clone()?);
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let mut header = String::new();
        while reader.read_line(&mut header)? > 2 {
            header.clear();
        }
        let path = line.split(' ').nth(1).unwrap_or_default();
        let packages = |names: [&str; 2]| names.map(|name| format!("Package: {name}\n")).concat();
        let signed = "Signed-By: the key of the test\n";
        let text = match path.rsplit('/').next().unwrap_or_default() {
            "corretto.key" | "amazoncorretto.rsa.pub" => Some("the key of the test\n".to_owned()),
            "other.key" => Some("another key\n".to_owned()),
            "InRelease" => Some(signed.to_owned()),
            "Packages" => {
                Some(packages(["java-21-amazon-corretto-jdk", "java-25-amazon-corretto-jdk"]))
            }
            "repomd.xml" => {
                let names = ["java-21-amazon-corretto-devel", "java-1.8.0-amazon-corretto-devel"];
                Some(format!("{signed}{}", packages(names)))
            }
            "APKINDEX.tar.gz" => {
                let names = ["amazon-corretto-21", "amazon-corretto-25"];
                Some(format!("{signed}{}", packages(names)))
            }
            _ => None,
        };
        let (status, text) = match text {
            Some(text) => ("200 OK", text),
            None => ("404 Not Found", String::new()),
        };
        let length = text.len();
        write!(stream, "HTTP/1.0 {status}\r\nContent-Length: {length}\r\n\r\n{text}")
    }
}

// Invariant: an agent has the Java its template asks for, by the guest's own package manager.

#[test]
fn openjdk_is_installed_by_the_package_manager_of_every_family() {
    let (_dir, sim, site) = world();
    let openjdk =
        |major: u32| format!("javaDistribution: OPENJDK, javaMajorVersion: {major}, diskSizeGb: 0");
    let rows: [(Template<'_>, &str, &str); 6] = [
        (("l", "apt lists-locked", openjdk(21)), "21.0.2", "openjdk-21-jre-headless"),
        (("a", "apt", openjdk(21)), "21.0.2", "openjdk-21-jre-headless"),
        (("d", "dnf", openjdk(17)), "17.0.2", "java-17-openjdk-headless"),
        (("e", "dnf", openjdk(8)), "1.8.0_392", "java-1.8.0-openjdk-headless"),
        (("z", "zypper", openjdk(25)), "25.0.2", "java-25-openjdk-headless"),
        (("k", "apk", openjdk(21)), "21.0.2", "openjdk21-jre-headless"),
    ];
    let templates: Vec<Template<'_>> = rows.iter().map(|(template, ..)| template.clone()).collect();
    add(&site, &sim, &templates);
    let _service = Service::start(&site);
    for ((name, ..), version, package) in rows {
        let said = says(&site, name, JAVA);
        assert!(said.contains(&format!("version \"{version}\"")), "{name}: {said}");
        assert!(said.ends_with(&format!("/opt/jvm/{package}/bin/java")), "{name}: {said}");
    }
    let order = "apt-get clean\napt-get update\napt-get install openjdk-21-jre-headless\n\
                 apt-get autoremove\napt-get clean";
    assert_eq!(says(&site, "a", ASKED), order);
}

#[test]
fn corretto_comes_from_the_repository_the_yaml_names() {
    let (_dir, sim, site) = world();
    let repository = Repository::start().0;
    let corretto = |major: u32| {
        format!(
            "javaDistribution: CORRETTO, javaMajorVersion: {major}, \
             correttoRepositoryUrl: \"{repository}/mirror/\""
        )
    };
    let rows: [(Template<'_>, &str, &str); 4] = [
        (("a", "apt", corretto(25)), "25.0.2", "java-25-amazon-corretto-jdk"),
        (("d", "dnf", corretto(8)), "1.8.0_392", "java-1.8.0-amazon-corretto-devel"),
        (("z", "zypper", corretto(21)), "21.0.2", "java-21-amazon-corretto-devel"),
        (("k", "apk", corretto(21)), "21.0.2", "amazon-corretto-21"),
    ];
    let mut templates: Vec<Template<'_>> =
        rows.iter().map(|(template, ..)| template.clone()).collect();
    let other = format!("{}, correttoKeyUrl: \"{repository}/other.key\"", corretto(21));
    templates.push(("unsigned", "apt", other));
    templates.push(("unknown", "apt", corretto(77)));
    add(&site, &sim, &templates);
    let _service = Service::start(&site);
    for ((name, ..), version, package) in rows {
        let said = says(&site, name, JAVA);
        assert!(said.contains(&format!("version \"{version}\"")), "{name}: {said}");
        assert!(said.ends_with(&format!("/opt/jvm/{package}/bin/java")), "{name}: {said}");
    }
    let list = says(&site, "a", "cat /etc/apt/sources.list.d/corretto.list");
    let wanted =
        format!("deb [signed-by=/etc/apt/keyrings/corretto.asc] {repository}/mirror stable main");
    assert_eq!(list, wanted);
    let text = failure(&site, "unsigned");
    assert!(text.contains("the step `Java` ended with exit status 1"), "{text}");
    assert!(text.contains("stable InRelease' is not signed."), "{text}");
    let text = failure(&site, "unknown");
    assert!(text.contains("E: Unable to locate package java-77-amazon-corretto-jdk"), "{text}");
}

#[test]
fn a_java_that_is_there_is_kept_replaced_or_put_on_path() {
    let (_dir, sim, site) = world();
    let openjdk = || "javaDistribution: OPENJDK, javaMajorVersion: 21".to_owned();
    let templates = [
        ("newer", "apt java-25", openjdk()),
        ("older", "apt java-17", openjdk()),
        ("off", "apt jvm-21", openjdk()),
        ("bare", "apt no-sudo java-21", openjdk()),
    ];
    add(&site, &sim, &templates);
    let _service = Service::start(&site);
    let nothing = "test ! -e /var/log/guest-packages.log && echo nothing";
    for (name, version, place) in [
        ("newer", "25.0.1", "/opt/bin/java\n/opt/bin/java"),
        ("older", "21.0.2", "/usr/local/bin/java\n/opt/jvm/openjdk-21-jre-headless/bin/java"),
        ("off", "21.0.1", "/usr/local/bin/java\n/opt/jvm-21/bin/java"),
        ("bare", "21.0.1", "/opt/bin/java\n/opt/bin/java"),
    ] {
        let said = says(&site, name, JAVA);
        assert!(said.contains(&format!("version \"{version}\"")), "{name}: {said}");
        assert!(said.ends_with(place), "{name}: {said}");
        if name != "older" {
            assert_eq!(says(&site, name, nothing), "nothing", "{name}");
        }
    }
    // What people put there is not taken away.
    assert!(says(&site, "older", "/opt/bin/java -version 2>&1").contains("17.0.1"));
}

#[test]
fn without_a_distribution_java_is_looked_for_and_only_reported_when_missing() {
    let (_dir, sim, site) = world();
    let templates = [
        ("onpath", "apt java-17", String::new()),
        ("atpath", "apt jvm-17", "javaPath: /opt/jvm-17/bin/java".to_owned()),
        ("none", "apt", "javaPath: /opt/java/bin/java".to_owned()),
    ];
    add(&site, &sim, &templates);
    let _service = Service::start(&site);
    for (name, detail) in [
        ("onpath", ""),
        ("atpath", ""),
        ("none", "there is no Java, neither at `/opt/java/bin/java` nor on PATH"),
    ] {
        assert_eq!(ready(&site, name)["detail"], detail, "{name}");
    }
}

// Invariant: what cannot be done fails the provision, with the step's name and the guest's own words.

#[test]
fn a_guest_that_cannot_be_prepared_says_why() {
    let (_dir, sim, site) = world();
    let java = |major: u32| format!("javaDistribution: OPENJDK, javaMajorVersion: {major}");
    let templates = [
        ("nosudo", "apt no-sudo", java(21)),
        ("nopackage", "apt", java(99)),
        ("dnfpackage", "dnf", java(99)),
        ("unwritable", "apt", "remoteFs: /proc/agent".to_owned()),
        ("others", "apt", "remoteFs: /usr/bin".to_owned()),
        ("broken", "init-broken", String::new()),
        ("slow", "apt", "readyCommand: \"echo at it; sleep 60\", prepareTimeoutSec: 4".to_owned()),
        ("unready", "apt", "readyCommand: \"echo no docker >&2; exit 3\"".to_owned()),
    ];
    add(&site, &sim, &templates);
    let _service = Service::start(&site);
    for (name, words) in [
        ("nosudo", ["step `Java`", "user 'debian' has no passwordless sudo"]),
        ("nopackage", ["step `Java`", "E: Unable to locate package openjdk-99-jre-headless"]),
        ("dnfpackage", ["step `Java`", "Unable to find a match: java-99-openjdk-headless"]),
        ("unwritable", ["step `remoteFs`", "cannot make the directory '/proc/agent'"]),
        ("others", ["step `remoteFs`", "user 'debian' cannot write into '/usr/bin'"]),
        ("broken", ["step `cloud-init`", "PermissionError"]),
        ("slow", ["step `readyCommand` was ended by a signal or its limit", "at it"]),
        ("unready", ["step `readyCommand` ended with exit status 3", "no docker"]),
    ] {
        let text = failure(&site, name);
        words.iter().for_each(|word| assert!(text.contains(word), "{name}: {text}"));
    }
}

// Invariant: errors of cloud-init are reported, and nobody has to do without an agent for them.

#[test]
fn errors_of_cloud_init_are_reported_as_warnings() {
    let (_dir, sim, site) = world();
    let templates = [
        ("errors", "init-error java-21 apt", String::new()),
        ("degraded", "init-degraded java-21 apt", String::new()),
    ];
    add(&site, &sim, &templates);
    let _service = Service::start(&site);
    for (name, words) in [("errors", "scripts-user failed"), ("degraded", "deprecated key")] {
        let detail = ready(&site, name)["detail"].to_string();
        assert!(detail.contains("cloud-init met errors"), "{name}: {detail}");
        assert!(detail.contains(words), "{name}: {detail}");
    }
}

// Invariant: a template's own steps run in their order, and their files are those of the moment.

/// The ended steps of a template's agents from here on, up to one of this name.
fn steps_until(events: &mut Events, template: &str, last: &str) -> Vec<Value> {
    let id = format!("lab/{template}");
    let mut seen = Vec::new();
    loop {
        let fact = events.until("step", |fact| fact["step"]["template"] == *id);
        seen.push(fact["step"].clone());
        if fact["step"]["name"] == last {
            return seen;
        }
    }
}

#[test]
fn own_steps_put_files_run_commands_and_install_packages_in_their_order() {
    let (_dir, sim, site) = world();
    std::fs::write(site.dir.path().join("ci.conf"), "retries = 3\n").unwrap();
    let steps = "prepare: [{name: config, upload: {from: ci.conf, to: ci.conf, mode: \"0640\"}}, \
                 {name: move, run: \"sudo install -D -m 600 ci.conf /etc/ci/ci.conf && cat ci.conf\"}, \
                 {name: tools, packages: [git, jq]}, {run: \"echo it\\\\'s done >&2\"}]";
    let plain = site.yaml(&sim, &format!("    {steps}\n"));
    site.write_yaml(&plain);
    let _service = Service::start(&site);
    let mut events = Events::follow(&site);
    let look = format!("stat -c %a ci.conf; cat /etc/ci/ci.conf; {ASKED}");
    let said = says(&site, "linux", &look);
    assert_eq!(said, "640\nretries = 3\napt-get update\napt-get install git jq");
    let seen = steps_until(&mut events, "linux", "step 4 (run)");
    let reported: Vec<(&str, &str)> = seen
        .iter()
        .map(|step| (step["name"].as_str().unwrap(), step["log"].as_str().unwrap()))
        .collect();
    let names = ["cloud-init", "remoteFs", "config", "move", "tools", "step 4 (run)"];
    assert_eq!(reported.iter().map(|(name, _)| *name).collect::<Vec<_>>(), names);
    assert_eq!((reported[3].1, reported[5].1), ("retries = 3", "it's done"));
    assert!(reported[4].1.ends_with("Setting up jq ..."), "{reported:?}");

    // The file changes: agents from here on get the new one.
    std::fs::write(site.dir.path().join("ci.conf"), "retries = 4\n").unwrap();
    events.until("configApplied", |_| true);
    assert!(site.cli(&["reap"]).status.success());
    events.until("agentGone", |_| true);
    assert_eq!(says(&site, "linux", "cat ci.conf"), "retries = 4");
    let journal = std::fs::read(site.dir.path().join("state/journal.redb")).unwrap();
    let holds = |text: &str| journal.windows(text.len()).any(|piece| piece == text.as_bytes());
    assert!(holds("ci.conf") && !holds("retries = "), "a file's content is in the journal");
}

#[test]
fn a_step_that_fails_or_takes_too_long_is_the_last() {
    let (_dir, sim, site) = world();
    std::fs::write(site.dir.path().join("file"), "text").unwrap();
    let later = "{name: later, run: \"echo later\"}";
    let templates = [
        ("fails", "apt", format!("prepare: [{{run: \"seq 20; exit 7\"}}, {later}]")),
        (
            "slow",
            "apt",
            format!(
                "prepare: [{{name: s, run: \"echo at it; sleep 60\", timeoutSec: 1}}, {later}]"
            ),
        ),
        (
            "nowhere",
            "apt",
            format!("prepare: [{{name: up, upload: {{from: file, to: no/such/place}}}}, {later}]"),
        ),
        ("nopackage", "apk", format!("prepare: [{{packages: [git, nonsense]}}, {later}]")),
        ("nosudo", "apt no-sudo", format!("prepare: [{{packages: [git]}}, {later}]")),
    ];
    add(&site, &sim, &templates);
    let _service = Service::start(&site);
    for (name, words) in [
        ("fails", ["step `step 1 (run)` ended with exit status 7; last: 9\n10", "\n20"]),
        ("slow", ["step `s` was ended by a signal or its limit; last: at it", "(ended after 1 s)"]),
        (
            "nowhere",
            ["step `up` ended with exit status 1", "the guest could not write 'no/such/place'"],
        ),
        ("nopackage", ["step `step 1 (packages)`", "nonsense (no such package)"]),
        ("nosudo", ["step `step 1 (packages)`", "user 'debian' has no passwordless sudo"]),
    ] {
        let text = failure(&site, name);
        words.iter().for_each(|word| assert!(text.contains(word), "{name}: {text}"));
    }
}
