//! Checks the repository of `service.configSync`: whether it answers, and has the branch and the file.
//! Changes nothing, and keeps nothing of it. What its files say is checked by `drover sync --test`,
//! since the service alone knows with what they come into force.

use causes::chain;
use drover_ci::{Remedy, Severity};
use drover_config::ConfigSyncSpec;
use drover_git::{Git, GitError, Limits, Wanted};

use super::report::{Line, RepositoryReport};

/// What is looked at, in this order.
const PARTS: [&str; 3] = ["repository", "branch", "file"];

pub async fn check_repository(spec: &ConfigSyncSpec) -> RepositoryReport {
    let mut found = Vec::new();
    let fault = look(spec, &mut found).await.err();
    let well = found.into_iter().map(|text| (Severity::Ok, text, Vec::new()));
    let ill = fault.map(|(text, remedy)| (Severity::Fail, text, vec![remedy]));
    let lines = PARTS.into_iter().zip(well.chain(ill));
    let lines = lines.map(|(about, (severity, text, remedies))| Line {
        severity,
        about: about.to_owned(),
        text,
        remedies,
    });
    RepositoryReport { url: spec.remote.url.to_string(), lines: lines.collect() }
}

/// What was found of each part, up to the first that is not well.
async fn look(spec: &ConfigSyncSpec, found: &mut Vec<String>) -> Result<(), (String, Remedy)> {
    let failed = |error: GitError| {
        (chain(&error), Remedy::at("in `service.configSync` or at the repository", error.help()))
    };
    let scratch = tempfile::tempdir().map_err(|error| {
        let remedy = Remedy::at("on this machine", "make room in the folder for temporary files");
        (format!("there is no folder for git: {error}"), remedy)
    })?;
    let limits = Limits { time: spec.timeout, ..Limits::default() };
    let git = Git::at(scratch.path().to_owned(), limits);
    let head = git.head(&spec.remote).await;
    if matches!(head, Ok(_) | Err(GitError::NoBranch { .. } | GitError::BranchName(_))) {
        found.push(format!("{} answers", spec.remote.url));
    }
    let head = head.map_err(failed)?;
    found.push(format!("`{}` is at commit {}", spec.remote.branch, head.short()));
    let commit = git.fetch(&spec.remote, &Wanted::Head).await.map_err(failed)?;
    let files = git.read(&spec.remote, &commit.id, &spec.path).await.map_err(failed)?;
    let names: Vec<&str> = files.iter().map(|file| &*file.path).collect();
    found.push(format!("found {}", names.join(", ")));
    Ok(())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

    use std::fs;
    use std::path::Path;
    use std::process::Command;
    use std::time::Duration;

    use drover_git::{Login, Remote};

    use super::*;
    use crate::doctor::Report;

    fn git(folder: &Path, args: &[&str]) {
        let mut git = Command::new("git");
        git.current_dir(folder).env("GIT_CONFIG_GLOBAL", "/dev/null");
        git.args(["-c", "user.name=Ann", "-c", "user.email=ann@example.com"]).args(args);
        assert!(git.output().unwrap().status.success(), "{args:?}");
    }

    fn spec(folder: &Path, branch: &str, path: &str) -> ConfigSyncSpec {
        ConfigSyncSpec {
            remote: Remote {
                url: folder.to_str().unwrap().parse().unwrap(),
                branch: branch.to_owned(),
                login: Login::None,
                ca_file: None,
                known_hosts: None,
            },
            path: path.to_owned(),
            schedule: None,
            time_zone: "UTC".to_owned(),
            allows_changes: true,
            timeout: Duration::from_secs(60),
        }
    }

    // Invariant: each part is reported by itself, up to the first that is not well, with what to do.

    #[tokio::test]
    async fn repository_branch_and_file_are_reported_apart() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("repo");
        fs::create_dir(&folder).unwrap();
        git(&folder, &["init", "-q", "-b", "main"]);
        fs::write(folder.join("ci.yaml"), "cloudConfigurations: {}\n").unwrap();
        git(&folder, &["add", "-A"]);
        git(&folder, &["commit", "-q", "-m", "Begin"]);
        let marks = async |branch, path, at: &Path| {
            let report = check_repository(&spec(at, branch, path)).await;
            report.lines.iter().map(|line| (line.about.clone(), line.severity)).collect::<Vec<_>>()
        };
        let part = |at: usize, severity| (PARTS[at].to_owned(), severity);
        let (ok, fail) = (Severity::Ok, Severity::Fail);
        assert_eq!(
            marks("main", "ci.yaml", &folder).await,
            [part(0, ok), part(1, ok), part(2, ok)]
        );
        assert_eq!(
            marks("main", "x.yaml", &folder).await,
            [part(0, ok), part(1, ok), part(2, fail)]
        );
        assert_eq!(marks("trunk", "ci.yaml", &folder).await, [part(0, ok), part(1, fail)]);
        assert_eq!(marks("main", "ci.yaml", &dir.path().join("x")).await, [part(0, fail)]);
    }

    #[tokio::test]
    async fn the_report_says_where_to_look() {
        let dir = tempfile::tempdir().unwrap();
        git(dir.path(), &["init", "-q", "-b", "main"]);
        let url = dir.path().to_str().unwrap();
        let repository = Some(check_repository(&spec(dir.path(), "main", "ci.yaml")).await);
        let report = Report { repository, ..Report::default() };
        assert!(!report.is_well());
        insta::assert_snapshot!(report.text().replace(url, "/srv/ci"), @r"
        configuration from /srv/ci
          ok    repository: /srv/ci answers
          fail  branch: the repository /srv/ci has no branch `main`; it has no branches at all
                in `service.configSync` or at the repository:
                > push the branch, or set one that is there
        1 ok, 0 warn, 1 fail
        ");
    }
}
