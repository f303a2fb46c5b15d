//! Declared machines by chance: a seed draws declarations, hands that change or remove guests, commands,
//! faults of the cluster and crashes. A judge sees every call: a machine is destroyed only after it left
//! the configuration and where that was declared or commanded, and corrected only where that is allowed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use drover_actors::message::HerdCommand;
use drover_model::ambient::Dice;
use drover_model::declared::Drift;
use drover_model::fact::Fact;
use drover_model::id::AgentId;
use drover_model::record::Body;
use drover_runtime::reply::Reply;
use proxmox_client::transport::Request;
use pve_sim::world::{CallFault, Faults, TaskFault};
use tokio::time::Instant;

use super::declared::{gitea, guests, machines, runs, setup};
use super::world::World;
use super::world::eye::Eye;

const SECOND: Duration = Duration::from_secs(1);
const SEEDS: u64 = 12;
/// How many deeds a storm has.
const DEEDS: u64 = 30;
/// The most seconds between two deeds.
const PAUSE: u64 = 120;
/// The least time between the end of a declaration and the destroy that it asks for.
const GRACE: Duration = Duration::from_secs(60);
/// How long a call may follow what decided on it: an order waits for locks and for the guest.
const LATE: Duration = Duration::from_secs(400);
const NODES: [&str; 3] = ["pve1", "pve2", "pve3"];

/// What the configuration says of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Said {
    declared: bool,
    runs: bool,
    memory: u32,
    power: bool,
    size: bool,
    create: bool,
    removal: &'static str,
}

const AT_FIRST: Said = Said {
    declared: true,
    runs: true,
    memory: 1024,
    power: true,
    size: true,
    create: true,
    removal: "KEEP",
};

impl Said {
    fn yaml(&self) -> String {
        if !self.declared {
            return String::new();
        }
        let kinds = [(self.power, "POWER"), (self.size, "SIZE"), (self.create, "CREATE")];
        let kinds: Vec<&str> = kinds.iter().filter(|(on, _)| *on).map(|(_, name)| *name).collect();
        let power = if self.runs { "RUNNING" } else { "STOPPED" };
        let keys =
            format!("correct: [{}], onRemoval: {}, power: {power}", kinds.join(", "), self.removal);
        machines(&keys).replace("memoryMb: 1024", &format!("memoryMb: {}", self.memory))
    }
}

#[derive(Default)]
struct Seen {
    /// What was said, and since when.
    said: Vec<(Instant, Said)>,
    /// When an operator wanted the guest destroyed.
    deletes: Vec<Instant>,
    /// The guests of the machine, and whether each was made.
    guests: BTreeMap<u32, (AgentId, bool)>,
    /// The guests whose destroy was asked for, and was right.
    destroyed: BTreeSet<u32>,
    wrongs: Vec<String>,
}

/// Sees every record and call.
#[derive(Default)]
struct Judge(Mutex<Seen>);

impl Seen {
    /// What was said at any moment of the last while.
    fn lately(&self, span: Duration) -> Vec<Said> {
        let from = Instant::now() - span;
        let ends = self.said.iter().skip(1).map(|(at, _)| *at).chain([Instant::now()]);
        let spans = self.said.iter().zip(ends);
        spans.filter(|(_, end)| *end >= from).map(|((_, said), _)| *said).collect()
    }

    /// Whether the machine may be destroyed now: it is not declared, and that was declared before or
    /// commanded since.
    fn may_go(&self) -> bool {
        let last = self.said.iter().rev().find(|(_, said)| said.declared);
        let left = self.said.iter().rev().take_while(|(_, said)| !said.declared).last();
        let (Some((_, last)), Some((since, _))) = (last, left) else { return false };
        let commanded = self.deletes.iter().any(|at| at >= since);
        commanded || (last.removal == "DELETE" && since.elapsed() >= GRACE)
    }

    fn call(&mut self, method: &str, path: &str) {
        let mut parts = path.split('/').skip_while(|part| *part != "qemu").skip(1);
        let Some(vmid) = parts.next().and_then(|part| part.parse::<u32>().ok()) else { return };
        let Some((_, made)) = self.guests.get(&vmid) else { return };
        let (made, rest) = (*made, parts.collect::<Vec<_>>().join("/"));
        let left = self.lately(LATE).iter().any(|said| !said.declared);
        let right = match (method, &*rest) {
            ("GET", _) => return,
            ("DELETE", "") => self.may_go(),
            _ if !made => true,
            (_, "config" | "resize") => left || self.lately(LATE).iter().any(|said| said.size),
            (_, rest) if rest.starts_with("status/") => {
                left || self.lately(LATE).iter().any(|said| said.power)
            }
            _ => false,
        };
        if !right {
            let said = self.lately(LATE);
            self.wrongs.push(format!("{method} {path}, made {made}, after {said:?}"));
        } else if method == "DELETE" {
            self.destroyed.insert(vmid);
        }
    }
}

