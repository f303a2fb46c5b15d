//! Calls that another member forwards: who made them, proven by the key of the members.
//!
//! The standby signs what it knows of a call: method, path, body, where it came from, and its caller where
//! the standby itself proved one. Everybody may send the header; it counts only with the digest that members
//! alone can make, on the call it was made for, once, and for a minute.
//!
//! ```text
//! drover-forwarded: BASE64URL(JSON of Forwarded).HEX(digest of that JSON)
//! ```
//!
//! [`admit`] stands before all routes. Behind it, `peer.rs` takes the [`Origin`] and `gate.rs` the
//! [`Voucher`] from the request's extensions, never from its headers.

use actix_web::body::BoxBody;
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::middleware::Next;
use actix_web::{HttpMessage, web};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use drover_api::Role;
use drover_model::time::WallTime;
use drover_vault::ClusterKey;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::audited;
use super::auth::Caller;
use super::hex::hex;
use super::house::{House, now};
use super::peer::Origin;
use super::problem::Rejection;
use super::taken::AGE_MAX_MS;

/// The header's name.
pub(super) const HEADER: &str = "drover-forwarded";
/// What the digest is for.
const PURPOSE: &str = "drover forwarded 1";
/// What a member says of a call that it forwards.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Forwarded {
    /// When it was forwarded, in milliseconds since 1970.
    pub at: i64,
    pub method: String,
    /// The path with its query, as it is sent.
    pub path: String,
    /// The digest of its body ([`digest_of`]).
    pub body: String,
    /// What no other call of the member has: a word counts once.
    pub nonce: u64,
    /// Where the call came from: an IP address, or `uid:N`.
    pub peer: String,
    /// Who made it; none where the member proved nobody.
    pub caller: Option<ForwardedCaller>,
    /// The member that forwards it.
    pub member: String,
}

/// Who made a call, as the member that forwards it knows them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ForwardedCaller {
    pub principal: String,
    pub role: Role,
    pub group: Option<String>,
}

impl From<Caller> for ForwardedCaller {
    fn from(Caller { principal, role, group }: Caller) -> Self {
        Self { principal, role, group }
    }
}

/// Another member's word for a request: it was forwarded, and by this caller where there is one.
#[derive(Debug, Clone)]
pub(super) struct Voucher {
    pub caller: Option<Caller>,
    /// The digest of the body that it was given for.
    pub body: String,
    /// The name of that member.
    pub member: String,
}

/// What a word says of a body: the SHA-256 in hexadecimal digits.
pub(super) fn digest_of(body: &[u8]) -> String {
    hex(&Sha256::digest(body))
}

/// Why a header does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Forged {
    #[error("the header `drover-forwarded` is not signed with the key of this store's members")]
    Signature,
    #[error("the header `drover-forwarded` was signed for another call")]
    OtherCall,
    #[error("the header `drover-forwarded` was used already")]
    Used,
    #[error(
        "the header `drover-forwarded` is more than 60 s old or in the future; compare the clocks of \
         the members"
    )]
    Age,
    #[error(
        "the header `drover-forwarded` comes from another version of drover; upgrade the members"
    )]
    Shape,
}

impl Forwarded {
    /// The header's value.
    pub(super) fn sign(&self, key: &ClusterKey) -> String {
        let json = serde_json::to_vec(self).unwrap_or_default();
        let digest = key.digest(PURPOSE, &json);
        format!("{}.{}", URL_SAFE_NO_PAD.encode(json), hex(&digest))
    }

    /// Reads a header's value, which counts for this call alone.
    pub(super) fn read(
        value: &[u8],
        key: &ClusterKey,
        (method, path): (&str, &str),
        now: WallTime,
    ) -> Result<(Self, Origin), Forged> {
        let text = std::str::from_utf8(value).map_err(|_| Forged::Signature)?;
        let (json, digest) = text.split_once('.').ok_or(Forged::Signature)?;
        let json = URL_SAFE_NO_PAD.decode(json).map_err(|_| Forged::Signature)?;
        let digest = bytes_of(digest).ok_or(Forged::Signature)?;
        // Nothing of the text is looked at before it is proven.
        if !key.is_digest(PURPOSE, &json, &digest) {
            return Err(Forged::Signature);
        }
        let said: Self = serde_json::from_slice(&json).map_err(|_| Forged::Shape)?;
        if said.at.abs_diff(now.0) > AGE_MAX_MS {
            return Err(Forged::Age);
        }
        if said.method != method || said.path != path {
            return Err(Forged::OtherCall);
        }
        let origin = said.peer.parse().map_err(|()| Forged::Shape)?;
        Ok((said, origin))
    }
}

/// Reads hexadecimal digits.
fn bytes_of(hex: &str) -> Option<Vec<u8>> {
    let is_hex = hex.len().is_multiple_of(2) && hex.bytes().all(|one| one.is_ascii_hexdigit());
    let pairs = is_hex.then(|| (0..hex.len()).step_by(2).map(|at| &hex[at..at + 2]))?;
    pairs.map(|pair| u8::from_str_radix(pair, 16).ok()).collect()
}

