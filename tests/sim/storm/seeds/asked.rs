//! What is asked of the cluster, judged: every write goes to a guest whose record allows it.

use drover_model::marks::parse_name;
use proxmox_client::transport::Request;

use super::seen::Seen;
use super::watch::Watch;

impl Watch {
    fn clone_asked(&self, seen: &mut Seen, request: &Request) {
        let value = |key: &str| {
            let found = request.params.iter().find(|(name, _)| name == key);
            found.map(|(_, value)| value.clone()).unwrap_or_default()
        };
        let (newid, name) = (value("newid"), value("name"));
        // Containers have their name as their host name.
        let name = if name.is_empty() { value("hostname") } else { name };
        let Some((_, agent)) = parse_name(&name) else {
            return self.blame(
                seen,
                "one-guest-an-agent",
                format!("a clone without marks: {name}"),
            );
        };
        let live = seen.live.get(&agent).filter(|live| live.recorded);
        let intended = live.and_then(|live| live.vmid).map(|vmid| vmid.to_string());
        if intended.as_ref() != Some(&newid) {
            let text = format!("{agent} clones to {newid}, and wrote down {intended:?}");
            self.blame(seen, "journal-before-acting", text);
        }
        let before = seen.cloned.insert(agent.clone(), newid.clone());
        if before.as_ref().is_some_and(|before| *before != newid) {
            let text = format!("{agent} clones to {newid} after {before:?}");
            self.blame(seen, "one-guest-an-agent", text);
        }
    }

    /// A request that changes something.
    pub(super) fn written(&self, seen: &mut Seen, request: &Request) {
        let words: Vec<&str> = request.path.split('/').collect();
        let ["", "nodes", _, "qemu" | "lxc", vmid, rest @ ..] = words.as_slice() else {
            let touched = seen.strangers.iter().find(|vmid| {
                request.path.contains(&format!("vm-{vmid}-"))
                    || request.path.ends_with(&format!("/{vmid}"))
            });
            if let Some(vmid) = touched {
                let text = format!("{request:?} goes to {vmid}");
                self.blame(seen, "no-stranger-changed", text);
            }
            return;
        };
        if rest == ["clone"] {
            return self.clone_asked(seen, request);
        }
        let Ok(vmid) = vmid.parse::<u32>() else { return };
        if seen.strangers.contains(&vmid) {
            let text = format!("{request:?} goes to a stranger");
            return self.blame(seen, "no-stranger-changed", text);
        }
        if seen.orphans.contains(&vmid) {
            return;
        }
        let agent = seen.owners.get(&vmid);
        let owner = agent.and_then(|agent| seen.live.get(agent));
        let is_ordered = agent.is_some_and(|agent| seen.orders.cover(agent, rest));
        let by_order = matches!(rest, ["status", "suspend" | "reset" | "reboot"]);
        // A call that was under way when its agent began to go comes through.
        let goes = owner.is_some_and(|owner| owner.retiring);
        if by_order && !is_ordered && !goes {
            let text = format!("{request:?} without its order: {owner:?}");
            return self.blame(seen, "journal-before-acting", text);
        }
        let back = matches!(rest, ["snapshot", _, "rollback"]) && !is_ordered;
        if back && !owner.is_some_and(|owner| owner.resetting && owner.leases.is_empty()) {
            let text = format!("{request:?} without its record: {owner:?}");
            return self.blame(seen, "no-reset-without-intent", text);
        }
        let ends = matches!(rest, [] | ["status", "stop" | "shutdown"]) && !is_ordered;
        if !owner.is_some_and(|owner| owner.recorded && (owner.retiring || !ends)) {
            let text = format!("{request:?} without its record: {owner:?}");
            self.blame(seen, "journal-before-acting", text);
        }
    }
}
