//! Where secrets come from, and that they go nowhere else.

use drover_model::id::CloudId;
use proxmox_client::Login;
use secrecy::ExposeSecret;

use super::super::context::is_private;
use super::*;

fn token(checked: &Checked) -> String {
    match &checked.connections[&CloudId::new("c")].login {
        Login::Token { secret, .. } => secret.expose_secret().to_owned(),
        Login::Password { .. } => panic!("it is a token"),
    }
}

fn with_secret(source: &str) -> String {
    with_cloud("{}").replacen("secretFile: token", source, 1)
}

fn with_key(lines: &str) -> String {
    with_agent("{}").replace("privateKeyFile: ed25519", lines)
}

// Invariant: each source gives the same secret, without the newline at its end.

#[test]
fn a_secret_comes_from_any_of_its_sources() {
    let mut scene = Scene::new();
    let credentials = scene.dir.path().display().to_string();
    let home = credentials.clone();
    let secret = "5f0c8d36-8b0e-4f6e-9c57-2d0f3c1a7b11";
    scene.environment = Environment::of(&[
        ("CREDENTIALS_DIRECTORY", &credentials),
        ("HOME", &home),
        ("TOKEN", secret),
    ]);
    let absolute = format!("secretFile: {credentials}/token");
    for source in [
        "secretFile: token",
        "secretFile: ~/token",
        absolute.as_str(),
        "secretEnv: TOKEN",
        "systemdCredential: token",
        "secret: 5f0c8d36-8b0e-4f6e-9c57-2d0f3c1a7b11",
    ] {
        let checked = scene.good(&with_secret(source));
        assert_eq!(token(&checked), secret, "{source}");
        assert_eq!(checked.warnings.is_empty(), !source.starts_with("secret:"), "{source}");
    }
    // Where systemd did not start drover, it reads the file that the unit would load.
    let scene = Scene::new();
    scene.put("credentials/proxmox-token", 0o600, "beside\n");
    let checked = scene.good(&with_secret("systemdCredential: proxmox-token"));
    assert_eq!(token(&checked), "beside");
    // Of two families of variables the first gives the whole login.
    let text = with_cloud("{}").replace("  credentialsId: api\n", "");
    let scene = Scene::with(&[
        ("PVE_TOKEN_ID", "b@pve!b"),
        ("PVE_TOKEN_SECRET", "two"),
        ("PROXMOX_TOKEN_ID", "a@pve!a"),
        ("PROXMOX_TOKEN_SECRET", "one"),
    ]);
    assert_eq!(token(&scene.good(&text)), "one");
}

// Invariant: a key that is made later stops no command that logs in nowhere, and no other command
// does without it.

#[test]
fn a_key_that_is_not_there_yet_is_warned_about_where_secrets_are_made() {
    let mut scene = Scene::new();
    let systemd = "systemdCredential: agent-ssh-key";
    let shown = scene.faults(&with_key(systemd));
    assert!(shown.contains("put the secret there, mode 0600"), "{shown}");
    scene.environment = Environment::default().without_secrets();
    for (lines, file) in [
        (systemd, "credentials/agent-ssh-key"),
        ("privateKeyFile: later", "later"),
        ("secretFile: keys/later", "keys/later"),
    ] {
        let checked = scene.good(&with_key(lines));
        let [warning] = &checked.warnings[..] else { panic!("{lines}: {:?}", checked.warnings) };
        let path = scene.path(file).display().to_string();
        assert_eq!(warning.message, format!("`{path}` does not exist yet"));
        let help = format!(
            "make the key before the service starts: ssh-keygen -t ed25519 -N \"\" -f {path}"
        );
        assert_eq!(warning.help.as_deref(), Some(&*help));
        assert_eq!(checked.keys["ssh"].public_line, "", "nobody is let in by it");
    }
    // What is there is read, and must be a key that others cannot read.
    let checked = scene.good(&with_key("privateKeyFile: ed25519"));
    assert!(checked.warnings.is_empty() && !checked.keys["ssh"].public_line.is_empty());
    for (lines, message) in [
        ("privateKeyFile: wide", "others can read"),
        ("privateKeyFile: token", "holds no private key"),
    ] {
        let shown = scene.faults(&with_key(lines));
        assert!(shown.contains(message), "{lines}: {shown}");
    }
}

// Invariant: an empty credential of the shipped unit names the file that is to be filled.

#[test]
fn an_empty_credential_of_systemd_names_the_file_that_is_missing() {
    let mut scene = Scene::new();
    scene.put("handed/proxmox-token", 0o400, "\n");
    let handed = scene.path("handed").display().to_string();
    scene.environment = Environment::of(&[("CREDENTIALS_DIRECTORY", &handed)]);
    let shown = scene.faults(&with_secret("systemdCredential: proxmox-token"));
    // The place of the YAML is shown by this name in tests.
    let file = "/etc/drover/credentials/proxmox-token";
    assert!(shown.contains(&format!("is empty: `{file}` is missing or empty")), "{shown}");
    assert!(shown.contains("systemctl restart drover"), "{shown}");
}

#[test]
fn a_secret_of_root_may_be_its_services_group_to_read_and_nobody_elses() {
    for (mode, root, others) in [
        (0o600, true, true),
        (0o400, true, true),
        (0o640, true, false),
        (0o440, true, false),
        (0o660, false, false),
        (0o644, false, false),
        (0o601, false, false),
    ] {
        let found = (is_private(mode, 0), is_private(mode, 1000));
        assert_eq!(found, (root, others), "{mode:o}");
    }
}

