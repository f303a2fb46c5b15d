//! Supervision under paused time: every kind of panic, one actor at a time.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use actix::{
    Actor, ActorContext, ActorFutureExt, Addr, AsyncContext, Context, Handler, Message, Supervised,
    WrapFuture,
};
use drover_model::time::{Now, WallTime};
use tokio::task::LocalSet;
use tokio::time::sleep;

use super::*;

/// A clock that follows tokio's paused one, and an observer that keeps facts.
struct World {
    start: tokio::time::Instant,
    facts: Mutex<Vec<Fact>>,
    /// Makes the observer panic.
    broken: bool,
}

impl World {
    fn new() -> Arc<Self> {
        Self::make(false)
    }

    #[expect(clippy::disallowed_methods, reason = "the paused clock of the test")]
    fn make(broken: bool) -> Arc<Self> {
        Arc::new(Self { start: tokio::time::Instant::now(), facts: Mutex::default(), broken })
    }

    fn restarts(&self) -> Vec<(String, u32, bool)> {
        let facts = self.facts.lock().unwrap();
        facts
            .iter()
            .filter_map(|fact| match &fact.what {
                What::Restarted { actor, count, gave_up } => {
                    Some((actor.clone(), *count, *gave_up))
                }
                _ => None,
            })
            .collect()
    }
}

impl Ambient for World {
    fn now(&self) -> Now {
        let ms = u64::try_from(self.start.elapsed().as_millis()).unwrap();
        Now { mono: Moment(ms), wall: WallTime(i64::try_from(ms).unwrap()) }
    }

    fn draw(&self) -> u64 {
        4
    }
}

impl Observer for World {
    fn observe(&self, fact: Fact) {
        assert!(!self.broken, "a planned panic");
        self.facts.lock().unwrap().push(fact);
    }
}

/// The durable state of a worker.
#[derive(Default)]
struct Durable {
    lives: u32,
    done: Vec<&'static str>,
    spins: u64,
    gone: Option<GivenUp>,
}

/// An actor that does what its messages say, and has a count that a panic leaves half-changed.
struct Worker {
    durable: Rc<RefCell<Durable>>,
    half_changed: u32,
    on_start: Option<Order>,
}

#[derive(Debug, Clone, Copy, Message)]
#[rtype(result = "()")]
enum Order {
    Work(&'static str),
    PanicInHandler,
    PanicInEffect,
    PanicInTimer,
    PanicWhenDropped,
    /// Sends itself this message again, for ever.
    Spin,
    /// Spawns a future that counts one spin.
    SpinOnce,
    /// Spawns a future that is ready at once and spawns another one, for ever.
    SpinInEffect,
    Stop,
}

impl Actor for Worker {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        limit_turns(ctx);
        self.durable.borrow_mut().lives += 1;
        if let Some(order) = self.on_start {
            self.obey(order, ctx);
        }
    }

    fn stopped(&mut self, _: &mut Context<Self>) {
        assert!(self.half_changed < 100, "stopped with a count out of bounds");
    }
}

impl Supervised for Worker {
    fn restarting(&mut self, _: &mut Context<Self>) {
        let (durable, on_start) = (Rc::clone(&self.durable), self.on_start);
        *self = Self { durable, half_changed: 0, on_start };
    }
}

impl Worker {
    fn obey(&mut self, order: Order, ctx: &mut Context<Self>) {
        assert_eq!(self.half_changed, 0, "it works on a half changed struct");
        match order {
            Order::Work(text) => self.durable.borrow_mut().done.push(text),
            Order::PanicInHandler => {
                self.half_changed = 1;
                panic!("in a handler");
            }
            Order::PanicInEffect => {
                let effect = async {
                    sleep(Duration::from_millis(5)).await;
                    panic!("in an effect");
                };
                ctx.spawn(effect.into_actor(self));
            }
            Order::PanicInTimer => {
                ctx.run_later(Duration::from_millis(5), |worker, _| {
                    worker.half_changed = 1;
                    panic!("in a timer");
                });
            }
            Order::PanicWhenDropped => {
                self.half_changed = 100;
                panic!("and again when dropped");
            }
            Order::Spin => {
                self.durable.borrow_mut().spins += 1;
                ctx.notify(Order::Spin);
            }
            Order::SpinOnce => {
                let ready = async {}.into_actor(self);
                ctx.spawn(ready.map(|(), worker, _| worker.durable.borrow_mut().spins += 1));
            }
            Order::SpinInEffect => {
                self.durable.borrow_mut().spins += 1;
                let ready = async {}.into_actor(self);
                ctx.spawn(ready.map(|(), worker, ctx| worker.obey(Order::SpinInEffect, ctx)));
            }
            Order::Stop => ctx.stop(),
        }
    }
}

