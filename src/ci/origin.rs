//! What a job is a part of at its source, read of its answers with care: people and traces alone see it, so
//! nothing of it may keep a job from being read.

use drover_model::ports::JobOrigin;
use reqwest::Url;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};

/// The longest text that is kept, in bytes.
const TEXT_BYTES_MAX: usize = 1024;
/// What stands between the addresses of a repository and a run in it, at Gitea, Forgejo and GitHub.
const RUNS: &str = "/actions/runs/";
/// What stands behind the address of a project at GitLab.
const BEHIND_PROJECT: &str = "/-/";

/// Reads a value of the expected form, and takes any other for none.
pub(crate) fn loose<'de, D: Deserializer<'de>, T: DeserializeOwned + Default>(
    from: D,
) -> Result<T, D::Error> {
    let value = serde_json::Value::deserialize(from)?;
    Ok(serde_json::from_value(value).unwrap_or_default())
}

/// The address of a page: of the web, without a login, and not endless.
pub(crate) fn web(text: Option<String>) -> Option<String> {
    let url: Url = text.filter(|text| text.len() <= TEXT_BYTES_MAX)?.parse().ok()?;
    let is_plain = url.username().is_empty() && url.password().is_none();
    (matches!(url.scheme(), "http" | "https") && is_plain).then(|| url.to_string())
}

fn name(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.is_empty() && text.len() <= TEXT_BYTES_MAX)
}

/// What is known; none where nothing is.
pub(crate) fn known(origin: JobOrigin) -> Option<Box<JobOrigin>> {
    (origin != JobOrigin::default()).then(|| Box::new(origin))
}

/// A job of Gitea, Forgejo or GitHub, beside what it wants.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ForgeJob {
    #[serde(default, deserialize_with = "loose", skip_serializing_if = "Option::is_none")]
    html_url: Option<String>,
    #[serde(default, deserialize_with = "loose", skip_serializing_if = "Option::is_none")]
    run_id: Option<u64>,
    #[serde(default, deserialize_with = "loose", skip_serializing_if = "Option::is_none")]
    workflow_name: Option<String>,
    #[serde(default, deserialize_with = "loose", skip_serializing_if = "Option::is_none")]
    head_branch: Option<String>,
    #[serde(default, deserialize_with = "loose", skip_serializing_if = "Option::is_none")]
    head_sha: Option<String>,
}

impl ForgeJob {
    pub(crate) fn origin(self) -> Option<Box<JobOrigin>> {
        let url = web(self.html_url);
        let parts = url.as_deref().and_then(|url| url.split_once(RUNS));
        let run_url = parts.and_then(|(repository, run)| {
            let run = run.split(['/', '?', '#']).next().filter(|run| !run.is_empty())?;
            Some(format!("{repository}{RUNS}{run}"))
        });
        known(JobOrigin {
            run: self.run_id.map(|run| run.to_string()),
            run_url,
            pipeline: name(self.workflow_name),
            repository: parts.map(|(repository, _)| repository.to_owned()),
            branch: name(self.head_branch),
            revision: name(self.head_sha),
            url,
        })
    }
}

/// A job of GitLab, beside what it wants.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct GitLabJob {
    #[serde(default, deserialize_with = "loose")]
    web_url: Option<String>,
    #[serde(default, rename = "ref", deserialize_with = "loose")]
    branch: Option<String>,
    #[serde(default, deserialize_with = "loose")]
    pipeline: GitLabPipeline,
}

#[derive(Debug, Default, Deserialize)]
struct GitLabPipeline {
    #[serde(default)]
    id: Option<u64>,
    #[serde(default)]
    sha: Option<String>,
    #[serde(default)]
    web_url: Option<String>,
}

impl GitLabJob {
    pub(crate) fn origin(self) -> Option<Box<JobOrigin>> {
        let GitLabPipeline { id, sha, web_url } = self.pipeline;
        let url = web(self.web_url);
        let project = url.as_deref().and_then(|url| url.split_once(BEHIND_PROJECT));
        known(JobOrigin {
            run: id.map(|run| run.to_string()),
            run_url: web(web_url),
            pipeline: None,
            repository: project.map(|(project, _)| project.to_owned()),
            branch: name(self.branch),
            revision: name(sha),
            url,
        })
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn forge(job: Value) -> Option<Box<JobOrigin>> {
        serde_json::from_value::<ForgeJob>(job).unwrap().origin()
    }

    // Invariant: what a job is a part of is read where its source says it, and nothing odd in it keeps the job
    // from being read.

    #[test]
    fn a_job_of_a_forge_says_its_run_and_its_repository() {
        let origin = forge(json!({
            "html_url": "https://git.lan/team/app/actions/runs/12/jobs/0", "run_id": 40,
            "workflow_name": "build", "head_branch": "main", "head_sha": "9d5",
        }));
        let text = |text: &str| Some(text.to_owned());
        let expected = JobOrigin {
            url: text("https://git.lan/team/app/actions/runs/12/jobs/0"),
            run: text("40"),
            run_url: text("https://git.lan/team/app/actions/runs/12"),
            pipeline: text("build"),
            repository: text("https://git.lan/team/app"),
            branch: text("main"),
            revision: text("9d5"),
        };
        assert_eq!(origin.as_deref(), Some(&expected));
    }

    #[test]
    fn a_job_of_gitlab_says_its_pipeline_and_its_project() {
        let job: GitLabJob = serde_json::from_value(json!({
            "web_url": "https://gitlab.lan/team/app/-/jobs/7", "ref": "main",
            "pipeline": { "id": 3, "sha": "9d5", "web_url": "https://gitlab.lan/team/app/-/pipelines/3" },
        }))
        .unwrap();
        let origin = job.origin().unwrap();
        assert_eq!(origin.repository.as_deref(), Some("https://gitlab.lan/team/app"));
        assert_eq!(origin.run.as_deref(), Some("3"));
        assert_eq!(origin.run_url.as_deref(), Some("https://gitlab.lan/team/app/-/pipelines/3"));
    }

    #[test]
    fn what_is_odd_or_missing_is_left_out() {
        assert_eq!(forge(json!({})), None);
        assert_eq!(
            forge(json!({ "html_url": 5, "run_id": "x", "head_branch": null, "head_sha": [] })),
            None
        );
        for url in ["javascript:alert(1)", "https://user:secret@git.lan/x", "no address"] {
            assert_eq!(forge(json!({ "html_url": url })), None, "{url}");
        }
        let long = format!("https://git.lan/{}", "x".repeat(TEXT_BYTES_MAX));
        assert_eq!(forge(json!({ "html_url": long })), None);
    }
}
