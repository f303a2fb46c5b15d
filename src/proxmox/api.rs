//! Typed calls for guests, one function for each, with their storages and tasks.
//!
//! - cluster: [`Client::cluster_status`], [`Client::resources`], [`Client::cluster_tasks`],
//!   [`Client::check_free_id`].
//! - guests: [`Client::config`], [`Client::set_config`], [`Client::clone_guest`],
//!   [`Client::start`], [`Client::shutdown`], [`Client::stop`], [`Client::destroy`], snapshots,
//!   [`Client::create_guest`], [`Client::make_template`].
//!   Each takes a VMID, or a [`GuestId`] where the guest may be a container.
//! - containers: [`Client::create_container`], [`Client::container_interfaces`].
//! - what people do with one guest: power, snapshots, pending changes: `machine.rs`.
//! - guest agent: [`Client::interfaces`], [`Client::read_file`].
//! - storages: [`Client::volumes`], [`Client::files`], [`Client::upload`],
//!   [`Client::upload_iso`], [`Client::download_url`], [`Client::free_volume`].
//! - tasks: [`Client::task_status`], [`Client::task_log`], [`Client::running_tasks`].
//!
//! A call that starts a task returns the task's name ([`Upid`]) at once; its end must be read. What
//! an answer means is up to the caller. All calls fail with a [`PveError`].

use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use crate::client::{Client, Params};
use crate::error::{Call, PveError};
use crate::guest_id::GuestId;
use crate::transport::{Method, UploadFile, encode};
use crate::types::{
    Certificate, ContainerInterface, Current, FileRead, GuestInterface, LogLine, Resource,
    StatusItem, Storage, TaskRow, TaskStatus, Version, VmConfig, Volume,
};
use crate::upid::{Upid, task_node};

/// The most lines that are read of a task's log.
const LOG_LINES_MAX: u32 = 1000;

/// The most tasks that are listed of a node: its index keeps about half as many.
const TASKS_LISTED_MAX: &str = "4000";

/// The most tasks that are listed of one guest.
const GUEST_TASKS_LISTED_MAX: &str = "50";

/// The most failed tasks of one kind that are listed of a node.
const FAILED_TASKS_LISTED_MAX: &str = "5";

pub(crate) fn params<const N: usize>(pairs: [(&str, &str); N]) -> Params {
    pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
}

pub(crate) fn guest(node: &str, id: impl Into<GuestId>, rest: &str) -> String {
    format!("/nodes/{}/{}{rest}", encode(node), id.into().path())
}

fn task(upid: &str, rest: &str) -> String {
    format!("/nodes/{}/tasks/{}/{rest}", encode(task_node(upid)), encode(upid))
}

impl Client {
    /// The version of the node that answers.
    pub async fn version(&self) -> Result<Version, PveError> {
        self.get("/version", Params::new()).await
    }

    /// Quorum and nodes as the endpoint sees them, with the index of that endpoint.
    pub async fn cluster_status(&self) -> Result<(usize, Vec<StatusItem>), PveError> {
        let call = Call::new(Method::Get, "/cluster/status");
        let answer = self.call(&call, Params::new()).await?;
        Ok((answer.endpoint, answer.read(&call)?))
    }

    /// The rows of the cluster's list, with the index of the endpoint that answered; only guests if
    /// `guests_only`.
    pub async fn resources(&self, guests_only: bool) -> Result<(usize, Vec<Resource>), PveError> {
        let filter = if guests_only { params([("type", "vm")]) } else { Params::new() };
        let call = Call::new(Method::Get, "/cluster/resources");
        let answer = self.call(&call, filter).await?;
        Ok((answer.endpoint, answer.read(&call)?))
    }

    /// The storages of all nodes.
    pub async fn all_storages(&self) -> Result<Vec<Resource>, PveError> {
        self.get("/cluster/resources", params([("type", "storage")])).await
    }

    /// Running and recent tasks of the whole cluster that the login may see.
    pub async fn cluster_tasks(&self) -> Result<Vec<TaskRow>, PveError> {
        self.get("/cluster/tasks", Params::new()).await
    }

