//! Bodies of requests on their way in: how large, how fast, and how many at once.
//!
//! A body is read before its handler runs, and after everything was asked that its head says: the
//! role, the route's own question (`First`), the announced size. What is read is counted as it comes,
//! so that an announced size alone takes nothing from others.

use std::sync::Arc;
use std::time::Duration;

use actix_web::HttpMessage;
use actix_web::dev::{Payload, ServiceRequest};
use actix_web::http::header;
use actix_web::web::{Bytes, BytesMut};
use futures_util::{StreamExt, stream};
use tokio::time::{Instant, timeout_at};

use super::peer::Peer;
use super::problem::Rejection;
use super::share::{Share, Shared};

/// How long a body may take before its first byte.
const GRACE: Duration = Duration::from_secs(5);
/// Bytes a second that must come from then on.
const RATE: usize = 16 * 1024;
/// How long a body may take in all.
const LONGEST: Duration = Duration::from_secs(30);

/// Bytes of bodies that may be under way.
pub(super) struct Intake {
    /// Of callers who were let in.
    known: Arc<Shared<Peer>>,
    /// Of everybody else: webhooks and guests, before they have proven anything.
    open: Arc<Shared<Peer>>,
}

/// Whose body is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sender {
    /// A caller with a role.
    Known,
    Anybody,
    /// An address from which much came in vain just now.
    Suspect,
}

const MIB: usize = 1024 * 1024;
/// Bytes for all bodies of callers with a role.
const OF_KNOWN: usize = 32 * MIB;
/// Bytes for all other bodies, for those of one peer, and of one that is suspect.
const OF_OPEN: usize = 16 * MIB;
const OF_PEER: usize = 8 * MIB;
const OF_SUSPECT: usize = MIB;

impl Default for Intake {
    fn default() -> Self {
        Self { known: Shared::new(OF_KNOWN, OF_KNOWN), open: Shared::new(OF_OPEN, OF_PEER) }
    }
}

impl Intake {
    /// Reads a body and puts it back for the handler too; it counts until the share is dropped.
    pub(super) async fn read(
        &self,
        request: &mut ServiceRequest,
        (peer, sender): (Peer, Sender),
        limit: usize,
    ) -> Result<(Share<Peer>, Bytes), Rejection> {
        let (shared, each) = match sender {
            Sender::Known => (&self.known, OF_KNOWN),
            Sender::Anybody => (&self.open, OF_PEER),
            Sender::Suspect => (&self.open, OF_SUSPECT),
        };
        let announced = request.headers().get(header::CONTENT_LENGTH);
        let announced = announced.and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
        if announced.is_some_and(|length| length > limit) {
            return Err(Rejection::too_large(limit));
        }
        let mut share = shared.share(peer);
        let (mut payload, began) = (request.take_payload(), Instant::now());
        let mut body = BytesMut::new();
        loop {
            let earned = Duration::from_secs_f64(body.len() as f64 / RATE as f64);
            let end = began + (GRACE + earned).min(LONGEST);
            let chunk = match timeout_at(end, payload.next()).await {
                Ok(None) => break,
                Ok(Some(Ok(chunk))) => chunk,
                Ok(Some(Err(_))) => return Err(Rejection::invalid("the body could not be read")),
                Err(_) => return Err(Rejection::too_slow()),
            };
            if body.len() + chunk.len() > limit {
                return Err(Rejection::too_large(limit));
            }
            share.take(chunk.len(), each).map_err(|_| Rejection::crowded())?;
            body.extend_from_slice(&chunk);
        }
        let body: Bytes = body.freeze();
        let stream = stream::once(std::future::ready(Ok(body.clone())));
        request.set_payload(Payload::Stream { payload: Box::pin(stream) });
        Ok((share, body))
    }
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;
    use tokio::time::sleep;

    use super::*;

    fn peer(last: u8) -> Peer {
        Peer::at([10, 0, 0, last].into())
    }

    /// A request with a body of `count` pieces, each after a pause.
    fn slow(count: usize, piece: usize, pause: Duration) -> ServiceRequest {
        let mut request = TestRequest::post().to_srv_request();
        let pieces = stream::unfold(0, move |at| async move {
            sleep(pause).await;
            (at < count).then(|| (Ok(Bytes::from(vec![b'x'; piece])), at + 1))
        });
        request.set_payload(Payload::Stream { payload: Box::pin(pieces) });
        request
    }

    async fn read(intake: &Intake, mut request: ServiceRequest, sender: Sender) -> (u16, Duration) {
        let start = Instant::now();
        let read = intake.read(&mut request, (peer(1), sender), MIB).await;
        (read.map_or_else(|problem| problem.document.status, |_| 200), start.elapsed())
    }

    // Invariant: a body comes at a pace, or it is not waited for.

    #[tokio::test(start_paused = true)]
    async fn a_body_has_its_pace_and_an_end() {
        let intake = Intake::default();
        let second = Duration::from_secs(1);
        for (count, piece, pause, status, took) in [
            (1, 10, second, 200, 2),
            (100, 1, second, 408, 5),
            (100, 20 * 1024, second, 408, 30),
            (20, 20 * 1024, second, 200, 21),
            (1, 1, 10 * second, 408, 5),
        ] {
            let (seen, after) = read(&intake, slow(count, piece, pause), Sender::Anybody).await;
            assert_eq!((seen, after.as_secs()), (status, took), "{count} of {piece} bytes");
        }
        let large = slow(2, MIB, Duration::ZERO);
        assert_eq!(read(&intake, large, Sender::Anybody).await.0, 413);
    }

    // Invariant: bodies under way have a bound, for each peer and in all, and it comes back.

    #[tokio::test(start_paused = true)]
    async fn bodies_under_way_are_bounded_and_a_suspect_has_little_room() {
        let intake = Intake::default();
        let mut held = Vec::new();
        let mut take = async |last: u8, sender: Sender| {
            let mut request = slow(1, MIB, Duration::ZERO);
            match intake.read(&mut request, (peer(last), sender), MIB).await {
                Ok((share, _)) => {
                    held.push(share);
                    200
                }
                Err(problem) => problem.document.status,
            }
        };
        assert_eq!(take(9, Sender::Suspect).await, 200);
        assert_eq!(take(9, Sender::Suspect).await, 503);
        for _ in 0..OF_PEER / MIB {
            assert_eq!(take(1, Sender::Anybody).await, 200);
        }
        assert_eq!(take(1, Sender::Anybody).await, 503, "its own are used up");
        for _ in 0..OF_OPEN / MIB - OF_PEER / MIB - 1 {
            assert_eq!(take(2, Sender::Anybody).await, 200);
        }
        assert_eq!(take(3, Sender::Anybody).await, 503, "all are used up");
        assert_eq!(take(3, Sender::Known).await, 200, "callers with a role have room of their own");
        held.clear();
        assert_eq!(read(&intake, slow(1, MIB, Duration::ZERO), Sender::Anybody).await.0, 200);
    }
}
