//! What answers a head that is no HTTP request.
//!
//! The framework answers such a head itself, before any route or middleware: a bare 400, which is
//! the last thing that it writes on a connection. [`Wire`](super::line::Wire) writes a problem
//! document in its place, like any other refusal.

use super::problem::CONTENT_TYPE;
use super::problem::Rejection;

/// How the framework's own answer goes on after the version.
const BARE: &[u8] = b" 400 Bad Request\r\ncontent-length: 0\r\n";
/// The bytes of `HTTP/1.1`.
const VERSION_BYTES: usize = 8;
/// More bytes than the framework's own answer has.
const LONGEST_BYTES: usize = 256;
/// The end of a head.
const END: &[u8] = b"\r\n\r\n";

/// The place where the framework's own answer begins in bytes that end with it.
pub(super) fn bare_answer(bytes: &[u8]) -> Option<usize> {
    if !bytes.ends_with(END) {
        return None;
    }
    let from = bytes.len().saturating_sub(LONGEST_BYTES);
    let tail = &bytes[from..];
    let bare = tail.windows(BARE.len()).rposition(|part| part == BARE)?;
    let at = bare.checked_sub(VERSION_BYTES)?;
    let head = &tail[at..];
    let end = head.windows(END.len()).position(|part| part == END)? + END.len();
    (head.starts_with(b"HTTP/1.") && end == head.len()).then_some(from + at)
}

/// The answer that is written in place of the framework's own.
pub(super) struct Refusal {
    bytes: Vec<u8>,
    written: usize,
    /// Whether the connection is closed for writing.
    pub is_ended: bool,
}

impl Refusal {
    /// Makes the answer; its date is that of the framework's.
    pub(super) fn in_place_of(bare: &[u8]) -> Self {
        let rejection = Rejection::invalid(
            "the head is no HTTP/1.1 request: send a request line, one `Host`, and either \
             `Content-Length` with a number or `Transfer-Encoding: chunked` where there is a body",
        );
        let body = serde_json::to_string(&rejection.document).unwrap_or_default();
        let bare = String::from_utf8_lossy(bare);
        let date = bare.split_inclusive("\r\n").find(|line| line.starts_with("date: "));
        let (length, date) = (body.len(), date.unwrap_or_default());
        let text = format!(
            "HTTP/1.1 400 Bad Request\r\ncontent-type: {CONTENT_TYPE}\r\n\
             content-length: {length}\r\nconnection: close\r\n{date}\r\n{body}"
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
                assert_eq!(bare_answer(bare.as_bytes()), Some(0), "{bare}");
                let behind = format!("{}{ANSWER}{bare}", "x".repeat(1000));
                assert_eq!(bare_answer(behind.as_bytes()), Some(1000 + ANSWER.len()), "{bare}");
            }
        }
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
        let bare = format!("HTTP/1.0 400 Bad Request\r\ncontent-length: 0\r\n{DATE}\r\n");
        let mut refusal = Refusal::in_place_of(bare.as_bytes());
        let text = String::from_utf8(refusal.rest().to_vec()).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let length = format!("content-length: {}", body.len());
        for line in
            ["content-type: application/problem+json", &length, "connection: close", DATE.trim()]
        {
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
