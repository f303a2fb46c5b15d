//! The time axis: which moment each column stands for. Pure.

/// The least and the most time that the axis shows, in milliseconds.
const SHORTEST_MS: u64 = 10_000;
const LONGEST_MS: u64 = 120_000;
/// The fewest columns from one number to the next.
const TICK_COLUMNS: u64 = 8;
/// Seconds between two numbers.
const TICK_SECONDS: [u64; 6] = [1, 2, 5, 10, 20, 60];

/// A stretch of time on some columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Axis {
    pub from_ms: u64,
    pub to_ms: u64,
    pub columns: u16,
}

impl Axis {
    /// From the start of the demo to this moment, or the last of it.
    pub fn until(now_ms: u64, columns: u16) -> Self {
        let to_ms = now_ms.max(SHORTEST_MS);
        Self { from_ms: to_ms.saturating_sub(LONGEST_MS), to_ms, columns: columns.max(1) }
    }

    /// When a column starts.
    pub fn start_of(self, column: u16) -> u64 {
        let span = self.to_ms - self.from_ms;
        self.from_ms + span * u64::from(column) / u64::from(self.columns)
    }

    /// The column of a moment; none where the axis does not show it.
    pub fn column_of(self, at_ms: u64) -> Option<u16> {
        if at_ms < self.from_ms || at_ms > self.to_ms {
            return None;
        }
        let span = (self.to_ms - self.from_ms).max(1);
        let column = (at_ms - self.from_ms) * u64::from(self.columns) / span;
        Some(u16::try_from(column).unwrap_or(u16::MAX).min(self.columns - 1))
    }

    /// The columns that have a number, and these seconds.
    pub fn ticks(self) -> Vec<(u16, u64)> {
        let span = self.to_ms - self.from_ms;
        let wide = |step: &&u64| **step * 1000 * u64::from(self.columns) / span >= TICK_COLUMNS;
        let step = TICK_SECONDS.iter().find(wide).copied().unwrap_or(60);
        let first = self.from_ms.div_ceil(step * 1000);
        let seconds = (first..).map(|number| number * step);
        let shown = seconds.map_while(|second| Some((self.column_of(second * 1000)?, second)));
        shown.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Invariant: a moment lies in the column that starts with it or before it.

    #[test]
    fn columns_and_moments_agree() {
        let axis = Axis::until(30_000, 60);
        assert_eq!(axis, Axis { from_ms: 0, to_ms: 30_000, columns: 60 });
        assert_eq!((axis.start_of(10), axis.column_of(5000)), (5000, Some(10)));
        assert_eq!((axis.column_of(30_000), axis.column_of(30_001)), (Some(59), None));
        let ticks = [(0, 0), (10, 5), (20, 10), (30, 15), (40, 20), (50, 25), (59, 30)];
        assert_eq!(axis.ticks(), ticks);
    }

    #[test]
    fn a_long_run_shows_its_last_minutes() {
        let axis = Axis::until(300_000, 60);
        assert_eq!((axis.from_ms, axis.to_ms), (180_000, 300_000));
        assert_eq!(axis.ticks().first(), Some(&(0, 180)));
    }
}
