//! `drover logs AGENT`: what drover did with an agent; with `--guest` what its cloud-init logged.

use drover_api::{AgentsOut, PhaseOut};

use super::client::{CALL_LIMIT, Client};
use super::error::{CliError, failed};
use super::events;
use super::options::{EventsOptions, LogsOptions};
use super::reach::{become_program, ssh_words, way};
use super::sentences::clean;
use super::term::Term;

/// Where cloud-init writes what its steps print. Users often may not read it themselves.
const GUEST_LOG: &str = "/var/log/cloud-init-output.log";

/// Prints the phases of an agent so far, and its events.
pub(super) async fn logs(
    client: &Client,
    options: &LogsOptions,
    json: bool,
    term: &mut Term<'_>,
) -> Result<u8, CliError> {
    let LogsOptions { agent, follow, guest } = options;
    if *guest {
        let way = way(client, agent, None, json, term).await?;
        return Err(become_program("ssh", &ssh_words(&way, &[guest_command(*follow)])));
    }
    let out: AgentsOut = client.get("/v1/agents", CALL_LIMIT).await?;
    let living = out.agents.iter().find(|one| one.id == *agent);
    let gone = out.gone.iter().rev().find(|one| one.id == *agent);
    let (phases, last) = match (living, gone) {
        (Some(one), _) => {
            (&one.phases, format!("{} since {}: {}", one.state, one.since, one.detail))
        }
        (None, Some(one)) => (&one.phases, format!("gone at {}: {}", one.gone_at, one.detail)),
        (None, None) => {
            return Err(failed(format!(
                "unknown agent `{}`; `drover agents --gone` lists agents, those that went too",
                clean(agent)
            )));
        }
    };
    let is_gone = living.is_none();
    if !json {
        write!(term.out, "{}", history(phases))?;
    }
    let kept = EventsOptions { no_follow: is_gone || !follow, ..EventsOptions::default() };
    // All that are kept, whether or not others follow.
    let kept = EventsOptions { after: Some(events::oldest()), ..kept };
    events::follow(client, &kept, Some(agent), json, term).await?;
    if !json && (is_gone || !follow) {
        writeln!(term.out, "{}", clean(last.trim_end_matches([':', ' '])))?;
    }
    Ok(0)
}

/// The parts of a life, each with its length.
fn history(phases: &[PhaseOut]) -> String {
    let line =
        |one: &PhaseOut| format!("{:8.1} s  {}\n", one.ms as f64 / 1000.0, clean(&one.state));
    phases.iter().map(line).collect()
}

/// Prints the log of cloud-init in a guest.
fn guest_command(follow: bool) -> String {
    let tail = format!("tail -n +1 {}{GUEST_LOG}", if follow { "-f " } else { "" });
    format!("if [ -r {GUEST_LOG} ]; then {tail}; else sudo -n {tail}; fi")
}

#[cfg(test)]
mod tests {
    use super::*;

    // Invariant: the log of a guest is read with no more rights than it needs.

    #[test]
    fn the_log_of_a_guest_is_read_as_root_only_where_it_must_be() {
        insta::assert_snapshot!([guest_command(false), guest_command(true)].join("\n"));
    }
}