impl Judge {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap()
    }
}

impl Eye for Judge {
    fn fact(&self, _: &Fact) {}

    fn record(&self, body: &Body) {
        let mut seen = self.seen();
        match body {
            Body::DeclaredIntended { marks, .. } => {
                seen.guests.insert(marks.vmid.0, (marks.agent.clone(), false));
            }
            Body::DeclaredMade { machine, .. } => {
                for (agent, made) in seen.guests.values_mut() {
                    *made |= agent == machine;
                }
            }
            _ => {}
        }
    }

    fn request(&self, request: &Request) {
        self.seen().call(request.method.as_str(), &request.path);
    }

    fn key(&self, _: &str, _: u32) {}
}

struct Storm {
    seed: u64,
    world: World,
    dice: Dice,
    judge: Arc<Judge>,
    said: Said,
    /// Guests that a hand removed.
    removed: BTreeSet<u32>,
    /// Guests whose description somebody wrote over, and what it was.
    defaced: BTreeMap<u32, String>,
}

fn one_of<T: Copy>(dice: &mut Dice, of: &[T]) -> T {
    of[usize::try_from(dice.below(of.len() as u64)).unwrap()]
}

impl Storm {
    async fn new(seed: u64) -> Self {
        let mut world = World::new(setup("").seed(seed));
        world.setup.sections = AT_FIRST.yaml();
        let judge = Arc::new(Judge::default());
        judge.seen().said.push((Instant::now(), AT_FIRST));
        let eye: Arc<dyn Eye> = judge.clone();
        world.watch(&eye);
        world.start().await;
        let dice = Dice::from_number(seed).fork("declared");
        let (removed, defaced) = (BTreeSet::new(), BTreeMap::new());
        Self { seed, world, dice, judge, said: AT_FIRST, removed, defaced }
    }

    /// Writes another configuration; whether it is read at once.
    fn say(&mut self, said: Said, now: bool) {
        self.said = said;
        self.world.setup.sections = said.yaml();
        self.judge.seen().said.push((Instant::now(), said));
        if now {
            self.world.reload();
        }
    }

    /// Another declaration, or none.
    fn another(&mut self) -> Said {
        let dice = &mut self.dice;
        let mut flag = || dice.below(2) == 0;
        let (power, size, create, runs) = (flag(), flag(), flag(), flag() || flag());
        Said {
            declared: dice.below(3) != 0,
            memory: one_of(dice, &[1024, 2048]),
            removal: one_of(dice, &["KEEP", "STOP", "DELETE"]),
            power,
            size,
            create,
            runs,
        }
    }

    /// The removal of what is not declared is that of the last declaration.
    fn drawn(&mut self) -> Said {
        let said = self.another();
        if said.declared { said } else { Said { declared: false, ..self.said } }
    }

