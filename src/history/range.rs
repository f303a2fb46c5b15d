//! Which records belong to a range of time, and how much of each.

use drover_model::time::WallTime;

use crate::Line;

/// A range of time: from its first moment on, before its last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    pub from: WallTime,
    pub to: WallTime,
}

impl Range {
    /// Whether a moment is in it.
    pub fn has(self, at: WallTime) -> bool {
        self.from <= at && at < self.to
    }

    /// Milliseconds of a span that are in it; one that goes on reaches to its end.
    pub fn part_ms(self, start: WallTime, end: Option<WallTime>) -> u64 {
        let end = end.map_or(self.to, |end| end.min(self.to));
        u64::try_from(end.0.saturating_sub(start.max(self.from).0)).unwrap_or(0)
    }

    /// Whether any moment of a span is in it.
    pub fn meets(self, start: WallTime, end: Option<WallTime>) -> bool {
        start < self.to && end.is_none_or(|end| end >= self.from)
    }

    /// Whether a record belongs to it.
    pub fn takes(self, line: &Line) -> bool {
        match line {
            Line::Demand(demand) => self.meets(demand.arrived, demand.ended),
            Line::Agent(agent) => self.meets(agent.made, agent.gone),
            Line::Configuration(configuration) => self.has(configuration.at),
            Line::Service(service) => self.has(service.at),
            Line::Trace(_) | Line::End(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RANGE: Range = Range { from: WallTime(100), to: WallTime(200) };

    // Invariant: ranges that touch count each moment once.

    #[test]
    fn a_span_counts_with_its_part_in_the_range() {
        for (start, end, part) in [
            (0, Some(50), 0),
            (0, Some(150), 50),
            (50, Some(250), 100),
            (150, Some(160), 10),
            (150, None, 50),
            (250, None, 0),
        ] {
            let part_ms = RANGE.part_ms(WallTime(start), end.map(WallTime));
            assert_eq!(part_ms, part, "{start} to {end:?}");
        }
        let next = Range { from: RANGE.to, to: WallTime(300) };
        let whole = Range { from: RANGE.from, to: next.to };
        let (start, end) = (WallTime(120), Some(WallTime(280)));
        let parts = RANGE.part_ms(start, end) + next.part_ms(start, end);
        assert_eq!(parts, whole.part_ms(start, end));
    }

    #[test]
    fn the_first_moment_is_in_the_range_and_the_last_one_is_not() {
        assert!(RANGE.has(WallTime(100)) && !RANGE.has(WallTime(200)));
        assert!(RANGE.meets(WallTime(0), Some(WallTime(100))));
        assert!(!RANGE.meets(WallTime(200), None));
        assert!(!RANGE.meets(WallTime(0), Some(WallTime(99))));
    }
}
