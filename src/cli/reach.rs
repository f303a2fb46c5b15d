//! `drover ssh` and `drover cp`: the system's `ssh` and `scp` on the machine of an agent.
//!
//! The way in is the key of a lease of the caller's that is kept on this machine (`kept.rs`), else that of
//! a hold, which drover ends by destroying the agent; so a hold is made only where it is asked for.

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use drover_api::{AgentOut, HoldIn, HoldOut, LeaseOut, SshOut};
use drover_model::phase::{AgentPhase, LeasePhase, LoginPhase};
use serde_json::json;

use super::client::{CALL_LIMIT, Client, path};
use super::error::{CallError, CliError, failed, usage};
use super::identity::Identity;
use super::ids;
use super::kept;
use super::options::{CpOptions, SshOptions};
use super::sentences::clean;
use super::term::Term;

/// The pause between two looks at an agent that is to be held.
const LOOK: Duration = Duration::from_secs(1);
/// How often to look: a free agent is held within seconds.
const LOOKS: u32 = 30;
/// How long one try to connect to a held agent takes at most.
const LOGIN_LIMIT: Duration = Duration::from_secs(5);

/// How to log in to a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Way {
    ssh: SshOut,
    /// Options of `ssh` and `scp`.
    options: Vec<String>,
}

/// Logs in, or runs a command there, in the place of this process.
pub(super) async fn ssh(
    client: &Client,
    options: &SshOptions,
    json: bool,
    term: &mut Term<'_>,
) -> Result<u8, CliError> {
    let hold = options.hold.then_some(options.span);
    let way = way(client, &options.target, hold, json, term).await?;
    Err(become_program("ssh", &ssh_words(&way, &options.command)))
}

/// Copies, in the place of this process.
pub(super) async fn cp(
    client: &Client,
    options: &CpOptions,
    json: bool,
    term: &mut Term<'_>,
) -> Result<u8, CliError> {
    let (target, direction) = match (remote(&options.source), remote(&options.target)) {
        (Some((target, path)), None) => (target, Direction::From(path, &options.target)),
        (None, Some((target, path))) => (target, Direction::To(&options.source, path)),
        (Some(_), Some(_)) => {
            let text = "both are on a machine: copy from the one to here first, then to the other";
            return Err(usage(text));
        }
        (None, None) => {
            return Err(usage(
                "name the agent in SRC or in DST, such as `drover cp log.txt AGENT:/tmp/`",
            ));
        }
    };
    if let Direction::To(from, _) = direction {
        // Before an agent is held for it; `scp` ends with 255, as where the connection broke.
        let looked = std::fs::metadata(from);
        looked.map_err(|fault| failed(format!("cannot read `{}`: {fault}", clean(from))))?;
    }
    let target = ids::target(client, target).await?;
    let hold = options.hold.then_some(options.span);
    let way = way(client, &target, hold, json, term).await?;
    Err(become_program("scp", &scp_words(&way, direction, options.recursive)))
}

/// Finds the way in to an agent, or to that of a lease.
pub(super) async fn way(
    client: &Client,
    target: &str,
    hold: Option<Duration>,
    json: bool,
    term: &mut Term<'_>,
) -> Result<Way, CliError> {
    let directory = kept::key_dir();
    kept::sweep(client, &directory).await;
    let lease_of = async |id: &str| -> Result<LeaseOut, CliError> {
        Ok(client.get(&path("leases", id, ""), CALL_LIMIT).await?)
    };
    let shown = clean(target);
    if target.starts_with("lease-") {
        let lease = lease_of(target).await?;
        let Some(ssh) = lease.ssh.clone() else { return Err(failed(no_login(&lease))) };
        return match kept::options_of(&directory, target) {
            Some(options) => Ok(Way { ssh, options }),
            None => Err(failed(format!(
                "the key of lease `{shown}` is not kept on this machine; log in with the key that the \
                 lease was taken with: ssh -i KEYFILE -p {} {}@{}",
                ssh.port,
                clean(&ssh.user),
                clean(&ssh.host)
            ))),
        };
    }
    let agent: AgentOut = client.get(&path("agents", target, ""), CALL_LIMIT).await?;
    for lease in &agent.leases {
        if let Some(options) = kept::options_of(&directory, lease)
            && let Some(ssh) = lease_of(lease).await?.ssh
        {
            return Ok(Way { ssh, options });
        }
    }
    if let Some(way) = held(&directory, &agent)? {
        return Ok(way);
    }
    match hold {
        Some(span) => hold_it(client, &directory, &agent, span, json, term).await,
        None => Err(failed(no_key(&agent))),
    }
}

