//! The SFTP server of a Windows guest, as far as clients write files. Other guests run OpenSSH's
//! (`sftp`).

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use drover_ssh::sftp::{
    POSIX_RENAME, VERSION, code, kind, packet, put_text, take_packet, take_text,
};
use russh::server::Msg;
use russh::{Channel, ChannelMsg};

use super::machine::Machine;
use super::windows;

/// The longest packet, and the most data that is not on the disk yet.
const PACKET_BYTES_MAX: usize = 256 * 1024;
const FILES_BYTES_MAX: usize = 64 << 20;
/// SSH_FX_FAILURE: any error without a code of its own.
const FAILURE: u32 = 4;

pub(super) trait Store: Send + Sync {
    /// Whether the parent folder of a path exists.
    fn parent_exists(&self, path: &str) -> bool;
    /// Creates or replaces a file.
    fn put(&self, path: &str, content: &[u8]) -> std::io::Result<()>;
}

impl Store for Machine {
    fn parent_exists(&self, path: &str) -> bool {
        let place = windows::disk_path(path, &self.identity.home);
        place.is_some_and(|place| {
            self.disk.has_folder(place.rsplit_once('/').map_or("", |(folder, _)| folder))
        })
    }

    fn put(&self, path: &str, content: &[u8]) -> std::io::Result<()> {
        let elsewhere = || std::io::Error::other("it is not a Windows path");
        let place = windows::disk_path(path, &self.identity.home).ok_or_else(elsewhere)?;
        self.disk.receive(&place, content)
    }
}

pub(super) async fn serve(machine: Arc<Machine>, channel: Channel<Msg>) {
    let (mut read, write) = channel.split();
    let (mut received, mut session) = (BytesMut::new(), SftpSession::default());
    'session: while let Some(message) = read.wait().await {
        #[expect(clippy::wildcard_enum_match_arm, reason = "a client may send any message")]
        match message {
            ChannelMsg::Data { data } => received.extend_from_slice(&data),
            ChannelMsg::Eof | ChannelMsg::Close => break,
            _ => {}
        }
        while let Some((kind, content)) = take_packet(&mut received) {
            let answer = session.answer(kind, content, &*machine);
            if write.data_bytes(answer).await.is_err() {
                break 'session;
            }
        }
        if received.len() > PACKET_BYTES_MAX {
            break;
        }
    }
    let _gone = write.eof().await;
    let _gone = write.close().await;
}

/// The open and written files of a session.
#[derive(Default)]
struct SftpSession {
    next: u32,
    open: BTreeMap<u32, (String, Vec<u8>)>,
    /// Closed files; a rename writes them to the disk.
    closed: BTreeMap<String, Vec<u8>>,
}

impl SftpSession {
    fn answer(&mut self, of: u8, mut content: Bytes, store: &dyn Store) -> Bytes {
        if of == kind::INIT {
            return packet(kind::VERSION, &VERSION.to_be_bytes());
        }
        let Ok(id) = content.try_get_u32() else { return status(0, FAILURE, "no id") };
        match self.execute(of, content, store) {
            Ok(None) => status(id, code::OK, "Success"),
            Ok(Some(handle)) => {
                let mut answer = BytesMut::new();
                answer.put_u32(id);
                put_text(&mut answer, &handle.to_be_bytes());
                packet(kind::HANDLE, &answer)
            }
            Err((code, text)) => status(id, code, text),
        }
    }

    /// Executes one request; gives the handle of an opened file.
    fn execute(
        &mut self,
        of: u8,
        mut content: Bytes,
        store: &dyn Store,
    ) -> Result<Option<u32>, (u32, &'static str)> {
        const BROKEN: (u32, &str) = (FAILURE, "malformed request");
        let mut text = || take_text(&mut content).ok_or(BROKEN);
        let name = |text: Bytes| String::from_utf8(text.to_vec()).map_err(|_| BROKEN);
        let handle = |text: &Bytes| {
            <[u8; 4]>::try_from(&text[..]).map(u32::from_be_bytes).map_err(|_| BROKEN)
        };
        match of {
            kind::OPEN => {
                let path = name(text()?)?;
                if !store.parent_exists(&path) {
                    return Err((code::NO_SUCH_FILE, "No such file"));
                }
                self.next += 1;
                self.open.insert(self.next, (path, Vec::new()));
                Ok(Some(self.next))
            }
            kind::WRITE => {
                let (_, file) = self.open.get_mut(&handle(&text()?)?).ok_or(BROKEN)?;
                let offset = content.try_get_u64().map_err(|_| BROKEN)?;
                let data = take_text(&mut content).ok_or(BROKEN)?;
                if offset != file.len() as u64 || file.len() + data.len() > FILES_BYTES_MAX {
                    return Err((FAILURE, "a write must follow the one before it"));
                }
                file.extend_from_slice(&data);
                Ok(None)
            }
            kind::CLOSE => {
                let (path, file) = self.open.remove(&handle(&text()?)?).ok_or(BROKEN)?;
                self.closed.insert(path, file);
                Ok(None)
            }
            kind::EXTENDED => {
                if text()? != POSIX_RENAME.as_bytes() {
                    return Err((code::UNSUPPORTED, "Operation unsupported"));
                }
                let (from, to) = (name(text()?)?, name(text()?)?);
                let file = self.closed.remove(&from).ok_or((code::NO_SUCH_FILE, "No such file"))?;
                store.put(&to, &file).map_err(|_| (FAILURE, "Failure"))?;
                Ok(None)
            }
            kind::REMOVE => {
                let gone = self.closed.remove(&name(text()?)?);
                gone.map(|_| None).ok_or((code::NO_SUCH_FILE, "No such file"))
            }
            _ => Err((code::UNSUPPORTED, "Operation unsupported")),
        }
    }
}

