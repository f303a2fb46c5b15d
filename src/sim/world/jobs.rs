//! Backup jobs as they are configured (pve-manager, API2/Backup.pm): kept, shown and removed. The
//! simulator runs none, so none says when it runs next.

use serde_json::{Map, Value};

use super::ask::{Ask, failed};
use super::conf::{self, Config};
use super::sections;
use crate::api;
use crate::call::{Answer, ApiError, Outcome};

/// Keys that are property strings in a call and objects in an answer, each with its format.
const OBJECTS: &[(&str, &str)] = &[
    ("fleecing", "backup-fleecing"),
    ("performance", "backup-performance"),
    ("prune-backups", "prune-backups"),
];

/// Parameters that are no keys of a job.
const NOT_KEYS: &[&str] = &["id", "delete", "starttime", "dow"];
/// Keys that cannot be deleted.
const KEPT: &[&str] = &["id", "delete", "starttime", "dow", "enabled", "schedule"];
/// Parameters of root alone.
const OF_ROOT: &[&str] = &["tmpdir", "dumpdir", "script", "job-id"];
/// Parameters that slow or hurry a whole node.
const OF_NODES: &[&str] = &["bwlimit", "ionice", "performance"];
const ALL_DAYS: &str = "mon,tue,wed,thu,fri,sat,sun";

/// Backup jobs with their ids, in the order they were made.
#[derive(Debug, Default)]
pub struct Jobs(Vec<(String, Config)>);

impl Jobs {
    fn get(&self, id: &str) -> Option<&Config> {
        self.0.iter().find(|(own, _)| own == id).map(|(_, job)| job)
    }

    /// Whether a job backs up this guest of a node, be the job enabled or not (pve-manager,
    /// API2/Cluster/BackupInfo.pm, get_included_vmids, and VZDump.pm, get_included_guests).
    pub fn cover(&self, ask: &Ask, node: &str, vmid: u32) -> bool {
        self.0.iter().any(|(_, job)| {
            if job.get("node").is_some_and(|own| own != node) {
                return false;
            }
            let names = |key: &str| {
                let list = job.get(key).map(String::as_str).unwrap_or_default();
                sections::words(list).any(|id| id.parse::<u32>() == Ok(vmid))
            };
            match job.get("pool") {
                Some(pool) => ask.cluster.rights.pool_of(vmid).as_ref() == Some(pool),
                None if job.contains_key("vmid") => names("vmid"),
                None => conf::flag(job, "all") && !names("exclude"),
            }
        })
    }
}

fn line(id: &str, job: &Config) -> Value {
    let value = |key: &str, text: &str| match OBJECTS.iter().find(|(own, _)| *own == key) {
        Some((_, format)) => api::property_string_object(format, text),
        None => sections::typed(|path| path == "/cluster/backup", key, text),
    };
    let mut fields: Map<String, Value> =
        job.iter().map(|(key, text)| (key.clone(), value(key, text))).collect();
    fields.insert("id".into(), id.into());
    fields.insert("type".into(), "vzdump".into());
    fields.into()
}

/// `GET /cluster/backup`.
pub fn list(ask: &Ask) -> Outcome {
    let state = ask.cluster.state();
    let lines: Vec<Value> = state.jobs.0.iter().map(|(id, job)| line(id, job)).collect();
    Ok(Answer::new(lines.into()))
}

/// `GET /cluster/backup/{id}`.
pub fn one(ask: &Ask) -> Outcome {
    let id = ask.text("id").unwrap_or_default();
    match ask.cluster.state().jobs.get(&id) {
        Some(job) => Ok(Answer::new(line(&id, job))),
        None => Err(ApiError::parameter("id", format!("No such job '{id}'"))),
    }
}

/// The refusal of a parameter under the lock of the file, which makes a text of it.
fn under_lock(name: &str, text: &str) -> ApiError {
    failed(sections::refusal(name, text))
}

/// Refuses what only root may set or take out, and what else of a backup the caller may not ask for
/// (pve-manager, API2/Backup.pm:36, assert_param_permission_common).
///
/// # Errors
/// 400 of what is root's, 403 of all else.
pub fn may_set(ask: &Ask, deleted: &[String]) -> Result<(), ApiError> {
    if ask.call.caller.is_root() {
        return Ok(());
    }
    let named =
        |name: &str| ask.params().0.contains_key(name) || deleted.iter().any(|own| own == name);
    if let Some(name) = OF_ROOT.iter().find(|name| named(name)) {
        return Err(ApiError::parameter(name, "Only root may set this option."));
    }
    if OF_NODES.iter().any(|name| named(name)) {
        ask.check("/", &["Sys.Modify"])?;
    }
    let fleecing =
        ask.text("fleecing").map(|text| api::property_string_object("backup-fleecing", &text));
    match fleecing.as_ref().and_then(|own| own["storage"].as_str()) {
        Some(storage) => ask.check(&format!("/storage/{storage}"), &["Datastore.AllocateSpace"]),
        None => Ok(()),
    }
}

/// Requires the storage that a job writes to, which is `local` where it names neither one nor a
/// directory (pve-manager, VZDump.pm, get_storage_param).
fn may_write(ask: &Ask, storage: Option<&str>) -> Result<(), ApiError> {
    if ask.call.caller.is_root() {
        return Ok(());
    }
    let storage = storage.filter(|storage| !storage.is_empty()).unwrap_or("local");
    ask.check(&format!("/storage/{storage}"), &["Datastore.Allocate"])
}

