//! A scripted herd behind a real web, for the tests of the API and of the command line.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panicking")]

mod machine;
mod members;
mod reports;
mod terminals;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use actix::{Actor, Context, Handler, Recipient, System};
use drover_actors::message::{
    ClusterConfirmed, HerdCommand, ImageImported, ImagesPruned, ImagesSeen, NodesSeen, Provisioned,
    Refusal,
};
use drover_audit::{Audit, Options};
use drover_ci::{HookAuth, HookSecret, Hooks};
use drover_model::demand::report::Subject;
use drover_model::fact::{Fact, What};
use drover_model::finding::{Does, Finding};
use drover_model::id::{
    AgentId, CloudId, ClusterId, LeaseId, NodeName, SourceId, TemplateId, VmId,
};
use drover_model::image::ImagePlan;
use drover_model::journal_state::JournalState;
use drover_model::overridden::{CloudOverrides, TemplateOverrides};
use drover_model::phase::{AgentPhase, BreakerPhase, LeasePhase};
use drover_model::placement::report::WhyReport;
use drover_model::plan::Plan;
use drover_model::ports::Observer;
use drover_model::record::{HoldOwner, LeaseAsk, Want};
use drover_model::status::{AgentStatus, LeaseStatus, TemplateStatus};
use drover_model::tenant::By;
use drover_model::time::WallTime;
use drover_shell::user_data::UserDataStore;
use drover_vault::MemoryVault;
use reqwest::Method;
use secrecy::SecretString;
use serde_json::Value;

use super::auth::{Auth, TokenGrant};
use super::house::Limits;
use super::server::{Listen, Running, bind};
use super::session::SessionKey;
use super::state::{Doors, HistoryDoor, NotForgotten, NotReloaded, NotSynced};
use crate::view::View;
use drover_api::Role;

pub use members::{members, members_key};

pub const THEN: WallTime = WallTime(1_795_248_662_000);

struct Scripted(Box<dyn FnMut(HerdCommand) + Send>);

impl Actor for Scripted {
    type Context = Context<Self>;
}

impl Handler<HerdCommand> for Scripted {
    type Result = ();

    fn handle(&mut self, command: HerdCommand, _: &mut Context<Self>) {
        (self.0)(command);
    }
}

fn spawn(script: impl FnMut(HerdCommand) + Send + 'static) -> (Recipient<HerdCommand>, System) {
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let system = System::new();
        let current = System::current();
        system.block_on(async move {
            let herd = Scripted(Box::new(script)).start().recipient();
            sender.send((herd, current)).expect("the test waits");
        });
        system.run().expect("the system runs");
    });
    receiver.recv().expect("the system starts")
}

/// A lease as it is reported to the view.
pub fn lease(id: &str, state: LeasePhase, agent: Option<&str>, detail: &str) -> LeaseStatus {
    LeaseStatus {
        lease: LeaseId::new(id),
        state,
        agent: agent.map(AgentId::new),
        owner: "tester".into(),
        principal: "token:operator".into(),
        group: None,
        wants: "labels `linux`".into(),
        want: None,
        whole: false,
        asked: None,
        granted: None,
        expires: agent.map(|_| THEN + Duration::from_secs(3600)),
        detail: detail.into(),
    }
}

/// An agent as it is reported to the view.
pub fn agent(id: &str, state: AgentPhase) -> AgentStatus {
    let template = TemplateId::new(CloudId::new("lab"), "linux");
    AgentStatus {
        phase: state,
        vmid: Some(VmId(10417)),
        node: Some(NodeName::new("pve1")),
        address: Some("127.77.0.9".into()),
        ssh: Some((2222, "ci".into())),
        host_keys: vec!["ecdsa-sha2-nistp256 AAAAE".into(), "ssh-ed25519 AAAAC3".into()],
        way_in: Some(terminals::way_in()),
        uses: 1,
        phases: [(AgentPhase::Cloning, 1200), (AgentPhase::Booting, 4000)]
            .map(|(phase, ms)| (phase.to_string(), ms))
            .into(),
        ..AgentStatus::started(AgentId::new(id), template, THEN)
    }
}

