#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use drover_vault::{MemoryVault, StoreError};
use futures_util::future::BoxFuture;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::super::kind::Kind;
use super::super::message::Message;
use super::super::mind::State;
use super::super::settings::{Format, Secret, Via, Wanted, Webhook};
use super::super::words;
use super::*;

const START: i64 = 1_795_248_000_000;

/// The other side: answers at once, hangs, or fails.
#[derive(Clone, Default)]
struct Side {
    taken: Arc<Mutex<Vec<(String, String)>>>,
    fails: Arc<AtomicBool>,
    hangs: Arc<AtomicBool>,
    refuses: Arc<Mutex<Option<String>>>,
}

impl Carrier for Side {
    fn send<'a>(
        &'a self,
        channel: &'a Channel,
        message: &'a Message,
    ) -> BoxFuture<'a, Result<Delivered, Failure>> {
        Box::pin(async move {
            // The channel `dead` never works.
            if self.hangs.load(Ordering::Relaxed) && channel.name == "ops" {
                std::future::pending::<()>().await;
            }
            if self.fails.load(Ordering::Relaxed) || channel.name == "dead" {
                return Err(Failure::lasting("the server answered 404"));
            }
            self.taken.lock().push((channel.name.clone(), words::subject(message)));
            Ok(Delivered { answer: "200 OK".into(), refused: self.refuses.lock().clone() })
        })
    }
}

#[derive(Clone)]
struct World {
    side: Side,
    wrong: Arc<Mutex<Option<Vec<Trouble>>>>,
    leads: Arc<AtomicBool>,
    reported: Arc<Mutex<Vec<ChannelTrouble>>>,
    vault: Arc<dyn Vault>,
    began: Instant,
}

impl World {
    fn new(vault: Arc<dyn Vault>) -> Self {
        Self {
            side: Side::default(),
            wrong: Arc::new(Mutex::new(Some(Vec::new()))),
            leads: Arc::new(AtomicBool::new(true)),
            reported: Arc::default(),
            vault,
            began: Instant::now(),
        }
    }

    fn start(&self, settings: &Settings) -> Notifier {
        let (wrong, reported) = (Arc::clone(&self.wrong), Arc::clone(&self.reported));
        let (leads, began) = (Arc::clone(&self.leads), self.began);
        let ports = Ports {
            standing: Arc::new(move || wrong.lock().clone()),
            now: Arc::new(move || {
                WallTime(START + i64::try_from(began.elapsed().as_millis()).unwrap())
            }),
            leads: Arc::new(move || leads.load(Ordering::Relaxed)),
            report: Arc::new(move |all| *reported.lock() = all),
            vault: Arc::clone(&self.vault),
            carrier: Arc::new(self.side.clone()),
            from: "ops1".into(),
            runtime: Handle::current(),
        };
        Notifier::start(ports, settings)
    }

    fn breaks(&self, clouds: &[&str]) {
        let all = clouds.iter().map(|name| Trouble {
            key: format!("cloud/{name}"),
            kind: Kind::Cloud,
            about: format!("cloud {name}"),
            text: "login refused".into(),
            command: String::new(),
            since: None,
            path: String::new(),
        });
        *self.wrong.lock() = Some(all.collect());
    }

    fn taken(&self) -> Vec<String> {
        self.side.taken.lock().iter().map(|(channel, text)| format!("{channel}: {text}")).collect()
    }
}

fn settings(names: &[&str]) -> Settings {
    let channels = names.iter().map(|name| Channel {
        name: (*name).to_owned(),
        wanted: Wanted::default(),
        via: Via::Webhook(Webhook {
            url: Secret::new("https://hooks.lan/x".to_owned()),
            format: Format::Drover,
            secret: None,
            tls: proxmox_client::Tls::System,
        }),
    });
    Settings {
        group: Duration::from_secs(30),
        recovery: Duration::from_secs(60),
        repeat: None,
        page: None,
        channels: channels.collect(),
    }
}

async fn seconds(count: u64) {
    sleep(Duration::from_secs(count)).await;
}

const OPENED: &str = "ops: [drover ops1] cloud lab: login refused";

// Invariant: a message goes once over each channel, also over restarts of the service and takeovers.

