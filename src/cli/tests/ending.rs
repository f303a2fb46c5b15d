//! `drover lease -- COMMAND` where the lease or the machine ends under the command.

use std::future::pending;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use drover_model::fact::What;
use drover_model::phase::{AgentPhase, LeasePhase};
use futures_util::future::BoxFuture;
use tokio::sync::oneshot;

use super::super::lease::lease;
use super::super::leasing::{Leasing, ReadInput};
use super::super::over_ssh::Cut;
use super::super::*;
use super::global;
use super::lease::{Guest, Printed, WAIT_LIMIT, lease_with, options, states};
use drover_server::testing::{self, Served, reported};

// Invariant: a lease that ends under its command says how.

/// What is said when a lease ends with this detail under its command, which is killed or whose
/// connection is lost.
async fn cut_off(detail: &str, killed: bool) -> Printed {
    let served = Served::default();
    let (view, detail) = (served.view.clone(), detail.to_owned());
    let ends = move || {
        let ended = testing::lease("l1", LeasePhase::Ended, Some("a1"), &detail);
        reported(&view, What::Lease(Box::new(ended)));
        let mut goes = testing::agent("a1", AgentPhase::Retiring);
        goes.detail = "asked".into();
        reported(&view, What::Agent(Arc::new(goes)));
    };
    let meanwhile = Mutex::new(Some(Box::new(ends) as Box<dyn FnOnce() + Send>));
    let guest = Guest { fails: !killed, killed, meanwhile, ..Guest::default() };
    let printed = lease_with(&served, &guest, options("quick", &["true"]), pending()).await;
    served.stop().await;
    printed
}

