//! A world to play with: rights that allow everything but to `none@pve`, and guests that are
//! nothing but a table of what runs.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt as _, ready};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::call::{Answer, ApiError, Call, Caller, Outcome, Params};
use crate::guest::{AgentCall, AgentError, GuestAddress, GuestBoot, GuestHost};
use crate::interfaces::{AccessControl, Backend as _};
use crate::spec::ClusterSpec;
use crate::world::{Latency, SideDoor, Spread, World, WorldOptions};

/// Rights that allow everything but to `none@pve`.
#[derive(Debug, Default)]
pub struct Allowing {
    members: Mutex<BTreeMap<u32, String>>,
}

impl AccessControl for Allowing {
    fn check(&self, caller: &Caller, path: &str, privileges: &[&str]) -> Result<(), ApiError> {
        match privileges.iter().find(|privilege| !self.has(caller, path, privilege)) {
            Some(privilege) => Err(ApiError::denied(&format!("{path}, {privilege}"))),
            None => Ok(()),
        }
    }

    fn has(&self, caller: &Caller, _path: &str, _privilege: &str) -> bool {
        caller.userid != "none@pve"
    }

    fn pool_exists(&self, pool: &str) -> bool {
        pool == "ci"
    }

    fn pool_of(&self, vmid: u32) -> Option<String> {
        self.members.lock().unwrap().get(&vmid).cloned()
    }

    fn join_pool(&self, pool: &str, vmid: u32) {
        self.members.lock().unwrap().insert(vmid, pool.to_owned());
    }

    fn forget_guest(&self, vmid: u32) {
        self.members.lock().unwrap().remove(&vmid);
    }

    fn pools(&self) -> Vec<String> {
        vec!["ci".into()]
    }
}

#[derive(Debug, Clone, Copy)]
struct Life {
    since: Instant,
    until: Option<Instant>,
}

/// What hollow guests do.
#[derive(Debug, Clone, Copy)]
pub struct Manners {
    /// How long a guest takes to end after a shutdown; none ignores it.
    pub shutdown: Option<Duration>,
    /// How long after its start the agent answers.
    pub agent: Duration,
}

/// Guests that are nothing but a table of what runs.
#[derive(Debug)]
pub struct Hollow {
    lives: Mutex<BTreeMap<u32, Life>>,
    manners: Mutex<Manners>,
    /// Every boot there was.
    pub boots: Mutex<Vec<GuestBoot>>,
}

impl Default for Hollow {
    fn default() -> Self {
        let manners = Manners { shutdown: Some(Duration::from_secs(4)), agent: Duration::ZERO };
        Self { lives: Mutex::default(), manners: Mutex::new(manners), boots: Mutex::default() }
    }
}

impl Hollow {
    fn lives(&self) -> MutexGuard<'_, BTreeMap<u32, Life>> {
        self.lives.lock().unwrap()
    }

    /// Changes what guests do.
    pub fn behave(&self, manners: Manners) {
        *self.manners.lock().unwrap() = manners;
    }
}

