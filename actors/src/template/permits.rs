//! A template's permits: derived from its live agents each time, never counted up and down
//! (book: safety, rule 9).

use drover_model::status::Standing;

/// Whether an agent of this standing holds a slot of its template and its cloud.
pub fn holds_slot(standing: Standing) -> bool {
    match standing {
        Standing::Coming | Standing::Free { .. } | Standing::Busy | Standing::Leaving => true,
        Standing::Parked | Standing::Gone => false,
    }
}

/// Slots held by agents of these standings.
pub fn slots(standings: impl Iterator<Item = Standing>) -> u32 {
    let held = standings.filter(|standing| holds_slot(*standing)).count();
    u32::try_from(held).unwrap_or(u32::MAX)
}

/// Slots left under a cap; none is no limit.
pub fn room(cap: Option<u32>, held: u32) -> u32 {
    cap.map_or(u32::MAX, |cap| cap.saturating_sub(held))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Invariant: a slot is free only when the guest is confirmed gone, or its node is parked.

    #[test]
    fn a_leaving_agent_still_holds_its_slot_and_a_parked_one_does_not() {
        let standings = [
            Standing::Coming,
            Standing::Free { executors: 1, idle: true },
            Standing::Busy,
            Standing::Leaving,
            Standing::Parked,
            Standing::Gone,
        ];
        assert_eq!(slots(standings.into_iter()), 4);
    }

    #[test]
    fn no_cap_is_no_limit_and_a_lowered_cap_leaves_no_room() {
        assert_eq!(room(None, 7), u32::MAX);
        assert_eq!(room(Some(8), 7), 1);
        assert_eq!(room(Some(3), 7), 0);
    }
}
