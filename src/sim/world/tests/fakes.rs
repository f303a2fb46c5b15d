//! Fakes for the tests of the world: access control that denies only `none@pve`, and guests that
//! exist only as a table of processes.

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
use crate::world::{Latency, Spread, World, WorldControl, WorldOptions};

/// Access control that denies only `none@pve`.
#[derive(Debug, Default)]
pub struct AllowAll {
    members: Mutex<BTreeMap<u32, String>>,
}

impl AccessControl for AllowAll {
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
struct FakeProcess {
    since: Instant,
    until: Option<Instant>,
}

/// How fake guests behave.
#[derive(Debug, Clone, Copy)]
pub struct FakeGuestBehaviour {
    /// How long a guest takes to shut down; none ignores the shutdown.
    pub shutdown: Option<Duration>,
    /// How long after its start the agent answers.
    pub agent: Duration,
}

/// Guests that exist only as a table of processes.
#[derive(Debug)]
pub struct FakeGuests {
    processes: Mutex<BTreeMap<u32, FakeProcess>>,
    behaviour: Mutex<FakeGuestBehaviour>,
    /// Every boot so far.
    pub boots: Mutex<Vec<GuestBoot>>,
}

impl Default for FakeGuests {
    fn default() -> Self {
        let behaviour =
            FakeGuestBehaviour { shutdown: Some(Duration::from_secs(4)), agent: Duration::ZERO };
        Self {
            processes: Mutex::default(),
            behaviour: Mutex::new(behaviour),
            boots: Mutex::default(),
        }
    }
}

impl FakeGuests {
    fn processes(&self) -> MutexGuard<'_, BTreeMap<u32, FakeProcess>> {
        self.processes.lock().unwrap()
    }

    pub fn set_behaviour(&self, behaviour: FakeGuestBehaviour) {
        *self.behaviour.lock().unwrap() = behaviour;
    }
}

impl GuestHost for FakeGuests {
    fn boot(&self, boot: GuestBoot) -> BoxFuture<'static, Result<(), String>> {
        self.processes().insert(boot.vmid, FakeProcess { since: Instant::now(), until: None });
        self.boots.lock().unwrap().push(boot);
        ready(Ok(())).boxed()
    }

    fn stop(&self, vmid: u32) -> BoxFuture<'static, ()> {
        self.processes().remove(&vmid);
        ready(()).boxed()
    }

    fn shutdown(&self, vmid: u32) -> BoxFuture<'static, ()> {
        let wait = self.behaviour.lock().unwrap().shutdown;
        if let (Some(process), Some(wait)) = (self.processes().get_mut(&vmid), wait) {
            process.until = Some(Instant::now() + wait);
        }
        ready(()).boxed()
    }

    fn running(&self, vmid: u32) -> bool {
        let processes = self.processes();
        processes
            .get(&vmid)
            .is_some_and(|process| process.until.is_none_or(|until| Instant::now() < until))
    }

    fn agent_ready_in(&self, vmid: u32) -> Option<Duration> {
        let delay = self.behaviour.lock().unwrap().agent;
        Some(delay.saturating_sub(self.processes().get(&vmid)?.since.elapsed()))
    }

    fn agent(&self, vmid: u32, call: AgentCall) -> BoxFuture<'static, Result<Value, AgentError>> {
        let delay = self.behaviour.lock().unwrap().agent;
        let up =
            self.processes().get(&vmid).is_some_and(|process| process.since.elapsed() >= delay);
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

    fn forget(&self, vmid: u32) {
        self.processes().remove(&vmid);
    }
}

/// A world with its fakes.
pub struct TestCluster {
    pub world: Arc<World>,
    pub guests: Arc<FakeGuests>,
    pub control: WorldControl,
    /// The default caller.
    pub caller: Caller,
}

/// Durations in whole seconds, so that tests can state when something happens.
pub fn fixed_latency() -> Latency {
    let second = |n: f64| Spread::of(n, n);
    Latency {
        clone_linked: second(2.0),
        copy_bytes_per_second: Spread::of(1e9, 1e9),
        start: second(1.0),
        ..Latency::none()
    }
}

