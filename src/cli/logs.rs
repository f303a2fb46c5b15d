//! `drover logs AGENT|LEASE`: what drover did with an agent; with `--guest` what its cloud-init logged.

use drover_api::{AgentsOut, LeaseOut, PhaseOut};
use drover_model::phase::LeasePhase;

use super::client::{CALL_LIMIT, Client, path};
use super::error::{CliError, failed};
use super::events;
use super::ids;
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
    let LogsOptions { target, follow, guest } = options;
    if *guest {
        let way = way(client, target, None, json, term).await?;
        return Err(become_program("ssh", &ssh_words(&way, &[guest_command(*follow)])));
    }
    let agent = &match target.starts_with(ids::LEASE) {
        true => agent_of(&client.get(&path("leases", target, ""), CALL_LIMIT).await?)?,
        false => target.clone(),
    };
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

/// The agent of a lease.
fn agent_of(lease: &LeaseOut) -> Result<String, CliError> {
    let id = clean(&lease.id);
    match (&lease.agent, lease.state) {
        (Some(agent), _) => Ok(agent.clone()),
        (None, LeasePhase::Ended) => {
            Err(failed(format!("lease `{id}` ended without an agent: {}", clean(&lease.detail))))
        }
        (None, LeasePhase::Waiting | LeasePhase::Granted | LeasePhase::Ready) => Err(failed(
            format!("lease `{id}` has no agent yet: `drover why {id}` says what it waits for"),
        )),
    }
}

/// A part of a life in words, where its name alone says too little.
pub(super) fn part(name: &str) -> String {
    match name {
        "Earlier" => "before the last start of drover".to_owned(),
        _ => name.to_owned(),
    }
}

/// The parts of a life, each with its length.
fn history(phases: &[PhaseOut]) -> String {
    let line = |one: &PhaseOut| {
        format!("{:8.1} s  {}\n", one.ms as f64 / 1000.0, clean(&part(&one.state)))
    };
    phases.iter().map(line).collect()
}

/// Prints the log of cloud-init in a guest.
fn guest_command(follow: bool) -> String {
    let tail = format!("tail -n +1 {}{GUEST_LOG}", if follow { "-f " } else { "" });
    format!("if [ -r {GUEST_LOG} ]; then {tail}; else sudo -n {tail}; fi")
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

    use serde_json::json;

    use super::*;

    // Invariant: a lease stands for its agent, and one without an agent says why it has none.

    #[test]
    fn a_lease_leads_to_its_agent_or_says_why_it_has_none() {
        let of = |state: &str, agent: Option<&str>| {
            let lease = json!({
                "id": "lease-7ab1c2d3", "state": state, "agent": agent, "owner": "",
                "principal": "token:alice", "expiresAt": null, "detail": "released", "ssh": null,
            });
            let lease: LeaseOut = serde_json::from_value(lease).unwrap();
            agent_of(&lease).map_err(|fault| fault.to_string())
        };
        for state in ["granted", "ready", "ended"] {
            assert_eq!(of(state, Some("4f8z1c3p")).as_deref(), Ok("4f8z1c3p"), "{state}");
        }
        let said = ["waiting", "ended"].map(|state| of(state, None).unwrap_err());
        insta::assert_snapshot!(said.join("\n"));
    }

    #[test]
    fn the_time_before_a_restart_is_called_that() {
        let phases = r#"[{"state": "Earlier", "ms": 22500}, {"state": "Ready", "ms": 1000}]"#;
        let phases: Vec<PhaseOut> = serde_json::from_str(phases).unwrap();
        insta::assert_snapshot!(history(&phases));
    }

    // Invariant: the log of a guest is read with no more rights than it needs.

    #[test]
    fn the_log_of_a_guest_is_read_as_root_only_where_it_must_be() {
        insta::assert_snapshot!([guest_command(false), guest_command(true)].join("\n"));
    }
}