/// Why a lease has no login for this caller. Those whose lease it is see for whom it is, others do not.
fn no_login(lease: &LeaseOut) -> String {
    let id = clean(&lease.id);
    let why = |text: &str| format!("lease `{id}` {text}");
    match lease.state {
        LeasePhase::Ended => why(&format!("ended: {}", clean(&lease.detail))),
        LeasePhase::Waiting | LeasePhase::Granted | LeasePhase::Ready if lease.owner.is_empty() => {
            why(&format!("is of {}, not yours", clean(&lease.principal)))
        }
        LeasePhase::Waiting => why(&format!("is still waiting: `drover why {id}`")),
        LeasePhase::Granted => {
            why(&format!("has an agent that is not ready yet: `drover show lease {id}`"))
        }
        LeasePhase::Ready => {
            why(&format!("has an agent without a login: `drover show lease {id}`"))
        }
    }
}

/// That no key for an agent is kept here, and what lets in all the same. Who sees the login of an agent
/// may hold it; the login of one with a lease of somebody else is hidden from all but admins.
fn no_key(agent: &AgentOut) -> String {
    let id = clean(&agent.id);
    let hold =
        format!("`drover ssh {id} --hold`; drover destroys the agent at the end of the hold");
    if agent.leases.is_empty() || agent.ssh.is_some() {
        return format!(
            "no lease of yours on agent `{id}` is kept on this machine. To log in all the same, hold it: \
             {hold}"
        );
    }
    format!(
        "agent `{id}` has a lease of somebody else. Only the role admin may hold it to log in: {hold}"
    )
}

/// The way in to an agent that is held with a key of this machine.
fn held(directory: &Path, agent: &AgentOut) -> Result<Option<Way>, CliError> {
    let Some(ssh) = agent.ssh.as_ref().filter(|_| agent.state == AgentPhase::Held) else {
        return Ok(None);
    };
    let options = kept::options_of_hold(directory, &agent.id, ssh)?;
    Ok(options.map(|options| Way { ssh: ssh.clone(), options }))
}

/// Holds an agent, and waits until it is held.
async fn hold_it(
    client: &Client,
    directory: &Path,
    agent: &AgentOut,
    span: Duration,
    json: bool,
    term: &mut Term<'_>,
) -> Result<Way, CliError> {
    let identity = Identity::fresh()?;
    kept::keep_hold(directory, &agent.id, &identity, span)?;
    let ssh_public_key = Some(identity.key.public_line(""));
    let command = HoldIn { seconds: Some(span.as_secs()), ssh_public_key };
    let asked = client.post(&path("agents", &agent.id, "/hold"), &command, CALL_LIMIT).await;
    if let Err(fault @ CallError::Refused(_)) = &asked
        && !fault.is_passing()
    {
        kept::forget_hold(directory, &agent.id);
    }
    let out: HoldOut = asked?;
    let id = clean(&out.agent);
    let text = format!(
        "agent {id} is held for {} s from the moment it is free, then destroyed; end that before: \
         drover release-hold {id}",
        out.seconds
    );
    term.progress(json, &text, json!({ "agent": out.agent, "seconds": out.seconds }))?;
    let _step = term.live.step(&format!("waiting until agent {id} is free"));
    for _ in 0..LOOKS {
        let agent: AgentOut = client.get(&path("agents", &agent.id, ""), CALL_LIMIT).await?;
        if agent.login == Some(LoginPhase::Closed) {
            return Err(failed(format!("agent `{id}` is held: {}", clean(&agent.detail))));
        }
        // It is held a moment before its key is in the guest.
        if let Some(way) = held(directory, &agent)?
            && is_open(&agent, &way).await
        {
            return Ok(way);
        }
        tokio::time::sleep(LOOK).await;
    }
    Err(CliError::Waited(format!(
        "agent `{id}` is not free yet, or lets nobody in yet: `drover ssh {id}` tries again, \
         `drover show agent {id}` says which"
    )))
}

