//! Images by chance: a seed draws builds, leases of machines cloned from them, pruning, faults of the
//! cluster and crashes; what must hold is looked at in every second.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use drover_actors::message::{HerdCommand, ImageBuildAsk};
use drover_model::ambient::Dice;
use drover_model::id::LeaseId;
use drover_model::marks::{Kind, Reading, read};
use drover_model::phase::ImagePhase;
use drover_model::spec::CloneStrategy;
use drover_model::tenant::By;
use drover_runtime::reply::Reply;
use pve_sim::spec::WebFile;
use pve_sim::world::{CallFault, Faults, TaskFault};

use super::world::World;
use super::world::setup::Setup;

const SECOND: Duration = Duration::from_secs(1);
const URL: &str = "https://cloud.example/debian-13.qcow2";
const SEEDS: u64 = 10;
/// How many deeds a storm has.
const DEEDS: u64 = 25;
/// The most seconds between two deeds.
const PAUSE: u64 = 90;
/// The versions that stay beside the newest.
const KEEP: usize = 1;

struct Storm {
    seed: u64,
    world: World,
    dice: Dice,
    leases: Vec<LeaseId>,
}

fn setup(seed: u64) -> Setup {
    let mut setup = Setup::linux("").rack("cleanupOrphanedAgents: true").seed(seed);
    let sum = "ab".repeat(32);
    setup.sections = format!(
        "images:\n  debian: {{cloudIds: [rack], source: {{url: \"{URL}\", checksum: {sum}}}, \
         storage: local-lvm, importStorage: shared, credentialsId: ssh, keep: {KEEP}, \
         commands: ['echo ${{word}}'], variables: {{word: one}}, nodes: [pve1, pve2], \
         buildWhenMissing: {by_itself}}}\n",
        by_itself = builds_by_itself(seed),
    );
    let keys = "image: debian, cloneStrategy: LINKED, nodes: [pve1, pve2], maxTotalUses: 1";
    setup.templates = vec![("linux", keys.into())];
    setup
}

/// Whether the first version is one that nobody asked for but an agent that waits.
fn builds_by_itself(seed: u64) -> bool {
    seed.is_multiple_of(2)
}

fn one_of<T: Copy>(dice: &mut Dice, of: &[T]) -> T {
    of[usize::try_from(dice.below(of.len() as u64)).unwrap()]
}

impl Storm {
    async fn new(seed: u64) -> Self {
        let mut world = World::new(setup(seed));
        let (url, sha256) = (URL.to_owned(), "ab".repeat(32));
        world.side.publish(WebFile { url, size: 400 << 20, sha256, ..WebFile::default() });
        world.start().await;
        Self { seed, world, dice: Dice::from_number(seed).fork("images"), leases: Vec::new() }
    }

    fn build(&mut self, word: &str) {
        let given = BTreeMap::from([("word".to_owned(), word.to_owned())]);
        let image = "debian".to_owned();
        let (reply, _) = Reply::channel();
        let (node, dry_run) = (None, false);
        let afresh = self.dice.below(4) == 0;
        self.world.send(HerdCommand::BuildImage(Box::new(ImageBuildAsk {
            image,
            node,
            given,
            afresh,
            dry_run,
            reply,
        })));
    }

    /// Ends a lease, which may have ended by itself.
    fn release(&self, lease: LeaseId) {
        let (reply, _) = Reply::channel();
        self.world.send(HerdCommand::Release { lease, by: By::admin("test"), reply });
    }

    fn prune(&self) {
        let (reply, _) = Reply::channel();
        self.world.send(HerdCommand::PruneImages { unconfigured: false, dry_run: false, reply });
    }

    /// Something goes wrong a few times from here on.
    fn weather(&mut self) -> Faults {
        let dice = &mut self.dice;
        let times = Some(1 + u32::try_from(dice.below(3)).unwrap());
        if dice.below(3) == 0 {
            // A destroy that is cut off leaves a lock that only an administrator takes away.
            let kinds = ["qmcreate", "qmtemplate", "download", "qmstart", "imgcopy"];
            let errors = [None, Some("got timeout"), Some("no space left on device")];
            let task = TaskFault {
                kind: Some(one_of(dice, &kinds).into()),
                error: one_of(dice, &errors).map(str::to_owned),
                after: one_of(dice, &[0.05, 2.0]),
                times,
                ..TaskFault::default()
            };
            return Faults { tasks: vec![task], ..Faults::default() };
        }
        let routes = [
            ("POST", "/nodes/{node}/qemu"),
            ("POST", "/template"),
            ("POST", "/download-url"),
            ("POST", "/upload"),
            ("POST", "/clone"),
            ("POST", "/status"),
            ("PUT", "/config"),
            ("GET", "/config"),
            ("GET", "/nextid"),
            ("GET", "/cluster/resources"),
            ("DELETE", "/qemu/{vmid}"),
        ];
        let (method, route) = one_of(dice, &routes);
        let status = one_of(dice, &[None, Some(500), Some(596), Some(599)]);
        let call = CallFault {
            method: Some(method.into()),
            route: Some(route.into()),
            skip: u32::try_from(dice.below(3)).unwrap(),
            times,
            reset: status.is_none(),
            status,
            done: dice.below(2) == 0,
            ..CallFault::default()
        };
        Faults { calls: vec![call], ..Faults::default() }
    }

