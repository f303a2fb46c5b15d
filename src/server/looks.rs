//! What clusters answered lately.
//!
//! A page that shows nodes asks every cluster. Many people may have it open, and each looks again by itself:
//! all of them get one answer for some seconds, and who comes while it is asked for waits for it.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use drover_api::{AccountOut, NodesOut, WhyOut, WhySubjectOut};
use drover_model::placement::report::NodesKnown;
use parking_lot::Mutex;
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::Instant;

use crate::problem::Rejection;

/// How long an answer is shown.
const FRESH: Duration = Duration::from_secs(8);
/// How long an answer of drover itself is shown: many may look after one event.
const BRIEFLY: Duration = Duration::from_millis(800);
/// The most answers that are kept of each kind.
const KEPT: usize = 64;

/// Answers by what was asked.
pub(crate) struct Looks {
    /// What sources and leases wait for. Clusters are not asked for it.
    pub(super) waits: Kept<Vec<AccountOut>>,
    /// What is known of nodes without a look at clusters, too.
    pub(super) known: Kept<NodesKnown>,
    pub(super) nodes: Kept<NodesOut>,
    pub(super) why: Kept<WhySubjectOut>,
    pub(super) templates: Kept<WhyOut>,
}

impl Default for Looks {
    fn default() -> Self {
        Self {
            waits: Kept { fresh: BRIEFLY, ..Kept::default() },
            known: Kept { fresh: BRIEFLY, ..Kept::default() },
            nodes: Kept::default(),
            why: Kept::default(),
            templates: Kept::default(),
        }
    }
}

impl Looks {
    /// Forgets what may be so no more: an operator changed what agents start on.
    pub(super) fn forget(&self) {
        self.waits.forget();
        self.known.forget();
        self.nodes.forget();
        self.templates.forget();
        self.why.forget();
    }
}

/// An answer, when it came, and whether it refused.
type Answer<T> = Option<(Instant, Result<T, Rejection>)>;

/// Answers of one kind. Each question has a lock of its own: one that a cluster does not answer holds up nobody
/// who asks something else.
pub(super) struct Kept<T> {
    places: Mutex<BTreeMap<String, Arc<AsyncMutex<Answer<T>>>>>,
    fresh: Duration,
}

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Self { places: Mutex::default(), fresh: FRESH }
    }
}

impl<T: Clone> Kept<T> {
    /// The answer to that question: one that was given lately, or a new one. A refusal is an answer, too: a
    /// cluster that does not answer is not asked again by each reader.
    ///
    /// # Errors
    /// What `ask` says.
    pub(super) async fn look(
        &self,
        about: &str,
        ask: impl Future<Output = Result<T, Rejection>>,
    ) -> Result<T, Rejection> {
        let Some(place) = self.place(about) else { return ask.await };
        let mut kept = place.lock().await;
        if let Some((_, known)) = kept.as_ref().filter(|(at, _)| at.elapsed() < self.fresh) {
            return known.clone();
        }
        let answer = ask.await;
        *kept = Some((Instant::now(), answer.clone()));
        answer
    }

    /// Forgets all answers: something was changed.
    pub(super) fn forget(&self) {
        self.places.lock().clear();
    }

    /// The place of a question; none where too many others are asked.
    fn place(&self, about: &str) -> Option<Arc<AsyncMutex<Answer<T>>>> {
        let mut places = self.places.lock();
        if places.len() >= KEPT && !places.contains_key(about) {
            places.retain(|_, place| {
                let is_fresh = |kept: &Answer<T>| {
                    kept.as_ref().is_some_and(|(at, _)| at.elapsed() < self.fresh)
                };
                place.try_lock().map_or(true, |kept| is_fresh(&kept))
            });
            if places.len() >= KEPT {
                return None;
            }
        }
        Some(Arc::clone(places.entry(about.to_owned()).or_default()))
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

    use std::cell::Cell;

    use super::*;

    // Invariant: clusters are asked once for all who look within some seconds, and nobody waits for another
    // question.

    #[tokio::test(start_paused = true)]
    async fn a_question_is_asked_again_when_its_answer_is_old() {
        let (kept, asked) = (Kept::<u32>::default(), Cell::new(0));
        let ask = |result: Result<u32, Rejection>| {
            let asked = &asked;
            async move {
                asked.set(asked.get() + 1);
                result
            }
        };
        assert_eq!(kept.look("a", ask(Ok(1))).await.unwrap(), 1);
        assert_eq!(kept.look("a", ask(Ok(2))).await.unwrap(), 1);
        assert!(kept.look("b", ask(Err(Rejection::busy()))).await.is_err());
        assert!(kept.look("b", ask(Ok(3))).await.is_err());
        tokio::time::advance(FRESH).await;
        assert_eq!(kept.look("a", ask(Ok(4))).await.unwrap(), 4);
        assert_eq!(kept.look("b", ask(Ok(5))).await.unwrap(), 5);
        assert_eq!(asked.get(), 4);
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_that_is_not_answered_holds_up_no_other_one() {
        let kept = Kept::<u32>::default();
        let hangs = kept.look("slow", std::future::pending());
        let answered = async { kept.look("fast", async { Ok(1) }).await.unwrap() };
        tokio::select! {
            _ = hangs => panic!("it is never answered"),
            answer = answered => assert_eq!(answer, 1),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn many_questions_leave_no_more_than_so_many_answers() {
        let kept = Kept::<u32>::default();
        for number in 0..3 * KEPT {
            kept.look(&number.to_string(), async { Ok(1) }).await.unwrap();
        }
        assert_eq!(kept.places.lock().len(), KEPT);
        tokio::time::advance(FRESH).await;
        kept.look("one more", async { Ok(1) }).await.unwrap();
        assert_eq!(kept.places.lock().len(), 1);
    }
}
