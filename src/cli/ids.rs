//! Ids by their starts: the beginning of an id is enough wherever one agent, lease, build or job has it.
//!
//! The service takes whole ids alone, so that its API says one thing. Which id is meant, the lists say.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use drover_api::{AgentsOut, ImageBuildsOut, JobsOut, StatusOut};

use super::client::{CALL_LIMIT, Client};
use super::error::{CliError, usage};
use super::leases;
use super::options::{AgentAction, Command, ImageAction, LeaseAction, MachineAction};
use super::sentences::clean;

/// The fewest characters that stand for an id.
const LEAST: usize = 4;
/// What ids of leases begin with.
pub(super) const LEASE: &str = "lease-";
/// How many ids are named where several begin alike.
const NAMED: usize = 5;

/// Which ids a word may start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Agent,
    Lease,
    Build,
    /// An agent, or a lease on it.
    Target,
    /// What `why` is asked about: an agent, a lease, a job, or the name of anything.
    Subject,
}

/// Puts whole ids in the place of their starts.
pub(super) async fn complete(client: &Client, command: &mut Command) -> Result<(), CliError> {
    let mut lists = Lists::default();
    for (kind, word) in words(command) {
        *word = lists.whole(client, kind, word).await?;
    }
    Ok(())
}

/// The words of a command that are ids.
fn words(command: &mut Command) -> Vec<(Kind, &mut String)> {
    if let Command::Retire { agent }
    | Command::ReleaseHold { agent }
    | Command::Agents { action: Some(AgentAction::Set { agent, .. }), .. } = command
    {
        return vec![(Kind::Agent, agent)];
    }
    if let Command::Release { leases }
    | Command::Lease { action: Some(LeaseAction::Release { leases }), .. } = command
    {
        return leases.iter_mut().map(|lease| (Kind::Lease, lease)).collect();
    }
    if let Command::Lease { action: Some(LeaseAction::Renew { lease, .. }), .. } = command {
        return vec![(Kind::Lease, lease)];
    }
    if let Command::Hold(options) = command {
        return vec![(Kind::Agent, &mut options.agent)];
    }
    if let Command::Logs(options) = command {
        return vec![(Kind::Target, &mut options.target)];
    }
    if let Command::Ssh(options) = command {
        return vec![(Kind::Target, &mut options.target)];
    }
    if let Command::Why { of: Some(of), .. } = command {
        // Most words are names, which may be short.
        return if is_start(of) { vec![(Kind::Subject, of)] } else { Vec::new() };
    }
    if let Command::Image(ImageAction::Cancel { build }) = command {
        return vec![(Kind::Build, build)];
    }
    if let Command::Machine(action) = command {
        // A declared machine has a name, which may be short.
        return MachineAction::target(action)
            .filter(|word| is_start(word))
            .map(|word| (Kind::Target, word))
            .into_iter()
            .collect();
    }
    Vec::new()
}

/// The id of an agent or of a lease.
pub(super) async fn target(client: &Client, word: &str) -> Result<String, CliError> {
    Lists::default().whole(client, Kind::Target, word).await
}

/// A list of the service whose entries have ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum List {
    Agents,
    Leases,
    Builds,
    Jobs,
}

impl Kind {
    /// The lists that have such ids, what they are ids of, and the command that lists them.
    fn lists(self, word: &str) -> (&'static [List], &'static str, &'static str) {
        match self {
            Self::Agent => (&[List::Agents], "agent", "drover agents"),
            Self::Lease => (&[List::Leases], "lease", "drover leases"),
            Self::Target if word.starts_with(LEASE) => Self::Lease.lists(word),
            Self::Build => (&[List::Builds], "build", "drover image list"),
            Self::Target => (&[List::Agents, List::Leases], "agent or lease", "drover agents"),
            Self::Subject => {
                let all = &[List::Agents, List::Leases, List::Jobs];
                (all, "agent, lease or job", "drover jobs")
            }
        }
    }
}

/// What the service lists, each list read once and when it is first needed.
#[derive(Default)]
struct Lists(BTreeMap<List, Known>);

/// What a list has.
#[derive(Debug, Clone, Default)]
struct Known {
    ids: Vec<String>,
    /// Names of other things that it mentions, such as nodes: a word that is one of them is no start.
    names: Vec<String>,
    /// Whether it could not be read to its end: then no id in it is the only one.
    cut: bool,
}

impl Known {
    fn and(mut self, other: &Self) -> Self {
        self.ids.extend_from_slice(&other.ids);
        self.names.extend_from_slice(&other.names);
        self.cut |= other.cut;
        self
    }

