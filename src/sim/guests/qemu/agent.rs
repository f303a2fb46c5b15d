//! The guest agent of a QEMU guest, over the socket of its serial port.
//!
//! Each call first synchronises: an answer to an earlier call, which nobody waited for, can still
//! be in the port (QEMU, qga/qapi-schema.json, guest-sync-delimited).

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::qmp::{line_of_json, read_line};
use crate::guest::{AgentCall, AgentError};
use crate::guests::answers::{self, OUTPUT_BYTES_MAX};

/// Proxmox's own limits (book: proxmox, section 17).
const PING_TIMEOUT: Duration = Duration::from_secs(3);
const COMMAND_TIMEOUT: Duration = Duration::from_secs(5);
/// Freezing writes everything to the disk first.
const FREEZE_TIMEOUT: Duration = Duration::from_secs(60);
/// The output of a program, twice, in base64.
const LINE_BYTES_MAX: u64 = 64 << 20;
/// What one `guest-file-read` asks for.
const READ_BYTES: usize = 1 << 20;
/// Ends the answer before `guest-sync-delimited`, and begins its own.
const DELIMITER: u8 = 0xff;

/// The agent's serial port. It serves one call at a time.
pub(super) struct Agent {
    socket: PathBuf,
    turn: Mutex<()>,
    last_sync: AtomicU32,
}

struct Connection {
    reader: BufReader<OwnedReadHalf>,
    writer: OwnedWriteHalf,
}

impl Agent {
    pub(super) fn new(socket: &Path) -> Self {
        Self { socket: socket.to_owned(), turn: Mutex::new(()), last_sync: AtomicU32::new(0) }
    }

    /// Makes a call and gives its result in the form of `qemu-ga`.
    ///
    /// # Errors
    /// See [`AgentError`].
    pub(super) async fn call(&self, call: AgentCall) -> Result<Value, AgentError> {
        let limit = if call == AgentCall::Ping { PING_TIMEOUT } else { COMMAND_TIMEOUT };
        self.converse(limit, async |mut connection| match call {
            AgentCall::Ping => connection.execute("guest-ping", json!({})).await,
            AgentCall::Info => connection.execute("guest-info", json!({})).await,
            AgentCall::NetworkInterfaces => {
                connection.execute("guest-network-get-interfaces", json!({})).await
            }
            AgentCall::Get(name) => connection.execute(&format!("guest-{name}"), json!({})).await,
            AgentCall::Exec { command, input } => connection.exec(&command, input).await,
            AgentCall::ExecStatus { pid } => {
                connection.execute("guest-exec-status", json!({ "pid": pid })).await
            }
            AgentCall::FileRead { path } => connection.file_read(&path).await,
            AgentCall::FileWrite { path, content } => connection.file_write(&path, &content).await,
        })
        .await
    }

    /// Asks the guest to power off; it answers nothing then.
    ///
    /// # Errors
    /// See [`AgentError`].
    pub(super) async fn shut_down(&self) -> Result<(), AgentError> {
        self.converse(PING_TIMEOUT, async |mut connection| {
            connection.send(&json!({ "execute": "guest-shutdown" })).await
        })
        .await
    }

    /// Freezes the file systems of the guest, or thaws them.
    ///
    /// # Errors
    /// See [`AgentError`].
    pub(super) async fn freeze(&self, frozen: bool) -> Result<(), AgentError> {
        let command = if frozen { "guest-fsfreeze-freeze" } else { "guest-fsfreeze-thaw" };
        self.converse(FREEZE_TIMEOUT, async |mut connection| {
            connection.execute(command, json!({})).await.map(|_| ())
        })
        .await
    }

    async fn converse<T>(
        &self,
        limit: Duration,
        talk: impl AsyncFnOnce(Connection) -> Result<T, AgentError>,
    ) -> Result<T, AgentError> {
        let work = async {
            let _turn = self.turn.lock().await;
            let stream = UnixStream::connect(&self.socket).await;
            let stream = stream.map_err(|_| AgentError::NotRunning)?;
            let (reader, writer) = stream.into_split();
            let mut connection = Connection { reader: BufReader::new(reader), writer };
            connection.synchronise(self.last_sync.fetch_add(1, Ordering::Relaxed)).await?;
            talk(connection).await
        };
        timeout(limit, work).await.unwrap_or(Err(AgentError::Timeout))
    }
}

