//! How long agents take to be ready and uses to end, by template: what estimates are made from.

use std::collections::BTreeMap;
use std::time::Duration;

use drover_model::id::TemplateId;

/// The last so many count; older ones fade.
const SPAN: u32 = 8;

/// A mean that follows what changes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Mean {
    count: u32,
    millis: u64,
}

impl Mean {
    fn note(&mut self, took: Duration) {
        let took = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        self.count = (self.count + 1).min(SPAN);
        let (before, count) = (u64::from(self.count - 1), u64::from(self.count));
        self.millis = self.millis.saturating_mul(before).saturating_add(took) / count;
    }

    fn get(self) -> Option<Duration> {
        (self.count > 0).then(|| Duration::from_millis(self.millis))
    }
}

/// What is known of all templates in this start of the service.
#[derive(Debug, Clone, Default)]
pub struct StartBackoff {
    ready: BTreeMap<TemplateId, Mean>,
    uses: BTreeMap<TemplateId, Mean>,
}

impl StartBackoff {
    /// An agent of a template took so long to be ready.
    pub fn ready(&mut self, template: &TemplateId, took: Duration) {
        self.ready.entry(template.clone()).or_default().note(took);
    }

    /// A use of a template's agent took so long; none where that is not known.
    pub fn used(&mut self, template: &TemplateId, took: Option<Duration>) {
        if let Some(took) = took {
            self.uses.entry(template.clone()).or_default().note(took);
        }
    }

    /// How long agents of a template take to be ready.
    pub fn until_ready(&self, template: &TemplateId) -> Option<Duration> {
        self.ready.get(template).copied().and_then(Mean::get)
    }

    /// How long uses of a template's agents last.
    pub fn of_uses(&self, template: &TemplateId) -> Option<Duration> {
        self.uses.get(template).copied().and_then(Mean::get)
    }

    /// Forgets a template.
    pub fn forget(&mut self, template: &TemplateId) {
        self.ready.remove(template);
        self.uses.remove(template);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::template_id;

    // Invariant: what is estimated follows what is seen, and is nothing before.

    #[test]
    fn a_mean_follows_the_last_ones_and_is_none_before_the_first() {
        let (mut start_backoff, id) = (StartBackoff::default(), template_id("c/t"));
        assert_eq!(start_backoff.until_ready(&id), None);
        start_backoff.ready(&id, Duration::from_secs(40));
        start_backoff.ready(&id, Duration::from_secs(60));
        assert_eq!(start_backoff.until_ready(&id), Some(Duration::from_secs(50)));
        for _ in 0..40 {
            start_backoff.ready(&id, Duration::from_secs(10));
        }
        assert!(start_backoff.until_ready(&id).is_some_and(|mean| mean < Duration::from_secs(11)));
        start_backoff.used(&id, None);
        assert_eq!(start_backoff.of_uses(&id), None);
    }
}
