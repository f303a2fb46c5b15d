//! A leader that learns late, or not at all, that its term is over: it sends nothing.

use std::time::Duration;

use tokio::time::Instant;

use super::storm::Storm;

/// A storm in which a leader has machines to make, and that leader.
async fn busy_leader(seed: u64) -> (Storm, usize) {
    let mut storm = Storm::new(seed);
    storm.pass(Duration::from_secs(20)).await;
    let leader = storm.leader().unwrap();
    for _ in 0..3 {
        storm.callers.ask(&storm.peers, leader);
    }
    storm.pass(Duration::from_secs(1)).await;
    (storm, leader)
}

// Invariant: a leader sends by when its renewal was sent.

#[tokio::test(start_paused = true)]
async fn a_leader_whose_renewals_are_answered_late_sends_nothing_meanwhile() {
    for seed in 1..=5 {
        let (mut storm, leader) = busy_leader(seed).await;
        // The renewal arrives at once, and its answer when another member leads already.
        storm.peers[leader].slow_down(Duration::from_secs(7), true);
        // Each tick asserts that one member may send at most, and that no write is late.
        storm.pass(Duration::from_secs(20)).await;
        assert_ne!(storm.leader(), Some(leader));
        storm.end().await;
    }
}

// Invariant: a service is over with its term, also where nothing ends it.

#[tokio::test(start_paused = true)]
async fn a_service_that_outlives_its_term_sends_nothing_though_its_member_leads_again() {
    for seed in 1..=5 {
        let (mut storm, first) = busy_leader(seed).await;
        storm.peers[first].lingers = Some(Instant::now() + Duration::from_secs(600));
        storm.peers[first].paused = Some(Instant::now() + Duration::from_secs(8));
        storm.pass(Duration::from_secs(30)).await;
        let second = storm.leader().unwrap();
        assert_ne!(second, first);
        let name = storm.peers[first].name.to_owned();
        storm.peers[second].give_up(Some(name));
        storm.pass(Duration::from_secs(3)).await;
        let peer = &storm.peers[first];
        assert!(peer.term.is_some() && peer.serves_in().is_some(), "it leads again");
        assert_ne!(peer.term, peer.serves_in(), "with the service of before");
        assert!(!peer.may_act());
        // Callers ask that service, too.
        storm.callers.ask(&storm.peers, first);
        storm.pass(Duration::from_secs(30)).await;
        storm.peers[first].lingers = None;
        storm.end().await;
    }
}
