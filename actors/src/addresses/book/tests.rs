//! Whose each address is: by cases, and by chance.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::time::Duration;

use drover_model::addresses::range::AddressRange;
use drover_model::journal_state::AddressRest;
use drover_model::phase::AgentPhase;
use proptest::prelude::*;

use super::*;
use crate::testing::{at, entry, template, template_id};

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn pool(first: &str, last: &str, cooldown: u64) -> Arc<AddressPoolSpec> {
    Arc::new(AddressPoolSpec {
        ranges: vec![AddressRange::new(ip(first), ip(last)).unwrap()],
        prefix: 24,
        gateway: Some(ip("10.0.0.1")),
        cooldown: Duration::from_secs(cooldown),
        nameserver: None,
    })
}

fn of(pools: &[(&str, Arc<AddressPoolSpec>)]) -> BTreeMap<AddressPoolId, Arc<AddressPoolSpec>> {
    pools.iter().map(|(id, spec)| (AddressPoolId::new(id), spec.clone())).collect()
}

fn book(pools: &[(&str, Arc<AddressPoolSpec>)]) -> Book {
    let mut book = Book::default();
    book.configure(&of(pools));
    book
}

fn lab() -> AddressSource {
    AddressSource::Pools(vec![AddressPoolId::new("lab")])
}

/// Keeps an address back, and writes it down.
fn taken(book: &mut Book, agent: &str, source: &AddressSource, second: u64) -> Option<String> {
    let agent = AgentId::new(agent);
    let all = book.take(&agent, &template_id("c/t"), source, at(second))?;
    book.speak(&agent);
    let all: Vec<String> = all.iter().map(|one| one.address.to_string()).collect();
    Some(all.join(" "))
}

fn free(book: &Book, source: &AddressSource, second: u64) -> u32 {
    book.supply(source, at(second)).free
}

// Invariant: an address is one agent's, then rests, then is the next one's.

#[test]
fn the_lowest_free_address_is_given_and_rests_when_its_agent_is_gone() {
    let mut book = book(&[("lab", pool("10.0.0.50", "10.0.0.51", 600))]);
    assert_eq!(taken(&mut book, "a", &lab(), 0).unwrap(), "10.0.0.50");
    assert_eq!(
        taken(&mut book, "a", &lab(), 0).unwrap(),
        "10.0.0.50",
        "asked again, it is its own"
    );
    assert_eq!(taken(&mut book, "b", &lab(), 0).unwrap(), "10.0.0.51");
    assert_eq!(taken(&mut book, "c", &lab(), 0), None);
    book.give_back(&AgentId::new("a"), at(100));
    assert_eq!(taken(&mut book, "c", &lab(), 699), None);
    let supply = book.supply(&lab(), at(699));
    let lack = "address pool `lab` is used up: 1 in use, 1 resting: each address rests for \
                600 s after its use (`cooldownSeconds`); one is free at 2027-01-15T08:11:40Z";
    assert_eq!((supply.lack.unwrap().as_str(), supply.next), (lack, Some(at(700).mono)));
    assert_eq!(taken(&mut book, "c", &lab(), 700).unwrap(), "10.0.0.50");
}

#[test]
fn what_was_kept_back_and_never_spoken_for_does_not_rest() {
    let mut book = book(&[("lab", pool("10.0.0.50", "10.0.0.50", 600))]);
    let (agent, template) = (AgentId::new("a"), template_id("c/t"));
    book.take(&agent, &template, &lab(), at(0)).unwrap();
    assert_eq!(free(&book, &lab(), 0), 0);
    assert!(book.give_back(&agent, at(1)) && !book.give_back(&agent, at(1)));
    assert_eq!(free(&book, &lab(), 1), 1);
    book.take(&agent, &template, &lab(), at(1)).unwrap();
    assert!(!book.sweep(&template_id("c/other"), |_| false, at(2)));
    assert!(!book.sweep(&template, |_| true, at(2)));
    assert!(book.sweep(&template, |_| false, at(2)));
    assert_eq!(free(&book, &lab(), 2), 1);
}

