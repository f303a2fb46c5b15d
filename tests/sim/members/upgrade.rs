//! Members of two versions in one herd: one writes a format of the journal that the other does not know.
//!
//! The format has one version so far. The newer drover is this one, on a log that says the next version in
//! each record and has one field more in each snapshot (`world/store.rs`).

use super::*;

/// Storms of one upgrade; each takes as long as one without.
const UPGRADES: u64 = 10;

impl Storm {
    /// A member gets the newer drover and starts again.
    fn upgrade(&mut self, at: usize) {
        self.steps.push(format!("upgrade {}", self.peers[at].name));
        self.peers[at].kill();
        self.peers[at].world.store.upgrade();
        self.peers[at].launch(&self.register);
    }

    /// Lets a member lead, and waits until it does.
    async fn hand_over_to(&mut self, next: usize) {
        let name = self.peers[next].name.to_owned();
        let leader = self.leader().unwrap();
        self.peers[leader].give_up(Some(name));
        while self.leader() != Some(next) {
            self.pass(Duration::from_millis(100)).await;
        }
    }
}

// Invariant: an older drover leaves a newer journal as it is, and a newer one goes on with an older journal.

#[tokio::test(start_paused = true)]
async fn an_upgrade_of_the_leader_last_ends_no_process_and_keeps_each_lease() {
    let mut storm = Storm::new(7);
    storm.pass(Duration::from_secs(20)).await;
    let leader = storm.leader().unwrap();
    for _ in 0..3 {
        storm.callers.ask(&storm.peers, leader);
        storm.pass(Duration::from_secs(60)).await;
    }
    let others: Vec<usize> = (0..storm.peers.len()).filter(|at| *at != leader).collect();
    for at in &others {
        storm.upgrade(*at);
        storm.pass(Duration::from_secs(20)).await;
        assert_eq!(storm.leader(), Some(leader), "the leader goes on");
    }
    storm.hand_over_to(others[0]).await;
    storm.upgrade(leader);
    storm.pass(Duration::from_secs(60)).await;
    storm.hand_over_to(leader).await;
    assert_eq!(storm.unreadable, 0, "{:#?}", storm.steps);
    assert_eq!(storm.callers.wants.iter().filter(|want| want.lease.is_some()).count(), 3);
    storm.end().await;
}

#[tokio::test(start_paused = true)]
async fn storms_of_an_upgrade_lose_no_lease_and_no_older_drover_leads_with_a_newer_journal() {
    let mut refused = 0;
    for seed in 1..=UPGRADES {
        let mut storm = Storm::new(1000 + seed);
        storm.pass(Duration::from_secs(8)).await;
        for number in 0..STEPS {
            storm.step().await;
            storm.check_versions();
            if number % 12 == 11 {
                let at = storm.any();
                storm.upgrade(at);
            }
        }
        refused += storm.unreadable;
        storm.end().await;
    }
    note(&format!("{refused} processes of the older drover ended because the journal is newer"));
    assert!(refused > 3, "{refused} refusals are too few to say anything");
}
