//! What a storm needs of a world beside what scenarios do: commands that are not waited for, a step
//! that ends at a trap, stops that are cut, and a judgement in words rather than a panic.

use drover_model::overrides::OverrideChange;
use drover_model::record::Hold;
use drover_model::tenant::By;
use drover_runtime::reply::Reply;

use super::*;

impl World {
    /// Whether the service runs.
    pub fn runs(&self) -> bool {
        self.life.is_some()
    }

    /// Virtual time since the world began.
    pub fn elapsed(&self) -> Duration {
        Instant::now() - self.started
    }

    /// The wall clock of the service.
    pub fn wall(&self) -> WallTime {
        let wall = WallTime(i64::try_from(EPOCH).unwrap() * 1000) + self.elapsed();
        wall.shifted(self.set.load(Ordering::Acquire))
    }

    /// Somebody sets the wall clock of the service's machine.
    pub fn set_clock(&self, by_ms: i64) {
        self.set.fetch_add(by_ms, Ordering::AcqRel);
    }

    /// By how many milliseconds that was set, which others look at too.
    pub fn clock_set(&self) -> Arc<AtomicI64> {
        Arc::clone(&self.set)
    }

    /// Nobody looks on any more; an eye that knows the world would keep it alive.
    pub fn unwatch(&self) {
        for socket in [&self.notes.socket, &self.wire.socket, &self.shell.socket] {
            socket.clear();
        }
    }

    /// The spec that was last sent.
    pub fn spec(&self) -> &HerdSpec {
        &self.spec
    }

    /// Sends a command; its answer comes or not.
    pub fn send(&self, command: HerdCommand) {
        self.life().herd.do_send(command);
    }

    /// Begins agents of a template as an operator; how many, and why not more.
    pub async fn provision(&self, template: &str, count: u32) -> (Vec<AgentId>, Option<String>) {
        let template = template.to_owned();
        let command = |reply| HerdCommand::Provision { template, count, trial: false, reply };
        let done = self.command(command).await.unwrap();
        (done.agents, done.short)
    }

    /// Sets limits of an agent against its template's as an operator.
    pub async fn limit(&self, agent: &AgentId, change: OverrideChange) {
        let agent = agent.clone();
        self.command(|reply| HerdCommand::Override { agent, change, reply }).await.unwrap();
    }

    /// A hold with a key.
    pub fn a_hold(span: Duration) -> Hold {
        let span_ms = u64::try_from(span.as_millis()).unwrap();
        Hold { span_ms, public_key: "ssh-ed25519 AAAA operator".into(), owner: None }
    }

    /// Holds an agent as an operator.
    pub async fn hold(&self, agent: &AgentId, span: Duration) {
        let (agent, hold) = (agent.clone(), Some(Box::new(Self::a_hold(span))));
        self.command(|reply| HerdCommand::Hold { agent, hold, by: By::admin("test"), reply })
            .await
            .unwrap();
    }

    /// Has the next failure of a template held as an operator, or none.
    pub async fn hold_next(&self, template: &str, span: Option<Duration>) {
        let (template, hold) = (template.to_owned(), span.map(|span| Box::new(Self::a_hold(span))));
        let by = By::admin("test");
        self.command(|reply| HerdCommand::HoldNext { template, hold, by, reply }).await.unwrap();
    }

    /// Asks for a lease of an hour on behalf of somebody.
    pub async fn lease_for(&self, label: &str, owner: &str) -> LeaseId {
        let mut ask = self.an_ask(label, Duration::from_secs(3600));
        ask.owner = owner.to_owned();
        self.command(|reply| HerdCommand::Lease { ask, reply }).await.unwrap()
    }

    /// Ends a hold as an operator.
    pub async fn release_hold(&self, agent: &AgentId) {
        let agent = agent.clone();
        self.command(|reply| HerdCommand::Hold { agent, hold: None, by: By::admin("test"), reply })
            .await
            .unwrap();
    }