/// A template without agents as it is reported to the view.
pub fn empty_template() -> What {
    What::Template(Box::new(TemplateStatus {
        template: TemplateId::new(CloudId::new("lab"), "linux"),
        states: [].into(),
        cap: None,
        minimum: 0,
        idle_minimum: 0,
        labels: Vec::new(),
        max_uses: None,
        executors: 1,
        breaker: BreakerPhase::Closed,
        tripped: None,
        lack: None,
        source: None,
        paused: None,
        canary: None,
        outdated: 0,
        overrides: TemplateOverrides::default(),
    }))
}

/// Reports to the view.
pub fn reported(view: &View, what: What) {
    view.observe(Fact { at: THEN, what });
}

/// A herd that keeps a book of leases and does nothing for them; template `nope` is unknown, and
/// template `quick` is ready at once on agent `a1`.
fn book(view: Arc<View>, asks: Arc<Mutex<Vec<LeaseAsk>>>) -> impl FnMut(HerdCommand) + Send {
    move |command| match command {
        HerdCommand::Lease { ask, reply } => {
            let mut asks = asks.lock().unwrap();
            let known = asks.iter().find(|other| {
                other.key_hash.is_some()
                    && other.key_hash == ask.key_hash
                    && other.principal == ask.principal
            });
            let answer = match known {
                Some(known) if known.body_hash == ask.body_hash => Ok(known.lease.clone()),
                Some(_) => Err(Refusal::Conflict("the key stands for another lease".into())),
                None if ask.want == Want::Template("nope".into()) => {
                    Err(Refusal::Unknown("no template `nope`; known are lab/linux".into()))
                }
                None => {
                    let quick = ask.want == Want::Template("quick".into());
                    let id = ask.lease.as_str();
                    reported(&view, What::Agent(Arc::new(agent("a1", AgentPhase::Leased))));
                    let first = lease(id, LeasePhase::Waiting, None, "no agent is free");
                    reported(&view, What::Lease(Box::new(first)));
                    if quick {
                        let ready = lease(id, LeasePhase::Ready, Some("a1"), "");
                        reported(&view, What::Lease(Box::new(ready)));
                    }
                    asks.push((*ask).clone());
                    Ok(ask.lease.clone())
                }
            };
            reply.send(answer);
        }
        HerdCommand::Renew { lease, ttl, by, reply } => {
            let answer = known(&view, &lease, &by).map(|_| THEN + ttl);
            reply.send(answer);
        }
        HerdCommand::Release { lease: id, by, reply } => {
            let answer = known(&view, &id, &by).map(|status| {
                let ended =
                    LeaseStatus { state: LeasePhase::Ended, detail: "released".into(), ..status };
                reported(&view, What::Lease(Box::new(ended)));
            });
            reply.send(answer);
        }
        HerdCommand::Retire { agent, reply, .. } => {
            let missing = || Refusal::Unknown(format!("no agent `{agent}`"));
            reply.send(view.agent(&agent).map(|_| ()).ok_or_else(missing));
        }
        HerdCommand::Override { agent, change, reply } => {
            let missing = || Refusal::Unknown(format!("no agent `{agent}` lives"));
            let answer = view.agent(&agent).ok_or_else(missing).map(|mut status| {
                Arc::make_mut(&mut status).overrides.change(change);
                reported(&view, What::Agent(Arc::clone(&status)));
                status.overrides
            });
            reply.send(answer);
        }
        HerdCommand::OverrideTemplate { template, change, reply } => {
            let missing = || Refusal::Unknown(format!("no template is called `{template}`"));
            let known = TemplateId::new(CloudId::new("lab"), "linux");
            let found = known.answers_to(&template).then_some(known).ok_or_else(missing);
            reply.send(found.map(|id| (id, TemplateOverrides::default().changed(&change))));
        }
        HerdCommand::OverrideCloud { cloud, cap, reply } => {
            let missing = || Refusal::Unknown(format!("no cloud `{cloud}` is configured"));
            let found = (cloud.as_str() == "lab").then_some(()).ok_or_else(missing);
            reply.send(found.map(|()| CloudOverrides { cap: cap.to(None) }));
        }
        HerdCommand::UndoOverrides { reply, .. } => reply.send(Ok(0)),
        HerdCommand::Plan { reply, .. } => reply.send(Plan::default()),
        HerdCommand::Hold { agent, hold, by, reply } => {
            let missing = || Refusal::Unknown(format!("no agent `{agent}` lives"));
            let answer = view.agent(&agent).ok_or_else(missing).map(|status| {
                let until = hold.map(|hold| THEN + Duration::from_millis(hold.span_ms));
                let state = if until.is_some() { AgentPhase::Held } else { AgentPhase::Retiring };
                let owner = HoldOwner { principal: by.principal, group: by.group };
                let hold_owner = until.map(|_| owner);
                let held_until = until;
                let held =
                    AgentStatus { phase: state, held_until, hold_owner, ..(*status).clone() };
                reported(&view, What::Agent(Arc::new(held)));
            });
            reply.send(answer);
        }
        command @ (HerdCommand::Order { .. }
        | HerdCommand::Machine { .. }
        | HerdCommand::MachineOf { .. }
        | HerdCommand::AdoptMachine(_)
        | HerdCommand::Copy(_)) => machine::answer(&view, command),
        HerdCommand::HoldNext { template, hold, reply, .. } => {
            let known = view.templates().into_iter().find(|one| one.template.answers_to(&template));
            let answer = known.map(|one| {
                let seconds = hold.map(|hold| hold.span_ms / 1000);
                reported(&view, What::HoldNext { template: one.template.clone(), seconds });
                one.template
            });
            let missing = || Refusal::Unknown(format!("no template is called `{template}`"));
            reply.send(answer.ok_or_else(missing));
        }
        HerdCommand::Provision { template, count, trial: _, reply } => {
            let known = view.templates().into_iter().find(|one| one.template.answers_to(&template));
            let answer = known.map(|one| Provisioned {
                template: one.template,
                agents: (1..=count.min(2)).map(|n| AgentId::new(format!("a{n}"))).collect(),
                short: (count > 2).then(|| "lab/linux is full: 2 of 2".into()),
            });
            let missing = || Refusal::Unknown(format!("no template is called `{template}`"));
            reply.send(answer.ok_or_else(missing));
        }
        HerdCommand::Wake { source, reply } => {
            let missing = || Refusal::Unknown(format!("no source `{source}` is configured"));
            reply.send((source.as_str() == "git").then_some(()).ok_or_else(missing));
        }
        HerdCommand::CallIn { agent, peer, said, reply } => {
            let heard = said.first().copied().or(peer).filter(|_| agent.as_str() == "a1");
            let refusal = || Refusal::Conflict("it waits for no call".into());
            reply.send(heard.ok_or_else(refusal));
        }
        HerdCommand::ResetBreaker { name, reply } => {
            let known =
                view.places().into_iter().map(|one| one.scope.to_string()).find(|id| *id == name);
            let missing = || Refusal::Unknown(format!("no breaker is called `{name}`"));
            reply.send(known.ok_or_else(missing));
        }
        HerdCommand::Reap { all, reply } => {
            reply.send(if all { 3 } else { 1 });
        }
        HerdCommand::PlanResync { reply } => {
            let found = |does, vmid, text: &str| Finding::of(does, VmId(vmid), text.to_owned());
            let findings = vec![
                found(Does::Destroy, 10_417, "10417 is an orphan of agent `a7`: is retired"),
                found(Does::Follow, 10_418, "10418 of agent `a1` moved from `pve1` to `pve2`"),
                Finding::reported("node `pve3` is seen offline for 4 s".to_owned()),
            ];
            reply.send(BTreeMap::from([(ClusterId::new("9f31c0aa52e7d410"), Ok(findings))]));
        }
        HerdCommand::ConfirmOlderJournal | HerdCommand::ConfirmMachine => {}
        HerdCommand::ConfirmCluster { cloud, no_guests, reply } => {
            let cluster = ClusterId::new("9f31c0aa52e7d410");
            let now = ClusterId::new("0c5d1a7e42b8f390");
            let unproven = || Refusal::Conflict("this does not show that it is the same".into());
            let confirmed = ClusterConfirmed { cloud, cluster, now, guests: 0 };
            reply.send(no_guests.then_some(confirmed).ok_or_else(unproven));
        }
        HerdCommand::Resync { reply } => {
            let findings = vec!["destroy orphan 10417 on pve1".to_owned()];
            reply.send(BTreeMap::from([(ClusterId::new("9f31c0aa52e7d410"), Ok(findings))]));
        }
        HerdCommand::OrderNode { node, order, reply, .. } => {
            reply.send(reports::ordered(&node, order));
        }
        HerdCommand::Nodes { reply } => {
            reply.send(NodesSeen { nodes: vec![reports::a_node()], unread: Vec::new() });
        }
        HerdCommand::NodesKnown { reply } => reply.send(reports::nodes_known()),
        HerdCommand::Why { template, reply } => {
            let missing = Refusal::Unknown(format!("no template is called `{template}`"));
            let known = view.templates().into_iter().find(|one| one.template.answers_to(&template));
            let report = known.map(|one| WhyReport {
                template: one.template,
                waits: None,
                verdict: Err("node `pve1`: it is in maintenance".into()),
                nodes: vec![(NodeName::new("pve1"), Some("it is in maintenance".into()))],
                untried: vec![(NodeName::new("pve2"), "the template has `node: pve1`".into())],
                keys: BTreeSet::new(),
                doubtful: BTreeSet::from([AgentId::new("doubtful")]),
            });
            reply.send(report.ok_or(missing));
        }
        HerdCommand::Jobs { reply } => {
            reply.send(vec![reports::jobs_of_git(), reports::jobs_of_old()]);
        }
        HerdCommand::Account { subject, reply } => {
            let missing = || Refusal::Unknown("no such thing is known".to_owned());
            let account = match subject {
                Subject::Source(Some(source)) | Subject::Job(source, ..) => Some(source),
                Subject::Source(None) | Subject::Lease(_) => None,
            };
            reply.send(account.map(reports::an_account).ok_or_else(missing));
        }
        HerdCommand::BuildImage(ask) => {
            let node = ask.node.unwrap_or_else(|| NodeName::new("pve1"));
            let (build, version) = (AgentId::new("b1"), AgentId::new("v1"));
            let plan = match ask.dry_run {
                true => ImagePlan::WouldStart { node, version },
                false => ImagePlan::Starts { node, build, version },
            };
            let missing = || Refusal::Unknown(format!("no image is called `{}`", ask.image));
            ask.reply.send((ask.image == "debian").then(|| vec![plan]).ok_or_else(missing));
        }
        HerdCommand::CancelBuild { build, reply } => {
            let missing = || Refusal::Unknown(format!("no build `{build}` runs"));
            reply.send((build.as_str() == "b1").then_some(()).ok_or_else(missing));
        }
        HerdCommand::Images { reply } => {
            let configured =
                vec![(TemplateId::new(CloudId::new("lab"), "debian"), AgentId::new("v1"), true)];
            let unread = vec![(CloudId::new("far"), "it does not answer".to_owned())];
            reply.send(ImagesSeen { configured, versions: Vec::new(), unread });
        }
        HerdCommand::PruneImages { reply, .. } => reply.send(ImagesPruned::default()),
        HerdCommand::ImportImage { image, vmid, reply, .. } => {
            let missing = Refusal::Unknown(format!("no image is called `{image}`"));
            let imported = ImageImported {
                image: TemplateId::new(CloudId::new("lab"), &image),
                version: AgentId::new("v1"),
                node: NodeName::new("pve1"),
                vmid,
                name: "debian-7k2m9qxw-4f8z1c3px9t2vkab".to_owned(),
                unreached: Vec::new(),
            };
            reply.send(if image == "debian" { Ok(imported) } else { Err(missing) });
        }
        HerdCommand::DeleteMachine { name, reply } | HerdCommand::ForgetMachine { name, reply } => {
            reply.send(machine::declared(&name));
        }
        HerdCommand::Drain { reply, .. } => reply.send(()),
    }
}

