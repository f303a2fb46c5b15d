//! Templates whose guests are of Windows: what they are, and what they cannot have.

use drover_model::addresses::AddressSource;
use drover_model::os::{LoginShell, Os};

use super::*;

/// An agent of Windows with these lines.
fn windows(lines: &str) -> String {
    with_agent(&format!("osType: WINDOWS\nremoteFs: 'C:\\ci'\n{lines}"))
}

/// What is wrong with a text: each key and what is said of it.
fn reported(text: &str) -> Vec<(String, String)> {
    let Err(LoadError::Faults { faults, .. }) = Scene::new().check(text) else {
        panic!("it has no fault")
    };
    faults.into_iter().map(|fault| (fault.path, fault.message)).collect()
}

/// The one thing that is wrong with a template of Windows with these lines.
fn refused(lines: &str) -> (String, String) {
    let all = reported(&windows(lines));
    let [one] = &all[..] else { panic!("{lines}: {all:?}") };
    (one.0.replace("agentConfigurations.a.", ""), one.1.clone())
}

// Invariant: a template of the plugin's with osType WINDOWS loads as it is, and is what it says.

#[test]
fn a_template_of_windows_may_inherit_what_cloud_init_would_read() {
    let text = windows("ipConfig: 'ip=10.0.0.9/24'\ninstanceCap: 1\nstartupWaitSeconds: 300")
        .replace(
            "agentDefaults:\n",
            "agentDefaults:\n  ciUser: ubuntu\n  nameserver: 10.0.0.1\n  searchDomain: lan\n  \
             ciUpgrade: true\n",
        );
    let checked = Scene::new().good(&text);
    assert_eq!(checked.rendered_warnings(), "");
    let spec = template(&checked, "a");
    assert_eq!((spec.os, spec.remote_fs.as_str()), (Os::Windows(LoginShell::Auto), r"C:\ci"));
    let address = AddressSource::Fixed("10.0.0.9".parse().unwrap());
    assert_eq!(spec.address, address, "drover does not set it in the guest, and connects to it");
}

#[test]
fn steps_and_resets_of_windows_are_taken() {
    let scene = Scene::new();
    scene.put("ci.conf", 0o644, "retries = 3\n");
    let checked = scene.good(&windows(
        "windowsLoginShell: POWERSHELL\nreset: DISK\nreadyCommand: \"java -version\\n\"\n\
         prepare:\n  - {run: 'cd C:\\ci && dir'}\n  - {upload: {from: ci.conf, to: 'C:\\ci\\ci.conf'}}",
    ));
    let spec = template(&checked, "a");
    assert_eq!((spec.os, spec.steps.len()), (Os::Windows(LoginShell::Powershell), 2));
    assert_eq!(checked.rendered_warnings(), "");
}

// Invariant: the system is part of what makes another version of a template.

#[test]
fn another_system_is_another_version() {
    let scene = Scene::new();
    let version = |text: &str| template(&scene.good(text), "a").version();
    assert_ne!(
        version(&windows("cores: 1")),
        version(&windows("windowsLoginShell: CMD\ncores: 1"))
    );
}

// Invariant: what drover or cloud-init does in guests of Linux alone is refused for Windows, with
// what to do.

#[test]
fn what_a_guest_of_windows_cannot_have_is_refused_by_its_key() {
    let init = "a Windows guest has no cloud-init that reads it";
    for (lines, key, message) in [
        (
            "javaDistribution: OPENJDK",
            "javaDistribution",
            "drover installs Java only in Linux guests",
        ),
        ("reset: MEMORY", "reset", "a Windows guest cannot go back to a snapshot with memory"),
        (
            "closeSshBeforeDelete: true",
            "closeSshBeforeDelete",
            "drover blocks SSH only in Linux guests",
        ),
        ("userData: '#!/bin/sh'", "userData", init),
        ("metaData: '{a: b}'", "metaData", init),
        ("networkConfig: '{version: 2}'", "networkConfig", init),
        ("cloudInitCustom: {user: 'local:snippets/a.yaml'}", "cloudInitCustom", init),
        ("readyCommand: \"ver\\nver\"", "readyCommand", "it has several lines, and cmd.exe runs"),
        ("prepare: [{run: \"a\\nb\"}]", "prepare[0].run", "it has several lines, and cmd.exe runs"),
        (
            "prepare: [{packages: [git]}]",
            "prepare[0].packages",
            "drover installs packages only in Linux guests",
        ),
        (
            "networks: [{bridge: vmbr0, dns: [10.0.0.1]}]",
            "networks[0].dns",
            "a Windows guest has no cloud-init that sets it",
        ),
    ] {
        let (path, said) = refused(lines);
        assert_eq!(path, key, "{lines}");
        assert!(said.starts_with(message), "{lines}: {said}");
    }
    let long = format!("readyCommand: '{}'", "x".repeat(5000));
    assert_eq!(refused(&long).1, "it is too long for cmd.exe");
}

