//! The part of SFTP that writes one file into a guest: version 3 (draft-ietf-secsh-filexfer-02),
//! which every OpenSSH speaks.
//!
//! It serves guests without a POSIX shell: a login shell there may read the input meant for the
//! program it starts.

use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use russh::client::Msg;
use russh::{Channel, ChannelMsg, ChannelReadHalf, ChannelWriteHalf};

use super::session::{ExecError, Session};
use super::upload::UploadError;

/// Packet types of the protocol.
pub mod kind {
    pub const INIT: u8 = 1;
    pub const VERSION: u8 = 2;
    pub const OPEN: u8 = 3;
    pub const CLOSE: u8 = 4;
    pub const WRITE: u8 = 6;
    pub const REMOVE: u8 = 13;
    pub const RENAME: u8 = 18;
    pub const STATUS: u8 = 101;
    pub const HANDLE: u8 = 102;
    pub const EXTENDED: u8 = 200;
}

/// Status codes of the protocol.
pub mod code {
    pub const OK: u32 = 0;
    pub const NO_SUCH_FILE: u32 = 2;
    pub const DENIED: u32 = 3;
    pub const UNSUPPORTED: u32 = 8;
}

/// The name of the subsystem, and the protocol version.
pub const SUBSYSTEM: &str = "sftp";
pub const VERSION: u32 = 3;
/// An extension that renames and replaces an existing file, which [`kind::RENAME`] does not.
pub const POSIX_RENAME: &str = "posix-rename@openssh.com";

/// Open for writing, create the file if it is missing, and truncate it.
const WRITE_CREATE_TRUNCATE: u32 = 0x02 | 0x08 | 0x10;
/// The largest piece of a file that is sent at once; every server accepts it.
const PIECE_BYTES: usize = 32 * 1024;
/// The largest answer that is accepted.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// Why a file was not written.
enum SftpError {
    /// The guest refused.
    Refused { code: u32, text: String },
    /// The server violates the protocol, or there is none.
    Protocol(&'static str),
    /// The connection failed.
    Connection(ExecError),
}

const NO_SFTP: &str =
    "the guest's SSH server has no SFTP: enable `Subsystem sftp` in the guest's sshd_config";
const PROTOCOL_VIOLATED: &str = "the guest's SFTP server violated the protocol";

fn lost() -> SftpError {
    SftpError::Connection(ExecError::Lost { partial: Box::default() })
}

/// Appends a string in the protocol's format: length, then bytes.
pub fn put_text(to: &mut BytesMut, text: &[u8]) {
    to.put_u32(u32::try_from(text.len()).unwrap_or(u32::MAX));
    to.put_slice(text);
}

/// Takes a string off the beginning; none when it is incomplete.
pub fn take_text(from: &mut Bytes) -> Option<Bytes> {
    let length = usize::try_from(from.try_get_u32().ok()?).ok()?;
    (length <= from.len()).then(|| from.split_to(length))
}

/// Builds a packet.
pub fn packet(kind: u8, content: &[u8]) -> Bytes {
    let mut packet = BytesMut::with_capacity(content.len() + 5);
    packet.put_u32(u32::try_from(content.len() + 1).unwrap_or(u32::MAX));
    packet.put_u8(kind);
    packet.put_slice(content);
    packet.freeze()
}

/// Takes a complete packet off the beginning: its type and its content.
pub fn take_packet(from: &mut BytesMut) -> Option<(u8, Bytes)> {
    let length = usize::try_from(u32::from_be_bytes(*from.first_chunk()?)).ok()?;
    if length == 0 || from.len() < length + 4 {
        return None;
    }
    from.advance(4);
    let mut whole = from.split_to(length).freeze();
    let kind = whole.try_get_u8().ok()?;
    Some((kind, whole))
}

/// A connection to a guest's SFTP server.
struct SftpClient {
    read: ChannelReadHalf,
    write: ChannelWriteHalf<Msg>,
    received: BytesMut,
    id: u32,
}

impl SftpClient {
    async fn start(channel: Channel<Msg>) -> Result<Self, SftpError> {
        let (read, write) = channel.split();
        let mut client = Self { read, write, received: BytesMut::new(), id: 0 };
        client.send(packet(kind::INIT, &VERSION.to_be_bytes())).await?;
        match client.receive().await? {
            (kind::VERSION, _) => Ok(client),
            _ => Err(SftpError::Protocol(PROTOCOL_VIOLATED)),
        }
    }

