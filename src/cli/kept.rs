//! Keys of leases that are kept: their files, which stay no longer than the leases do.
//!
//! Each lease without a command has a key, the host keys of its machine, and the place of the service
//! that it is of. The files' time of modification is the lease's end, so that any later command knows
//! which ones nobody can use any more, also where no service answers.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use causes::chain;
use drover_api::{LeaseOut, SshOut, StatusOut};
use drover_ssh::quote;
use jiff::Timestamp;
use rustix::process::geteuid;
use secrecy::ExposeSecret as _;

use super::client::{Client, path};
use super::error::{CallError, CliError};
use super::identity::Identity;
use drover_model::phase::LeasePhase;

const KEY: &str = "key";
const HOSTS: &str = "hosts";
const PLACE: &str = "place";
/// What the names of a lease's files end with.
const ENDS: [&str; 3] = [KEY, HOSTS, PLACE];
/// How long a service may take to answer about one lease.
const LOOK_LIMIT: Duration = Duration::from_secs(5);
/// About how many leases one command asks; others are forgotten by their ends.
const LOOKS_MAX: usize = 16;
/// How long the files stay of a lease whose end the service does not report.
const UNTOLD_END: Duration = Duration::from_secs(24 * 60 * 60);
/// How long the files stay after the last known end where no service says that the lease is over: it
/// may have been renewed, and it lasts longer by the time that its service was down.
const UNASKED_REST: Duration = Duration::from_secs(24 * 60 * 60);

/// Where the files go: a folder in the user's own run-time directory, else one of the user's in the
/// system's directory for temporary files.
pub(super) fn key_dir() -> PathBuf {
    let own = std::env::var_os("XDG_RUNTIME_DIR").filter(|directory| !directory.is_empty());
    match own {
        Some(directory) => PathBuf::from(directory).join("drover"),
        None => std::env::temp_dir().join(format!("drover-{}", geteuid().as_raw())),
    }
}

/// Keeps what is needed to log in to a lease later, and gives the command for it.
pub(super) fn keep(
    directory: &Path,
    client: &Client,
    lease: &LeaseOut,
    ssh: &SshOut,
    identity: &Identity,
) -> Result<String, CliError> {
    // Names come from the service; none may lead out of the directory.
    if !is_id(&lease.id) {
        return Err(CliError::Failed(format!("`{}` is no lease id", lease.id)));
    }
    let until = end_of(lease);
    let write = |end: &str, text: &str| {
        let file = file_of(directory, &lease.id, end);
        write_private(&file, text, until).map(|()| file)
    };
    if identity.file.is_none() || !ssh.host_keys.is_empty() {
        prepare(directory)?;
        write(PLACE, &place_of(client))?;
    }
    let mut command = vec!["ssh".to_owned()];
    let key_path = match &identity.file {
        Some(path) => path.clone(),
        None => {
            let text = identity.key.to_openssh();
            let text = text.map_err(|fault| CliError::Failed(chain(&fault)))?;
            write(KEY, text.expose_secret())?
        }
    };
    command.extend(["-i".to_owned(), quote(&key_path.display().to_string())]);
    if !ssh.host_keys.is_empty() {
        // Its address may be another one after a reboot or a revert; its keys stay.
        let name = format!("drover-{}", lease.id);
        let lines: String = ssh.host_keys.iter().map(|key| format!("{name} {key}\n")).collect();
        let hosts = quote(&write(HOSTS, &lines)?.display().to_string());
        command.push(format!(
            "-o UserKnownHostsFile={hosts} -o HostKeyAlias={name} -o StrictHostKeyChecking=yes"
        ));
    }
    command.push(format!("-p {} {}@{}", ssh.port, ssh.user, ssh.host));
    Ok(command.join(" "))
}

/// The options of `ssh` and `scp` for a lease whose files are kept here.
pub(super) fn options_of(directory: &Path, lease: &str) -> Option<Vec<String>> {
    if !is_id(lease) || !is_own(directory) || !file_of(directory, lease, PLACE).exists() {
        return None;
    }
    let (key, hosts) = (file_of(directory, lease, KEY), file_of(directory, lease, HOSTS));
    let mut options = Vec::new();
    if key.exists() {
        options.extend(["-i".to_owned(), key.display().to_string()]);
    }
    if hosts.exists() {
        options.extend(pinned(&hosts, &format!("drover-{lease}")));
    }
    Some(options)
}