#[test]
fn an_agent_of_two_pools_has_one_address_of_each_or_none_at_all() {
    let six = pool("fd00::10", "fd00::10", 0);
    let mut book = book(&[("lab", pool("10.0.0.50", "10.0.0.51", 0)), ("six", six)]);
    let both = AddressSource::Pools(vec![AddressPoolId::new("lab"), AddressPoolId::new("six")]);
    assert_eq!(taken(&mut book, "a", &both, 0).unwrap(), "10.0.0.50 fd00::10");
    assert_eq!(taken(&mut book, "b", &both, 0), None);
    assert_eq!((free(&book, &both, 0), free(&book, &lab(), 0)), (0, 1));
    assert!(book.supply(&both, at(0)).lack.unwrap().contains("`six`"));
}

#[test]
fn the_address_of_a_template_is_one_agents_at_once() {
    let mut book = Book::default();
    let own = AddressSource::Fixed(ip("10.0.0.9"));
    assert_eq!(taken(&mut book, "a", &own, 0).unwrap(), "10.0.0.9");
    assert_eq!(taken(&mut book, "b", &own, 0), None);
    assert_eq!(book.supply(&own, at(0)).lack.unwrap(), "its address 10.0.0.9 is agent a's");
    book.give_back(&AgentId::new("a"), at(5));
    assert_eq!(taken(&mut book, "b", &own, 5).unwrap(), "10.0.0.9");
    assert_eq!(free(&book, &AddressSource::GuestAgent, 5), u32::MAX);
}

// Invariant: an edit of pools touches no living agent, and gives nobody what another has.

#[test]
fn a_pool_that_shrinks_moves_or_goes_gives_nothing_that_is_used_or_rests() {
    let wide = pool("10.0.0.50", "10.0.0.53", 600);
    let mut book = book(&[("lab", wide)]);
    for agent in ["a", "b", "c"] {
        taken(&mut book, agent, &lab(), 0).unwrap();
    }
    book.give_back(&AgentId::new("b"), at(0));
    let narrow = pool("10.0.0.51", "10.0.0.52", 600);
    book.configure(&of(&[("other", narrow)]));
    assert_eq!(taken(&mut book, "d", &lab(), 1), None);
    assert!(book.supply(&lab(), at(1)).lack.unwrap().contains("not configured"));
    let other = AddressSource::Pools(vec![AddressPoolId::new("other")]);
    assert_eq!(taken(&mut book, "d", &other, 1), None, "one is c's, one rests");
    assert_eq!(book.of(&AgentId::new("a"))[0].address, ip("10.0.0.50"));
    book.give_back(&AgentId::new("c"), at(1));
    assert_eq!(taken(&mut book, "d", &other, 600).unwrap(), "10.0.0.51");
}

// Invariant: what the journal knows holds after a start, rests too.

#[test]
fn a_start_goes_on_with_addresses_and_rests_of_the_journal() {
    let lab_spec = pool("10.0.0.50", "10.0.0.52", 600);
    let mut journal_state = JournalState::default();
    let mut living = entry("a", 10_000, template("c/t", &[]), AgentPhase::Ready);
    living.addresses =
        vec![AssignedAddress::of(&AddressPoolId::new("lab"), &lab_spec, ip("10.0.0.50"))];
    journal_state.agents.insert(AgentId::new("a"), living);
    let rest = AddressRest { since: at(0).wall, cooldown_ms: 600_000 };
    journal_state.resting_addresses.insert(ip("10.0.0.51"), rest);
    let mut book = Book::restore(&journal_state, at(200));
    book.configure(&of(&[("lab", lab_spec)]));
    assert_eq!(book.of(&AgentId::new("a")).len(), 1);
    let shown = &book.statuses(at(200))[0];
    assert_eq!((shown.size, shown.used, shown.resting, shown.free), (3, 1, 1, 1));
    assert_eq!(shown.next_free, Some(at(600).wall));
    assert_eq!(taken(&mut book, "b", &lab(), 200).unwrap(), "10.0.0.52");
    assert_eq!(taken(&mut book, "c", &lab(), 599), None);
    assert_eq!(taken(&mut book, "c", &lab(), 600).unwrap(), "10.0.0.51");
    book.give_back(&AgentId::new("a"), at(700));
    assert_eq!(free(&book, &lab(), 1299), 0, "an address of the journal is spoken for");
}

