//! Versions of the runner program: which GitHub accepts, and until when.
//!
//! An ephemeral runner does not update itself. GitHub gives jobs to a version for 30 days after a
//! newer one was released ("Runner software updates on self-hosted runners" of its documentation),
//! and refuses an older version at its first poll: the runner starts, connects and ends.

use std::fmt;
use std::time::Duration;

use drover_model::demand::words::{Life, Words};
use jiff::{SignedDuration, Timestamp};
use reqwest::Method;
use serde::Deserialize;

use super::super::error::DemandError;
use super::super::finding::{Finding, Remedy};
use super::GitHub;
use super::rate_limit::Purpose;

/// Makes `run.sh` exit with [`DEPRECATED_EXIT`] where GitHub refuses its version; must be `1`
/// (actions/runner 2.336.0 at 258d6c857db3, `src/Misc/layoutroot/run-helper.sh.template`).
pub(super) const DEPRECATED_EXIT_VARIABLE: &str =
    "ACTIONS_RUNNER_RETURN_VERSION_DEPRECATED_EXIT_CODE";
/// The exit status for that (`Constants.cs`).
const DEPRECATED_EXIT: u32 = 7;
/// The text that `run.sh` and `run.cmd` log with it (`run-helper.sh.template`,
/// `run-helper.cmd.template`).
const DEPRECATED_LOG: &str = "exit with deprecated version";
/// GitHub's answers to runners that it refuses, which the runners log: at a poll
/// (`RunnerVersionTooOld` of `SchedulerHttpClient.cs`), and to `config.sh`. Older versions of `run.sh`
/// exit with 0 after it.
const REFUSALS: [&str; 2] =
    ["is deprecated and cannot receive messages", "can no longer register with GitHub"];
/// Texts that a runner logs beside the name of its job, which the job's author chose
/// (`JobDispatcher.cs`).
const JOB_LOGS: [&str; 2] = ["Running job: ", " completed with result: "];
/// The texts before the version in a runner's log (`Runner.cs`), and in GitHub's answer.
const VERSION_MARKS: [&str; 2] = ["Current runner version: '", "Runner version v"];
/// How long a version is given jobs once a newer one is released.
const JOBS_AFTER_SUCCESSOR: SignedDuration = SignedDuration::from_hours(30 * 24);
/// The path of the released versions.
const RELEASES_PATH: &str = "repos/actions/runner/releases?per_page=100";
/// How long a message waits for the list of versions, without which it says less.
const RELEASES_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Version(u32, u32, u32);

impl Version {
    /// Reads a version such as `2.336.0` or `v2.336.0`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.trim_start_matches('v').split('.').map(|part| part.parse().ok());
        let mut next = || parts.next().flatten();
        let version = Self(next()?, next()?, next()?);
        parts.next().is_none().then_some(version)
    }

    /// The version of a runner, by its log.
    fn logged(log: &str) -> Option<Self> {
        VERSION_MARKS.iter().find_map(|mark| {
            let (_, rest) = log.split_once(mark)?;
            Self::parse(rest.split(['\'', ' ', '\n']).next()?)
        })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}

/// A version, and when it was released where that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Release {
    version: Version,
    at: Option<Timestamp>,
}

/// A release of a repository.
#[derive(Deserialize)]
struct Released {
    tag_name: String,
    #[serde(default)]
    published_at: Option<String>,
    #[serde(default)]
    draft: bool,
    #[serde(default)]
    prerelease: bool,
}

/// A program that a server offers for download.
#[derive(Deserialize)]
struct Offered {
    filename: String,
}

impl Released {
    fn release(&self) -> Option<Release> {
        let version = Version::parse(&self.tag_name)?;
        let at = self.published_at.as_ref().and_then(|text| text.parse().ok());
        (!self.draft && !self.prerelease).then_some(Release { version, at })
    }
}

impl Offered {
    /// The version in a name such as `actions-runner-linux-x64-2.336.0.tar.gz`.
    fn release(&self) -> Option<Release> {
        let name = self.filename.trim_end_matches(".zip").trim_end_matches(".tar.gz");
        let version = Version::parse(name.rsplit('-').next()?)?;
        Some(Release { version, at: None })
    }
}

