//! What a template keeps at a wall time: its minimums, raised by the windows of its schedule that are
//! open.

use drover_model::ports::Calendar;
use drover_model::spec::{Minimums, TemplateSpec};
use drover_model::time::WallTime;

/// What is kept from one wall time to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScheduleWindow {
    /// How many agents are kept.
    pub kept: Minimums,
    /// When a window closed last that kept more: what is older is surplus.
    pub closed: Option<WallTime>,
    from: WallTime,
    until: Option<WallTime>,
}

impl ScheduleWindow {
    /// What a spec keeps at a wall time.
    pub fn at(spec: &TemplateSpec, calendar: &dyn Calendar, now: WallTime) -> Self {
        let seen: Vec<_> = spec
            .schedule
            .iter()
            .map(|window| (window, calendar.observation(window, now)))
            .collect();
        let open = seen.iter().filter(|(_, observation)| observation.open);
        let kept = open.fold(spec.minimums(), |kept, (window, _)| kept.max(window.minimums()));
        let closed = seen.iter().filter(|(window, _)| window.minimums().max(kept) != kept);
        Self {
            kept,
            closed: closed.filter_map(|(_, observation)| observation.closed).max(),
            from: now,
            until: seen.iter().filter_map(|(_, observation)| observation.until).min(),
        }
    }

    /// Whether it still holds; a wall clock that was set back ends it too.
    pub fn holds(&self, now: WallTime) -> bool {
        self.from <= now && self.until.is_none_or(|until| now < until)
    }

    /// When it ends, if it ends by time alone.
    pub fn until(&self) -> Option<WallTime> {
        self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Hours, at, template, window};

    // Invariant: open windows raise what is kept, each of the two on its own, and never lower it.

    #[test]
    fn open_windows_raise_what_is_kept_and_the_last_to_close_leaves_a_surplus() {
        let mut spec = template("c/t", &[]);
        (spec.minimum, spec.idle_minimum) = (2, 1);
        spec.schedule = vec![window(1, 3, (5, 0)), window(2, 4, (1, 4)), window(0, 4, (2, 1))];
        let seen = [0, 1, 2, 3, 4].map(|hour| {
            let schedule_window = ScheduleWindow::at(&spec, &Hours, at(hour * 3600).wall);
            let hour = |at: WallTime| (at.0 - crate::testing::at(0).wall.0) / 3_600_000;
            let Minimums { all, idle } = schedule_window.kept;
            (all, idle, schedule_window.closed.map(hour), schedule_window.until().map(hour))
        });
        assert_eq!(
            seen,
            [
                (2, 1, None, Some(1)),
                (5, 1, None, Some(2)),
                (5, 4, None, Some(3)),
                (2, 4, Some(3), Some(4)),
                (2, 1, Some(4), Some(24)),
            ]
        );
    }
}