    fn weather(&mut self) -> Faults {
        let dice = &mut self.dice;
        let times = Some(1 + u32::try_from(dice.below(3)).unwrap());
        if dice.below(3) == 0 {
            let task = TaskFault {
                kind: Some(one_of(dice, &["qmclone", "qmstart", "qmshutdown", "qmconfig"]).into()),
                error: one_of(dice, &[None, Some("got timeout")]).map(str::to_owned),
                after: one_of(dice, &[0.05, 2.0]),
                times,
                ..TaskFault::default()
            };
            return Faults { tasks: vec![task], ..Faults::default() };
        }
        let routes = [
            ("POST", "/clone"),
            ("POST", "/status"),
            ("PUT", "/config"),
            ("POST", "/config"),
            ("GET", "/config"),
            ("GET", "/pending"),
            ("GET", "/nextid"),
            ("GET", "/cluster/resources"),
            ("GET", "/status/current"),
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

    /// A guest that is there and is the machine's.
    fn guest(&self) -> Option<u32> {
        guests(&self.world).into_iter().next_back()
    }

    async fn by_hand(&mut self) {
        let Some(vmid) = self.guest() else { return };
        match self.dice.below(6) {
            0 => self.world.side.set_config(vmid, "memory", Some("512")),
            1 => self.world.side.set_config(vmid, "cores", Some("1")),
            2 | 3 => self.world.side.kill_guest(vmid).await,
            4 => {
                self.removed.insert(vmid);
                self.world.side.remove_guest(vmid);
            }
            _ => {
                let config = self.world.side.config(vmid).unwrap();
                let words = config.get("description").cloned().unwrap_or_default();
                self.defaced.insert(vmid, words);
                self.world.side.set_config(vmid, "description", Some("somebody wrote over it"));
            }
        }
    }

    fn repair(&mut self) {
        for (vmid, words) in std::mem::take(&mut self.defaced) {
            self.world.side.set_config(vmid, "description", Some(&words));
        }
    }

    async fn deed(&mut self) {
        match self.dice.below(12) {
            0..3 => {
                let said = self.drawn();
                self.say(said, true);
            }
            3 => {
                // For a moment it is not in the file.
                let said = self.said;
                self.say(Said { declared: false, ..said }, true);
                self.pass(1 + self.seed % 50).await;
                self.say(said, true);
            }
            4..7 => self.by_hand().await,
            7 => self.repair(),
            8 => {
                let (name, delete) = ("gitea".to_owned(), self.dice.below(2) == 0);
                if delete && !self.said.declared {
                    self.judge.seen().deletes.push(Instant::now());
                }
                let (reply, _) = Reply::channel();
                self.world.send(match delete {
                    true => HerdCommand::DeleteMachine { name, reply },
                    false => HerdCommand::ForgetMachine { name, reply },
                });
            }
            9 => {
                let faults = self.weather();
                self.world.faults(faults);
            }
            10 => {
                let away = one_of(&mut self.dice, &[5, 100, 400]);
                let split = self.dice.below(2) == 0;
                let cut = |away: bool| match split {
                    true => {
                        NODES.iter().for_each(|node| self.world.side.set_partitioned(node, away))
                    }
                    false => self.world.ways.cut(0, away),
                };
                cut(true);
                self.pass(away).await;
                cut(false);
            }
            _ => {
                let away = one_of(&mut self.dice, &[1_u32, 20, 200]);
                self.world.crash();
                if self.dice.below(2) == 0 {
                    let said = self.drawn();
                    self.say(said, false);
                }
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

    /// No guest that was made is away but by a hand, or by a destroy that was right.
    fn look(&self) {
        let seen = self.judge.seen();
        assert!(seen.wrongs.is_empty(), "seed {}: {:#?}", self.seed, seen.wrongs);
        for vmid in seen.guests.iter().filter(|(_, (_, made))| *made).map(|(vmid, _)| vmid) {
            let there = self.world.side.config(*vmid).is_some();
            let known = self.removed.contains(vmid) || seen.destroyed.contains(vmid);
            assert!(there || known, "seed {}: guest {vmid} is gone", self.seed);
        }
    }

    /// Everything is calm: the machine is there once, as it is declared.
    async fn end(mut self) {
        self.world.faults(Faults::default());
        self.repair();
        self.say(AT_FIRST, true);
        self.pass(900).await;
        if gitea(self.world.view()).is_some_and(|one| !one.detail.is_empty()) {
            // A guest that was forgotten stands in the way, which a hand removes.
            let known = gitea(self.world.view()).and_then(|one| one.vmid).map(|vmid| vmid.0);
            for vmid in guests(&self.world).into_iter().filter(|vmid| Some(*vmid) != known) {
                self.removed.insert(vmid);
                self.world.side.remove_guest(vmid);
            }
        }
        self.pass(4000).await;
        let status = gitea(self.world.view()).unwrap();
        assert!(runs(self.world.view()), "seed {}: {status:?}", self.seed);
        // What a hand changed while it ran waits for the next restart, which drover never makes.
        let waits =
            |one: &Drift| one.stays.as_ref().is_some_and(|why| why.contains("next restart"));
        assert!(status.drift.iter().all(waits), "seed {}: {status:?}", self.seed);
        let entries = self.world.journal_state().declared;
        assert_eq!(entries.len(), 1, "seed {}: {entries:?}", self.seed);
        assert!(guests(&self.world).contains(&status.vmid.unwrap().0), "seed {}", self.seed);
        self.world.check();
        self.world.judged = true;
    }
}

// Invariant: a machine is destroyed only after it left the configuration, where that was declared or
// commanded; it is corrected only where that is allowed; in the end it is there once, as declared.

#[tokio::test(start_paused = true)]
async fn hands_faults_and_crashes_cost_no_declared_machine() {
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