/// Notes what another member says of a request, or refuses it; before every route. Where this drover
/// has no key, nobody can forward to it, and the header means nothing.
pub(super) async fn admit(
    request: ServiceRequest,
    next: Next<BoxBody>,
) -> Result<ServiceResponse, actix_web::Error> {
    match vouched(&request) {
        Ok(None) => {}
        Ok(Some((voucher, origin))) => {
            audited::note_member(&request, &voucher.member, origin);
            let mut extensions = request.extensions_mut();
            extensions.insert(voucher);
            extensions.insert(origin);
        }
        Err(forged) => {
            return Ok(request.error_response(Rejection::unauthorized(&forged.to_string())));
        }
    }
    next.call(request).await
}

fn vouched(request: &ServiceRequest) -> Result<Option<(Voucher, Origin)>, Forged> {
    let Some(house) = request.app_data::<web::Data<House>>() else { return Ok(None) };
    let Some(key) = &house.key else { return Ok(None) };
    let mut values = request.headers().get_all(HEADER);
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(Forged::Signature);
    }
    let path = request.uri().path_and_query().map_or("", |path| path.as_str());
    let call = (request.method().as_str(), path);
    let (said, origin) = Forwarded::read(value.as_bytes(), key, call, now())?;
    if !house.taken.is_first((said.at, said.nonce), now()) {
        return Err(Forged::Used);
    }
    let caller = said.caller.map(|ForwardedCaller { principal, role, group }| Caller {
        principal,
        role,
        group,
    });
    Ok(Some((Voucher { caller, body: said.body, member: said.member }, origin)))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::super::testing::members_key;
    use super::*;

    const AT: WallTime = WallTime(1_795_248_662_000);
    const CALL: (&str, &str) = ("POST", "/v1/leases?x=1");

    fn said() -> Forwarded {
        let caller =
            Caller { principal: "uid:7".into(), role: Role::Operator, group: Some("lab".into()) };
        Forwarded {
            at: AT.0,
            method: CALL.0.into(),
            path: CALL.1.into(),
            body: digest_of(b"{}"),
            nonce: 7,
            peer: "10.0.0.7".into(),
            caller: Some(caller.into()),
            member: "b".into(),
        }
    }

    fn read(value: &str, call: (&str, &str), now: WallTime) -> Result<Forwarded, Forged> {
        let read = Forwarded::read(value.as_bytes(), &members_key(), call, now);
        read.map(|(said, _)| said)
    }

    // Invariant: what a member said of one call counts for that call, for a minute, and for no other.

    #[test]
    fn a_signed_word_is_read_as_it_was_said() {
        let value = said().sign(&members_key());
        assert_eq!(read(&value, CALL, AT), Ok(said()));
        let (json, digest) = value.split_once('.').unwrap();
        assert!(json.bytes().all(|one| one.is_ascii_alphanumeric() || b"-_".contains(&one)));
        assert_eq!(digest.len(), 64);
        for (peer, origin) in [
            ("10.0.0.7", Origin::Address([10, 0, 0, 7].into())),
            ("uid:7", Origin::User(7)),
            ("2001:db8::7", Origin::Address("2001:db8::7".parse().unwrap())),
        ] {
            let value = Forwarded { peer: peer.into(), ..said() }.sign(&members_key());
            let read = Forwarded::read(value.as_bytes(), &members_key(), CALL, AT);
            assert_eq!(read.unwrap().1, origin);
        }
    }

    #[test]
    fn a_word_counts_for_its_call_and_its_minute_alone() {
        let value = said().sign(&members_key());
        for other in [("GET", CALL.1), (CALL.0, "/v1/leases"), (CALL.0, "/v1/reap?x=1")] {
            assert_eq!(read(&value, other, AT), Err(Forged::OtherCall), "{other:?}");
        }
        for (after, counts) in [(60_000, true), (-60_000, true), (60_001, false), (-60_001, false)]
        {
            let seen = read(&value, CALL, WallTime(AT.0 + after)).map(|_| ());
            assert_eq!(seen, if counts { Ok(()) } else { Err(Forged::Age) }, "{after} ms");
        }
    }

    #[test]
    fn nothing_counts_that_is_not_signed_over_every_byte() {
        let value = said().sign(&members_key());
        let (json, digest) = value.split_once('.').unwrap();
        let admin = said().caller.map(|caller| ForwardedCaller { role: Role::Admin, ..caller });
        let other = Forwarded { caller: admin, ..said() };
        let bytes = serde_json::to_vec(&other).unwrap();
        let stranger = ClusterKey::new(&"another key of 32 bytes or more..".into()).unwrap();
        for forged in [
            String::new(),
            ".".into(),
            json.into(),
            format!("{json}."),
            format!("{json}.{}", &digest[..62]),
            format!("{json}.{digest}00"),
            format!("{json}.{}", digest.replace(|_: char| true, "0")),
            format!("{json}.+{}", &digest[1..]),
            format!("{json}.{}ä", &digest[..62]),
            format!("{json}=.{digest}"),
            format!("{}.{digest}", URL_SAFE_NO_PAD.encode(bytes)),
            other.sign(&stranger),
        ] {
            assert_eq!(read(&forged, CALL, AT), Err(Forged::Signature), "{forged}");
        }
        // Signed for another use.
        let bytes = serde_json::to_vec(&said()).unwrap();
        let digest = members_key().digest("drover forwarded 2", &bytes);
        let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        let value = format!("{}.{digest}", URL_SAFE_NO_PAD.encode(bytes));
        assert_eq!(read(&value, CALL, AT), Err(Forged::Signature));
        let elsewhere = Forwarded { peer: "nowhere".into(), ..said() }.sign(&members_key());
        assert_eq!(read(&elsewhere, CALL, AT), Err(Forged::Shape));
    }
}
