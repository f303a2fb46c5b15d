//! Cloning containers. The source is locked during the whole copy, so clones of one template run
//! one after another.

use std::sync::Arc;

use serde_json::json;

use super::super::conf::{Config, Drive, numbered, print_size};
use super::super::context::{CallContext, failed};
use super::super::state::{Guest, State};
use super::super::storage::{VolumePurpose, VolumeRequest};
use super::super::worker::Worker;
use super::super::{Cluster, checks};
use super::{mounts, stored_description};
use crate::call::{Answer, ApiError, Outcome};

#[derive(Debug)]
struct ContainerCloneJob {
    node: String,
    source: u32,
    newid: u32,
    full: bool,
    hostname: Option<String>,
    description: Option<String>,
    storage: Option<String>,
    target: String,
    pool: Option<String>,
    config: Config,
}

/// `POST …/clone`: takes the new VMID and the lock of the source before it answers.
pub(crate) async fn clone(ctx: &CallContext) -> Outcome {
    let newid = ctx.id("newid").unwrap_or(0);
    let pool = ctx.text("pool");
    if let Some(pool) = pool.as_deref().filter(|pool| !ctx.cluster.rights.pool_exists(pool)) {
        return Err(ApiError::denied(&format!("pool '{pool}' does not exist")));
    }
    ctx.require_quorum()?;
    let _file = ctx.cluster.container_lock(&ctx.node, ctx.vmid, None).await.map_err(failed)?;
    let job = check_clone(ctx, newid, pool)?;
    {
        let mut state = ctx.cluster.state();
        let fail = |text| failed(format!("unable to create CT {newid}: {text}"));
        state.ensure_id_free(newid).map_err(fail)?;
        let now = state.clock.now();
        let locked = Config::from([("lock".to_owned(), "create".to_owned())]);
        state.containers.insert(newid, Guest::container(newid, &ctx.node, locked, now));
        let source = state.container_mut(&ctx.node, ctx.vmid).map_err(failed)?;
        source.config.insert("lock".into(), "disk".into());
    }
    let cluster = ctx.cluster.clone();
    Ok(ctx.cluster.fork(&ctx.call.caller, &ctx.node, "vzclone", ctx.vmid, |worker| async move {
        worker.catch_signals();
        let mut created = Vec::new();
        let copied = cluster.copy_container(&worker, &job, &mut created).await;
        if let Ok(source) = cluster.state().container_mut(&job.node, job.source) {
            source.config.remove("lock");
        }
        if let Err(error) = copied {
            cluster.free_volumes(&job.node, &created, Some(&worker)).await;
            cluster.state().containers.remove(&job.newid);
            return Err(format!("clone failed: {error}"));
        }
        cluster.guest_host.clone_disk(job.source, job.newid, false).await?;
        match &job.pool {
            Some(pool) => cluster.join_pool(pool, job.newid, &worker).await,
            None => Ok(()),
        }
    }))
}

