//! The files that git manages beside those of this machine.

use std::fs;

use secrecy::ExposeSecret as _;

use super::*;
use crate::managed::{AppliedCommit, COPIES, FORMAT, RECORD, TREE};
use crate::{Identities, encrypt, managed_folder};

/// This machine's file: a cloud of its own, and the repository.
const LOCAL: &str = "
credentials:
  token: {kind: proxmoxToken, tokenId: a@pve!b, secretFile: token}
  key: {kind: sshKey, username: ci, privateKeyFile: ed25519}
cloudDefaults: {credentialsId: token, instanceCap: 3}
cloudConfigurations:
  own: {name: Own, apiUrl: 'https://own:8006'}
agentDefaults: {credentialsId: key, node: pve1, templateVmId: 9000, instanceCap: 1}
agentConfigurations:
  mine: {cloudIds: [own], labelString: mine}
service:
  stateDirectory: STATE
  configSync: {repository: 'https://git.example.com/ci.git'MORE}
";

/// A file of git: another cloud with defaults of its own.
const GIT: &str = "
cloudDefaults: {apiUrl: 'https://lab:8006', credentialsId: token}
cloudConfigurations:
  lab: {name: Lab}
agentDefaults: {credentialsId: key, node: pve2, templateVmId: 9100}
agentConfigurations:
  linux: {cloudIds: [lab], labelString: linux}
";

/// What git manages in a scene.
struct Git(Scene);

impl Git {
    fn new() -> Self {
        Self(Scene::new())
    }