    /// Lets it run until a moment since the beginning, or until `ends` holds after anything that
    /// happened; says whether it does.
    pub async fn step(&self, until: Duration, ends: impl Fn(&View) -> bool) -> bool {
        let (life, until) = (self.life(), self.started + until);
        let reached = life.local.run_until(async {
            loop {
                if ends(&life.view) {
                    return true;
                }
                if Instant::now() >= until {
                    return false;
                }
                tokio::select! {
                    biased;
                    () = self.notes.pulse.notified() => {}
                    () = tokio::time::sleep_until(until) => {}
                }
            }
        });
        reached.await
    }

    /// Stops in order; a stop that takes longer than this is cut as a crash. Says whether it was
    /// in order.
    pub async fn stop_within(&mut self, policy: StopPolicy, limit: Duration) -> bool {
        let (reply, answer) = Reply::channel();
        let life = self.life();
        life.herd.do_send(HerdCommand::Drain { policy, reply });
        let answer = life.local.run_until(tokio::time::timeout(limit, answer)).await;
        if !matches!(answer, Ok(Ok(()))) {
            self.crash();
            return false;
        }
        drop(self.life.take());
        self.down = Some(Instant::now());
        self.wire.disarm();
        self.tap.release();
        self.notes.crash();
        true
    }

    /// What is wrong at a quiet moment, each with the name of what must hold.
    pub fn wrongs(&self) -> Vec<(&'static str, String)> {
        let mut wrongs = Vec::new();
        for ((number, vmid), before) in &self.ground.guests {
            let now = self.sides.at(*number).config(*vmid);
            let mut now = now.map(|config| config.into_iter().collect::<BTreeMap<_, _>>());
            // Proxmox itself locks a container's template while it clones it (PVE/API2/LXC.pm).
            let locked = |lock: &String| lock == "disk" && before.contains_key("template");
            if let Some(config) = &mut now
                && config.get("lock").is_some_and(locked)
            {
                config.remove("lock");
            }
            if now.as_ref() != Some(before) {
                let text = format!("guest {vmid} was {before:?}, is {now:?}");
                wrongs.push(("no-stranger-changed", text));
            }
        }
        let Some(life) = &self.life else { return wrongs };
        let given_up = life.given_up.lock();
        if !given_up.is_empty() || life.view.restart_count() > 0 {
            let text = format!("{} restarts, given up: {given_up:?}", life.view.restart_count());
            wrongs.push(("no-actor-panics", text));
        }
        let shown = life.view.agents().len();
        let counted: u32 =
            life.view.templates().iter().flat_map(|template| template.states.values()).sum();
        if shown != life.roster.len() || counted as usize != shown {
            let text = format!("{shown} shown, {} living, {counted} permits", life.roster.len());
            wrongs.push(("permits-equal-live-records", text));
        }
        wrongs
    }

    /// What is left behind once everything is retired, each with the name of what must hold.
    pub fn remains(&self) -> Vec<(&'static str, String)> {
        let mut wrongs = self.wrongs();
        let journal_state = self.journal_state();
        if !journal_state.agents.is_empty() {
            let agents: Vec<_> = journal_state.agents.keys().collect();
            wrongs.push(("nothing-stays", format!("records of {agents:?}")));
        }
        if !self.ours().is_empty() {
            wrongs.push(("nothing-stays", format!("guests {:?}", self.ours())));
        }
        let now = self.survey().volumes;
        if now != self.ground.volumes {
            let text = format!("volumes were {:?}, are {now:?}", self.ground.volumes);
            wrongs.push(("nothing-stays", text));
        }
        wrongs
    }

    /// Agents, leases and the last facts, for a failure.
    pub fn portrait(&self) -> String {
        match &self.life {
            Some(life) => {
                let templates = life.view.templates();
                let templates = templates.iter().map(|template| format!("{template:?}\n"));
                let clouds = life.view.clouds();
                let clouds = clouds.iter().map(|cloud| format!("{cloud:?}\n"));
                let above: String = clouds.chain(templates).collect();
                format!("{above}{}", self.status())
            }
            None => format!("it is down; last facts:\n{}", self.notes.tail()),
        }
    }
}
