//! The disc image by which cloud-init gets what Proxmox has no keys for. The image is recorded
//! before its upload. It stays in the guest's drive as long as the guest lives, because each boot
//! reads it. It is removed once the guest is gone.

use drover_model::record::Body;
use drover_model::seed;

use crate::agent::mind::{Mind, Out};

impl Mind {
    /// Records the image that configuring the guest will upload, once.
    pub(super) fn intend_image(&mut self, out: &mut Out) {
        let Some(seed) = &self.spec.cloud_init.seed else { return };
        let Some(guest) = &mut self.guest else { return };
        let volume = seed::volume(&seed.storage, &guest.marks);
        if guest.volumes.contains(&volume) {
            return;
        }
        guest.volumes.push(volume.clone());
        guest.image_unsent = true;
        out.record(Body::IsoIntended { agent: self.agent.clone(), volume });
    }

    /// The image was refused. It is nowhere, unless an earlier try may have stored it.
    pub(super) fn forget_image(&mut self, out: &mut Out) {
        let Some(guest) = &mut self.guest else { return };
        if !std::mem::take(&mut guest.image_unsent) {
            return;
        }
        guest.volumes.retain(|volume| !seed::is_image(volume));
        let volumes = guest.volumes.clone();
        out.record(Body::VolumesKnown { agent: self.agent.clone(), volumes, mac: None });
    }

    /// Whether a disc image of the guest may be on a storage.
    pub(super) fn has_image(&self) -> bool {
        let volumes = self.guest.as_ref().map(|guest| &guest.volumes);
        volumes.is_some_and(|volumes| volumes.iter().any(|volume| seed::is_image(volume)))
    }
}
