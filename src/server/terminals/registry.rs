//! The terminals that are open, by their ids, and how the last ones ended.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use drover_api::Problem;
use parking_lot::Mutex;

use super::terminal::Terminal;
use crate::problem::Rejection;
use crate::share::{Share, Shared};

/// Terminals at once, and those of one principal.
pub(crate) const TERMINALS: (usize, usize) = (32, 8);
/// Ended ones whose reason is still known.
const ENDED_KEPT: usize = 64;

/// The terminals of a service.
pub(crate) struct Terminals {
    room: Arc<Shared<String>>,
    known: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    open: BTreeMap<String, Arc<Terminal>>,
    /// Ids, whose they were, and why they ended; the last is the newest.
    ended: VecDeque<(String, String, String)>,
}

impl Default for Terminals {
    fn default() -> Self {
        Self { room: Shared::new(TERMINALS.0, TERMINALS.1), known: Mutex::default() }
    }
}

impl Terminals {
    /// A place for another one.
    pub(crate) fn place(&self, principal: &str) -> Result<Share<String>, Rejection> {
        let mut place = self.room.share(principal.to_owned());
        place.take(1, usize::MAX).map_err(|_| Rejection {
            document: Problem {
                title: "too many terminals are open".to_owned(),
                detail: format!(
                    "{} terminals may be open at once, and {} of one principal: close one of them; \
                     `GET /v1/terminals` lists them",
                    TERMINALS.0, TERMINALS.1
                ),
                ..Rejection::too_many(Duration::ZERO).document
            },
            ..Rejection::too_many(Duration::from_secs(5))
        })?;
        Ok(place)
    }

    pub(crate) fn add(&self, terminal: &Arc<Terminal>) {
        self.known.lock().open.insert(terminal.id.clone(), Arc::clone(terminal));
    }

    pub(crate) fn forget(&self, terminal: &Terminal, why: &str) {
        let mut known = self.known.lock();
        known.open.remove(&terminal.id);
        known.ended.push_back((
            terminal.id.clone(),
            terminal.caller.principal.clone(),
            why.to_owned(),
        ));
        if known.ended.len() > ENDED_KEPT {
            known.ended.pop_front();
        }
    }

    /// The terminal of that id, where this principal opened it.
    pub(crate) fn of(&self, id: &str, principal: &str) -> Result<Arc<Terminal>, Rejection> {
        let known = self.known.lock();
        if let Some(terminal) = known.open.get(id).filter(|one| one.caller.principal == principal) {
            return Ok(Arc::clone(terminal));
        }
        let ended = known.ended.iter().find(|(of, whose, _)| of == id && whose == principal);
        Err(Rejection::not_found(match ended {
            Some((_, _, why)) => format!("the terminal has ended: {why}"),
            None => "no terminal of yours has this id".to_owned(),
        }))
    }

    /// How many are open.
    pub(crate) fn count(&self) -> usize {
        self.known.lock().open.len()
    }

    /// Those that are open, the oldest first.
    pub(crate) fn all(&self) -> Vec<Arc<Terminal>> {
        let mut all: Vec<_> = self.known.lock().open.values().cloned().collect();
        all.sort_by_key(|one| one.opened);
        all
    }

    /// The terminal of that id, of any principal.
    pub(crate) fn of_anybody(&self, id: &str) -> Option<Arc<Terminal>> {
        self.known.lock().open.get(id).cloned()
    }
}
