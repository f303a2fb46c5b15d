//! Cloning containers: the source is locked for as long as the copy takes, so that clones of one
//! template come strictly one after another.

use std::sync::Arc;

use serde_json::json;

use super::super::ask::{Ask, failed};
use super::super::conf::{Config, Drive, numbered, print_size};
use super::super::state::{Guest, State};
use super::super::storage::{Order, Purpose};
use super::super::worker::Worker;
use super::super::{Cluster, checks};
use super::{description, mounts};
use crate::call::{Answer, ApiError, Outcome};

#[derive(Debug)]
struct Job {
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

/// `POST …/clone`: takes the new id and the source's lock before it answers.
pub async fn clone(ask: &Ask) -> Outcome {
    let newid = ask.id("newid").unwrap_or(0);
    let pool = ask.text("pool");
    if let Some(pool) = pool.as_deref().filter(|pool| !ask.cluster.rights.pool_exists(pool)) {
        return Err(ApiError::denied(&format!("pool '{pool}' does not exist")));
    }
    ask.quorate()?;
    let _file = ask.cluster.container_lock(&ask.node, ask.vmid, None).await.map_err(failed)?;
    let job = plan(ask, newid, pool)?;
    {
        let mut state = ask.cluster.state();
        let fail = |text| failed(format!("unable to create CT {newid}: {text}"));
        state.id_is_free(newid).map_err(fail)?;
        let now = state.clock.now();
        let locked = Config::from([("lock".to_owned(), "create".to_owned())]);
        state.containers.insert(newid, Guest::container(newid, &ask.node, locked, now));
        let source = state.container_mut(&ask.node, ask.vmid).map_err(failed)?;
        source.config.insert("lock".into(), "disk".into());
    }
    let cluster = ask.cluster.clone();
    Ok(ask.cluster.fork(&ask.call.caller, &ask.node, "vzclone", ask.vmid, |worker| async move {
        worker.catch_signals();
        let mut made = Vec::new();
        let copied = cluster.copy_container(&worker, &job, &mut made).await;
        if let Ok(source) = cluster.state().container_mut(&job.node, job.source) {
            source.config.remove("lock");
        }
        if let Err(error) = copied {
            cluster.free_all(&job.node, &made, Some(&worker)).await;
            cluster.state().containers.remove(&job.newid);
            return Err(format!("clone failed: {error}"));
        }
        cluster.guests.clone_disk(job.source, job.newid);
        match &job.pool {
            Some(pool) => cluster.join_pool(pool, job.newid, &worker).await,
            None => Ok(()),
        }
    }))
}

fn plan(ask: &Ask, newid: u32, pool: Option<String>) -> Result<Job, ApiError> {
    let target = ask.text("target").unwrap_or_else(|| ask.node.clone());
    let storage = ask.text("storage");
    let (config, template, running) = {
        let mut state = ask.cluster.state();
        ask.cluster.look_at_container(&mut state, ask.vmid);
        let guest = state.container(&ask.node, ask.vmid).map_err(failed)?;
        guest.unlocked().map_err(failed)?;
        if !state.nodes.contains_key(&target) {
            return Err(failed(format!("no such cluster node '{target}'")));
        }
        let config = match ask.text("snapname") {
            None => guest.config.clone(),
            Some(name) => match guest.snapshots.get(&name) {
                Some(snapshot) => snapshot.config.clone(),
                None => return Err(failed(format!("snapshot '{name}' does not exist"))),
            },
        };
        (config, guest.is_template(), guest.run.is_some())
    };
    let full = if ask.params().0.contains_key("full") { ask.flag("full") } else { !template };
    if full && running && ask.text("snapname").is_none() {
        let text = "Cannot do full clones on a running container without snapshots";
        return Err(failed(text.into()));
    }
    if !full && storage.is_some() {
        return Err(failed("parameter 'storage' not allowed for linked clones".into()));
    }
    for (_, drive) in mounts(&config) {
        let own = drive.storage().unwrap_or_default();
        let place = storage.as_deref().unwrap_or(own);
        ask.check(&format!("/storage/{place}"), &["Datastore.AllocateSpace"])?;
    }
    ask.may_change_container(pool.as_deref(), &nics_only(&config), &[])
        .or_else(|error| if error.message.contains("/sdn/") { Err(error) } else { Ok(()) })?;
    let state = ask.cluster.state();
    for (key, drive) in mounts(&config) {
        let found = state.storage_of(&drive.file).map_err(failed)?;
        if !full && !linkable(&state, &drive) {
            let volid = &drive.file;
            let text = format!("Linked clone feature for '{volid}' is not available ({key})");
            return Err(failed(text));
        }
        if target != ask.node && !found.spec.shared {
            let text = format!("can't clone CT to node '{target}' (CT uses local storage)");
            return Err(failed(text));
        }
    }
    if let Some(storage) = &storage {
        let found = state.storage(storage).map_err(failed)?;
        if !found.takes("rootdir") {
            let text = format!("storage '{storage}' does not support container directories");
            return Err(failed(text));
        }
    }
    Ok(Job {
        node: ask.node.clone(),
        source: ask.vmid,
        newid,
        full,
        hostname: ask.text("hostname"),
        description: ask.text("description").and_then(|text| description(&text)),
        storage,
        target,
        pool,
        config,
    })
}

fn nics_only(config: &Config) -> Config {
    let nics = config.iter().filter(|(key, _)| numbered(key, "net").is_some());
    nics.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// Linked clones need a result that is no file: an image on a directory can not be one.
fn linkable(state: &State, drive: &Drive) -> bool {
    let storage = state.storage_of(&drive.file).ok();
    storage.is_some_and(|storage| {
        storage.links(&drive.file, false) && (!storage.is_files() || storage.has_subvolumes())
    })
}

impl Cluster {
    async fn copy_container(
        self: &Arc<Self>,
        worker: &Worker,
        job: &Job,
        made: &mut Vec<String>,
    ) -> Result<(), String> {
        let mut config = self.copied_config(job);
        for (key, drive) in mounts(&job.config) {
            let copy = if job.full {
                worker.log(format!("create full clone of mountpoint {key} ({})", drive.file));
                self.copy_mount(worker, job, &drive, made).await?
            } else {
                worker.log(format!("create linked clone of mountpoint {key} ({})", drive.file));
                self.link_mount(worker, job, &drive).await?
            };
            if !made.contains(&copy.file) {
                made.push(copy.file.clone());
            }
            config.insert(key, copy.print());
        }
        let mut state = self.state();
        let guest = state.container_mut(&job.node, job.newid)?;
        guest.config = config;
        if job.target != job.node {
            guest.node.clone_from(&job.target);
            guest.sight.published = None;
        }
        Ok(())
    }

    fn copied_config(&self, job: &Job) -> Config {
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
                super::create::with_address(&bare, &mut state)
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
        job: &Job,
        drive: &Drive,
        made: &mut Vec<String>,
    ) -> Result<Drive, String> {
        let size = {
            let state = self.state();
            let volume = state.storage_of(&drive.file)?.volume(&job.node, &drive.file);
            volume.map(|volume| volume.size)
        };
        let size = size.ok_or_else(|| format!("volume '{}' does not exist", drive.file))?;
        let own = drive.storage().unwrap_or_default().to_owned();
        let storage = job.storage.clone().unwrap_or(own);
        let order = Order { vmid: job.newid, purpose: Purpose::Root, format: None, size };
        let spread = self.latency.allocate;
        let volume = self.in_storage(&job.node, &storage, Some(worker), spread, |state| {
            let now = state.clock.unix();
            state.storage_mut(&storage)?.allocate(&job.node, &order, now)
        });
        let (volid, _) = volume.await?;
        made.push(volid.clone());
        let span = {
            let mut state = self.state();
            self.latency.copy_bytes_per_second.transfer(size, &mut state.dice)
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
        job: &Job,
        drive: &Drive,
    ) -> Result<Drive, String> {
        let storage = drive.storage().unwrap_or_default().to_owned();
        let spread = self.latency.clone_linked;
        let linked = self.in_storage(&job.node, &storage, Some(worker), spread, |state| {
            let now = state.clock.unix();
            state.storage_mut(&storage)?.link(&job.node, &drive.file, job.newid, now)
        });
        let (volid, _) = linked.await?;
        Ok(Drive { file: volid, options: drive.options.clone() })
    }
}

/// `POST …/template`: synchronous, no task.
pub async fn template(ask: &Ask) -> Outcome {
    let _file = ask.cluster.container_lock(&ask.node, ask.vmid, None).await.map_err(failed)?;
    ask.cluster.work(&ask.node, ask.cluster.latency.template, None).await;
    let mut state = ask.cluster.state();
    ask.cluster.look_at_container(&mut state, ask.vmid);
    let guest = state.container(&ask.node, ask.vmid).map_err(failed)?;
    guest.unlocked().map_err(failed)?;
    if !guest.snapshots.is_empty() {
        let text = "unable to create template, because CT contains snapshots";
        return Err(failed(text.into()));
    }
    if guest.is_template() {
        return Err(failed("you can't convert a template to a template".into()));
    }
    if guest.run.is_some() {
        return Err(failed("you can't convert a CT to template if the CT is running".into()));
    }
    let config = guest.config.clone();
    for (key, drive) in mounts(&config) {
        let name = drive.storage().unwrap_or_default().to_owned();
        let storage = state.storage_mut(&name).map_err(failed)?;
        if let Some(base) = storage.make_base(&ask.node, &drive.file) {
            let renamed = Drive { file: base, ..drive }.print();
            let guest = state.container_mut(&ask.node, ask.vmid).map_err(failed)?;
            guest.config.insert(key, renamed);
        }
    }
    let guest = state.container_mut(&ask.node, ask.vmid).map_err(failed)?;
    guest.config.insert("template".into(), "1".into());
    Ok(Answer::null())
}

/// `GET …/feature`.
pub fn feature(ask: &Ask) -> Outcome {
    let wanted = ask.text("feature").unwrap_or_default();
    let state = ask.cluster.state();
    let guest = state.container(&ask.node, ask.vmid).map_err(failed)?;
    let has = mounts(&guest.config).iter().all(|(_, drive)| {
        let Ok(storage) = state.storage_of(&drive.file) else { return false };
        match wanted.as_str() {
            "snapshot" => super::snapshot::possible(storage),
            "clone" => linkable(&state, drive),
            _ => checks::content_of(&drive.file) == "images",
        }
    });
    Ok(Answer::new(json!({ "hasFeature": u8::from(has) })))
}
