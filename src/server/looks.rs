//! What clusters answered lately.
//!
//! A page that shows nodes asks every cluster. Many people may have it open, and each looks again by itself:
//! all of them get one answer for some seconds, and who comes while it is asked for waits for it.

use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;

use drover_api::{NodesOut, WhyOut, WhySubjectOut};
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::problem::Rejection;

/// How long an answer is shown.
const FRESH: Duration = Duration::from_secs(8);
/// The most answers that are kept of each kind.
const KEPT: usize = 64;

/// Answers by what was asked.
#[derive(Default)]
pub(crate) struct Looks {
    pub(super) nodes: Kept<NodesOut>,
    pub(super) why: Kept<WhySubjectOut>,
    pub(super) templates: Kept<WhyOut>,
}

/// Answers of one kind.
pub(super) struct Kept<T>(Mutex<BTreeMap<String, (Instant, T)>>);

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Clone> Kept<T> {
    /// The answer to that question: one that was given lately, or a new one.
    ///
    /// # Errors
    /// What `ask` says; it is not kept.
    pub(super) async fn look(
        &self,
        about: &str,
        ask: impl Future<Output = Result<T, Rejection>>,
    ) -> Result<T, Rejection> {
        let mut kept = self.0.lock().await;
        let now = Instant::now();
        kept.retain(|_, (at, _)| now.duration_since(*at) < FRESH);
        if let Some((_, known)) = kept.get(about) {
            return Ok(known.clone());
        }
        let answer = ask.await?;
        if kept.len() < KEPT {
            kept.insert(about.to_owned(), (Instant::now(), answer.clone()));
        }
        Ok(answer)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

    use std::cell::Cell;

    use super::*;

    // Invariant: clusters are asked once for all who look within some seconds, and a failure is nobody's answer.

    #[tokio::test(start_paused = true)]
    async fn a_question_is_asked_again_when_its_answer_is_old_or_there_is_none() {
        let (kept, asked) = (Kept::<u32>::default(), Cell::new(0));
        let ask = |result: Result<u32, Rejection>| {
            let asked = &asked;
            async move {
                asked.set(asked.get() + 1);
                result
            }
        };
        assert!(kept.look("a", ask(Err(Rejection::busy()))).await.is_err());
        assert_eq!(kept.look("a", ask(Ok(1))).await.unwrap(), 1);
        assert_eq!(kept.look("a", ask(Ok(2))).await.unwrap(), 1);
        assert_eq!(kept.look("b", ask(Ok(3))).await.unwrap(), 3);
        tokio::time::advance(FRESH).await;
        assert_eq!(kept.look("a", ask(Ok(4))).await.unwrap(), 4);
        assert_eq!(asked.get(), 4);
    }
}
