//! Forwards one call to the leader, and the leader's answer back, piece by piece.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use actix_web::body::{BodyStream, SizedStream};
use actix_web::dev::ServiceRequest;
use actix_web::http::header::{self, HeaderMap};
use actix_web::http::{Method, StatusCode};
use actix_web::{HttpMessage, HttpRequest, HttpResponse, web};
use bytes::{Bytes, BytesMut};
use causes::chain;
use futures_util::{Stream, StreamExt, stream};
use reqwest::Url;
use reqwest::header::{HeaderName, HeaderValue};
use tokio::time::{sleep, timeout};

use super::Standby;
use crate::answers;
use crate::audited;
use crate::auth::Caller;
use crate::forwarded::{self, Forwarded, Voucher};
use crate::gate;
use crate::house::{House, now};
use crate::intake::Sender;
use crate::peer::{LocalPeer, Origin, Peer, origin_of};
use crate::problem::{Rejection, no_such_route};
use crate::seat::Seat;
use crate::share::Share;

/// How long the leader may take until its answer begins: a lease may be waited for 300 s, and a
/// reconciliation takes 120 s.
const BEGIN_LIMIT: Duration = Duration::from_secs(360);
/// How long an answer may pause: streams of events show life each 15 s.
const PAUSE_LIMIT: Duration = Duration::from_secs(90);
/// How long a call that may change something is waited for when the process stops, which has 5 s.
const STOP_LIMIT: Duration = Duration::from_secs(4);

/// Headers that are meant for one connection (RFC 9110, 7.6.1), or made again for the next.
const OF_CONNECTION: [&str; 12] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// A call that may be forwarded.
struct Passage {
    origin: Origin,
    /// Who made it, where this member proved that.
    caller: Option<Caller>,
    place: Share<Peer>,
}

/// Refuses by the head alone what is not forwarded: what was forwarded once, users of the Unix socket
/// who may not come in, and too many calls at once.
pub(super) fn first(house: &House, request: &ServiceRequest) -> Result<Sender, Rejection> {
    let Some(standby) = request.app_data::<web::Data<Standby>>() else {
        return Err(Rejection::no_leader("the service is not set up"));
    };
    if request.extensions().get::<Voucher>().is_some() {
        return Err(Rejection::no_leader(format!(
            "member `{}` does not lead, and nothing was done; repeat the request",
            standby.doors.member
        )));
    }
    let origin = origin_of(request.request());
    let auth = house.auth();
    let authorization = request.headers().get(header::AUTHORIZATION);
    // The leader does not see under which name the browser reached this member.
    if authorization.is_none() {
        gate::of_own_site(request)?;
    }
    let (caller, is_known) = match (authorization, request.conn_data::<LocalPeer>()) {
        // The leader judges the token. What this member thinks of it only decides how much room it has.
        (Some(value), _) => {
            (None, gate::bearer(value).is_some_and(|token| auth.bearer(token).is_some()))
        }
        (None, Some(peer)) => (Some(gate::local(&auth, *peer)?), true),
        (None, None) => (None, false),
    };
    let mut place = standby.forwards.share(origin.peer());
    place.take(1, usize::MAX).map_err(|_| Rejection::crowded())?;
    if let Some(caller) = &caller {
        audited::note_asker(request, &caller.principal, Some(caller.role));
    }
    request.extensions_mut().insert(Passage { origin, caller, place });
    if !is_known {
        return Ok(Sender::Anybody);
    }
    if let Some(seat) = request.conn_data::<Arc<Seat>>() {
        seat.know();
    }
    Ok(Sender::Known)
}

/// Forwards a call that [`first`] let through; people in a browser read why not as a page.
pub(super) async fn forward(
    standby: web::Data<Standby>,
    house: web::Data<House>,
    request: HttpRequest,
    payload: web::Payload,
) -> HttpResponse {
    let answer = to_leader(standby, house, request.clone(), payload).await;
    answer.unwrap_or_else(|problem| answers::for_whom(&request, &problem))
}

