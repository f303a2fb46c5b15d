//! Parses the multipart form of an upload as Proxmox's daemon does: it expects the fields
//! `content`, `checksum-algorithm` and `checksum` in this order, each at most once, and then the
//! file.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::http::{Request, Response};
use super::validate::Input;

/// The fields before the file, in their order.
const FIELDS: [&str; 3] = ["content", "checksum-algorithm", "checksum"];

#[derive(Debug)]
pub(crate) struct UploadForm {
    /// The fields; the file's name is `filename`.
    pub inputs: BTreeMap<String, Input>,
    pub file: Bytes,
}

/// One part of a form.
struct Part {
    name: String,
    filename: Option<String>,
    content: Bytes,
}

/// Parses the form of an upload.
///
/// # Errors
/// The response to a form without a file, and to one with fields in another order.
pub(crate) fn parse_upload(request: &Request) -> Result<UploadForm, Response> {
    let kind = request.header("content-type").unwrap_or_default();
    let boundary = kind.split(';').find_map(|part| part.trim().strip_prefix("boundary="));
    let boundary = boundary.map(|text| text.trim_matches('"')).filter(|text| !text.is_empty());
    let Some(boundary) = boundary else { return Err(Response::reset()) };
    let mut parts = split(&request.body, boundary).into_iter().peekable();
    let mut inputs = BTreeMap::new();
    for field in FIELDS {
        let is_it = |part: &Part| part.filename.is_none() && part.name == field;
        if let Some(part) = parts.next_if(is_it) {
            let text = String::from_utf8_lossy(&part.content).trim().to_owned();
            inputs.insert(field.to_owned(), Input::Text(text));
        }
    }
    let failed = "upload failed at /usr/share/perl5/PVE/APIServer/AnyEvent.pm line 1317.\n";
    match parts.next() {
        Some(Part { name, filename: Some(filename), content }) if name == "filename" => {
            inputs.insert("filename".to_owned(), Input::Text(filename.trim().to_owned()));
            Ok(UploadForm { inputs, file: content })
        }
        Some(Part { name, filename: Some(_), .. }) => {
            let text = format!("wrong field name '{name}' for file upload, expected 'filename'");
            Err(Response::plain(500, &text))
        }
        // Proxmox does not reach a file after an unexpected part.
        Some(_) if parts.any(|part| part.filename.is_some()) => {
            Err(Response::new(400, "Bad Request"))
        }
        Some(_) | None => Err(Response::plain(500, failed)),
    }
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

/// Splits a body at its boundaries, and skips what is no part.
fn split(body: &Bytes, boundary: &str) -> Vec<Part> {
    let first = format!("--{boundary}");
    let next = format!("\r\n--{boundary}");
    let mut parts = Vec::new();
    let Some(start) = find(body, first.as_bytes()) else { return parts };
    let mut rest = body.slice(start + first.len()..);
    while let Some(part_start) = rest.strip_prefix(b"\r\n") {
        let Some(head) = find(part_start, b"\r\n\r\n") else { break };
        let headers = String::from_utf8_lossy(&part_start[..head]).into_owned();
        let content = rest.slice(2 + head + 4..);
        let Some(end) = find(&content, next.as_bytes()) else { break };
        rest = content.slice(end + next.len()..);
        parts.extend(part(&headers, content.slice(..end)));
    }
    parts
}

fn part(headers: &str, content: Bytes) -> Option<Part> {
    let is_it = |line: &&str| line.to_ascii_lowercase().starts_with("content-disposition:");
    let disposition = headers.lines().find(is_it)?;
    let value = |name: &str| {
        let sign = format!("; {name}=\"");
        let (_, rest) = disposition.split_once(&sign)?;
        Some(rest.split('"').next().unwrap_or_default().to_owned())
    };
    Some(Part { name: value("name")?, filename: value("filename"), content })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail by panicking")]
mod tests {
    use super::*;

    fn sent(parts: &[(&str, Option<&str>, &str)]) -> Result<UploadForm, Response> {
        let mut body = String::new();
        for (name, filename, content) in parts {
            let file = filename.map(|name| format!("; filename=\"{name}\"")).unwrap_or_default();
            body.push_str(&format!(
                "--xx\r\nContent-Disposition: form-data; name=\"{name}\"{file}\r\n\r\n{content}\r\n"
            ));
        }
        body.push_str("--xx--\r\n");
        let kind = ("Content-Type".to_owned(), "multipart/form-data; boundary=xx".to_owned());
        parts_of(Request { headers: vec![kind], body: body.into(), ..Request::default() })
    }

    fn parts_of(request: Request) -> Result<UploadForm, Response> {
        super::parse_upload(&request)
    }

    // Invariant: an upload has its fields in Proxmox's order and the file last, or it is refused.

    #[test]
    fn fields_and_the_bytes_of_the_file_are_parsed() {
        let file = "a\r\n--x\0\r\n\r\nb";
        let form = sent(&[("content", None, "iso"), ("filename", Some("a.iso"), file)]).unwrap();
        assert_eq!(form.inputs["content"], Input::Text("iso".into()));
        assert_eq!(form.inputs["filename"], Input::Text("a.iso".into()));
        assert_eq!(form.file, file.as_bytes());
    }

    #[test]
    fn a_wrong_order_a_wrong_name_and_a_missing_file_are_refused() {
        let (sum, kind) = (("checksum", None, "0"), ("checksum-algorithm", None, "sha256"));
        let content = ("content", None, "iso");
        let file = ("filename", Some("a.iso"), "");
        assert_eq!(sent(&[content, sum, kind, file]).unwrap_err().status, 400);
        assert!(sent(&[content, kind, sum, file]).is_ok());
        let refused = sent(&[content, ("file", Some("a.iso"), "")]).unwrap_err();
        assert_eq!(refused.reason, "wrong field name 'file' for file upload, expected 'filename'");
        assert!(sent(&[content]).unwrap_err().reason.starts_with("upload failed at"));
        assert!(parts_of(Request::default()).unwrap_err().reset);
    }
}
