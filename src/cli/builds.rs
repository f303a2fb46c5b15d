//! Builds of images for people: how far each is, and following some until all are over.
//!
//! A build that the service stopped in the midst of fails, and drover begins another one in its place:
//! who follows the first goes on with the second. A service that is started again is waited for.

use std::collections::BTreeMap;
use std::time::Duration;

use drover_api::{ImageBuildOut, ImageBuildsOut};
use drover_model::phase::ImagePhase;
use jiff::Timestamp;

use super::client::{CALL_LIMIT, Client};
use super::error::CliError;
use super::list_options::ViewOptions;
use super::lists::described;
use super::sentences::clean;
use super::table::View;
use super::term::{Term, print};

/// The pause between two looks at builds.
const POLL: Duration = Duration::from_secs(1);
/// The looks for which a service that does not answer is waited for.
const SILENT_MOST: u32 = 60;
/// The looks that a service which was started again may take to know its builds.
const STRANGE_MOST: u32 = 10;

/// Times as they are: what changed is no matter of when it is shown.
const EXACT: View = View::complete(Timestamp::UNIX_EPOCH);

/// Builds that run, and the last of an image on a node where it failed.
pub(super) fn notable(builds: &[ImageBuildOut]) -> Vec<&ImageBuildOut> {
    let is_last = |at: usize, one: &ImageBuildOut| {
        let mut later = builds.iter().skip(at + 1);
        later.all(|other| (&other.image, &other.node) != (&one.image, &one.node))
    };
    let all = builds.iter().enumerate().filter(|(at, one)| {
        !one.state.is_over() || one.state == ImagePhase::Failed && is_last(*at, one)
    });
    all.map(|(_, one)| one).collect()
}

fn moved(build: &ImageBuildOut, view: &View) -> String {
    let total: u64 = build.phases.iter().map(|phase| phase.ms).sum();
    let seconds = Duration::from_millis(total).as_secs_f64();
    let (node, described) = (clean(&build.node), clean(&described(build, view)));
    let vmid = build.vmid.map(|vmid| format!(" (VMID {vmid})")).unwrap_or_default();
    let line = format!("{seconds:8.1} s  {node}{vmid}  {:<13} {described}", build.state.name());
    format!("{}\n", line.trim_end())
}

/// Builds that are followed.
#[derive(Default)]
struct Followed {
    /// Those that are not over, each with its node.
    waited: BTreeMap<String, String>,
    shown: BTreeMap<String, String>,
    failed: u32,
    /// The looks that found no service, one after the other.
    silent: u32,
    /// The looks for which a build may still be unknown.
    strange: u32,
}

impl Followed {
    /// Takes in what the service shows; gives what moved.
    fn see<'a>(&mut self, all: &'a [ImageBuildOut]) -> Result<Vec<&'a ImageBuildOut>, CliError> {
        self.silent = 0;
        let mut news = Vec::new();
        for build in all {
            if !self.waited.contains_key(&build.build) {
                continue;
            }
            let now = format!("{} {}", build.state.name(), described(build, &EXACT));
            if self.shown.insert(build.build.clone(), now.clone()) != Some(now) {
                news.push(build);
            }
            // Of one that begins again, the id comes with a later look.
            if !build.state.is_over() || build.again && build.next_build.is_none() {
                continue;
            }
            self.waited.remove(&build.build);
            match &build.next_build {
                Some(next) => drop(self.waited.insert(next.clone(), build.node.clone())),
                None => self.failed += u32::from(build.state != ImagePhase::Done),
            }
        }
        let known = |id: &String| all.iter().any(|build| build.build == *id);
        // The service shows a build before it answers with the build's id.
        let lost = self.waited.iter().find(|(id, _)| !known(id));
        match lost {
            Some(_) if self.strange > 0 => self.strange -= 1,
            Some((lost, node)) => {
                let text = format!(
                    "build {lost} on {} is not known: drover started again since. A build that had \
                     a guest begins again by itself: `drover image list` shows it. Where it does \
                     not, run the command again",
                    clean(node)
                );
                return Err(CliError::Over(text));
            }
            None => self.strange = 0,
        }
        Ok(news)
    }
}

