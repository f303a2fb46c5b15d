//! Preparing guests over SSH, over time and restarts.

use drover_model::fact::What;
use drover_model::fault::FaultKind;
use drover_model::record::Reason;

use crate::world::World;
use crate::world::setup::Setup;

/// Steps of every kind, around a file that is there in every checkout.
fn steps() -> String {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/LICENSE");
    format!(
        "prepare: [{{run: first}}, {{packages: [git, jq]}}, {{upload: {{from: \"{file}\", to: licence}}}}, \
         {{name: last, run: fourth}}], readyCommand: fifth"
    )
}

/// The end of each command: our own scripts are long.
fn ends(commands: &[String]) -> Vec<String> {
    let end = |text: &String| {
        let ours = text.rsplit_once(" drover").map(|(_, words)| format!("drover{words}"));
        ours.unwrap_or_else(|| text.clone())
    };
    commands.iter().map(end).collect()
}

const WHOLE: [&str; 7] = [
    "drover",
    "drover '/home/debian/agent' 'java'",
    "first",
    "drover 'git' 'jq'",
    "licence",
    "fourth",
    "fifth",
];

// Invariant: steps are carried out in their order, and all of them before an agent is ready.

#[tokio::test(start_paused = true)]
async fn every_step_is_carried_out_in_its_order_before_anybody_gets_the_agent() {
    let world = World::started(Setup::linux(&steps())).await;
    world.leased("linux").await;
    assert_eq!(ends(&world.shell.ran()), WHOLE);
    let ended = world.notes.facts(|what| match what {
        What::Step { step, exit, .. } => Some((step.clone(), *exit)),
        _ => None,
    });
    let names = [
        "cloud-init",
        "remoteFs",
        "step 1 (run)",
        "step 2 (packages)",
        "step 3 (upload)",
        "last",
        "readyCommand",
    ];
    assert_eq!(ended, names.map(|name| (name.to_owned(), Some(0))));
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_failed_step_ends_the_provision_with_its_name_and_no_later_step_runs() {
    let setup = Setup::linux(&format!("{}, instanceMin: 1, breakerThreshold: 1", steps()));
    let world = World::started(setup).await;
    world.shell.fail(Some("fourth"));
    world.until("an agent is gone", |view| !view.gone_agents().is_empty()).await;
    let reason = world.view().gone_agents()[0].reason.clone();
    let Reason::Failed { text, .. } = &reason else { panic!("{reason:?}") };
    assert_eq!(text, "the step `last` ended with exit status 1");
    assert!(!world.shell.ran().contains(&"fifth".to_owned()));
    world.shell.fail(None);
    world.end().await;
}

// Invariant: a crash in the middle begins preparing again, with the very file the agent was born with.

#[tokio::test(start_paused = true)]
async fn a_crash_in_the_middle_of_the_steps_begins_them_again() {
    let mut world = World::started(Setup::linux(&steps())).await;
    let lease = world.lease("linux").await;
    world.until("the file is there", |_| !world.shell.uploaded().is_empty()).await;
    world.crash();
    world.start().await;
    world.ready(&lease).await;
    let ran = ends(&world.shell.ran());
    let whole = ran.len() - WHOLE.len();
    assert!(whole >= 5, "{ran:?}");
    assert_eq!(ran[whole..], WHOLE);
    let sent = world.shell.uploaded();
    assert!(sent.iter().all(|upload| *upload == sent[0]) && sent.len() == 2, "{sent:?}");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_connection_repeats_the_step_it_was_lost_in() {
    let world = World::started(Setup::linux(&steps())).await;
    let lease = world.lease("linux").await;
    world.until("the first steps are done", |_| world.shell.ran().len() >= 3).await;
    world.shell.refuse(1, FaultKind::Unreachable);
    world.ready(&lease).await;
    assert_eq!(ends(&world.shell.ran()), WHOLE);
    world.end().await;
}