impl Handler<Order> for Worker {
    type Result = ();

    fn handle(&mut self, order: Order, ctx: &mut Context<Self>) {
        count_message(ctx);
        self.obey(order, ctx);
    }
}

fn start(
    world: &Arc<World>,
    name: &str,
    on_start: Option<Order>,
) -> (Addr<Worker>, Rc<RefCell<Durable>>) {
    start_counted(world, name, on_start, &Census::default())
}

fn start_counted(
    world: &Arc<World>,
    name: &str,
    on_start: Option<Order>,
    census: &Census,
) -> (Addr<Worker>, Rc<RefCell<Durable>>) {
    let durable = Rc::new(RefCell::new(Durable::default()));
    let reported = Rc::clone(&durable);
    let options = SupervisionOptions {
        name: name.into(),
        restart_limit: RestartLimit::LEAF,
        observer: Arc::clone(world) as Arc<dyn Observer>,
        ambient: Arc::clone(world) as Arc<dyn Ambient>,
        census: census.clone(),
        on_give_up: Box::new(move |given_up| reported.borrow_mut().gone = Some(given_up)),
    };
    let worker = Worker { durable: Rc::clone(&durable), half_changed: 0, on_start };
    (supervise(options, move |_| worker), durable)
}

async fn pause() {
    sleep(Duration::from_secs(1)).await;
}

// Invariant: a panic restarts that actor alone, rebuilt, at the same address, with its mailbox.

#[tokio::test(start_paused = true)]
async fn a_panic_anywhere_restarts_that_actor_alone() {
    let run = async {
        for order in [Order::PanicInHandler, Order::PanicInEffect, Order::PanicInTimer] {
            let world = World::new();
            let (address, durable) = start(&world, "one", None);
            let (other, neighbour) = start(&world, "other", None);
            address.do_send(order);
            pause().await;
            address.do_send(Order::Work("after"));
            other.do_send(Order::Work("beside"));
            pause().await;
            assert_eq!((durable.borrow().lives, neighbour.borrow().lives), (2, 1), "{order:?}");
            assert_eq!(durable.borrow().done, ["after"]);
            assert_eq!(neighbour.borrow().done, ["beside"]);
            assert_eq!(world.restarts(), [("one".to_owned(), 1, false)]);
        }
    };
    LocalSet::new().run_until(run).await;
}

#[tokio::test(start_paused = true)]
async fn messages_behind_the_one_that_panicked_are_kept() {
    let run = async {
        let world = World::new();
        let (address, durable) = start(&world, "one", None);
        address.do_send(Order::PanicInHandler);
        address.do_send(Order::Work("first"));
        address.do_send(Order::Work("second"));
        pause().await;
        assert_eq!(durable.borrow().done, ["first", "second"]);
    };
    LocalSet::new().run_until(run).await;
}

#[tokio::test(start_paused = true)]
async fn effects_of_the_incarnation_before_are_forgotten() {
    let run = async {
        let world = World::new();
        let (address, durable) = start(&world, "one", None);
        address.do_send(Order::PanicInTimer);
        address.do_send(Order::PanicInHandler);
        sleep(Duration::from_secs(30)).await;
        assert_eq!(durable.borrow().lives, 2);
    };
    LocalSet::new().run_until(run).await;
}

#[tokio::test(start_paused = true)]
async fn an_actor_lives_without_anybody_holding_its_address() {
    let run = async {
        let world = World::new();
        let (address, durable) = start(&world, "one", None);
        address.do_send(Order::PanicInHandler);
        address.do_send(Order::Work("last will"));
        drop(address);
        pause().await;
        assert_eq!(durable.borrow().done, ["last will"]);
    };
    LocalSet::new().run_until(run).await;
}

// Invariant: an actor that panics too often is given up once, and its parent learns of it.

#[tokio::test(start_paused = true)]
async fn more_restarts_than_are_borne_escalate() {
    let run = async {
        let world = World::new();
        let (address, durable) = start(&world, "one", None);
        for _ in 0..4 {
            address.do_send(Order::PanicInHandler);
            pause().await;
        }
        let given_up = durable.borrow().gone.clone().unwrap();
        assert_eq!((given_up.restarts, given_up.panic.as_str()), (4, "in a handler"));
        assert_eq!(world.restarts().last(), Some(&("one".to_owned(), 4, true)));
        assert!(address.try_send(Order::Work("nobody")).is_err());
        assert_eq!(durable.borrow().lives, 4);
    };
    LocalSet::new().run_until(run).await;
}