#[test]
fn a_clock_that_was_set_back_makes_no_rest_longer_than_a_whole_one() {
    let mut journal_state = JournalState::default();
    let rest = AddressRest { since: at(90_000).wall, cooldown_ms: 600_000 };
    journal_state.resting_addresses.insert(ip("10.0.0.50"), rest);
    let mut book = Book::restore(&journal_state, at(0));
    book.configure(&of(&[("lab", pool("10.0.0.50", "10.0.0.50", 600))]));
    assert_eq!((free(&book, &lab(), 599), free(&book, &lab(), 600)), (0, 1));
}

/// What happens to a book.
#[derive(Debug, Clone)]
enum Deed {
    Take(u8, u8),
    Speak(u8),
    GiveBack(u8),
    Pass(u64),
    /// The pools get these many addresses, from this one on.
    Shape(u8, u8),
}

fn deed() -> impl Strategy<Value = Deed> {
    prop_oneof![
        4 => (0..12_u8, 0..3_u8).prop_map(|(agent, source)| Deed::Take(agent, source)),
        3 => (0..12_u8).prop_map(Deed::Speak),
        3 => (0..12_u8).prop_map(Deed::GiveBack),
        2 => (0..400_u64).prop_map(Deed::Pass),
        1 => (0..5_u8, 1..5_u8).prop_map(|(from, count)| Deed::Shape(from, count)),
    ]
}

/// Two pools of so many addresses side by side.
fn shaped(from: u8, count: u8) -> Vec<(&'static str, Arc<AddressPoolSpec>)> {
    let range = |first: u8| {
        let last = format!("10.0.0.{}", first + count - 1);
        pool(&format!("10.0.0.{first}"), &last, 300)
    };
    vec![("lab", range(10 + from)), ("rig", range(10 + from + count))]
}

proptest! {
    // Invariant: no address is two agents' at once, none is given before its rest is over, and none
    // that no pool has; what is said to be free can be had.

    #[test]
    fn whatever_happens_no_address_is_doubled_or_given_too_soon(deeds in prop::collection::vec(deed(), 1..80)) {
        let lab = AddressSource::Pools(vec![AddressPoolId::new("lab")]);
        let rig = AddressSource::Pools(vec![AddressPoolId::new("rig")]);
        let sources = [lab, rig, AddressSource::Fixed(ip("10.0.0.12"))];
        let (mut book, mut now) = (Book::default(), 0);
        let mut pools = shaped(0, 3);
        book.configure(&of(&pools));
        let mut living: BTreeMap<u8, (IpAddr, bool, u64)> = BTreeMap::new();
        let mut ended: BTreeMap<IpAddr, u64> = BTreeMap::new();
        for deed in deeds {
            match deed {
                Deed::Take(agent, source) if !living.contains_key(&agent) => {
                    let (id, which) = (AgentId::new(agent.to_string()), &sources[usize::from(source)]);
                    let said = book.supply(which, at(now));
                    let got = book.take(&id, &template_id("c/t"), which, at(now));
                    prop_assert_eq!(got.is_some(), said.free > 0);
                    prop_assert_eq!(said.lack.is_some(), said.free == 0);
                    let Some(got) = got else { continue };
                    let address = got[0].address;
                    prop_assert!(living.values().all(|(other, ..)| *other != address));
                    prop_assert!(ended.get(&address).is_none_or(|until| *until <= now));
                    if let AddressSource::Pools(ids) = which {
                        let of_pool = pools.iter().find(|(id, _)| *id == ids[0].as_str()).unwrap();
                        prop_assert!(of_pool.1.contains(address));
                    }
                    living.insert(agent, (address, false, got[0].cooldown_ms / 1000));
                }
                Deed::Take(..) => {}
                Deed::Speak(agent) => {
                    book.speak(&AgentId::new(agent.to_string()));
                    living.entry(agent).and_modify(|(_, spoken, _)| *spoken = true);
                }
                Deed::GiveBack(agent) => {
                    let had = book.give_back(&AgentId::new(agent.to_string()), at(now));
                    let known = living.remove(&agent);
                    prop_assert_eq!(had, known.is_some());
                    if let Some((address, true, cooldown)) = known {
                        ended.insert(address, now + cooldown);
                    }
                }
                Deed::Pass(seconds) => now += seconds,
                Deed::Shape(from, count) => {
                    pools = shaped(from, count);
                    book.configure(&of(&pools));
                }
            }
            for status in book.statuses(at(now)) {
                prop_assert_eq!(status.used + status.resting + status.free, status.size);
            }
        }
    }
}
