//! Which key a hold is asked for with.

use std::sync::Arc;
use std::time::Duration;

use drover_model::fact::What;
use drover_model::phase::AgentPhase;
use drover_ssh::PrivateKey;
use drover_ssh::testing::key;
use secrecy::ExposeSecret;

use super::super::*;
use super::global;
use drover_server::testing::{self, Served, reported};

/// Both commands with a key file; what they say where they fail, with their exit code.
async fn said(served: &Served, text: &[u8]) -> Vec<Option<(u8, String)>> {
    let file = served.directory.path().join("key");
    std::fs::write(&file, text).unwrap();
    let (span, public_key) = (Duration::from_secs(60), Some(file.clone()));
    let hold = HoldOptions { agent: "a1".into(), span, public_key: public_key.clone() };
    let template = "lab/linux".into();
    let next = HoldNextOptions { template, span, public_key, off: false };
    let mut all = Vec::new();
    for command in [Command::Hold(hold), Command::HoldNext(next)] {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut term = Term::new(&mut out, &mut err);
        let result = remote::run(&global(&served.socket), command, &mut term).await;
        let shown = file.display().to_string();
        all.push(
            result.err().map(|fault| (fault.exit_code(), chain(&fault).replace(&shown, "FILE"))),
        );
    }
    all
}

// Invariant: nothing but one public key leaves the machine, and what else a file holds is not shown.

#[tokio::test]
async fn a_file_that_is_no_public_key_is_refused_before_anything_is_sent() {
    let served = Served::default();
    reported(&served.view, What::Agent(Arc::new(testing::agent("a1", AgentPhase::Ready))));
    let private = key(1).to_openssh().ok().unwrap();
    let line = PrivateKey::from_seed(&[1; 32], "me").public_line("me");
    let mut reported = Vec::new();
    for text in [
        private.expose_secret().to_owned(),
        "PuTTY-User-Key-File-3: ssh-ed25519\nEncryption: none\n".to_owned(),
        format!("{line}\n{}", private.expose_secret()),
        format!("{line}\n{line}\n"),
        "hunter2\n".to_owned(),
        "ssh-ed25519 AAAA\n".to_owned(),
        format!("command=\"id\" {line}"),
        " \n".to_owned(),
    ] {
        let [Some(hold), Some(next)] = &said(&served, text.as_bytes()).await[..] else {
            panic!("`{text}` was taken")
        };
        assert_eq!(hold, next);
        assert_eq!(hold.0, 2);
        reported.push(hold.1.clone());
    }
    insta::assert_snapshot!(reported.join("\n"), @r"
    `FILE` holds a private key, which is never sent; give the public one, the line in the `.pub` file beside it
    `FILE` holds a private key, which is never sent; give the public one, the line in the `.pub` file beside it
    `FILE` holds a private key, which is never sent; give the public one, the line in the `.pub` file beside it
    `FILE` must hold one public key line, such as a `.pub` file: it has several lines
    `FILE` must hold one public key line, such as a `.pub` file: it begins with no type of key
    `FILE` must hold one public key line, such as a `.pub` file: it is no public key line (length invalid); copy the whole .pub file
    `FILE` must hold one public key line, such as a `.pub` file: it begins with no type of key
    `FILE` must hold one public key line, such as a `.pub` file: it is empty
    ");
    let [Some((code, _)), _] = &said(&served, b"\xff\xfe\n").await[..] else { panic!("taken") };
    assert_eq!(*code, 2);
    assert_eq!(served.view.agents()[0].phase, AgentPhase::Ready, "nothing was asked for");
    served.stop().await;
}

#[tokio::test]
async fn a_public_key_is_sent_whatever_blank_lines_are_around_it() {
    let served = Served::default();
    reported(&served.view, What::Agent(Arc::new(testing::agent("a1", AgentPhase::Ready))));
    let line = PrivateKey::from_seed(&[1; 32], "me").public_line("me");
    assert_eq!(said(&served, format!("\n{line}\r\n\n").as_bytes()).await[0], None);
    assert_eq!(served.view.agents()[0].phase, AgentPhase::Held);
    served.stop().await;
}
