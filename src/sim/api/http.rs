//! HTTP requests and responses as data, and the refusals of the HTTP server itself
//! (book: proxmox, section 1). Sockets are in `https`.

use std::time::Duration;

use bytes::Bytes;

pub(crate) const BODY_BYTES_MAX: usize = 512 * 1024;

/// The largest upload. The simulator keeps it in memory; Proxmox writes it to a disk.
pub(crate) const UPLOAD_BYTES_MAX: usize = 64 << 20;

/// The time until the server closes a connection on which nothing goes on. It also goes by before
/// the end of a request that the server has given up.
pub(crate) const IDLE_TIMEOUT: Duration = Duration::from_secs(5);

/// The headers must be shorter together.
const HEADERS_BYTES_LIMIT: usize = 8 * 1024;
/// The headers and the empty line after them must be fewer.
const HEADER_LINES_LIMIT: usize = 64;

const API_PREFIX: &str = "/api2";

/// A request to a node of the cluster.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// The method, upper case.
    pub method: String,
    /// The raw path with its query.
    pub target: String,
    /// Names, in any case, and values.
    pub headers: Vec<(String, String)>,
    /// A body over `BODY_BYTES_MAX` can be missing; its Content-Length shows its size.
    pub body: Bytes,
    /// The node that received the request.
    pub node: String,
}

impl Request {
    /// The value of a header, by its name in any case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(other, _)| other.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    fn content_length(&self) -> usize {
        let declared = self.header("content-length").and_then(|text| text.trim().parse().ok());
        declared.unwrap_or(0).max(self.body.len())
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    pub status: u16,
    pub reason: String,
    /// All headers except Content-Length and Connection.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// Whether the server closes the connection after the response.
    pub close: bool,
    /// The connection breaks, and nothing is sent.
    pub reset: bool,
}

impl Response {
    /// A response with the headers of all responses; the first line of the text is the reason
    /// phrase.
    pub(crate) fn new(status: u16, text: &str) -> Self {
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

    /// A broken connection in place of a response.
    pub(crate) fn reset() -> Self {
        Self { reset: true, ..Self::new(500, "") }
    }

    /// A response whose body is the text, without a content type.
    pub(crate) fn plain(status: u16, text: &str) -> Self {
        Self { body: text.as_bytes().to_vec(), ..Self::new(status, text) }
    }

    /// Adds the content type and the body.
    pub(crate) fn with_body(mut self, content_type: &str, body: Vec<u8>) -> Self {
        self.headers.push(("Content-Type".into(), content_type.into()));
        self.body = body;
        self
    }
}

/// The target of a request: the formatter, and the decoded path below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    /// `json`, `extjs`, or an unknown formatter.
    pub format: String,
    /// The path below `/api2/{format}`, with a leading slash, without doubled or trailing slashes.
    pub path: String,
    pub query: String,
}

/// Whether the headers exceed the limits: the server stops in the middle of them, and the connection
/// becomes idle.
pub(crate) fn exceeds_headers(request: &Request) -> bool {
    let length = |(name, value): &(String, String)| name.len() + ": ".len() + value.len();
    request.headers.len() + 1 >= HEADER_LINES_LIMIT
        || request.headers.iter().map(length).sum::<usize>() >= HEADERS_BYTES_LIMIT
}

/// The refusals that come before path and login.
pub(crate) fn refuse_head(request: &Request) -> Option<Response> {
    if !["GET", "POST", "PUT", "DELETE"].contains(&request.method.as_str()) {
        return Some(Response::new(501, &format!("method '{}' not available", request.method)));
    }
    let chunked = request
        .header("transfer-encoding")
        .is_some_and(|coding| coding.to_ascii_lowercase().contains("chunked"));
    chunked.then(|| Response::plain(501, "chunked transfer encoding not supported"))
}

/// Whether a call uploads a file: its body can be larger, and is a multipart form.
pub(crate) fn is_upload(method: &str, path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    method == "POST" && matches!(parts[..], ["nodes", _, "storage", _, "upload"])
}

/// Refuses a body with the wrong method, size or content type. The connection of an upload that is
/// no multipart form breaks.
pub(crate) fn refuse_body(request: &Request, path: &str) -> Option<Response> {
    let length = request.content_length();
    let method = request.method.as_str();
    if is_upload(method, path) {
        return (content_type(request) != "multipart/form-data").then(Response::reset);
    }
    if length > 0 && method != "PUT" && method != "POST" {
        let text = format!("Unexpected content for method '{method}'");
        return Some(Response::plain(501, &text));
    }
    if length > BODY_BYTES_MAX {
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
pub(crate) fn content_type(request: &Request) -> String {
    let kind = request.header("content-type").unwrap_or_default();
    kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// Whether a browser asks for the start page, where Proxmox has its web interface.
pub(crate) fn is_start_page(request: &Request) -> bool {
    request.method == "GET" && request.target.split('?').next() == Some("/")
}

/// Splits the target into formatter, path and query.
///
/// # Errors
/// The response to a path outside `/api2`.
pub(crate) fn parse_target(request: &Request) -> Result<Target, Response> {
    let (path, query) = request.target.split_once('?').unwrap_or((&request.target, ""));
    let path = percent_encoding::percent_decode_str(path).decode_utf8_lossy();
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let Some((_, below)) = parts.split_first().filter(|(first, _)| **first == &API_PREFIX[1..])
    else {
        return Err(Response::plain(500, &format!("no such file '{path}'\n")));
    };
    let (format, rest) = match below {
        [format, rest @ ..] => ((*format).to_owned(), rest),
        [] => (String::new(), below),
    };
    Ok(Target { format, path: format!("/{}", rest.join("/")), query: query.to_owned() })
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

    // Invariant: the HTTP server refuses what Proxmox's refuses
    // (book: proxmox, section 23, item 10).
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
        let length = (BODY_BYTES_MAX + 1).to_string();
        let sent = request("POST", "/", &[("content-length", &length)], "");
        assert_eq!(refuse(&sent).unwrap().reason, "for data too large");
        let length = BODY_BYTES_MAX.to_string();
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
        let length = (BODY_BYTES_MAX + 1).to_string();
        let kind = ("Content-Type", "multipart/form-data; boundary=x");
        let sent = request("POST", path, &[kind, ("Content-Length", &length)], "");
        assert!(refuse_body(&sent, path).is_none());
        assert!(refuse_body(&request("POST", path, &[], "content=iso"), path).unwrap().reset);
    }

    #[test]
    fn paths_are_decoded_and_normalized() {
        let sent = request("GET", "/api2/json//nodes/%70ve1/qemu/?full=1", &[], "");
        let target = parse_target(&sent).unwrap();
        assert_eq!((target.format.as_str(), target.path.as_str()), ("json", "/nodes/pve1/qemu"));
        assert_eq!(target.query, "full=1");
    }

    #[test]
    fn a_path_outside_the_api_is_refused_as_a_missing_file() {
        let refusal = parse_target(&request("GET", "/nope", &[], "")).unwrap_err();
        assert_eq!((refusal.status, refusal.reason.as_str()), (500, "no such file '/nope'"));
    }
}