/// The options by which `ssh` takes the host keys of a file and no others.
fn pinned(hosts: &Path, name: &str) -> [String; 6] {
    let option = || "-o".to_owned();
    let file = format!("UserKnownHostsFile={}", hosts.display());
    let checked = "StrictHostKeyChecking=yes".to_owned();
    [option(), file, option(), format!("HostKeyAlias={name}"), option(), checked]
}

/// Keeps the key of a hold until its end.
pub(super) fn keep_hold(
    directory: &Path,
    agent: &str,
    identity: &Identity,
    span: Duration,
) -> Result<(), CliError> {
    if !is_id(agent) {
        return Err(CliError::Failed(format!("`{agent}` is no agent id")));
    }
    prepare(directory)?;
    let text = identity.key.to_openssh().map_err(|fault| CliError::Failed(chain(&fault)))?;
    let file = hold_file(directory, agent, KEY);
    // Of an earlier hold of the same agent.
    let _ = fs::remove_file(&file);
    write_private(&file, text.expose_secret(), SystemTime::now() + span + UNASKED_REST)
}

/// Removes what [`keep_hold`] wrote of a hold that was refused.
pub(super) fn forget_hold(directory: &Path, agent: &str) {
    if is_id(agent) {
        // Without it there is nothing that lets anybody in.
        let _ = fs::remove_file(hold_file(directory, agent, KEY));
    }
}

/// The options of `ssh` and `scp` for an agent that is held with a key that is kept here.
pub(super) fn options_of_hold(
    directory: &Path,
    agent: &str,
    ssh: &SshOut,
) -> Result<Option<Vec<String>>, CliError> {
    let key = hold_file(directory, agent, KEY);
    if !is_id(agent) || !is_own(directory) || !key.exists() {
        return Ok(None);
    }
    let mut options = vec!["-i".to_owned(), key.display().to_string()];
    if !ssh.host_keys.is_empty() {
        let name = format!("drover-{agent}");
        let lines: String = ssh.host_keys.iter().map(|key| format!("{name} {key}\n")).collect();
        let hosts = hold_file(directory, agent, HOSTS);
        // Another boot may have made other keys.
        let _ = fs::remove_file(&hosts);
        write_private(&hosts, &lines, SystemTime::now() + UNASKED_REST)?;
        options.extend(pinned(&hosts, &name));
    }
    Ok(Some(options))
}

fn hold_file(directory: &Path, agent: &str, end: &str) -> PathBuf {
    directory.join(format!("hold-{agent}.{end}"))
}