async fn to_leader(
    standby: web::Data<Standby>,
    house: web::Data<House>,
    request: HttpRequest,
    payload: web::Payload,
) -> Result<HttpResponse, Rejection> {
    let passage = request.extensions_mut().remove::<Passage>();
    let Some(Passage { origin, caller, place }) = passage else {
        return Err(Rejection::crowded());
    };
    let (name, base) = standby.leader()?;
    let Some(target) = target(&request) else { return Err(no_such_route(request).await) };
    let url = Url::parse(&format!("{}{target}", base.trim_end_matches('/'))).map_err(|_| {
        Rejection::no_leader(format!(
            "nothing was done: member `{name}` leads, and its URL `{base}` cannot be used; correct its \
             --advertise"
        ))
    })?;
    let body = match gate::is_bodiless(request.method()) {
        true => Bytes::new(),
        false => whole(payload).await?,
    };
    let said = Forwarded {
        at: now().0,
        body: forwarded::digest_of(&body),
        nonce: rand::random(),
        method: request.method().as_str().to_owned(),
        path: path_of(&url),
        peer: origin.to_string(),
        caller: caller.map(Into::into),
        member: standby.doors.member.clone(),
    };
    let unreadable = |_| Rejection::invalid("the request cannot be forwarded");
    let method = reqwest::Method::from_bytes(request.method().as_str().as_bytes());
    let mut call =
        standby.client.request(method.map_err(|error| unreadable(error.to_string()))?, url);
    call = call.headers(passed_on(request.headers()));
    call = call.header(forwarded::HEADER, said.sign(&standby.doors.key));
    if !gate::is_bodiless(request.method()) {
        call = call.body(body);
    }
    let answer = tokio::select! {
        biased;
        answer = timeout(BEGIN_LIMIT, call.send()) => answer,
        // One that handed over answered first what it had taken: no answer comes any more.
        () = another_leads(&standby, &name) => {
            return Err(unanswered(request.method(), &name, "another member leads"));
        }
        () = time_left(&house, request.method()) => {
            return Err(unanswered(request.method(), &name, "this member stops standing by"));
        }
    };
    let answer = match answer {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) if error.is_connect() => {
            // Without the URL: it may hold what its caller keeps to itself.
            let why = chain(&error.without_url());
            return Err(Rejection::no_leader(format!(
                "member `{name}` leads and cannot be reached at {base}; nothing was done, repeat the \
                 request: {why}"
            )));
        }
        Ok(Err(error)) => {
            return Err(unanswered(request.method(), &name, &chain(&error.without_url())));
        }
        Err(_) => {
            let why = format!("no answer came within {} s", BEGIN_LIMIT.as_secs());
            return Err(unanswered(request.method(), &name, &why));
        }
    };
    audited::note_recorded(&request);
    let is_proven = !request.method().is_safe() && answer.status().is_success();
    if let Some(seat) = request.conn_data::<Arc<Seat>>().filter(|_| is_proven) {
        // The leader changes nothing for a caller who proves nothing.
        seat.know();
    }
    let over = async move {
        tokio::select! {
            () = house.stopping() => {}
            () = another_leads(&standby, &name) => {}
        }
    };
    Ok(answered(answer, over, place))
}

/// The path and query of a call as they are sent on; none for what no URL of a route is like.
fn target(request: &HttpRequest) -> Option<&str> {
    let target = request.uri().path_and_query()?.as_str();
    let path = target.split('?').next().unwrap_or_default();
    // A client would walk these steps, and the leader must see the path that its caller wrote.
    let is_step = |part: &str| {
        let part = part.to_ascii_lowercase().replace("%2e", ".");
        part == "." || part == ".."
    };
    let is_plain = path.starts_with('/') && !path.contains('\\') && !path.split('/').any(is_step);
    is_plain.then_some(target)
}

/// Path and query of a URL as they are sent.
fn path_of(url: &Url) -> String {
    match url.query() {
        Some(query) => format!("{}?{query}", url.path()),
        None => url.path().to_owned(),
    }
}

/// The headers of a call that go on to the leader.
fn passed_on(headers: &HeaderMap) -> reqwest::header::HeaderMap {
    let named = headers.get_all(header::CONNECTION).filter_map(|value| value.to_str().ok());
    let dropped = of_connection(named);
    let mut passed = reqwest::header::HeaderMap::new();
    for (name, value) in headers {
        if dropped.contains(name.as_str()) || name.as_str() == forwarded::HEADER {
            continue;
        }
        // Both kinds of headers take the same bytes.
        let name = HeaderName::from_bytes(name.as_str().as_bytes());
        if let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(value.as_bytes())) {
            passed.append(name, value);
        }
    }
    passed
}