    fn whole(&self, kind: &str, list: &str, word: &str) -> Result<String, CliError> {
        // A list that is refused leaves the word as it is: the command itself says why.
        let is_name = self.names.iter().any(|name| name == word);
        if self.cut || is_name { Ok(word.to_owned()) } else { whole(kind, list, word, &self.ids) }
    }
}

impl Lists {
    async fn whole(&mut self, client: &Client, kind: Kind, word: &str) -> Result<String, CliError> {
        let (lists, kind, command) = kind.lists(word);
        let mut known = Known::default();
        for list in lists {
            known = known.and(self.read(client, *list).await);
        }
        known.whole(kind, command, word)
    }

    async fn read(&mut self, client: &Client, list: List) -> &Known {
        match self.0.entry(list) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => {
                let cut = |_| Known { cut: true, ..Known::default() };
                place.insert(list.read(client).await.unwrap_or_else(cut))
            }
        }
    }
}

impl List {
    async fn read(self, client: &Client) -> Result<Known, CliError> {
        let mut known = Known::default();
        match self {
            Self::Agents => {
                let out: AgentsOut = client.get("/v1/agents", CALL_LIMIT).await?;
                known.names.extend(out.agents.iter().filter_map(|agent| agent.node.clone()));
                known.ids.extend(out.agents.into_iter().map(|agent| agent.id));
                known.ids.extend(out.gone.into_iter().map(|gone| gone.id));
            }
            Self::Leases => {
                let all = leases::all(client, None, None).await?;
                known.ids.extend(all.into_iter().map(|lease| lease.id));
            }
            Self::Builds => {
                let out: ImageBuildsOut = client.get("/v1/images/builds", CALL_LIMIT).await?;
                known.ids.extend(out.builds.into_iter().map(|one| one.build));
            }
            Self::Jobs => {
                let out: JobsOut = client.get("/v1/jobs", CALL_LIMIT).await?;
                known = known_jobs(out, client.get("/v1/status", CALL_LIMIT).await?);
            }
        }
        Ok(known)
    }
}

/// Jobs by `source/id`, with the names of jobs, templates and sources.
fn known_jobs(out: JobsOut, status: StatusOut) -> Known {
    let mut known = Known::default();
    for job in out.jobs {
        known.ids.push(format!("{}/{}", job.source, job.id));
        known.names.push(job.id);
        known.names.extend(job.name);
    }
    for one in status.templates {
        known.names.extend(one.id.rsplit('/').next().map(str::to_owned));
        known.names.push(one.id);
    }
    known.names.extend(status.sources.into_iter().map(|one| one.id));
    known.names.push("leases".to_owned());
    known
}

/// Whether a word is long enough to stand for an id.
pub(super) fn is_start(word: &str) -> bool {
    word.strip_prefix(LEASE).unwrap_or(word).chars().count() >= LEAST
}

/// Several ids in words: the first of them, and how many more there are.
pub(super) fn listed<T: AsRef<str>>(ids: &[T]) -> String {
    let more = ids.len().saturating_sub(NAMED);
    let named: Vec<&str> = ids.iter().take(NAMED).map(AsRef::as_ref).collect();
    let named = clean(&named.join(", "));
    if more > 0 { format!("{named} and {more} more") } else { named }
}

