//! What is written down when the machine's wall clock was set.

use crate::journal_state::{AgentEntry, Commands, GrantedLease, JournalState};
use crate::time::WallTime;

fn shift(time: &mut WallTime, by_ms: i64) {
    *time = time.shifted(by_ms);
}

fn shift_requests(commands: &mut Commands, by_ms: i64) {
    commands.held_until.iter_mut().for_each(|until| shift(until, by_ms));
}

fn shift_agent(entry: &mut AgentEntry, by_ms: i64) {
    shift(&mut entry.intended, by_ms);
    entry.since.iter_mut().for_each(|since| shift(since, by_ms));
    shift_requests(&mut entry.commands, by_ms);
    let AgentEntry { leases, expelling, .. } = entry;
    let leases = leases.values_mut().chain(expelling.values_mut());
    for GrantedLease { ask, granted, expires, .. } in leases {
        shift(&mut ask.asked, by_ms);
        granted.iter_mut().for_each(|granted| shift(granted, by_ms));
        shift(expires, by_ms);
    }
}

impl JournalState {
    /// Each time moves with the clock: what has an hour left before has an hour left after.
    pub(super) fn set_clock(&mut self, by_ms: i64) {
        shift(&mut self.pruned, by_ms);
        self.agents.values_mut().for_each(|entry| shift_agent(entry, by_ms));
        self.early.values_mut().for_each(|commands| shift_requests(commands, by_ms));
        self.waiting.iter_mut().for_each(|ask| shift(&mut ask.asked, by_ms));
        for ended in self.ended.values_mut() {
            shift(&mut ended.at, by_ms);
            shift(&mut ended.ask.asked, by_ms);
        }
        let places = self.places.values_mut().map(|(_, entry)| entry);
        for entry in self.breakers.values_mut().chain(places) {
            entry.until.iter_mut().for_each(|until| shift(until, by_ms));
        }
        let ids = self.resting.values_mut().chain(self.burned.values_mut());
        ids.flat_map(|ids| ids.values_mut()).for_each(|since| shift(since, by_ms));
        let ordered = self.ordered.values_mut().flat_map(|nodes| nodes.values_mut());
        ordered.for_each(|ordered| shift(&mut ordered.at, by_ms));
        self.troubled.values_mut().for_each(|since| shift(since, by_ms));
        self.resting_addresses.values_mut().for_each(|rest| shift(&mut rest.since, by_ms));
    }
}
