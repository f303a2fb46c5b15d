//! SFTP, as much of it as puts one file into a guest: version 3 (draft-ietf-secsh-filexfer-02), which every
//! OpenSSH speaks.
//!
//! For guests without a POSIX shell: a login shell there may read the input of what it starts.

use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use russh::client::Msg;
use russh::{Channel, ChannelMsg, ChannelReadHalf, ChannelWriteHalf};

use super::session::{ExecError, Session};
use super::upload::UploadError;

/// Kinds of packets.
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

/// Codes of a status.
pub mod code {
    pub const OK: u32 = 0;
    pub const NO_SUCH_FILE: u32 = 2;
    pub const DENIED: u32 = 3;
    pub const UNSUPPORTED: u32 = 8;
}

/// The subsystem, and the version that is spoken.
pub const NAME: &str = "sftp";
pub const VERSION: u32 = 3;
/// A rename that replaces what stands there, which [`kind::RENAME`] does not.
pub const REPLACE: &str = "posix-rename@openssh.com";

/// For writing, made where it is not there, emptied where it is.
const FRESH: u32 = 0x02 | 0x08 | 0x10;
/// The longest piece of a file sent at once, which every server takes.
const PIECE_BYTES: usize = 32 * 1024;
/// No answer here is longer.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// Why a file was not put.
enum Trouble {
    /// The guest says so.
    Refused { code: u32, text: String },
    /// It does not speak SFTP as it should, or not at all.
    Mute(&'static str),
    /// The way there.
    Way(ExecError),
}

const NO_SFTP: &str = "its SSH server has no SFTP: switch on `Subsystem sftp` in its sshd_config";
const BROKEN: &str = "its SFTP server broke the protocol";

fn lost() -> Trouble {
    Trouble::Way(ExecError::Lost { partial: Box::default() })
}

/// Adds a string as the protocol has it.
pub fn put_text(to: &mut BytesMut, text: &[u8]) {
    to.put_u32(u32::try_from(text.len()).unwrap_or(u32::MAX));
    to.put_slice(text);
}

/// Takes a string off the beginning.
pub fn take_text(from: &mut Bytes) -> Option<Bytes> {
    let length = usize::try_from(from.try_get_u32().ok()?).ok()?;
    (length <= from.len()).then(|| from.split_to(length))
}

/// A packet of this kind with this content.
pub fn packet(kind: u8, content: &[u8]) -> Bytes {
    let mut packet = BytesMut::with_capacity(content.len() + 5);
    packet.put_u32(u32::try_from(content.len() + 1).unwrap_or(u32::MAX));
    packet.put_u8(kind);
    packet.put_slice(content);
    packet.freeze()
}

/// Takes a whole packet off the beginning: its kind and its content.
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

/// A conversation with a guest's SFTP server.
struct Talk {
    read: ChannelReadHalf,
    write: ChannelWriteHalf<Msg>,
    heard: BytesMut,
    id: u32,
}

impl Talk {
    async fn begin(channel: Channel<Msg>) -> Result<Self, Trouble> {
        let (read, write) = channel.split();
        let mut talk = Self { read, write, heard: BytesMut::new(), id: 0 };
        talk.say(packet(kind::INIT, &VERSION.to_be_bytes())).await?;
        match talk.hear().await? {
            (kind::VERSION, _) => Ok(talk),
            _ => Err(Trouble::Mute(BROKEN)),
        }
    }

    async fn say(&self, packet: Bytes) -> Result<(), Trouble> {
        self.write.data_bytes(packet).await.map_err(|_| lost())
    }

    async fn hear(&mut self) -> Result<(u8, Bytes), Trouble> {
        loop {
            if let Some(packet) = take_packet(&mut self.heard) {
                return Ok(packet);
            }
            if self.heard.len() > ANSWER_BYTES_MAX {
                return Err(Trouble::Mute(BROKEN));
            }
            match self.read.wait().await {
                Some(ChannelMsg::Data { data }) => self.heard.extend_from_slice(&data),
                Some(ChannelMsg::Failure) => return Err(Trouble::Mute(NO_SFTP)),
                None | Some(ChannelMsg::Eof | ChannelMsg::Close) => return Err(lost()),
                Some(_) => {}
            }
        }
    }

    /// Asks, and gives the answer.
    async fn ask(&mut self, kind: u8, content: &[u8]) -> Result<(u8, Bytes), Trouble> {
        self.id = self.id.wrapping_add(1);
        let content = [&self.id.to_be_bytes()[..], content].concat();
        self.say(packet(kind, &content)).await?;
        let (kind, mut answer) = self.hear().await?;
        if answer.try_get_u32().ok() == Some(self.id) {
            Ok((kind, answer))
        } else {
            Err(Trouble::Mute(BROKEN))
        }
    }

    /// Asks for something that a status answers.
    async fn order(&mut self, kind: u8, content: &[u8]) -> Result<(), Trouble> {
        match self.ask(kind, content).await? {
            (kind::STATUS, answer) => status(answer),
            _ => Err(Trouble::Mute(BROKEN)),
        }
    }