fn check_clone(
    ctx: &CallContext,
    newid: u32,
    pool: Option<String>,
) -> Result<ContainerCloneJob, ApiError> {
    let target = ctx.text("target").unwrap_or_else(|| ctx.node.clone());
    let storage = ctx.text("storage");
    let (config, template, running) = {
        let mut state = ctx.cluster.state();
        ctx.cluster.refresh_container(&mut state, ctx.vmid);
        let guest = state.container(&ctx.node, ctx.vmid).map_err(failed)?;
        guest.ensure_unlocked().map_err(failed)?;
        if !state.nodes.contains_key(&target) {
            return Err(failed(format!("no such cluster node '{target}'")));
        }
        let config = match ctx.text("snapname") {
            None => guest.config.clone(),
            Some(name) => match guest.snapshots.get(&name) {
                Some(snapshot) => snapshot.config.clone(),
                None => return Err(failed(format!("snapshot '{name}' does not exist"))),
            },
        };
        (config, guest.is_template(), guest.process.is_some())
    };
    let full = if ctx.params().0.contains_key("full") { ctx.flag("full") } else { !template };
    if full && running && ctx.text("snapname").is_none() {
        let text = "Cannot do full clones on a running container without snapshots";
        return Err(failed(text.into()));
    }
    if !full && storage.is_some() {
        return Err(failed("parameter 'storage' not allowed for linked clones".into()));
    }
    for (_, drive) in mounts(&config) {
        let own = drive.storage().unwrap_or_default();
        let target_storage = storage.as_deref().unwrap_or(own);
        ctx.check(&format!("/storage/{target_storage}"), &["Datastore.AllocateSpace"])?;
    }
    ctx.check_may_change_container(pool.as_deref(), &network_keys(&config), &[])
        .or_else(|error| if error.message.contains("/sdn/") { Err(error) } else { Ok(()) })?;
    let state = ctx.cluster.state();
    for (key, drive) in mounts(&config) {
        let found = state.storage_of(&drive.file).map_err(failed)?;
        if !full && !is_linkable(&state, &drive) {
            let volid = &drive.file;
            let text = format!("Linked clone feature for '{volid}' is not available ({key})");
            return Err(failed(text));
        }
        if target != ctx.node && !found.spec.shared {
            let text = format!("can't clone CT to node '{target}' (CT uses local storage)");
            return Err(failed(text));
        }
    }
    if let Some(storage) = &storage {
        let found = state.storage(storage).map_err(failed)?;
        if !found.accepts("rootdir") {
            let text = format!("storage '{storage}' does not support container directories");
            return Err(failed(text));
        }
    }
    Ok(ContainerCloneJob {
        node: ctx.node.clone(),
        source: ctx.vmid,
        newid,
        full,
        hostname: ctx.text("hostname"),
        description: ctx.text("description").and_then(|text| stored_description(&text)),
        storage,
        target,
        pool,
        config,
    })
}