fn status(id: u32, code: u32, text: &str) -> Bytes {
    let mut answer = BytesMut::new();
    answer.put_u32(id);
    answer.put_u32(code);
    put_text(&mut answer, text.as_bytes());
    put_text(&mut answer, b"");
    packet(kind::STATUS, &answer)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[derive(Default)]
    struct Folder(Mutex<Vec<(String, Vec<u8>)>>);

    impl Store for Folder {
        fn parent_exists(&self, path: &str) -> bool {
            path.starts_with("/C:/ci/")
        }

        fn put(&self, path: &str, content: &[u8]) -> std::io::Result<()> {
            let mut all = self.0.lock().map_err(|_| std::io::Error::other("poisoned"))?;
            all.push((path.to_owned(), content.to_vec()));
            Ok(())
        }
    }

    /// Sends a request; gives the type of the answer and the number after its id.
    fn ask(session: &mut SftpSession, folder: &Folder, of: u8, parts: &[&[u8]]) -> (u8, u32) {
        let mut content = BytesMut::new();
        content.put_u32(7);
        parts.iter().for_each(|part| content.put_slice(part));
        let answer = session.answer(of, content.freeze(), folder);
        let number = |at: usize| {
            let bytes: Option<&[u8; 4]> = answer.get(at..).and_then(|rest| rest.first_chunk());
            bytes.map_or(0, |bytes| u32::from_be_bytes(*bytes))
        };
        assert_eq!(number(5), 7, "the id of the question");
        (answer[4], number(9))
    }

    fn text(text: &str) -> Vec<u8> {
        let mut all = BytesMut::new();
        put_text(&mut all, text.as_bytes());
        all.to_vec()
    }

    // Invariant: a file appears when it is renamed to its place, and not before.

    #[test]
    fn a_file_is_opened_written_closed_and_renamed_to_its_place() {
        let (mut session, folder) = (SftpSession::default(), Folder::default());
        let hello = session.answer(kind::INIT, Bytes::from_static(&[0, 0, 0, 3]), &folder);
        assert_eq!(&hello[..], [0, 0, 0, 5, 2, 0, 0, 0, 3]);
        let elsewhere = ask(&mut session, &folder, kind::OPEN, &[&text("/etc/x"), &[0; 8]]);
        assert_eq!(elsewhere, (kind::STATUS, code::NO_SUCH_FILE));
        let opened = ask(&mut session, &folder, kind::OPEN, &[&text("/C:/ci/f.part"), &[0; 8]]);
        assert_eq!(opened, (kind::HANDLE, 4), "a handle of four bytes");
        let handle = [0, 0, 0, 4, 0, 0, 0, 1];
        for (offset, part) in [(0_u64, "ab"), (2, "c")] {
            let parts = [&handle[..], &offset.to_be_bytes(), &text(part)];
            assert_eq!(ask(&mut session, &folder, kind::WRITE, &parts), (kind::STATUS, code::OK));
        }
        assert_eq!(ask(&mut session, &folder, kind::CLOSE, &[&handle]).1, code::OK);
        assert!(folder.0.lock().is_ok_and(|all| all.is_empty()));
        let names = [text(POSIX_RENAME), text("/C:/ci/f.part"), text("/C:/ci/f")].concat();
        assert_eq!(ask(&mut session, &folder, kind::EXTENDED, &[&names]).1, code::OK);
        let put = folder.0.lock().map(|all| all.clone()).unwrap_or_default();
        assert_eq!(put, [("/C:/ci/f".to_owned(), b"abc".to_vec())]);
        assert_eq!(ask(&mut session, &folder, 99, &[]).1, code::UNSUPPORTED);
    }
}
