//! The configuration of backup jobs (pve-manager, API2/Backup.pm). The simulator stores, shows and
//! deletes jobs; it runs none, so no job has a next run.

use serde_json::{Map, Value};

use super::conf::{self, Config};
use super::context::{CallContext, failed};
use super::sections;
use crate::api;
use crate::call::{Answer, ApiError, Outcome};

/// Keys that are property strings in a call and objects in an answer, each with the name of its
/// format.
const OBJECT_KEYS: &[(&str, &str)] = &[
    ("fleecing", "backup-fleecing"),
    ("performance", "backup-performance"),
    ("prune-backups", "prune-backups"),
];

/// Parameters that are not keys of a job.
const NON_JOB_PARAMETERS: &[&str] = &["id", "delete", "starttime", "dow"];
/// Keys that cannot be deleted.
const UNDELETABLE_KEYS: &[&str] = &["id", "delete", "starttime", "dow", "enabled", "schedule"];
/// Parameters that only root may set.
const ROOT_ONLY: &[&str] = &["tmpdir", "dumpdir", "script", "job-id"];
/// Parameters that affect the speed of the whole node.
const NODE_WIDE: &[&str] = &["bwlimit", "ionice", "performance"];
const ALL_DAYS: &str = "mon,tue,wed,thu,fri,sat,sun";

/// Backup jobs with their ids, in the order of their creation.
#[derive(Debug, Default)]
pub(crate) struct BackupJobs(Vec<(String, Config)>);

impl BackupJobs {
    fn get(&self, id: &str) -> Option<&Config> {
        self.0.iter().find(|(own, _)| own == id).map(|(_, job)| job)
    }

    /// Whether a job, enabled or disabled, backs up this guest of a node (pve-manager,
    /// API2/Cluster/BackupInfo.pm, get_included_vmids, and VZDump.pm, get_included_guests).
    pub(crate) fn covers(&self, ctx: &CallContext, node: &str, vmid: u32) -> bool {
        self.0.iter().any(|(_, job)| {
            if job.get("node").is_some_and(|own| own != node) {
                return false;
            }
            let names = |key: &str| {
                let list = job.get(key).map(String::as_str).unwrap_or_default();
                sections::list_items(list).any(|id| id.parse::<u32>() == Ok(vmid))
            };
            match job.get("pool") {
                Some(pool) => ctx.cluster.rights.pool_of(vmid).as_ref() == Some(pool),
                None if job.contains_key("vmid") => names("vmid"),
                None => conf::flag(job, "all") && !names("exclude"),
            }
        })
    }
}

