//! Which past events stay when the file is written again.

use std::collections::BTreeSet;

use drover_model::fact::What;
use drover_model::phase::LeasePhase;
use drover_server::view::{
    ENDED_LEASES_KEPT, EventId, FACTS_KEPT, GONE_AGENTS_KEPT, LOST_JOBS_KEPT,
};

use super::Kept;

/// Bytes that stay at most.
const KEPT_MAX: usize = 8 << 20;

/// What room is left for events, counted from the newest.
struct Retention {
    recent: usize,
    gone: usize,
    ended: usize,
    lost: usize,
    bytes: usize,
    /// A write that failed half-way is done again as a whole.
    seen: BTreeSet<EventId>,
}

impl Default for Retention {
    fn default() -> Self {
        Self {
            recent: FACTS_KEPT,
            gone: GONE_AGENTS_KEPT,
            ended: ENDED_LEASES_KEPT,
            lost: LOST_JOBS_KEPT,
            bytes: KEPT_MAX,
            seen: BTreeSet::new(),
        }
    }
}

impl Retention {
    /// Whether the next older event stays: what the view shows of it is still within its bounds.
    fn takes(&mut self, kept: &Kept) -> bool {
        let Some(bytes) = self.bytes.checked_sub(kept.text.len()) else { return false };
        if !self.seen.insert(kept.event.id) {
            return false;
        }
        let is_recent = take(&mut self.recent);
        let what = &kept.event.fact.what;
        let is_gone = matches!(what, What::AgentGone { .. }) && take(&mut self.gone);
        let is_lost = matches!(what, What::JobLost { .. }) && take(&mut self.lost);
        let has_ended = matches!(what, What::Lease(status) if status.state == LeasePhase::Ended)
            && take(&mut self.ended);
        let stays = is_recent || is_gone || is_lost || has_ended;
        if stays {
            self.bytes = bytes;
        }
        stays
    }
}

fn take(room: &mut usize) -> bool {
    let has_room = *room > 0;
    *room = room.saturating_sub(1);
    has_room
}

/// The events that stay, in their order.
pub fn retained(all: Vec<Kept>) -> Vec<Kept> {
    let mut room = Retention::default();
    let mut stay: Vec<Kept> = all.into_iter().rev().filter(|kept| room.takes(kept)).collect();
    stay.reverse();
    stay
}
