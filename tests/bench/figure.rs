//! Figures: a value beside a reference of the same run, as a row of a table and as a JSON line.

use serde_json::json;

/// One figure.
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
    pub fn against(mut self, what: &'static str, value: f64) -> Self {
        let ratio = if value == 0.0 { f64::NAN } else { self.value / value };
        self.reference = Some(Reference { what, value, ratio });
        self
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
    /// Takes one; a figure that cannot be was not measured.
    pub fn add(&mut self, figure: Figure) {
        let Figure { name, value, reference, .. } = &figure;
        let reference = reference.as_ref().map_or(0.0, |reference| reference.value);
        for value in [*value, reference] {
            assert!(value.is_finite() && value >= 0.0, "{name} can not be {value}");
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

/// The value that this share of the sample does not exceed; 0 for an empty one.
pub fn percentile(sample: &[f64], share: f64) -> f64 {
    let mut sorted = sample.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or_default()
}