fn network_keys(config: &Config) -> Config {
    let nics = config.iter().filter(|(key, _)| numbered(key, "net").is_some());
    nics.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// Whether a linked clone is possible: an image file on a directory storage cannot be one.
fn is_linkable(state: &State, drive: &Drive) -> bool {
    let storage = state.storage_of(&drive.file).ok();
    storage.is_some_and(|storage| {
        storage.can_link(&drive.file, false)
            && (!storage.is_file_based() || storage.has_subvolumes())
    })
}

impl Cluster {
    async fn copy_container(
        self: &Arc<Self>,
        worker: &Worker,
        job: &ContainerCloneJob,
        created: &mut Vec<String>,
    ) -> Result<(), String> {
        let mut config = self.copied_config(job);
        for (key, drive) in mounts(&job.config) {
            let copy = if job.full {
                worker.log(format!("create full clone of mountpoint {key} ({})", drive.file));
                self.copy_mount(worker, job, &drive, created).await?
            } else {
                worker.log(format!("create linked clone of mountpoint {key} ({})", drive.file));
                self.link_mount(worker, job, &drive).await?
            };
            if !created.contains(&copy.file) {
                created.push(copy.file.clone());
            }
            config.insert(key, copy.print());
        }
        let mut state = self.state();
        let guest = state.container_mut(&job.node, job.newid)?;
        guest.config = config;
        if job.target != job.node {
            guest.node.clone_from(&job.target);
            guest.broadcast.last = None;
        }
        Ok(())
    }

    fn copied_config(&self, job: &ContainerCloneJob) -> Config {
        let mut state = self.state();
        let dropped = ["template", "parent", "snaptime", "lock"];
        let mut config = Config::new();
        for (key, value) in &job.config {
            if dropped.contains(&key.as_str()) || numbered(key, "unused").is_some() {
                continue;
            }
            let value = if numbered(key, "net").is_some() {
                let mut nic = Drive::parse(value);
                nic.options.remove("hwaddr");
                let pairs = nic.options.iter().map(|(key, value)| format!("{key}={value}"));
                let bare = pairs.collect::<Vec<_>>().join(",");
                super::create::with_mac_address(&bare, &mut state)
            } else {
                value.clone()
            };
            config.insert(key.clone(), value);
        }
        let default = match job.config.get("hostname") {
            Some(name) => format!("Copy-of-{name}"),
            None => format!("Copy-of-CT-{}", job.source),
        };
        config.insert("hostname".into(), job.hostname.clone().unwrap_or(default));
        if let Some(description) = &job.description {
            config.insert("description".into(), description.clone());
        }
        config
    }

    async fn copy_mount(
        self: &Arc<Self>,
        worker: &Worker,
        job: &ContainerCloneJob,
        drive: &Drive,
        created: &mut Vec<String>,
    ) -> Result<Drive, String> {
        let size = {
            let state = self.state();
            let volume = state.storage_of(&drive.file)?.volume(&job.node, &drive.file);
            volume.map(|volume| volume.size)
        };
        let size = size.ok_or_else(|| format!("volume '{}' does not exist", drive.file))?;
        let own = drive.storage().unwrap_or_default().to_owned();
        let storage = job.storage.clone().unwrap_or(own);
        let request =
            VolumeRequest { vmid: job.newid, purpose: VolumePurpose::Root, format: None, size };
        let spread = self.latency.allocate;
        let volume = self.with_storage_lock(&job.node, &storage, Some(worker), spread, |state| {
            let now = state.clock.unix();
            state.storage_mut(&storage)?.allocate(&job.node, &request, now)
        });
        let (volid, _) = volume.await?;
        created.push(volid.clone());
        let span = {
            let mut state = self.state();
            self.latency.copy_bytes_per_second.transfer(size, &mut state.random)
        };
        if !worker.sleep(span).await {
            return Err("interrupted by signal".into());
        }
        let mut options = drive.options.clone();
        options.insert("size".into(), print_size(size));
        Ok(Drive { file: volid, options })
    }

    async fn link_mount(
        self: &Arc<Self>,
        worker: &Worker,
        job: &ContainerCloneJob,
        drive: &Drive,
    ) -> Result<Drive, String> {
        let storage = drive.storage().unwrap_or_default().to_owned();
        let spread = self.latency.clone_linked;
        let linked = self.with_storage_lock(&job.node, &storage, Some(worker), spread, |state| {
            let now = state.clock.unix();
            state.storage_mut(&storage)?.link(&job.node, &drive.file, job.newid, now)
        });
        let (volid, _) = linked.await?;
        Ok(Drive { file: volid, options: drive.options.clone() })
    }
}

/// `POST …/template`: synchronous, no task.
pub(crate) async fn template(ctx: &CallContext) -> Outcome {
    let _file = ctx.cluster.container_lock(&ctx.node, ctx.vmid, None).await.map_err(failed)?;
    ctx.cluster.simulate_work(&ctx.node, ctx.cluster.latency.template, None).await;
    let mut state = ctx.cluster.state();
    ctx.cluster.refresh_container(&mut state, ctx.vmid);
    let guest = state.container(&ctx.node, ctx.vmid).map_err(failed)?;
    guest.ensure_unlocked().map_err(failed)?;
    if !guest.snapshots.is_empty() {
        let text = "unable to create template, because CT contains snapshots";
        return Err(failed(text.into()));
    }
    if guest.is_template() {
        return Err(failed("you can't convert a template to a template".into()));
    }
    if guest.process.is_some() {
        return Err(failed("you can't convert a CT to template if the CT is running".into()));
    }
    let config = guest.config.clone();
    for (key, drive) in mounts(&config) {
        let name = drive.storage().unwrap_or_default().to_owned();
        let storage = state.storage_mut(&name).map_err(failed)?;
        if let Some(base) = storage.make_base(&ctx.node, &drive.file) {
            let renamed = Drive { file: base, ..drive }.print();
            let guest = state.container_mut(&ctx.node, ctx.vmid).map_err(failed)?;
            guest.config.insert(key, renamed);
        }
    }
    let guest = state.container_mut(&ctx.node, ctx.vmid).map_err(failed)?;
    guest.config.insert("template".into(), "1".into());
    Ok(Answer::null())
}

/// `GET …/feature`.
pub(crate) fn feature(ctx: &CallContext) -> Outcome {
    let wanted = ctx.text("feature").unwrap_or_default();
    let state = ctx.cluster.state();
    let guest = state.container(&ctx.node, ctx.vmid).map_err(failed)?;
    let has = mounts(&guest.config).iter().all(|(_, drive)| {
        let Ok(storage) = state.storage_of(&drive.file) else { return false };
        match wanted.as_str() {
            "snapshot" => super::snapshot::supports_snapshots(storage),
            "clone" => is_linkable(&state, drive),
            _ => checks::content_of(&drive.file) == "images",
        }
    });
    Ok(Answer::new(json!({ "hasFeature": u8::from(has) })))
}
