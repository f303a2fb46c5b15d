//! `drover leases`: what is listed, and what is ended.

use drover_model::fact::What;
use drover_model::id::LeaseId;
use drover_model::phase::LeasePhase;
use drover_model::status::LeaseStatus;

use super::super::*;
use super::global;
use drover_server::testing::{self, Served, reported};

/// Runs a command line; gives its exit code, and what it printed.
async fn cli(served: &Served, words: &[&str]) -> (u8, String) {
    let cli = Cli::try_parse_from(["drover"].iter().chain(words)).unwrap();
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut term = Term::new(&mut out, &mut err);
    let global = Global { json: cli.global.json, ..global(&served.socket) };
    let result = remote::run(&global, cli.command, &mut term).await;
    let code = result.unwrap_or_else(|fault| fault.exit_code());
    (code, [out, err].map(|text| String::from_utf8(text).unwrap()).concat())
}

fn lease(served: &Served, id: &str, state: LeasePhase, principal: &str) {
    let agent = (state == LeasePhase::Ready).then_some("a1");
    let status = testing::lease(id, state, agent, "no agent is free");
    let status = LeaseStatus { principal: principal.into(), ..status };
    reported(&served.view, What::Lease(Box::new(status)));
}

// Invariant: leases that wait can be found and ended, those chosen and no others.

#[tokio::test]
async fn leases_are_listed_and_those_chosen_are_ended() {
    let served = Served::default();
    for (id, state, principal) in [
        ("l1", LeasePhase::Waiting, "token:ci"),
        ("l2", LeasePhase::Waiting, "token:other"),
        ("l3", LeasePhase::Ready, "token:ci"),
        ("l4", LeasePhase::Ended, "token:ci"),
    ] {
        lease(&served, id, state, principal);
    }
    let (code, text) = cli(&served, &["leases"]).await;
    assert_eq!(code, 0, "{text}");
    let ids = |text: &str| -> Vec<String> {
        let first = text.lines().skip(1).filter_map(|line| line.split_whitespace().next());
        first.map(str::to_owned).collect()
    };
    assert_eq!(ids(&text), ["l1", "l2", "l3"]);
    for part in ["WANTS", "labels `linux`", "token:other", "no agent is free"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let (_, text) = cli(&served, &["leases", "--state", "ended"]).await;
    assert_eq!(ids(&text), ["l4"]);
    let (code, text) =
        cli(&served, &["leases", "--state", "waiting", "--principal", "token:ci", "--end"]).await;
    assert_eq!((code, &*text), (0, "lease l1 is over\n"));
    let state = |id: &str| served.view.lease(&LeaseId::new(id)).unwrap().state;
    assert_eq!(
        [state("l1"), state("l2"), state("l3")],
        [LeasePhase::Ended, LeasePhase::Waiting, LeasePhase::Ready]
    );
    let (code, text) = cli(&served, &["leases", "--principal", "nobody", "--end"]).await;
    assert_eq!((code, &*text), (0, "no lease to end\n"));
    let (_, text) = cli(&served, &["leases", "--principal", "other"]).await;
    assert_eq!(ids(&text), ["l2"], "the name of a token is its principal");
    served.stop().await;
}

// Invariant: one's own leases are those of the principal that the service knows one by.

#[tokio::test]
async fn ones_own_leases_are_listed_and_ended_and_no_others() {
    let served = Served::default();
    let own = format!("uid:{}", rustix::process::getuid().as_raw());
    for (id, principal) in [("l1", "token:ci"), ("l2", &*own), ("l3", "uid:4242")] {
        lease(&served, id, LeasePhase::Waiting, principal);
    }
    let (code, text) = cli(&served, &["leases", "--mine"]).await;
    assert_eq!((code, text.contains("l2")), (0, true), "{text}");
    assert!(!text.contains("l1") && !text.contains("l3"), "{text}");
    let (code, text) = cli(&served, &["leases", "--mine", "--end"]).await;
    assert_eq!((code, &*text), (0, "lease l2 is over\n"));
    let words = ["drover", "leases", "--mine", "--principal", "token:ci"];
    assert!(Cli::try_parse_from(words).is_err());
    served.stop().await;
}

// Invariant: nothing ends that was not chosen by what the service knows of it.

#[tokio::test]
async fn what_does_not_choose_leases_ends_none_of_them() {
    let served = Served::default();
    lease(&served, "l1", LeasePhase::Waiting, "token:ci");
    let mut said = String::new();
    for words in [
        &["leases", "--end"][..],
        &["leases", "--end", "--state", "waiting", "--filter", "agent=a1"],
        &["leases", "--filter", "state=redy"],
    ] {
        let cli = Cli::try_parse_from(["drover"].iter().chain(words)).unwrap();
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut term = Term::new(&mut out, &mut err);
        let fault = remote::run(&global(&served.socket), cli.command, &mut term).await.unwrap_err();
        assert_eq!(fault.exit_code(), 2);
        said += &format!("$ drover {}\n{}\n", words.join(" "), chain(&fault));
    }
    insta::assert_snapshot!(said);
    assert_eq!(served.view.lease(&LeaseId::new("l1")).unwrap().state, LeasePhase::Waiting);
    served.stop().await;
}

#[tokio::test]
async fn several_leases_are_ended_whatever_becomes_of_one() {
    let served = Served::default();
    for id in ["l1", "l2"] {
        lease(&served, id, LeasePhase::Waiting, "token:ci");
    }
    let (code, text) = cli(&served, &["release", "l1", "nope", "l2"]).await;
    assert_eq!(code, 1);
    assert!(text.starts_with("lease l1 is over\nlease l2 is over\nlease nope cannot"), "{text}");
    served.stop().await;
}
