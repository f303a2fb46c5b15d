//! Guests that are an address and nothing else, for whole herds in virtual time.
//!
//! Nothing runs here: every answer follows from the seed, the moment of the boot and the moment
//! of the question, so that a paused clock drives it and equal seeds behave alike.

mod exec;
#[cfg(test)]
mod tests;

use std::cell::OnceCell;
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr};
use std::ops::Range;
use std::time::Duration;

use drover_ssh::PrivateKey;
use futures_util::FutureExt;
use futures_util::future::{self, BoxFuture};
use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::address::{AddressBook, dice, within};
use super::answers::{self, Exited};
use crate::guest::{AgentCall, AgentError, GuestAddress, GuestBoot, GuestHost};

/// How guests behave; every duration is drawn from its range by the seed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoneOptions {
    /// The seed of all draws.
    pub seed: u64,
    /// From the start of QEMU to the first answer of the agent.
    pub boot: Range<Duration>,
    /// From there to the first address.
    pub addressless: Range<Duration>,
    /// From the wish to shut down to the end.
    pub shutdown: Range<Duration>,
    /// The first two bytes of all addresses.
    pub net: [u8; 2],
    /// The SSH port told in summaries; nobody listens there.
    pub ssh_port: u16,
}

impl Default for NoneOptions {
    fn default() -> Self {
        let secs = |from, to| Duration::from_secs(from)..Duration::from_secs(to);
        Self {
            seed: 0,
            boot: secs(8, 25),
            addressless: secs(1, 5),
            shutdown: secs(2, 8),
            net: [10, 77],
            ssh_port: 22,
        }
    }
}

/// A way a guest misbehaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quirk {
    /// Never boots: its agent is silent for ever, and it ignores the wish to shut down.
    NeverBoots,
    /// Boots and then hangs: agent calls time out, and it ignores the wish to shut down.
    Hangs,
    /// Works, but ignores the wish to shut down.
    IgnoresShutdown,
    /// Works, but has no guest agent.
    NoAgent,
    /// Never gets an address.
    NoAddress,
    /// Says that its network card has another MAC address.
    WrongMac,
    /// Says that it has this address.
    WrongAddress(IpAddr),
    /// Powers itself off this long after its start.
    PowersOff(Duration),
}

/// The host of guests that are an address only.
pub struct NoneGuests {
    options: NoneOptions,
    state: Mutex<State>,
}

struct State {
    addresses: AddressBook,
    running: BTreeMap<u32, Guest>,
    /// When guests that ran were stopped.
    stopped: BTreeMap<u32, Instant>,
    /// The host key each disk holds, as the turn it was drawn in.
    disks: BTreeMap<u32, u32>,
    snapshots: BTreeMap<(u32, String), Option<u32>>,
    /// How often each guest was put back to a snapshot.
    put_back: BTreeMap<u32, u32>,
    /// How many host keys each VMID has drawn: a reused VMID must not show an old key.
    turns: BTreeMap<u32, u32>,
    quirks: BTreeMap<u32, Quirk>,
    next_quirks: VecDeque<Quirk>,
}

struct Guest {
    hostname: String,
    mac: Option<String>,
    ip: IpAddr,
    host_key: u32,
    /// The line of the host key, made when somebody first reads it.
    host_key_line: OnceCell<String>,
    answers_from: Instant,
    addressed_from: Instant,
    /// When it ends by itself.
    ends: Option<Instant>,
    shutdown: Duration,
    processes: BTreeMap<i64, Exited>,
    next_pid: i64,
}

impl NoneGuests {
    /// A host without guests.
    #[must_use]
    pub fn new(options: NoneOptions) -> Self {
        let state = State {
            addresses: AddressBook::new(options.net),
            running: BTreeMap::new(),
            stopped: BTreeMap::new(),
            disks: BTreeMap::new(),
            snapshots: BTreeMap::new(),
            put_back: BTreeMap::new(),
            turns: BTreeMap::new(),
            quirks: BTreeMap::new(),
            next_quirks: VecDeque::new(),
        };
        Self { options, state: Mutex::new(state) }
    }

    /// How often guests of this id were put back to a snapshot.
    pub fn put_back(&self, vmid: u32) -> u32 {
        self.lock().put_back.get(&vmid).copied().unwrap_or(0)
    }

