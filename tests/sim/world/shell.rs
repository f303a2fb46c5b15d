//! SSH by script: logins of `drover_forecast::ssh`, and what a test set guests to refuse.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use drover_forecast::ssh::{self, CHANGE, greeting};
use drover_model::fault::{Culprit, Fault, FaultKind};
use drover_model::ports::{Ask, Greeting, Holder, Ran, Sessions, Shell, ShellTarget};
use drover_model::spec::UploadSpec;
use futures_util::FutureExt;
use pve_sim::guests::StubGuests;
use tokio::time::Instant;

use super::eye::Socket;
use super::guests::Stubs;

/// Longer than any test.
const FOR_EVER: Duration = Duration::from_secs(365 * 24 * 3600);

#[derive(Default)]
struct Script {
    /// Logins still to be refused, and how.
    refusals: (u32, Option<FaultKind>),
    /// Commands that contain this fail.
    failing: Option<String>,
    /// Commands, and where files were put, in the order they came.
    ran: Vec<String>,
    /// Files put into guests.
    uploaded: Vec<UploadSpec>,
    /// Leases whose key or user data is there, by guest.
    admitted: BTreeMap<u32, BTreeSet<String>>,
    /// Leases whose user data was put into a guest, in their order.
    brought: Vec<String>,
    /// Guests that let nobody in until then.
    shut: BTreeMap<u32, Instant>,
    /// Guests whose SSH says nothing, from when and until when.
    mute: BTreeMap<u32, (Instant, Instant)>,
    /// How often each guest had been put back when its keys were looked at last.
    put_back: BTreeMap<u32, u32>,
}

/// The scripted shell.
#[derive(Clone)]
pub struct Scripted {
    guests: Arc<StubGuests>,
    /// The same as the network shows them.
    shown: Stubs,
    script: Arc<Mutex<Script>>,
    /// An eye that sees every key.
    pub socket: Socket,
    /// Whether no guest can be reached from here.
    cut: Arc<AtomicBool>,
}

impl Scripted {
    /// Logs in to these guests.
    pub fn new(guests: Arc<StubGuests>) -> Self {
        let (script, socket, cut) = (Arc::default(), Socket::default(), Arc::default());
        let shown = Stubs(Arc::clone(&guests));
        Self { guests, shown, script, socket, cut }
    }

    /// The way of another machine to the same guests.
    pub fn of_another_machine(&self) -> Self {
        Self { cut: Arc::default(), ..self.clone() }
    }

    /// Cuts the way to all guests, or repairs it.
    pub fn cut(&self, cut: bool) {
        self.cut.store(cut, Ordering::Release);
    }

    /// Refuses the next logins.
    pub fn refuse(&self, count: u32, kind: FaultKind) {
        self.script.lock().unwrap().refusals = (count, Some(kind));
    }

    /// Lets commands that contain this text fail, or none.
    pub fn fail(&self, text: Option<&str>) {
        self.script.lock().unwrap().failing = text.map(str::to_owned);
    }

    /// Every command that was run, and where files were put, in their order.
    pub fn ran(&self) -> Vec<String> {
        self.script.lock().unwrap().ran.clone()
    }

    /// Every file that was put into a guest.
    pub fn uploaded(&self) -> Vec<UploadSpec> {
        self.script.lock().unwrap().uploaded.clone()
    }

    /// Leases whose key or user data is in a guest.
    pub fn admitted(&self, vmid: u32) -> BTreeSet<String> {
        self.look_back(vmid);
        self.script.lock().unwrap().admitted.get(&vmid).cloned().unwrap_or_default()
    }

    /// Leases whose user data was put into a guest, once for each time.
    pub fn brought(&self) -> Vec<String> {
        self.script.lock().unwrap().brought.clone()
    }

    /// A guest that was put back has the keys of then: none, for nobody was in it yet.
    fn look_back(&self, vmid: u32) {
        let now = self.guests.rollback_count(vmid);
        let mut script = self.script.lock().unwrap();
        if script.put_back.insert(vmid, now).unwrap_or(0) != now {
            script.admitted.remove(&vmid);
            script.shut.remove(&vmid);
        }
    }

    /// A guest lets nobody in for so long, as one whose user moved the keys away.
    pub fn shut(&self, vmid: u32, span: Duration) {
        self.script.lock().unwrap().shut.insert(vmid, Instant::now() + span);
    }

    /// SSH of a guest says nothing from here on, or answers again.
    pub fn mute(&self, vmid: u32, mute: bool) {
        self.hang(vmid, if mute { FOR_EVER } else { Duration::ZERO });
    }

    /// SSH of a guest says nothing for so long.
    pub fn hang(&self, vmid: u32, span: Duration) {
        let (mut script, now) = (self.script.lock().unwrap(), Instant::now());
        let since = script.mute.get(&vmid).filter(|(_, until)| *until > now).map(|one| one.0);
        script.mute.insert(vmid, (since.unwrap_or(now), now + span));
    }