fn may_back_up(ask: &Ask) -> Result<(), ApiError> {
    let Some(pool) = ask.text("pool") else { return Ok(()) };
    if !ask.cluster.rights.pool_exists(&pool) {
        return Err(ApiError::denied(&format!("pool '{pool}' does not exist")));
    }
    ask.check(&format!("/pool/{pool}"), &["VM.Backup"])
}

/// The keys that a call sets, with the schedule that older calls say in two parts.
fn wanted(ask: &Ask) -> Result<Config, ApiError> {
    let mut job = sections::stored(ask, NOT_KEYS);
    let Some(start) = ask.text("starttime") else { return Ok(job) };
    if job.contains_key("schedule") {
        let text = "'starttime' and 'schedule' cannot both be set";
        return Err(ApiError::parameter("starttime", text));
    }
    let days = ask.text("dow").unwrap_or_default();
    let days = sections::words(&days).collect::<Vec<_>>().join(",");
    let every = days.is_empty() || days == ALL_DAYS;
    job.insert("schedule".into(), if every { start } else { format!("{days} {start}") });
    Ok(job)
}

/// Refuses a backup that names its guests in two ways, or in none where it `is_whole` (pve-manager,
/// VZDump.pm:1527, verify_vzdump_parameters).
///
/// # Errors
/// The parameter that is wrong, and why.
pub fn sound(job: &mut Config, is_whole: bool) -> Result<(), (&'static str, &'static str)> {
    let has = |key: &str| job.get(key).is_some_and(|text| !matches!(text.as_str(), "" | "0"));
    if let Some(key) = ["all", "exclude", "pool"].into_iter().find(|key| has(key) && has("vmid")) {
        return Err((key, "option conflicts with option 'vmid'"));
    }
    let names_none = !["all", "stop", "pool", "vmid"].into_iter().any(has);
    let leaves_out = job.contains_key("exclude") && !has("pool");
    if is_whole && names_none && !leaves_out {
        return Err(("vmid", "property is missing"));
    }
    if leaves_out {
        job.insert("all".into(), "1".into());
    }
    Ok(())
}

/// `POST /cluster/backup`.
pub fn create(ask: &Ask) -> Outcome {
    may_set(ask, &[])?;
    may_write(ask, ask.text("storage").as_deref())?;
    may_back_up(ask)?;
    let mut job = wanted(ask)?;
    if !job.contains_key("schedule") {
        let text = "neither 'starttime' nor 'schedule' were set";
        return Err(ApiError::parameter("schedule", text));
    }
    job.entry("enabled".into()).or_insert_with(|| "1".into());
    ask.quorate()?;
    let mut state = ask.cluster.state();
    let id = ask.text("id").unwrap_or_else(|| state.dice.uuid());
    if state.jobs.get(&id).is_some() {
        return Err(failed(format!("Job '{id}' already exists")));
    }
    sound(&mut job, true).map_err(|(name, text)| under_lock(name, text))?;
    state.jobs.0.push((id, job));
    Ok(Answer::null())
}

/// `PUT /cluster/backup/{id}`.
pub fn change(ask: &Ask) -> Outcome {
    let id = ask.text("id").unwrap_or_default();
    let deleted = sections::deleted(ask);
    may_set(ask, &deleted)?;
    let storage = ask.text("storage");
    if storage.is_some() || deleted.iter().any(|key| key == "storage") {
        may_write(ask, storage.as_deref())?;
    }
    may_back_up(ask)?;
    let mut set = wanted(ask)?;
    if set.is_empty() && deleted.is_empty() {
        return Err(failed("no options specified".into()));
    }
    let wrong = |(name, text): (&str, &str)| under_lock(name, text);
    sound(&mut set, false).map_err(wrong)?;
    ask.quorate()?;
    let mut state = ask.cluster.state();
    let Some((_, job)) = state.jobs.0.iter_mut().find(|(own, _)| *own == id) else {
        return Err(failed("no such vzdump job".into()));
    };
    if !ask.call.caller.is_root() && job.contains_key("dumpdir") {
        return Err(failed("only root@pam may edit jobs with a 'dumpdir' option.".into()));
    }
    may_write(ask, job.get("storage").map(String::as_str))?;
    let mut fresh = job.clone();
    for key in &deleted {
        if KEPT.contains(&key.as_str()) || !sections::is_parameter(ask, key) {
            return Err(under_lock("delete", &format!("unknown option '{key}'")));
        }
        fresh.remove(key);
    }
    // What names the guests takes the place of what named them (API2/Backup.pm:618).
    let others: &[&str] = if set.contains_key("vmid") {
        &["all", "exclude", "pool"]
    } else if conf::flag(&set, "all") {
        &["vmid", "pool"]
    } else if set.contains_key("pool") || fresh.contains_key("pool") {
        &["vmid", "all", "exclude"]
    } else {
        &[]
    };
    fresh.extend(set);
    fresh.retain(|key, _| !others.contains(&key.as_str()));
    sound(&mut fresh, true).map_err(wrong)?;
    *job = fresh;
    Ok(Answer::null())
}

/// `DELETE /cluster/backup/{id}`.
pub fn remove(ask: &Ask) -> Outcome {
    let id = ask.text("id").unwrap_or_default();
    ask.quorate()?;
    let mut state = ask.cluster.state();
    if state.jobs.get(&id).is_none() {
        return Err(under_lock("id", &format!("No such job '{id}'")));
    }
    state.jobs.0.retain(|(own, _)| *own != id);
    Ok(Answer::null())
}
