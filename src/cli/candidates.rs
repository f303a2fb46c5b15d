//! `drover __candidates WORDS`: the ids and names that may stand behind these words of a command line.
//!
//! The scripts of `completions.rs` ask it at every TAB. It is no command of the tree, so that no help and
//! no script shows it. It asks the service and waits for 2 s at most. Where the service does not answer,
//! or refuses, it prints nothing and ends with 0: a shell has no place for an error there.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Arg, ArgAction, Args as _, CommandFactory as _, FromArgMatches as _, ValueEnum as _};
use drover_api::{AgentsOut, CloudsOut, JobsOut, NodesOut, StatusOut, TemplatesOut};
use drover_model::phase::LeasePhase;

use super::client::Client;
use super::global::Global;
use super::leases;
use super::options::{Cli, Noun};

/// The word that asks for candidates.
pub(super) const WORD: &str = "__candidates";
/// How long a shell waits for candidates at most.
const LIMIT: Duration = Duration::from_secs(2);
/// The most candidates that are printed.
const MOST: usize = 1000;
/// The longest candidate, in bytes.
const LONGEST: usize = 200;

/// The words that candidates are asked for, where this process is asked for any.
pub(super) fn asked() -> Option<Vec<String>> {
    let mut words = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    (words.next()? == WORD).then(|| words.collect())
}

/// Prints what may stand behind these words, one a line.
pub(super) fn print(words: &[String]) -> ExitCode {
    let found = wanted(words).and_then(|(nouns, global)| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
        let client = Client::new(&global).ok().filter(Client::is_certain)?;
        runtime
            .block_on(async { tokio::time::timeout(LIMIT, candidates(&client, &nouns)).await.ok() })
    });
    let lines: String =
        found.into_iter().flatten().take(MOST).map(|word| format!("{word}\n")).collect();
    // A shell that is gone wants nothing.
    let _ = std::io::stdout().write_all(lines.as_bytes());
    ExitCode::SUCCESS
}

/// The kinds of things that the next word names, and the options of all commands among the words.
fn wanted(words: &[String]) -> Option<(Vec<Noun>, Global)> {
    let mut root = Cli::command();
    root.build();
    let mut line = Line::of(&root);
    for word in words.iter().skip(1) {
        line.take(word)?;
    }
    let parser = Global::augment_args(clap::Command::new("drover"));
    let matches = parser.try_get_matches_from(&line.of_all).ok()?;
    Some((line.next()?, Global::from_arg_matches(&matches).ok()?))
}

/// What stands before the cursor.
struct Line<'a> {
    command: &'a clap::Command,
    /// The words that are no commands and no options.
    given: Vec<&'a str>,
    /// The program and those options that all commands have.
    of_all: Vec<String>,
    /// The option whose value comes next.
    open: Option<&'a Arg>,
}

impl<'a> Line<'a> {
    fn of(root: &'a clap::Command) -> Self {
        let of_all = vec![root.get_name().to_owned()];
        Self { command: root, given: Vec::new(), of_all, open: None }
    }

    /// Takes a word; none where nothing of drover's stands behind it.
    fn take(&mut self, word: &'a str) -> Option<()> {
        // Bash has the sign of `--cloud=lab` as a word.
        if word == "=" {
            return Some(());
        }
        if let Some(arg) = self.open.take() {
            self.of_all.extend(of_all(arg, word));
        } else if word == "--" {
            return None;
        } else if let Some(option) = word.strip_prefix('-') {
            self.option(option);
        } else if let Some(below) = self.below(word) {
            self.command = below;
        } else {
            self.given.push(word);
        }
        Some(())
    }

    fn below(&self, word: &str) -> Option<&'a clap::Command> {
        self.command.find_subcommand(word).filter(|_| self.given.is_empty())
    }

    /// Takes an option, without its first dash.
    fn option(&mut self, option: &str) {
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (option, None),
        };
        let is_it = |arg: &&Arg| match name.strip_prefix('-') {
            Some(long) => arg.get_long() == Some(long),
            None => arg.get_short().is_some_and(|short| name == short.to_string()),
        };
        let arg = self.command.get_arguments().find(is_it);
        let Some(arg) = arg.filter(|arg| arg.get_action().takes_values()) else { return };
        match value {
            Some(value) => self.of_all.extend(of_all(arg, value)),
            None => self.open = Some(arg),
        }
    }

    /// The kinds of things that may stand at the cursor; none where the command takes no more.
    fn next(&self) -> Option<Vec<Noun>> {
        let several = |arg: &&Arg| matches!(arg.get_action(), ArgAction::Append);
        let next = self.command.get_positionals().nth(self.given.len());
        let next = next.or_else(|| self.command.get_positionals().last().filter(several));
        let next = self.open.or(next)?;
        Some(nouns(self.command.get_name(), next.get_id().as_str(), &self.given))
    }
}

/// An option that all commands have, as it is given.
fn of_all(arg: &Arg, value: &str) -> Option<String> {
    let long = arg.get_long().filter(|_| arg.is_global_set())?;
    Some(format!("--{long}={value}"))
}

/// The kinds of things that an argument names.
fn nouns(command: &str, arg: &str, given: &[&str]) -> Vec<Noun> {
    match (command, arg) {
        // Both are paths.
        ("cp", _) => Vec::new(),
        ("show" | "get", "id") => {
            let noun = given.first().and_then(|word| Noun::from_str(word, false).ok());
            noun.into_iter().collect()
        }
        ("why", "of") => {
            vec![Noun::Template, Noun::Source, Noun::Agent, Noun::Lease, Noun::Job, Noun::Node]
        }
        (_, "agent") => vec![Noun::Agent],
        (_, "lease" | "leases") => vec![Noun::Lease],
        (_, "target") => vec![Noun::Agent, Noun::Lease],
        (_, "template") => vec![Noun::Template],
        (_, "node") => vec![Noun::Node],
        (_, "cloud") => vec![Noun::Cloud],
        (_, _) => Vec::new(),
    }
}

