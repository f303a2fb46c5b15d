//! `drover lease` in scripts: how long it waits, what its command reads, and the id that it prints.

use std::future::pending;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use drover_model::fact::What;
use drover_model::phase::LeasePhase;

use super::super::lease::{input_of, lease};
use super::super::leasing::Leasing;
use super::super::*;
use super::global;
use super::lease::{Guest, WAIT_LIMIT, options};
use drover_server::testing::{self, Served, reported};
use drover_server::view::View;

/// Leasing at a service, with a guest.
fn leasing<'a>(served: &Served, client: &'a Client, guest: &'a Guest) -> Leasing<'a> {
    Leasing {
        client,
        over: guest,
        input: |pieces| pieces.try_send(Bytes::from_static(b"typed")).unwrap(),
        time_limits: WAIT_LIMIT,
        key_dir: served.directory.path().to_owned(),
        json: false,
    }
}

// Invariant: a lease that waited in vain says whose limit that was, and why it waited.

/// A terminal on which a lease is seen to wait; the service ends it at that moment.
struct EndsWhenItWaits(Arc<View>);

impl io::Write for EndsWhenItWaits {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if String::from_utf8_lossy(bytes).contains("waiting (") {
            let ended = testing::lease("l1", LeasePhase::Ended, None, "waited-too-long");
            reported(&self.0, What::Lease(Box::new(ended)));
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The fault of a lease that waits in vain, for as long as the command or the service lets it.
async fn waited(wait: Option<Duration>) -> CliError {
    let served = Served::default();
    let client = Client::new(&global(&served.socket)).ok().unwrap();
    let guest = Guest::default();
    let leasing = leasing(&served, &client, &guest);
    let (mut out, mut err) = (Vec::new(), EndsWhenItWaits(served.view.clone()));
    let mut term = Term::new(&mut out, &mut err);
    let options = LeaseOptions { wait, ..options("slow", &["true"]) };
    let fault = lease(&leasing, &options, pending(), &mut term).await.unwrap_err();
    served.stop().await;
    fault
}

#[tokio::test]
async fn a_lease_that_waited_too_long_says_whose_limit_that_was_and_why_it_waited() {
    let (own, services) = (waited(Some(Duration::from_secs(40))).await, waited(None).await);
    assert_eq!((own.exit_code(), services.exit_code()), (75, 75));
    insta::assert_snapshot!(
        [own.to_string(), services.to_string()].join("\n"),
        @r"
    lease `l1` ended: no agent was there for it within 40 s (--wait): no agent is free
    lease `l1` ended: no agent was there for it in time (maxWaitSeconds): no agent is free
    "
    );
}

// Invariant: a command whose standard input is a file for the machine reads an input that has ended.

#[tokio::test]
async fn a_command_reads_nothing_where_its_input_is_the_user_data() {
    let served = Served::default();
    let client = Client::new(&global(&served.socket)).ok().unwrap();
    let guest = Guest::default();
    let leasing = leasing(&served, &client, &guest);
    let read = async |user_data: Option<&str>| {
        let user_data = user_data.map(Into::into);
        let options = LeaseOptions { user_data, ..options("quick", &["cat"]) };
        input_of(&leasing, &options).recv().await
    };
    assert_eq!(read(Some("-")).await, None);
    assert_eq!(read(Some("data")).await, Some(Bytes::from_static(b"typed")));
    assert_eq!(read(None).await, Some(Bytes::from_static(b"typed")));
    served.stop().await;
}

// Invariant: without a command, the name of a lease is its id.

#[tokio::test]
async fn a_script_gets_the_id_of_a_kept_lease_alone() {
    let served = Served::default();
    let client = Client::new(&global(&served.socket)).ok().unwrap();
    let guest = Guest::default();
    let leasing = leasing(&served, &client, &guest);
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let screen = Screen { output: super::super::Output::Name, ..Screen::default() };
    let mut term = Term { screen, ..Term::new(&mut out, &mut err) };
    let code = lease(&leasing, &options("quick", &[]), pending(), &mut term).await.ok();
    assert_eq!((code, out), (Some(0), b"l1\n".to_vec()));
    served.stop().await;
}
