//! The fence: a guest's marks are read and the guest is tagged as retiring, right before it is stopped.

use drover_model::marks::Marks;
use drover_model::ports::{IdStatus, VmObservation, VmRef};
use proxmox_client::Params;

use super::Cloud;
use crate::client::{Failure, guest_id};
use crate::configure::{self, RETIRING, split_tags};
use crate::observe;

impl Cloud {
    /// Checks the marks and tags the guest as retiring. A guest that Proxmox has locked is not
    /// written to. Whether a virtual machine runs does not matter: shutdown and stop accept a
    /// stopped one. A stopped container refuses both, so its status is read.
    pub(super) async fn fence(&self, vm: &VmRef, marks: &Marks) -> Result<VmObservation, Failure> {
        let client = &self.client;
        let config = client.config(vm.node.as_str(), guest_id(vm)).await?;
        configure::verify(&config, marks, vm.vmid)?;
        configure::unlocked(&config, vm.vmid)?;
        self.cluster().tasks.note_volumes(vm.vmid, &configure::volumes(&config, vm.vmid));
        let mut seen = VmObservation {
            id: IdStatus::Taken,
            node: None,
            marks: None,
            lock: None,
            running: None,
        };
        observe::describe(&mut seen, vm, &config);
        if vm.guest.is_container() {
            let current = client.guest_status(vm.node.as_str(), guest_id(vm)).await?;
            seen.running = Some(current.status == "running");
        }
        let mut tags = split_tags(config.get("tags").unwrap_or_default());
        if !tags.insert(RETIRING.to_owned()) {
            return Ok(seen);
        }
        let tags = tags.into_iter().collect::<Vec<_>>().join(";");
        let mut changes: Params = vec![("tags".to_owned(), tags)];
        let digest = config.get("digest").map(|digest| ("digest".to_owned(), digest.to_owned()));
        changes.extend(digest);
        if let Err(error) = client.set_config(vm.node.as_str(), guest_id(vm), changes).await {
            let refused = configure::tag_refusal(client, &error).ok_or(error)?;
            tracing::warn!(vmid = %vm.vmid, refusal = refused, "guest is retired without its tag");
        }
        Ok(seen)
    }
}
