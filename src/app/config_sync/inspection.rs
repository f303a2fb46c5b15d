//! A test of the connection to the repository: repository, branch, file and configuration apart.

use drover_api::{SyncCheckOut, SyncTestOut};
use drover_config::ConfigSyncSpec;
use drover_git::{GitError, Wanted};

use super::error::SyncError;
use super::reader::Reader;

/// What is tested, in this order.
const PARTS: [&str; 4] = ["repository", "branch", "file", "configuration"];

impl Reader {
    /// Tests what a sync needs, up to the first part that is not well; changes nothing in force.
    pub(super) async fn inspect(&self, spec: &ConfigSyncSpec) -> SyncTestOut {
        let mut well = Vec::new();
        let fault = self.inspected(spec, &mut well).await.err();
        let failed = well.len();
        let checks = PARTS.iter().enumerate().map(|(at, part)| {
            let (ok, text) = match (well.get(at), &fault) {
                (Some(text), _) => (Some(true), text.clone()),
                (None, Some(error)) if at == failed => (Some(false), error.text()),
                (None, _) => (None, "not tried".to_owned()),
            };
            SyncCheckOut { part: (*part).to_owned(), ok, text }
        });
        SyncTestOut { checks: checks.collect() }
    }

    /// What was found of each part that is well.
    async fn inspected(
        &self,
        spec: &ConfigSyncSpec,
        well: &mut Vec<String>,
    ) -> Result<(), SyncError> {
        let git = self.git(spec);
        let head = match git.head(&spec.remote).await {
            Err(error @ (GitError::NoBranch { .. } | GitError::BranchName(_))) => {
                well.push(format!("{} answers", spec.remote.url));
                return Err(SyncError::Git(error));
            }
            answer => answer.map_err(SyncError::Git)?,
        };
        well.push(format!("{} answers", spec.remote.url));
        well.push(format!("`{}` is at commit {}", spec.remote.branch, head.short()));
        let commit = git.fetch(&spec.remote, &Wanted::Head).await.map_err(SyncError::Git)?;
        let files = git.read(&spec.remote, &commit.id, &spec.path).await.map_err(SyncError::Git)?;
        let names: Vec<&str> = files.iter().map(|file| &*file.path).collect();
        well.push(format!("found {}", names.join(", ")));
        let draft = self.drafted(&git, spec, &commit.id).await?;
        let of = self.described(&commit, spec);
        self.checked(draft, of, &git, spec).await?;
        well.push("has no fault".to_owned());
        Ok(())
    }
}