impl GuestHost for Hollow {
    fn boot(&self, boot: GuestBoot) -> BoxFuture<'static, Result<(), String>> {
        self.lives().insert(boot.vmid, Life { since: Instant::now(), until: None });
        self.boots.lock().unwrap().push(boot);
        ready(Ok(())).boxed()
    }

    fn stop(&self, vmid: u32) -> BoxFuture<'static, ()> {
        self.lives().remove(&vmid);
        ready(()).boxed()
    }

    fn shutdown(&self, vmid: u32) -> BoxFuture<'static, ()> {
        let wait = self.manners.lock().unwrap().shutdown;
        if let (Some(life), Some(wait)) = (self.lives().get_mut(&vmid), wait) {
            life.until = Some(Instant::now() + wait);
        }
        ready(()).boxed()
    }

    fn running(&self, vmid: u32) -> bool {
        let lives = self.lives();
        lives.get(&vmid).is_some_and(|life| life.until.is_none_or(|until| Instant::now() < until))
    }

    fn agent_ready_in(&self, vmid: u32) -> Option<Duration> {
        let delay = self.manners.lock().unwrap().agent;
        Some(delay.saturating_sub(self.lives().get(&vmid)?.since.elapsed()))
    }

    fn agent(&self, vmid: u32, call: AgentCall) -> BoxFuture<'static, Result<Value, AgentError>> {
        let delay = self.manners.lock().unwrap().agent;
        let up = self.lives().get(&vmid).is_some_and(|life| life.since.elapsed() >= delay);
        let answer = match call {
            _ if !up => Err(AgentError::NotRunning),
            AgentCall::NetworkInterfaces => Ok(json!([{
                "name": "eth0",
                "ip-addresses":
                    [{ "ip-address": "10.0.0.5", "ip-address-type": "ipv4", "prefix": 24 }],
            }])),
            AgentCall::Get(_) => Err(AgentError::Refused {
                class: "CommandNotFound".into(),
                desc: "Command has been disabled".into(),
            }),
            AgentCall::FileRead { .. } => Err(AgentError::Refused {
                class: "GenericError".into(),
                desc: "no such file".into(),
            }),
            AgentCall::Exec { .. } => Ok(json!({ "pid": 7 })),
            AgentCall::ExecStatus { .. } => {
                Ok(json!({ "exited": true, "exitcode": 3, "out-data": "b/9r" }))
            }
            AgentCall::Ping | AgentCall::Info | AgentCall::FileWrite { .. } => Ok(json!({})),
        };
        ready(answer).boxed()
    }

    fn address(&self, vmid: u32) -> Option<GuestAddress> {
        let ip = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 5));
        self.running(vmid).then_some(GuestAddress { ip, port: 22 })
    }

    fn snapshot(&self, _vmid: u32, _name: &str) {}

    fn rollback(&self, _vmid: u32, _name: &str) {}

    fn clone_disk(&self, _from: u32, _to: u32) {}

    fn forget(&self, vmid: u32) {
        self.lives().remove(&vmid);
    }
}

/// A world with its fakes.
pub struct Play {
    /// The world.
    pub world: Arc<World>,
    /// Its guests.
    pub guests: Arc<Hollow>,
    /// The way round its API.
    pub side: SideDoor,
    /// Who calls.
    pub caller: Caller,
}

/// Times in whole seconds, so that tests can say what happens when.
pub fn steady() -> Latency {
    let second = |n: f64| Spread::of(n, n);
    Latency {
        clone_linked: second(2.0),
        copy_bytes_per_second: Spread::of(1e9, 1e9),
        start: second(1.0),
        ..Latency::none()
    }
}

impl Play {
    /// The three nodes, where everything takes no time.
    pub fn at_once() -> Self {
        Self::with(WorldOptions { latency: Latency::none(), ..WorldOptions::default() })
    }

    /// The three nodes with steady times.
    pub fn steady() -> Self {
        Self::with(WorldOptions { latency: steady(), ..WorldOptions::default() })
    }

    /// The three nodes, played as these options say.
    pub fn with(options: WorldOptions) -> Self {
        Self::of(&ClusterSpec::three_nodes("secret", "token"), options)
    }

    /// Any cluster.
    pub fn of(spec: &ClusterSpec, options: WorldOptions) -> Self {
        let guests = Arc::new(Hollow::default());
        let rights = Arc::new(Allowing::default());
        let world = World::new(spec, options, rights, guests.clone());
        let side = world.side_door();
        let caller = Caller { userid: "root@pam".into(), token: Some("drover".into()) };
        Self { world, guests, side, caller }
    }

    /// Makes a call as the door would.
    pub async fn call(&self, method: &'static str, route: &'static str, with: Value) -> Outcome {
        self.call_as(&self.caller, method, route, with).await
    }

