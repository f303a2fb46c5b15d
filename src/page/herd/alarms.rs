//! Alarms, and sources that cannot be read as some.

use drover_api::{AlarmOut, SourceOut};

use crate::said;

/// An alarm with the page of what it is about.
pub(super) struct Alarm {
    pub(super) out: AlarmOut,
    pub(super) place: Option<String>,
    /// What its command does, where the command does not say so.
    pub(super) does: &'static str,
}

impl Alarm {
    pub(super) fn new(out: AlarmOut) -> Self {
        let looks = out.command.starts_with("drover doctor");
        let does = if looks {
            "changes nothing: it tries what drover needs there, and says what repairs it"
        } else {
            ""
        };
        Self { place: said::place(&out.about), does, out }
    }
}

/// The number of the alarm of a cloud in the list, and its cloud.
pub(super) fn alarm_of(alarms: &[Alarm], cloud: &str) -> Option<(usize, String)> {
    let about = format!("cloud {cloud}");
    let place = alarms.iter().position(|one| one.out.about == about)?;
    Some((place + 1, about))
}

/// All alarms that stand, with sources that cannot be read: they are no alarms of agents or clusters, and all the
/// same nothing of them is served.
pub fn standing_alarms(alarms: Vec<AlarmOut>, sources: &[SourceOut]) -> Vec<AlarmOut> {
    alarms.into_iter().chain(sources.iter().filter_map(silent)).collect()
}

/// A source that cannot be read, as an alarm.
fn silent(source: &SourceOut) -> Option<AlarmOut> {
    let since = source.silent_since.clone()?;
    Some(AlarmOut {
        about: format!("source {}", source.id),
        agent: String::new(),
        text: format!(
            "cannot be polled, so no new job of it is seen: {}",
            source.detail.clone().unwrap_or_default()
        ),
        command: "drover doctor".to_owned(),
        since: Some(since),
    })
}
