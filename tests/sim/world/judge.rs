//! What must hold of a world: at any quiet moment, and at its end, when it is looked at what is left.

use actix::{Actor, Context, Supervised};
use drover_runtime::supervise::{RestartLimit, SupervisionOptions, supervise};

use super::*;

/// An actor that does nothing.
struct Idler;

impl Actor for Idler {
    type Context = Context<Self>;
}

impl Supervised for Idler {}

impl World {
    /// What must hold at any quiet moment.
    pub fn check(&self) {
        let wrongs = self.notes.wrongs();
        assert!(wrongs.is_empty(), "{}\n{}", wrongs.join("\n"), self.status());
        assert_eq!(self.wire.cloned_twice(), Vec::<String>::new(), "cloned twice");
        assert_eq!(*self.life().given_up.lock(), Vec::new(), "actors were given up");
        assert_eq!(self.view().restart_count(), self.planned_restarts, "actors panicked");
        let shown = self.view().agents().len();
        assert_eq!(shown, self.life().roster.len(), "agents shown and living\n{}", self.status());
        let counted: u32 =
            self.view().templates().iter().flat_map(|template| template.states.values()).sum();
        assert_eq!(counted as usize, shown, "permits are held by others\n{}", self.status());
    }

    /// Exactly those actors live that should, at a quiet moment: one for the herd, one for each
    /// configured cloud, source, template and living agent, two for each cluster.
    pub fn check_census(&self) {
        let mut due = vec!["herd".to_owned()];
        due.extend(self.spec.clouds.keys().map(|cloud| format!("cloud {cloud}")));
        due.extend(self.spec.sources.keys().map(|source| format!("source {source}")));
        let of_agents = self.life().roster.select(|_| true);
        let of_templates = of_agents.values().map(|living| &living.template);
        let templates: BTreeSet<_> = self.spec.templates.keys().chain(of_templates).collect();
        due.extend(templates.into_iter().map(|template| format!("template {template}")));
        due.extend(of_agents.keys().map(|agent| format!("agent {agent}")));
        let clouds = self.view().clouds();
        let clusters: BTreeSet<_> = clouds.iter().filter_map(|seen| seen.cluster.clone()).collect();
        for cluster in clusters {
            due.extend([format!("cluster {cluster}"), format!("reconciler {cluster}")]);
        }
        due.sort();
        assert_eq!(self.life().census.names(), due, "other actors live\n{}", self.status());
    }

    /// The names of the actors that live.
    pub fn census(&self) -> Vec<String> {
        self.life().census.names()
    }

    /// An actor that nobody needs comes to life beside the herd's.
    pub fn plant_actor(&self, name: &str) {
        let life = self.life();
        let observer = Listener { notes: self.notes.clone(), view: Arc::clone(&life.view) };
        let options = SupervisionOptions {
            name: name.to_owned(),
            restart_limit: RestartLimit::LEAF,
            observer: Arc::new(observer),
            ambient: Arc::clone(&life.ambient),
            census: life.census.clone(),
            on_give_up: Box::new(|what| panic!("{} was given up", what.name)),
        };
        let _entered = life.local.enter();
        supervise(options, |_| Idler);
    }

    /// Retires everything, and finds the cluster as it was at the start.
    pub async fn end(mut self) -> Self {
        self.judged = true;
        self.check();
        let policy = StopPolicy::RetireAll;
        self.command(|reply| HerdCommand::Drain { policy, reply }).await;
        self.pass(Duration::from_secs(5)).await;
        self.check();
        assert!(self.life().roster.is_empty(), "agents live on\n{}", self.status());
        self.check_census();
        let journal_state = self.journal_state();
        assert_eq!(
            journal_state.agents.keys().collect::<Vec<_>>(),
            Vec::<&_>::new(),
            "records stay"
        );
        let now = self.survey();
        assert_eq!(self.ours(), Vec::<u32>::new(), "guests stay");
        assert_eq!(now.guests, self.ground.guests, "other guests were touched");
        assert_eq!(now.volumes, self.ground.volumes, "volumes stay or are missing");
        self
    }
}

/// A test that forgets to look at what it leaves behind would pass over actors, guests and records
/// that stay.
impl Drop for World {
    fn drop(&mut self) {
        if self.life.is_some() && !self.judged && !std::thread::panicking() {
            panic!("a world is dropped while its service runs, and nobody called `end`");
        }
    }
}
