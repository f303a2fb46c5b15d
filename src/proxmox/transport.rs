//! Requests to a Proxmox node and its answers: HTTP's shape without a socket.
//!
//! HTTPS ([`crate::wire`]) and the simulated cluster implement [`Transport`]; a [`Dialer`] makes
//! one for each endpoint. Fail-over, login, retries and the total timeout are up to the client.
//!
//! A failure says whether the node may have seen the request ([`TransportError::sent`]), on which
//! callers decide whether a write may have happened. [`encode_body`] writes form bodies and
//! multipart uploads as Proxmox's HTTP daemon reads them.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use secrecy::SecretString;

use crate::connection::Connection;
use crate::endpoint::Endpoint;
use crate::error::PveError;
use crate::tls::CertificateRefused;
use crate::upload::{Form, form};

pub use crate::upload::{Content, UploadFile};

/// Any error below one of this crate's own.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Everything but RFC 3986's unreserved characters.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// The methods that Proxmox accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Reads, and changes nothing.
    Get,
    /// Creates something, or starts a task.
    Post,
    /// Changes what is there already.
    Put,
    /// Removes what is there.
    Delete,
}

impl Method {
    /// The method's name in a request line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Delete => "DELETE",
        }
    }

    /// Whether the call may change something, so that it must not be repeated blindly.
    pub fn writes(self) -> bool {
        self != Self::Get
    }

    /// Whether parameters go into a form body; GET and DELETE carry them in the query string (book:
    /// proxmox, section 1).
    pub fn has_body(self) -> bool {
        matches!(self, Self::Post | Self::Put)
    }
}

/// One request to one node.
#[derive(Clone)]
pub struct Request {
    /// The HTTP method.
    pub method: Method,
    /// The path below `/api2/json`; its segments are percent-encoded.
    pub path: String,
    /// The parameters in order, not encoded; a repeated key is an array.
    pub params: Vec<(String, String)>,
    /// A file. With one, the body is a multipart form: the parameters, then the file.
    pub file: Option<UploadFile>,
    /// The headers that authenticate the call.
    pub headers: Vec<(&'static str, SecretString)>,
    /// The time limit. The client enforces it; a transport need not.
    pub timeout: Duration,
}

impl fmt::Debug for Request {
    /// Shows no values: parameters and headers may hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method.as_str(), self.path)
    }
}

/// One answer, whatever its status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// The HTTP status code; 595 to 599 are Proxmox's own.
    pub status: u16,
    /// The text of the status line: older nodes report only there what went wrong.
    pub reason: String,
    /// The content type of the body.
    pub content_type: Option<String>,
    /// The whole body.
    pub body: Bytes,
}