    /// Asks whether a VMID is free (`nextid?vmid=N`) and returns the index of the endpoint that
    /// answered. A VMID that is taken is an error.
    pub async fn check_free_id(&self, vmid: u32) -> Result<usize, PveError> {
        let call = Call::new(Method::Get, "/cluster/nextid");
        let answer = self.call(&call, params([("vmid", &vmid.to_string())])).await?;
        answer.read::<Value>(&call).map(|_| answer.endpoint)
    }

    /// The certificates of the node that answers, and of the authority that signed them.
    pub async fn certificates(&self) -> Result<Vec<Certificate>, PveError> {
        self.get("/nodes/localhost/certificates/info", Params::new()).await
    }

    /// The login's privileges on a path, or on all paths.
    pub async fn permissions(&self, path: Option<&str>) -> Result<Value, PveError> {
        let filter = path.map(|path| ("path".to_owned(), path.to_owned()));
        self.get("/access/permissions", filter.into_iter().collect()).await
    }

    /// A guest's configuration, with pending changes merged in.
    pub async fn config(&self, node: &str, vmid: impl Into<GuestId>) -> Result<VmConfig, PveError> {
        self.get(&guest(node, vmid, "/config"), Params::new()).await
    }

    /// Changes a guest's configuration; the change is complete when this returns.
    pub async fn set_config(
        &self,
        node: &str,
        vmid: impl Into<GuestId>,
        changes: Params,
    ) -> Result<(), PveError> {
        let path = guest(node, vmid, "/config");
        self.write::<Value>(Method::Put, &path, changes).await.map(drop)
    }

    /// Starts a clone of `source` with these parameters.
    pub async fn clone_guest(
        &self,
        node: &str,
        source: impl Into<GuestId>,
        how: Params,
    ) -> Result<Upid, PveError> {
        self.start_task(Method::Post, &guest(node, source, "/clone"), how).await
    }

    /// Starts to grow a disk to a size in GiB. Nodes before qemu-server 8.0.2 do it at once and
    /// return no task.
    pub async fn resize(
        &self,
        node: &str,
        vmid: impl Into<GuestId>,
        disk: &str,
        gib: u32,
    ) -> Result<Option<Upid>, PveError> {
        let how = params([("disk", disk), ("size", &format!("{gib}G"))]);
        let path = guest(node, vmid, "/resize");
        let upid: Option<String> = self.write(Method::Put, &path, how).await?;
        Ok(upid.map(Upid::new))
    }

    /// Starts to make a guest with this configuration; its VMID is taken when this returns.
    pub async fn create_guest(&self, node: &str, config: Params) -> Result<Upid, PveError> {
        self.start_task(Method::Post, &format!("/nodes/{}/qemu", encode(node)), config).await
    }

    /// Starts to turn a stopped guest into a template.
    pub async fn make_template(
        &self,
        node: &str,
        vmid: impl Into<GuestId>,
    ) -> Result<Upid, PveError> {
        self.start_task(Method::Post, &guest(node, vmid, "/template"), Params::new()).await
    }

    /// Starts a guest; the task ends when its QEMU runs.
    pub async fn start(&self, node: &str, vmid: impl Into<GuestId>) -> Result<Upid, PveError> {
        self.start_task(Method::Post, &guest(node, vmid, "/status/start"), Params::new()).await
    }

    /// Asks a guest to shut down, and stops it hard after `limit`.
    pub async fn shutdown(
        &self,
        node: &str,
        vmid: impl Into<GuestId>,
        limit: Duration,
    ) -> Result<Upid, PveError> {
        let how = params([("forceStop", "1"), ("timeout", &limit.as_secs().max(1).to_string())]);
        self.start_task(Method::Post, &guest(node, vmid, "/status/shutdown"), how).await
    }

    /// Stops a guest hard, even while a shutdown holds its lock.
    pub async fn stop(&self, node: &str, vmid: impl Into<GuestId>) -> Result<Upid, PveError> {
        let how = params([("overrule-shutdown", "1")]);
        self.start_task(Method::Post, &guest(node, vmid, "/status/stop"), how).await
    }