/// The names of all things of these kinds that the service shows to this caller.
async fn candidates(client: &Client, nouns: &[Noun]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for noun in nouns {
        found.extend(named(client, *noun).await.unwrap_or_default());
    }
    found.retain(|word| is_plain(word));
    found
}

async fn named(client: &Client, noun: Noun) -> Option<Vec<String>> {
    Some(match noun {
        Noun::Agent => {
            let out: AgentsOut = client.get("/v1/agents", LIMIT).await.ok()?;
            out.agents.into_iter().map(|one| one.id).collect()
        }
        Noun::Lease => {
            let all = leases::all(client, None, None).await.ok()?;
            let open = all.into_iter().filter(|one| one.state != LeasePhase::Ended);
            open.map(|one| one.id).collect()
        }
        Noun::Template => {
            let out: TemplatesOut = client.get("/v1/templates", LIMIT).await.ok()?;
            short(out.templates.into_iter().map(|one| one.id).collect())
        }
        Noun::Cloud => {
            let out: CloudsOut = client.get("/v1/clouds", LIMIT).await.ok()?;
            out.clouds.into_iter().map(|one| one.id).collect()
        }
        Noun::Node => {
            let out: NodesOut = client.get("/v1/nodes", LIMIT).await.ok()?;
            out.nodes.into_iter().map(|one| one.node).collect()
        }
        Noun::Source => {
            let out: StatusOut = client.get("/v1/status", LIMIT).await.ok()?;
            out.sources.into_iter().map(|one| one.id).collect()
        }
        Noun::Job => {
            let out: JobsOut = client.get("/v1/jobs", LIMIT).await.ok()?;
            out.jobs.into_iter().map(|one| format!("{}/{}", one.source, one.id)).collect()
        }
        Noun::Alarm | Noun::Image | Noun::Machine | Noun::Breaker | Noun::AddressPool => Vec::new(),
    })
}

/// The bare name of each template, and `cloud/template` where several clouds have one of that name.
fn short(ids: Vec<String>) -> Vec<String> {
    let bare = |id: &str| id.rsplit('/').next().unwrap_or(id).to_owned();
    let names: Vec<String> = ids.iter().map(|id| bare(id)).collect();
    let is_only = |name: &String| names.iter().filter(|other| *other == name).count() == 1;
    let each = ids.iter().zip(&names);
    each.map(|(id, name)| if is_only(name) { name.clone() } else { id.clone() }).collect()
}

/// Whether a shell takes a word as it is: bash expands what it completes.
fn is_plain(word: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./@+".contains(c);
    !word.is_empty() && word.len() <= LONGEST && !word.starts_with('-') && word.chars().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Option<(Vec<Noun>, Global)> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        wanted(&words)
    }

    // Invariant: what may stand at the cursor is what the command takes there, and nothing a shell runs.

    #[test]
    fn the_words_before_the_cursor_say_which_kind_of_thing_comes_next() {
        let agent_or_lease = vec![Noun::Agent, Noun::Lease];
        for (line, nouns) in [
            ("drover retire", vec![Noun::Agent]),
            ("drover --json agents set", vec![Noun::Agent]),
            ("drover lease release lease-1 lease-2", vec![Noun::Lease]),
            ("drover release", vec![Noun::Lease]),
            ("drover ssh", agent_or_lease.clone()),
            ("drover machine show", agent_or_lease),
            ("drover lease --template", vec![Noun::Template]),
            ("drover lease --template =", vec![Noun::Template]),
            ("drover provision --count 2", vec![Noun::Template]),
            ("drover cordon", vec![Noun::Node]),
            ("drover cordon pve1 --cloud", vec![Noun::Cloud]),
            ("drover cluster confirm", vec![Noun::Cloud]),
            ("drover show source", vec![Noun::Source]),
            ("drover get leases", vec![Noun::Lease]),
        ] {
            assert_eq!(of(line).map(|(nouns, _)| nouns), Some(nouns), "{line}");
        }
        assert!(of("drover why").is_some_and(|(nouns, _)| nouns.contains(&Noun::Job)));
        for line in
            ["drover", "drover retire 4f8z", "drover lease --template linux --", "drover cp"]
        {
            let nouns = of(line).map(|(nouns, _)| nouns).unwrap_or_default();
            assert!(nouns.is_empty(), "{line}: {nouns:?}");
        }
    }

    #[test]
    fn the_service_that_the_words_name_is_asked() {
        for line in ["drover --socket /run/x retire", "drover retire --socket=/run/x"] {
            let socket = of(line).and_then(|(_, global)| global.socket);
            assert_eq!(socket.as_deref(), Some(std::path::Path::new("/run/x")), "{line}");
        }
    }

    #[test]
    fn a_word_that_a_shell_would_expand_is_no_candidate() {
        for word in ["4f8z1c3p", "lease-7ab1", "lab/linux", "git.example.com", "a@b"] {
            assert!(is_plain(word), "{word}");
        }
        for word in ["", "-rf", "$(id)", "`id`", "a b", "a;b", "~root", "a*", "a\nb", "a'b", "ü"] {
            assert!(!is_plain(word), "{word}");
        }
        assert!(!is_plain(&"x".repeat(LONGEST + 1)));
    }

    #[test]
    fn a_template_has_its_cloud_before_it_where_several_clouds_have_one() {
        let ids = ["lab/linux", "rack/linux", "lab/windows"].map(str::to_owned).to_vec();
        assert_eq!(short(ids), ["lab/linux", "rack/linux", "windows"]);
    }
}