/// The id that a word is the start of; the word itself where none is. An id counts from its beginning,
/// and from behind its `lease-` or the source of its job.
///
/// # Errors
/// Several ids begin so, or the word is too short to stand for one that does.
pub(super) fn whole(
    kind: &str,
    list: &str,
    word: &str,
    ids: &[String],
) -> Result<String, CliError> {
    if word.is_empty() || ids.iter().any(|id| id == word) {
        return Ok(word.to_owned());
    }
    let own = |id: &str| {
        let behind = id.strip_prefix(LEASE).or_else(|| Some(id.split_once('/')?.1));
        behind.is_some_and(|id| id.starts_with(word))
    };
    let starts = |id: &&String| id.starts_with(word) || own(id);
    let mut found: Vec<&str> = ids.iter().filter(starts).map(String::as_str).collect();
    found.sort_unstable();
    found.dedup();
    match found[..] {
        [] => Ok(word.to_owned()),
        // A few characters are too easily those of another one.
        [..] if !is_start(word) => Err(usage(format!(
            "`{}` is too short for the start of an id ({kind}): give at least {LEAST} characters \
             (`{list}` lists them)",
            clean(word)
        ))),
        [one] => Ok(one.to_owned()),
        [..] => {
            let (word, named) = (clean(word), listed(&found));
            Err(usage(format!(
                "`{word}` begins more than one {kind}: {named}; give more characters of the id \
                 (`{list}` lists them)"
            )))
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    // Invariant: a start stands for the one id that has it, and never for one of several.

    #[test]
    fn the_start_of_an_id_stands_for_the_only_one_that_has_it() {
        let ids = ["4f8z1c3p", "4f8z9999", "lease-7ab1c2d3", "lease-7ab1ffff"].map(str::to_owned);
        let of = |word: &str| {
            whole("agent", "drover agents", word, &ids).map_err(|fault| fault.to_string())
        };
        assert_eq!(of("4f8z1").as_deref(), Ok("4f8z1c3p"));
        assert_eq!(of("4f8z9999").as_deref(), Ok("4f8z9999"), "a whole id");
        assert_eq!(
            of("7ab1c").as_deref(),
            Ok("lease-7ab1c2d3"),
            "without what all leases begin with"
        );
        assert_eq!(of("lease-7ab1f").as_deref(), Ok("lease-7ab1ffff"));
        assert_eq!(of("nothing").as_deref(), Ok("nothing"), "the service says that it knows none");
        insta::assert_snapshot!(of("4f8z").unwrap_or_else(|fault| fault));
    }

    #[test]
    fn an_id_that_begins_another_is_not_mistaken_for_it() {
        let ids = ["abcd", "abcde"].map(str::to_owned);
        assert_eq!(whole("agent", "", "abcd", &ids).ok().as_deref(), Some("abcd"));
    }

    #[test]
    fn a_list_that_is_cut_makes_no_id_the_only_one() {
        let ids = vec!["4f8z1c3p".to_owned()];
        let read = Known { ids: ids.clone(), ..Known::default() };
        let cut = Known { ids, cut: true, ..Known::default() };
        let of = |known: &Known| known.whole("agent", "drover agents", "4f8z").ok();
        assert_eq!(of(&read).as_deref(), Some("4f8z1c3p"));
        assert_eq!(of(&cut).as_deref(), Some("4f8z"));
        assert_eq!(of(&read.and(&cut)).as_deref(), Some("4f8z"), "another list has the rest");
    }

    #[test]
    fn a_name_of_something_is_no_start_of_an_id() {
        let jobs = r#"{"jobs": [{"source": "git", "id": "linux-7788", "name": "linux", "state": "waiting"}],
            "silent": []}"#;
        let jobs: JobsOut = serde_json::from_str(jobs).unwrap();
        let all = jobs.jobs.iter().map(|job| format!("{}/{}", job.source, job.id)).collect();
        let known = Known { ids: all, names: vec!["linux".to_owned()], cut: false };
        let of = |word: &str| known.whole("job", "drover jobs", word).ok();
        assert_eq!(of("linux").as_deref(), Some("linux"));
        assert_eq!(of("linux-7").as_deref(), Some("git/linux-7788"));
        assert_eq!(of("git/linux-7").as_deref(), Some("git/linux-7788"));
    }

    #[test]
    fn three_characters_are_too_few_and_the_refusal_says_how_many_are_enough() {
        assert!(is_start("4f8z") && is_start("lease-7ab1"));
        assert!(!is_start("4f8") && !is_start("lease-7ab") && !is_start("lease-"));
        let ids = ["4f8z1c3p", "lease-7ab1c2d3", "a1"].map(str::to_owned);
        let of = |word: &str| {
            whole("agent", "drover agents", word, &ids).map_err(|fault| fault.to_string())
        };
        for short in ["4f", "7a", "lease-7ab", "a"] {
            let said = of(short).unwrap_err();
            assert!(said.contains("at least 4 characters"), "{said}");
        }
        assert_eq!(of("a1").as_deref(), Ok("a1"), "a whole id, however short");
        assert_eq!(of("zz").as_deref(), Ok("zz"), "the service says that it knows none");
        insta::assert_snapshot!(of("4f").unwrap_err());
    }

    #[test]
    fn of_many_ids_five_are_named() {
        assert_eq!(listed(&["a", "b"]), "a, b");
        assert_eq!(listed(&["a", "b", "c", "d", "e"]), "a, b, c, d, e");
        assert_eq!(listed(&["a", "b", "c", "d", "e", "f", "g"]), "a, b, c, d, e and 2 more");
    }
}