    /// Takes a snapshot, with the memory of a running guest if `memory`.
    pub async fn take_snapshot(
        &self,
        node: &str,
        vmid: impl Into<GuestId>,
        name: &str,
        memory: bool,
    ) -> Result<Upid, PveError> {
        let id = vmid.into();
        let mut how = params([("snapname", name)]);
        // Containers have no memory to save, and no such parameter.
        if !id.container {
            how.push(("vmstate".to_owned(), u8::from(memory).to_string()));
        }
        self.start_task(Method::Post, &guest(node, id, "/snapshot"), how).await
    }

    /// Rolls a guest back to a snapshot: stops it hard, restores it, and starts it.
    pub async fn rollback(
        &self,
        node: &str,
        vmid: impl Into<GuestId>,
        name: &str,
    ) -> Result<Upid, PveError> {
        let path = guest(node, vmid, &format!("/snapshot/{}/rollback", encode(name)));
        self.start_task(Method::Post, &path, params([("start", "1")])).await
    }

    /// Destroys a stopped guest and the disks in its configuration, and nothing else.
    pub async fn destroy(&self, node: &str, vmid: impl Into<GuestId>) -> Result<Upid, PveError> {
        let how = params([("purge", "1"), ("destroy-unreferenced-disks", "0")]);
        self.start_task(Method::Delete, &guest(node, vmid, ""), how).await
    }

    /// A guest's live status.
    pub async fn guest_status(
        &self,
        node: &str,
        vmid: impl Into<GuestId>,
    ) -> Result<Current, PveError> {
        self.get(&guest(node, vmid, "/status/current"), Params::new()).await
    }

    /// The guest's interfaces, or the guest agent's error, which comes inside an answer of 200.
    pub async fn interfaces(
        &self,
        node: &str,
        vmid: u32,
    ) -> Result<Result<Vec<GuestInterface>, String>, PveError> {
        #[derive(Deserialize)]
        struct Wrapped {
            result: Value,
        }
        let path = guest(node, vmid, "/agent/network-get-interfaces");
        let wrapped: Wrapped = self.get(&path, Params::new()).await?;
        if let Some(error) = wrapped.result.get("error") {
            let text = error.get("desc").and_then(Value::as_str).unwrap_or("an error of the agent");
            return Ok(Err(crate::refusal::bounded(text)));
        }
        let Value::Array(rows) = wrapped.result else { return Ok(Ok(Vec::new())) };
        let rows = rows.into_iter().take(256);
        Ok(Ok(rows.filter_map(|row| serde_json::from_value(row).ok()).collect()))
    }

    /// The interfaces of a container, which its node reads itself; empty while it is stopped.
    pub async fn container_interfaces(
        &self,
        node: &str,
        vmid: u32,
    ) -> Result<Vec<ContainerInterface>, PveError> {
        let path = guest(node, GuestId::container(vmid), "/interfaces");
        let rows: Option<Vec<Value>> = self.get(&path, Params::new()).await?;
        let rows = rows.unwrap_or_default().into_iter().take(256);
        Ok(rows.filter_map(|row| serde_json::from_value(row).ok()).collect())
    }

    /// Starts to make a container with this configuration; its VMID is taken when this returns.
    pub async fn create_container(&self, node: &str, config: Params) -> Result<Upid, PveError> {
        self.start_task(Method::Post, &format!("/nodes/{}/lxc", encode(node)), config).await
    }

    /// Lets a node download a template of Proxmox's own list of container templates.
    pub async fn download_listed_template(
        &self,
        node: &str,
        storage: &str,
        template: &str,
    ) -> Result<Upid, PveError> {
        let how = params([("storage", storage), ("template", template)]);
        self.start_task(Method::Post, &format!("/nodes/{}/aplinfo", encode(node)), how).await
    }

    /// The container templates on a storage of a node.
    pub async fn os_templates(&self, node: &str, storage: &str) -> Result<Vec<Volume>, PveError> {
        let path = format!("/nodes/{}/storage/{}/content", encode(node), encode(storage));
        self.get(&path, params([("content", "vztmpl")])).await
    }