fn job_entry(id: &str, job: &Config) -> Value {
    let value = |key: &str, text: &str| match OBJECT_KEYS.iter().find(|(own, _)| *own == key) {
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
pub(crate) fn list(ctx: &CallContext) -> Outcome {
    let state = ctx.cluster.state();
    let lines: Vec<Value> = state.jobs.0.iter().map(|(id, job)| job_entry(id, job)).collect();
    Ok(Answer::new(lines.into()))
}

/// `GET /cluster/backup/{id}`.
pub(crate) fn get(ctx: &CallContext) -> Outcome {
    let id = ctx.text("id").unwrap_or_default();
    match ctx.cluster.state().jobs.get(&id) {
        Some(job) => Ok(Answer::new(job_entry(&id, job))),
        None => Err(ApiError::parameter("id", format!("No such job '{id}'"))),
    }
}

/// The error of a parameter that is checked under the lock of the file; the lock turns it into
/// text.
fn lock_error(name: &str, text: &str) -> ApiError {
    failed(sections::parameter_error(name, text))
}

/// Refuses options that only root may set or delete, and options for which the caller lacks the
/// privilege (pve-manager, API2/Backup.pm:36, assert_param_permission_common).
///
/// # Errors
/// 400 for an option of root, 403 for a missing privilege.
pub(crate) fn check_may_set(ctx: &CallContext, deleted: &[String]) -> Result<(), ApiError> {
    if ctx.call.caller.is_root() {
        return Ok(());
    }
    let named =
        |name: &str| ctx.params().0.contains_key(name) || deleted.iter().any(|own| own == name);
    if let Some(name) = ROOT_ONLY.iter().find(|name| named(name)) {
        return Err(ApiError::parameter(name, "Only root may set this option."));
    }
    if NODE_WIDE.iter().any(|name| named(name)) {
        ctx.check("/", &["Sys.Modify"])?;
    }
    let fleecing =
        ctx.text("fleecing").map(|text| api::property_string_object("backup-fleecing", &text));
    match fleecing.as_ref().and_then(|own| own["storage"].as_str()) {
        Some(storage) => ctx.check(&format!("/storage/{storage}"), &["Datastore.AllocateSpace"]),
        None => Ok(()),
    }
}

/// Checks the privilege on the storage that a job writes to. The storage is `local` if the job
/// names neither a storage nor a directory (pve-manager, VZDump.pm, get_storage_param).
fn check_may_write(ctx: &CallContext, storage: Option<&str>) -> Result<(), ApiError> {
    if ctx.call.caller.is_root() {
        return Ok(());
    }
    let storage = storage.filter(|storage| !storage.is_empty()).unwrap_or("local");
    ctx.check(&format!("/storage/{storage}"), &["Datastore.Allocate"])
}

fn check_may_back_up(ctx: &CallContext) -> Result<(), ApiError> {
    let Some(pool) = ctx.text("pool") else { return Ok(()) };
    if !ctx.cluster.rights.pool_exists(&pool) {
        return Err(ApiError::denied(&format!("pool '{pool}' does not exist")));
    }
    ctx.check(&format!("/pool/{pool}"), &["VM.Backup"])
}

/// The keys that a call sets; `starttime` and `dow` of older clients become a `schedule`.
fn requested_job(ctx: &CallContext) -> Result<Config, ApiError> {
    let mut job = sections::stored_parameters(ctx, NON_JOB_PARAMETERS);
    let Some(start) = ctx.text("starttime") else { return Ok(job) };
    if job.contains_key("schedule") {
        let text = "'starttime' and 'schedule' cannot both be set";
        return Err(ApiError::parameter("starttime", text));
    }
    let days = ctx.text("dow").unwrap_or_default();
    let days = sections::list_items(&days).collect::<Vec<_>>().join(",");
    let every = days.is_empty() || days == ALL_DAYS;
    job.insert("schedule".into(), if every { start } else { format!("{days} {start}") });
    Ok(job)
}

/// Refuses a job that selects its guests in two ways, and with `is_whole` also one that selects
/// none (pve-manager, VZDump.pm:1527, verify_vzdump_parameters).
///
/// # Errors
/// The name of the wrong parameter, and the reason.
pub(crate) fn check_selection(
    job: &mut Config,
    is_whole: bool,
) -> Result<(), (&'static str, &'static str)> {
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
pub(crate) fn create(ctx: &CallContext) -> Outcome {
    check_may_set(ctx, &[])?;
    check_may_write(ctx, ctx.text("storage").as_deref())?;
    check_may_back_up(ctx)?;
    let mut job = requested_job(ctx)?;
    if !job.contains_key("schedule") {
        let text = "neither 'starttime' nor 'schedule' were set";
        return Err(ApiError::parameter("schedule", text));
    }
    job.entry("enabled".into()).or_insert_with(|| "1".into());
    ctx.require_quorum()?;
    let mut state = ctx.cluster.state();
    let id = ctx.text("id").unwrap_or_else(|| state.random.uuid());
    if state.jobs.get(&id).is_some() {
        return Err(failed(format!("Job '{id}' already exists")));
    }
    check_selection(&mut job, true).map_err(|(name, text)| lock_error(name, text))?;
    state.jobs.0.push((id, job));
    Ok(Answer::null())
}

/// `PUT /cluster/backup/{id}`.
pub(crate) fn change(ctx: &CallContext) -> Outcome {
    let id = ctx.text("id").unwrap_or_default();
    let deleted = sections::deleted_keys(ctx);
    check_may_set(ctx, &deleted)?;
    let storage = ctx.text("storage");
    if storage.is_some() || deleted.iter().any(|key| key == "storage") {
        check_may_write(ctx, storage.as_deref())?;
    }
    check_may_back_up(ctx)?;
    let mut set = requested_job(ctx)?;
    if set.is_empty() && deleted.is_empty() {
        return Err(failed("no options specified".into()));
    }
    let wrong = |(name, text): (&str, &str)| lock_error(name, text);
    check_selection(&mut set, false).map_err(wrong)?;
    ctx.require_quorum()?;
    let mut state = ctx.cluster.state();
    let Some((_, job)) = state.jobs.0.iter_mut().find(|(own, _)| *own == id) else {
        return Err(failed("no such vzdump job".into()));
    };
    if !ctx.call.caller.is_root() && job.contains_key("dumpdir") {
        return Err(failed("only root@pam may edit jobs with a 'dumpdir' option.".into()));
    }
    check_may_write(ctx, job.get("storage").map(String::as_str))?;
    let mut changed = job.clone();
    for key in &deleted {
        if UNDELETABLE_KEYS.contains(&key.as_str()) || !sections::is_parameter(ctx, key) {
            return Err(lock_error("delete", &format!("unknown option '{key}'")));
        }
        changed.remove(key);
    }
    // The new selection of guests replaces the old one (API2/Backup.pm:618).
    let others: &[&str] = if set.contains_key("vmid") {
        &["all", "exclude", "pool"]
    } else if conf::flag(&set, "all") {
        &["vmid", "pool"]
    } else if set.contains_key("pool") || changed.contains_key("pool") {
        &["vmid", "all", "exclude"]
    } else {
        &[]
    };
    changed.extend(set);
    changed.retain(|key, _| !others.contains(&key.as_str()));
    check_selection(&mut changed, true).map_err(wrong)?;
    *job = changed;
    Ok(Answer::null())
}

/// `DELETE /cluster/backup/{id}`.
pub(crate) fn remove(ctx: &CallContext) -> Outcome {
    let id = ctx.text("id").unwrap_or_default();
    ctx.require_quorum()?;
    let mut state = ctx.cluster.state();
    if state.jobs.get(&id).is_none() {
        return Err(lock_error("id", &format!("No such job '{id}'")));
    }
    state.jobs.0.retain(|(own, _)| *own != id);
    Ok(Answer::null())
}
