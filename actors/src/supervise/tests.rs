//! Supervision under paused time: every kind of panic, one actor at a time.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use actix::{
    Actor, ActorContext, Addr, AsyncContext, Context, Handler, Message, Supervised, WrapFuture,
};
use tokio::task::LocalSet;
use tokio::time::sleep;

use super::*;
use crate::time::{Now, WallTime};

/// A clock that follows tokio's paused one, and a place for facts.
struct World {
    start: tokio::time::Instant,
    facts: Mutex<Vec<Fact>>,
}

impl World {
    #[expect(clippy::disallowed_methods, reason = "the paused clock of the test")]
    fn new() -> Arc<Self> {
        Arc::new(Self { start: tokio::time::Instant::now(), facts: Mutex::default() })
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
        self.facts.lock().unwrap().push(fact);
    }
}

/// What is durable of a worker.
#[derive(Default)]
struct Durable {
    lives: u32,
    done: Vec<&'static str>,
    gone: Option<GivenUp>,
}

/// An actor that does as it is told, and keeps a half changed count.
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
    Stop,
}

impl Actor for Worker {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
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
            Order::Stop => ctx.stop(),
        }
    }
}

impl Handler<Order> for Worker {
    type Result = ();

    fn handle(&mut self, order: Order, ctx: &mut Context<Self>) {
        self.obey(order, ctx);
    }
}

fn start(
    world: &Arc<World>,
    name: &str,
    on_start: Option<Order>,
) -> (Addr<Worker>, Rc<RefCell<Durable>>) {
    let durable = Rc::new(RefCell::new(Durable::default()));
    let told = Rc::clone(&durable);
    let watch = Watch {
        name: name.into(),
        intensity: Intensity::LEAF,
        observer: Arc::clone(world) as Arc<dyn Observer>,
        ambient: Arc::clone(world) as Arc<dyn Ambient>,
        census: Census::default(),
        on_give_up: Box::new(move |given_up| told.borrow_mut().gone = Some(given_up)),
    };
    let worker = Worker { durable: Rc::clone(&durable), half_changed: 0, on_start };
    (supervise(watch, move |_| worker), durable)
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

// Invariant: what panics too often is given up once, and told to its parent.

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
