//! Ids by their starts: the beginning of an id is enough wherever one agent, lease or build has it.
//!
//! The service takes whole ids alone, so that its API says one thing. Which id is meant, the lists say.

use drover_api::{AgentsOut, ImageBuildsOut};

use super::client::{CALL_LIMIT, Client};
use super::error::{CliError, usage};
use super::leases;
use super::options::{AgentAction, Command, ImageAction, LeaseAction, MachineAction};
use super::sentences::clean;

/// The fewest characters that stand for an id.
pub(super) const LEAST: usize = 4;
/// What ids of leases begin with.
const LEASE: &str = "lease-";
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
}

/// Puts whole ids in the place of their starts.
pub(super) async fn complete(client: &Client, command: &mut Command) -> Result<(), CliError> {
    for (kind, word) in words(command) {
        let whole = match kind {
            Kind::Agent => agent(client, word).await?,
            Kind::Lease => lease(client, word).await?,
            Kind::Build => build(client, word).await?,
            Kind::Target => target(client, word).await?,
        };
        *word = whole;
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
        return vec![(Kind::Agent, &mut options.agent)];
    }
    if let Command::Ssh(options) = command {
        return vec![(Kind::Target, &mut options.target)];
    }
    if let Command::Image(ImageAction::Cancel { build }) = command {
        return vec![(Kind::Build, build)];
    }
    if let Command::Machine(action) = command {
        return MachineAction::target(action)
            .map(|word| (Kind::Target, word))
            .into_iter()
            .collect();
    }
    Vec::new()
}

/// The id of an agent.
pub(super) async fn agent(client: &Client, word: &str) -> Result<String, CliError> {
    let ids = if is_start(word) { agents(client).await } else { Vec::new() };
    whole("agent", "drover agents", word, &ids)
}

/// The id of a lease.
pub(super) async fn lease(client: &Client, word: &str) -> Result<String, CliError> {
    let ids = if is_start(word) { leases(client).await } else { Vec::new() };
    whole("lease", "drover leases", word, &ids)
}

async fn build(client: &Client, word: &str) -> Result<String, CliError> {
    let mut ids = Vec::new();
    if is_start(word) {
        let found = client.get::<ImageBuildsOut>("/v1/images/builds", CALL_LIMIT).await;
        ids.extend(found.into_iter().flat_map(|out| out.builds).map(|one| one.build));
    }
    whole("build", "drover image list", word, &ids)
}

/// The id of an agent or of a lease.
pub(super) async fn target(client: &Client, word: &str) -> Result<String, CliError> {
    if word.starts_with(LEASE) {
        return lease(client, word).await;
    }
    let mut ids = Vec::new();
    if is_start(word) {
        ids = agents(client).await;
        ids.extend(leases(client).await);
    }
    whole("agent or lease", "drover agents", word, &ids)
}

/// Whether a word is long enough to stand for an id; one that is too short goes to the service as it is.
fn is_start(word: &str) -> bool {
    word.strip_prefix(LEASE).unwrap_or(word).chars().count() >= LEAST
}

// A list that is refused leaves the word as it is: the command itself says why.

async fn agents(client: &Client) -> Vec<String> {
    let Ok(out) = client.get::<AgentsOut>("/v1/agents", CALL_LIMIT).await else {
        return Vec::new();
    };
    let gone = out.gone.into_iter().map(|gone| gone.id);
    out.agents.into_iter().map(|agent| agent.id).chain(gone).collect()
}

async fn leases(client: &Client) -> Vec<String> {
    let all = leases::all(client, None, None).await.unwrap_or_default();
    all.into_iter().map(|lease| lease.id).collect()
}

/// The id that a word is the start of; the word itself where none is.
fn whole(kind: &str, list: &str, word: &str, ids: &[String]) -> Result<String, CliError> {
    if ids.iter().any(|id| id == word) {
        return Ok(word.to_owned());
    }
    let starts = |id: &&String| {
        id.starts_with(word) || id.strip_prefix(LEASE).is_some_and(|id| id.starts_with(word))
    };
    let mut found: Vec<&str> = ids.iter().filter(starts).map(String::as_str).collect();
    found.sort_unstable();
    found.dedup();
    match found[..] {
        [] => Ok(word.to_owned()),
        [one] => Ok(one.to_owned()),
        [..] => {
            let more = found.len().saturating_sub(NAMED);
            let mut named = found[..found.len() - more].join(", ");
            if more > 0 {
                named += &format!(" and {more} more");
            }
            let (word, named) = (clean(word), clean(&named));
            Err(usage(format!(
                "`{word}` begins more than one {kind}: {named}; give more characters of the id \
                 (`{list}` lists them)"
            )))
        }
    }
}

#[cfg(test)]
mod tests {
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
    fn three_characters_are_too_few() {
        assert!(is_start("4f8z") && is_start("lease-7ab1"));
        assert!(!is_start("4f8") && !is_start("lease-7ab") && !is_start("lease-"));
    }
}