    /// Makes a call as somebody else.
    pub async fn call_as(
        &self,
        caller: &Caller,
        method: &'static str,
        route: &'static str,
        with: Value,
    ) -> Outcome {
        let mut params = Params::default();
        for (name, value) in with.as_object().unwrap() {
            params.0.insert(name.clone(), value.clone());
        }
        if route.starts_with("/nodes/{node}") && !params.0.contains_key("node") {
            params.0.insert("node".into(), "pve1".into());
        }
        let node = params.text("node");
        let caller = caller.clone();
        let handled_by = node.clone().unwrap_or_else(|| "pve1".to_owned());
        let protected = method != "GET" || route.contains("/agent/");
        let received_by = "pve1".to_owned();
        let file = None;
        self.world
            .call(Call {
                caller,
                received_by,
                handled_by,
                protected,
                method,
                route,
                node,
                params,
                file,
            })
            .await
    }

    /// The data of a call that must succeed.
    pub async fn get(&self, route: &'static str, with: Value) -> Value {
        self.call("GET", route, with).await.unwrap().value()
    }

    /// A call below a guest on the node of its id.
    pub async fn on(
        &self,
        vmid: u32,
        method: &'static str,
        rest: &'static str,
        with: Value,
    ) -> Outcome {
        let mut with = with;
        with["vmid"] = vmid.into();
        let route: &'static str = match rest {
            "" => "/nodes/{node}/qemu/{vmid}",
            rest => Box::leak(format!("/nodes/{{node}}/qemu/{{vmid}}/{rest}").into_boxed_str()),
        };
        self.call(method, route, with).await
    }

    /// The UPID of a call that must start a task.
    pub async fn begin(
        &self,
        vmid: u32,
        method: &'static str,
        rest: &'static str,
        with: Value,
    ) -> String {
        self.on(vmid, method, rest, with).await.unwrap().data.as_str().unwrap().to_owned()
    }

    /// How the task of a call ends.
    pub async fn run(
        &self,
        vmid: u32,
        method: &'static str,
        rest: &'static str,
        with: Value,
    ) -> String {
        let upid = self.begin(vmid, method, rest, with).await;
        self.end_of(&upid).await
    }

    /// How a task ends.
    pub async fn end_of(&self, upid: &str) -> String {
        loop {
            let status = self.task(upid).await;
            if let Some(status) = status["exitstatus"].as_str() {
                return status.to_owned();
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// A task's status.
    pub async fn task(&self, upid: &str) -> Value {
        let node = upid.split(':').nth(1).unwrap();
        self.get("/nodes/{node}/tasks/{upid}/status", json!({ "upid": upid, "node": node })).await
    }

    /// A task's whole log.
    pub async fn log(&self, upid: &str) -> Vec<String> {
        let node = upid.split(':').nth(1).unwrap();
        let with = json!({ "upid": upid, "limit": 0, "node": node });
        let lines = self.get("/nodes/{node}/tasks/{upid}/log", with).await;
        lines.as_array().unwrap().iter().map(|l| l["t"].as_str().unwrap().to_owned()).collect()
    }

    /// A linked clone of template 9000 on `pve1`, ready.
    pub async fn clone_to(&self, newid: u32) {
        assert_eq!(self.run(9000, "POST", "clone", json!({ "newid": newid })).await, "OK");
    }

    /// A guest's line in the cluster's inventory.
    pub async fn line(&self, vmid: u32) -> Option<Value> {
        let lines = self.get("/cluster/resources", json!({ "type": "vm" })).await;
        lines.as_array().unwrap().iter().find(|line| line["vmid"] == vmid).cloned()
    }

    /// A guest's configuration through the API.
    pub async fn config(&self, vmid: u32) -> Value {
        self.on(vmid, "GET", "config", json!({})).await.unwrap().data
    }
}

/// The text of a call that must fail.
pub fn refusal(outcome: Outcome) -> String {
    outcome.map(|Answer { data, .. }| data).unwrap_err().message
}

/// Lets time pass.
pub async fn seconds(n: u64) {
    tokio::time::sleep(Duration::from_secs(n)).await;
}