/// Whether a runner's log says that GitHub refuses its version. A runner that was given a job is
/// not refused, whatever the name of that job is.
fn is_refused(words: &Words) -> bool {
    if JOB_LOGS.iter().any(|text| words.lines.contains(text)) {
        return false;
    }
    let is_logged =
        words.life == Life::Ended(Some(DEPRECATED_EXIT)) && words.lines.contains(DEPRECATED_LOG);
    is_logged || REFUSALS.iter().any(|text| words.lines.contains(text))
}

/// The last day on which a version is given jobs; none where the list does not reach back to it.
fn last_day(version: Version, releases: &[Release]) -> Option<String> {
    let reaches = releases.iter().any(|release| release.version <= version);
    let newer = releases.iter().filter(|release| release.version > version && reaches);
    let next = newer.filter_map(|release| release.at).min()?;
    let end = next.checked_add(JOBS_AFTER_SUCCESSOR).ok()?;
    Some(end.strftime("%Y-%m-%d").to_string())
}

fn newest(releases: &[Release]) -> Option<Version> {
    releases.iter().map(|release| release.version).max()
}

/// The message about a runner whose version GitHub refuses.
fn outdated_text(version: Option<Version>, releases: &[Release]) -> String {
    let newest = newest(releases);
    let name = version.map_or("actions/runner".to_owned(), |it| format!("actions/runner {it}"));
    if let (Some(version), Some(newest)) = (version, newest)
        && version >= newest
    {
        return format!(
            "GitHub calls its {name} too old, but no newer one is released; check \
             https://www.githubstatus.com"
        );
    }
    let day = version.and_then(|version| last_day(version, releases));
    let day = day.map(|day| format!(", to this one until {day}")).unwrap_or_default();
    let remedy = match newest {
        Some(newest) => format!("install {newest}, the newest, in the template image"),
        None => "install the newest in the template image".to_owned(),
    };
    format!(
        "its {name} is too old: GitHub gives jobs to a version for 30 days after a newer one is \
         released{day}; {remedy}"
    )
}

impl GitHub {
    /// Says that a runner is too old, by how it ended and what it logged.
    pub(super) async fn outdated_runner(&self, words: &Words) -> Option<String> {
        if !is_refused(words) {
            return None;
        }
        // Without the list the message says less.
        let releases = tokio::time::timeout(RELEASES_TIMEOUT, self.releases()).await;
        let releases = releases.ok().and_then(Result::ok).unwrap_or_default();
        Some(outdated_text(Version::logged(&words.lines), &releases))
    }

    /// Reports the newest version and which of drover's runners are older; nothing where that
    /// cannot be read.
    pub(super) async fn check_versions(&self, found: &mut Vec<Finding>) {
        let Ok(releases) = self.releases().await else { return };
        let Some(newest) = newest(&releases) else { return };
        let runs = self.versions().await.unwrap_or_default();
        let old: Vec<Version> = runs.into_iter().filter(|version| *version < newest).collect();
        if old.is_empty() {
            let text = format!(
                "the newest is {newest}; GitHub gives jobs to an older one for 30 more days"
            );
            found.push(Finding::ok("actions/runner", text));
        }
        for version in old {
            let day = last_day(version, &releases).map(|day| format!(" until {day}"));
            let day = day.unwrap_or_else(|| " for 30 days after a newer one".to_owned());
            let text = format!("a runner has {version}; GitHub gives it jobs{day}");
            let place = "in the template images";
            let remedy = Remedy::at(place, format!("install actions/runner {newest}"));
            found.push(Finding::warn("actions/runner", text, remedy));
        }
    }