    /// The storages of a node that hold disk images or volumes of containers.
    pub async fn guest_storages(&self, node: &str) -> Result<Vec<Storage>, PveError> {
        let path = format!("/nodes/{}/storage", encode(node));
        self.get(&path, params([("content", "images,rootdir"), ("enabled", "1")])).await
    }

    /// A guest's volumes on a storage, whatever their content. Proxmox takes volumes of a container
    /// that is gone for disk images, so the content cannot be a filter (pve-storage,
    /// Storage/Plugin.pm, `list_volumes`). Files without an owner are in the answer, too.
    pub async fn volumes_of_any_content(
        &self,
        node: &str,
        storage: &str,
        vmid: u32,
    ) -> Result<Vec<Volume>, PveError> {
        let path = format!("/nodes/{}/storage/{}/content", encode(node), encode(storage));
        self.get(&path, params([("vmid", &vmid.to_string())])).await
    }

    /// Reads a file in the guest through its agent.
    pub async fn read_file(&self, node: &str, vmid: u32, file: &str) -> Result<String, PveError> {
        let path = guest(node, vmid, "/agent/file-read");
        let read: FileRead = self.get(&path, params([("file", file)])).await?;
        Ok(read.content)
    }

    /// The storages of a node that hold disk images.
    pub async fn image_storages(&self, node: &str) -> Result<Vec<Storage>, PveError> {
        let path = format!("/nodes/{}/storage", encode(node));
        self.get(&path, params([("content", "images"), ("enabled", "1")])).await
    }

    /// A guest's volumes on a storage.
    pub async fn volumes(
        &self,
        node: &str,
        storage: &str,
        vmid: u32,
    ) -> Result<Vec<Volume>, PveError> {
        let (node, storage) = (encode(node), encode(storage));
        let path = format!("/nodes/{node}/storage/{storage}/content");
        self.get(&path, params([("content", "images"), ("vmid", &vmid.to_string())])).await
    }

    /// All disk images on a storage of a node.
    pub async fn all_volumes(&self, node: &str, storage: &str) -> Result<Vec<Volume>, PveError> {
        let (node, storage) = (encode(node), encode(storage));
        let path = format!("/nodes/{node}/storage/{storage}/content");
        self.get(&path, params([("content", "images")])).await
    }

    /// Lets a node download a file to one of its storages. A file that is there stays where its
    /// checksum is the one given.
    pub async fn download_url(
        &self,
        node: &str,
        storage: &str,
        how: Params,
    ) -> Result<Upid, PveError> {
        let path = format!("/nodes/{}/storage/{}/download-url", encode(node), encode(storage));
        self.start_task(Method::Post, &path, how).await
    }

    /// Uploads an ISO image and replaces one of the same name. The node checks `sha256`, in
    /// hexadecimal digits.
    pub async fn upload_iso(
        &self,
        node: &str,
        storage: &str,
        file: UploadFile,
        sha256: &str,
    ) -> Result<Upid, PveError> {
        self.upload(node, storage, ("iso", file), ("sha256", sha256)).await
    }

    /// Uploads a file of this content type and replaces one of the same name. The node checks the
    /// checksum of this algorithm, in hexadecimal digits.
    pub async fn upload(
        &self,
        node: &str,
        storage: &str,
        (content, file): (&str, UploadFile),
        (algorithm, sum): (&str, &str),
    ) -> Result<Upid, PveError> {
        let path = format!("/nodes/{}/storage/{}/upload", encode(node), encode(storage));
        // Proxmox accepts the fields only in this order.
        let how =
            params([("content", content), ("checksum-algorithm", algorithm), ("checksum", sum)]);
        let upid: String = self.send_file(&path, how, file).await?;
        Ok(Upid::new(upid))
    }

    /// The ISO images on a storage.
    pub async fn iso_images(&self, node: &str, storage: &str) -> Result<Vec<Volume>, PveError> {
        self.files(node, storage, "iso").await
    }

