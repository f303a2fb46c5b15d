//! Figures: a value beside a reference of the same run, as a row of a table and as a JSON line.

use serde_json::json;

pub struct Figure {
    name: String,
    value: f64,
    unit: &'static str,
    reference: Option<Reference>,
}

struct Reference {
    what: &'static str,
    value: f64,
    ratio: f64,
}

impl Figure {
    /// A figure that stands alone: a count, which no load of the machine changes.
    pub fn alone(name: impl Into<String>, value: f64, unit: &'static str) -> Self {
        Self { name: name.into(), value, unit, reference: None }
    }

    /// Puts a reference beside it.
    pub fn against(self, what: &'static str, value: f64) -> Self {
        let ratio = self.value / value;
        self.with_ratio(what, value, ratio)
    }

    /// The same, with a ratio that was taken one by one before.
    pub fn with_ratio(mut self, what: &'static str, value: f64, ratio: f64) -> Self {
        self.reference = Some(Reference { what, value, ratio });
        self
    }
}

/// The figures of a run, printed as they come.
#[derive(Default)]
pub struct Report {
    figures: Vec<Figure>,
}

impl Report {
    /// Takes one; a figure that cannot be, or beside what cannot be, was not measured.
    pub fn add(&mut self, figure: Figure) {
        let Figure { name, value, reference, .. } = &figure;
        assert!(can_be(*value), "{name} cannot be {value}");
        if let Some(Reference { what, value, ratio }) = reference {
            assert!(can_be(*value) && *value > 0.0, "{name}: `{what}` cannot be {value}");
            assert!(can_be(*ratio), "{name}: the ratio to `{what}` cannot be {ratio}");
        }
        println!("{}", row(&figure));
        self.figures.push(figure);
    }

    /// Prints all of them once more for programs.
    pub fn print_json(&self) {
        for figure in &self.figures {
            let reference = figure.reference.as_ref();
            let line = json!({
                "name": figure.name, "value": round(figure.value), "unit": figure.unit,
                "reference": reference.map(|reference| round(reference.value)),
                "referenceIs": reference.map(|reference| reference.what),
                "ratio": reference.map(|reference| round(reference.ratio)),
            });
            println!("{line}");
        }
    }
}

fn can_be(value: f64) -> bool {
    value.is_finite() && value >= 0.0
}

/// The line above the rows.
pub fn head() -> String {
    format!(
        "{:<42}{:>12} {:<10}{:>12}  {:>8}  reference is",
        "figure", "value", "unit", "reference", "ratio"
    )
}

fn row(figure: &Figure) -> String {
    let Figure { name, value, unit, reference } = figure;
    let start = format!("{name:<42}{:>12} {unit:<10}", short(*value));
    match reference {
        Some(Reference { what, value, ratio }) => {
            format!("{start}{:>12}  {ratio:>8.3}  {what}", short(*value))
        }
        None => start.trim_end().to_owned(),
    }
}

fn short(value: f64) -> String {
    let digits = if value.abs() >= 100.0 {
        0
    } else if value.abs() >= 1.0 {
        2
    } else {
        4
    };
    format!("{value:.digits$}")
}

fn round(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

/// The value that this share of the sample does not exceed. Of an empty sample nothing was measured.
pub fn percentile(sample: &[f64], share: f64) -> f64 {
    assert!(!sample.is_empty(), "a percentile of an empty sample");
    let mut sorted = sample.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted[rank.saturating_sub(1)]
}