    /// The released versions.
    async fn releases(&self) -> Result<Vec<Release>, DemandError> {
        let get = |path: String| async move {
            self.api.send(Purpose::Change, Method::GET, &path, None, None).await
        };
        let answer = get(RELEASES_PATH.to_owned()).await?;
        if answer.status == 200 {
            let all: Vec<Released> = answer.json()?;
            return Ok(all.iter().filter_map(Released::release).collect());
        }
        // A GitHub Enterprise Server has no such repository, and lists the version that it accepts.
        let answer = get(self.path("runners/downloads")).await?;
        let all: Vec<Offered> = answer.ok()?.json()?;
        Ok(all.iter().filter_map(Offered::release).collect())
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    fn words(code: u32, lines: &str) -> Words {
        let (life, lines) = (Life::Ended(Some(code)), lines.to_owned());
        Words { life, seconds: 3, ago: 0, lines, too_old: None }
    }

    fn release(version: &str, day: &str) -> Release {
        let at = format!("{day}T10:00:00Z").parse().ok();
        Release { version: Version::parse(version).unwrap(), at }
    }

    // Invariant: a refused runner is known by its exit status or by GitHub's own text, after which
    // older versions exit with 0.

    #[test]
    fn a_version_that_github_takes_no_more_is_known_by_its_exit_status_or_its_log() {
        let refused = "Listening for Jobs\nAn error occurred: Runner version v2.331.0 is deprecated and \
                       cannot receive messages.\nExiting runner...";
        let all = [
            (
                words(
                    7,
                    "Runner listener exit with deprecated version exit code: 7.\nExiting runner...",
                ),
                true,
            ),
            (words(0, refused), true),
            (
                words(
                    1,
                    "ERROR: Your runner version is out of date and can no longer register with \
                     GitHub.",
                ),
                true,
            ),
            (words(0, "Exiting runner..."), false),
            (words(7, "make: *** [all] Error 7"), false),
            (words(0, "Running job: v1 is deprecated and cannot receive messages"), false),
            (
                words(0, "Job can no longer register with GitHub completed with result: Failed"),
                false,
            ),
        ];
        for (words, refused) in all {
            assert_eq!(is_refused(&words), refused, "{words}");
        }
        assert_eq!(Version::logged(refused), Version::parse("2.331.0"));
        let log = "√ Connected to GitHub\n\nCurrent runner version: '2.310.2'\n";
        assert_eq!(Version::logged(log), Version::parse("v2.310.2"));
        for text in ["", "2.310", "2.310.2.1", "2.x.0"] {
            assert_eq!(Version::parse(text), None, "{text}");
        }
    }

    // Invariant: the last day of a version is 30 days after the next release, and is reported only
    // where the list reaches back to that version.

    #[test]
    fn a_version_is_reported_with_its_last_day_and_what_takes_its_place() {
        let all = [
            release("2.337.0", "2026-09-10"),
            release("2.336.0", "2026-08-01"),
            release("2.334.0", "2026-05-20"),
        ];
        let of = |version: &str, all: &[Release]| outdated_text(Version::parse(version), all);
        let rule = "GitHub gives jobs to a version for 30 days after a newer one is released";
        assert_eq!(
            of("2.334.0", &all),
            format!(
                "its actions/runner 2.334.0 is too old: {rule}, to this one until 2026-08-31; \
                 install 2.337.0, the newest, in the template image"
            )
        );
        assert_eq!(
            of("2.310.0", &all),
            format!(
                "its actions/runner 2.310.0 is too old: {rule}; install 2.337.0, the newest, in \
                 the template image"
            )
        );
        assert_eq!(
            of("", &[]),
            format!(
                "its actions/runner is too old: {rule}; install the newest in the template image"
            )
        );
        let newest = of("2.337.0", &all);
        assert!(newest.contains("2.337.0 too old, but no newer one is released"), "{newest}");
    }

    #[test]
    fn versions_are_read_from_releases_and_from_what_a_server_offers() {
        let released: Vec<Released> = serde_json::from_str(
            r#"[{"tag_name": "v2.337.0", "published_at": "2026-09-10T10:00:00Z"},
                {"tag_name": "v2.338.0", "draft": true, "published_at": null},
                {"tag_name": "v2.338.0-beta", "prerelease": true}]"#,
        )
        .unwrap();
        let all: Vec<Release> = released.iter().filter_map(Released::release).collect();
        assert_eq!(all, [release("2.337.0", "2026-09-10")]);
        for filename in
            ["actions-runner-linux-x64-2.336.0.tar.gz", "actions-runner-win-x64-2.336.0.zip"]
        {
            let found = Offered { filename: filename.to_owned() }.release().unwrap();
            assert_eq!((found.version, found.at), (Version(2, 336, 0), None));
        }
    }
}
