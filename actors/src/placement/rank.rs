//! Which of several nodes that all have room takes the next agent.

use std::cmp::Reverse;

use drover_model::id::NodeName;
use drover_model::placement::{PlacementSpec, Strategy, Weights};

/// A node that may take an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seat {
    /// Its place in the order written.
    pub at: usize,
    /// Drover's own agents on it.
    pub agents: usize,
    /// Bytes of memory and thousandths of processors that are left once it has the agent; none
    /// where its figures are not known.
    pub left: Option<(u64, u64)>,
}

/// The seats in the order of preference, as indices.
///
/// Seats whose figures are not known come behind the others, the fewest agents first. Of equals the
/// one with fewer agents goes first, then the one written first.
pub fn order(placement: &PlacementSpec, seats: &[Seat]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..seats.len()).collect();
    let memory = |seat: &Seat| seat.left.map(|(memory, _)| memory);
    match placement.strategy {
        Strategy::Fixed => order.sort_by_key(|index| seats[*index].at),
        Strategy::Spread => order.sort_by_key(|index| {
            let seat = &seats[*index];
            (seat.agents, Reverse(memory(seat)), seat.at)
        }),
        Strategy::Pack => order.sort_by_key(|index| {
            let seat = &seats[*index];
            let memory = memory(seat);
            let agents = if memory.is_none() { seat.agents } else { 0 };
            (memory.is_none(), memory, agents, seat.at)
        }),
        Strategy::Topsis => {
            let close = closeness_of(seats, placement.weights);
            order.sort_by(|one, other| {
                let key = |index: usize| {
                    let seat = &seats[index];
                    (seat.left.is_none(), seat.agents, seat.at)
                };
                let (a, b) = (key(*one), key(*other));
                let farther = close[*other].total_cmp(&close[*one]);
                a.0.cmp(&b.0).then(farther).then_with(|| a.cmp(&b))
            });
        }
    }
    order
}

/// [`order`] of the seats on these nodes, with those on preferred nodes before all others.
pub fn order_on(placement: &PlacementSpec, seats: &[Seat], nodes: &[&NodeName]) -> Vec<usize> {
    let mut order = order(placement, seats);
    // The sort is stable, so the strategy decides among the preferred, and among the others.
    order.sort_by_key(|index| !nodes.get(*index).is_some_and(|node| placement.prefers(node)));
    order
}

/// How close each seat is to the best, of those whose figures are known; 0 for the others.
fn closeness_of(seats: &[Seat], weights: Weights) -> Vec<f64> {
    let known: Vec<(usize, (u64, u64))> =
        seats.iter().enumerate().filter_map(|(index, seat)| Some((index, seat.left?))).collect();
    let columns = [
        known.iter().map(|(_, (memory, _))| *memory as f64).collect::<Vec<_>>(),
        known.iter().map(|(_, (_, cpu))| *cpu as f64).collect(),
    ];
    let columns = columns.map(by_largest);
    let weights = [f64::from(weights.memory), f64::from(weights.cpu)];
    let close = closeness(&columns, &weights);
    let mut all = vec![0.0; seats.len()];
    for ((index, _), close) in known.iter().zip(close) {
        all[*index] = close;
    }
    all
}

/// Scales a column by its largest value. Unlike scaling by the length of the whole column, by which
/// all alternatives move when one does, a node that gets more free never falls behind another.
fn by_largest(column: Vec<f64>) -> Vec<f64> {
    let largest = column.iter().copied().fold(0.0, f64::max);
    if largest > 0.0 { column.into_iter().map(|value| value / largest).collect() } else { column }
}

/// TOPSIS over scaled criteria, of which more is better: how near each alternative is to the best
/// values of all and how far from the worst, from 0 to 1 (Hwang and Yoon, 1981). Where all are
/// alike each is the best.
pub(super) fn closeness(columns: &[Vec<f64>], weights: &[f64]) -> Vec<f64> {
    let count = columns.first().map_or(0, Vec::len);
    let all: f64 = weights.iter().sum();
    let mut apart = vec![(0.0_f64, 0.0_f64); count];
    for (column, weight) in columns.iter().zip(weights) {
        let weight = if all > 0.0 { weight / all } else { 0.0 };
        let best = column.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let worst = column.iter().copied().fold(f64::INFINITY, f64::min);
        for (value, apart) in column.iter().zip(&mut apart) {
            apart.0 += (weight * (best - value)).powi(2);
            apart.1 += (weight * (value - worst)).powi(2);
        }
    }
    let close = apart.into_iter().map(|(best, worst)| {
        let (best, worst) = (best.sqrt(), worst.sqrt());
        if best + worst > 0.0 { worst / (best + worst) } else { 1.0 }
    });
    close.collect()
}

#[cfg(test)]
mod tests;
