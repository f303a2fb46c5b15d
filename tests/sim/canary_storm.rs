//! Canaries by chance: a seed draws new template images and new configurations, good and bad ones, leases,
//! crashes and operators who have everything tried again; what must hold is looked at in every second.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use drover_actors::message::HerdCommand;
use drover_model::ambient::Dice;
use drover_model::canary::{Canary, Version};
use drover_model::id::{AgentId, LeaseId};
use drover_model::phase::LeasePhase;
use drover_model::tenant::By;
use drover_runtime::reply::Reply;
use pve_sim::spec::GuestSpec;

use super::world::World;
use super::world::setup::Setup;

const SECOND: Duration = Duration::from_secs(1);
const SEEDS: u64 = 7;
/// How many deeds a storm has.
const DEEDS: u64 = 30;
/// The most seconds between two deeds.
const PAUSE: u64 = 90;
/// The longest that a lease waits, in seconds: for all tries of a configuration and of an image.
const WAIT: u64 = 20 * 60;
/// A command with this word fails.
const BAD: &str = "bad";

struct Storm {
    seed: u64,
    world: World,
    dice: Dice,
    /// Leases that were not given back, with the time for which they have waited.
    leases: BTreeMap<LeaseId, u64>,
    /// Template images whose clones let nobody in.
    bad: BTreeSet<u32>,
    images: u32,
    specs: u32,
    /// What was known at the last look, and the agents that were there.
    known: Canary,
    seen: BTreeSet<AgentId>,
}

impl Storm {
    /// A storm with one version that is proven.
    async fn new(seed: u64) -> Self {
        let world = World::started(Setup::linux("").seed(seed)).await;
        world.shell.fail(Some(BAD));
        let dice = Dice::from_number(seed).fork("canaries");
        let (leases, bad, seen) = (BTreeMap::new(), BTreeSet::new(), BTreeSet::new());
        let known = Canary::default();
        let mut storm = Self { seed, world, dice, leases, bad, images: 0, specs: 0, known, seen };
        storm.image(false);
        storm.configure("good");
        storm.lease().await;
        storm.pass(600).await;
        assert!(storm.known.good.is_some(), "seed {seed}");
        storm
    }

    /// A newer template image with the tag.
    fn image(&mut self, bad: bool) {
        self.images += 1;
        let vmid = 9100 + self.images;
        let own = |value: String| value.replace("-9000-", &format!("-{vmid}-"));
        let config = self.world.side.config(9000).unwrap().into_iter();
        let mut config: BTreeMap<String, String> =
            config.map(|(key, value)| (key, own(value))).collect();
        config.insert("tags".into(), "golden".into());
        let created = 1_900_000_000 + self.images;
        config.insert("meta".into(), format!("creation-qemu=9.0.2,ctime={created}"));
        let node = "pve1".to_owned();
        let spec = GuestSpec { vmid, node, template: true, running: false, pool: None, config };
        assert!(self.world.side.add_guest(&spec));
        self.world.keep_planted(vmid);
        if bad {
            self.bad.insert(vmid);
        }
    }

    /// Puts the next configuration into force; a bad one has a command that fails.
    fn configure(&mut self, word: &str) {
        let number = self.specs;
        let keys = format!(
            "templateTag: golden, canary: true, singleUse: true, instanceCap: 4, \
             startupWaitSeconds: 60, idleTerminationMinutes: 2, readyCommand: \"{word} {number}\""
        );
        self.world.setup.templates = vec![("linux", keys)];
        self.world.reload();
    }

    async fn lease(&mut self) {
        if let Ok(lease) = self.world.try_lease("linux", 4 * 3600 * SECOND).await {
            self.leases.insert(lease, 0);
        }
    }

    fn release(&mut self) {
        let count = self.leases.len() as u64;
        let pick = usize::try_from(self.dice.below(count.max(1))).unwrap();
        if let Some(lease) = self.leases.keys().nth(pick).cloned() {
            self.leases.remove(&lease);
            let (reply, _) = Reply::channel();
            self.world.send(HerdCommand::Release { lease, by: By::admin("test"), reply });
        }
    }

