//! What is free on each node at this moment, and whether a node may take an agent.

use std::collections::{BTreeMap, BTreeSet};

use drover_model::hardware::DeviceMapping;
use drover_model::id::{NodeName, VmId};
use drover_model::placement::Refusal;
use drover_model::placement::Sizes;
use drover_model::placement::Term;
use drover_model::placement::{Fleet, StorageObservation};
use drover_model::placement::{Headroom, PlacementSpec};
use drover_model::spec::TemplateSpec;

use super::claim::Claim;
use super::rank::Seat;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// What is taken of one node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Room {
    /// Whether the node's figures are known.
    pub known: bool,
    /// Its memory, in bytes.
    pub memory: u64,
    /// What others take of it, in bytes.
    pub others: u64,
    /// What drover's own agents take of it, in bytes.
    pub own: u64,
    /// Its processors, in thousandths.
    pub cpus: u64,
    /// What others keep busy.
    pub others_cpus: u64,
    /// What drover's own agents have.
    pub own_cpus: u64,
    /// Running guests of others.
    pub guests: usize,
    /// Drover's own agents.
    pub agents: usize,
}

impl Room {
    /// Free memory in bytes, when so much of a node may be promised; below zero where it is more.
    pub fn free_memory(&self, overcommit_percent: u64) -> i64 {
        let promised = self.memory / 100 * overcommit_percent;
        // A hundred parts are all of it, whatever the division left.
        let limit = if overcommit_percent == 100 { self.memory } else { promised };
        signed(limit) - signed(self.others) - signed(self.own)
    }

    /// Free processors in thousandths; below zero where more are promised.
    pub fn free_cpus(&self) -> i64 {
        signed(self.cpus) - signed(self.others_cpus) - signed(self.own_cpus)
    }
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// The nodes with guests that each term of affinity of a template means.
#[derive(Debug, Default)]
pub struct Crowds<'a> {
    apart: Vec<BTreeSet<&'a NodeName>>,
    together: Vec<BTreeSet<&'a NodeName>>,
}

/// One cluster at the moment of a decision.
pub struct Scene<'a> {
    fleet: &'a Fleet,
    claims: &'a [Claim],
    rooms: BTreeMap<&'a NodeName, Room>,
    /// How many devices of each mapping drover's own agents have on each node.
    devices: BTreeMap<(&'a NodeName, DeviceMapping), u32>,
}

impl<'a> Scene<'a> {
    /// Works out what is taken of every node: one pass over drover's own agents.
    pub fn new(fleet: &'a Fleet, claims: &'a [Claim]) -> Self {
        let mut rooms: BTreeMap<&NodeName, Room> = BTreeMap::new();
        for (name, node) in fleet.nodes() {
            let sums = fleet.sums(name);
            let mut room = Room { guests: sums.guests, others: sums.memory, ..Room::default() };
            if let Some(figures) = node.figures {
                room.known = true;
                room.memory = figures.memory;
                room.cpus = u64::from(figures.cpus) * 1000;
                room.others_cpus = figures.busy;
            }
            rooms.insert(name, room);
        }
        let mut used: BTreeMap<&NodeName, u64> = BTreeMap::new();
        let mut devices: BTreeMap<(&NodeName, DeviceMapping), u32> = BTreeMap::new();
        for claim in claims {
            for (mapping, count) in claim.spec.hardware.devices() {
                *devices.entry((&claim.node, mapping)).or_default() += count;
            }
            let listed = claim.vmid.and_then(|vmid| fleet.guests().get(&vmid));
            // What the list counts of it is not of others.
            if let Some(guest) = listed.filter(|guest| guest.running && !guest.template)
                && let Some(room) = rooms.get_mut(&guest.node)
            {
                room.guests = room.guests.saturating_sub(1);
                room.others = room.others.saturating_sub(guest.memory);
                room.others_cpus = room.others_cpus.saturating_sub(guest.busy);
                *used.entry(&guest.node).or_default() += guest.used;
            }
            let room = rooms.entry(&claim.node).or_default();
            let reported = listed.map_or(0, |guest| guest.memory);
            let memory = claim.sizes.memory_mb * MIB;
            room.agents += 1;
            room.own += if memory > 0 { memory } else { reported };
            let cores = if claim.sizes.cores > 0 {
                claim.sizes.cores
            } else {
                listed.map_or(0, |guest| guest.cpus)
            };
            room.own_cpus += u64::from(cores) * 1000;
        }
        for (name, room) in &mut rooms {
            let figures = fleet.nodes().get(*name).and_then(|node| node.figures);
            let in_use = figures.map_or(0, |figures| figures.used);
            let own = used.get(*name).copied().unwrap_or(0);
            room.others = room.others.max(in_use.saturating_sub(own));
        }
        Self { fleet, claims, rooms, devices }
    }

    /// What is taken of a node.
    pub fn room(&self, node: &NodeName) -> Room {
        self.rooms.get(node).copied().unwrap_or_default()
    }

