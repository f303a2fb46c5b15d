//! Downloads from this computer, over HTTP. Nothing else is reached.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::http1;
use hyper::{Request, StatusCode, Uri, header};
use hyper_util::rt::TokioIo;
use sha2::{Digest as _, Sha256, Sha512};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use super::disks::virtual_size;
use crate::guest::KeptFile;

/// The largest file.
const BYTES_MAX: u64 = 64 << 30;
const TIME_LIMIT: Duration = Duration::from_secs(600);

/// Fetches a file to a path. None where the URL is not of this computer.
///
/// # Errors
/// Why the file is not there; what came of it is removed.
pub(super) async fn fetch(url: &str, path: &Path) -> Result<Option<KeptFile>, String> {
    let Some((uri, address)) = on_this_computer(url) else { return Ok(None) };
    let done = tokio::time::timeout(TIME_LIMIT, transfer(&uri, address, path)).await;
    let done = done.unwrap_or_else(|_| Err("it takes too long".to_owned()));
    if done.is_err() {
        let _absent = std::fs::remove_file(path);
    }
    done.map(Some)
}

/// The place of an `http` URL whose host is a loopback address.
fn on_this_computer(url: &str) -> Option<(Uri, SocketAddr)> {
    let uri: Uri = url.parse().ok().filter(|uri: &Uri| uri.scheme_str() == Some("http"))?;
    let ip = match uri.host()?.trim_matches(['[', ']']) {
        "localhost" => IpAddr::V4(Ipv4Addr::LOCALHOST),
        host => host.parse().ok()?,
    };
    let address = SocketAddr::new(ip, uri.port_u16().unwrap_or(80));
    ip.is_loopback().then_some((uri, address))
}

async fn transfer(uri: &Uri, address: SocketAddr, path: &Path) -> Result<KeptFile, String> {
    let stream = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
    let request = Request::get(uri.path_and_query().map_or("/", |path| path.as_str()))
        .header(header::HOST, uri.authority().map_or("", |authority| authority.as_str()))
        .body(Empty::<Bytes>::new())
        .map_err(|error| error.to_string())?;
    let read = async {
        let response = sender.send_request(request).await.map_err(|error| error.to_string())?;
        if response.status() != StatusCode::OK {
            return Err(format!("the server says {}", response.status()));
        }
        keep(response.into_body(), path).await
    };
    tokio::pin!(read);
    tokio::select! {
        read = &mut read => read,
        // The connection may end before all of its body is read.
        _ = connection => read.await,
    }
}

/// Writes a body to a file.
async fn keep(mut body: hyper::body::Incoming, path: &Path) -> Result<KeptFile, String> {
    let mut file = tokio::fs::File::create(path).await.map_err(|error| error.to_string())?;
    let (mut sha256, mut sha512, mut length) = (Sha256::new(), Sha512::new(), 0);
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|error| error.to_string())?.into_data() else { continue };
        length += data.len() as u64;
        if length > BYTES_MAX {
            return Err(format!("it is larger than {} GiB", BYTES_MAX >> 30));
        }
        sha256.update(&data);
        sha512.update(&data);
        file.write_all(&data).await.map_err(|error| error.to_string())?;
    }
    file.flush().await.map_err(|error| error.to_string())?;
    let bytes = virtual_size(path).map_err(|error| error.to_string())?;
    let hex = |sum: &[u8]| sum.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(KeptFile { bytes, sha256: hex(&sha256.finalize()), sha512: hex(&sha512.finalize()) })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

    use tokio::io::AsyncReadExt as _;
    use tokio::net::TcpListener;

    use super::*;

    /// Fetches from a server that answers once with this.
    async fn fetched(answer: &'static str) -> (Result<Option<KeptFile>, String>, Option<Vec<u8>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/disk.raw?day=1", listener.local_addr().unwrap());
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut asked = Vec::new();
            while !asked.ends_with(b"\r\n\r\n") {
                asked.push(stream.read_u8().await.unwrap());
            }
            assert!(asked.starts_with(b"GET /disk.raw?day=1 HTTP/1.1\r\n"));
            stream.write_all(answer.as_bytes()).await.unwrap();
        });
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("1.qcow2");
        let done = fetch(&url, &path).await;
        server.await.unwrap();
        (done, std::fs::read(path).ok())
    }

    // Invariant: a file is fetched whole or not at all, and only from this computer.

    #[tokio::test]
    async fn a_file_is_fetched_with_its_size_and_its_sums() {
        let (done, content) = fetched("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\ndisk").await;
        let file = done.unwrap().unwrap();
        assert_eq!((file.bytes, content.as_deref()), (4, Some(&b"disk"[..])));
        assert!(file.sha256.starts_with("1044dec7206e8d7c"), "{file:?}");
        assert_eq!(file.sha512.len(), 128);
    }

    #[tokio::test]
    async fn a_file_that_is_cut_short_or_missing_leaves_nothing() {
        for answer in [
            "HTTP/1.1 200 OK\r\ncontent-length: 40\r\n\r\ndisk",
            "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n",
        ] {
            let (done, content) = fetched(answer).await;
            assert!(done.is_err() && content.is_none(), "{done:?}");
        }
    }

    #[tokio::test]
    async fn other_computers_are_not_asked() {
        let path = Path::new("/nowhere/1.qcow2");
        for url in ["https://127.0.0.1/a", "http://192.0.2.1/a", "http://cloud.example/a", "a"] {
            assert_eq!(fetch(url, path).await, Ok(None), "{url}");
        }
    }
}
