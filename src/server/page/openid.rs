//! The way in by the provider: out to its login, and back with a code.
//!
//! ```text
//! /login/openid ──▶ provider ──▶ /login/openid/callback ──▶ where the person wanted to go
//! ```
//!
//! What a login began with is in a cookie of its own until it ends, so that any member of a store can end it,
//! and only in the browser that began it. A login ends once, and the audit log has each that came back, with who
//! it was, also where nobody came in.

use std::time::{Duration, Instant};

use actix_web::http::StatusCode;
use actix_web::{HttpMessage as _, HttpRequest, HttpResponse, web};
use drover_api::Role;
use drover_audit::Call;
use drover_openid::{Attempt, Fault, Person, refusal};
use tokio::time::timeout;

use super::login::{Next, is_secure, put, shown, within};
use crate::answers::{Answer, Asked, leads_to};
use crate::audited;
use crate::auth::Caller;
use crate::forwarded::Voucher;
use crate::house::{House, now};
use crate::openid::OpenId;
use crate::peer::peer_of;
use crate::problem::Rejection;
use crate::session::{set_cookie_for, set_login_cookie};

/// The path to which the provider sends people back.
pub(super) use drover_openid::CALLBACK;

/// How long a login may wait for the provider, whatever is asked of it.
pub(super) const WAIT_LIMIT: Duration = Duration::from_secs(20);
/// The most bytes of what the provider sends back with a person.
const QUERY_BYTES_MAX: usize = 8 * 1024;
/// Groups that a refusal names.
const NAMED_MAX: usize = 10;

/// Why nobody came in.
struct Refused {
    status: StatusCode,
    text: String,
    /// Who it was, where the provider said so.
    who: Option<String>,
    /// Where the person wanted to go.
    next: String,
    /// Whether the login is over, and its cookie with it.
    is_over: bool,
}

/// Who came in.
struct Entered {
    caller: Caller,
    cookie: String,
    next: String,
}

/// Leads to the provider's login.
pub(super) async fn begin(
    request: HttpRequest,
    house: web::Data<House>,
    Asked(Next { next }): Asked<Next>,
) -> Answer {
    let (auth, next) = (house.auth(), within(&next));
    let Some(openid) = auth.openid() else { return Err(nowhere().into()) };
    let started = async {
        let attempt = Attempt::new().ok_or(Fault::NoRandom)?;
        let place = timeout(WAIT_LIMIT, openid.provider.begin(&attempt)).await;
        Ok((attempt, place.map_err(|_| Fault::Busy)??))
    };
    let (attempt, place) = match started.await {
        Ok(started) => started,
        Err(fault) => {
            tracing::warn!(error = %fault, "a login at the provider cannot begin");
            let (status, text) = (status_of(&fault), said(&fault));
            return Ok(shown(&auth, &next, status, Some(text)));
        }
    };
    let sealed = house.sessions.sealed_login(openid, attempt, &next, now().0);
    let mut answer = leads_to(place.as_str());
    put(&mut answer, &set_login_cookie(&sealed, is_secure_for(openid, &request)));
    Ok(answer)
}

/// Takes a person back from the provider.
pub(super) async fn end(request: HttpRequest, house: web::Data<House>) -> Answer {
    let auth = house.auth();
    let Some(openid) = auth.openid() else { return Err(nowhere().into()) };
    if !audited::may_go_on(&house.audit).await {
        return Err(Rejection::unaudited().into());
    }
    let ended = ended(&request, &house, openid).await;
    let is_secure = is_secure_for(openid, &request);
    let (mut answer, who, role) = match ended {
        Ok(Entered { caller, cookie, next }) => {
            tracing::info!(principal = caller.principal, "logged in at the page");
            let mut answer = leads_to(&next);
            put(&mut answer, &set_cookie_for(&cookie, openid.session_ms, is_secure));
            put(&mut answer, &set_login_cookie("", is_secure));
            (answer, Some(caller.principal), Some(caller.role))
        }
        Err(Refused { status, text, who, next, is_over }) => {
            tracing::warn!(principal = who, error = text, "a login at the provider is refused");
            let mut answer = shown(&auth, &next, status, Some(text));
            if is_over {
                put(&mut answer, &set_login_cookie("", is_secure));
            }
            (answer, who, None)
        }
    };
    record(&request, &house, (who, role), &mut answer).await;
    Ok(answer)
}