    /// Makes a guest misbehave, running or at its next boots; none makes it behave again.
    pub fn set_quirk(&self, vmid: u32, quirk: Option<Quirk>) {
        let mut state = self.lock();
        match quirk {
            Some(quirk) => {
                state.quirks.insert(vmid, quirk);
                if let (Quirk::PowersOff(after), Some(guest)) =
                    (quirk, state.running.get_mut(&vmid))
                {
                    guest.end_by(Instant::now() + after);
                }
            }
            None => {
                state.quirks.remove(&vmid);
            }
        }
    }

    /// Makes the next guest that boots misbehave; several wishes are served in order.
    pub fn quirk_next_boot(&self, quirk: Quirk) {
        self.lock().next_quirks.push_back(quirk);
    }

    /// Ends a guest from inside.
    pub fn power_off(&self, vmid: u32) {
        if let Some(guest) = self.lock().running.get_mut(&vmid) {
            guest.end_by(Instant::now());
        }
    }

    /// Since when a guest that ran does not.
    #[must_use]
    pub fn down_since(&self, vmid: u32) -> Option<Instant> {
        let (state, now) = (self.lock(), Instant::now());
        let ended = state.running.get(&vmid).map(|guest| guest.ends.filter(|end| *end <= now));
        ended.unwrap_or_else(|| state.stopped.get(&vmid).copied())
    }

    /// The VMIDs of the guests that run.
    #[must_use]
    pub fn running_vmids(&self) -> Vec<u32> {
        let now = Instant::now();
        let state = self.lock();
        state.running.iter().filter(|(_, guest)| guest.runs(now)).map(|(vmid, _)| *vmid).collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is plain data, whole between any two statements.
        self.state.lock()
    }

    /// The line of the host key that a guest's SSH server shows; none while none answers.
    #[must_use]
    pub fn ssh_host_key(&self, vmid: u32) -> Option<String> {
        let now = Instant::now();
        let state = self.lock();
        let dead = matches!(state.quirks.get(&vmid), Some(Quirk::NeverBoots | Quirk::Hangs));
        let guest = state.running.get(&vmid).filter(|guest| guest.runs(now) && !dead)?;
        (now >= guest.answers_from).then(|| guest.host_key_line(self.options.seed, vmid))
    }

    /// The MAC address of a guest that runs.
    #[must_use]
    pub fn mac(&self, vmid: u32) -> Option<String> {
        self.lock().running.get(&vmid)?.mac.clone()
    }

    /// The host key of a guest that runs.
    pub(super) fn host_key(&self, vmid: u32) -> Option<PrivateKey> {
        let turn = self.lock().running.get(&vmid)?.host_key;
        Some(host_key(self.options.seed, vmid, turn))
    }

    /// Gives a guest that runs another address, where its own is taken by somebody outside.
    pub(super) fn readdress(&self, vmid: u32) -> Option<Ipv4Addr> {
        let mut state = self.lock();
        let fresh = state.addresses.reassign(vmid)?;
        state.running.get_mut(&vmid)?.ip = fresh.into();
        Some(fresh)
    }

    /// Runs a command in a guest as far as it can: none when it does not run, or knows no such
    /// program.
    pub(super) fn run(&self, vmid: u32, command: &[String]) -> Option<Exited> {
        let state = self.lock();
        let guest = state.running.get(&vmid).filter(|guest| guest.runs(Instant::now()))?;
        let key = || guest.host_key_line(self.options.seed, vmid);
        exec::run(command, &key, &guest.hostname).ok()
    }

