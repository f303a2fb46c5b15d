//! What lets a caller in for as long as an answer lasts: streams and terminals stay open for longer than a token, a
//! role or a session may.

use std::time::{Duration, Instant};

use actix_web::http::header::{self, HeaderMap};

use super::auth::{Caller, Standing};
use super::house::{House, now};
use super::session::sealed;

/// How often it is looked at.
pub(crate) const LOOK: Duration = Duration::from_secs(1);

/// What let a caller in.
pub(crate) struct Pass {
    caller: Caller,
    standing: Standing,
    /// The cookie of their session, where they have one: it ends by itself, and with the groups of a person.
    session: Option<String>,
    looked: Instant,
}

impl Pass {
    /// Of a caller whose request has these headers.
    pub(crate) fn of(house: &House, caller: &Caller, headers: &HeaderMap) -> Self {
        let auth = house.auth();
        let session = sealed(headers).filter(|_| !headers.contains_key(header::AUTHORIZATION));
        let is_theirs = |sealed: &&str| {
            house.sessions.caller_of(sealed, &auth, now().0).as_ref() == Some(caller)
        };
        Self {
            caller: caller.clone(),
            standing: auth.standing(&caller.principal),
            session: session.filter(is_theirs).map(str::to_owned),
            looked: Instant::now(),
        }
    }

    /// Whose it is.
    pub(crate) fn caller(&self) -> &Caller {
        &self.caller
    }

    /// Why it counts no more.
    pub(crate) fn fault(&self, house: &House) -> Option<&'static str> {
        let auth = house.auth();
        if auth.standing(&self.caller.principal) != self.standing {
            return Some("the login of its owner changed");
        }
        let session = self.session.as_ref()?;
        let is_same =
            house.sessions.caller_of(session, &auth, now().0).as_ref() == Some(&self.caller);
        (!is_same).then_some("the session of its owner ended, or may do less")
    }

    /// Whether it still counts, by a look that is a second old at most.
    pub(crate) fn counts(&mut self, house: &House) -> bool {
        if self.looked.elapsed() < LOOK {
            return true;
        }
        self.looked = Instant::now();
        self.fault(house).is_none()
    }
}
