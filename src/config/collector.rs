//! Checks of single texts of `service.traces`: the address of a collector, names of headers.

use super::value::{Checked, complain, made_of, must, web_url};

/// Headers that each request has in any case.
const OWN: [&str; 6] = [
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "host",
    "transfer-encoding",
];

/// Checks the address at which a collector takes traces.
pub(super) fn endpoint(text: &str) -> Checked {
    const FORM: &str = "write it as `https://otel.example.com:4318/v1/traces`";
    const LOGIN: &str = "use `headers` for it";
    let url = web_url(text, "the URL of a collector", FORM, LOGIN)?;
    if url.path() == "/" {
        let message = format!("`{text}` has no path: collectors take traces at `/v1/traces`");
        return Err(complain(message, FORM));
    }
    must(url.fragment().is_none(), text, "the URL of a collector", FORM)
}

/// Checks the name of a header.
pub(super) fn header(text: &str) -> Checked {
    const FORM: &str = "write it as `Authorization`: letters, digits and hyphens";
    must(!text.is_empty() && made_of(text, "-_"), text, "the name of a header", FORM)?;
    if OWN.iter().any(|own| text.eq_ignore_ascii_case(own)) {
        let message = format!("drover itself sets the header `{text}`");
        return Err(complain(message, "leave it out"));
    }
    Ok(())
}
