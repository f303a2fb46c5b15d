//! What is printed of tests of channels.

use super::super::*;
use super::global;
use crate::cli::options::NotifyAction;
use drover_server::testing::Served;

/// Tests a channel, or all; gives what was printed and the exit code, or why it was not done.
async fn test(served: &Served, channel: Option<&str>, json: bool) -> (String, Option<u8>) {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut term = Term::new(&mut out, &mut err);
    let command = Command::Notify(NotifyAction::Test { channel: channel.map(str::to_owned) });
    let global = Global { json, ..global(&served.socket) };
    match remote::run(&global, command, &mut term).await {
        Ok(code) => (String::from_utf8(out).unwrap(), Some(code)),
        Err(fault) => (chain(&fault), None),
    }
}

// Invariant: a test says for each channel what the other side answered, and ends with 1 where one refused.

#[tokio::test]
async fn each_channel_has_a_line_with_what_its_server_answered() {
    let served = Served::default();
    let (said, code) = test(&served, None, false).await;
    insta::assert_snapshot!(said, @r"
    ok    ops              mail     250 2.0.0 Ok
    FAIL  phone            ntfy     no answer within 30 s
    ");
    assert_eq!(code, Some(1));
    let (said, code) = test(&served, Some("ops"), true).await;
    let said: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!((&said["channels"][0]["taken"], code), (&true.into(), Some(0)));
    let (said, code) = test(&served, Some("nobody"), false).await;
    assert!(said.contains("no channel `nobody` is in `service.notify`"), "{said}");
    assert_eq!(code, None);
    served.stop().await;
}