    async fn send(&self, packet: Bytes) -> Result<(), SftpError> {
        self.write.data_bytes(packet).await.map_err(|_| lost())
    }

    async fn receive(&mut self) -> Result<(u8, Bytes), SftpError> {
        loop {
            if let Some(packet) = take_packet(&mut self.received) {
                return Ok(packet);
            }
            if self.received.len() > ANSWER_BYTES_MAX {
                return Err(SftpError::Protocol(PROTOCOL_VIOLATED));
            }
            match self.read.wait().await {
                Some(ChannelMsg::Data { data }) => self.received.extend_from_slice(&data),
                Some(ChannelMsg::Failure) => return Err(SftpError::Protocol(NO_SFTP)),
                None | Some(ChannelMsg::Eof | ChannelMsg::Close) => return Err(lost()),
                Some(_) => {}
            }
        }
    }

    /// Sends a request and returns the answer.
    async fn request(&mut self, kind: u8, content: &[u8]) -> Result<(u8, Bytes), SftpError> {
        self.id = self.id.wrapping_add(1);
        let content = [&self.id.to_be_bytes()[..], content].concat();
        self.send(packet(kind, &content)).await?;
        let (kind, mut answer) = self.receive().await?;
        if answer.try_get_u32().ok() == Some(self.id) {
            Ok((kind, answer))
        } else {
            Err(SftpError::Protocol(PROTOCOL_VIOLATED))
        }
    }

    /// Sends a request that is answered with a status.
    async fn request_status(&mut self, kind: u8, content: &[u8]) -> Result<(), SftpError> {
        match self.request(kind, content).await? {
            (kind::STATUS, answer) => status(answer),
            _ => Err(SftpError::Protocol(PROTOCOL_VIOLATED)),
        }
    }

    async fn write(&mut self, path: &str, content: &[u8]) -> Result<(), SftpError> {
        let mut open = BytesMut::new();
        put_text(&mut open, path.as_bytes());
        open.put_u32(WRITE_CREATE_TRUNCATE);
        open.put_u32(0);
        let handle = match self.request(kind::OPEN, &open).await? {
            (kind::HANDLE, mut answer) => {
                take_text(&mut answer).ok_or(SftpError::Protocol(PROTOCOL_VIOLATED))?
            }
            (kind::STATUS, answer) => {
                return status(answer).and(Err(SftpError::Protocol(PROTOCOL_VIOLATED)));
            }
            _ => return Err(SftpError::Protocol(PROTOCOL_VIOLATED)),
        };
        let mut offset = 0_u64;
        for piece in content.chunks(PIECE_BYTES) {
            let mut write = BytesMut::with_capacity(piece.len() + 64);
            put_text(&mut write, &handle);
            write.put_u64(offset);
            put_text(&mut write, piece);
            self.request_status(kind::WRITE, &write).await?;
            offset += piece.len() as u64;
        }
        let mut close = BytesMut::new();
        put_text(&mut close, &handle);
        self.request_status(kind::CLOSE, &close).await
    }

    async fn replace(&mut self, from: &str, to: &str) -> Result<(), SftpError> {
        let mut names = BytesMut::new();
        put_text(&mut names, from.as_bytes());
        put_text(&mut names, to.as_bytes());
        let mut replace = BytesMut::new();
        put_text(&mut replace, POSIX_RENAME.as_bytes());
        replace.put_slice(&names);
        match self.request_status(kind::EXTENDED, &replace).await {
            Err(SftpError::Refused { code: code::UNSUPPORTED, .. }) => {
                self.remove(to).await;
                self.request_status(kind::RENAME, &names).await
            }
            done => done,
        }
    }

