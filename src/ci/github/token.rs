//! The token of an App's installation, shared by all calls: requested when it is first needed, near
//! its end, and after GitHub refused it.

use std::future::Future;

use jiff::Timestamp;
use secrecy::{ExposeSecret as _, SecretString};

use super::super::error::DemandError;
use super::app::InstallationToken;

/// The current token, once there is one.
#[derive(Default)]
pub(super) struct Token(tokio::sync::Mutex<Option<InstallationToken>>);

impl Token {
    /// The token, from `mint` where no valid one is stored. One call requests a token at a time;
    /// others wait and get the same token.
    pub(super) async fn get(
        &self,
        now: Timestamp,
        mint: impl Future<Output = Result<InstallationToken, DemandError>>,
    ) -> Result<SecretString, DemandError> {
        let mut kept = self.0.lock().await;
        if let Some(kept) = kept.as_ref().filter(|kept| kept.is_fresh(now)) {
            return Ok(kept.token.clone());
        }
        let fresh = mint.await?;
        let token = fresh.token.clone();
        *kept = Some(fresh);
        Ok(token)
    }

    /// Drops a token that GitHub refused. Of several calls that used it, the first drops it, and
    /// the later ones leave its successor in place.
    pub(super) async fn refuse(&self, refused: &SecretString) {
        let mut kept = self.0.lock().await;
        let is_it =
            |kept: &mut InstallationToken| kept.token.expose_secret() == refused.expose_secret();
        kept.take_if(is_it);
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

    use std::cell::Cell;

    use super::*;

    /// A token, and how often one was requested.
    #[derive(Default)]
    struct Counted {
        token: Token,
        minted: Cell<u32>,
    }

    impl Counted {
        async fn get(&self) -> SecretString {
            let mint = async {
                self.minted.set(self.minted.get() + 1);
                let text = format!(
                    r#"{{"token":"t{}","expires_at":"2026-01-01T01:00:00Z"}}"#,
                    self.minted.get()
                );
                Ok(serde_json::from_str(&text).unwrap())
            };
            self.token.get("2026-01-01T00:00:00Z".parse().unwrap(), mint).await.unwrap()
        }
    }

    // Invariant: a refused token costs one new token, however many calls used the old one.

    #[tokio::test]
    async fn two_calls_whose_token_is_refused_have_one_other_minted() {
        let held = Counted::default();
        let (one, two) = (held.get().await, held.get().await);
        held.token.refuse(&one).await;
        let fresh = held.get().await;
        // The second answer arrives when the first call already has another token.
        held.token.refuse(&two).await;
        let last = held.get().await;
        assert_eq!(held.minted.get(), 2, "one that was refused, and one after it");
        assert_eq!(fresh.expose_secret(), last.expose_secret());
    }

    #[tokio::test]
    async fn a_token_that_is_refused_is_used_by_no_later_call() {
        let held = Counted::default();
        let first = held.get().await;
        held.token.refuse(&first).await;
        assert_ne!(held.get().await.expose_secret(), first.expose_secret());
        assert_eq!(held.minted.get(), 2);
    }
}
