//! What Proxmox's error texts mean. Pure.
//!
//! Nearly every failure is a 500 with prose (book: proxmox, section 2), in the answer to a call or
//! as the exit status of a task, so the same rules read both: [`refusal`] for calls, [`task`] for
//! tasks.
//!
//! In comes the text with the call, cloud and login. Out comes a `Fault`: a kind, on which actors
//! decide; a culprit, which a breaker or an alarm is charged to; and a text for people, which names
//! the privilege or the command that helps if Proxmox's text shows it.
//!
//! The rules apply in this order: missing privilege, guests that exist or not, locks, memory,
//! space, texts that name a node or storage. A text that no rule knows is "broken", charged to the
//! cloud, node or template that the call was about.

mod exit_code;

use drover_model::fault::{Culprit, Fault, FaultKind};
use drover_model::id::{CloudId, NodeName};
use proxmox_client::error::Call;
use proxmox_client::refusal::{Refusal, bounded};
use proxmox_client::transport::Method;

/// Through which cloud and login a call went.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallOrigin<'a> {
    pub cloud: &'a CloudId,
    /// The login's name, without its secret.
    pub login: &'a str,
}

/// The fault of a call that a node refused.
pub(crate) fn refusal(place: CallOrigin<'_>, call: &Call, refusal: &Refusal) -> Fault {
    let cloud = Culprit::Cloud(place.cloud.clone());
    let whole = format!("`{call}` on cloud `{}` failed: {refusal}", place.cloud);
    if refusal.status == 401 {
        let text = format!(
            "cloud `{}` refused the login `{}` ({}); check its id and secret, that it has not \
             expired, and that its user is enabled",
            place.cloud, place.login, refusal.text
        );
        return Fault::new(FaultKind::Denied { privilege: None, path: None }, cloud, text);
    }
    if let Some(kind) = gateway(refusal.status, call.method.writes()) {
        return Fault::new(kind, node_in_path(&call.path).unwrap_or(cloud), whole);
    }
    if let Some(fault) = parameter(refusal, &whole) {
        return fault;
    }
    let fallback = match (node_in_path(&call.path), guest_in_path(&call.path)) {
        _ if makes_guest(call) => Culprit::Template,
        (_, true) if !call.method.writes() => Culprit::Guest,
        (_, true) => Culprit::Template,
        (Some(node), false) => node,
        (None, false) => cloud,
    };
    let what = format!("`{call}`");
    let node = node_in_path(&call.path);
    fault_of_text(place, &what, &refusal.text, &whole, (fallback, node), makes_guest(call))
}

/// Whether a call makes an agent's guest: a clone, or a container of an OS template.
fn makes_guest(call: &Call) -> bool {
    let creates = call.method == Method::Post && call.path.ends_with("/lxc");
    creates || call.path.ends_with("/clone")
}

/// The fault of a task that failed with this exit status; `kind` is the task's type, such as
/// `qmclone`.
pub(crate) fn task(place: CallOrigin<'_>, node: &NodeName, kind: &str, exit: &str) -> Fault {
    let means = exit_code::of_wget(exit).map(|means| format!("; {means}")).unwrap_or_default();
    let exit = bounded(exit);
    let whole = format!("task `{kind}` on node `{node}` failed: {exit}{means}");
    let what = format!("task `{kind}`");
    let culprits = (Culprit::Template, Some(Culprit::Node(node.clone())));
    let makes_guest = matches!(kind, "qmclone" | "vzclone" | "vzcreate");
    fault_of_text(place, &what, &exit, &whole, culprits, makes_guest)
}

/// Status codes of Proxmox's inner proxy, or of a proxy in front of it (book: proxmox, section 1).
fn gateway(status: u16, writes: bool) -> Option<FaultKind> {
    match status {
        595 => Some(FaultKind::Contention),
        502..=504 | 596..=599 if writes => Some(FaultKind::UnknownOutcome),
        502..=504 | 596..=599 => Some(FaultKind::Contention),
        _ => None,
    }
}

/// A 400 with `errors` by parameter.
fn parameter(refusal: &Refusal, whole: &str) -> Option<Fault> {
    let (key, text) = refusal.errors.iter().next()?;
    let (kind, culprit) = match key.as_str() {
        "vmid" | "newid" if text.contains("already exists") => (FaultKind::IdTaken, Culprit::Guest),
        "upid" if text.contains("no such task") => (FaultKind::Gone, Culprit::Guest),
        _ => (FaultKind::Broken, Culprit::Template),
    };
    Some(Fault::new(kind, culprit, whole))
}

