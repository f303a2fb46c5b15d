//! Guests that only have an address and a simulated guest agent, for thousands of machines in
//! virtual time.
//!
//! No process runs: each answer follows from the seed, the time of the boot and the time of the
//! question. A paused clock drives the guests, and equal seeds give equal behaviour.

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

use super::address::{AddressPool, draw_duration, seeded_bytes};
use super::answers::{self, ProcessExit};
use crate::guest::{AgentCall, AgentError, GuestAddress, GuestBoot, GuestHost, GuestWork};

/// How guests behave. The seed draws each duration from its range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StubOptions {
    pub seed: u64,
    /// From the start of QEMU until the agent answers.
    pub boot: Range<Duration>,
    /// From then until the guest has an address.
    pub address_delay: Range<Duration>,
    /// From the shutdown request until the guest ends.
    pub shutdown: Range<Duration>,
    /// The first two bytes of all addresses.
    pub net: [u8; 2],
    /// The SSH port that summaries show; nothing listens on it.
    pub ssh_port: u16,
}

impl Default for StubOptions {
    fn default() -> Self {
        let secs = |from, to| Duration::from_secs(from)..Duration::from_secs(to);
        Self {
            seed: 0,
            boot: secs(8, 25),
            address_delay: secs(1, 5),
            shutdown: secs(2, 8),
            net: [10, 77],
            ssh_port: 22,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quirk {
    /// The guest never boots: its agent does not answer, and it ignores shutdown requests.
    NeverBoots,
    /// The guest boots and then hangs: agent calls time out, and it ignores shutdown requests.
    Hangs,
    /// The guest ignores shutdown requests.
    IgnoresShutdown,
    /// The guest has no guest agent.
    NoAgent,
    /// The guest never gets an address.
    NoAddress,
    /// The agent reports another MAC address.
    WrongMac,
    /// The agent reports this address.
    WrongAddress(IpAddr),
    /// The guest powers itself off this long after its start.
    PowersOff(Duration),
}

/// A host of stub guests.
pub struct StubGuests {
    options: StubOptions,
    state: Mutex<State>,
}

struct State {
    addresses: AddressPool,
    running: BTreeMap<u32, Guest>,
    /// When guests ended that are not in `running` any more.
    stopped: BTreeMap<u32, Instant>,
    /// The number of the host key on each disk, in the order of `host_key_counts`.
    disks: BTreeMap<u32, u32>,
    snapshots: BTreeMap<(u32, String), Option<u32>>,
    /// How often each guest was rolled back.
    rollbacks: BTreeMap<u32, u32>,
    /// How many host keys each VMID has had: a reused VMID must not show an old key.
    host_key_counts: BTreeMap<u32, u32>,
    quirks: BTreeMap<u32, Quirk>,
    next_quirks: VecDeque<Quirk>,
}

struct Guest {
    hostname: String,
    mac: Option<String>,
    ip: IpAddr,
    host_key: u32,
    /// The public line of the host key, made at the first read.
    host_key_line: OnceCell<String>,
    answers_from: Instant,
    addressed_from: Instant,
    /// When the guest ends by itself.
    ends: Option<Instant>,
    shutdown: Duration,
    processes: BTreeMap<i64, ProcessExit>,
    next_pid: i64,
}

impl StubGuests {
    #[must_use]
    pub fn new(options: StubOptions) -> Self {
        let state = State {
            addresses: AddressPool::new(options.net),
            running: BTreeMap::new(),
            stopped: BTreeMap::new(),
            disks: BTreeMap::new(),
            snapshots: BTreeMap::new(),
            rollbacks: BTreeMap::new(),
            host_key_counts: BTreeMap::new(),
            quirks: BTreeMap::new(),
            next_quirks: VecDeque::new(),
        };
        Self { options, state: Mutex::new(state) }
    }

    /// How often guests with this VMID were rolled back to a snapshot.
    pub fn rollback_count(&self, vmid: u32) -> u32 {
        self.lock().rollbacks.get(&vmid).copied().unwrap_or(0)
    }

    /// Makes a guest misbehave from now on; none makes it behave again.
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

    /// Makes the next guest that boots misbehave. Several quirks go to the next guests in order.
    pub fn quirk_next_boot(&self, quirk: Quirk) {
        self.lock().next_quirks.push_back(quirk);
    }

    /// Ends a guest as its own `poweroff` would.
    pub fn power_off(&self, vmid: u32) {
        if let Some(guest) = self.lock().running.get_mut(&vmid) {
            guest.end_by(Instant::now());
        }
    }

    /// Since when a guest has been down; none while it runs.
    #[must_use]
    pub fn down_since(&self, vmid: u32) -> Option<Instant> {
        let (state, now) = (self.lock(), Instant::now());
        let ended = state.running.get(&vmid).map(|guest| guest.ends.filter(|end| *end <= now));
        ended.unwrap_or_else(|| state.stopped.get(&vmid).copied())
    }

    #[must_use]
    pub fn running_vmids(&self) -> Vec<u32> {
        let now = Instant::now();
        let state = self.lock();
        state.running.iter().filter(|(_, guest)| guest.runs(now)).map(|(vmid, _)| *vmid).collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is valid after each statement, so that a panic leaves it usable.
        self.state.lock()
    }

    /// The public host key that the guest's SSH server shows; none while the server does not
    /// answer.
    #[must_use]
    pub fn ssh_host_key(&self, vmid: u32) -> Option<String> {
        let now = Instant::now();
        let state = self.lock();
        let is_silent = matches!(state.quirks.get(&vmid), Some(Quirk::NeverBoots | Quirk::Hangs));
        let guest = state.running.get(&vmid).filter(|guest| guest.runs(now) && !is_silent)?;
        (now >= guest.answers_from).then(|| guest.host_key_line(self.options.seed, vmid))
    }

    /// The MAC address of a running guest.
    #[must_use]
    pub fn mac(&self, vmid: u32) -> Option<String> {
        self.lock().running.get(&vmid)?.mac.clone()
    }

    /// The host key of a running guest.
    pub(super) fn host_key(&self, vmid: u32) -> Option<PrivateKey> {
        let number = self.lock().running.get(&vmid)?.host_key;
        Some(host_key(self.options.seed, vmid, number))
    }

    /// Gives a running guest another address, because a program outside uses its own.
    pub(super) fn assign_other_address(&self, vmid: u32) -> Option<Ipv4Addr> {
        let mut state = self.lock();
        let fresh = state.addresses.reassign(vmid)?;
        state.running.get_mut(&vmid)?.ip = fresh.into();
        Some(fresh)
    }

    /// Runs a command in a guest. None when the guest does not run, or does not know the program.
    pub(super) fn run(&self, vmid: u32, command: &[String]) -> Option<ProcessExit> {
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
        // On the loopback network, static addresses outside it cannot be used.
        let on_loopback = self.options.net[0] == 127;
        let static_ip = boot.static_address().filter(|ip| !on_loopback || ip.is_loopback());
        let ip = match static_ip {
            Some(ip) => ip,
            None => {
                let own = state.addresses.assign(vmid);
                own.ok_or("no address is free")?.into()
            }
        };
        let host_key = match state.disks.get(&vmid) {
            Some(number) if boot.boot > 1 || boot.resumed => *number,
            _first_boot => {
                let number = state.host_key_counts.entry(vmid).or_insert(0);
                *number += 1;
                *number
            }
        };
        state.disks.insert(vmid, host_key);
        let draw = |range, purpose| {
            let round = host_key.wrapping_mul(1000).wrapping_add(boot.boot);
            draw_duration(range, &seeded_bytes(self.options.seed, vmid, round, purpose))
        };
        let boots = if boot.resumed { Duration::ZERO } else { draw(&self.options.boot, "boot") };
        let answers_from = now + boots;
        // A static address, and that of a resumed guest, needs no DHCP.
        let address_delay = match static_ip {
            None if !boot.resumed => draw(&self.options.address_delay, "address"),
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
            addressed_from: answers_from + address_delay,
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
        let is_silent = matches!(quirk, Some(Quirk::NeverBoots | Quirk::NoAgent));
        if !guest.runs(now) || now < guest.answers_from || is_silent {
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
                Err(answers::cannot_open(&path, "r", "No such file or directory"))
            }
            AgentCall::FileWrite { .. } => Ok(Value::Null),
        }
    }
}

/// The host key of a guest with this number.
fn host_key(seed: u64, vmid: u32, number: u32) -> PrivateKey {
    PrivateKey::from_seed(&seeded_bytes(seed, vmid, number, "host key"), "")
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

impl GuestHost for StubGuests {
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
        let ignores_shutdown = matches!(
            state.quirks.get(&vmid),
            Some(Quirk::NeverBoots | Quirk::Hangs | Quirk::IgnoresShutdown)
        );
        if let Some(guest) = state.running.get_mut(&vmid).filter(|_| !ignores_shutdown) {
            // A booting guest reacts once it is up.
            let received = guest.answers_from.max(Instant::now());
            guest.end_by(received + guest.shutdown);
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

    fn agent_ready_in(&self, vmid: u32) -> Option<Duration> {
        let answers = self.lock().running.get(&vmid)?.answers_from;
        Some(answers.saturating_duration_since(Instant::now()))
    }

    fn reachable_in(&self, vmid: u32) -> Option<Duration> {
        let addressed = self.lock().running.get(&vmid)?.addressed_from;
        Some(addressed.saturating_duration_since(Instant::now()))
    }

    fn snapshot(&self, vmid: u32, name: &str, _with_memory: bool) -> GuestWork {
        let mut state = self.lock();
        let held = state.disks.get(&vmid).copied();
        state.snapshots.insert((vmid, name.to_owned()), held);
        future::ready(Ok(())).boxed()
    }

    fn rollback(&self, vmid: u32, name: &str) -> GuestWork {
        let mut state = self.lock();
        *state.rollbacks.entry(vmid).or_default() += 1;
        match state.snapshots.get(&(vmid, name.to_owned())).copied() {
            Some(Some(number)) => {
                state.disks.insert(vmid, number);
            }
            Some(None) => {
                state.disks.remove(&vmid);
            }
            None => {}
        }
        future::ready(Ok(())).boxed()
    }

    fn clone_disk(&self, _from: u32, to: u32, _linked: bool) -> GuestWork {
        // cloud-init makes a new host key at a clone's first boot.
        self.lock().disks.remove(&to);
        future::ready(Ok(())).boxed()
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