#[tokio::test(start_paused = true)]
async fn a_trouble_goes_once_over_each_channel_and_no_more_after_a_restart() {
    let world = World::new(Arc::new(MemoryVault::default()));
    let notifier = world.start(&settings(&["ops", "mail"]));
    world.breaks(&["lab"]);
    seconds(100).await;
    let mut taken = world.taken();
    taken.sort();
    assert_eq!(taken, ["mail: [drover ops1] cloud lab: login refused", OPENED]);
    drop(notifier);
    // The next leader knows nothing yet, then sees the same.
    *world.wrong.lock() = None;
    let notifier = world.start(&settings(&["ops", "mail"]));
    seconds(300).await;
    world.breaks(&["lab"]);
    seconds(300).await;
    assert_eq!(world.taken().len(), 2);
    world.breaks(&[]);
    seconds(100).await;
    assert_eq!(world.taken().len(), 4);
    drop(notifier);
}

#[tokio::test(start_paused = true)]
async fn a_member_that_does_not_lead_sends_nothing() {
    let world = World::new(Arc::new(MemoryVault::default()));
    let _notifier = world.start(&settings(&["ops"]));
    world.leads.store(false, Ordering::Relaxed);
    world.breaks(&["lab"]);
    seconds(100).await;
    assert!(world.taken().is_empty());
    world.leads.store(true, Ordering::Relaxed);
    seconds(40).await;
    assert_eq!(world.taken(), [OPENED]);
}

// Invariant: a channel that fails or hangs holds up no other, and is a trouble until it works or is gone.

#[tokio::test(start_paused = true)]
async fn a_channel_that_fails_is_reported_and_one_that_hangs_holds_up_no_other() {
    let world = World::new(Arc::new(MemoryVault::default()));
    let notifier = world.start(&settings(&["ops", "dead", "mail"]));
    world.side.hangs.store(true, Ordering::Relaxed);
    world.breaks(&["lab"]);
    seconds(100).await;
    assert_eq!(world.taken(), ["mail: [drover ops1] cloud lab: login refused"]);
    let reported = world.reported.lock().clone();
    assert_eq!(reported.len(), 1);
    assert_eq!((&*reported[0].channel, &*reported[0].text), ("dead", "the server answered 404"));
    // Without it nothing is wrong with it, and what it sent is forgotten.
    assert_eq!(world.vault.list(FOLDER).unwrap(), ["dead", "mail", "ops"]);
    notifier.configure(&settings(&["ops", "mail"]));
    seconds(1).await;
    assert!(world.reported.lock().is_empty());
    assert_eq!(world.vault.list(FOLDER).unwrap(), ["mail", "ops"]);
}

#[tokio::test(start_paused = true)]
async fn one_who_does_not_get_the_message_is_a_trouble_of_the_channel() {
    let world = World::new(Arc::new(MemoryVault::default()));
    let _notifier = world.start(&settings(&["ops"]));
    *world.side.refuses.lock() = Some("recipient a@b.c: 550".into());
    world.breaks(&["lab"]);
    seconds(100).await;
    assert_eq!(world.taken().len(), 1);
    assert_eq!(world.reported.lock()[0].text, "recipient a@b.c: 550");
}

/// A vault on a disk that is full.
struct Full;

impl Vault for Full {
    fn get(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        Err(StoreError::refused(name, "read", "no disk"))
    }

    fn put(&self, name: &str, _: &[u8]) -> Result<(), StoreError> {
        Err(StoreError::refused(name, "written", "no space left"))
    }

    fn remove(&self, name: &str) -> Result<(), StoreError> {
        Err(StoreError::refused(name, "removed", "no space left"))
    }

    fn list(&self, name: &str) -> Result<Vec<String>, StoreError> {
        Err(StoreError::refused(name, "listed", "no disk"))
    }
}

// Invariant: a full disk is what people must hear of.

#[tokio::test(start_paused = true)]
async fn where_nothing_can_be_kept_the_message_goes_out_all_the_same() {
    let world = World::new(Arc::new(Full));
    let _notifier = world.start(&settings(&["ops"]));
    world.breaks(&["lab"]);
    seconds(200).await;
    assert_eq!(world.taken(), [OPENED]);
}

/// A vault whose writes wait until the test lets them go on.
#[derive(Default)]
struct Slow {
    inner: MemoryVault,
    is_held: std::sync::Mutex<bool>,
    goes_on: std::sync::Condvar,
    writes: AtomicUsize,
    /// Called at each write.
    at_write: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Slow {
    fn hold(&self, is_held: bool) {
        *self.is_held.lock().unwrap() = is_held;
        self.goes_on.notify_all();
    }
}

impl Vault for Slow {
    fn get(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        self.inner.get(name)
    }