/// The headers that do not go on, those that a connection names itself among them.
fn of_connection<'a>(named: impl Iterator<Item = &'a str>) -> BTreeSet<String> {
    let named = named.flat_map(|value| value.split(','));
    let named = named.map(|name| name.trim().to_ascii_lowercase());
    OF_CONNECTION.into_iter().map(str::to_owned).chain(named).collect()
}

/// The body that the gate has read.
async fn whole(mut payload: web::Payload) -> Result<Bytes, Rejection> {
    let mut body = BytesMut::new();
    while let Some(piece) = payload.next().await {
        let piece = piece.map_err(|_| Rejection::invalid("the body could not be read"))?;
        body.extend_from_slice(&piece);
    }
    Ok(body.freeze())
}

/// Ends when the server stops, and a call that may change something has had its time.
async fn time_left(house: &House, method: &Method) {
    house.stopping().await;
    if !method.is_safe() {
        sleep(STOP_LIMIT).await;
    }
}

/// Ends when a member of another name leads than this one; never while nobody is known to.
async fn another_leads(standby: &Standby, leader: &str) {
    let mut known = standby.doors.leader.clone();
    let other =
        |now: &Option<(String, String)>| now.as_ref().is_some_and(|(name, _)| name != leader);
    if known.wait_for(other).await.is_err() {
        // Nobody says any more who leads: the server stops.
        std::future::pending::<()>().await;
    }
}

fn unanswered(method: &Method, leader: &str, why: &str) -> Rejection {
    if method.is_safe() {
        return Rejection::no_leader(format!(
            "member `{leader}` did not answer: {why}; a read changes nothing, repeat it"
        ));
    }
    Rejection::lost_leader(format!(
        "member `{leader}` got the call and did not answer: {why}; the call may have been done, repeat \
         the request (a lease with the same idempotencyKey, which answers the same lease)"
    ))
}

/// The leader's answer as it comes, until `over` where it may end anywhere.
fn answered(
    answer: reqwest::Response,
    over: impl Future<Output = ()> + 'static,
    place: Share<Peer>,
) -> HttpResponse {
    let status = StatusCode::from_u16(answer.status().as_u16());
    let mut response = HttpResponse::build(status.unwrap_or(StatusCode::BAD_GATEWAY));
    let headers = answer.headers();
    let named = headers.get_all(reqwest::header::CONNECTION).iter();
    let dropped = of_connection(named.filter_map(|value| value.to_str().ok()));
    for (name, value) in headers.iter().filter(|(name, _)| !dropped.contains(name.as_str())) {
        response.append_header((name.as_str(), value.as_bytes()));
    }
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    // HEAD has the length of what GET would answer, and no body.
    let length = text(reqwest::header::CONTENT_LENGTH).and_then(|text| text.parse::<u64>().ok());
    let kind = text(reqwest::header::CONTENT_TYPE).unwrap_or_default();
    // A stream of events may end at any event; any other answer is whole or broken.
    let ends = kind.starts_with("text/event-stream");
    let stopping = async move {
        over.await;
        if !ends {
            std::future::pending::<()>().await;
        }
    };
    let pieces = paced(answer.bytes_stream(), ends, stopping, place);
    match length {
        Some(length) => response.body(SizedStream::new(length, pieces)),
        None => response.body(BodyStream::new(pieces)),
    }
}

