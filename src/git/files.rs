//! Reading files of a commit: which, how large, and their content.

use super::child::Output;
use super::commit::CommitId;
use super::error::GitError;
use super::failure::Failure;
use super::fetch::Brings;
use super::remote::Wanted;
use super::settings::{BLOBLESS, REMOTE};
use super::text::{clean, is_unsafe};
use super::tree::{Entry, Kind, entries, is_yaml};
use super::work::{ANSWER_BYTES, SHOWN, Work};

/// What a pack of files may be larger than its files, and the size of git's own small files.
const SLACK_BYTES: u64 = 1 << 20;

const LONGEST_NAME_CHARS: usize = 200;

/// A file that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitFile {
    /// Its path in the repository.
    pub path: String,
    /// Its content, which need not be text.
    pub bytes: Vec<u8>,
}

/// A file that is to be read.
struct Chosen {
    path: String,
    object: String,
}

impl Work<'_> {
    /// Reads what is at the path. A repository that is broken is fetched from scratch once, and so
    /// is one whose server does not hand out single files.
    pub(super) async fn read(&self, id: &CommitId, path: &str) -> Result<Vec<GitFile>, GitError> {
        let wanted = Wanted::Commit(id.clone());
        if self.kept(id).await.is_none() {
            self.fetch(&wanted, Brings::NoFiles).await?;
        }
        let first = match self.files(id, path).await {
            Err(Failure::Other(error @ GitError::Program { .. })) => {
                tracing::debug!(%error, "the commit is fetched from scratch");
                self.fetch_from_scratch(&wanted, Brings::NoFiles).await?;
                self.files(id, path).await
            }
            first => first,
        };
        let done = match first {
            Err(Failure::NotGiven) => {
                tracing::debug!("the server does not hand out single files: all are fetched");
                self.fetch_from_scratch(&wanted, Brings::AllFiles).await?;
                self.files(id, path).await
            }
            first => first,
        };
        done.map_err(|failure| self.plain(failure))
    }

    async fn files(&self, id: &CommitId, path: &str) -> Result<Vec<GitFile>, Failure> {
        let chosen = self.choose(id, path).await.map_err(Failure::Other)?;
        if self.sizes(&chosen).await.map_err(Failure::Other)?.is_none() {
            self.fetch_files(&chosen, path).await?;
        }
        let sizes = self.sizes(&chosen).await.map_err(Failure::Other)?;
        let limit = self.git.limits.file_bytes;
        if sizes.ok_or(Failure::NotGiven)? > limit {
            return Err(Failure::Other(too_large(path, limit)));
        }
        self.contents(chosen).await.map_err(Failure::Other)
    }

    /// The files at the path: the file itself, or the YAML files of the folder.
    async fn choose(&self, id: &CommitId, path: &str) -> Result<Vec<Chosen>, GitError> {
        let args = ["ls-tree", "-z", "--full-tree", id.as_str(), "--", path];
        let listing = self.list(&args).await?;
        let found =
            entries(&listing.stdout).into_iter().find(|entry| entry.path == path.as_bytes());
        let Some(found) = found else {
            return Err(self.missing(id, path).await?);
        };
        match found.kind {
            Kind::File => Ok(vec![Chosen { path: path.to_owned(), object: found.object }]),
            Kind::Folder => self.choose_in_folder(id, path, &found.object).await,
            Kind::Link | Kind::Submodule => Err(not_a_file(path, found.kind)),
        }
    }

    async fn choose_in_folder(
        &self,
        id: &CommitId,
        path: &str,
        folder: &str,
    ) -> Result<Vec<Chosen>, GitError> {
        let listing = self.list(&["ls-tree", "-z", "--full-tree", folder]).await?;
        if listing.cut {
            let limit = u64::try_from(ANSWER_BYTES).unwrap_or(u64::MAX);
            let what = format!("the list of files in the folder `{path}`");
            return Err(GitError::TooLarge { what, limit });
        }
        let mut chosen = Vec::new();
        for entry in entries(&listing.stdout) {
            if entry.kind == Kind::Folder || !is_yaml(&entry.path) {
                continue;
            }
            let name = format!("{path}/{}", String::from_utf8_lossy(&entry.path));
            if entry.kind != Kind::File {
                return Err(not_a_file(&name, entry.kind));
            }
            if std::str::from_utf8(&entry.path).is_err() || name.chars().any(is_unsafe) {
                let path = clean(&name, LONGEST_NAME_CHARS);
                return Err(GitError::NotAFile {
                    path,
                    what: "a file whose name is not plain text",
                });
            }
            chosen.push(Chosen { path: name, object: entry.object });
        }
        let limit = self.git.limits.files;
        if chosen.len() > limit {
            return Err(GitError::TooMany { path: path.to_owned(), files: chosen.len(), limit });
        }
        if chosen.is_empty() {
            return Err(GitError::NoYaml { commit: id.clone(), path: path.to_owned() });
        }
        chosen.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(chosen)
    }

    /// The failure for a path where nothing is: a link on the way, or what is near.
    async fn missing(&self, id: &CommitId, path: &str) -> Result<GitError, GitError> {
        let args = ["ls-tree", "-z", "-r", "-t", "--full-tree", id.as_str()];
        let listing = self.list(&args).await?;
        let all = entries(&listing.stdout);
        let is_above = |entry: &&Entry| {
            path.as_bytes().strip_prefix(entry.path.as_slice()).is_some_and(|r| r.starts_with(b"/"))
        };
        if let Some(above) = all.iter().filter(is_above).find(|entry| entry.kind != Kind::Folder) {
            return Ok(not_a_file(&String::from_utf8_lossy(&above.path), above.kind));
        }
        let (folder, name) = split(path.as_bytes());
        let files = || all.iter().filter(|entry| entry.kind == Kind::File).map(|entry| &entry.path);
        let named = files().filter(|file| split(file).1 == name);
        let beside = files().filter(|file| {
            let (its_folder, its_name) = split(file);
            its_folder == folder && its_name != name && is_yaml(its_name)
        });
        let nearest = named
            .chain(beside)
            .take(SHOWN)
            .map(|file| clean(&String::from_utf8_lossy(file), LONGEST_NAME_CHARS))
            .collect();
        Ok(GitError::NoFile { commit: id.clone(), path: path.to_owned(), nearest })
    }

    async fn list(&self, args: &[&str]) -> Result<Output, GitError> {
        self.local("list the files of the commit", args, String::new(), ANSWER_BYTES).await
    }

    /// The size of all files together; `None` where one is not in the repository yet.
    async fn sizes(&self, chosen: &[Chosen]) -> Result<Option<u64>, GitError> {
        let args = ["cat-file", "--batch-check=%(objectsize)"];
        let output =
            self.local("read the sizes of files", &args, objects(chosen), ANSWER_BYTES).await?;
        let text = String::from_utf8_lossy(&output.stdout);
        let sizes: Option<Vec<u64>> = text.lines().map(|line| line.parse().ok()).collect();
        Ok(sizes
            .filter(|sizes| sizes.len() == chosen.len())
            .map(|sizes| sizes.into_iter().fold(0, u64::saturating_add)))
    }

    /// Fetches the files in one call. git would fetch each in a call of its own.
    async fn fetch_files(&self, chosen: &[Chosen], path: &str) -> Result<(), Failure> {
        let limit = self.git.limits.file_bytes;
        let filter = format!("--filter={BLOBLESS}");
        // Without this, git says that it has the commit, and the server takes that to mean its files.
        let mut args = vec!["-c", "fetch.negotiationAlgorithm=noop", "fetch", "--quiet"];
        args.extend(["--no-tags", "--no-write-fetch-head", "--no-recurse-submodules"]);
        args.extend([filter.as_str(), "--", REMOTE]);
        args.extend(chosen.iter().map(|file| file.object.as_str()));
        let disk = self.git.limits.disk_bytes.min(limit.saturating_add(SLACK_BYTES));
        match self.remote("fetch files", &args, Brings::NoFiles, disk).await {
            Ok(_) => Ok(()),
            Err(Failure::DiskLimit) => {
                super::scratch::remove(&self.git.folder).await.map_err(Failure::Other)?;
                Err(Failure::Other(too_large(path, limit)))
            }
            Err(failure) => Err(failure),
        }
    }

    async fn contents(&self, chosen: Vec<Chosen>) -> Result<Vec<GitFile>, GitError> {
        let doing = "read files";
        let room = usize::try_from(self.git.limits.file_bytes).unwrap_or(usize::MAX);
        // Each content has a line before it.
        let room = room.saturating_add(chosen.len().saturating_mul(200));
        let output = self.local(doing, &["cat-file", "--batch"], objects(&chosen), room).await?;
        let unreadable = || GitError::Program {
            doing,
            status: output.status.to_string(),
            stderr: "the answer has other sizes than before".to_owned(),
        };
        let mut rest = output.stdout.as_slice();
        let mut files = Vec::new();
        for Chosen { path, .. } in chosen {
            let (bytes, after) = one_content(rest).ok_or_else(unreadable)?;
            files.push(GitFile { path, bytes: bytes.to_owned() });
            rest = after;
        }
        Ok(files)
    }
}

/// The first content of `git cat-file --batch`, and what follows it.
fn one_content(answer: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = answer.iter().position(|byte| *byte == b'\n')?;
    let (line, rest) = answer.split_at_checked(end)?;
    let size = std::str::from_utf8(line).ok()?.rsplit_once(' ')?.1.parse().ok()?;
    let (bytes, rest) = rest.get(1..)?.split_at_checked(size)?;
    Some((bytes, rest.strip_prefix(b"\n")?))
}

fn objects(chosen: &[Chosen]) -> String {
    chosen.iter().flat_map(|file| [file.object.as_str(), "\n"]).collect()
}

/// The folder and the name of a path; the folder ends with `/` where there is one.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    path.split_at(path.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1))
}

fn not_a_file(path: &str, kind: Kind) -> GitError {
    GitError::NotAFile { path: clean(path, LONGEST_NAME_CHARS), what: kind.refusal() }
}

fn too_large(path: &str, limit: u64) -> GitError {
    GitError::TooLarge { what: format!("the content of `{path}`"), limit }
}
