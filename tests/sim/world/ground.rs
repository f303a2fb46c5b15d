//! What the clusters hold besides drover's guests, and what an administrator changes of it.

use drover_model::seed::owner;

use super::*;

/// Guests and volumes that are not drover's, each with the number of its cluster.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Ground {
    pub(super) guests: BTreeMap<(usize, u32), BTreeMap<String, String>>,
    pub(super) volumes: BTreeMap<(usize, String, String), Vec<String>>,
}

impl World {
    /// What stands on the clusters belongs to them from here on and must stay.
    pub fn keep_ground(&mut self) {
        self.ground = self.survey();
    }

    /// What an administrator does on a node to be rid of a guest, config and volumes.
    pub fn administer(&self, vmid: u32) {
        let number = self.sides.number(vmid);
        let side = self.sides.at(number);
        side.remove_guest(vmid);
        let mine = format!("vm-{vmid}-");
        for ((at, node, _), volumes) in self.survey().volumes {
            for volid in volumes.iter().filter(|volid| at == number && volid.contains(&mine)) {
                side.remove_volume(&node, volid);
            }
        }
    }

    /// What a storage has now belongs to the cluster from here on.
    pub fn keep_volume(&mut self, node: &str, storage: &str) {
        let place = (0, node.to_owned(), storage.to_owned());
        let now = self.side.volumes(node, storage);
        self.ground.volumes.insert(place, now);
    }

    /// A guest that was planted belongs to the cluster from here on, with its volumes.
    pub fn keep_planted(&mut self, vmid: u32) {
        let (number, config) = (self.sides.number(vmid), self.sides.config(vmid));
        let config = config.unwrap_or_default();
        let ours = self.journal_state().installation;
        for (place, volumes) in self.survey().volumes {
            let kept = self.ground.volumes.entry(place).or_default();
            kept.extend(volumes.into_iter().filter(|volid| {
                let foreign = owner(volid).is_none_or(|(whose, _)| Some(whose) != ours);
                foreign && is_of(vmid, &config, volid)
            }));
            kept.sort();
            kept.dedup();
        }
        self.ground.guests.insert((number, vmid), config);
    }

    /// A guest of the cluster's own that was taken away belongs to it no more.
    pub fn drop_planted(&mut self, vmid: u32) {
        let number = self.sides.number(vmid);
        let config = self.ground.guests.remove(&(number, vmid)).unwrap_or_default();
        for volumes in self.ground.volumes.values_mut() {
            volumes.retain(|volid| !is_of(vmid, &config, volid));
        }
    }

    /// Whether a guest belongs to a cluster rather than to drover.
    pub fn is_ground(&self, vmid: u32) -> bool {
        self.ground.guests.keys().any(|(_, other)| *other == vmid)
    }

    /// VMIDs of drover's guests that are on the clusters.
    pub fn ours(&self) -> Vec<u32> {
        let of = |(number, side): (usize, &WorldControl)| {
            let all = side.guests().into_iter();
            let ours = all.filter(move |vmid| !self.ground.guests.contains_key(&(number, *vmid)));
            ours.collect::<Vec<_>>()
        };
        self.sides.all().flat_map(of).collect()
    }

    /// This drover's disc images, each with its cluster and a node that sees it.
    pub fn images(&self) -> Vec<(usize, String, String)> {
        let ours = self.journal_state().installation;
        let is_ours = |volid: &String| owner(volid).is_some_and(|(whose, _)| Some(whose) == ours);
        let all = self.survey().volumes.into_iter();
        let images = all.flat_map(|((number, node, _), volumes)| {
            let images = volumes.into_iter().filter(is_ours);
            images.map(move |volid| (number, node.clone(), volid)).collect::<Vec<_>>()
        });
        images.collect()
    }

    pub(super) fn survey(&self) -> Ground {
        let mut ground = Ground::default();
        let first = std::iter::once(&self.setup.cluster);
        for ((number, side), cluster) in self.sides.all().zip(first.chain(&self.setup.beyond)) {
            for vmid in side.guests() {
                let config = side.config(vmid).unwrap_or_default().into_iter().collect();
                ground.guests.insert((number, vmid), config);
            }
            for node in &cluster.nodes {
                for storage in &cluster.storages {
                    let place = (number, node.name.clone(), storage.name.clone());
                    ground.volumes.insert(place, side.volumes(&node.name, &storage.name));
                }
            }
        }
        ground
    }
}

/// Whether a volume is a guest's: it carries its id, or is in one of its drives.
fn is_of(vmid: u32, config: &BTreeMap<String, String>, volid: &str) -> bool {
    let drive = |value: &String| value.split(',').next() == Some(volid);
    volid.contains(&format!("vm-{vmid}-")) || config.values().any(drive)
}
