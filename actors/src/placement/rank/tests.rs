use proptest::prelude::{prop, prop_assert, prop_assert_eq, proptest};
use proptest::strategy::Strategy as Draw;

use super::*;

fn seat(at: usize, agents: usize, memory: u64, cpu: u64) -> Seat {
    Seat { at, agents, left: Some((memory, cpu)) }
}

fn placed(strategy: Strategy) -> PlacementSpec {
    PlacementSpec { strategy, ..PlacementSpec::default() }
}

fn first(strategy: Strategy, seats: &[Seat]) -> usize {
    order(&placed(strategy), seats)[0]
}

// Invariant: TOPSIS is what the literature says it is.

/// Scales a column by its length, as the example does; of a cost less is better.
fn by_length(column: &[f64], cost: bool) -> Vec<f64> {
    let length = column.iter().map(|value| value * value).sum::<f64>().sqrt();
    column.iter().map(|value| if cost { -value / length } else { value / length }).collect()
}

#[test]
fn the_choice_of_a_car_comes_out_as_in_the_textbooks() {
    // Style, reliability, fuel economy and cost of Civic, Saturn, Ford and Mazda.
    let columns = [
        by_length(&[7.0, 8.0, 9.0, 6.0], false),
        by_length(&[9.0, 7.0, 6.0, 7.0], false),
        by_length(&[9.0, 8.0, 8.0, 8.0], false),
        by_length(&[8.0, 7.0, 9.0, 6.0], true),
    ];
    let close = closeness(&columns, &[0.1, 0.4, 0.3, 0.2]);
    // As published, where every step is rounded to two or three digits.
    for (close, published) in close.iter().zip([0.74, 0.41, 0.17, 0.45]) {
        assert!((close - published).abs() < 0.015, "{close} for {published}");
    }
    let reported: Vec<String> = close.iter().map(|close| format!("{close:.4}")).collect();
    assert_eq!(reported, ["0.7427", "0.4036", "0.1759", "0.4414"], "without rounding");
}

// Invariant: each strategy takes what it says, and equals in the order written.

#[test]
fn each_strategy_has_its_own_first() {
    let seats = [seat(0, 2, 10, 4), seat(1, 1, 20, 4), seat(2, 1, 30, 16), seat(3, 5, 40, 1)];
    assert_eq!(first(Strategy::Topsis, &seats), 2);
    assert_eq!(first(Strategy::Spread, &seats), 2);
    assert_eq!(first(Strategy::Pack, &seats), 0);
    assert_eq!(first(Strategy::Fixed, &seats), 0);
    let equal = [seat(1, 0, 5, 5), seat(0, 0, 5, 5), seat(2, 0, 5, 5)];
    for strategy in [Strategy::Topsis, Strategy::Spread, Strategy::Pack, Strategy::Fixed] {
        assert_eq!(order(&placed(strategy), &equal), [1, 0, 2], "{strategy:?}");
    }
}

#[test]
fn preferred_nodes_go_first_by_every_strategy() {
    let names = ["pve1", "pve2", "pve3", "pve4"].map(NodeName::new);
    let nodes: Vec<&NodeName> = names.iter().collect();
    let seats = [seat(0, 0, 90, 90), seat(1, 9, 5, 5), seat(2, 5, 10, 1), seat(3, 1, 40, 40)];
    for strategy in [Strategy::Topsis, Strategy::Spread, Strategy::Pack, Strategy::Fixed] {
        let plain = order(&placed(strategy), &seats);
        assert_eq!(order_on(&placed(strategy), &seats, &nodes), plain, "{strategy:?}");
        let preferred = vec![names[2].clone(), names[1].clone()];
        let placement = PlacementSpec { preferred, ..placed(strategy) };
        let (first, rest): (Vec<usize>, Vec<usize>) =
            plain.iter().partition(|index| [1, 2].contains(*index));
        assert_eq!(order_on(&placement, &seats, &nodes), [first, rest].concat(), "{strategy:?}");
    }
}

#[test]
fn nodes_whose_figures_are_not_reported_come_last_and_by_their_agents() {
    let blind = |at, agents| Seat { at, agents, left: None };
    let seats = [blind(0, 2), blind(1, 1), seat(2, 9, 1, 0)];
    for strategy in [Strategy::Topsis, Strategy::Pack] {
        assert_eq!(order(&placed(strategy), &seats), [2, 1, 0], "{strategy:?}");
    }
    assert_eq!(order(&placed(Strategy::Spread), &seats), [1, 0, 2]);
}

#[test]
fn what_counts_for_nothing_decides_nothing() {
    let seats = [seat(0, 0, 10, 8), seat(1, 0, 20, 4)];
    for (memory, cpu, wanted) in [(100, 0, 1), (0, 100, 0)] {
        let weights = Weights { memory, cpu };
        let placement = PlacementSpec { weights, ..PlacementSpec::default() };
        assert_eq!(order(&placement, &seats)[0], wanted);
    }
}

fn some_seats() -> impl Draw<Value = Vec<Seat>> {
    let one = (0usize..5, prop::option::of((0u64..1000, 0u64..64_000)));
    prop::collection::vec(one, 1..9).prop_map(|all| {
        let seats = all.into_iter().enumerate();
        seats.map(|(at, (agents, left))| Seat { at, agents, left }).collect()
    })
}

fn some_strategy() -> impl Draw<Value = Strategy> {
    prop::sample::select(vec![Strategy::Topsis, Strategy::Spread, Strategy::Pack, Strategy::Fixed])
}

proptest! {
    // Invariant: the order in which nodes are looked at decides nothing.
    #[test]
    fn the_order_of_looking_changes_nothing(
        seats in some_seats(), strategy in some_strategy(), turn in 0usize..9
    ) {
        let names = |seats: &[Seat]| -> Vec<usize> {
            order(&placed(strategy), seats).into_iter().map(|index| seats[index].at).collect()
        };
        let mut turned = seats.clone();
        let by = turn % seats.len();
        turned.rotate_left(by);
        turned.reverse();
        prop_assert_eq!(names(&seats), names(&turned));
    }

    // Invariant: a node that gets more free never falls behind where the most free is wanted.
    #[test]
    fn more_free_memory_never_loses_rank(
        seats in some_seats(), which in 0usize..9, more in 1u64..1000, weight in 1u32..100
    ) {
        let which = which % seats.len();
        let weights = Weights { memory: weight, cpu: 100 - weight };
        for strategy in [Strategy::Topsis, Strategy::Spread] {
            let placement = PlacementSpec { strategy, weights, ..PlacementSpec::default() };
            let rank = |seats: &[Seat]| {
                order(&placement, seats).iter().position(|index| *index == which)
            };
            let mut richer = seats.clone();
            if let Some((memory, _)) = &mut richer[which].left {
                *memory += more;
            }
            prop_assert!(rank(&richer) <= rank(&seats), "{:?}", strategy);
        }
    }
}