// Invariant: a private key is read in each of its forms, and its public line is that of OpenSSH.

#[test]
fn each_kind_of_key_gives_its_public_line_and_opens_without_passphrase() {
    let scene = Scene::new();
    let stored = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/keys");
    for (lines, public) in [
        ("privateKeyFile: ed25519", "ed25519.pub"),
        ("privateKeyFile: ecdsa", "ecdsa.pub"),
        ("privateKeyFile: ed25519_locked, passphraseFile: passphrase", "ed25519_locked.pub"),
        ("secretFile: ed25519_pkcs8", ""),
    ] {
        let checked = scene.good(&with_key(lines));
        let key = &checked.keys["ssh"];
        if !public.is_empty() {
            let line = fs::read_to_string(stored.join(public)).unwrap();
            let line = line.trim_end().strip_suffix(" test").unwrap();
            assert_eq!(key.public_line, line, "{lines}");
        }
        assert_eq!(key.key.public_line(""), key.public_line);
        let spec = checked.herd.templates.values().next().unwrap();
        assert_eq!(spec.ssh.public_key, key.public_line);
        assert_eq!(spec.ssh.user, "ci");
    }
}

// Invariant: no secret is in anything that is printed.

#[test]
fn nothing_printed_has_a_secret_in_it() {
    let scene = Scene::with(&[("PVE_TOKEN_ID", "a@pve!a"), ("PVE_TOKEN_SECRET", "hunter2-env")]);
    scene.put("token", 0o600, "hunter2-file");
    let token = "service:\n  tokens: [{name: a, role: viewer, secret: hunter2-token}]\n";
    let text = with_secret("secret: hunter2-inline").replace("service:\n", token);
    let checked = scene.good(&text);
    let printed = format!("{checked:?}{}{:?}", checked.rendered_warnings(), scene.environment);
    assert!(!printed.contains("hunter2"), "{printed}");
    assert!(!printed.contains("PRIVATE KEY"), "{printed}");
    let wrong = text.replace("tokenId:", "tokenIdd:").replace("role: viewer", "role: vewer");
    let error = scene.check(&wrong).unwrap_err();
    assert!(!format!("{error:?}").contains("hunter2"));
    assert!(!scene.shown(error).contains("hunter2"));
}

// Invariant: no typing error makes a fault or a warning show a secret.

/// Every part of this secret holds a whole `hunter2`, wherever a letter of it is changed.
const LONG_SECRET: &str = "hunter2-hunter2-hunter2";

/// A configuration with a secret in every place that takes one.
fn full_of_secrets(scene: &Scene) -> String {
    let pem = fs::read_to_string(scene.path("ed25519")).unwrap();
    let pem = pem.trim_end().replace('\n', "\n      ");
    format!(
        "cloudConfigurations:\n  c:\n    name: C\n    credentialsId: api\n\
         credentials:\n  api:\n    kind: proxmoxToken\n    tokenId: a@pve!a\n    \
         secret: {LONG_SECRET}\n  login: {{kind: proxmoxPassword, username: a@pve, secret: \
         \"{LONG_SECRET}\"}}\n  ssh:\n    kind: sshKey\n    username: ci\n    secret: |\n      \
         {pem}\nservice:\n  tokens:\n    - name: a\n      secret: '{LONG_SECRET}'\n      \
         role: viewer\n    - {{name: b, secret: {LONG_SECRET}, role: admin}}\n  \
         notify:\n    webhooks:\n      - {{name: h, url: 'https://h.lan/{LONG_SECRET}'}}\n"
    )
}

#[test]
fn no_slip_of_the_finger_shows_a_secret() {
    let scene = Scene::new();
    let text = full_of_secrets(&scene);
    let key: String = fs::read_to_string(scene.path("ed25519")).unwrap();
    let body = key.lines().filter(|line| !line.starts_with('-'));
    let public = scene.good(&text).keys["ssh"].public_line.clone();
    let halves = body.skip(1).flat_map(|line| [&line[..20], &line[20..]]);
    // The key's text holds its public half too, which is no secret.
    let mut marks: Vec<&str> = halves.filter(|half| !public.contains(half)).collect();
    assert!(marks.len() > 4);
    marks.push("hunter2");
    let leak = |said: &str| marks.iter().any(|mark| said.contains(mark));
    let said = |text: &str| match scene.check(text) {
        Ok(checked) => format!("{checked:?}{}", checked.rendered_warnings()),
        Err(error) => format!("{error:?}{}", error.render()),
    };
    assert!(leak(&text));
    assert!(!leak(&said(&text)), "{}", said(&text));
    let pem = text.find("-----BEGIN").unwrap()..text.find("service:").unwrap();
    // All places of the key are alike: a few of them do.
    for at in (0..text.len()).filter(|at| !pem.contains(at) || at % 16 == 0) {
        let (before, after) = text.split_at(at);
        let without = format!("{before}{}", &after[1..]);
        assert!(!leak(&said(&without)), "without byte {at}:\n{}", said(&without));
        for slip in ["\"", "\n", ":", " ", "#", "x"] {
            let with = format!("{before}{slip}{after}");
            assert!(!leak(&said(&with)), "{slip:?} at byte {at}:\n{}", said(&with));
        }
    }
}