    fn start(&self, boot: GuestBoot) -> Result<(), String> {
        let mut state = self.lock();
        let now = Instant::now();
        let vmid = boot.vmid;
        if let Some(quirk) = state.next_quirks.pop_front() {
            state.quirks.insert(vmid, quirk);
        }
        // Where guests are on the loopback network nobody has another address.
        let on_loopback = self.options.net[0] == 127;
        let told = boot.static_address().filter(|ip| !on_loopback || ip.is_loopback());
        let ip = match told {
            Some(ip) => ip,
            None => {
                let own = state.addresses.assign(vmid);
                own.ok_or("no address is free for the guest")?.into()
            }
        };
        let host_key = match state.disks.get(&vmid) {
            Some(turn) if boot.boot > 1 || boot.resumed => *turn,
            _first_boot => {
                let turn = state.turns.entry(vmid).or_insert(0);
                *turn += 1;
                *turn
            }
        };
        state.disks.insert(vmid, host_key);
        let draw = |range, purpose| {
            let turn = host_key.wrapping_mul(1000).wrapping_add(boot.boot);
            within(range, &dice(self.options.seed, vmid, turn, purpose))
        };
        let boots = if boot.resumed { Duration::ZERO } else { draw(&self.options.boot, "boot") };
        let answers_from = now + boots;
        // Nobody is asked for an address that is there, or was there all the time.
        let addressless = match told {
            None if !boot.resumed => draw(&self.options.addressless, "address"),
            Some(_) | None => Duration::ZERO,
        };
        let ends = match state.quirks.get(&vmid) {
            Some(Quirk::PowersOff(after)) => Some(now + *after),
            _ => None,
        };
        let guest = Guest {
            hostname: boot.hostname,
            mac: boot.mac,
            ip,
            host_key,
            host_key_line: OnceCell::new(),
            answers_from,
            addressed_from: answers_from + addressless,
            ends,
            shutdown: draw(&self.options.shutdown, "shutdown"),
            processes: BTreeMap::new(),
            next_pid: 130,
        };
        state.stopped.remove(&vmid);
        state.running.insert(vmid, guest);
        Ok(())
    }

    fn answer(&self, vmid: u32, call: AgentCall) -> Result<Value, AgentError> {
        let now = Instant::now();
        let mut state = self.lock();
        let quirk = state.quirks.get(&vmid).copied();
        let guest = state.running.get_mut(&vmid).ok_or(AgentError::NotRunning)?;
        let mute = matches!(quirk, Some(Quirk::NeverBoots | Quirk::NoAgent));
        if !guest.runs(now) || now < guest.answers_from || mute {
            return Err(AgentError::NotRunning);
        }
        if quirk == Some(Quirk::Hangs) {
            return Err(AgentError::Timeout);
        }
        let key = || guest.host_key_line(self.options.seed, vmid);
        match call {
            AgentCall::Ping => Ok(json!({})),
            AgentCall::Info => Ok(answers::info()),
            AgentCall::NetworkInterfaces => Ok(guest.interfaces(now, quirk)),
            AgentCall::Get(name) => answers::get(&name, &guest.hostname, 0),
            AgentCall::Exec { command, input: _ } => {
                let exited = exec::run(&command, &key, &guest.hostname)?;
                let pid = guest.next_pid;
                guest.next_pid += 2;
                guest.processes.insert(pid, exited);
                Ok(json!({"pid": pid}))
            }
            AgentCall::ExecStatus { pid } => {
                let exited = guest.processes.remove(&pid).ok_or_else(answers::unknown_pid)?;
                Ok(answers::exec_status(Some(&exited)))
            }
            AgentCall::FileRead { path } if path == answers::HOST_KEY_FILE => {
                Ok(answers::file(format!("{}\n", key()).as_bytes(), false))
            }
            AgentCall::FileRead { path } if path == "/etc/hostname" => {
                Ok(answers::file(format!("{}\n", guest.hostname).as_bytes(), false))
            }
            AgentCall::FileRead { path } => {
                Err(answers::can_not_open(&path, "r", "No such file or directory"))
            }
            AgentCall::FileWrite { .. } => Ok(Value::Null),
        }
    }
}

/// The host key that a guest drew at this turn.
fn host_key(seed: u64, vmid: u32, turn: u32) -> PrivateKey {
    PrivateKey::from_seed(&dice(seed, vmid, turn, "host key"), "")
}

impl Guest {
    fn runs(&self, now: Instant) -> bool {
        self.ends.is_none_or(|end| now < end)
    }

    fn end_by(&mut self, when: Instant) {
        self.ends = Some(self.ends.map_or(when, |end| end.min(when)));
    }

