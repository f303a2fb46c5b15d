//! Figures of calls and waits: how many calls run and wait, how each ended, and who counts that.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use drover_limits::call_queue::CallLoad;
use drover_model::id::{CloudId, VmId};

use super::{Cloud, Proxmox};
use crate::figures::{MeasureCall, MeasureGuests, MeasureWait};
use crate::recent_calls::GuestCall;

impl Proxmox {
    /// Says who takes the figures of calls to all clusters; once.
    pub fn measure_calls(&self, measure: MeasureCall) {
        // The first stays: one view counts them.
        let _ = self.figures.calls.set(measure);
    }

    /// Says who takes the waits of starts and destroys on all clusters; once.
    pub fn measure_waits(&self, measure: MeasureWait) {
        // The first stays: one view counts them.
        let _ = self.figures.waits.set(measure);
    }

    /// Says who takes what guests use; once.
    pub fn measure_guests(&self, measure: MeasureGuests) {
        // The first stays: one history has them.
        let _ = self.figures.guests.set(measure);
    }

    /// How many calls run and wait, for each cluster, with one of its clouds.
    pub fn call_loads(&self) -> Vec<(CloudId, Vec<CallLoad>)> {
        let clouds = self.clouds.lock();
        let mut seen = BTreeSet::new();
        let first = clouds
            .iter()
            .filter(|(_, cloud)| seen.insert(Arc::as_ptr(&cloud.cluster().calls) as usize));
        first.map(|(id, cloud)| (id.clone(), cloud.cluster().calls.loads())).collect()
    }
}

impl Cloud {
    /// The last calls about a guest that ended within this span, the oldest first.
    pub(crate) fn calls_about(&self, vmid: VmId, span: Duration) -> Vec<GuestCall> {
        self.cluster().calls.about(vmid, span)
    }
}
