//! Images that drover builds by itself: a template waits for one, or a server calls the runner in it
//! too old.

use std::time::Duration;

use drover_actors::message::{HerdCommand, ImageBuildAsk};
use drover_model::id::{LeaseId, VmId};
use drover_model::image::ImagePlan;
use drover_model::phase::ImagePhase;
use drover_model::status::NextBuild;
use drover_server::view::View;

use super::images::{ask, builds, built, finish, ours, setup, started, started_with};
use super::world::World;
use super::world::ci::Habit;
use super::world::setup::CI_LOGINS;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const TEMPLATE: &str = "image: debian, cloneStrategy: LINKED";

/// A world whose template is made of the image, which was never built.
async fn waiting(keys: &str, template: &str) -> World {
    let mut world = started(keys).await;
    world.setup.templates = vec![("linux", template.into())];
    world.reload();
    world
}

/// How many builds ended in failure.
fn failed(world: &World) -> usize {
    builds(world.view()).iter().filter(|build| build.phase == ImagePhase::Failed).count()
}

// Invariant: an image is built by itself where a template that is wanted waits for its first version,
// and only where the image says so.

#[tokio::test(start_paused = true)]
async fn a_job_has_an_image_built_that_no_node_has_and_runs_on_it() {
    let world = waiting("buildWhenMissing: true", TEMPLATE).await;
    world.pass(10 * MINUTE).await;
    assert_eq!(builds(world.view()).len(), 0, "nobody wants an agent yet");
    let lease = world.lease("linux").await;
    let building = |view: &View| {
        let why = view.lease(&lease).map(|lease| lease.detail).unwrap_or_default();
        why == "rack/linux waits for image `debian`, which is being built: Provisioning; `drover \
                image list` shows the build"
    };
    world.until("the lease says that the image is being built", building).await;
    let agent = world.ready(&lease).await;
    assert_eq!(world.journal_state().agents[&agent.agent].spec.source, VmId(9003));
    assert_eq!(ours(&world), [9003], "one build");
    world.release(&lease).await;
    finish(world);
}

#[tokio::test(start_paused = true)]
async fn a_declared_machine_has_its_image_built_too() {
    let mut world = started("buildWhenMissing: true").await;
    world.setup.sections +=
        "machines:\n  gitea: {cloud: rack, image: debian, credentialsId: ssh}\n";
    world.reload();
    world.until("the machine runs", super::declared::runs).await;
    assert_eq!(ours(&world).len(), 1, "one build");
    finish(world);
}

#[tokio::test(start_paused = true)]
async fn a_warm_pool_has_its_image_built_too() {
    let world = waiting("buildWhenMissing: true", &format!("{TEMPLATE}, instanceMin: 1")).await;
    world.until_state(drover_model::phase::AgentPhase::Ready).await;
    assert_eq!(ours(&world), [9003]);
    finish(world);
}

#[tokio::test(start_paused = true)]
async fn without_the_key_nothing_is_built_and_the_lease_says_what_builds_it() {
    let world = waiting("", TEMPLATE).await;
    let lease = world.lease("linux").await;
    world.pass(120 * MINUTE).await;
    assert_eq!(builds(world.view()).len(), 0);
    assert_eq!(
        world.view().lease(&lease).unwrap().detail,
        "rack/linux starts nothing as long as this lasts: image `debian` has no version on \
         cloud `rack`: `drover image build debian` builds one"
    );
    world.release(&lease).await;
    finish(world);
}

// Invariant: who waits for an image hears why its last build failed and when the next one is; a restart
// forgets none of that.

