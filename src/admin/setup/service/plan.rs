//! Works out the calls from what exists to what is wanted, and the privileges that they need.
//!
//! In: [`GuestSpec`] and the [`ClusterState`] that was read for it. Out: a [`ServicePlan`]. For a
//! new guest the plan downloads the template where that is needed, makes the container or clones
//! the virtual machine, configures it, and starts it. For an existing guest only the start may be
//! left: a plan never changes a guest that runs.
//!
//! A text for people refuses what does not fit, and names what would: another storage or bridge, a
//! free VMID, the templates that Proxmox offers.

use proxmox_client::transport::encode;

use super::cluster_state::{ClusterState, MachineTemplate, OwnGuest, storages_for};
use super::{GuestSpec, InstallMethod, Marks, TAG, VMID_RANGE};
use crate::setup::step::{Needed, Step};

/// The calls, the privileges that they need, and notes for people.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServicePlan {
    /// The calls in their order; none where the guest exists and runs.
    pub steps: Vec<Step>,
    /// The privileges of all calls.
    pub needed: Needed,
    /// What people should know.
    pub notes: Vec<String>,
    pub vmid: u32,
    /// The guest's node.
    pub node: String,
    pub container: bool,
}

impl ServicePlan {
    fn of(vmid: u32, node: &str, container: bool) -> Self {
        Self { vmid, node: node.to_owned(), container, ..Self::default() }
    }

    /// The guest's path in the API.
    pub fn place(&self) -> String {
        let kind = if self.container { "lxc" } else { "qemu" };
        format!("/nodes/{}/{kind}/{}", encode(&self.node), self.vmid)
    }

