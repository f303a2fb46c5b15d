//! Logging in: API tokens are used as they are. Tickets are kept, renewed before their two hours
//! end, and fetched again once when a node refuses them (book: proxmox, section 3).

use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};
use tokio::time::Instant;

use crate::client::{Client, Headers};
use crate::connection::Login;
use crate::error::{Call, PveError};
use crate::transport::{Method, encode};
use crate::types::Ticket;

/// A ticket is valid for two hours; it is renewed well before that.
const TICKET_RENEW_AFTER: Duration = Duration::from_secs(90 * 60);

/// A ticket of this age is not worth sending.
const TICKET_DEAD_AFTER: Duration = Duration::from_secs(2 * 60 * 60 - 60);

/// A login and its ticket, if it has one.
pub(crate) struct Session {
    login: Login,
    ticket: tokio::sync::Mutex<Option<HeldTicket>>,
}

struct HeldTicket {
    ticket: SecretString,
    csrf: SecretString,
    since: Instant,
}

impl Session {
    /// A session without a ticket.
    pub(crate) fn new(login: Login) -> Self {
        Self { login, ticket: tokio::sync::Mutex::new(None) }
    }

    /// The login's name, without its secret.
    pub(crate) fn name(&self) -> &str {
        self.login.name()
    }

    /// Whether a new ticket may help after a refused login.
    pub(crate) fn renewable(&self) -> bool {
        matches!(self.login, Login::Password { .. })
    }

    /// Drops the ticket that a node refused, unless a new one was fetched meanwhile.
    pub(crate) async fn forget(&self, used: &Headers) {
        let mut held = self.ticket.lock().await;
        let stale = held.as_ref().is_some_and(|held| {
            let cookie = cookie(held);
            used.iter().any(|(_, value)| value.expose_secret() == cookie.expose_secret())
        });
        if stale {
            *held = None;
        }
    }

    /// The headers that authenticate a call; fetches or renews the ticket when it is time.
    pub(crate) async fn headers(
        &self,
        client: &Client,
        method: Method,
    ) -> Result<Headers, PveError> {
        let (username, secret) = match &self.login {
            Login::Token { id, secret } => {
                let value = format!("PVEAPIToken={id}={}", secret.expose_secret());
                return Ok(vec![("Authorization", value.into())]);
            }
            Login::Password { username, secret } => (username, secret),
        };
        let mut slot = self.ticket.lock().await;
        let age = slot.as_ref().map(|held| held.since.elapsed());
        if age.is_none_or(|age| age >= TICKET_RENEW_AFTER) {
            let renewed =
                match slot.as_ref().filter(|held| held.since.elapsed() < TICKET_DEAD_AFTER) {
                    Some(held) => fetch(client, username, &held.ticket).await.ok(),
                    None => None,
                };
            *slot = Some(match renewed {
                Some(held) => held,
                None => fetch(client, username, secret).await?,
            });
        }
        let Some(held) = slot.as_ref() else { return Ok(Vec::new()) };
        let mut headers = vec![("Cookie", cookie(held))];
        if method.writes() {
            headers.push(("CSRFPreventionToken", held.csrf.clone()));
        }
        Ok(headers)
    }
}

fn cookie(held: &HeldTicket) -> SecretString {
    format!("PVEAuthCookie={}", encode(held.ticket.expose_secret())).into()
}

async fn fetch(
    client: &Client,
    username: &str,
    secret: &SecretString,
) -> Result<HeldTicket, PveError> {
    let call = Call::new(Method::Post, "/access/ticket");
    let params = vec![
        ("username".to_owned(), username.to_owned()),
        ("password".to_owned(), secret.expose_secret().to_owned()),
    ];
    let answer = client.exchange(&call, (params, None), Vec::new()).await?;
    let ticket: Ticket = answer.read(&call)?;
    if ticket.need_tfa {
        return Err(PveError::SecondFactor(username.to_owned()));
    }
    tracing::debug!(login = username, "logged in with a new ticket");
    let (ticket, csrf) = (ticket.ticket.into(), ticket.csrf.into());
    Ok(HeldTicket { ticket, csrf, since: Instant::now() })
}
