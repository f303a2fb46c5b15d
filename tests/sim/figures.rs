//! What the bench does with its figures. The bench is no part of a plain run, and what it refuses is.

use std::panic::catch_unwind;

#[expect(dead_code, clippy::print_stdout, reason = "the bench uses all of it, for people to read")]
#[path = "../bench/figure.rs"]
mod figure;

use figure::{Figure, Report, percentile};

/// Why a report does not take a figure.
fn refused(figure: Figure) -> String {
    let reported = catch_unwind(|| Report::default().add(figure)).unwrap_err();
    reported.downcast_ref::<String>().cloned().unwrap_or_default()
}

fn seeds(value: f64) -> Figure {
    Figure::alone("storm.seeds", value, "seeds/s")
}

// Invariant: a figure that cannot be ends the run, and so does one of no work or beside none.

#[test]
fn a_figure_that_cannot_be_ends_the_run() {
    for (value, reported) in [(-0.41, "-0.41"), (f64::NAN, "NaN"), (f64::INFINITY, "inf")] {
        assert_eq!(refused(seeds(value)), format!("storm.seeds cannot be {reported}"));
    }
}

#[test]
fn a_figure_beside_nothing_ends_the_run() {
    for value in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let reported = format!("storm.seeds: `the aim` cannot be {value}");
        assert_eq!(refused(seeds(1.0).against("the aim", value)), reported);
        assert_eq!(refused(seeds(1.0).with_ratio("the aim", value, 1.0)), reported);
    }
    let reported = refused(seeds(1.0).with_ratio("the aim", 1.0, f64::NAN));
    assert_eq!(reported, "storm.seeds: the ratio to `the aim` cannot be NaN");
}

#[test]
fn a_percentile_of_an_empty_sample_ends_the_run() {
    assert!(catch_unwind(|| percentile(&[], 0.5)).is_err());
    assert_eq!(
        [0.0, 0.5, 0.99, 1.0].map(|share| percentile(&[3.0, 1.0, 2.0], share)),
        [1.0, 2.0, 3.0, 3.0]
    );
}

#[test]
fn what_was_measured_is_taken() {
    let mut report = Report::default();
    report.add(seeds(0.0));
    report.add(seeds(0.0).against("the aim", 2.0));
    report.add(seeds(4.0).with_ratio("the aim", 2.0, 2.5));
}