    /// Since when SSH of a guest says nothing although it runs.
    fn mute_since(&self, vmid: u32) -> Option<Instant> {
        let script = self.script.lock().unwrap();
        let hangs = script.mute.get(&vmid).filter(|(_, until)| *until > Instant::now());
        hangs.map(|(since, _)| *since)
    }

    /// Since when a guest that ran does not.
    pub fn down_since(&self, vmid: u32) -> Option<Instant> {
        self.guests.down_since(vmid)
    }

    /// Since when a guest that ran does not, or its SSH says nothing.
    pub fn silent_since(&self, vmid: u32) -> Option<Instant> {
        [self.down_since(vmid), self.mute_since(vmid)].into_iter().flatten().min()
    }

    /// A guest of this id is new: no key is in it, and it is not shut.
    pub fn forget(&self, vmid: u32) {
        let mut script = self.script.lock().unwrap();
        script.admitted.remove(&vmid);
        script.shut.remove(&vmid);
        script.mute.remove(&vmid);
    }

    /// Changes the keys in a guest as an editor of a file does: of two changes at once the one that
    /// ends first is lost. Scripts in real guests take a lock; that nobody needs it is held here.
    async fn edit(&self, vmid: u32, change: impl FnOnce(&mut BTreeSet<String>)) {
        let mut keys = self.admitted(vmid);
        change(&mut keys);
        tokio::time::sleep(CHANGE).await;
        self.script.lock().unwrap().admitted.insert(vmid, keys);
    }

    /// The guest at an address, and its host key, once it can be logged in to.
    async fn login(self, target: ShellTarget, limit: Duration) -> Result<(u32, String), Fault> {
        let hears = |vmid| self.mute_since(vmid).is_none() && !self.cut.load(Ordering::Acquire);
        let (vmid, key) = ssh::login(&self.shown, &target, (ssh::LOGIN, limit), hears).await?;
        self.look_back(vmid);
        let mut script = self.script.lock().unwrap();
        if script.shut.get(&vmid).is_some_and(|until| Instant::now() < *until) {
            let text = "the guest does not accept the key";
            return Err(Fault::new(FaultKind::KeyRejected, Culprit::Template, text));
        }
        if let (1.., Some(kind)) = script.refusals.clone() {
            script.refusals.0 -= 1;
            return Err(Fault::new(kind, Culprit::Template, "refused by the script"));
        }
        Ok((vmid, key))
    }
}

impl Shell for Scripted {
    fn greet(&self, target: ShellTarget, limit: Duration) -> Ask<Greeting> {
        let shown = self.shown.clone();
        let greeting = move |guest| greeting(&shown, guest);
        self.clone().login(target, limit).map(|seen| seen.map(greeting)).boxed()
    }

    fn probe(&self, target: ShellTarget, limit: Duration) -> Ask<()> {
        let shell = self.clone();
        async move {
            let hears = |vmid| shell.mute_since(vmid).is_none();
            ssh::probe(&shell.shown, &target, limit, hears).await
        }
        .boxed()
    }

    fn run(&self, target: ShellTarget, command: String, limit: Duration) -> Ask<Ran> {
        let shell = self.clone();
        async move {
            let (vmid, _) = shell.clone().login(target, limit).await?;
            // What repairs a guest looks for keys that should not be there.
            let remedies = command.contains("the rollback did not happen");
            if remedies && shell.admitted(vmid).iter().any(|key| key != "hold") {
                return Ok(Ran { exit: Some(1), tail: "a key is there".into() });
            }
            shell.script.lock().unwrap().ran.push(command.clone());
            let failing = shell.script.lock().unwrap().failing.clone();
            let fails = failing.is_some_and(|text| command.contains(&text));
            Ok(Ran { exit: Some(u32::from(fails)), tail: String::new() })
        }
        .boxed()
    }

    fn upload(&self, target: ShellTarget, upload: UploadSpec, limit: Duration) -> Ask<Ran> {
        let ran = self.run(target, upload.to.clone(), limit);
        let shell = self.clone();
        async move {
            let ran = ran.await?;
            shell.script.lock().unwrap().uploaded.push(upload);
            Ok(ran)
        }
        .boxed()
    }

    fn admit(&self, target: ShellTarget, lease: &str, holder: &Holder, limit: Duration) -> Ask<()> {
        let (shell, lease, brings) = (self.clone(), lease.to_owned(), holder.user_data);
        async move {
            let (vmid, _) = shell.clone().login(target, limit).await?;
            if let Some(eye) = shell.socket.eye() {
                eye.key(&lease, vmid);
            }
            if brings {
                shell.script.lock().unwrap().brought.push(lease.clone());
            }
            shell.edit(vmid, |keys| _ = keys.insert(lease)).await;
            Ok(())
        }
        .boxed()
    }

    fn expel(&self, target: ShellTarget, lease: &str, _: Sessions, limit: Duration) -> Ask<()> {
        let (shell, lease) = (self.clone(), lease.to_owned());
        async move {
            let (vmid, _) = shell.clone().login(target, limit).await?;
            shell.edit(vmid, |keys| _ = keys.remove(&lease)).await;
            Ok(())
        }
        .boxed()
    }
}