/// Why a lease waits.
fn reason(view: &View, lease: &LeaseId) -> String {
    view.lease(lease).map(|lease| lease.detail).unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn a_lease_says_why_the_build_of_its_image_failed_and_when_the_next_one_is() {
    let mut world = waiting("buildWhenMissing: true", TEMPLATE).await;
    world.shell.fail(Some("echo hello"));
    let lease = world.lease("linux").await;
    let why = "Provisioning: command 1: the step `command 1` ended with exit status 1";
    let removes = |view: &View| {
        let reason = reason(view, &lease);
        reason.contains("its build failed at 20")
            && reason.contains(why)
            && reason.ends_with(
                "drover removes the guest of that build, and tries again 30 minutes after that",
            )
    };
    world.until("its guest is removed", removes).await;
    let failed_last = |view: &View| reason(view, &lease).contains("the last build failed at 20");
    world.until("nothing is left of it", failed_last).await;
    let status = builds(world.view()).pop().unwrap();
    let Some(NextBuild::At(next)) = status.next else { panic!("{status:?}") };
    let (at, failure) = status.failure.clone().unwrap();
    let last = format!(
        "rack/linux waits for image `debian`: the last build failed at {}: {failure}; the next try is at {}, \
         and `drover image build debian` tries at once",
        at.rfc3339(),
        next.rfc3339()
    );
    assert!(failure.starts_with(why), "{failure}");
    assert_eq!(reason(world.view(), &lease), last);

    // The next start of the service knows as much, and does not build at once. Where the end of the removal
    // was lost with the last moments, it looks at the guest once more, and counts from there.
    world.restart(MINUTE).await;
    world.pass(10 * MINUTE).await;
    let known = builds(world.view());
    assert_eq!(known.len(), 1, "{known:?}");
    let Some(NextBuild::At(then)) = known[0].next else { panic!("{known:?}") };
    assert!(then - next < 2 * MINUTE && next - then < 10 * SECOND, "{known:?}");
    assert_eq!(known[0].failure, status.failure);
    assert_eq!(reason(world.view(), &lease), last.replace(&next.rfc3339(), &then.rfc3339()));
    world.pass(15 * MINUTE).await;
    assert_eq!(builds(world.view()).len(), 1);
    world.shell.fail(None);
    world.ready(&lease).await;
    assert!(world.journal_state().failed_builds.is_empty(), "it is built");
    world.release(&lease).await;
    finish(world);
}

#[tokio::test(start_paused = true)]
async fn a_crash_right_after_a_build_failed_keeps_why_and_does_not_build_again_at_once() {
    let mut world = waiting("buildWhenMissing: true", TEMPLATE).await;
    world.shell.fail(Some("echo hello"));
    let lease = world.lease("linux").await;
    let removing =
        |view: &View| builds(view).iter().any(|build| build.phase == ImagePhase::Removing);
    world.until("it failed", removing).await;
    // The guest is gone before the service runs again.
    world.crash();
    world.side.remove_guest(9003);
    world.start().await;
    world.pass(30 * SECOND).await;
    let known = builds(world.view());
    assert_eq!((known.len(), known[0].phase), (1, ImagePhase::Failed), "{known:?}");
    assert!(known[0].detail.contains("the step `command 1` ended with exit status"), "{known:?}");
    assert!(reason(world.view(), &lease).contains("the step `command 1` ended with exit status"));
    world.pass(20 * MINUTE).await;
    assert_eq!(builds(world.view()).len(), 1, "it does not begin again at once");
    world.release(&lease).await;
    finish(world);
}

// Invariant: a build that a start of the service found in its midst leads to the one that takes its place.

#[tokio::test(start_paused = true)]
async fn a_build_that_a_crash_ended_names_the_next_one() {
    let mut world = started("").await;
    ask(&world, &[], false).await.unwrap();
    let runs = |view: &View| builds(view).iter().any(|one| one.phase == ImagePhase::Provisioning);
    world.until("it runs", runs).await;
    world.restart(SECOND).await;
    let first = builds(world.view()).remove(0);
    assert_eq!((first.phase, &first.next), (ImagePhase::Removing, &Some(NextBuild::Again)));
    let followed = |view: &View| builds(view).len() == 2;
    world.until("the next one runs", followed).await;
    let both = builds(world.view());
    assert_eq!(both[0].next, Some(NextBuild::Build(both[1].build.clone())), "{both:?}");
    let done = |view: &View| builds(view)[1].phase == ImagePhase::Done;
    world.until("it is built", done).await;
    finish(world);
}

// Invariant: a build that fails is not repeated in a loop, and an edit of the image ends the pause.

#[tokio::test(start_paused = true)]
async fn a_build_that_fails_is_tried_again_after_half_an_hour() {
    let mut world = waiting("buildWhenMissing: true", TEMPLATE).await;
    world.shell.fail(Some("echo hello"));
    let lease = world.lease("linux").await;
    world.pass(25 * MINUTE).await;
    assert_eq!(failed(&world), 1);
    world.pass(15 * MINUTE).await;
    assert_eq!(failed(&world), 2);
    // The operator corrects the recipe.
    world.setup.sections = world.setup.sections.replace("word: hello", "word: bye");
    world.reload();
    world.ready(&lease).await;
    assert_eq!(failed(&world), 2);
    world.release(&lease).await;
    finish(world);
}

#[tokio::test(start_paused = true)]
async fn a_build_that_an_operator_cancels_is_not_started_again_at_once() {
    let world = waiting("buildWhenMissing: true", TEMPLATE).await;
    let lease = world.lease("linux").await;
    world.until("a build runs", |view| !builds(view).is_empty()).await;
    let build = builds(world.view()).remove(0).build;
    let cancel = |reply| HerdCommand::CancelBuild { build, reply };
    world.command(cancel).await.unwrap();
    world.pass(20 * MINUTE).await;
    assert_eq!((builds(world.view()).len(), failed(&world)), (1, 1));
    world.release(&lease).await;
    finish(world);
}

// Invariant: a crash in the middle of such a build leads to one image.

#[tokio::test(start_paused = true)]
async fn a_crash_while_a_job_waits_for_its_image_leaves_one_version_and_the_job_runs() {
    for state in [ImagePhase::Pulling, ImagePhase::Booting, ImagePhase::Sealing] {
        let mut world = waiting("buildWhenMissing: true", TEMPLATE).await;
        let lease = world.lease("linux").await;
        let runs = |view: &View| builds(view).iter().any(|build| build.phase == state);
        world.until(state.name(), runs).await;
        world.restart(MINUTE).await;
        world.ready(&lease).await;
        world.pass(5 * MINUTE).await;
        assert_eq!(ours(&world).len(), 1, "{state}");
        world.release(&lease).await;
        finish(world);
    }
}

// Invariant: a version that is built afresh is another one of the same recipe, once a day.

#[tokio::test(start_paused = true)]
async fn an_operator_has_the_same_recipe_built_again_once_a_day() {
    let world = started("").await;
    built(&world, &[]).await;
    let afresh = async || {
        let command = |reply| {
            let ask = ImageBuildAsk::plain("debian".into(), reply);
            HerdCommand::BuildImage(Box::new(ImageBuildAsk { afresh: true, ..ask }))
        };
        world.command(command).await.unwrap().remove(0)
    };
    let started = afresh().await;
    assert!(matches!(started, ImagePlan::Starts { .. }), "{started:?}");
    world.pass(20 * MINUTE).await;
    assert_eq!(ours(&world), [9003, 9004]);
    for again in [afresh().await, ask(&world, &[], false).await.unwrap().remove(0)] {
        assert!(matches!(again, ImagePlan::UpToDate { .. }), "{again:?}");
    }
    finish(world);
}

// Invariant: an image with an age is built again at once where a server calls its runner too old, however
// many runners say so.

#[tokio::test(start_paused = true)]
async fn an_image_whose_runner_is_too_old_is_built_again_at_once() {
    for (keys, versions) in [("rebuildAfterDays: 14", vec![9003, 9004]), ("", vec![9003])] {
        let mut setup = setup(keys);
        setup.credentials = CI_LOGINS.to_owned();
        setup.sections += "demand: {git: {kind: gitea, url: \"https://ci\", credentialsId: ci}}\n";
        let mut world = started_with(setup).await;
        built(&world, &[]).await;
        world.setup.templates = vec![("linux", format!("{TEMPLATE}, maxTotalUses: 1"))];
        world.reload();
        world.ci.habits("git", &[Habit::Old, Habit::Old, Habit::Old]);
        world.ci.push("git", 2, &["linux"], MINUTE);
        world.pass(60 * MINUTE).await;
        assert_eq!((ours(&world), world.ci.over("git")), (versions, 2), "{keys}");
        finish(world);
    }
}
