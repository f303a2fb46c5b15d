//! Login by OpenID Connect: drover as the client of one provider (OpenID Connect Core 1.0; RFC 6749,
//! authorization code; RFC 7636, PKCE).
//!
//! ```text
//! person ──▶ Attempt::new ──▶ Provider::begin ──▶ address of the provider's login
//!                                                         │  code, state
//! Person{name, groups} ◀── Provider::finish ◀─────────────┘
//! ```
//!
//! - In comes [`Settings`] (what the configuration says), an [`Attempt`] (what one login began with), and the
//!   code with which the provider sends the person back.
//! - Out goes a [`Person`]: a name and groups, as the provider says them. What they may do is decided
//!   elsewhere.
//! - Where something is wrong, out goes a [`Fault`], which says what happened, where, and what to do.
//!
//! Bounds: a call takes at most [`CALL_LIMIT`], an answer has at most [`ANSWER_BYTES_MAX`] bytes, and at most
//! [`CALLS_MAX`] calls run at once. The discovery document and the keys are kept for an hour. A token with an
//! unknown key makes drover read the keys again, at most once in [`KEYS_PAUSE`].
//!
//! Only RS256 and ES256 prove a token. `none` and the algorithms with a shared secret prove nothing here,
//! whatever a token says of itself (RFC 8725, 3.1).
//!
//! Files: `attempt.rs` (what a login begins with), `discovery.rs` (the provider's endpoints), `keys.rs` (its
//! keys), `token.rs` (checks of a token, pure), `person.rs` (name and groups of claims, pure), `provider.rs`
//! (the calls), `examine.rs` (what `drover doctor` asks), `fault.rs`.

#![warn(unreachable_pub)]
#![cfg_attr(not(test), warn(unused_crate_dependencies))]

mod attempt;
mod discovery;
mod examine;
mod fault;
mod keys;
mod person;
mod provider;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
mod token;

use proxmox_client::Tls;
use secrecy::{ExposeSecret as _, SecretString};

pub use attempt::Attempt;
pub use examine::Examined;
pub use fault::{Fault, TokenFault};
pub use person::Person;
pub use provider::{ANSWER_BYTES_MAX, CALL_LIMIT, CALLS_MAX, KEYS_PAUSE, Provider, refusal};

/// The path of drover to which a provider sends people back.
pub const CALLBACK: &str = "/login/openid/callback";

/// The path of drover to which a provider sends people after a logout.
pub const AFTER_LOGOUT: &str = "/login";

/// What the configuration says of a provider.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The provider's own name of itself, a URL.
    pub issuer: String,
    pub client_id: String,
    pub client_secret: SecretString,
    /// The address of [`CALLBACK`] as browsers reach it.
    pub redirect: String,
    /// What is asked for beside `openid`.
    pub scopes: Vec<String>,
    /// The claim with a person's name.
    pub user_claim: String,
    /// The claim with a person's groups: its name, or a path with dots.
    pub groups_claim: String,
    pub tls: Tls,
}

impl PartialEq for Settings {
    fn eq(&self, other: &Self) -> bool {
        let texts = |of: &Self| {
            let texts = [&of.issuer, &of.client_id, &of.redirect, &of.user_claim, &of.groups_claim];
            texts.map(String::clone)
        };
        texts(self) == texts(other)
            && self.scopes == other.scopes
            && self.tls == other.tls
            && self.client_secret.expose_secret() == other.client_secret.expose_secret()
    }
}