    /// Where the guests are that a template's terms of affinity mean: one pass over all guests for
    /// each term, whatever the nodes.
    pub fn crowds(&self, spec: &TemplateSpec) -> Crowds<'a> {
        if spec.placement.anti_affinity.is_empty() && spec.placement.affinity.is_empty() {
            return Crowds::default();
        }
        let own: BTreeSet<VmId> = self.claims.iter().filter_map(|claim| claim.vmid).collect();
        let of =
            |terms: &[Term]| terms.iter().map(|term| self.matched(term, &own)).collect::<Vec<_>>();
        Crowds { apart: of(&spec.placement.anti_affinity), together: of(&spec.placement.affinity) }
    }

    /// Why a node takes no agent of this size, whatever stands before it otherwise.
    pub fn refusal(
        &self,
        spec: &TemplateSpec,
        crowds: &Crowds<'_>,
        sizes: Sizes,
        node: &NodeName,
    ) -> Option<Refusal> {
        let placement = &spec.placement;
        let carried = placement.labels.get(node);
        let lacks = |label: &&String| carried.is_none_or(|carried| !carried.contains(*label));
        if let Some(label) = placement.selector.iter().find(lacks) {
            return Some(Refusal::Label(label.clone()));
        }
        let room = self.room(node);
        let guests = room.guests + room.agents;
        if let Some(most) = placement.max_guests.filter(|most| guests >= *most as usize) {
            return Some(Refusal::Guests { count: guests, most });
        }
        self.short_of_room(placement, sizes, &room)
            .or_else(|| self.short_of_devices(spec, node))
            .or_else(|| unfit(spec, crowds, node))
    }

    /// Which resource mapping has no free device on a node. Agents of drover are counted: only
    /// Proxmox itself knows what guests of others have, and refuses a start then.
    fn short_of_devices(&self, spec: &TemplateSpec, node: &NodeName) -> Option<Refusal> {
        spec.hardware.devices().into_iter().find_map(|(mapping, needed)| {
            let count = self.fleet.devices(&mapping, node)?;
            if count < needed {
                return Some(Refusal::NoDevice { mapping, count, needed });
            }
            let taken = self.taken(&mapping, node);
            (taken + needed > count).then_some(Refusal::DevicesTaken {
                mapping,
                count,
                taken,
                needed,
            })
        })
    }

    /// Why a node takes no agent that is so much larger than one that it has.
    pub fn lacks_room(
        &self,
        placement: &PlacementSpec,
        more: Sizes,
        node: &NodeName,
    ) -> Option<Refusal> {
        self.short_of_room(placement, more, &self.room(node))
    }

    fn short_of_room(
        &self,
        placement: &PlacementSpec,
        sizes: Sizes,
        room: &Room,
    ) -> Option<Refusal> {
        if !room.known {
            return None;
        }
        let Headroom { memory_mb, memory_percent, cpu_percent, overcommit_percent, .. } =
            placement.headroom;
        let mib = |bytes: i64| bytes.div_euclid(signed(MIB));
        let free = mib(room.free_memory(overcommit_percent));
        let kept =
            memory_mb.max(placement.min_free_mb).max(share(room.memory, memory_percent) / MIB);
        let (needed, kept) = (signed(sizes.memory_mb), signed(kept));
        let whole = mib(signed(share(room.memory, overcommit_percent)));
        if needed + kept > whole {
            return Some(Refusal::Small { whole, needed, kept });
        }
        if needed + kept > free {
            return Some(Refusal::Memory { free, needed, kept });
        }
        let (free, needed) = (room.free_cpus(), i64::from(sizes.cores) * 1000);
        let kept = signed(share(room.cpus, cpu_percent));
        // Processors are shared: they are counted only where some must stay free.
        (cpu_percent > 0 && needed + kept > free).then_some(Refusal::Processors {
            free,
            needed,
            kept,
        })
    }

    /// The nodes with a guest that matches a term; of its own agents what their templates say counts.
    fn matched(&self, term: &Term, own: &BTreeSet<VmId>) -> BTreeSet<&'a NodeName> {
        let claims = self.claims.iter().filter(|claim| term.matches(labels(&claim.spec)));
        let others = self.fleet.guests().iter().filter(|(vmid, guest)| {
            let tags = || guest.tags.iter().map(String::as_str);
            !guest.template && !own.contains(vmid) && term.matches(tags())
        });
        claims.map(|claim| &claim.node).chain(others.map(|(_, guest)| &guest.node)).collect()
    }

    /// What is left of a node for the ranking, once it has an agent of this size.
    pub fn seat(
        &self,
        placement: &PlacementSpec,
        sizes: Sizes,
        at: usize,
        node: &NodeName,
    ) -> Seat {
        let room = self.room(node);
        let left = room.known.then(|| {
            let memory = room.free_memory(placement.headroom.overcommit_percent)
                - signed(sizes.memory_mb * MIB);
            let cpus = room.free_cpus() - i64::from(sizes.cores) * 1000;
            (memory.max(0).unsigned_abs(), cpus.max(0).unsigned_abs())
        });
        Seat { at, agents: room.agents, left }
    }

    /// The devices of a mapping that drover's own agents have on a node.
    fn taken(&self, mapping: &DeviceMapping, node: &NodeName) -> u32 {
        self.devices.get(&(node, mapping.clone())).copied().unwrap_or_default()
    }

    /// How many agents of a template a node has devices for; none where it needs none, or that is not
    /// known.
    fn fits_devices(&self, spec: &TemplateSpec, node: &NodeName) -> Option<u64> {
        let each = spec.hardware.devices().into_iter().filter_map(|(mapping, needed)| {
            let count = self.fleet.devices(&mapping, node)?;
            let taken = self.taken(&mapping, node);
            Some(u64::from(count.saturating_sub(taken) / needed.max(1)))
        });
        each.min()
    }

    /// How many agents of this size a node has memory and devices for; none where its figures are not
    /// known.
    pub fn fits(&self, spec: &TemplateSpec, sizes: Sizes, node: &NodeName) -> Option<u64> {
        let placement = &spec.placement;
        let room = self.room(node);
        if !room.known || sizes.memory_mb == 0 {
            return None;
        }
        let share = share(room.memory, placement.headroom.memory_percent);
        let kept = placement.headroom.memory_mb.max(placement.min_free_mb) * MIB;
        let free =
            room.free_memory(placement.headroom.overcommit_percent) - signed(kept.max(share));
        let fits = free.max(0).unsigned_abs() / (sizes.memory_mb * MIB);
        let guests = room.guests + room.agents;
        let most = placement.max_guests.map(|most| (most as usize).saturating_sub(guests) as u64);
        let devices = self.fits_devices(spec, node);
        Some([most, devices].into_iter().flatten().fold(fits, u64::min))
    }

    /// Bytes free on a storage, less what is being copied to it or is to be made on it; `None` where that is unknown.
    pub fn free_space(&self, storage: &StorageObservation) -> Option<i64> {
        let (used, size) = storage.space?;
        let own = (!storage.shared).then_some(&storage.node);
        let here = |claim: &&Claim| {
            let to = claim.storage.as_ref();
            to.is_some_and(|(name, node)| *name == storage.name && node.as_ref() == own)
        };
        let copied: u64 =
            self.claims.iter().filter(here).map(|claim| claim.sizes.disk_gb * GIB).sum();
        let reached =
            |claim: &&Claim| claim.awaits_disks && own.is_none_or(|own| claim.node == *own);
        let coming = self.claims.iter().filter(reached);
        let coming: u64 =
            coming.map(|claim| claim.spec.hardware.disks_on(&storage.name) * GIB).sum();
        Some(signed(size) - signed(used) - signed(copied) - signed(coming))
    }

    /// Why a storage takes no disk of so many GiB; `None` also where its figures are unknown.
    pub fn lacks_space(
        &self,
        storage: &StorageObservation,
        disk_gb: u64,
        headroom: &Headroom,
    ) -> Option<String> {
        let free = self.free_space(storage)?;
        let (_, size) = storage.space?;
        let kept = (headroom.disk_gb * GIB).max(share(size, headroom.disk_percent));
        let needed = signed(disk_gb * GIB);
        if needed + signed(kept) <= free {
            return None;
        }
        let gib = |bytes: i64| bytes.div_euclid(signed(GIB));
        let stays = match kept {
            0 => String::new(),
            kept => format!(" and {} GiB must stay free (`headroom`)", kept.div_ceil(GIB)),
        };
        Some(format!("{} GiB are free, {disk_gb} GiB are needed{stays}", gib(free)))
    }
}

/// Which term of affinity keeps an agent from a node.
fn unfit(spec: &TemplateSpec, crowds: &Crowds<'_>, node: &NodeName) -> Option<Refusal> {
    let placement = &spec.placement;
    let mut apart = placement.anti_affinity.iter().zip(&crowds.apart);
    if let Some((term, _)) = apart.find(|(_, nodes)| nodes.contains(node)) {
        return Some(Refusal::Crowded(term.to_string()));
    }
    let mut together = placement.affinity.iter().zip(&crowds.together);
    let alone = together.find(|(term, nodes)| {
        // The first of those that keep together may be anywhere.
        let first = nodes.is_empty() && term.matches(labels(spec));
        !nodes.contains(node) && !first
    });
    alone.map(|(term, _)| Refusal::Alone(term.to_string()))
}

fn share(of: u64, percent: u64) -> u64 {
    u64::try_from(u128::from(of) * u128::from(percent) / 100).unwrap_or(u64::MAX)
}

/// What terms of affinity see of an agent.
fn labels(spec: &TemplateSpec) -> impl Iterator<Item = &str> {
    spec.labels.iter().chain(&spec.tags).map(String::as_str)
}

#[cfg(test)]
mod tests;
