//! What a configuration keeps secret is in nothing that is shown, logged or journalled.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use drover_model::fact::What;
use drover_model::id::{CloudId, TemplateId};
use drover_ssh::testing::key;
use secrecy::ExposeSecret;

use super::super::*;
use super::global;
use drover_config::{Environment, Sources};
use drover_server::testing::{Served, reported};

const SECRET: &str = "hunter2-hunter2-hunter2";

/// A configuration with a secret in each place that takes one.
fn configuration(directory: &Path) -> String {
    let pem = key(1).to_openssh().ok().unwrap();
    for (name, text) in [("key", pem.expose_secret()), ("token", SECRET)] {
        let path = directory.join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    }
    format!(
        "cloudConfigurations:
  a: {{name: A, credentialsId: inline}}
  b: {{name: B, credentialsId: filed}}
  c: {{name: C, credentialsId: login}}
agentConfigurations:
  linux: {{cloudIds: [a, b, c], templateVmId: 9000, credentialsId: ssh}}
credentials:
  inline: {{kind: proxmoxToken, tokenId: a@pve!a, secret: {SECRET}}}
  filed: {{kind: proxmoxToken, tokenId: a@pve!a, secretFile: {0}/token}}
  login: {{kind: proxmoxPassword, username: a@pve, secretEnv: PASSWORD}}
  ssh: {{kind: sshKey, username: ci, privateKeyFile: {0}/key}}
service:
  tokens: [{{name: x, role: admin, secret: {SECRET}}}]
",
        directory.display()
    )
}

#[tokio::test]
async fn no_secret_is_in_anything_shown_or_kept() {
    let served = Served::default();
    let environment = Environment::of(&[("PASSWORD", SECRET)]);
    let text = configuration(served.directory.path());
    let check =
        |text: &str| drover_config::check(Sources::of_text("drover.yaml", text), &environment);
    let mut said = Vec::new();

    // What `check` prints of a good file and of a bad one.
    let checked = check(&text).unwrap_or_else(|error| panic!("{}", error.render()));
    said.push(checked.rendered_warnings());
    said.push(format!("{checked:?}"));
    let refused = check(&text.replace("secret:", "secrt:").replace("role: admin", "role: boss"));
    let refused = refused.unwrap_err().render();
    assert!(refused.contains("did you mean `secret`?"), "{refused}");

    // What goes to the journal with each agent.
    let template = TemplateId::new(CloudId::new("a"), "linux");
    said.push(serde_json::to_string(&*checked.herd.templates[&template]).unwrap());

    // What a running service shows of it.
    reported(
        &served.view,
        What::ConfigRefused { text: refused.clone(), after: drover_model::id::Generation(1) },
    );
    said.push(refused);
    for path in ["/v1/status", "/v1/clouds", "/v1/templates", "/metrics", "/readyz"] {
        said.push(served.admin(reqwest::Method::GET, path, "").await.body.to_string());
    }
    for json in [false, true] {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut term = Term::new(&mut out, &mut err);
        let global = Global { json, ..global(&served.socket) };
        remote::run(&global, Command::Status(ViewOptions::default()), &mut term).await.unwrap();
        said.push(String::from_utf8([out, err].concat()).unwrap());
    }
    assert!(said.last().is_some_and(|status| status.contains("secrt")), "the fault is shown");

    let pem = key(1).to_openssh().ok().unwrap();
    let body: Vec<_> = pem.expose_secret().lines().filter(|line| !line.starts_with('-')).collect();
    for text in said {
        assert!(!text.contains("hunter2"), "{text}");
        assert!(!text.contains("PRIVATE KEY"), "{text}");
        assert!(!body.iter().any(|line| text.contains(line)), "{text}");
    }
    served.stop().await;
}