    async fn write(&mut self, path: &str, content: &[u8]) -> Result<(), Trouble> {
        let mut open = BytesMut::new();
        put_text(&mut open, path.as_bytes());
        open.put_u32(FRESH);
        open.put_u32(0);
        let handle = match self.ask(kind::OPEN, &open).await? {
            (kind::HANDLE, mut answer) => take_text(&mut answer).ok_or(Trouble::Mute(BROKEN))?,
            (kind::STATUS, answer) => return status(answer).and(Err(Trouble::Mute(BROKEN))),
            _ => return Err(Trouble::Mute(BROKEN)),
        };
        let mut offset = 0_u64;
        for piece in content.chunks(PIECE_BYTES) {
            let mut write = BytesMut::with_capacity(piece.len() + 64);
            put_text(&mut write, &handle);
            write.put_u64(offset);
            put_text(&mut write, piece);
            self.order(kind::WRITE, &write).await?;
            offset += piece.len() as u64;
        }
        let mut close = BytesMut::new();
        put_text(&mut close, &handle);
        self.order(kind::CLOSE, &close).await
    }

    async fn replace(&mut self, from: &str, to: &str) -> Result<(), Trouble> {
        let mut names = BytesMut::new();
        put_text(&mut names, from.as_bytes());
        put_text(&mut names, to.as_bytes());
        let mut replace = BytesMut::new();
        put_text(&mut replace, REPLACE.as_bytes());
        replace.put_slice(&names);
        match self.order(kind::EXTENDED, &replace).await {
            Err(Trouble::Refused { code: code::UNSUPPORTED, .. }) => {
                self.remove(to).await;
                self.order(kind::RENAME, &names).await
            }
            done => done,
        }
    }

    /// Removes a file that may not be there.
    async fn remove(&mut self, path: &str) {
        let mut name = BytesMut::new();
        put_text(&mut name, path.as_bytes());
        let _gone = self.order(kind::REMOVE, &name).await;
    }
}

/// What a status says.
fn status(mut answer: Bytes) -> Result<(), Trouble> {
    let Ok(code) = answer.try_get_u32() else { return Err(Trouble::Mute(BROKEN)) };
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
    Err(Trouble::Refused { code, text })
}

impl Session {
    /// Puts a file at `path` by SFTP (relative: in the user's home), replacing what stood there at once.
    ///
    /// # Errors
    /// See [`UploadError`]; the old file then stands as before.
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
            Ok(Err(Trouble::Refused { text, .. })) => Err(failed(text)),
            Ok(Err(Trouble::Mute(why))) => Err(failed(why.to_owned())),
            Ok(Err(Trouble::Way(source))) => Err(stopped(source)),
            Err(_) => Err(stopped(ExecError::TimedOut { after: time, partial: Box::default() })),
        }
    }

    async fn put_file(&self, path: &str, content: &[u8]) -> Result<(), Trouble> {
        let not_started = |source| Trouble::Way(ExecError::NotStarted { source });
        let mut talk = Talk::begin(self.subsystem(NAME).await.map_err(not_started)?).await?;
        let beside = format!("{path}.drover-part");
        let put = match talk.write(&beside, content).await {
            Ok(()) => talk.replace(&beside, path).await,
            failed => failed,
        };
        if let Err(Trouble::Refused { .. }) = put {
            talk.remove(&beside).await;
        }
        // The other end may be gone already.
        let _closed = talk.write.close().await;
        put
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Invariant: packets are read as they were made, whole or not at all.

    #[test]
    fn a_packet_that_came_in_part_waits_for_its_rest() {
        let whole = packet(kind::STATUS, &[0, 0, 0, 7, 0, 0, 0, 0]);
        assert_eq!(&whole[..], [0, 0, 0, 9, 101, 0, 0, 0, 7, 0, 0, 0, 0]);
        let mut heard = BytesMut::from(&whole[..6]);
        assert_eq!(take_packet(&mut heard), None);
        heard.extend_from_slice(&whole[6..]);
        heard.extend_from_slice(&whole);
        let content = Bytes::from_static(&[0, 0, 0, 7, 0, 0, 0, 0]);
        assert_eq!(take_packet(&mut heard), Some((kind::STATUS, content)));
        assert_eq!(heard.len(), whole.len());
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

    // Invariant: why a guest does not take a file is told in its words, bounded, or in drover's.

    #[test]
    fn a_status_says_what_is_in_the_way() {
        let said = |code: u32, text: &str| {
            let mut answer = BytesMut::new();
            answer.put_u32(code);
            put_text(&mut answer, text.as_bytes());
            match status(answer.freeze()) {
                Ok(()) => String::new(),
                Err(Trouble::Refused { text, .. }) => text,
                Err(Trouble::Mute(why)) => why.to_owned(),
                Err(Trouble::Way(_)) => "the way".to_owned(),
            }
        };
        assert_eq!(said(code::OK, "Success"), "");
        assert_eq!(said(code::DENIED, ""), "Permission denied");
        assert_eq!(said(4, "The disk\n is full"), "The disk is full");
        assert_eq!(said(4, &"x".repeat(900)).len(), 200);
    }
}