    async fn deed(&mut self) {
        match self.dice.below(20) {
            0..3 => {
                let bad = self.dice.below(2) == 0;
                self.image(bad);
            }
            3 | 4 => {
                self.specs += 1;
                let word = if self.dice.below(2) == 0 { BAD } else { "good" };
                self.configure(word);
            }
            5 => {
                self.specs = self.specs.saturating_sub(1);
                self.configure("good");
            }
            6..12 => self.lease().await,
            12..17 => self.release(),
            17 => {
                let (name, (reply, _)) = ("linux".to_owned(), Reply::channel());
                self.world.send(HerdCommand::ResetBreaker { name, reply });
            }
            _ => {
                let away = u32::try_from(1 + self.dice.below(60)).unwrap();
                self.world.crash();
                tokio::time::sleep(away * SECOND).await;
                self.world.start().await;
            }
        }
    }

    /// Lets time go on, and looks at everything in each second.
    async fn pass(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.world.pass(SECOND).await;
            self.look();
        }
    }

    fn look(&mut self) {
        let journal_state = self.world.journal_state();
        let canary = journal_state.canaries.values().next().cloned().unwrap_or_default();
        let mut tried: BTreeMap<Version, u32> = BTreeMap::new();
        for (agent, entry) in &journal_state.agents {
            let (spec, origin) = (&entry.spec, entry.spec.origin.as_ref());
            let is_new = self.seen.insert(agent.clone());
            if is_new && self.bad.contains(&spec.source.0) {
                self.world.shell.shut(entry.marks.vmid.0, 24 * 3600 * SECOND);
            }
            let Some(made) = &spec.made_as else { continue };
            let Some(image) = origin.and_then(|origin| origin.version.clone()) else { continue };
            let version = Version { image, spec: made.spec.clone() };
            if canary.is_proven(&version) || self.known.good.is_none() {
                continue;
            }
            let spent =
                self.known.is_given_up(&version) || self.known.is_spec_given_up(&version.spec);
            // What was given up a moment ago may have been forgiven since.
            let still = canary.is_given_up(&version) || canary.is_spec_given_up(&version.spec);
            assert!(
                !(is_new && spent && still),
                "seed {}: {agent} is of {version}, which was given up",
                self.seed
            );
            if entry.is_unproven() && entry.retiring.is_none() {
                *tried.entry(version).or_default() += 1;
            }
        }
        let most = tried.values().max().copied().unwrap_or_default();
        assert!(most <= 1, "seed {}: several try a version: {tried:?}", self.seed);
        for (lease, waited) in &mut self.leases {
            let waits = self.world.view().lease(lease);
            let waits = waits.is_some_and(|status| status.state == LeasePhase::Waiting);
            *waited = if waits { *waited + 1 } else { 0 };
        }
        let longest = self.leases.values().max().copied().unwrap_or_default();
        assert!(longest <= WAIT, "seed {}: a lease waits: {canary:?}", self.seed);
        self.known = canary;
    }

    /// A good configuration and a good template image are proven in the end.
    async fn end(mut self) {
        self.specs = 1000;
        self.configure("good");
        self.image(false);
        while !self.leases.is_empty() {
            self.release();
        }
        self.pass(600).await;
        self.lease().await;
        self.pass(WAIT).await;
        let last = self.known.proven.last().cloned().unwrap();
        let newest = (9100 + self.images).to_string();
        assert!(last.image.starts_with(&newest), "seed {}: {:?}", self.seed, self.known);
        let status = self.world.view().templates().remove(0).canary.unwrap();
        assert_eq!(status.given_up, [], "seed {}", self.seed);
        self.release();
        self.world.until("the agents are gone", |view| view.agents().is_empty()).await;
        assert_eq!(self.world.ours(), Vec::<u32>::new(), "seed {}", self.seed);
        self.world.check();
        self.world.judged = true;
    }
}

// Invariant: while a version is proven, one agent at a time is of any other, none is of one that was given
// up, and all who wait are served.

#[tokio::test(start_paused = true)]
async fn versions_crashes_and_operators_leave_everybody_served() {
    for seed in 1..=SEEDS {
        let mut storm = Storm::new(seed).await;
        for _ in 0..DEEDS {
            let pause = 1 + storm.dice.below(PAUSE);
            storm.pass(pause).await;
            storm.deed().await;
        }
        storm.end().await;
    }
}