/// The pieces of an answer until it ends, breaks off, pauses for too long, or this server stops;
/// `held` is dropped with the last. One that `ends` anywhere ends as well where it breaks off or pauses.
fn paced<H, E: std::error::Error + Send + Sync + 'static>(
    pieces: impl Stream<Item = Result<Bytes, E>>,
    ends: bool,
    stopping: impl Future<Output = ()>,
    held: H,
) -> impl Stream<Item = io::Result<Bytes>> {
    let begin = Some((Box::pin(pieces), Box::pin(stopping), held));
    stream::unfold(begin, move |under_way| async move {
        let (mut pieces, mut stopping, held) = under_way?;
        let piece = tokio::select! {
            biased;
            piece = timeout(PAUSE_LIMIT, pieces.next()) => piece,
            () = &mut stopping => return None,
        };
        match piece {
            Ok(None) => None,
            Ok(Some(Ok(piece))) => Some((Ok(piece), Some((pieces, stopping, held)))),
            Ok(Some(Err(error))) if ends => {
                tracing::debug!(error = chain(&error), "the leader's stream broke off");
                None
            }
            Ok(Some(Err(error))) => Some((Err(io::Error::other(error)), None)),
            Err(_) if ends => None,
            Err(_) => {
                let silent = "the leader sends nothing more";
                Some((Err(io::Error::new(io::ErrorKind::TimedOut, silent)), None))
            }
        }
    })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

    use actix_web::test::TestRequest;

    use super::*;

    // Invariant: an answer goes on as it comes, and an answer that breaks off is never a whole one.

    #[tokio::test(start_paused = true)]
    async fn an_answer_may_pause_and_not_for_ever() {
        let pieces = |pauses: &[u64]| {
            stream::iter(pauses.to_vec()).then(|pause| async move {
                sleep(Duration::from_secs(pause)).await;
                Ok::<_, io::Error>(Bytes::from_static(b"x"))
            })
        };
        let seen = async |pauses: &[u64]| {
            let all = paced(pieces(pauses), false, std::future::pending(), ());
            all.map(|piece| piece.is_ok()).collect::<Vec<_>>().await
        };
        assert_eq!(seen(&[15, 89, 89]).await, [true, true, true]);
        assert_eq!(seen(&[1, 91, 1]).await, [true, false]);
        let broken =
            || stream::iter([Ok(Bytes::new()), Err(io::Error::other("reset")), Ok(Bytes::new())]);
        let all: Vec<_> = paced(broken(), false, std::future::pending(), ()).collect().await;
        assert_eq!(all.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false]);
        let all: Vec<_> = paced(broken(), true, std::future::pending(), ()).collect().await;
        assert_eq!(
            all.iter().map(Result::is_ok).collect::<Vec<_>>(),
            [true],
            "any event is an end"
        );
        let all: Vec<_> =
            paced(pieces(&[1, 91, 1]), true, std::future::pending(), ()).collect().await;
        assert_eq!(all.len(), 1, "a leader that hangs ends it too");
        let ended: Vec<_> =
            paced(pieces(&[0, 60]), false, sleep(Duration::from_secs(30)), ()).collect().await;
        assert_eq!(ended.len(), 1, "it ends where the server stops");
    }

    // Invariant: the leader sees the path that its caller wrote, and no other.

    #[test]
    fn a_path_that_a_client_would_change_is_not_forwarded() {
        let sent = |path: &str| {
            let request = TestRequest::with_uri(path).to_http_request();
            let target = target(&request).map(str::to_owned)?;
            Some(path_of(&Url::parse(&format!("http://leader:1{target}")).unwrap()))
        };
        for path in ["/v1/leases?x=1", "/", "/x?", "//evil/x", "/v1/a%2Fb/c", "/...", "/a?b=/../c"]
        {
            assert_eq!(sent(path).as_deref(), Some(path));
        }
        assert_eq!(
            sent("/x?a='b'").as_deref(),
            Some("/x?a=%27b%27"),
            "the same, spelled otherwise"
        );
        for path in ["/v1/../reap", "/v1/%2e%2E/reap", "/.", "/a/.%2e", "/a\\..\\b", "*"] {
            assert_eq!(sent(path), None, "{path}");
        }
    }

    // Invariant: what is meant for one connection stays there.

    #[test]
    fn headers_of_the_connection_stay_there() {
        let request = TestRequest::default()
            .insert_header(("connection", "close, X-Own"))
            .insert_header(("x-own", "1"))
            .insert_header(("host", "here"))
            .insert_header(("te", "trailers"))
            .insert_header(("upgrade", "websocket"))
            .insert_header(("content-length", "3"))
            .insert_header(("drover-forwarded", "forged"))
            .insert_header(("last-event-id", "3-17"))
            .append_header(("x-many", "1"))
            .append_header(("x-many", "2"))
            .to_http_request();
        let passed = passed_on(request.headers());
        let mut names: Vec<&str> = passed.keys().map(|name| name.as_str()).collect();
        names.sort_unstable();
        assert_eq!(names, ["last-event-id", "x-many"]);
        assert_eq!(passed.get_all("x-many").iter().count(), 2);
    }
}