    fn put(&self, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
        self.writes.fetch_add(1, Ordering::Relaxed);
        if let Some(happens) = self.at_write.lock().take() {
            happens();
        }
        let held = self.is_held.lock().unwrap();
        drop(self.goes_on.wait_while(held, |is_held| *is_held).unwrap());
        self.inner.put(name, bytes)
    }

    fn remove(&self, name: &str) -> Result<(), StoreError> {
        self.inner.remove(name)
    }

    fn list(&self, name: &str) -> Result<Vec<String>, StoreError> {
        self.inner.list(name)
    }
}

// Invariant: a vault that hangs holds one thread of a channel, and has the newest state once it goes on.

#[tokio::test]
async fn a_vault_that_hangs_gets_one_write_at_a_time_and_then_the_newest() {
    let vault = Arc::new(Slow::default());
    let settings = settings(&[]);
    let mind = |state| Mind::new(&settings, ("ops", &Wanted::default()), "ops1", state);
    let newest = serde_json::json!({"known": {}, "recent": [1]});
    let (older, newer) =
        (mind(State::default()), mind(serde_json::from_value(newest.clone()).unwrap()));
    let limit = Duration::from_millis(1);
    let mut keeper = Keeper::within(Arc::<Slow>::clone(&vault), "ops", limit);
    vault.hold(true);
    for _ in 0..5 {
        keeper.keep(&older).await;
    }
    keeper.keep(&newer).await;
    keeper.catch_up(&newer).await;
    vault.hold(false);
    let is_kept = |bytes: Option<Vec<u8>>| {
        bytes.is_some_and(|bytes| serde_json::from_slice::<Value>(&bytes).unwrap() == newest)
    };
    while !is_kept(vault.get("notify/ops").unwrap()) {
        keeper.catch_up(&newer).await;
        tokio::task::yield_now().await;
    }
    assert_eq!(vault.writes.load(Ordering::Relaxed), 2);
}

// Invariant: a member that leads no more sends nothing, also where it was about to.

#[tokio::test(start_paused = true)]
async fn a_member_that_loses_the_lead_while_it_keeps_does_not_send() {
    let vault = Arc::new(Slow::default());
    let world = World::new(Arc::<Slow>::clone(&vault));
    let _notifier = world.start(&settings(&["ops"]));
    let leads = Arc::clone(&world.leads);
    *vault.at_write.lock() = Some(Box::new(move || leads.store(false, Ordering::Relaxed)));
    world.breaks(&["lab"]);
    seconds(200).await;
    assert_eq!((vault.writes.load(Ordering::Relaxed), world.taken()), (1, Vec::new()));
    assert!(world.reported.lock().is_empty());
    world.leads.store(true, Ordering::Relaxed);
    seconds(40).await;
    assert_eq!(world.taken(), [OPENED]);
}

// Invariant: a reload keeps channels at work that stay as they are, and a test changes nothing.

#[tokio::test(start_paused = true)]
async fn a_reload_and_a_test_repeat_nothing() {
    let world = World::new(Arc::new(MemoryVault::default()));
    let notifier = world.start(&settings(&["ops"]));
    world.breaks(&["lab"]);
    seconds(100).await;
    let mut other = settings(&["ops", "mail"]);
    notifier.configure(&other);
    other.page = Some("https://drover.lan".into());
    seconds(100).await;
    notifier.configure(&other);
    seconds(100).await;
    let mut taken = world.taken();
    taken.sort();
    assert_eq!(taken, ["mail: [drover ops1] cloud lab: login refused", OPENED]);
    assert_eq!(notifier.test(Some("nobody")).await, None);
    world.side.fails.store(true, Ordering::Relaxed);
    let tested = notifier.test(None).await.unwrap();
    assert_eq!(tested.len(), 2);
    assert!(tested.iter().all(|one| one.result.is_err() && one.via == "webhook"), "{tested:?}");
    world.side.fails.store(false, Ordering::Relaxed);
    let tested = notifier.test(Some("mail")).await.unwrap();
    assert_eq!(tested[0].result.as_ref().unwrap().answer, "200 OK");
    assert_eq!(world.taken().last().unwrap(), "mail: [drover ops1] a test of channel mail");
    assert_eq!(notifier.channels(), ["ops", "mail"]);
}