    /// Removes a file, if it exists.
    async fn remove(&mut self, path: &str) {
        let mut name = BytesMut::new();
        put_text(&mut name, path.as_bytes());
        let _gone = self.request_status(kind::REMOVE, &name).await;
    }
}

/// Turns a status answer into a result.
fn status(mut answer: Bytes) -> Result<(), SftpError> {
    let Ok(code) = answer.try_get_u32() else { return Err(SftpError::Protocol(PROTOCOL_VIOLATED)) };
    if code == code::OK {
        return Ok(());
    }
    let said = take_text(&mut answer).unwrap_or_default();
    let said: String =
        String::from_utf8_lossy(&said).chars().filter(|c| !c.is_control()).take(200).collect();
    let text = match (code, said.is_empty()) {
        (_, false) => said,
        (code::NO_SUCH_FILE, true) => "No such file".to_owned(),
        (code::DENIED, true) => "Permission denied".to_owned(),
        (_, true) => format!("SFTP status {code}"),
    };
    Err(SftpError::Refused { code, text })
}

impl Session {
    /// Writes a file to `path` by SFTP (relative paths start at the user's home) and replaces an
    /// existing file in one step.
    ///
    /// # Errors
    /// See [`UploadError`]; an existing file then stays as it was.
    pub async fn send(
        &self,
        path: &str,
        content: Bytes,
        time: Duration,
    ) -> Result<(), UploadError> {
        let failed = |reason: String| UploadError::Failed { path: path.to_owned(), reason };
        let stopped = |source| UploadError::Exec { path: path.to_owned(), source };
        let put = tokio::time::timeout(time, self.put_file(path, &content)).await;
        match put {
            Ok(Ok(())) => Ok(()),
            Ok(Err(SftpError::Refused { text, .. })) => Err(failed(text)),
            Ok(Err(SftpError::Protocol(why))) => Err(failed(why.to_owned())),
            Ok(Err(SftpError::Connection(source))) => Err(stopped(source)),
            Err(_) => Err(stopped(ExecError::TimedOut { after: time, partial: Box::default() })),
        }
    }

    async fn put_file(&self, path: &str, content: &[u8]) -> Result<(), SftpError> {
        let not_started = |source| SftpError::Connection(ExecError::NotStarted { source });
        let mut client =
            SftpClient::start(self.subsystem(SUBSYSTEM).await.map_err(not_started)?).await?;
        let beside = format!("{path}.drover-part");
        let put = match client.write(&beside, content).await {
            Ok(()) => client.replace(&beside, path).await,
            failed => failed,
        };
        if let Err(SftpError::Refused { .. }) = put {
            client.remove(&beside).await;
        }
        // The other end may be gone already.
        let _closed = client.write.close().await;
        put
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Invariant: packets are read as they were written, complete or not at all.

    #[test]
    fn a_packet_that_came_in_part_waits_for_its_rest() {
        let whole = packet(kind::STATUS, &[0, 0, 0, 7, 0, 0, 0, 0]);
        assert_eq!(&whole[..], [0, 0, 0, 9, 101, 0, 0, 0, 7, 0, 0, 0, 0]);
        let mut received = BytesMut::from(&whole[..6]);
        assert_eq!(take_packet(&mut received), None);
        received.extend_from_slice(&whole[6..]);
        received.extend_from_slice(&whole);
        let content = Bytes::from_static(&[0, 0, 0, 7, 0, 0, 0, 0]);
        assert_eq!(take_packet(&mut received), Some((kind::STATUS, content)));
        assert_eq!(received.len(), whole.len());
    }

    #[test]
    fn a_string_that_is_longer_than_its_packet_is_none() {
        let mut text = BytesMut::new();
        put_text(&mut text, b"C:/ci");
        let mut whole = text.clone().freeze();
        assert_eq!(take_text(&mut whole).as_deref(), Some(&b"C:/ci"[..]));
        let mut cut = text.freeze().slice(..7);
        assert_eq!(take_text(&mut cut), None);
    }

    // Invariant: a refusal is reported in the guest's own words, bounded, or in drover's.

    #[test]
    fn a_status_says_what_is_in_the_way() {
        let said = |code: u32, text: &str| {
            let mut answer = BytesMut::new();
            answer.put_u32(code);
            put_text(&mut answer, text.as_bytes());
            match status(answer.freeze()) {
                Ok(()) => String::new(),
                Err(SftpError::Refused { text, .. }) => text,
                Err(SftpError::Protocol(why)) => why.to_owned(),
                Err(SftpError::Connection(_)) => "the connection".to_owned(),
            }
        };
        assert_eq!(said(code::OK, "Success"), "");
        assert_eq!(said(code::DENIED, ""), "Permission denied");
        assert_eq!(said(4, "The disk\n is full"), "The disk is full");
        assert_eq!(said(4, &"x".repeat(900)).len(), 200);
    }
}