fn fault_of_text(
    place: CallOrigin<'_>,
    what: &str,
    text: &str,
    whole: &str,
    (fallback, node): (Culprit, Option<Culprit>),
    cloning: bool,
) -> Fault {
    if is_read_only(text) {
        let text =
            format!("{whole}; the cluster has no quorum, so that no configuration can be written");
        return Fault::new(FaultKind::Contention, Culprit::Cloud(place.cloud.clone()), text);
    }
    if let Some(denied) = denied(place, what, text, cloning) {
        return denied;
    }
    let guest = if cloning { Culprit::Template } else { Culprit::Guest };
    let (kind, culprit) = existence(text, &guest)
        .or_else(|| power(text))
        .or_else(|| locks(place, text, &guest))
        .or_else(|| no_memory(text, node))
        .or_else(|| no_space(text, &fallback))
        .or_else(|| other(text))
        .unwrap_or((FaultKind::Broken, fallback));
    if let (FaultKind::Contention, Culprit::Storage(storage)) = (&kind, &culprit) {
        let text = format!(
            "storage `{storage}` was locked for longer than Proxmox waits, by clones or backups there \
             or by another program: where this does not pass, the task list of its node in Proxmox shows \
             them; a lower `clonesPerStorage` has drover start fewer clones there at once; {whole}"
        );
        return Fault::new(kind, culprit, text);
    }
    Fault::new(kind, culprit, whole)
}

/// Whether the cluster's file system cannot be written, as without quorum (book: proxmox, section 2). It
/// is the system that denies it then, and no privilege is missing.
fn is_read_only(text: &str) -> bool {
    text.contains("unable to open file '/etc/pve/") && text.contains("Permission denied")
}

/// A missing privilege, with privilege and path when the text names them.
fn denied(place: CallOrigin<'_>, what: &str, text: &str, cloning: bool) -> Option<Fault> {
    if let Some(rest) = text.strip_prefix("only root can ") {
        let text = format!("Proxmox allows {what} to root@pam only: only root can {rest}");
        let kind = FaultKind::Denied { privilege: Some("root@pam".into()), path: None };
        return Some(Fault::new(kind, Culprit::Template, text));
    }
    let at = text.find("Permission check failed").or_else(|| text.find("Permission denied"))?;
    let inner = text[at..].split_once('(').map(|(_, rest)| rest.trim_end_matches(')'));
    let named = inner.filter(|inner| inner.starts_with('/')).and_then(|i| i.split_once(", "));
    let login = place.login;
    let (path, rest) = match (named, inner) {
        (Some((path, rest)), _) => (path, rest),
        (None, Some(missing)) if missing.contains("does not exist") => {
            let text = format!("{what} failed: {missing}");
            return Some(Fault::new(FaultKind::Broken, Culprit::Template, text));
        }
        (None, _) if cloning => {
            // When either of two privileges would be enough, Proxmox names neither of them.
            let text = format!(
                "{what} needs the privilege `VM.Allocate` on the new guest or, with `targetPool`, on \
                 that pool: give `{login}` a role with it there (with privilege separation, both \
                 the token and its user need it)"
            );
            let kind = FaultKind::Denied { privilege: Some("VM.Allocate".into()), path: None };
            return Some(Fault::new(kind, Culprit::Cloud(place.cloud.clone()), text));
        }
        (None, _) => {
            let text = format!("{what} is not allowed for `{login}`: {text}");
            let kind = FaultKind::Denied { privilege: None, path: None };
            return Some(Fault::new(kind, Culprit::Cloud(place.cloud.clone()), text));
        }
    };
    let (privilege, why) = rest.split_once(' ').unwrap_or((rest, ""));
    let one_of = if privilege.contains('|') { "one of the privileges" } else { "the privilege" };
    let why = if why.is_empty() { String::new() } else { format!(" {why}") };
    let text = format!(
        "{what} needs {one_of} `{privilege}` on `{path}`{why}: give `{login}` a role with it there \
         (with privilege separation, both the token and its user need it)"
    );
    let kind =
        FaultKind::Denied { privilege: Some(privilege.to_owned()), path: Some(path.to_owned()) };
    Some(Fault::new(kind, culprit_of_path(place, path), text))
}

/// The culprit for a missing privilege on a path.
fn culprit_of_path(place: CallOrigin<'_>, path: &str) -> Culprit {
    let mut parts = path.trim_start_matches('/').split('/');
    match (parts.next(), parts.next()) {
        (Some("storage"), Some(name)) => Culprit::Storage(name.to_owned()),
        (Some("nodes"), Some(name)) => Culprit::Node(NodeName::new(name)),
        (Some("vms" | "pool" | "sdn" | "mapping"), Some(_)) => Culprit::Template,
        _ => Culprit::Cloud(place.cloud.clone()),
    }
}

type KindAndCulprit = Option<(FaultKind, Culprit)>;