    /// The files of this content type on a storage.
    pub async fn files(
        &self,
        node: &str,
        storage: &str,
        content: &str,
    ) -> Result<Vec<Volume>, PveError> {
        let (node, storage) = (encode(node), encode(storage));
        let path = format!("/nodes/{node}/storage/{storage}/content");
        self.get(&path, params([("content", content)])).await
    }

    /// One storage of a node; none when the node has no storage of this name.
    pub async fn storage(&self, node: &str, storage: &str) -> Result<Option<Storage>, PveError> {
        let path = format!("/nodes/{}/storage", encode(node));
        let found: Vec<Storage> = self.get(&path, params([("storage", storage)])).await?;
        Ok(found.into_iter().find(|one| one.storage == storage))
    }

    /// Removes a volume that no guest's configuration names.
    pub async fn free_volume(&self, node: &str, volume: &str) -> Result<Upid, PveError> {
        let storage = volume.split(':').next().unwrap_or_default();
        let (node, storage) = (encode(node), encode(storage));
        let path = format!("/nodes/{node}/storage/{storage}/content/{}", encode(volume));
        self.start_task(Method::Delete, &path, Params::new()).await
    }

    /// The state of a task.
    pub async fn task_status(&self, upid: &str) -> Result<TaskStatus, PveError> {
        self.get(&task(upid, "status"), Params::new()).await
    }

    /// A task's log, at most 1000 lines; empty when the node has none.
    pub async fn task_log(&self, upid: &str) -> Result<Vec<LogLine>, PveError> {
        let filter = params([("limit", &LOG_LINES_MAX.to_string())]);
        let data: Value = self.get(&task(upid, "log"), filter).await?;
        Ok(serde_json::from_value(data).unwrap_or_default())
    }

    /// The running tasks of a node.
    pub async fn running_tasks(&self, node: &str) -> Result<Vec<TaskRow>, PveError> {
        let path = format!("/nodes/{}/tasks", encode(node));
        self.get(&path, params([("source", "active"), ("limit", TASKS_LISTED_MAX)])).await
    }

    /// The tasks of a node, running and ended, that started at `since` (seconds of the node's
    /// clock) or later.
    pub async fn tasks_since(&self, node: &str, since: u64) -> Result<Vec<TaskRow>, PveError> {
        let path = format!("/nodes/{}/tasks", encode(node));
        let since = since.to_string();
        let how = params([("source", "all"), ("since", &since), ("limit", TASKS_LISTED_MAX)]);
        self.get(&path, how).await
    }

    /// The newest tasks of one guest on a node, running and ended, that started at `since` (seconds of the
    /// node's clock) or later. A clone counts for the guest that it was made from.
    pub async fn tasks_of_guest(
        &self,
        node: &str,
        vmid: u32,
        since: u64,
    ) -> Result<Vec<TaskRow>, PveError> {
        let path = format!("/nodes/{}/tasks", encode(node));
        let (vmid, since) = (vmid.to_string(), since.to_string());
        let limit = GUEST_TASKS_LISTED_MAX;
        let how = params([("source", "all"), ("vmid", &vmid), ("since", &since), ("limit", limit)]);
        self.get(&path, how).await
    }

    /// The newest tasks of one kind on a node that failed, and that started at `since` (seconds of the node's
    /// clock) or later.
    pub async fn failed_tasks(
        &self,
        node: &str,
        kind: &str,
        since: u64,
    ) -> Result<Vec<TaskRow>, PveError> {
        let path = format!("/nodes/{}/tasks", encode(node));
        let since = since.to_string();
        let limit = FAILED_TASKS_LISTED_MAX;
        let how =
            params([("errors", "1"), ("typefilter", kind), ("since", &since), ("limit", limit)]);
        self.get(&path, how).await
    }

    pub(crate) async fn start_task(
        &self,
        method: Method,
        path: &str,
        how: Params,
    ) -> Result<Upid, PveError> {
        let upid: String = self.write(method, path, how).await?;
        Ok(Upid::new(upid))
    }
}
