//! Counts by template, with their sum at hand: a cloud is asked for its room at every start, and to
//! add up a thousand templates each time costs more than the starts.

use std::collections::BTreeMap;

use drover_model::id::TemplateId;

use crate::effort;

/// Counts by template, and their sum.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Those above zero.
    by: BTreeMap<TemplateId, u32>,
    sum: u64,
}

impl Counts {
    /// The sum of all counts.
    pub(super) fn sum(&self) -> u32 {
        effort::spend(1);
        u32::try_from(self.sum).unwrap_or(u32::MAX)
    }

    fn of(&self, template: &TemplateId) -> u32 {
        self.by.get(template).copied().unwrap_or(0)
    }

    /// Sets the count of a template.
    pub(super) fn set(&mut self, template: &TemplateId, count: u32) {
        effort::spend(1);
        let before = match count {
            0 => self.by.remove(template),
            _ => self.by.insert(template.clone(), count),
        };
        self.sum = self.sum - u64::from(before.unwrap_or(0)) + u64::from(count);
    }

    /// Adds to the count of a template.
    pub(super) fn add(&mut self, template: &TemplateId, count: u32) {
        self.set(template, self.of(template).saturating_add(count));
    }

    /// Takes from the count of a template, which stays at zero or above.
    pub(super) fn take(&mut self, template: &TemplateId, count: u32) {
        self.set(template, self.of(template).saturating_sub(count));
    }

    /// Takes one template out, the first by name.
    pub(super) fn pop(&mut self) -> Option<(TemplateId, u32)> {
        effort::spend(1);
        let (template, count) = self.by.pop_first()?;
        self.sum -= u64::from(count);
        Some((template, count))
    }

    /// Whether the sum is that of the counts.
    #[cfg(test)]
    pub(super) fn adds_up(&self) -> bool {
        self.sum == self.by.values().map(|count| u64::from(*count)).sum::<u64>()
            && self.by.values().all(|count| *count > 0)
    }
}