    async fn deed(&mut self) {
        match self.dice.below(10) {
            0..3 => {
                let word = one_of(&mut self.dice, &["one", "two", "three"]);
                self.build(word);
            }
            3 | 4 => {
                if let Ok(lease) = self.world.try_lease("linux", 300 * SECOND).await {
                    self.leases.push(lease);
                }
            }
            5 => {
                if let Some(lease) = self.leases.pop() {
                    self.release(lease);
                }
            }
            6 => self.prune(),
            7 | 8 => {
                let faults = self.weather();
                self.world.faults(faults);
            }
            _ => {
                let away = one_of(&mut self.dice, &[1_u32, 20, 200]);
                self.world.crash();
                tokio::time::sleep(away * SECOND).await;
                self.world.start().await;
            }
        }
    }

    /// Lets time go on, and looks at everything in each second.
    async fn pass(&self, seconds: u64) {
        for _ in 0..seconds {
            self.world.pass(SECOND).await;
            self.look();
        }
    }

    /// One build for each image and node; no template goes while an agent lives off its disks.
    fn look(&self) {
        let mut running = BTreeSet::new();
        for build in self.world.view().image_builds() {
            let at_work = !build.phase.is_over() && build.phase != ImagePhase::Removing;
            let place = (build.image.clone(), build.node.clone());
            assert!(!at_work || running.insert(place), "seed {}: two builds: {build:?}", self.seed);
        }
        for (agent, entry) in self.world.journal_state().agents {
            let linked = entry.spec.clone == CloneStrategy::Linked;
            let lives = self.world.side.config(entry.marks.vmid.0).is_some();
            let source = self.world.side.config(entry.spec.source.0);
            let text = format!("seed {}: {agent} lost its template", self.seed);
            assert!(!linked || !lives || source.is_some(), "{text} {}", entry.spec.source);
        }
    }

    /// The kinds of marks on the guests from the lowest VMID of images on.
    fn kinds(&self) -> Vec<(u32, Kind)> {
        let kind = |vmid: u32| {
            let config = self.world.side.config(vmid)?;
            let text = |key: &str| config.get(key).map(String::as_str).unwrap_or_default();
            match read(text("name"), text("description")) {
                Reading::Marked(marks) => Some((vmid, marks.kind)),
                _ => None,
            }
        };
        (9003..9060).filter_map(kind).collect()
    }

    /// Everything is calm: what was made for builds is gone, and a build succeeds.
    async fn end(mut self) {
        self.world.faults(Faults::default());
        self.pass(600).await;
        for lease in std::mem::take(&mut self.leases) {
            self.release(lease);
        }
        self.build("last");
        self.pass(5).await;
        let over = |view: &drover_server::view::View| {
            view.image_builds().iter().all(|build| build.phase.is_over())
        };
        self.world.until("no build runs", over).await;
        let done = self.world.view().image_builds();
        let last = done.iter().filter(|build| build.phase == ImagePhase::Done).count();
        assert!(last >= 2, "seed {}: {done:?}", self.seed);
        self.world.reap(true).await;
        self.world.until("the agents are gone", |view| view.agents().is_empty()).await;
        // Two looks of the reconciler, and Proxmox's list, which is behind.
        self.pass(900).await;
        self.prune();
        self.pass(300).await;
        let kinds = self.kinds();
        let builders = kinds.iter().filter(|(_, kind)| *kind == Kind::Builder).count();
        let versions = kinds.iter().filter(|(_, kind)| *kind == Kind::Image).count();
        assert_eq!(builders, 0, "seed {}: {kinds:?}", self.seed);
        assert!((2..=2 * (KEEP + 1)).contains(&versions), "seed {}: {kinds:?}", self.seed);
        assert!(self.world.journal_state().builds.is_empty(), "seed {}", self.seed);
        let files = self.world.side.volumes("pve1", "local");
        let discs = files.iter().filter(|name| name.contains("iso/drover-")).count();
        assert_eq!(discs, 0, "seed {}: {files:?}", self.seed);
        self.world.check();
        self.world.judged = true;
    }
}

// Invariant: whatever goes wrong meanwhile, no machine of a build is left, no version goes that is in
// use, and each image has one build on a node at once.

#[tokio::test(start_paused = true)]
async fn builds_faults_and_crashes_leave_nothing_and_take_nothing_in_use() {
    for seed in 1..=SEEDS {
        let mut storm = Storm::new(seed).await;
        if !builds_by_itself(seed) {
            storm.build("one");
        }
        for _ in 0..DEEDS {
            let pause = 1 + storm.dice.below(PAUSE);
            storm.pass(pause).await;
            storm.deed().await;
        }
        storm.end().await;
    }
}