fn known(view: &View, lease: &LeaseId, by: &By) -> Result<LeaseStatus, Refusal> {
    let known = view.lease(lease);
    let status = known.ok_or_else(|| Refusal::Unknown(format!("no lease `{lease}`")))?;
    if !by.owns(&status.principal, status.group.as_deref()) {
        return Err(Refusal::Forbidden(format!("lease `{lease}` is not of `{}`", by.principal)));
    }
    Ok(status)
}

/// A web that serves on loopback and a Unix socket.
pub struct Served {
    pub view: Arc<View>,
    pub asks: Arc<Mutex<Vec<LeaseAsk>>>,
    pub socket: PathBuf,
    pub base: String,
    pub http: reqwest::Client,
    pub running: Running,
    pub alive: Arc<AtomicBool>,
    /// What comes of a reload.
    pub reload: Arc<Mutex<Result<u64, String>>>,
    doors: Doors,
    pub directory: tempfile::TempDir,
    system: System,
}

/// What a service without a repository says.
fn off() -> NotSynced {
    NotSynced::Off("no repository is configured".to_owned())
}

/// What a service without a store says.
const ALONE: &str = "this drover stands alone: `service.store` names no store";

/// Who may come in: a token for each role, and one with a group.
pub fn auth() -> Auth {
    let tokens = [Role::Viewer, Role::Operator, Role::Admin].map(|role| TokenGrant {
        name: role.to_string(),
        role,
        secret: SecretString::from(format!("{role}-token")),
    });
    let build = TokenGrant {
        name: "build".into(),
        role: Role::Operator,
        secret: SecretString::from("build-token"),
    };
    let tokens = tokens.into_iter().chain(std::iter::once(build));
    let groups = [("token:build".to_owned(), "build".to_owned())];
    Auth::new(tokens, Vec::new()).grouped(groups.into())
}