/// Whether a held agent lets in the one who has the key of its hold.
async fn is_open(agent: &AgentOut, way: &Way) -> bool {
    match agent.login {
        Some(login) => login == LoginPhase::Open,
        // An older service does not say it.
        None => lets_in(way).await,
    }
}

/// Whether a login works now.
async fn lets_in(way: &Way) -> bool {
    let wait = format!("ConnectTimeout={}", LOGIN_LIMIT.as_secs());
    let mut words = vec!["-o".to_owned(), "BatchMode=yes".to_owned(), "-o".to_owned(), wait];
    words.extend(ssh_words(way, &["exit 0".to_owned()]));
    let mut command = tokio::process::Command::new("ssh");
    command.args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.kill_on_drop(true);
    let ended = tokio::time::timeout(LOGIN_LIMIT * 2, command.status()).await;
    // Without the program, its absence is reported where it is needed.
    ended.is_ok_and(|ended| ended.map_or(true, |status| status.success()))
}

/// A path on a machine: the agent or lease, and the path there.
fn remote(word: &str) -> Option<(&str, &str)> {
    let (target, path) = word.split_once(':')?;
    (!target.is_empty() && !target.contains('/')).then_some((target, path))
}

/// Which way files go: from a path, to a path.
enum Direction<'a> {
    From(&'a str, &'a str),
    To(&'a str, &'a str),
}

/// The arguments of `ssh`.
pub(super) fn ssh_words(way: &Way, command: &[String]) -> Vec<String> {
    let Way { ssh, options } = way;
    let mut words = options.clone();
    let login = format!("{}@{}", ssh.user, ssh.host);
    // Nothing that follows is an option, whatever it begins with.
    words.extend(["-p".to_owned(), ssh.port.to_string(), "--".to_owned(), login]);
    match command {
        [] => {}
        [one] => words.push(one.clone()),
        several => words.push(drover_ssh::join(several)),
    }
    words
}

/// The arguments of `scp`.
fn scp_words(way: &Way, direction: Direction<'_>, recursive: bool) -> Vec<String> {
    let Way { ssh, options } = way;
    let mut words = options.clone();
    if recursive {
        words.push("-r".to_owned());
    }
    words.extend(["-P".to_owned(), ssh.port.to_string(), "--".to_owned()]);
    let host = if ssh.host.contains(':') { format!("[{}]", ssh.host) } else { ssh.host.clone() };
    let there = |path: &str| format!("{}@{host}:{path}", ssh.user);
    // A colon in the name of a file here would make it a host.
    let here = |path: &str| match path.contains(':') && !path.starts_with('/') {
        true => format!("./{path}"),
        false => path.to_owned(),
    };
    words.extend(match direction {
        Direction::From(path, to) => [there(path), here(to)],
        Direction::To(from, path) => [here(from), there(path)],
    });
    words
}

