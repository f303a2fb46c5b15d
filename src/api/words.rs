//! Counts and states in words for people.

use drover_model::phase::CloudHealth;

/// A number of things, such as `1 agent` or `no agents`.
pub fn count(number: usize, thing: &str) -> String {
    match number {
        0 => format!("no {thing}s"),
        1 => format!("1 {thing}"),
        more => format!("{more} {thing}s"),
    }
}

/// A cloud's health in a word for people.
pub fn health(health: CloudHealth) -> &'static str {
    match health {
        CloudHealth::Well => "healthy",
        CloudHealth::Connecting | CloudHealth::Degraded => health.name(),
    }
}