/// Removes the files of holds that are long over.
fn sweep_holds(directory: &Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let until = entry.metadata().and_then(|meta| meta.modified());
        let is_hold = entry.file_name().to_str().is_some_and(|name| name.starts_with("hold-"));
        if is_hold && until.is_ok_and(|until| until < SystemTime::now()) {
            // The next command tries again.
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Notes the new end of a lease that was renewed.
pub(super) fn renewed(directory: &Path, lease: &LeaseOut) {
    if is_id(&lease.id) && is_own(directory) {
        note_end(directory, &lease.id, end_of(lease));
    }
}

/// Removes what [`keep`] wrote.
pub(super) fn forget(directory: &Path, lease: &str) {
    if is_id(lease) {
        for end in ENDS {
            // Most leases have none.
            let _ = fs::remove_file(file_of(directory, lease, end));
        }
    }
}

/// Removes the files of leases that are over: those that their service says have ended or does not
/// know, and, where it is not the one of this command or does not answer, those whose end is long past.
pub(super) async fn sweep(client: &Client, directory: &Path) {
    let all = if is_own(directory) { kept(directory) } else { Vec::new() };
    if is_own(directory) {
        sweep_holds(directory);
    }
    if all.is_empty() {
        return;
    }
    // One that has only just started may not know its leases yet.
    let status = client.get::<StatusOut>("/v1/status", LOOK_LIMIT).await;
    let asked = place_of(client);
    let mut looks = if status.is_ok_and(|status| status.ready) { LOOKS_MAX } else { 0 };
    for (until, lease) in all {
        let past = SystemTime::now().duration_since(until);
        let mut over = past.is_ok_and(|past| past > UNASKED_REST);
        let place = fs::read_to_string(file_of(directory, &lease, PLACE)).unwrap_or_default();
        if looks > 0 && place == asked {
            looks -= 1;
            match client.get::<LeaseOut>(&path("leases", &lease, ""), LOOK_LIMIT).await {
                Ok(seen) => {
                    over = seen.state == LeasePhase::Ended;
                    // It may have been renewed.
                    note_end(directory, &lease, end_of(&seen));
                }
                Err(CallError::Refused(problem)) if problem.status == 404 => over = true,
                Err(_) => looks = 0,
            }
        }
        if over {
            forget(directory, &lease);
        }
    }
}

/// The leases that have files, each with its end as it was last known, the first to end first.
fn kept(directory: &Path) -> Vec<(SystemTime, String)> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let rest = name.to_str().and_then(|name| name.strip_prefix("drover-"));
        let Some((lease, end)) = rest.and_then(|rest| rest.rsplit_once('.')) else { continue };
        let until = entry.metadata().and_then(|meta| meta.modified());
        if let Ok(until) = until
            && ENDS.contains(&end)
            && is_id(lease)
        {
            let last = found.entry(lease.to_owned()).or_insert(until);
            *last = until.max(*last);
        }
    }
    let mut all: Vec<_> = found.into_iter().map(|(lease, until)| (until, lease)).collect();
    all.sort();
    all
}

/// Where a service is, whatever the working directory.
fn place_of(client: &Client) -> String {
    let place = client.place();
    if place.starts_with("http") {
        return place.to_owned();
    }
    std::path::absolute(place).map_or_else(|_| place.to_owned(), |path| path.display().to_string())
}

fn is_id(lease: &str) -> bool {
    !lease.is_empty() && lease.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
}

fn file_of(directory: &Path, lease: &str, end: &str) -> PathBuf {
    directory.join(format!("drover-{lease}.{end}"))
}

fn end_of(lease: &LeaseOut) -> SystemTime {
    let reported = lease.expires_at.as_ref().and_then(|at| at.parse::<Timestamp>().ok());
    reported.map_or_else(|| SystemTime::now() + UNTOLD_END, SystemTime::from)
}

fn note_end(directory: &Path, lease: &str, until: SystemTime) {
    for end in ENDS {
        if let Ok(file) = File::open(file_of(directory, lease, end)) {
            // With an earlier end the files go sooner than they need to.
            let _ = file.set_modified(until);
        }
    }
}

/// Whether a directory is this user's, and not everybody can put anything there.
fn is_own(directory: &Path) -> bool {
    fs::symlink_metadata(directory).is_ok_and(|meta| {
        meta.is_dir() && meta.uid() == geteuid().as_raw() && meta.mode() & 0o002 == 0
    })
}

fn prepare(directory: &Path) -> Result<(), CliError> {
    let shown = directory.display();
    match DirBuilder::new().mode(0o700).create(directory) {
        Ok(()) => Ok(()),
        Err(fault) if fault.kind() != io::ErrorKind::AlreadyExists => {
            Err(CliError::Failed(format!("cannot make the directory `{shown}`: {fault}")))
        }
        Err(_) if is_own(directory) => Ok(()),
        Err(_) => Err(CliError::Failed(format!(
            "`{shown}` is no directory of this user, or everybody can write to it: remove it, or name \
             another place in XDG_RUNTIME_DIR"
        ))),
    }
}

fn write_private(path: &Path, text: &str, until: SystemTime) -> Result<(), CliError> {
    let mut options = OpenOptions::new();
    // Always a new file, so that nobody else's is written or read.
    let file = options.write(true).create_new(true).mode(0o600).open(path);
    let written = file.and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.set_modified(until)
    });
    written.map_err(|fault| CliError::Failed(format!("cannot write `{}`: {fault}", path.display())))
}