/// QEMU has ended, or somebody in the guest has closed the port.
fn closed(_: std::io::Error) -> AgentError {
    AgentError::NotRunning
}

impl Connection {
    async fn synchronise(&mut self, id: u32) -> Result<(), AgentError> {
        self.writer.write_all(&[DELIMITER]).await.map_err(closed)?;
        let sync = json!({ "execute": "guest-sync-delimited", "arguments": { "id": id } });
        self.send(&sync).await?;
        loop {
            let mut before = Vec::new();
            let mut stale = (&mut self.reader).take(LINE_BYTES_MAX);
            stale.read_until(DELIMITER, &mut before).await.map_err(closed)?;
            if before.is_empty() {
                return Err(AgentError::NotRunning);
            }
            if self.read().await?["return"] == id {
                return Ok(());
            }
        }
    }

    async fn send(&mut self, command: &Value) -> Result<(), AgentError> {
        self.writer.write_all(format!("{command}\n").as_bytes()).await.map_err(closed)
    }

    async fn read(&mut self) -> Result<Value, AgentError> {
        let line = read_line(&mut self.reader, LINE_BYTES_MAX).await.map_err(closed)?;
        Ok(line_of_json(&line))
    }

    async fn execute(&mut self, command: &str, arguments: Value) -> Result<Value, AgentError> {
        self.send(&json!({ "execute": command, "arguments": arguments })).await?;
        let mut answer = self.read().await?;
        match answer.get("error") {
            Some(error) => {
                let text = |key: &str| error[key].as_str().unwrap_or_default().to_owned();
                Err(AgentError::Refused { class: text("class"), desc: text("desc") })
            }
            None => Ok(answer["return"].take()),
        }
    }

    async fn exec(
        &mut self,
        command: &[String],
        input: Option<Vec<u8>>,
    ) -> Result<Value, AgentError> {
        let (program, arguments) =
            command.split_first().ok_or_else(|| answers::no_such_program(""))?;
        let mut sent = json!({ "path": program, "arg": arguments, "capture-output": true });
        if let Some(input) = input {
            sent["input-data"] = STANDARD.encode(input).into();
        }
        self.execute("guest-exec", sent).await
    }

    async fn file_read(&mut self, path: &str) -> Result<Value, AgentError> {
        let handle = self.execute("guest-file-open", json!({ "path": path })).await?;
        let mut content = Vec::new();
        let mut is_whole = false;
        while !is_whole && content.len() < OUTPUT_BYTES_MAX {
            let count = READ_BYTES.min(OUTPUT_BYTES_MAX - content.len());
            let wanted = json!({ "handle": handle, "count": count });
            let read = self.execute("guest-file-read", wanted).await?;
            let text = read["buf-b64"].as_str().unwrap_or_default();
            content.extend(STANDARD.decode(text).unwrap_or_default());
            is_whole = read["eof"] == true || read["count"] == 0;
        }
        self.execute("guest-file-close", json!({ "handle": handle })).await?;
        Ok(answers::file(&content, !is_whole))
    }

    async fn file_write(&mut self, path: &str, content: &[u8]) -> Result<Value, AgentError> {
        let opened = json!({ "path": path, "mode": "wb" });
        let handle = self.execute("guest-file-open", opened).await?;
        let written = json!({ "handle": handle, "buf-b64": STANDARD.encode(content) });
        let outcome = self.execute("guest-file-write", written).await;
        self.execute("guest-file-close", json!({ "handle": handle })).await?;
        outcome.map(|_| Value::Null)
    }
}