/// What webhooks of the source `git` are signed with.
pub const HOOK_SECRET: &str = "everybody's";

/// An answer as tests look at it.
pub struct Answer {
    pub status: u16,
    pub kind: String,
    pub body: Value,
}

impl Default for Served {
    /// Serves the book.
    fn default() -> Self {
        let (view, asks) = (View::new(3), Arc::default());
        let script = book(view.clone(), Arc::clone(&asks));
        Self::scripted(view, asks, script, Limits::default())
    }
}

impl Served {
    /// Serves the book as the member of a store that leads.
    pub fn leading() -> Self {
        let view = View::new(3);
        let asks = Arc::default();
        let script = book(view.clone(), Arc::clone(&asks));
        let changed = |doors| Doors {
            members: Arc::new(|| Some(members())),
            transfer: Arc::new(|to| {
                let to = to.unwrap_or_else(|| "b".to_owned());
                let outcome = match &*to {
                    "b" => Ok("member a hands over to b".to_owned()),
                    other => Err(format!("unknown member `{other}`")),
                };
                Box::pin(std::future::ready(outcome))
            }),
            forget_member: Arc::new(|name| {
                let outcome = match &*name {
                    "c" => Ok(()),
                    "a" => Err(NotForgotten::Refused("member `a` leads".to_owned())),
                    "cut-off" => Err(NotForgotten::Failed("no answer came".to_owned())),
                    other => Err(NotForgotten::Unknown(format!("no member is called `{other}`"))),
                };
                Box::pin(std::future::ready(outcome))
            }),
            key: Some(members_key()),
            ..doors
        };
        Self::changed(view, asks, script, Limits::default(), changed)
    }

