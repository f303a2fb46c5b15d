//! Sizes of agents for which a template found no place: it tries each again after a pause, and goes on
//! with agents of all other sizes.

use std::collections::BTreeMap;
use std::time::Duration;

use drover_model::size::Size;
use drover_model::time::Moment;

use super::pace::Pace;

/// Sizes that are remembered at most: anybody may ask for any size within the limits.
const MOST: usize = 100;
/// A size of which nothing was heard for so long is tried as if it were new.
const FORGOTTEN: Duration = Duration::from_secs(60);

/// What is remembered of one size.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Lack {
    pace: Pace,
    why: String,
    /// When there was no place the last time.
    at: Moment,
}

/// All sizes for which there was no place.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Unplaced(BTreeMap<Size, Lack>);

impl Unplaced {
    /// An agent of a size had no place, and that is why.
    pub(super) fn stumbled(&mut self, size: Size, why: &str, now: Moment) {
        self.0.retain(|_, lack| now - lack.at < FORGOTTEN);
        if self.0.len() >= MOST && !self.0.contains_key(&size) {
            let oldest = self.0.iter().min_by_key(|(_, lack)| lack.at).map(|(size, _)| *size);
            oldest.and_then(|size| self.0.remove(&size));
        }
        let new = || Lack { pace: Pace::default(), why: String::new(), at: now };
        let lack = self.0.entry(size).or_insert_with(new);
        lack.pace.stumbled(false, now);
        why.clone_into(&mut lack.why);
        lack.at = now;
    }

    /// An agent of a size got ready.
    pub(super) fn succeeded(&mut self, size: Size) {
        self.0.remove(&size);
    }

    /// The sizes of which none is started at this moment, and why.
    pub(super) fn at(&self, now: Moment) -> BTreeMap<Size, String> {
        let paused = self.0.iter().filter(|(_, lack)| lack.pace.pause(now).is_some());
        paused.map(|(size, lack)| (*size, lack.why.clone())).collect()
    }

    /// When one of them is tried again.
    pub(super) fn next(&self, now: Moment) -> Option<Moment> {
        self.0.values().filter_map(|lack| lack.pace.pause(now)).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cores(cores: u32) -> Size {
        Size { cores: Some(cores), ..Size::NONE }
    }

    // Invariant: a size without a place pauses alone, and is tried again within ten seconds.

    #[test]
    fn each_size_pauses_by_itself_until_its_time_or_a_success() {
        let mut unplaced = Unplaced::default();
        unplaced.stumbled(cores(8), "no room", Moment(0));
        unplaced.stumbled(cores(16), "less room", Moment(500));
        let paused =
            |unplaced: &Unplaced, at| unplaced.at(Moment(at)).into_values().collect::<Vec<_>>();
        assert_eq!(paused(&unplaced, 600), ["no room", "less room"]);
        assert_eq!(unplaced.next(Moment(600)), Some(Moment(1000)));
        assert_eq!(paused(&unplaced, 1000), ["less room"]);
        unplaced.succeeded(cores(16));
        assert_eq!((paused(&unplaced, 1000).len(), unplaced.next(Moment(1000))), (0, None));
        let mut now = Moment(1000);
        for _ in 0..9 {
            unplaced.stumbled(cores(8), "no room", now);
            let next = unplaced.next(now).unwrap_or(now);
            assert!(next > now && next - now <= Duration::from_secs(10), "{next:?} after {now:?}");
            now = next;
        }
    }

    // Invariant: whatever sizes are asked for, a bounded number is remembered.

    #[test]
    fn of_too_many_sizes_the_oldest_is_forgotten() {
        let mut unplaced = Unplaced::default();
        for n in 0..500 {
            unplaced.stumbled(cores(n + 1), "no room", Moment(u64::from(n)));
        }
        assert_eq!(unplaced.0.len(), MOST);
        assert!(unplaced.0.contains_key(&cores(500)));
    }
}