#[tokio::test(start_paused = true)]
async fn rare_panics_are_borne_for_ever() {
    let run = async {
        let world = World::new();
        let (address, durable) = start(&world, "one", None);
        for _ in 0..20 {
            address.do_send(Order::PanicInHandler);
            sleep(Duration::from_secs(6)).await;
        }
        assert_eq!((durable.borrow().lives, &durable.borrow().gone), (21, &None));
    };
    LocalSet::new().run_until(run).await;
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_started_is_given_up_and_does_not_spin() {
    let run = async {
        let world = World::new();
        let (_address, durable) = start(&world, "one", Some(Order::PanicInHandler));
        sleep(Duration::from_secs(60)).await;
        assert_eq!(durable.borrow().lives, 4);
        assert!(durable.borrow().gone.is_some());
    };
    LocalSet::new().run_until(run).await;
}

#[tokio::test(start_paused = true)]
async fn a_second_panic_while_being_dropped_hurts_nobody() {
    let run = async {
        let world = World::new();
        let (_address, durable) = start(&world, "one", Some(Order::PanicWhenDropped));
        let (other, neighbour) = start(&world, "other", None);
        sleep(Duration::from_secs(60)).await;
        other.do_send(Order::Work("well"));
        pause().await;
        assert!(durable.borrow().gone.is_some());
        assert_eq!(neighbour.borrow().done, ["well"]);
    };
    LocalSet::new().run_until(run).await;
}

// Invariant: an actor that stops by itself stays stopped.

#[tokio::test(start_paused = true)]
async fn a_stop_in_started_does_not_spin() {
    let run = async {
        let world = World::new();
        let (address, durable) = start(&world, "one", Some(Order::Stop));
        sleep(Duration::from_secs(60)).await;
        assert_eq!((durable.borrow().lives, &durable.borrow().gone), (1, &None));
        assert!(world.restarts().is_empty());
        assert!(address.try_send(Order::Work("nobody")).is_err());
    };
    LocalSet::new().run_until(run).await;
}

// Invariant: an observer that fails keeps no panicking actor alive.

#[tokio::test(start_paused = true)]
async fn an_actor_whose_panics_cannot_be_reported_is_given_up() {
    let run = async {
        let world = World::make(true);
        let (address, durable) = start(&world, "one", None);
        address.do_send(Order::PanicInHandler);
        pause().await;
        assert_eq!(durable.borrow().gone.as_ref().unwrap().panic, "in a handler");
        assert!(address.try_send(Order::Work("nobody")).is_err());
    };
    LocalSet::new().run_until(run).await;
}

// Invariant: the time of the restart limit slides and includes its end, and the pause follows it.

#[tokio::test(start_paused = true)]
async fn the_fourth_panic_counts_until_the_first_is_more_than_ten_seconds_old() {
    for (after, given_up) in [(10_000, true), (10_001, false)] {
        let run = async {
            let world = World::new();
            let (address, durable) = start(&world, "one", None);
            let started = world.now().mono;
            for _ in 0..3 {
                address.do_send(Order::PanicInHandler);
                pause().await;
            }
            let passed = world.now().mono - started;
            sleep(Duration::from_millis(after) - passed).await;
            address.do_send(Order::PanicInHandler);
            pause().await;
            assert_eq!(durable.borrow().gone.is_some(), given_up, "{after} ms");
        };
        LocalSet::new().run_until(run).await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_pause_doubles_within_the_span_and_starts_again_after_it() {
    let run = async {
        let world = World::new();
        let (address, durable) = start(&world, "one", None);
        for (pause, lives) in [(100, 2), (200, 3), (400, 4)] {
            address.do_send(Order::PanicInHandler);
            sleep(Duration::from_millis(pause - 1)).await;
            assert_eq!(durable.borrow().lives, lives - 1, "after {pause} ms");
            sleep(Duration::from_millis(2)).await;
            assert_eq!(durable.borrow().lives, lives, "after {pause} ms");
        }
        sleep(Duration::from_secs(11)).await;
        address.do_send(Order::PanicInHandler);
        sleep(Duration::from_millis(101)).await;
        assert_eq!(durable.borrow().lives, 5);
    };
    LocalSet::new().run_until(run).await;
}

#[tokio::test(start_paused = true)]
async fn messages_that_come_during_the_pause_are_kept() {
    let run = async {
        let world = World::new();
        let (address, durable) = start(&world, "one", None);
        address.do_send(Order::PanicInHandler);
        sleep(Duration::from_millis(50)).await;
        address.do_send(Order::Work("meanwhile"));
        sleep(Duration::from_millis(10)).await;
        assert_eq!(durable.borrow().done, Vec::<&str>::new());
        pause().await;
        assert_eq!(durable.borrow().done, ["meanwhile"]);
    };
    LocalSet::new().run_until(run).await;
}

// Invariant: two actors that panic at the same time are restarted separately.

#[tokio::test(start_paused = true)]
async fn two_actors_that_panic_at_once_both_come_back() {
    let run = async {
        let world = World::new();
        let (one, first) = start(&world, "one", None);
        let (two, second) = start(&world, "two", None);
        one.do_send(Order::PanicInHandler);
        two.do_send(Order::PanicInHandler);
        pause().await;
        assert_eq!((first.borrow().lives, second.borrow().lives), (2, 2));
        let reported = world.restarts();
        assert_eq!(reported, [("one".to_owned(), 1, false), ("two".to_owned(), 1, false)]);
    };
    LocalSet::new().run_until(run).await;
}

// Invariant: an actor with endless work leaves the others their turns.

#[tokio::test(start_paused = true)]
async fn an_actor_that_spins_does_not_starve_another() {
    // After a restart too.
    for (order, panics) in [(Order::Spin, 0), (Order::SpinInEffect, 0), (Order::Spin, 1)] {
        let run = async {
            let world = World::new();
            let (spinner, spun) = start(&world, "spinner", None);
            let (other, neighbour) = start(&world, "other", None);
            for _ in 0..panics {
                spinner.do_send(Order::PanicInHandler);
                pause().await;
            }
            spinner.do_send(order);
            for turn in 1..=20 {
                other.do_send(Order::Work("beside"));
                for _ in 0..3 {
                    tokio::task::yield_now().await;
                }
                assert_eq!(neighbour.borrow().done.len(), turn, "{order:?}");
            }
            assert!(spun.borrow().spins >= 20, "{order:?}: it spins");
        };
        LocalSet::new().run_until(run).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_flooded_actor_does_not_starve_another() {
    const FLOOD: usize = 100_000;
    // After a restart too, which keeps the mailbox.
    for panics in [0, 1] {
        let run = async {
            let world = World::new();
            let (flooded, handled) = start(&world, "flooded", None);
            let (other, neighbour) = start(&world, "other", None);
            for _ in 0..panics {
                flooded.do_send(Order::PanicInHandler);
            }
            for _ in 0..FLOOD {
                flooded.do_send(Order::Work("one of many"));
            }
            if panics > 0 {
                sleep(FIRST_RESTART_PAUSE).await;
            }
            let mut turns = 0;
            while handled.borrow().done.len() < FLOOD {
                turns += 1;
                let before = handled.borrow().done.len();
                other.do_send(Order::Work("beside"));
                tokio::task::yield_now().await;
                let now = handled.borrow().done.len();
                assert!(now - before <= 1000, "{} messages in one turn", now - before);
                let count_message = neighbour.borrow().done.len();
                assert!(
                    count_message + 2 >= turns,
                    "{count_message} of {turns}, {now} of the flood"
                );
            }
            // Its own timers and futures get their turns, too, and messages keep their order.
            flooded.do_send(Order::Work("last"));
            pause().await;
            assert_eq!(handled.borrow().done.last(), Some(&"last"));
            assert_eq!(handled.borrow().done.len(), FLOOD + 1);
        };
        LocalSet::new().run_until(run).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_flooded_actor_goes_on_with_its_own_futures() {
    let run = async {
        let world = World::new();
        let (flooded, handled) = start(&world, "flooded", None);
        flooded.do_send(Order::SpinOnce);
        for _ in 0..100_000 {
            flooded.do_send(Order::Work("one of many"));
        }
        while handled.borrow().spins == 0 {
            tokio::task::yield_now().await;
        }
        assert!(handled.borrow().done.len() < 10_000, "it waits behind the flood");
    };
    LocalSet::new().run_until(run).await;
}

// Invariant: the census counts exactly the living actors.

#[tokio::test(start_paused = true)]
async fn the_census_counts_an_actor_from_its_start_through_its_restarts_to_its_end() {
    let run = async {
        let (world, census) = (World::new(), Census::default());
        let (one, _) = start_counted(&world, "one", None, &census);
        let (twin, _) = start_counted(&world, "one", None, &census);
        let (two, gone) = start_counted(&world, "two", None, &census);
        assert_eq!(census.names(), ["one", "one", "two"]);
        one.do_send(Order::PanicInHandler);
        sleep(Duration::from_millis(50)).await;
        assert_eq!(census.names(), ["one", "one", "two"], "it waits for its restart");
        one.do_send(Order::Stop);
        for _ in 0..4 {
            two.do_send(Order::PanicInHandler);
            pause().await;
        }
        assert!(gone.borrow().gone.is_some());
        assert_eq!(census.names(), ["one"]);
        drop(twin);
        pause().await;
        assert_eq!(census.names(), ["one"], "it lives although its address was dropped");
    };
    LocalSet::new().run_until(run).await;
}
