//! Files that are sent with a request, and the multipart form around them: the parameters in their
//! order, then the file, as Proxmox expects uploads (book: proxmox, section 19).
//!
//! A large file is read while it is sent, so that it is never in memory as a whole.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, Stream};
use rand::TryRng;
use rand::rngs::SysRng;
use tokio::fs::File;
use tokio::io::AsyncReadExt as _;

/// How much of a file is read at once.
const CHUNK_BYTES: usize = 256 << 10;

/// The bytes of a file that is sent.
#[derive(Debug, Clone)]
pub enum Content {
    /// Bytes in memory.
    Bytes(Bytes),
    /// A file of this machine.
    File {
        /// Where it is.
        path: PathBuf,
        /// Its size in bytes.
        size: u64,
    },
}

impl From<Bytes> for Content {
    fn from(bytes: Bytes) -> Self {
        Self::Bytes(bytes)
    }
}

/// A file that is sent with a request, as the form field `filename`.
#[derive(Clone)]
pub struct UploadFile {
    /// The file's name: letters, digits, `.`, `_` and `-`.
    pub name: String,
    /// What is in it.
    pub content: Content,
    /// How long the call may take; none for the limit of all calls.
    pub limit: Option<Duration>,
}

/// The form around a file.
pub(crate) struct Form {
    /// The content type, with the boundary.
    pub kind: String,
    /// What comes before the file.
    pub head: Vec<u8>,
    /// What comes behind it.
    pub tail: Vec<u8>,
}

/// The form of a file, with the parameters before it.
pub(crate) fn form(params: &[(String, String)], file: &UploadFile) -> Form {
    let values = params.iter().map(|(_, value)| value.as_bytes());
    // A file that is not in memory is not searched: nobody can know a boundary that is drawn now.
    let content: &[u8] = match &file.content {
        Content::Bytes(bytes) => bytes,
        Content::File { .. } => &[],
    };
    let parts: Vec<&[u8]> = values.chain([content]).collect();
    let boundary = boundary(random_bytes(), &parts);
    let before = format!("--{boundary}\r\nContent-Disposition: form-data; name=");
    let mut head = String::new();
    for (key, value) in params {
        head.push_str(&format!("{before}\"{key}\"\r\n\r\n{value}\r\n"));
    }
    let kind = "Content-Type: application/octet-stream";
    head.push_str(&format!("{before}\"filename\"; filename=\"{}\"\r\n{kind}\r\n\r\n", file.name));
    Form {
        kind: format!("multipart/form-data; boundary={boundary}"),
        head: head.into_bytes(),
        tail: format!("\r\n--{boundary}--\r\n").into_bytes(),
    }
}

/// The body of a form around a file of this machine, in parts that are read one by one.
pub(crate) fn body(
    form: Form,
    path: &Path,
    size: u64,
) -> (u64, impl Stream<Item = io::Result<Bytes>> + Send + 'static) {
    let length = form.head.len() as u64 + size + form.tail.len() as u64;
    let start = Part::Head(form, path.to_owned(), size);
    let parts = stream::try_unfold(start, |part| async move {
        Ok(match part {
            Part::Head(mut form, path, size) => {
                let file = File::open(&path).await?;
                let head = std::mem::take(&mut form.head);
                Some((Bytes::from(head), Part::File(form, file, size)))
            }
            Part::File(form, _, 0) => Some((Bytes::from(form.tail), Part::End)),
            Part::File(form, mut file, left) => {
                let most = usize::try_from(left).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES);
                let mut chunk = vec![0; most];
                let read = file.read(&mut chunk).await?;
                if read == 0 {
                    return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
                }
                chunk.truncate(read);
                Some((Bytes::from(chunk), Part::File(form, file, left - read as u64)))
            }
            Part::End => None,
        })
    });
    (length, parts)
}

/// What of a form is sent next.
enum Part {
    Head(Form, PathBuf, u64),
    /// The file, and how many of its bytes are left.
    File(Form, File, u64),
    End,
}

/// Draws a form's boundary until it occurs in none of the parts. The text of a part may come from
/// somebody who wants to end it early.
pub(crate) fn boundary(mut draw: impl FnMut() -> [u8; 16], parts: &[&[u8]]) -> String {
    loop {
        let text = format!("form-{:032x}", u128::from_be_bytes(draw()));
        let is_in = |part: &[u8]| part.windows(text.len()).any(|some| some == text.as_bytes());
        if !parts.iter().any(|part| is_in(part)) {
            return text;
        }
    }
}

/// Draws random bytes. Without the system's randomness it counts, which is enough because
/// `boundary` checks every draw.
fn random_bytes() -> impl FnMut() -> [u8; 16] {
    let mut count: u128 = 0;
    move || {
        count += 1;
        let mut bytes = count.to_be_bytes();
        if SysRng.try_fill_bytes(&mut bytes).is_err() {
            bytes = count.to_be_bytes();
        }
        bytes
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use futures_util::TryStreamExt as _;

    use super::*;

    // Invariant: a file of this machine is sent as it is, between the same texts as one in memory.

    #[tokio::test]
    async fn a_file_is_read_in_parts_and_its_form_has_the_length_that_it_says() {
        let folder = std::env::temp_dir().join(format!("drover-upload-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("disk.qcow2");
        let content: Vec<u8> = (0..CHUNK_BYTES * 2 + 7).map(|at| (at % 251) as u8).collect();
        std::fs::write(&path, &content).unwrap();
        let params = [("content".to_owned(), "import".to_owned())];
        let file = |content| UploadFile { name: "disk.qcow2".into(), content, limit: None };
        let size = content.len() as u64;
        let form = form(&params, &file(Content::File { path: path.clone(), size }));
        let (head, tail) = (form.head.clone(), form.tail.clone());
        let (length, parts) = body(form, &path, size);
        let parts: Vec<Bytes> = parts.try_collect().await.unwrap();
        let sent = parts.concat();
        assert_eq!((sent.len() as u64, parts.len()), (length, 5));
        assert_eq!(sent, [head, content, tail].concat());
        // One that became shorter meanwhile is no file of this size.
        let short = super::form(&params, &file(Content::File { path: path.clone(), size }));
        let (_, parts) = body(short, &path, size + 1);
        assert!(parts.try_collect::<Vec<Bytes>>().await.is_err());
        std::fs::remove_dir_all(folder).unwrap();
    }
}