/// Whether the node may have seen a request that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// Nothing was sent.
    No,
    /// The node may have received it and acted on it.
    Maybe,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// No connection was made.
    #[error("no connection ({0})")]
    Connect(#[source] BoxError),
    /// Somebody took the connection, and ended it before anything could be asked.
    #[error("the connection was taken and broke off ({0})")]
    BrokeOff(#[source] BoxError),
    /// The node's certificate was refused.
    #[error(transparent)]
    Certificate(#[from] Box<CertificateRefused>),
    /// The connection closed before the answer was complete.
    #[error("the connection closed before the answer")]
    Closed(#[source] BoxError),
    /// The answer did not come in time.
    #[error("no answer within {} s", .0.as_secs_f32())]
    TimedOut(Duration),
    /// The answer exceeds this many bytes.
    #[error("the answer is larger than {0} bytes")]
    TooLarge(usize),
    /// Another failure between sending and reading.
    #[error("the connection failed during the call")]
    Broken(#[source] BoxError),
}

impl TransportError {
    /// Whether the node may have seen the request.
    pub fn sent(&self) -> Sent {
        match self {
            Self::Connect(_) | Self::BrokeOff(_) | Self::Certificate(_) => Sent::No,
            Self::Closed(_) | Self::TimedOut(_) | Self::TooLarge(_) | Self::Broken(_) => {
                Sent::Maybe
            }
        }
    }
}

/// Carries requests to one node.
pub trait Transport: Send + Sync {
    /// Sends a request and returns the answer, whatever its status.
    fn send(&self, request: Request) -> BoxFuture<'static, Result<Reply, TransportError>>;
}

/// Makes a transport for each endpoint of a connection.
pub trait Dialer: Send + Sync {
    /// Prepares the transport to one endpoint, without connecting.
    fn dial(
        &self,
        endpoint: &Endpoint,
        connection: &Connection,
    ) -> Result<std::sync::Arc<dyn Transport>, PveError>;
}

/// Percent-encodes a path segment or parameter; a blank becomes `%20`, never `+`.
pub fn encode(text: &str) -> String {
    utf8_percent_encode(text, RESERVED).to_string()
}

/// Encodes parameters as a form body or query string.
pub fn encode_params(params: &[(String, String)]) -> String {
    let pairs = params.iter().map(|(key, value)| format!("{}={}", encode(key), encode(value)));
    pairs.collect::<Vec<_>>().join("&")
}

/// A request's body and its content type: a form, or a multipart form with the parameters in order
/// and then the file, as Proxmox expects uploads.
///
/// # Errors
/// A file of this machine cannot be read.
pub fn encode_body(request: &Request) -> std::io::Result<(String, Bytes)> {
    let Some(file) = &request.file else {
        let kind = "application/x-www-form-urlencoded";
        return Ok((kind.to_owned(), encode_params(&request.params).into()));
    };
    let Form { kind, head, tail } = form(&request.params, file);
    let content = match &file.content {
        Content::Bytes(bytes) => bytes.clone(),
        Content::File { path, .. } => std::fs::read(path)?.into(),
    };
    Ok((kind, [&head[..], &content, &tail].concat().into()))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use crate::upload::boundary;

    // Invariant: Proxmox's form decoder reads back exactly what was encoded.

    #[test]
    fn a_form_never_holds_a_plus_or_a_semicolon() {
        let params = vec![("a b".to_owned(), "x+y;z&ü ~".to_owned())];
        assert_eq!(encode_params(&params), "a%20b=x%2By%3Bz%26%C3%BC%20~");
    }

    // Invariant: no part of a form ends early, whatever it contains.

    #[test]
    fn a_boundary_that_is_in_a_part_is_drawn_again() {
        let mut draws = [[1; 16], [2; 16], [3; 16]].into_iter();
        let text = |byte: u8| format!("form-{}", format!("{byte:02x}").repeat(16));
        let file = format!("user data\r\n--{}--\r\n", text(1));
        let value = text(2);
        let parts = [value.as_bytes(), file.as_bytes()];
        assert_eq!(boundary(|| draws.next().unwrap_or_default(), &parts), text(3));
    }

    #[test]
    fn each_upload_has_a_boundary_of_its_own_and_is_read_as_it_was_written() {
        let old = "--form-c81f7a3be0d54d6f9f0b6a1c2d7e8f90--\r\n";
        let content = Bytes::from(format!("an image with {old} in it"));
        let request = Request {
            method: Method::Post,
            path: "/nodes/a/storage/b/upload".into(),
            params: vec![("content".into(), "iso".into())],
            file: Some(UploadFile {
                name: "a.iso".into(),
                content: content.clone().into(),
                limit: None,
            }),
            headers: Vec::new(),
            timeout: Duration::from_secs(1),
        };
        let (kind, body) = encode_body(&request).unwrap();
        assert_ne!(kind, encode_body(&request).unwrap().0);
        let boundary = kind.split_once("boundary=").map(|(_, text)| text).unwrap_or_default();
        let whole = String::from_utf8_lossy(&body).into_owned();
        let parts: Vec<_> = whole.split(&format!("--{boundary}")).collect();
        assert_eq!(parts.len(), 4, "before, two parts, after: {whole}");
        assert!(parts[2].ends_with(&format!("\r\n\r\n{}\r\n", String::from_utf8_lossy(&content))));
    }

    #[test]
    fn a_request_shows_no_values() {
        let request = Request {
            method: Method::Post,
            path: "/access/ticket".into(),
            params: vec![("password".into(), "hunter2".into())],
            file: None,
            headers: vec![("Authorization", SecretString::from("PVEAPIToken=x"))],
            timeout: Duration::from_secs(1),
        };
        assert_eq!(format!("{request:?}"), "POST /access/ticket");
    }
}