/// Runs a program in the place of this process; gives why it could not.
pub(super) fn become_program(program: &str, words: &[String]) -> CliError {
    let fault = Command::new(program).args(words).exec();
    failed(format!(
        "cannot run `{program}`: {fault}; install OpenSSH's client (Debian: openssh-client), or run a \
         command without it: drover lease --template NAME -- CMD"
    ))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

    use drover_server::testing::Served;

    use super::super::global::Global;
    use super::*;

    fn way(host: &str) -> Way {
        let ssh = SshOut {
            host: host.into(),
            port: 2222,
            user: "ubuntu".into(),
            host_key: None,
            host_keys: Vec::new(),
        };
        Way { ssh, options: vec!["-i".into(), "/run/key".into()] }
    }

    fn spelled(words: &[String]) -> String {
        words.join(" ")
    }

    // Invariant: who cannot log in reads the cause, and the command that helps.

    #[test]
    fn a_lease_without_a_login_says_which_of_its_states_is_the_cause() {
        let of = |state: &str, owner: &str| {
            let lease = json!({
                "id": "lease-7ab1c2d3", "state": state, "agent": null, "owner": owner,
                "principal": "token:alice", "expiresAt": null, "detail": "released", "ssh": null,
            });
            no_login(&serde_json::from_value(lease).unwrap())
        };
        let mut text = String::new();
        for state in ["waiting", "granted", "ready", "ended"] {
            for owner in ["token:alice", ""] {
                text += &format!("{}\n", of(state, owner));
            }
        }
        insta::assert_snapshot!(text);
    }

    #[test]
    fn an_agent_with_a_lease_of_somebody_else_is_held_by_admins_alone() {
        let of = |leases: &[&str], is_shown: bool| {
            let ssh = json!({
                "host": "10.0.0.7", "port": 22, "user": "ci", "hostKey": null, "hostKeys": [],
            });
            let agent = json!({
                "id": "4f8z1c3p", "template": "lab/linux", "state": "Ready", "leases": leases,
                "since": "2026-11-21T08:00:00Z", "vmid": null, "node": null, "uses": 1, "detail": "",
                "ssh": is_shown.then_some(ssh), "phases": [],
            });
            no_key(&serde_json::from_value(agent).unwrap())
        };
        let all = [of(&[], false), of(&["lease-7ab1"], true), of(&["lease-7ab1"], false)];
        insta::assert_snapshot!(all.join("\n"));
    }

    // Invariant: a key is kept only for a hold that may be there.

    #[tokio::test]
    async fn a_refused_hold_leaves_no_key_behind() {
        let served = Served::default();
        let directory = served.directory.path().join("keys");
        let global = Global { socket: Some(served.socket.clone()), ..Global::default() };
        let client = Client::new(&global).unwrap();
        let agent = json!({
            "id": "nobody1c3p", "template": "lab/linux", "state": "Ready", "leases": [], "vmid": null,
            "since": "2026-11-21T08:00:00Z", "node": null, "uses": 1, "detail": "", "ssh": null,
            "phases": [],
        });
        let agent: AgentOut = serde_json::from_value(agent).unwrap();
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut term = Term::new(&mut out, &mut err);
        let span = Duration::from_secs(60);
        let held = hold_it(&client, &directory, &agent, span, false, &mut term).await;
        assert!(held.is_err(), "no such agent is there to be held");
        assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 0);
        served.stop().await;
    }

    // Invariant: a command reaches the machine as it was typed, and no name becomes an option or a host.

    #[test]
    fn several_words_are_quoted_for_the_shell_there_and_one_is_not() {
        let words = ["echo".to_owned(), "a b".to_owned()];
        let of = |command: &[String]| spelled(&ssh_words(&way("10.0.0.7"), command));
        assert_eq!(of(&[]), "-i /run/key -p 2222 -- ubuntu@10.0.0.7");
        assert_eq!(of(&words), "-i /run/key -p 2222 -- ubuntu@10.0.0.7 echo 'a b'");
        let one = ["make all && make test".to_owned()];
        assert_eq!(of(&one), "-i /run/key -p 2222 -- ubuntu@10.0.0.7 make all && make test");
    }

    #[test]
    fn files_go_either_way_and_a_colon_here_is_no_host() {
        let to = Direction::To("a:b.txt", "/tmp/");
        let from = Direction::From("log", ".");
        assert_eq!(
            spelled(&scp_words(&way("fd00::7"), to, true)),
            "-i /run/key -r -P 2222 -- ./a:b.txt ubuntu@[fd00::7]:/tmp/"
        );
        assert_eq!(
            spelled(&scp_words(&way("10.0.0.7"), from, false)),
            "-i /run/key -P 2222 -- ubuntu@10.0.0.7:log ."
        );
    }

    #[test]
    fn a_path_on_a_machine_has_its_agent_before_the_first_colon() {
        assert_eq!(remote("4f8z1c3p:/var/log/a:b"), Some(("4f8z1c3p", "/var/log/a:b")));
        assert_eq!(remote("4f8z1c3p:"), Some(("4f8z1c3p", "")));
        for here in ["log.txt", "./a:b", "/a:b", ":x"] {
            assert_eq!(remote(here), None, "{here}");
        }
    }
}
