//! Which templates' next failures are held for debugging. Shared by the herd and the agents of one
//! thread, so that of two that fail in the same moment one alone is held.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use crate::id::TemplateId;
use crate::record::Hold;

/// The holds that wait for a failure, by template.
#[derive(Debug, Clone, Default)]
pub struct HoldNext(Rc<RefCell<BTreeMap<TemplateId, Hold>>>);

impl HoldNext {
    /// As the journal knows them.
    pub fn of_ledger(known: &BTreeMap<TemplateId, Hold>) -> Self {
        Self(Rc::new(RefCell::new(known.clone())))
    }

    /// The hold that waits for a failure of a template.
    pub fn of(&self, template: &TemplateId) -> Option<Hold> {
        self.0.borrow().get(template).cloned()
    }

    /// Lets a hold wait for the next failure of a template, or none.
    pub fn set(&self, template: &TemplateId, hold: Option<Hold>) {
        match hold {
            Some(hold) => self.0.borrow_mut().insert(template.clone(), hold),
            None => self.0.borrow_mut().remove(template),
        };
    }
}