    fn need<const N: usize>(&mut self, path: &str, privileges: [&'static str; N]) {
        self.needed.extend(privileges.map(|one| (path.to_owned(), one)));
    }

    /// Adds the call that starts the guest, by high availability where that is wanted.
    fn started(&mut self, ha: bool, rights: &str) {
        if ha {
            let sid = format!("{}:{}", if self.container { "ct" } else { "vm" }, self.vmid);
            let with = [("sid", &*sid), ("state", "started"), ("comment", "drover runs here")];
            self.steps.push(Step::create("/cluster/ha/resources", with));
            self.need("/", ["Sys.Console"]);
        } else {
            self.steps.push(Step::create(format!("{}/status/start", self.place()), []));
            self.need(rights, ["VM.PowerMgmt"]);
        }
    }
}

/// Works out the calls. Pure.
///
/// # Errors
/// What does not fit, and what would.
pub fn plan(wanted: &GuestSpec, now: &ClusterState) -> Result<ServicePlan, String> {
    if let Some(own) = &now.own {
        return plan_existing(wanted, now, own);
    }
    check_place(wanted, now)?;
    let vmid = choose_vmid(wanted, now)?;
    let mut plan = ServicePlan::of(vmid, &now.node, wanted.is_container());
    let marks = Marks {
        name: wanted.hostname.clone(),
        vmid,
        cluster: now.cluster.clone().ok_or("the id of the cluster is unknown")?,
    };
    match &wanted.source {
        InstallMethod::Container { template, storage } => {
            container(&mut plan, wanted, now, &marks, (template, storage.as_deref()))?;
        }
        InstallMethod::Machine(_) => {
            let original = now.original.as_ref().ok_or("the template is unknown")?;
            machine(&mut plan, wanted, &marks, original)?;
        }
    }
    let (bridge, _) = wanted.bridge();
    let zone = now.vnets.get(bridge).map_or("localnetwork", String::as_str);
    plan.need(&format!("/sdn/zones/{zone}/{bridge}"), ["SDN.Use"]);
    plan.need(&format!("/storage/{}", wanted.storage), ["Datastore.AllocateSpace"]);
    let rights = where_made(&plan, wanted);
    plan.started(wanted.ha, &rights);
    Ok(plan)
}

/// The calls that are left for an existing guest.
fn plan_existing(
    wanted: &GuestSpec,
    now: &ClusterState,
    own: &OwnGuest,
) -> Result<ServicePlan, String> {
    let mut plan = ServicePlan::of(own.vmid, &own.node, own.container);
    let rights = format!("/vms/{}", own.vmid);
    if own.container != wanted.is_container() {
        let (is, asked) = if own.container {
            ("container", "virtual machine")
        } else {
            ("virtual machine", "container")
        };
        let name = &wanted.hostname;
        return Err(format!(
            "`{name}` is already the {is} {}, and a {asked} is wanted; choose another name with \
             --hostname, or remove that one first",
            own.vmid
        ));
    }
    if let Some(vmid) = wanted.vmid.filter(|vmid| *vmid != own.vmid) {
        let (name, own) = (&wanted.hostname, own.vmid);
        return Err(format!("`{name}` is already guest {own}, not {vmid}; leave the VMID out"));
    }
    if wanted.ha && !own.managed {
        check_shared(wanted, now)?;
        plan.started(true, &rights);
    } else if !own.running {
        plan.started(false, &rights);
    }
    Ok(plan)
}

/// Checks that the storage and the bridge exist on the node.
fn check_place(wanted: &GuestSpec, now: &ClusterState) -> Result<(), String> {
    let GuestSpec { storage, .. } = wanted;
    let node = &now.node;
    let content = if wanted.is_container() { "rootdir" } else { "images" };
    let able = storages_for(&now.storages, content);
    if !able.contains(storage) {
        let why = match now.storages.iter().find(|one| one.storage == *storage) {
            None => format!("node {node} has no storage `{storage}`"),
            Some(_) => {
                format!("storage `{storage}` is not active on {node}, or takes no {content}")
            }
        };
        return Err(format!("{why}; choose one with --storage: {}", able.join(", ")));
    }
    let (bridge, _) = wanted.bridge();
    if !now.bridges.contains(bridge) {
        let known = now.bridges.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        let text =
            format!("node {node} has no bridge `{bridge}`; choose one with --bridge: {known}");
        return Err(text);
    }
    if wanted.ha { check_shared(wanted, now) } else { Ok(()) }
}

/// Checks that other nodes can reach the disk, because high availability starts the guest there.
fn check_shared(wanted: &GuestSpec, now: &ClusterState) -> Result<(), String> {
    let storage = &wanted.storage;
    let found = now.storages.iter().find(|one| one.storage == *storage);
    if found.is_none_or(|one| one.shared) {
        return Ok(());
    }
    let content = if wanted.is_container() { "rootdir" } else { "images" };
    let able = storages_for(&now.storages, content);
    let check_shared = now.storages.iter().filter(|one| one.shared && able.contains(&one.storage));
    let check_shared = check_shared.map(|one| one.storage.as_str()).collect::<Vec<_>>().join(", ");
    let there = if check_shared.is_empty() { "none" } else { &check_shared };
    Err(format!(
        "storage `{storage}` is local to {}: while that node is down no other node can reach the disk, \
         so --ha could not start the guest elsewhere; shared storages: {there}",
        now.node
    ))
}

fn choose_vmid(wanted: &GuestSpec, now: &ClusterState) -> Result<u32, String> {
    let next = || VMID_RANGE.clone().find(|id| !now.taken.contains(id));
    match wanted.vmid {
        Some(vmid) if now.taken.contains(&vmid) => Err(format!(
            "VMID {vmid} belongs to a guest that is not drover's `{}`; drover does not touch it; the \
             first free VMID is {}",
            wanted.hostname,
            next().map_or("none below 1000".to_owned(), |id| id.to_string())
        )),
        Some(vmid) => Ok(vmid),
        None => next().ok_or_else(|| {
            format!(
                "no VMID from {} to {} is free; give one with --vmid",
                VMID_RANGE.start,
                VMID_RANGE.end - 1
            )
        }),
    }
}

/// The part before the version in the name of an appliance template.
fn package(file: &str) -> &str {
    file.split('_').next().unwrap_or(file)
}

/// The numbers of the version in the name of an appliance template.
fn version(file: &str) -> Vec<u32> {
    let numbers = file.split('_').nth(1).unwrap_or_default().split(['.', '-']);
    numbers.filter_map(|word| word.parse().ok()).collect()
}

fn container(
    plan: &mut ServicePlan,
    wanted: &GuestSpec,
    now: &ClusterState,
    marks: &Marks,
    (template, plan_existing): (&str, Option<&str>),
) -> Result<(), String> {
    let file = |volume: &&String| volume.rsplit('/').next().unwrap_or_default().to_owned();
    let on = |volume: &&String| {
        plan_existing.is_none_or(|storage| volume.split(':').next() == Some(storage))
    };
    let here: Vec<&String> = now.templates.iter().filter(on).collect();
    let same = |name: &String| package(name) == package(template);
    let exact = here.iter().find(|volume| file(volume) == template);
    let newest = |names: &mut dyn Iterator<Item = String>| names.max_by_key(|name| version(name));
    let volume = if let Some(volume) = exact {
        (*volume).clone()
    } else {
        let offer = if now.offered.contains(template) {
            Some(template.to_owned())
        } else {
            newest(&mut now.offered.iter().filter(|name| same(name)).cloned())
        };
        let near = here.iter().filter(|volume| same(&file(volume)));
        let near = near.max_by_key(|volume| version(&file(volume))).copied();
        match (offer, near) {
            (Some(offer), near)
                if near.is_none_or(|one| version(&file(&one)) < version(&offer)) =>
            {
                download(plan, now, plan_existing, &offer)?
            }
            (_, Some(near)) => near.clone(),
            (_, None) => {
                let known = now.offered.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
                return Err(format!(
                    "template `{template}` is neither on a storage of {} nor offered by Proxmox, which \
                     offers {known}",
                    now.node
                ));
            }
        }
    };
    let found = file(&&volume);
    if found != template {
        plan.notes.push(format!("template {template} is not available; {found} is used"));
    }
    let (bridge, tag) = wanted.bridge();
    let mut net = format!("name=eth0,bridge={bridge},ip={}", wanted.ip);
    for (key, value) in [("gw", wanted.gateway.as_deref()), ("tag", tag)] {
        net.extend(value.map(|value| format!(",{key}={value}")));
    }
    let rootfs = format!("{}:{}", wanted.storage, wanted.disk);
    let all = [
        ("vmid", &*plan.vmid.to_string()),
        ("hostname", &wanted.hostname),
        ("ostemplate", &volume),
        ("rootfs", &rootfs),
        ("cores", &wanted.cores.to_string()),
        ("memory", &wanted.memory.to_string()),
        ("net0", &net),
        ("unprivileged", "1"),
        // Without nesting, systemd of Debian 12 and later cannot set up the sandboxes of its units.
        ("features", "nesting=1"),
        ("onboot", "1"),
        ("tags", TAG),
        ("description", &marks.describe()),
        ("ssh-public-keys", &wanted.public_key),
    ];
    let path = format!("/nodes/{}/lxc", encode(&plan.node));
    plan.steps.push(Step::create(path, all).with("pool", wanted.pool.as_deref()));
    let place = where_made(plan, wanted);
    plan.need(
        &place,
        [
            "VM.Allocate",
            "VM.Config.CPU",
            "VM.Config.Disk",
            "VM.Config.Memory",
            "VM.Config.Network",
            "VM.Config.Options",
            "VM.Audit",
        ],
    );
    Ok(())
}

fn where_made(plan: &ServicePlan, wanted: &GuestSpec) -> String {
    match &wanted.pool {
        Some(pool) => format!("/pool/{pool}"),
        None => format!("/vms/{}", plan.vmid),
    }
}

/// Adds the download of an appliance template; returns the volume that it becomes.
fn download(
    plan: &mut ServicePlan,
    now: &ClusterState,
    plan_existing: Option<&str>,
    template: &str,
) -> Result<String, String> {
    let able = storages_for(&now.storages, "vztmpl");
    let storage = match plan_existing {
        Some(storage) if able.iter().any(|one| one == storage) => storage,
        Some(storage) => {
            let text = format!("storage `{storage}` on {} takes no container templates", now.node);
            return Err(text);
        }
        None => able.first().ok_or_else(|| {
            let node = &now.node;
            format!(
                "no storage of {node} takes container templates; allow it: pvesm set local --content vztmpl,…"
            )
        })?,
    };
    let path = format!("/nodes/{}/aplinfo", encode(&plan.node));
    plan.steps.push(Step::create(path, [("storage", storage), ("template", template)]));
    plan.need(&format!("/storage/{storage}"), ["Datastore.AllocateTemplate"]);
    Ok(format!("{storage}:vztmpl/{template}"))
}

/// The boot disk of a virtual machine, and its size in GiB.
fn boot_disk(original: &MachineTemplate) -> Option<(&str, u32)> {
    let size = |value: &str| {
        let size = value.split(',').find_map(|part| part.strip_prefix("size="))?;
        let number: u32 = size.trim_end_matches(char::is_alphabetic).parse().ok()?;
        Some(match size.chars().last()? {
            'T' => number.saturating_mul(1024),
            'M' => number.div_ceil(1024),
            _ => number,
        })
    };
    let keys = ["scsi0", "virtio0", "sata0", "ide0"].into_iter();
    let disks = keys.filter_map(|key| Some((key, original.config.get(key)?)));
    let disks = disks.filter(|(_, value)| !value.contains("media=cdrom"));
    disks.map(|(key, value)| (key, size(value).unwrap_or(0))).next()
}

fn machine(
    plan: &mut ServicePlan,
    wanted: &GuestSpec,
    marks: &Marks,
    original: &MachineTemplate,
) -> Result<(), String> {
    let MachineTemplate { vmid: source, node, config } = original;
    let Some((disk, size)) = boot_disk(original) else {
        return Err(format!("template {source} has no disk"));
    };
    let vmid = plan.vmid.to_string();
    let all = [
        ("newid", &*vmid),
        ("name", &wanted.hostname),
        ("full", "1"),
        ("storage", &wanted.storage),
        ("description", &marks.describe()),
    ];
    let target = (plan.node != *node).then_some(plan.node.as_str());
    let clone = Step::create(format!("/nodes/{}/qemu/{source}/clone", encode(node)), all);
    plan.steps.push(clone.with("target", target).with("pool", wanted.pool.as_deref()));
    let (bridge, tag) = wanted.bridge();
    let net =
        format!("virtio,bridge={bridge}{}", tag.map_or(String::new(), |tag| format!(",tag={tag}")));
    let mut ip = format!("ip={}", wanted.ip);
    ip.extend(wanted.gateway.as_ref().map(|gateway| format!(",gw={gateway}")));
    let tags = match config.get("tags").filter(|tags| !tags.is_empty()) {
        Some(tags) => format!("{tags};{TAG}"),
        None => TAG.to_owned(),
    };
    let all = [
        ("cores", &*wanted.cores.to_string()),
        ("memory", &wanted.memory.to_string()),
        ("net0", &net),
        ("ciuser", "root"),
        ("sshkeys", &encode(&wanted.public_key)),
        ("ipconfig0", &ip),
        ("onboot", "1"),
        ("tags", &tags),
    ];
    plan.steps.push(Step::set(format!("{}/config", plan.place()), all));
    if wanted.disk > size {
        let grown = [("disk", disk), ("size", &format!("{}G", wanted.disk))];
        plan.steps.push(Step::set(format!("{}/resize", plan.place()), grown));
    }
    let agent = config
        .get("agent")
        .is_some_and(|value| value.starts_with('1') || value.contains("enabled=1"));
    if wanted.ip == "dhcp" && !agent {
        return Err(format!(
            "template {source} has no guest agent, so Proxmox cannot report the address from DHCP; give \
             one with --ip and --gateway"
        ));
    }
    plan.need(&format!("/vms/{source}"), ["VM.Clone", "VM.Audit"]);
    let place = where_made(plan, wanted);
    plan.need(
        &place,
        [
            "VM.Allocate",
            "VM.Config.CPU",
            "VM.Config.Cloudinit",
            "VM.Config.Disk",
            "VM.Config.Memory",
            "VM.Config.Network",
            "VM.Config.Options",
            "VM.Audit",
        ],
    );
    Ok(())
}