    /// Serves the book as a leader that reaches its store while `reaches` says so.
    pub fn reaching(reaches: &Arc<AtomicBool>) -> Self {
        let (view, asks, reaches) = (View::new(3), Arc::default(), Arc::clone(reaches));
        let script = book(view.clone(), Arc::clone(&asks));
        let leads = Arc::new(move || reaches.load(Ordering::Relaxed));
        let changed = |doors| Doors { leads, ..doors };
        Self::changed(view, asks, script, Limits::default(), changed)
    }

    /// Serves a script.
    pub fn scripted(
        view: Arc<View>,
        asks: Arc<Mutex<Vec<LeaseAsk>>>,
        script: impl FnMut(HerdCommand) + Send + 'static,
        limits: Limits,
    ) -> Self {
        Self::changed(view, asks, script, limits, |doors| doors)
    }

    fn changed(
        view: Arc<View>,
        asks: Arc<Mutex<Vec<LeaseAsk>>>,
        script: impl FnMut(HerdCommand) + Send + 'static,
        limits: Limits,
        changed: impl FnOnce(Doors) -> Doors,
    ) -> Self {
        let (herd, system) = spawn(script);
        let (count, alive) = (Mutex::new(0), Arc::new(AtomicBool::new(true)));
        let turns = Arc::clone(&alive);
        let reload = Arc::new(Mutex::new(Err("drover.yaml: unknown key".to_owned())));
        let outcome = Arc::clone(&reload);
        let hooks = Arc::new(Hooks::default());
        let secret =
            HookSecret { auth: HookAuth::Signature, secret: HOOK_SECRET.to_owned().into() };
        hooks.replace([(SourceId::new("git"), secret)].into());
        let directory = tempfile::tempdir().unwrap();
        let vault = Arc::new(MemoryVault::default());
        let user_data = Arc::new(UserDataStore::open(vault, &JournalState::default()).unwrap());
        let mut doors = Doors {
            herd,
            view: view.clone(),
            configuration: PathBuf::from("/etc/drover/drover.yaml"),
            reload: Arc::new(move || {
                let outcome = outcome.lock().unwrap().clone();
                Box::pin(std::future::ready(outcome.map_err(NotReloaded::Refused)))
            }),
            sync: Arc::new(|_| Box::pin(std::future::ready(Err(off())))),
            test_sync: Arc::new(|| Box::pin(std::future::ready(Err(off())))),
            plan: Arc::new(|_| Box::pin(std::future::ready(Err(off())))),
            values: Arc::new(reports::values),
            log_level: Arc::new(|level| match level {
                "debug" => Ok(()),
                other => Err(format!("`{other}` is no level")),
            }),
            alive: Arc::new(move || turns.load(Ordering::Relaxed)),
            hooks,
            user_data,
            call_in: Arc::new(|token| {
                let agent = token.strip_prefix("token-of-")?;
                Some(AgentId::new(agent))
            }),
            members: Arc::new(|| None),
            transfer: Arc::new(|_| Box::pin(std::future::ready(Err(ALONE.to_owned())))),
            forget_member: Arc::new(|_| {
                Box::pin(std::future::ready(Err(NotForgotten::Unknown(ALONE.to_owned()))))
            }),
            leads: Arc::new(|| true),
            key: None,
            session_key: SessionKey::new([7; 32]),
            book: Arc::new([("introduction", "# drover\n\nIt drives.\n".to_owned())]),
            audit: Audit::open(directory.path(), Options::default()).unwrap(),
            terminal: Arc::new(|target, size| Box::pin(terminals::opened(target, size))),
            test_notify: reports::test_notify(),
            black_box: Arc::new(|agent| Ok((agent == "a9").then(reports::a_black_box))),
            history: HistoryDoor::default(),
            mint_lease: Arc::new(move || {
                let mut count = count.lock().unwrap();
                *count += 1;
                LeaseId::new(format!("l{count}"))
            }),
        };
        let socket = directory.path().join("drover.sock");
        let listen = vec![
            Listen::Unix { path: socket.clone(), mode: None },
            Listen::Tcp("127.0.0.1:0".parse().unwrap()),
        ];
        doors = changed(doors);
        let running = bind(listen, &auth()).unwrap().serve(doors.clone(), auth(), limits).unwrap();
        let base = format!("http://{}", running.addrs[0]);
        rustls::crypto::ring::default_provider().install_default().ok();
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        Self { view, asks, socket, base, http, running, alive, reload, doors, directory, system }
    }

    /// The doors it was started with.
    pub fn doors(&self) -> Doors {
        self.doors.clone()
    }

    /// Calls over TCP with the token of a role.
    pub async fn call(&self, role: Option<&str>, method: Method, path: &str, body: &str) -> Answer {
        let mut request = self.http.request(method, format!("{}{path}", self.base));
        if let Some(role) = role {
            request = request.bearer_auth(format!("{role}-token"));
        }
        if !body.is_empty() {
            request = request.body(body.to_owned());
        }
        let response = request.send().await.unwrap();
        let status = response.status().as_u16();
        let kind = response.headers().get("content-type");
        let kind = kind.map(|kind| kind.to_str().unwrap().to_owned()).unwrap_or_default();
        let text = response.text().await.unwrap();
        let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
        Answer { status, kind, body }
    }

    /// Calls as an admin.
    pub async fn admin(&self, method: Method, path: &str, body: &str) -> Answer {
        self.call(Some("admin"), method, path, body).await
    }

    pub async fn stop(self) {
        self.running.stop().await;
        self.system.stop();
        assert!(!self.socket.exists());
    }
}