/// Prints how builds, each with its node, move on until all are over; gives the exit code.
pub(super) async fn follow(
    client: &Client,
    waited: BTreeMap<String, String>,
    json: bool,
    term: &mut Term<'_>,
) -> Result<u8, CliError> {
    let mut followed = Followed { waited, ..Followed::default() };
    // Where the output is kept, all of it is.
    let step = term.screen.is_terminal.then(|| term.live.step("the build starts"));
    while !followed.waited.is_empty() {
        match client.get::<ImageBuildsOut>("/v1/images/builds", CALL_LIMIT).await {
            Ok(out) => {
                let view = term.screen.view(&ViewOptions::default());
                let waited = followed.waited.clone();
                let running = |build: &&ImageBuildOut| waited.contains_key(&build.build);
                let lines = out.builds.iter().filter(running).map(|build| moved(build, &view));
                let lines: Vec<_> = lines.map(|line| line.trim().to_owned()).collect();
                let is_live = step.as_ref().is_some_and(|step| step.say(&lines.join(" | ")));
                for build in followed.see(&out.builds)? {
                    if !is_live || build.state.is_over() {
                        print(term, json, build, |build| moved(build, &view))?;
                    }
                }
            }
            Err(fault) if fault.is_passing() && followed.silent < SILENT_MOST => {
                if followed.silent == 0 {
                    writeln!(term.err, "{fault}; the build is followed again once drover answers")?;
                }
                (followed.silent, followed.strange) = (followed.silent + 1, STRANGE_MOST);
            }
            Err(fault) => return Err(fault.into()),
        }
        if !followed.waited.is_empty() {
            tokio::time::sleep(POLL).await;
        }
    }
    Ok(u8::from(followed.failed > 0))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]

    use super::super::lists::build_line;
    use super::super::table::Page;
    use super::*;

    fn build(id: &str, state: ImagePhase) -> ImageBuildOut {
        ImageBuildOut {
            build: id.into(),
            image: "lab/debian".into(),
            version: "v1".into(),
            node: "pve1".into(),
            vmid: None,
            state,
            since: "2026-11-26T18:00:00Z".into(),
            detail: String::new(),
            failed_at: None,
            failure: None,
            again: false,
            next_build: None,
            next_try: None,
            phases: Vec::new(),
        }
    }

    fn failed(id: &str, state: ImagePhase, why: &str) -> ImageBuildOut {
        let detail = if state.is_over() { why.to_owned() } else { String::new() };
        let at = "2026-11-26T18:00:00Z".to_owned();
        ImageBuildOut { detail, failed_at: Some(at), failure: Some(why.into()), ..build(id, state) }
    }

    fn following(id: &str) -> Followed {
        let waited = [(id.to_owned(), "pve1".to_owned())].into();
        Followed { waited, ..Followed::default() }
    }

    // Invariant: who follows a build that a restart of the service ended goes on with the one that drover
    // begins in its place.

    #[test]
    fn a_build_that_drover_begins_again_is_followed_to_its_end() {
        let mut followed = following("b1");
        let again = |state, next: Option<&str>| ImageBuildOut {
            again: true,
            next_build: next.map(str::to_owned),
            ..failed("b1", state, "drover stopped while it ran")
        };
        for (shown, text) in [
            (vec![build("b1", ImagePhase::Booting)], "     0.0 s  pve1  Booting\n"),
            (
                vec![again(ImagePhase::Removing, None)],
                "     0.0 s  pve1  Removing      drover stopped while it ran; drover removes its guest; \
                 drover builds it again\n",
            ),
            (
                vec![again(ImagePhase::Failed, None)],
                "     0.0 s  pve1  Failed        drover stopped while it ran; drover builds it again\n",
            ),
            (
                vec![again(ImagePhase::Failed, Some("b2")), build("b2", ImagePhase::Queued)],
                "     0.0 s  pve1  Failed        drover stopped while it ran; build b2 goes on in its \
                 place\n     0.0 s  pve1  Queued\n",
            ),
            (vec![build("b2", ImagePhase::Done)], "     0.0 s  pve1  Done\n"),
        ] {
            let news: String = followed
                .see(&shown)
                .unwrap()
                .into_iter()
                .map(|build| moved(build, &EXACT))
                .collect();
            assert_eq!(news, text);
        }
        assert_eq!((followed.waited.len(), followed.failed), (0, 0));
    }

    #[test]
    fn a_build_that_failed_and_one_that_nobody_knows_end_the_command() {
        let mut followed = following("b1");
        followed.see(&[failed("b1", ImagePhase::Failed, "no room")]).unwrap();
        assert_eq!((followed.waited.len(), followed.failed), (0, 1));
        let mut lost = following("b1");
        (lost.silent, lost.strange) = (1, 1);
        assert!(lost.see(&[]).is_ok(), "the service was started again a moment ago");
        assert_eq!(lost.see(&[]).err().unwrap().exit_code(), 75);
    }

    // Invariant: a list shows each build that failed last, when, why, and when drover tries again.

    #[test]
    fn the_last_failed_build_of_an_image_is_shown_with_its_next_try() {
        let next = Some("2026-11-26T18:30:00Z".to_owned());
        let second = failed("b2", ImagePhase::Failed, "no room");
        let all = [
            failed("b1", ImagePhase::Failed, "no disk"),
            ImageBuildOut { next_try: next, ..second },
        ];
        let mut page = Page::new(&EXACT);
        notable(&all).into_iter().for_each(|build| build_line(build, &mut page));
        assert_eq!(
            page.into_text(),
            "image lab/debian on pve1: build b2 failed at 2026-11-26T18:00:00Z: no room; the next try \
             is at 2026-11-26T18:30:00Z, where a template waits for the image then\n"
        );
    }
}
