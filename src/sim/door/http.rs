//! HTTP-shaped requests and responses, and the refusals of the transport itself (behaviour
//! section 1).
//!
//! What a request asks for is decided elsewhere; the socket is in `wire`.

use bytes::Bytes;

/// Greatest body, in bytes.
pub const BODY_LIMIT: usize = 512 * 1024;

/// Greatest file that is uploaded, in bytes: it is kept in memory here, Proxmox writes it to a disk.
pub const UPLOAD_LIMIT: usize = 64 << 20;

const BASE: &str = "/api2";

/// A request as a node of the cluster takes it.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// The method, upper case.
    pub method: String,
    /// The raw path with its query.
    pub target: String,
    /// Header names (any case) and values.
    pub headers: Vec<(String, String)>,
    /// The body; a body over [`BODY_LIMIT`] may be cut off, its Content-Length tells.
    pub body: Bytes,
    /// The node whose port took the request.
    pub node: String,
}

impl Request {
    /// The value of a header, by its name in any case.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(other, _)| other.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    fn content_length(&self) -> usize {
        let declared = self.header("content-length").and_then(|text| text.trim().parse().ok());
        declared.unwrap_or(0).max(self.body.len())
    }
}

/// An answer for the transport.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// The status.
    pub status: u16,
    /// The reason phrase.
    pub reason: String,
    /// Headers beside Content-Length and Connection.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
    /// Whether the connection ends after it.
    pub close: bool,
    /// The connection breaks instead: nothing of this is sent.
    pub reset: bool,
}

impl Response {
    /// An answer with the headers every answer has; the reason is the text's first line.
    pub fn new(status: u16, text: &str) -> Self {
        let headers = [
            ("Cache-Control", "max-age=0"),
            ("Pragma", "no-cache"),
            ("Server", "pve-api-daemon/3.0"),
        ];
        Self {
            status,
            reason: text.lines().next().unwrap_or_default().to_owned(),
            headers: headers.map(|(name, value)| (name.into(), value.into())).into(),
            body: Vec::new(),
            close: status >= 400,
            reset: false,
        }
    }

    /// No answer: the connection breaks.
    pub fn reset() -> Self {
        Self { reset: true, ..Self::new(500, "") }
    }

    /// An answer whose body is the text itself, without a content type.
    pub fn plain(status: u16, text: &str) -> Self {
        Self { body: text.as_bytes().to_vec(), ..Self::new(status, text) }
    }

    /// Adds the content type and the body.
    pub fn with_body(mut self, content_type: &str, body: Vec<u8>) -> Self {
        self.headers.push(("Content-Type".into(), content_type.into()));
        self.body = body;
        self
    }
}

/// The place a request asks for: formatter and decoded path below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// `json`, `extjs`, or something that no formatter answers to.
    pub format: String,
    /// The path below `/api2/{format}`, with one leading slash and none doubled or trailing.
    pub path: String,
    /// The raw query.
    pub query: String,
}

/// Refuses what the server refuses before it looks at path or login.
pub fn refuse_head(request: &Request) -> Option<Response> {
    if !["GET", "POST", "PUT", "DELETE"].contains(&request.method.as_str()) {
        return Some(Response::new(501, &format!("method '{}' not available", request.method)));
    }
    let chunked = request
        .header("transfer-encoding")
        .is_some_and(|coding| coding.to_ascii_lowercase().contains("chunked"));
    chunked.then(|| Response::plain(501, "chunked transfer encoding not supported"))
}

/// Whether a call brings a file: its body is larger than others, and of a type of its own.
pub fn is_upload(method: &str, path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    method == "POST" && matches!(parts[..], ["nodes", _, "storage", _, "upload"])
}

/// Refuses bodies: on the wrong method, too large, or of another type than form and JSON; of an
/// upload that is no multipart form nothing is heard any more.
pub fn refuse_body(request: &Request, path: &str) -> Option<Response> {
    let length = request.content_length();
    let method = request.method.as_str();
    if is_upload(method, path) {
        return (content_type(request) != "multipart/form-data").then(Response::reset);
    }
    if length > 0 && method != "PUT" && method != "POST" {
        let text = format!("Unexpected content for method '{method}'");
        return Some(Response::plain(501, &text));
    }
    if length > BODY_LIMIT {
        return Some(Response::plain(501, "for data too large"));
    }
    let kind = content_type(request);
    let known = ["", "application/x-www-form-urlencoded", "application/json"];
    if length > 0 && !known.contains(&kind.as_str()) {
        let text = format!("upload 'Content-Type '{kind}' not implemented");
        return Some(Response::plain(506, &text));
    }
    None
}