impl TestCluster {
    /// The three default nodes without any delay.
    pub fn instant() -> Self {
        Self::with(WorldOptions { latency: Latency::none(), ..WorldOptions::default() })
    }

    /// The three default nodes with fixed durations.
    pub fn with_fixed_latency() -> Self {
        Self::with(WorldOptions { latency: fixed_latency(), ..WorldOptions::default() })
    }

    /// The three default nodes with these options.
    pub fn with(options: WorldOptions) -> Self {
        Self::of(&ClusterSpec::three_nodes("secret", "token"), options)
    }

    pub fn of(spec: &ClusterSpec, options: WorldOptions) -> Self {
        let guests = Arc::new(FakeGuests::default());
        let rights = Arc::new(AllowAll::default());
        let world = World::new(spec, options, rights, guests.clone());
        let control = world.control();
        let caller = Caller { userid: "root@pam".into(), token: Some("drover".into()) };
        Self { world, guests, control, caller }
    }

    /// Makes a call as the API front end would.
    pub async fn call(&self, method: &'static str, route: &'static str, with: Value) -> Outcome {
        self.call_as(&self.caller, method, route, with).await
    }

    /// Makes a call as another caller.
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

    /// The data of a GET that must succeed.
    pub async fn get(&self, route: &'static str, with: Value) -> Value {
        self.call("GET", route, with).await.unwrap().value()
    }

    /// Makes a call below a VM on `pve1`, unless `with` names another node.
    pub async fn vm_call(
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

    /// Makes a call that must start a task; returns its UPID.
    pub async fn start_task(
        &self,
        vmid: u32,
        method: &'static str,
        rest: &'static str,
        with: Value,
    ) -> String {
        self.vm_call(vmid, method, rest, with).await.unwrap().data.as_str().unwrap().to_owned()
    }

    /// Makes a call that must start a task; returns the exit status.
    pub async fn run_task(
        &self,
        vmid: u32,
        method: &'static str,
        rest: &'static str,
        with: Value,
    ) -> String {
        let upid = self.start_task(vmid, method, rest, with).await;
        self.task_end(&upid).await
    }

    /// Waits for the end of a task; returns the exit status.
    pub async fn task_end(&self, upid: &str) -> String {
        loop {
            let status = self.task(upid).await;
            if let Some(status) = status["exitstatus"].as_str() {
                return status.to_owned();
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub async fn task(&self, upid: &str) -> Value {
        let node = upid.split(':').nth(1).unwrap();
        self.get("/nodes/{node}/tasks/{upid}/status", json!({ "upid": upid, "node": node })).await
    }

    /// The complete log of a task.
    pub async fn log(&self, upid: &str) -> Vec<String> {
        let node = upid.split(':').nth(1).unwrap();
        let with = json!({ "upid": upid, "limit": 0, "node": node });
        let lines = self.get("/nodes/{node}/tasks/{upid}/log", with).await;
        lines.as_array().unwrap().iter().map(|l| l["t"].as_str().unwrap().to_owned()).collect()
    }

    /// Creates a linked clone of template 9000 on `pve1`.
    pub async fn clone_to(&self, newid: u32) {
        assert_eq!(self.run_task(9000, "POST", "clone", json!({ "newid": newid })).await, "OK");
    }

    /// The entry of a guest in the inventory of the cluster.
    pub async fn inventory_entry(&self, vmid: u32) -> Option<Value> {
        let lines = self.get("/cluster/resources", json!({ "type": "vm" })).await;
        lines.as_array().unwrap().iter().find(|line| line["vmid"] == vmid).cloned()
    }

    /// The configuration of a VM, through the API.
    pub async fn config(&self, vmid: u32) -> Value {
        self.vm_call(vmid, "GET", "config", json!({})).await.unwrap().data
    }
}

/// The error text of a call that must fail.
pub fn refusal(outcome: Outcome) -> String {
    outcome.map(|Answer { data, .. }| data).unwrap_err().message
}

/// Waits this many seconds.
pub async fn seconds(n: u64) {
    tokio::time::sleep(Duration::from_secs(n)).await;
}