#[test]
fn addresses_that_cloud_init_would_say_are_refused() {
    let pools = "addressPools:\n  lab: {ranges: [10.0.0.10], prefix: 24}\n\
                 service: {listen: \"127.0.0.1:80\"}\n";
    for (lines, key) in [("addressPool: lab", "addressPool"), ("addressFrom: call", "addressFrom")]
    {
        let all = reported(&format!("{}{pools}", windows(lines)));
        let [(path, said)] = &all[..] else { panic!("{all:?}") };
        assert!(
            path.ends_with(key) && said.starts_with("a Windows guest has no cloud-init that"),
            "{said}"
        );
    }
}

#[test]
fn the_working_directory_has_no_default_and_a_drive() {
    let said = |path: &str| {
        let all = reported(&with_agent(&format!("osType: WINDOWS\nremoteFs: {path}")));
        all.into_iter().map(|(_, message)| message).collect::<Vec<_>>().join("; ")
    };
    assert_eq!(said("''"), "`remoteFs` is missing: it has no default in guests of Windows");
    assert_eq!(said("/home/ci"), "`/home/ci` has no drive");
    assert_eq!(said("'C:\\ci|x'"), r"`C:\ci|x` is not a path of Windows");
    let linux = reported(&with_agent("remoteFs: 'C:\\ci'"));
    assert_eq!(linux[0].1, r"`C:\ci` is not an absolute path");
}

#[test]
fn a_file_goes_to_a_drive_or_the_home_and_has_no_permissions() {
    let scene = Scene::new();
    scene.put("ci.conf", 0o644, "retries = 3\n");
    let upload = |to: &str| windows(&format!("prepare: [{{upload: {{from: ci.conf, {to}}}}}]"));
    for path in ["/etc/ci.conf", "C:ci.conf", "C:\\ci\\a?.conf", "ci.conf:x"] {
        let text = scene.faults(&upload(&format!("to: '{path}'")));
        assert!(text.contains(&format!("`{path}` is not a path of a file in Windows")), "{text}");
    }
    let warned = scene.good(&upload("to: ci.conf, mode: '0600'")).rendered_warnings();
    assert!(warned.contains("files in Windows have no such permissions"), "{warned}");
}

#[test]
fn a_login_shell_without_windows_is_warned_about_where_it_is_a_templates_own() {
    let scene = Scene::new();
    let own = scene.good(&with_agent("windowsLoginShell: CMD")).rendered_warnings();
    assert!(own.contains("osType is LINUX"), "{own}");
    let shared = with_agent("vlan: 0")
        .replace("agentDefaults:\n", "agentDefaults:\n  windowsLoginShell: CMD\n");
    assert_eq!(scene.good(&shared).rendered_warnings(), "");
}

// Invariant: a source whose runners are not made for Windows gets no template of it.

#[test]
fn sources_whose_runners_do_not_run_in_windows_are_refused_where_they_could() {
    let demand = |template: &str, source: &str| {
        let yaml = windows(template)
            .replace("credentials:\n", "credentials:\n  git: {kind: apiToken, secretFile: git}\n");
        format!(
            "{yaml}demand:\n  lan: {{url: \"https://git.lan\", credentialsId: git, {source}}}\n"
        )
    };
    let all = reported(&demand("labelString: win", "kind: forgejo"));
    let [(path, said)] = &all[..] else { panic!("{all:?}") };
    assert_eq!(path, "agentConfigurations.a.osType");
    let wanted =
        "source `lan` would start runners in its guests: forgejo-runner does not exist for Windows";
    assert_eq!(said, wanted);
    let token = "kind: github, scope: org/o, registration: token";
    assert_eq!(reported(&demand("labelString: win", token)).len(), 1);
    assert_eq!(reported(&demand("mode: NORMAL", "kind: forgejo")).len(), 1, "unlabelled jobs");
    let scene = Scene::new();
    for (template, source) in [
        ("labelString: win", "kind: forgejo, labels: [linux]"),
        ("labelString: win", "kind: forgejo, runnerCommand: 'forgejo-runner.exe one-job'"),
        ("labelString: win", "kind: gitea"),
        ("labelString: win", "kind: gitlab"),
        ("labelString: win", "kind: github, scope: org/o"),
        ("cores: 1", "kind: forgejo"),
    ] {
        scene.good(&demand(template, source));
    }
}