    fn host_key_line(&self, seed: u64, vmid: u32) -> String {
        let made = self.host_key_line.get_or_init(|| {
            host_key(seed, vmid, self.host_key).public_line(&format!("root@{}", self.hostname))
        });
        made.clone()
    }

    fn interfaces(&self, now: Instant, quirk: Option<Quirk>) -> Value {
        let mac = match quirk {
            Some(Quirk::WrongMac) => Some("02:00:00:00:00:01"),
            _ => self.mac.as_deref(),
        };
        let ip = match quirk {
            Some(Quirk::WrongAddress(ip)) => Some(ip),
            Some(Quirk::NoAddress) => None,
            _ => Some(self.ip),
        };
        let prefix = |ip: IpAddr| if ip.is_ipv4() { 16 } else { 64 };
        let address = ip.filter(|_| now >= self.addressed_from).map(|ip| (ip, prefix(ip)));
        answers::interfaces(mac, address)
    }
}

impl GuestHost for NoneGuests {
    fn boot(&self, boot: GuestBoot) -> BoxFuture<'static, Result<(), String>> {
        future::ready(self.start(boot)).boxed()
    }

    fn stop(&self, vmid: u32) -> BoxFuture<'static, ()> {
        let (mut state, now) = (self.lock(), Instant::now());
        if let Some(guest) = state.running.remove(&vmid) {
            state.stopped.insert(vmid, guest.ends.map_or(now, |end| end.min(now)));
        }
        future::ready(()).boxed()
    }

    fn shutdown(&self, vmid: u32) -> BoxFuture<'static, ()> {
        let mut state = self.lock();
        let deaf = matches!(
            state.quirks.get(&vmid),
            Some(Quirk::NeverBoots | Quirk::Hangs | Quirk::IgnoresShutdown)
        );
        if let Some(guest) = state.running.get_mut(&vmid).filter(|_| !deaf) {
            // A guest that still boots hears of it once it is up.
            let heard = guest.answers_from.max(Instant::now());
            guest.end_by(heard + guest.shutdown);
        }
        future::ready(()).boxed()
    }

    fn running(&self, vmid: u32) -> bool {
        let now = Instant::now();
        self.lock().running.get(&vmid).is_some_and(|guest| guest.runs(now))
    }

    fn agent(&self, vmid: u32, call: AgentCall) -> BoxFuture<'static, Result<Value, AgentError>> {
        future::ready(self.answer(vmid, call)).boxed()
    }

    fn address(&self, vmid: u32) -> Option<GuestAddress> {
        let now = Instant::now();
        let state = self.lock();
        let guest = state.running.get(&vmid).filter(|guest| guest.runs(now))?;
        Some(GuestAddress { ip: guest.ip, port: self.options.ssh_port })
    }

    fn answers_in(&self, vmid: u32) -> Option<Duration> {
        let answers = self.lock().running.get(&vmid)?.answers_from;
        Some(answers.saturating_duration_since(Instant::now()))
    }

    fn reachable_in(&self, vmid: u32) -> Option<Duration> {
        let addressed = self.lock().running.get(&vmid)?.addressed_from;
        Some(addressed.saturating_duration_since(Instant::now()))
    }

    fn snapshot(&self, vmid: u32, name: &str) {
        let mut state = self.lock();
        let held = state.disks.get(&vmid).copied();
        state.snapshots.insert((vmid, name.to_owned()), held);
    }

    fn rollback(&self, vmid: u32, name: &str) {
        let mut state = self.lock();
        *state.put_back.entry(vmid).or_default() += 1;
        match state.snapshots.get(&(vmid, name.to_owned())).copied() {
            Some(Some(turn)) => {
                state.disks.insert(vmid, turn);
            }
            Some(None) => {
                state.disks.remove(&vmid);
            }
            None => {}
        }
    }

    fn clone_disk(&self, _from: u32, to: u32) {
        // cloud-init makes a new host key on a clone's first boot.
        self.lock().disks.remove(&to);
    }

    fn forget(&self, vmid: u32) {
        let mut state = self.lock();
        state.running.remove(&vmid);
        state.stopped.remove(&vmid);
        state.disks.remove(&vmid);
        state.quirks.remove(&vmid);
        state.addresses.release(vmid);
        state.snapshots.retain(|(owner, _), _| *owner != vmid);
    }
}
