//! What `drover doctor` asks a provider. It logs nobody in.

use jiff::Timestamp;
use reqwest::StatusCode;

use crate::Attempt;
use crate::discovery::Discovery;
use crate::fault::Fault;
use crate::provider::{Provider, Refusal};

/// A code that no provider gave.
const NO_CODE: &str = "drover-doctor-asks-whether-the-client-is-known";

/// What a provider said of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Examined {
    /// The provider's clock.
    pub date: Option<Timestamp>,
    /// Whether it says that it takes no proof key.
    pub lacks_proof_key: bool,
    /// The algorithms that it may sign tokens by, as it says.
    pub algorithms: Vec<String>,
    /// How many of its keys could prove a token.
    pub keys: Result<usize, Fault>,
    /// Whether it knows drover's client and its secret.
    pub client: Result<(), Fault>,
    /// Whether it shows a login to people whom drover sends.
    pub login: Result<(), Fault>,
}

impl Provider {
    /// Asks for the document, the keys, whether the client is known, and whether there is a login.
    ///
    /// # Errors
    /// [`Fault`], where there is no document.
    pub async fn examine(&self) -> Result<Examined, Fault> {
        let (document, date) = self.read_document().await?;
        let keys = self.keys(&document, std::time::Duration::ZERO).await.map(|keys| keys.count());
        Ok(Examined {
            date,
            lacks_proof_key: document.lacks_proof_key,
            algorithms: document.algorithms.clone(),
            keys,
            client: self.ask_client(&document).await,
            login: self.ask_login().await,
        })
    }

    /// Shows the client's secret with a code that counts nowhere: who does not know the client says so
    /// first (RFC 6749, 5.2).
    async fn ask_client(&self, document: &Discovery) -> Result<(), Fault> {
        let answer = self.exchange(document, NO_CODE, NO_CODE).await?;
        let Ok(refusal) = serde_json::from_slice::<Refusal>(&answer.body) else {
            return answer.ok().map(drop);
        };
        let is_unknown = ["invalid_client", "unauthorized_client"].contains(&&*refusal.error);
        if is_unknown || answer.status == StatusCode::UNAUTHORIZED {
            return Err(refusal.fault());
        }
        Ok(())
    }

    /// Opens the login as a browser does. A client or an address that is not the client's is refused with
    /// an error of its own, and everything else is a page or leads to one.
    async fn ask_login(&self) -> Result<(), Fault> {
        let attempt = Attempt::new().ok_or(Fault::NoRandom)?;
        let answer = self.get(&self.begin(&attempt).await?).await?;
        if answer.status.is_client_error() || answer.status.is_server_error() {
            return answer.ok().map(drop);
        }
        Ok(())
    }
}