/// Guests and VMIDs that exist or do not.
fn existence(text: &str, guest: &Culprit) -> KindAndCulprit {
    let config_gone = text.contains("Configuration file '") && text.contains("does not exist");
    if config_gone || text.contains("unable to find configuration file for") {
        // A clone without its template is the configuration's fault, and no guest is gone.
        let kind = if *guest == Culprit::Template { FaultKind::Broken } else { FaultKind::Gone };
        return Some((kind, guest.clone()));
    }
    let renamed = text.contains("atomic file") && text.contains("File exists");
    let exists = text.contains("config file already exists")
        || text.contains("already exists on node")
        || (text.starts_with("VM ") && text.ends_with("already exists"));
    (renamed || exists).then_some((FaultKind::IdTaken, Culprit::Guest))
}

/// Containers that already are what a call wants: the request refuses it, and a look at the guest
/// shows how it is (book: proxmox, section 18).
fn power(text: &str) -> KindAndCulprit {
    let of = |kind| text.starts_with("CT ").then_some((kind, Culprit::Guest));
    if text.ends_with(" already running") {
        // A start of drover's own may have come first.
        return of(FaultKind::UnknownOutcome);
    }
    if text.ends_with(" not running") { of(FaultKind::Contention) } else { None }
}

/// The three layers of locks (book: proxmox, section 6), and other failures that pass by
/// themselves.
fn locks(place: CallOrigin<'_>, text: &str, guest: &Culprit) -> KindAndCulprit {
    for marker in ["VM is locked (", "CT is locked ("] {
        if let Some(lock) = between(text, marker, ")") {
            return Some((FaultKind::Locked { lock: lock.to_owned() }, guest.clone()));
        }
    }
    let storage = between(text, "pve-storage-", "'")
        .or_else(|| between(text, "'storage-", "'"))
        .filter(|_| text.contains("got timeout") || text.contains("lock"));
    if let Some(storage) = storage {
        return Some((FaultKind::Contention, Culprit::Storage(storage.to_owned())));
    }
    if text.contains("no quorum") || text.contains("cfs-lock '") {
        return Some((FaultKind::Contention, Culprit::Cloud(place.cloud.clone())));
    }
    let passing = [
        "can't lock file",
        "got timeout",
        "got lock request timeout",
        "timed out - aborting",
        "checksum mismatch (file change",
        "detected modified configuration",
        "is running - destroy failed",
        "- container is running",
        "guest agent is not running",
        "received interrupt",
        "interrupted by signal",
    ];
    let hit = passing.iter().any(|marker| text.contains(marker));
    hit.then_some((FaultKind::Contention, Culprit::Guest))
}

/// A node without free memory.
fn no_memory(text: &str, node: Option<Culprit>) -> KindAndCulprit {
    let lower = text.to_lowercase();
    let hit = ["cannot allocate memory", "not enough memory"].iter().any(|one| lower.contains(one));
    hit.then_some((FaultKind::Capacity, node?))
}

/// No space on a storage, in memory, or among VMIDs.
fn no_space(text: &str, fallback: &Culprit) -> KindAndCulprit {
    let lower = text.to_lowercase();
    let full = [
        "no space left",
        "out of space",
        "not enough space",
        "not enough free space",
        "insufficient free space",
        "disk quota exceeded",
        "cannot allocate memory",
        "not enough memory",
        "unable to get any free vmid",
    ];
    let hit = full.iter().any(|marker| lower.contains(marker));
    hit.then(|| (FaultKind::Capacity, named_storage(text).unwrap_or_else(|| fallback.clone())))
}

/// Other texts that name a node or storage.
fn other(text: &str) -> KindAndCulprit {
    let node = between(text, "hostname lookup '", "'")
        .or_else(|| between(text, "no such cluster node '", "'"));
    if let Some(node) = node {
        return Some((FaultKind::Broken, Culprit::Node(NodeName::new(node))));
    }
    if text.contains("protection mode enabled") {
        return Some((FaultKind::Broken, Culprit::Guest));
    }
    named_storage(text).map(|storage| (FaultKind::Broken, storage))
}

fn named_storage(text: &str) -> Option<Culprit> {
    between(text, "storage '", "'").map(|name| Culprit::Storage(name.to_owned()))
}

fn node_in_path(path: &str) -> Option<Culprit> {
    let node = path.strip_prefix("/nodes/")?.split('/').next()?;
    (!node.is_empty() && node != "localhost").then(|| Culprit::Node(NodeName::new(node)))
}

fn guest_in_path(path: &str) -> bool {
    path.contains("/qemu/") || path.contains("/lxc/")
}

fn between<'a>(text: &'a str, open: &str, close: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(open)?;
    rest.split_once(close).map(|(inner, _)| inner)
}

#[cfg(test)]
mod tests;
