//! Why nobody logged in.

/// Why a login failed: what happened and where. [`Fault::help`] says what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    #[error("drover cannot call the provider: {0}")]
    Setup(String),
    #[error("the system has no random numbers")]
    NoRandom,
    #[error("the provider did not answer {call}: {why}")]
    Away { call: String, why: String },
    #[error("too many logins wait for the provider")]
    Busy,
    #[error("the provider answered {call} with {what}")]
    Answer { call: String, what: String },
    #[error("the provider calls itself `{said}`, and the configuration calls it `{wanted}`")]
    Issuer { said: String, wanted: String },
    #[error("the provider's discovery document has {what}")]
    Discovery { what: String },
    #[error("the provider refused the login: {error}{more}")]
    Refused { error: String, more: String },
    #[error("the provider's token does not count: {0}")]
    Token(#[from] TokenFault),
    #[error("the provider named nobody: its claims have no text `{claim}`, but {has}")]
    NoUser { claim: String, has: String },
    #[error("the provider's claim `{claim}` is no name of a person: {why}")]
    User { claim: String, why: &'static str },
    #[error("the claim `{claim}` is no list of groups, but {what}")]
    Groups { claim: String, what: &'static str },
}

/// Why a token proves nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenFault {
    #[error("it is no signed token: {0}")]
    Shape(&'static str),
    #[error("it is signed by `{0}`, and drover takes RS256 and ES256 alone")]
    Algorithm(String),
    #[error("the provider publishes no key `{0}` that could have signed it")]
    UnknownKey(String),
    #[error("its signature is not that of the provider's key")]
    Signature,
    #[error("it is of the issuer `{0}`")]
    Issuer(String),
    #[error("it is for {0}, and not for this client")]
    Audience(String),
    #[error("it was made for the client `{0}`")]
    Party(String),
    #[error("it is for several clients and does not say which asked for it (`azp`)")]
    NoParty,
    #[error("it expired {0} s ago")]
    Expired(u64),
    #[error("it counts only in {0} s")]
    Early(u64),
    #[error("it has no `{0}` that can be read")]
    Missing(&'static str),
    #[error("it was made for another login (`nonce`)")]
    Nonce,
    #[error("the claims of `userinfo` are of another person than the token (`sub`)")]
    Person,
}

impl Fault {
    /// What to do: for the person at the browser first, then for who administers drover.
    pub fn help(&self) -> &'static str {
        match self {
            Self::Setup(_) => "see `service.openId.caFile`, and the log of drover",
            Self::NoRandom => "see the log of drover's machine",
            Self::Away { .. } => {
                "try again, or log in with a token; `drover doctor` asks the provider and says what fails"
            }
            Self::Busy => "try again in some seconds",
            Self::Answer { .. } | Self::Discovery { .. } => {
                "check `service.openId.issuer` with `drover doctor`, and the log of the provider"
            }
            Self::Issuer { .. } => "write `service.openId.issuer` as the provider calls itself",
            Self::Refused { error, .. } => of_refusal(error),
            Self::Token(TokenFault::Expired(_) | TokenFault::Early(_)) => {
                "compare the clocks of drover's machine and of the provider: `timedatectl` on both"
            }
            Self::Token(TokenFault::Algorithm(_)) => {
                "set RS256 or ES256 for ID tokens of drover's client at the provider"
            }
            Self::Token(TokenFault::Nonce) => "start the login again",
            Self::Token(_) => {
                "start the login again; if that does not help, `drover doctor` asks the provider"
            }
            Self::NoUser { .. } | Self::User { .. } => {
                "set `service.openId.userClaim` to a claim that the provider gives, such as `sub`"
            }
            Self::Groups { .. } => {
                "set `service.openId.groupsClaim` to the claim with the list of groups"
            }
        }
    }

    /// Whether the provider is at fault or away, and not the person who logs in.
    pub fn is_of_provider(&self) -> bool {
        match self {
            Self::Setup(_)
            | Self::NoRandom
            | Self::Away { .. }
            | Self::Busy
            | Self::Answer { .. }
            | Self::Issuer { .. }
            | Self::Discovery { .. } => true,
            Self::Refused { .. }
            | Self::Token(_)
            | Self::NoUser { .. }
            | Self::User { .. }
            | Self::Groups { .. } => false,
        }
    }
}

/// What to do about an error of OAuth 2.0 (RFC 6749, 4.1.2.1 and 5.2).
fn of_refusal(error: &str) -> &'static str {
    match error {
        "access_denied" | "login_required" | "consent_required" | "interaction_required" => {
            "log in at the provider and allow drover there"
        }
        "invalid_client" | "unauthorized_client" => {
            "compare `service.openId.clientId` and its secret with the client at the provider"
        }
        "invalid_scope" => "take out of `service.openId.scopes` what the provider does not know",
        "invalid_grant" => {
            "start the login again; if that does not help, compare `service.openId.redirectUrl` with the \
             client at the provider"
        }
        _ => "see the log of the provider",
    }
}
