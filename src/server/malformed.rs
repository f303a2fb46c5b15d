//! What answers a head that is no HTTP request, or is too large.
//!
//! The framework answers such a head itself, before any route or middleware: a bare 400, or 431 for
//! too many fields, which is the last thing that it writes on a connection.
//! `wire.rs` writes a problem document in its place, like any other refusal, and the same where it
//! reads no further.

use std::time::SystemTime;

use actix_web::http::StatusCode;
use actix_web::http::header::HttpDate;

use super::line::HEAD_BYTES;
use super::problem::CONTENT_TYPE;
use super::problem::Rejection;

/// The most fields of a head that the framework reads (`MAX_HEADERS` in its `h1/decoder.rs`).
const FIELDS: usize = 96;
/// The bytes of `HTTP/1.1`.
const VERSION_BYTES: usize = 8;
/// More bytes than the framework's own answer has.
const LONGEST_BYTES: usize = 256;
/// The end of a head.
const END: &[u8] = b"\r\n\r\n";

/// What is wrong with a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HeadFault {
    NotHttp,
    TooLarge,
}

impl HeadFault {
    /// How the framework's own answer goes on after the version.
    fn bare(self) -> &'static [u8] {
        match self {
            Self::NotHttp => b" 400 Bad Request\r\ncontent-length: 0\r\n",
            Self::TooLarge => b" 431 Request Header Fields Too Large\r\ncontent-length: 0\r\n",
        }
    }

    fn rejection(self) -> Rejection {
        match self {
            Self::NotHttp => Rejection::invalid(
                "the head is no HTTP/1.1 request: send a request line, one `Host`, and either \
                 `Content-Length` with a number or `Transfer-Encoding: chunked` where there is a \
                 body",
            ),
            Self::TooLarge => Rejection::new(
                StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
                "head-too-large",
                "the head is too large",
                format!(
                    "request line and fields must have at most {HEAD_BYTES} bytes and {FIELDS} \
                     fields"
                ),
            ),
        }
    }
}

/// The place where the framework's own answer begins in bytes that end with it, and what it refuses.
pub(super) fn bare_answer(bytes: &[u8]) -> Option<(usize, HeadFault)> {
    if !bytes.ends_with(END) {
        return None;
    }
    let from = bytes.len().saturating_sub(LONGEST_BYTES);
    let tail = &bytes[from..];
    let begins = |fault: HeadFault| {
        let bare = fault.bare();
        let bare = tail.windows(bare.len()).rposition(|part| part == bare)?;
        Some((bare.checked_sub(VERSION_BYTES)?, fault))
    };
    let (at, fault) = begins(HeadFault::NotHttp).or_else(|| begins(HeadFault::TooLarge))?;
    let head = &tail[at..];
    let end = head.windows(END.len()).position(|part| part == END)? + END.len();
    (head.starts_with(b"HTTP/1.") && end == head.len()).then_some((from + at, fault))
}

/// The answer to such a head.
pub(super) struct Refusal {
    bytes: Vec<u8>,
    written: usize,
    /// Whether the connection is closed for writing.
    pub is_ended: bool,
}

impl Refusal {
    pub(super) fn of(fault: HeadFault) -> Self {
        let document = fault.rejection().document;
        let status = StatusCode::from_u16(document.status).unwrap_or(StatusCode::BAD_REQUEST);
        let body = serde_json::to_string(&document).unwrap_or_default();
        let (length, date) = (body.len(), HttpDate::from(SystemTime::now()));
        let text = format!(
            "HTTP/1.1 {status}\r\ncontent-type: {CONTENT_TYPE}\r\ncontent-length: {length}\r\n\
             connection: close\r\ndate: {date}\r\n\r\n{body}"
        );
        Self { bytes: text.into_bytes(), written: 0, is_ended: false }
    }

    /// What is not written yet.
    pub(super) fn rest(&self) -> &[u8] {
        &self.bytes[self.written..]
    }

    /// So many bytes more were written.
    pub(super) fn wrote(&mut self, count: usize) {
        self.written = (self.written + count).min(self.bytes.len());
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::HeadFault::NotHttp;
    use super::*;

    const ANSWER: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
    const DATE: &str = "date: Mon, 23 Nov 2026 15:17:01 GMT\r\n";

    // Invariant: the framework's own answer is found where it ends what is written, and no other is.

    #[test]
    fn the_bare_answer_is_found_behind_others_and_nothing_else_is_taken_for_it() {
        for middle in ["", "connection: close\r\n", "connection: keep-alive\r\n"] {
            for version in ["HTTP/1.1", "HTTP/1.0"] {
                let bare =
                    format!("{version} 400 Bad Request\r\ncontent-length: 0\r\n{middle}{DATE}\r\n");
                assert_eq!(bare_answer(bare.as_bytes()), Some((0, NotHttp)), "{bare}");
                let behind = format!("{}{ANSWER}{bare}", "x".repeat(1000));
                let found = bare_answer(behind.as_bytes());
                assert_eq!(found, Some((1000 + ANSWER.len(), NotHttp)), "{bare}");
            }
        }
        let fields = "HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\n";
        let large = format!("{fields}{DATE}\r\n");
        assert_eq!(bare_answer(large.as_bytes()), Some((0, HeadFault::TooLarge)));
        for other in [
            "",
            "\r\n\r\n",
            ANSWER,
            "HTTP/1.1 400 Bad Request\r\ncontent-length: 2\r\n\r\n{}",
            "HTTP/1.1 400 Bad Request\r\ncontent-length: 131\r\n\r\n",
            "HTTP/1.1 405 Method Not Allowed\r\ncontent-length: 0\r\n\r\n",
            "HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n",
            "HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\ndata: x\r\n\r\n",
        ] {
            assert_eq!(bare_answer(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn what_is_written_in_its_place_is_a_whole_answer() {
        let mut refusal = Refusal::of(HeadFault::NotHttp);
        let text = String::from_utf8(refusal.rest().to_vec()).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let length = format!("content-length: {}", body.len());
        for line in ["content-type: application/problem+json", &length, "connection: close"] {
            assert!(head.lines().any(|other| other == line), "{line} in {head}");
        }
        let problem: drover_api::Problem = serde_json::from_str(body).unwrap();
        assert_eq!((problem.status, &*problem.title), (400, "the request is not valid"));
        refusal.wrote(text.len() - 1);
        assert_eq!(refusal.rest(), b"}");
        refusal.wrote(1);
        assert!(refusal.rest().is_empty());
    }
}
