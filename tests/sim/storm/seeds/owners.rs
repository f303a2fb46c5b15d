//! Guests, volumes and their owners: nothing under our marks is without a record, or outlives its agent.

use std::collections::BTreeMap;
use std::time::Duration;

use drover_model::id::AgentId;
use drover_model::marks::parse_name;

use super::seen::Seen;
use super::watch::Watch;

impl Watch {
    /// Guests under our marks whose agent has no record, beyond the time such a thing may last.
    pub fn unowned(&self, grace: Duration) {
        let now = self.now();
        let mut seen = self.seen();
        let mut guests: BTreeMap<AgentId, u32> = BTreeMap::new();
        for (vmid, name) in self.side.names() {
            let named = parse_name(&name);
            let known = seen.strangers.contains(&vmid) || seen.orphans.contains(&vmid);
            let Some((_, agent)) = named.filter(|_| !known) else { continue };
            if let Some(other) = guests.insert(agent.clone(), vmid) {
                let text = format!("agent {agent} has guests {other} and {vmid}");
                self.blame(&mut seen, "one-guest-an-agent", text);
            }
            if seen.live.get(&agent).is_some_and(|live| live.recorded) {
                seen.unowned.remove(&vmid);
                continue;
            }
            let since = *seen.unowned.entry(vmid).or_insert(now);
            if now - since > grace {
                let text = format!("guest {vmid} of {agent} has had no record since {since:?}");
                self.blame(&mut seen, "no-guest-without-a-record", text);
            }
        }
    }

    /// Nothing of an agent's guest outlives it on any storage.
    pub(super) fn left(&self, seen: &mut Seen, agent: &AgentId, vmid: u32) {
        // Whose volumes they are is plain only where nobody else came under that id.
        let others = seen.strangers.contains(&vmid) || seen.orphans.contains(&vmid);
        if others || self.side.config(vmid).is_some() {
            return;
        }
        let volumes = self.side.volumes_of(vmid);
        if !volumes.is_empty() {
            let text = format!("{agent} is gone, and of its guest stay {volumes:?}");
            self.blame(seen, "no-volume-without-an-owner", text);
        }
    }
}