/// Writes a login into the audit log before it is answered.
async fn record(
    request: &HttpRequest,
    house: &House,
    (principal, role): (Option<String>, Option<Role>),
    answer: &mut HttpResponse,
) {
    let voucher = request.extensions().get::<Voucher>().cloned();
    let call = Call {
        member: voucher.map(|voucher| voucher.member),
        principal,
        role: role.map(|role| role.to_string()),
        method: request.method().to_string(),
        route: Some(CALLBACK.to_owned()),
        status: Some(answer.status().as_u16()),
        ..Call::default()
    };
    audited::record_login(request, &house.audit, call, answer).await;
}

async fn ended(request: &HttpRequest, house: &House, openid: &OpenId) -> Result<Entered, Refused> {
    let at_first = |text: &str| Refused {
        status: StatusCode::BAD_REQUEST,
        text: text.to_owned(),
        who: None,
        next: "/".to_owned(),
        is_over: false,
    };
    let back = Back::read(request.query_string()).map_err(at_first)?;
    let login = house.sessions.login(request.headers(), openid, now().0).ok_or_else(|| {
        at_first(
            "This browser began no login in the last 10 minutes, or it keeps no cookies. Start the login \
             again.",
        )
    })?;
    if !login.attempt.is_of(&back.state) {
        let text = "The provider answers another login than the last one of this browser. Start the login \
                    again.";
        return Err(Refused { next: within(&login.next), ..at_first(text) });
    }
    let refused = |status, text: String| Refused {
        status,
        text,
        who: None,
        next: within(&login.next),
        is_over: true,
    };
    if !house.ended_logins.is_first(&login.attempt.state, login.until, now().0) {
        let text = "This login is over already. Start the login again.";
        return Err(refused(StatusCode::BAD_REQUEST, text.to_owned()));
    }
    let code = match back.code {
        Ok(code) => code,
        Err(fault) => return Err(refused(status_of(&fault), said(&fault))),
    };
    let (peer, instant) = (peer_of(request), Instant::now());
    house.wrong_tokens.admits(peer, instant).map_err(|wait| {
        let text = format!("Too many logins failed from there. Wait {} s.", wait.as_secs() + 1);
        refused(StatusCode::TOO_MANY_REQUESTS, text)
    })?;
    let asked = (&*code, back.issuer.as_deref());
    let finished = openid.provider.finish(&login.attempt, asked, now().0 / 1000);
    let Person { name, groups } =
        timeout(WAIT_LIMIT, finished).await.unwrap_or(Err(Fault::Busy)).map_err(|fault| {
            if !fault.is_of_provider() {
                house.wrong_tokens.in_vain(peer, instant);
            }
            refused(status_of(&fault), said(&fault))
        })?;
    let groups_of = groups.clone().unwrap_or_default();
    // What holds now: the configuration may have changed meanwhile.
    let caller = house.auth().person(&name, &groups_of).ok_or_else(|| Refused {
        who: Some(format!("openid:{name}")),
        ..refused(StatusCode::FORBIDDEN, no_group(openid, &name, groups.as_deref()))
    })?;
    let cookie = house.sessions.sealed_person(openid, &name, groups_of, now().0);
    Ok(Entered { caller, cookie, next: within(&login.next) })
}

/// What the provider sends back with a person.
struct Back {
    state: String,
    code: Result<String, Fault>,
    /// Whose answer it is (RFC 9207).
    issuer: Option<String>,
}