#[tokio::test]
async fn a_lease_that_ends_under_its_command_says_how() {
    let mut said = Vec::new();
    for (detail, killed) in [
        ("expired", false),
        ("expired", true),
        ("lost", false),
        ("lost: node `n1` is offline", false),
        ("no key", false),
        ("released", true),
    ] {
        let printed = cut_off(detail, killed).await;
        assert_eq!(printed.code, 75, "{detail}");
        said.push(printed.result.unwrap_err());
    }
    insta::assert_snapshot!(said.join("\n"), @r"
    the lease ended while the command ran: it expired at 2026-11-21T09:11:02Z
    the lease ended while the command ran: it expired at 2026-11-21T09:11:02Z
    the lease ended while the command ran: its agent went: asked
    the lease ended while the command ran: it was lost: node `n1` is offline
    the lease ended while the command ran: its agent went: no key
    the lease ended while the command ran: it was released
    ");
}

// Invariant: a command whose machine died ends soon, with 75 and the cause.

/// The fault of a command that hangs while its lease ends with this detail.
async fn hung(detail: &str) -> CliError {
    let served = Served::default();
    let (started, running) = oneshot::channel();
    let guest = Guest { hangs: Mutex::new(Some(started)), ..Guest::default() };
    let client = Client::new(&global(&served.socket)).ok().unwrap();
    let leasing = Leasing {
        client: &client,
        over: &guest,
        input: |_| (),
        time_limits: WAIT_LIMIT,
        key_dir: served.directory.path().to_owned(),
        json: false,
    };
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut term = Term::new(&mut out, &mut err);
    let wanted = options("quick", &["sleep"]);
    let leased = lease(&leasing, &wanted, pending(), &mut term);
    let dies = async {
        running.await.unwrap();
        let ended = testing::lease("l1", LeasePhase::Ended, Some("a1"), detail);
        reported(&served.view, What::Lease(Box::new(ended)));
    };
    let (result, ()) = tokio::join!(leased, dies);
    served.stop().await;
    result.unwrap_err()
}

#[tokio::test]
async fn a_command_that_hangs_on_a_lost_lease_ends_with_75_and_the_cause() {
    let fault = hung("lost: its guest was switched off").await;
    assert_eq!(fault.exit_code(), 75);
    insta::assert_snapshot!(
        chain(&fault),
        @"the lease ended while the command ran: it was lost: its guest was switched off"
    );
}

#[tokio::test]
async fn a_command_whose_lease_somebody_else_releases_ends_with_75() {
    let fault = hung("released").await;
    assert_eq!(fault.exit_code(), 75);
    insta::assert_snapshot!(
        chain(&fault),
        @"the lease ended while the command ran: it was released"
    );
}

#[tokio::test]
async fn a_silent_command_that_is_cut_at_once_waits_for_what_the_service_knows() {
    let served = Served::default();
    let guest = Guest { fails: true, sent: true, ..Guest::default() };
    let printed = lease_with(&served, &guest, options("quick", &["true"]), pending()).await;
    let asked: Vec<String> =
        guest.jobs.lock().unwrap().iter().map(|(_, command)| command.clone()).collect();
    assert_eq!(asked, ["true", "true"], "its machine is asked whether it lives");
    assert_eq!(printed.code, 75);
    insta::assert_snapshot!(
        printed.result.unwrap_err(),
        @"the command was cut off: connection reset; its machine does not answer, and drover does not know why"
    );
    served.stop().await;
}

#[tokio::test]
async fn a_command_cut_from_a_machine_that_answers_no_more_ends_with_75_and_what_is_known() {
    let served = Served::default();
    let view = served.view.clone();
    let goes_down = move || {
        let ready = testing::lease("l1", LeasePhase::Ready, Some("a1"), "node pve2 is offline");
        reported(&view, What::Lease(Box::new(ready)));
    };
    let meanwhile = Mutex::new(Some(Box::new(goes_down) as Box<dyn FnOnce() + Send>));
    let guest = Guest { fails: true, sent: true, meanwhile, ..Guest::default() };
    let printed = lease_with(&served, &guest, options("quick", &["true"]), pending()).await;
    assert_eq!(printed.code, 75);
    insta::assert_snapshot!(
        printed.result.unwrap_err(),
        @"the command was cut off: connection reset; its machine does not answer: node pve2 is offline"
    );
    assert_eq!(states(&served), [LeasePhase::Ended], "it is released");
    served.stop().await;
}

#[tokio::test]
async fn a_command_cut_from_a_machine_that_answers_has_failed() {
    let served = Served::default();
    let guest = Guest { cut_once: Mutex::new(true), ..Guest::default() };
    let printed = lease_with(&served, &guest, options("quick", &["true"]), pending()).await;
    assert_eq!(printed.code, 1);
    assert_eq!(printed.result.unwrap_err(), "the command was cut off: connection reset");
    served.stop().await;
}

#[tokio::test]
async fn a_command_that_ends_with_255_by_itself_gives_that() {
    let served = Served::default();
    let guest = Guest { killed: true, ..Guest::default() };
    let printed = lease_with(&served, &guest, options("quick", &["true"]), pending()).await;
    assert_eq!(printed.result, Ok(255));
    served.stop().await;
}

/// A guest that is shut down under its command: sshd kills the command, then nothing answers.
#[derive(Default)]
struct ShutDown {
    is_down: AtomicBool,
}

impl RunOverSsh for ShutDown {
    fn run(&self, _: SshJob) -> BoxFuture<'static, Result<u32, Cut>> {
        let was_down = self.is_down.swap(true, Ordering::Relaxed);
        let refused = Cut { text: "no route to host".into(), sent: false };
        Box::pin(std::future::ready(if was_down { Err(refused) } else { Ok(255) }))
    }
}

#[tokio::test]
async fn a_command_that_is_killed_with_its_machine_ends_with_75() {
    let served = Served::default();
    let client = Client::new(&global(&served.socket)).ok().unwrap();
    let (time_limits, key_dir) = (WAIT_LIMIT, served.directory.path().to_owned());
    let guest = ShutDown::default();
    let (over, input): (_, ReadInput) = (&guest, |_| ());
    let leasing = Leasing { client: &client, over, input, time_limits, key_dir, json: false };
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut term = Term::new(&mut out, &mut err);
    let ended = lease(&leasing, &options("quick", &["make"]), pending(), &mut term).await;
    let fault = ended.unwrap_err();
    assert_eq!(fault.exit_code(), 75);
    insta::assert_snapshot!(
        chain(&fault),
        @"the command was killed; its machine does not answer, and drover does not know why"
    );
    served.stop().await;
}