    /// Applies these files as drover does; the first is the configuration.
    fn apply(self, files: &[(&str, &str)]) -> Self {
        let folder = managed_folder(self.0.dir.path());
        for (name, text) in files {
            for place in [TREE, COPIES] {
                let path = folder.join(place).join(name);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
        }
        let record = AppliedCommit {
            format: FORMAT,
            commit: "1a2b3c4d5e6f".repeat(4)[..40].to_owned(),
            committed_at: "2026-11-20T09:00:00Z".to_owned(),
            author: "Ann".to_owned(),
            subject: "Add the lab".to_owned(),
            repository: "https://git.example.com/ci.git".to_owned(),
            branch: "main".to_owned(),
            path: files[0].0.to_owned(),
            applied_at: "2026-11-20T09:05:00Z".to_owned(),
            configuration: vec![files[0].0.to_owned()],
            named: files[1..].iter().map(|(name, _)| (*name).to_owned()).collect(),
        };
        fs::write(folder.join(RECORD), serde_json::to_string(&record).unwrap()).unwrap();
        self
    }

    fn edit(self, name: &str, text: &str) -> Self {
        fs::write(managed_folder(self.0.dir.path()).join(COPIES).join(name), text).unwrap();
        self
    }

    fn check(&self, more: &str) -> Result<Checked, LoadError> {
        let state = self.0.dir.path().display().to_string();
        self.0.check(&LOCAL.replace("STATE", &state).replace("MORE", more))
    }

    fn good(&self, more: &str) -> Checked {
        self.check(more).unwrap_or_else(|error| panic!("{}", error.render()))
    }

    fn faults(&self) -> String {
        self.0.shown(self.check("").expect_err("it has no fault"))
    }
}

fn applied(text: &str) -> Git {
    Git::new().apply(&[("proxmox-cloud.yaml", text)])
}

// Invariant: what proves a repository's server is checked before it is needed.

#[test]
fn lines_that_are_no_host_keys_are_refused_and_http_is_warned_of() {
    let with = |keys: &str| {
        let git = Git::new();
        let state = git.0.dir.path().display().to_string();
        let sync = format!("service: {{stateDirectory: {state}, configSync: {{{keys}}}}}\n");
        git.0.check(&sync)
    };
    let ssh = |line: &str| {
        let key = "credentials: {key: {kind: sshKey, username: ci, privateKeyFile: ed25519}}\n";
        let git = Git::new();
        let state = git.0.dir.path().display().to_string();
        let keys =
            format!("repository: 'git@g:ci.git', credentialsId: key, knownHosts: ['{line}']");
        git.0.check(&format!("{key}service: {{stateDirectory: {state}, configSync: {{{keys}}}}}\n"))
    };
    for line in ["g ssh-ed25519 AAAAC3Nz", "@cert-authority *.g ecdsa-sha2-nistp256 AAAA x", "# g"]
    {
        assert!(ssh(line).is_ok(), "{line}");
    }
    for line in ["g", "ssh-ed25519 AAAAC3Nz", "g ssh-ed25519 SHA256:x", "g AAAAC3Nz ssh-ed25519"] {
        let text = ssh(line).expect_err("it is refused").render();
        assert!(text.contains("is no line of known_hosts"), "{text}");
    }
    let checked = with("repository: 'http://g/ci.git'").unwrap_or_else(|_| panic!("it is allowed"));
    assert!(checked.rendered_warnings().contains("others can change on the way"));
}

// Invariant: who may see what git says alone is shown nothing of this machine's files.

#[test]
fn warnings_of_git_are_those_about_its_files() {
    let odd = |text: &str| text.replace("]", "], cloneStrategy: LINKED, targetStorage: ssd");
    let git = applied(&odd(GIT));
    let state = git.0.dir.path().display().to_string();
    let local = odd(LOCAL).replace("STATE", &state).replace("MORE", "");
    let checked = git.0.check(&local).unwrap_or_else(|error| panic!("{}", error.render()));
    assert!(checked.rendered_warnings().contains("mine"));
    let of_git = checked.rendered_warnings_of_git();
    assert!(of_git.contains("git:proxmox-cloud.yaml") && !of_git.contains("mine"), "{of_git}");
}

// Invariant: each half has its own defaults, so that neither changes the other.

#[test]
fn clouds_of_git_stand_beside_those_of_this_machine() {
    let git = applied(GIT);
    let checked = git.good("");
    let clouds: Vec<_> = checked.herd.clouds.keys().map(CloudId::as_str).collect();
    assert_eq!(clouds, ["lab", "own"]);
    let cap = |cloud: &str| checked.herd.clouds[&CloudId::new(cloud)].cap;
    assert_eq!((cap("own"), cap("lab")), (Some(3), None));
    let template = |cloud: &str, name: &str| {
        let spec = &checked.herd.templates[&TemplateId::new(CloudId::new(cloud), name)];
        (spec.node.clone().unwrap().to_string(), spec.cap)
    };
    assert_eq!(template("own", "mine"), ("pve1".to_owned(), Some(1)));
    assert_eq!(template("lab", "linux"), ("pve2".to_owned(), None));
}

#[test]
fn before_the_first_sync_this_machine_stands_alone_and_may_have_no_cloud() {
    let git = Git::new();
    assert_eq!(git.good("").herd.clouds.len(), 1);
    let state = git.0.dir.path().display();
    let only = format!(
        "service: {{stateDirectory: {state}, configSync: {{repository: 'https://g/ci.git'}}}}"
    );
    assert!(git.0.good(&only).herd.clouds.is_empty());
}

#[test]
fn without_config_sync_the_files_of_git_do_not_count() {
    let git = applied(GIT);
    let local =
        LOCAL.replace("  configSync: {repository: 'https://git.example.com/ci.git'MORE}\n", "");
    let state = git.0.dir.path().display().to_string();
    assert_eq!(git.0.good(&local.replace("STATE", &state)).herd.clouds.len(), 1);
}

// Invariant: an edited copy counts where changes are allowed, and nowhere else.

#[test]
fn an_edited_copy_counts_where_changes_are_allowed() {
    let git = applied(GIT).edit(
        "proxmox-cloud.yaml",
        &GIT.replace("lab: {name: Lab}", "lab: {name: Lab, instanceCap: 7}"),
    );
    let cap = |checked: &Checked| checked.herd.clouds[&CloudId::new("lab")].cap;
    assert_eq!(cap(&git.good("")), Some(7));
    assert_eq!(cap(&git.good(", allowManualChanges: false")), None);
}

#[test]
fn a_copy_that_is_gone_changes_nothing() {
    let git = applied(GIT);
    fs::remove_dir_all(managed_folder(git.0.dir.path()).join(COPIES)).unwrap();
    assert_eq!(git.good("").herd.clouds.len(), 2);
}

#[test]
fn a_damaged_record_is_a_fault_and_no_empty_configuration() {
    let git = applied(GIT);
    let record = managed_folder(git.0.dir.path()).join(RECORD);
    fs::write(&record, "{").unwrap();
    let text = git.faults();
    assert!(
        text.contains("/etc/drover/config-sync/in-force/commit.json` cannot be read"),
        "{text}"
    );
    fs::remove_file(&record).unwrap();
    assert!(git.check("").is_err());
}

// Invariant: a name belongs to one half, and a cloud to one half with all that is on it.

#[test]
fn an_entry_of_both_halves_is_refused() {
    let text =
        applied(&format!("{GIT}\ncredentials: {{key: {{kind: apiToken, secret: x}}}}\n")).faults();
    insta::assert_snapshot!(text, @r#"
      × credentials.key: given twice, first on line 4 of drover.yaml
       ╭─[git:proxmox-cloud.yaml:9:15]
     8 │
     9 │ credentials: {key: {kind: apiToken, secret: ***
       ·               ─┬─
       ·                ╰── here
       ╰────
      help: git manages it: remove it from the file of this machine, or from git

      × credentials.key.secret: git holds a plain secret
       ╭─[git:proxmox-cloud.yaml:9:45]
     8 │
     9 │ credentials: {key: {kind: apiToken, secret: ***
       ·                                             ┬
       ·                                             ╰── here
       ╰────
      help: give it as secretAge (`drover config encrypt`), or move the credential to the configuration of drover's machine and name it by credentialsId

    the configuration has 2 faults
    "#);
}

#[test]
fn what_is_on_a_cloud_is_in_its_half() {
    let text = applied(&GIT.replace("[lab]", "[lab, own]")).faults();
    insta::assert_snapshot!(text, @r#"
      × agentConfigurations.linux.cloudIds[1]: cloud `own` is in the configuration of drover's machine, not in git
       ╭─[git:proxmox-cloud.yaml:7:27]
     6 │ agentConfigurations:
     7 │   linux: {cloudIds: [lab, own], labelString: linux}
       ·                           ─┬─
       ·                            ╰── here
       ╰────
      help: keep a cloud and all that is on it in one of the two

    the configuration has 1 fault
    "#);
}

#[test]
fn git_does_not_manage_drover_itself() {
    let text = applied(&format!("{GIT}\nservice: {{logLevel: debug}}\n")).faults();
    insta::assert_snapshot!(text, @r#"
      × service: git does not manage drover itself
       ╭─[git:proxmox-cloud.yaml:9:1]
     8 │
     9 │ service: {logLevel: debug}
       · ───┬───
       ·    ╰── here
       ╰────
      help: move the section to the configuration of drover's machine

    the configuration has 1 fault
    "#);
}

// Invariant: git holds no plain secret, and reads no file of this machine.

#[test]
fn a_plain_secret_in_git_is_refused() {
    let more = "
credentials:
  a: {kind: apiToken, secret: hunter2-hunter2}
  b: {kind: apiToken, secretFile: /etc/hostname}
  c: {kind: apiToken, secretEnv: HOME}
  d: {kind: sshKey, username: ci, privateKeyFile: ed25519}
demand:
  forge: {kind: gitea, url: 'https://ci:hunter2@git.example.com', credentialsId: a}
";
    let text = applied(&format!("{GIT}{more}")).faults();
    assert!(!text.contains("hunter2"), "{text}");
    insta::assert_snapshot!(text, @r#"
      × credentials.a.secret: git holds a plain secret
        ╭─[git:proxmox-cloud.yaml:10:31]
      9 │ credentials:
     10 │   a: {kind: apiToken, secret: ****************
        ·                               ───────┬───────
        ·                                      ╰── here
     11 │   b: {kind: apiToken, secretFile: /etc/hostname}
        ╰────
      help: give it as secretAge (`drover config encrypt`), or move the credential to the configuration of drover's machine and name it by credentialsId

      × credentials.b.secretFile: git names a secret of drover's machine
        ╭─[git:proxmox-cloud.yaml:11:35]
     10 │   a: {kind: apiToken, secret: ****************
     11 │   b: {kind: apiToken, secretFile: /etc/hostname}
        ·                                   ──────┬──────
        ·                                         ╰── here
     12 │   c: {kind: apiToken, secretEnv: HOME}
        ╰────
      help: give it as secretAge (`drover config encrypt`), or move the credential to the configuration of drover's machine and name it by credentialsId

      × credentials.c.secretEnv: git names a secret of drover's machine
        ╭─[git:proxmox-cloud.yaml:12:34]
     11 │   b: {kind: apiToken, secretFile: /etc/hostname}
     12 │   c: {kind: apiToken, secretEnv: HOME}
        ·                                  ──┬─
        ·                                    ╰── here
     13 │   d: {kind: sshKey, username: ci, privateKeyFile: ed25519}
        ╰────
      help: give it as secretAge (`drover config encrypt`), or move the credential to the configuration of drover's machine and name it by credentialsId

      × credentials.d.privateKeyFile: git names a secret of drover's machine
        ╭─[git:proxmox-cloud.yaml:13:51]
     12 │   c: {kind: apiToken, secretEnv: HOME}
     13 │   d: {kind: sshKey, username: ci, privateKeyFile: ed25519}
        ·                                                   ───┬───
        ·                                                      ╰── here
     14 │ demand:
        ╰────
      help: give it as secretAge (`drover config encrypt`), or move the credential to the configuration of drover's machine and name it by credentialsId

      × demand.forge.url: git holds the password or token of a URL
        ╭─[git:proxmox-cloud.yaml:15:29]
     14 │ demand:
     15 │   forge: {kind: gitea, url: 'https://**********************************************
        ·                             ──────────────────┬─────────────────
        ·                                               ╰── here
        ╰────
      help: keep it in the configuration of drover's machine

      × demand.forge.url: the URL contains a login
        ╭─[git:proxmox-cloud.yaml:15:29]
     14 │ demand:
     15 │   forge: {kind: gitea, url: 'https://**********************************************
        ·                             ──────────────────┬─────────────────
        ·                                               ╰── here
        ╰────
      help: use credentialsId for it

    the configuration has 6 faults
    "#);
}

#[test]
fn git_names_files_of_the_repository_alone() {
    let own = |path: &str| {
        GIT.replace("labelString: linux", &format!("labelString: linux, userDataFile: '{path}'"))
    };
    let git = Git::new();
    let git = git.apply(&[
        ("ci/cloud.yaml", &own("init/user.yaml")),
        ("ci/init/user.yaml", "#cloud-config\n{}\n"),
    ]);
    git.good("");
    for outside in ["/etc/passwd", "../../../token", "~/x", "init/../../token"] {
        let text = applied(&own(outside)).faults();
        assert!(text.contains(&format!("`{outside}` is no file of the repository")), "{text}");
    }
}

#[test]
fn an_encrypted_secret_in_git_is_read_with_the_identity_of_this_machine() {
    let (identities, file) = Identities::generate();
    let armored = encrypt(&identities.recipients()[0], &"hunter2-hunter2".into()).unwrap();
    let indented = armored.replace('\n', "\n      ");
    let own = format!(
        "{GIT}\ncredentials:\n  forge:\n    kind: apiToken\n    secretAge: |\n      {indented}\n"
    );
    let git = applied(&own);
    let text = git.faults();
    assert!(text.contains("nothing can read an encrypted secret"), "{text}");
    git.0.put("age.key", 0o600, file.expose_secret());
    let with_identity = "}\n  ageIdentity: {secretFile: age.key";
    let demand =
        "\ndemand:\n  forge: {kind: gitea, url: 'https://git.example.com', credentialsId: forge}\n";
    let git = Git(git.0).apply(&[("proxmox-cloud.yaml", &format!("{own}{demand}"))]);
    assert_eq!(git.good(with_identity).demand.len(), 1);
}