impl Back {
    /// Reads a query; providers add what is their own.
    fn read(query: &str) -> Result<Self, &'static str> {
        if query.len() > QUERY_BYTES_MAX {
            return Err("The provider's answer is too long. Start the login again.");
        }
        let named = |name: &str| -> Result<Option<String>, &'static str> {
            let pairs = form_urlencoded::parse(query.as_bytes());
            let mut values = pairs.filter(|(key, _)| key == name).map(|(_, value)| value);
            match (values.next(), values.next()) {
                (value, None) => Ok(value.map(std::borrow::Cow::into_owned)),
                (_, Some(_)) => {
                    Err("The provider's answer says something twice. Start the login again.")
                }
            }
        };
        let (code, error) = (named("code")?, named("error")?);
        let description = named("error_description")?;
        let code = match (code, error) {
            (Some(code), None) => Ok(code),
            (None, Some(error)) => Err(refusal(&error, description.as_deref())),
            (None, None) | (Some(_), Some(_)) => {
                return Err(
                    "This is no answer of a provider: it has no code. Start the login again.",
                );
            }
        };
        Ok(Self { state: named("state")?.unwrap_or_default(), code, issuer: named("iss")? })
    }
}

/// What to answer where no provider is configured.
fn nowhere() -> Rejection {
    Rejection::not_found(
        "nobody logs in at a provider here: `service.openId` of the configuration names none; log in with a \
         token",
    )
}

/// The cookie goes by TLS alone where the page is reached so.
fn is_secure_for(openid: &OpenId, request: &HttpRequest) -> bool {
    openid.provider.settings().redirect.starts_with("https:") || is_secure(request.headers())
}

fn status_of(fault: &Fault) -> StatusCode {
    if matches!(fault, Fault::Busy | Fault::NoRandom) {
        StatusCode::SERVICE_UNAVAILABLE
    } else if fault.is_of_provider() {
        StatusCode::BAD_GATEWAY
    } else {
        StatusCode::FORBIDDEN
    }
}

/// A fault as sentences.
fn said(fault: &Fault) -> String {
    format!("{}. {}.", with_capital(&fault.to_string()), with_capital(fault.help()))
}

fn with_capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// Why somebody whom the provider knows does not come in.
fn no_group(openid: &OpenId, name: &str, groups: Option<&[String]>) -> String {
    let claim = &openid.provider.settings().groups_claim;
    let Some(groups) = groups else {
        return format!(
            "{name} may not log in: the provider said nothing of groups (claim `{claim}`). Let the provider \
             give drover that claim, or correct `service.openId.groupsClaim` and `scopes`."
        );
    };
    let has = match groups {
        [] => "no groups".to_owned(),
        some => {
            let named = some.iter().take(NAMED_MAX).map(|group| format!("`{group}`"));
            let more = if some.len() > NAMED_MAX { " and more" } else { "" };
            format!("{}{more}", named.collect::<Vec<_>>().join(", "))
        }
    };
    format!(
        "{name} may not log in: the provider names {has} (claim `{claim}`), and no such group is in \
         `service.openId.groups` of drover's configuration. Ask an administrator of drover to list one."
    )
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    // Invariant: an answer of a provider is read as one thing, or not at all.

    #[test]
    fn an_answer_has_a_code_or_an_error_and_each_once() {
        let back = Back::read("code=a%2Fb&state=s&session_state=x&iss=https%3A%2F%2Fid").unwrap();
        assert_eq!((back.code.unwrap(), &*back.state), ("a/b".to_owned(), "s"));
        assert_eq!(back.issuer.as_deref(), Some("https://id"));
        let back = Back::read("error=access_denied&error_description=no%0Away&state=s").unwrap();
        let fault = back.code.unwrap_err();
        assert_eq!(
            said(&fault),
            "The provider refused the login: access_denied: no way. Log in at the provider and allow drover there."
        );
        let long = format!("code=a&state={}", "x".repeat(QUERY_BYTES_MAX));
        for wrong in
            ["", "state=s", "code=a&error=b", "code=a&code=b", "code=a&state=s&state=s", &long]
        {
            assert!(Back::read(wrong).is_err(), "{wrong}");
        }
    }
}