/// Replaces the IPv4 address of the interface with this MAC address by the one under which this
/// computer reaches the guest.
pub(super) fn show_reachable_address(interfaces: &mut Value, mac: &str, reachable: Ipv4Addr) {
    let all = interfaces.as_array_mut().into_iter().flatten();
    let own = |interface: &&mut Value| {
        interface["hardware-address"].as_str().is_some_and(|own| own.eq_ignore_ascii_case(mac))
    };
    let addresses = all
        .filter(own)
        .filter_map(|interface| interface.get_mut("ip-addresses")?.as_array_mut())
        .flatten();
    for address in addresses.filter(|address| address["ip-address-type"] == "ipv4") {
        address["ip-address"] = reachable.to_string().into();
        address["prefix"] = 8.into();
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

    use tokio::net::UnixListener;

    use super::*;

    /// An agent whose port first gives what an earlier call left, then these answers.
    fn agent(folder: &Path, stale: &'static [u8], replies: &'static [&'static str]) -> Agent {
        let socket = folder.join("agent");
        let listener = UnixListener::bind(&socket).unwrap();
        tokio::spawn(async move {
            let (reader, mut writer) = listener.accept().await.unwrap().0.into_split();
            let mut lines = BufReader::new(reader).split(b'\n');
            let sync = lines.next_segment().await.unwrap().unwrap();
            let sync: Value = serde_json::from_slice(&sync[1..]).unwrap();
            let id = &sync["arguments"]["id"];
            writer.write_all(stale).await.unwrap();
            writer.write_all(format!("{{\"return\": {id}}}\n").as_bytes()).await.unwrap();
            for reply in replies {
                lines.next_segment().await.unwrap().unwrap();
                writer.write_all(reply.as_bytes()).await.unwrap();
            }
            std::future::pending::<()>().await;
        });
        Agent::new(&socket)
    }

    // Invariant: a call gets its own answer.

    #[tokio::test]
    async fn answers_to_earlier_calls_are_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        let stale = b"{\"return\": \"stale\"}\n\xff{\"return\": 77}\n\xff";
        let agent = agent(dir.path(), stale, &["{\"return\": {\"host-name\": \"own\"}}\n"]);
        let _ = agent.last_sync.fetch_add(5, Ordering::Relaxed);
        let said = agent.call(AgentCall::Get("get-host-name".into())).await;
        assert_eq!(said.unwrap(), json!({ "host-name": "own" }));
    }

    #[tokio::test(start_paused = true)]
    async fn a_guest_without_an_agent_is_not_waited_for_longer_than_proxmox_waits() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("agent");
        let _listener = UnixListener::bind(&socket).unwrap();
        let agent = Agent::new(&socket);
        assert_eq!(agent.call(AgentCall::Ping).await, Err(AgentError::Timeout));
        let missing = Agent::new(&dir.path().join("none"));
        assert_eq!(missing.call(AgentCall::Ping).await, Err(AgentError::NotRunning));
    }

    // Invariant: the agent shows the address under which the guest is reachable, and no other
    // interface is touched.

    #[test]
    fn only_the_interface_with_the_machines_mac_shows_the_reachable_address() {
        let of = |mac: &str, ip: &str| {
            json!({ "hardware-address": mac, "ip-addresses": [
                { "ip-address": ip, "ip-address-type": "ipv4", "prefix": 24 },
                { "ip-address": "fe80::1", "ip-address-type": "ipv6", "prefix": 64 },
            ] })
        };
        let mut said = json!([of("00:00:00:00:00:00", "127.0.0.1"), of("bc:24:11:aa:bb:cc", "10.0.2.15"),
            { "hardware-address": "bc:24:11:aa:bb:cc" }]);
        show_reachable_address(&mut said, "BC:24:11:AA:BB:CC", Ipv4Addr::new(127, 77, 0, 9));
        assert_eq!(said[0]["ip-addresses"][0]["ip-address"], "127.0.0.1");
        assert_eq!(said[1]["ip-addresses"][0]["ip-address"], "127.77.0.9");
        assert_eq!(said[1]["ip-addresses"][1]["ip-address"], "fe80::1");
    }
}