/// The content type without its parameters.
pub fn content_type(request: &Request) -> String {
    let kind = request.header("content-type").unwrap_or_default();
    kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// Whether a browser asks for what Proxmox has its own pages at.
pub fn is_root(request: &Request) -> bool {
    request.method == "GET" && request.target.split('?').next() == Some("/")
}

/// Splits the target into formatter, path and query.
///
/// # Errors
/// The answer to a path outside `/api2`.
pub fn place(request: &Request) -> Result<Place, Response> {
    let (path, query) = request.target.split_once('?').unwrap_or((&request.target, ""));
    let path = percent_encoding::percent_decode_str(path).decode_utf8_lossy();
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let Some((_, below)) = parts.split_first().filter(|(first, _)| **first == &BASE[1..]) else {
        return Err(Response::plain(500, &format!("no such file '{path}'\n")));
    };
    let (format, rest) = match below {
        [format, rest @ ..] => ((*format).to_owned(), rest),
        [] => (String::new(), below),
    };
    Ok(Place { format, path: format!("/{}", rest.join("/")), query: query.to_owned() })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail by panicking")]
mod tests {
    use super::*;

    fn request(method: &str, target: &str, headers: &[(&str, &str)], body: &str) -> Request {
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Request {
            method: method.into(),
            target: target.into(),
            headers: headers.iter().map(own).collect(),
            body: Bytes::copy_from_slice(body.as_bytes()),
            node: "pve1".into(),
        }
    }

    fn refuse(request: &Request) -> Option<Response> {
        refuse_body(request, "/nodes")
    }

    // Invariant: section 23 item 10, transport refusals that bite a new client.
    #[test]
    fn chunked_bodies_are_refused() {
        let sent = request("PUT", "/", &[("Transfer-Encoding", "chunked")], "");
        let refusal = refuse_head(&sent).unwrap();
        assert_eq!((refusal.status, refusal.close), (501, true));
        assert_eq!(refusal.reason, "chunked transfer encoding not supported");
    }

    #[test]
    fn other_methods_are_refused() {
        for method in ["HEAD", "PATCH", "OPTIONS"] {
            let refusal = refuse_head(&request(method, "/", &[], "")).unwrap();
            assert_eq!(refusal.reason, format!("method '{method}' not available"));
            assert!(refusal.body.is_empty());
        }
    }

    #[test]
    fn a_body_on_get_or_delete_is_refused_and_an_empty_one_is_not() {
        for method in ["GET", "DELETE"] {
            let refusal = refuse(&request(method, "/", &[], "purge=1")).unwrap();
            assert_eq!(refusal.reason, format!("Unexpected content for method '{method}'"));
            assert!(refuse(&request(method, "/", &[("Content-Length", "0")], "")).is_none());
        }
    }

    #[test]
    fn bodies_over_half_a_mebibyte_are_refused() {
        let length = (BODY_LIMIT + 1).to_string();
        let sent = request("POST", "/", &[("content-length", &length)], "");
        assert_eq!(refuse(&sent).unwrap().reason, "for data too large");
        let length = BODY_LIMIT.to_string();
        assert!(refuse(&request("POST", "/", &[("content-length", &length)], "")).is_none());
    }

    #[test]
    fn other_content_types_are_refused() {
        let sent = request("PUT", "/", &[("Content-Type", "text/plain")], "a=b");
        assert_eq!(refuse(&sent).unwrap().status, 506);
        let kind = "application/x-www-form-urlencoded; charset=utf-8";
        assert!(refuse(&request("PUT", "/", &[("Content-Type", kind)], "a=b")).is_none());
    }

    #[test]
    fn uploads_are_multipart_forms_of_any_size_or_are_not_answered() {
        let path = "/nodes/pve1/storage/local/upload";
        let length = (BODY_LIMIT + 1).to_string();
        let kind = ("Content-Type", "multipart/form-data; boundary=x");
        let sent = request("POST", path, &[kind, ("Content-Length", &length)], "");
        assert!(refuse_body(&sent, path).is_none());
        assert!(refuse_body(&request("POST", path, &[], "content=iso"), path).unwrap().reset);
    }

    #[test]
    fn paths_are_decoded_and_tidied() {
        let sent = request("GET", "/api2/json//nodes/%70ve1/qemu/?full=1", &[], "");
        let place = place(&sent).unwrap();
        assert_eq!((place.format.as_str(), place.path.as_str()), ("json", "/nodes/pve1/qemu"));
        assert_eq!(place.query, "full=1");
    }

    #[test]
    fn a_path_outside_the_api_is_no_file() {
        let refusal = place(&request("GET", "/nope", &[], "")).unwrap_err();
        assert_eq!((refusal.status, refusal.reason.as_str()), (500, "no such file '/nope'"));
    }
}
