//! The breakers of nodes, storages and clouds. They belong to no template: a fault that is charged
//! to such a place keeps every template from that place only.

use std::cell::RefCell;
use std::collections::BTreeMap;

use drover_model::fact::What;
use drover_model::id::{AgentId, TemplateId};
use drover_model::journal_state::JournalState;
use drover_model::record::Body;
use drover_model::scope::Scope;
use drover_model::spec::BreakerSpec;
use drover_model::status::BreakerStatus;
use drover_model::time::{Moment, Now};

use crate::breaker::Breaker;
use crate::shared::{Shared, role};

/// The breakers of one herd that belong to no template.
#[derive(Debug, Default)]
pub struct Board(RefCell<BTreeMap<Scope, Entry>>);

#[derive(Debug, Clone)]
struct Entry {
    breaker: Breaker,
    /// The template of the agent that last moved the breaker.
    template: TemplateId,
}

impl Board {
    /// Why nothing may start there now. `None` when something may.
    pub fn closed(&self, scope: &Scope, now: Moment) -> Option<String> {
        let all = self.0.borrow();
        let breaker = &all.get(scope)?.breaker;
        if breaker.allowance(now) > 0 {
            return None;
        }
        Some(match breaker.tripped() {
            Some((until, cause)) => {
                format!("{cause}; its breaker is open until {}", until.rfc3339())
            }
            None => "it failed before, and a single agent tries it first (its breaker)".to_owned(),
        })
    }

    /// Whether no failure is charged to any place.
    pub fn rests(&self) -> bool {
        self.0.borrow().values().all(|entry| entry.breaker.rests())
    }

    /// The scopes with this name.
    pub fn named(&self, name: &str) -> Vec<Scope> {
        self.0.borrow().keys().filter(|scope| scope.answers_to(name)).cloned().collect()
    }

    /// All scopes that were ever charged.
    pub fn all(&self) -> Vec<Scope> {
        self.0.borrow().keys().cloned().collect()
    }

    /// The record of a breaker's state.
    pub fn record(&self, scope: &Scope, now: Now) -> Option<Body> {
        let all = self.0.borrow();
        let entry = all.get(scope)?;
        let mut body = entry.breaker.record(&entry.template, String::new(), now.wall);
        if let Body::BreakerMoved { scope: of, version, .. } = &mut body {
            *of = Some(scope.clone());
            *version = None;
        }
        Some(body)
    }

    /// The status of a breaker for the read side.
    pub fn status(&self, scope: &Scope) -> Option<What> {
        let all = self.0.borrow();
        let entry = all.get(scope)?;
        Some(What::Breaker(Box::new(BreakerStatus {
            scope: scope.clone(),
            breaker: entry.breaker.phase(),
            tripped: entry.breaker.tripped(),
            template: entry.template.clone(),
        })))
    }

    /// An agent starts there and becomes the trial wherever one is due. Returns the scopes whose
    /// breakers moved.
    fn started(&self, scopes: &[Scope], agent: &AgentId, now: Moment) -> Vec<Scope> {
        let mut all = self.0.borrow_mut();
        let moved = scopes.iter().filter(|scope| {
            all.get_mut(scope).is_some_and(|entry| {
                let before = entry.breaker.phase();
                entry.breaker.started(agent, now);
                entry.breaker.phase() != before
            })
        });
        moved.cloned().collect()
    }

    /// These places work. Returns the scopes whose breakers moved.
    fn succeeded(&self, scopes: &[Scope]) -> Vec<Scope> {
        let mut all = self.0.borrow_mut();
        let moved = scopes
            .iter()
            .filter(|scope| all.get_mut(scope).is_some_and(|entry| entry.breaker.succeeded()));
        moved.cloned().collect()
    }
}

impl Shared<Board, role::Herd> {
    /// Restores the breakers from the journal.
    ///
    /// A running trial is not recorded. Where a trial is due, an agent that lives there and has not
    /// reported a result yet becomes the trial. Its result decides, and no second trial starts
    /// beside it.
    pub fn restore(&self, journal_state: &JournalState, now: Now) {
        let all = journal_state.places.iter().map(|(scope, (template, entry))| {
            let breaker = Breaker::restore(entry, now);
            (scope.clone(), Entry { breaker, template: template.clone() })
        });
        self.0.borrow_mut().extend(all);
        for (agent, entry) in journal_state.agents.iter().filter(|(_, entry)| entry.is_unproven()) {
            let scopes = Scope::used(&entry.place(), &entry.spec.id.cloud);
            self.started(&scopes, agent, now.mono);
        }
    }

    /// An operator closes a breaker. Returns whether it moved.
    pub fn reset(&self, scope: &Scope) -> bool {
        !(**self).succeeded(std::slice::from_ref(scope)).is_empty()
    }
}

impl Shared<Board, role::Cluster> {
    /// An agent starts there and becomes the trial wherever one is due. Returns the scopes whose
    /// breakers moved.
    pub fn started(&self, scopes: &[Scope], agent: &AgentId, now: Moment) -> Vec<Scope> {
        (**self).started(scopes, agent, now)
    }
}

/// The results of agents are their template's to write.
impl Shared<Board, role::Template> {
    /// An agent became ready there: all of these places work. Returns the scopes whose breakers
    /// moved.
    pub fn succeeded(&self, scopes: &[Scope]) -> Vec<Scope> {
        (**self).succeeded(scopes)
    }

    /// An agent failed and the fault is charged to this scope. Returns whether the breaker moved.
    pub fn failed(
        &self,
        scope: &Scope,
        (template, agent): (&TemplateId, &AgentId),
        cause: &str,
        spec: &BreakerSpec,
        now: Now,
    ) -> bool {
        let mut all = self.0.borrow_mut();
        let entry = all
            .entry(scope.clone())
            .or_insert_with(|| Entry { breaker: Breaker::default(), template: template.clone() });
        entry.template.clone_from(template);
        entry.breaker.failed(agent, cause, spec, now)
    }

    /// An agent ended without a result for these places. Where it was the trial, another trial may
    /// start. Returns the scopes whose breakers moved.
    pub fn left(&self, agent: &AgentId) -> Vec<Scope> {
        let mut moved = Vec::new();
        for (scope, entry) in self.0.borrow_mut().iter_mut() {
            if entry.breaker.left(agent) {
                moved.push(scope.clone());
            }
        }
        moved
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;
    use crate::testing::{CLUSTER, at, template_id};
    use drover_model::fault::{Culprit, Fault, FaultKind};
    use drover_model::id::{CloudId, ClusterId, NodeName};
    use drover_model::record::{RECORD_VERSION, Record};

    type OfTemplate = Shared<Board, role::Template>;

    const SPEC: BreakerSpec = BreakerSpec {
        threshold: 2,
        cooldown: std::time::Duration::from_secs(120),
        cooldown_cap: std::time::Duration::from_secs(600),
    };

    fn node(name: &str) -> Scope {
        Scope::Node(ClusterId::new(CLUSTER), NodeName::new(name))
    }

    fn fail(board: &OfTemplate, scope: &Scope, n: u32, second: u64) -> bool {
        let agent = AgentId::new(format!("a{n}"));
        board.failed(scope, (&template_id("c/t"), &agent), "no route", &SPEC, at(second))
    }

    fn tripped() -> OfTemplate {
        let board = OfTemplate::default();
        fail(&board, &node("pve1"), 1, 0);
        fail(&board, &node("pve1"), 2, 0);
        board
    }

    // Invariant: a fault is charged to the narrowest place that it names. Contention is charged
    // only where a node is silent.

    #[test]
    fn each_fault_has_one_who_is_charged_or_none() {
        let cluster = ClusterId::new(CLUSTER);
        let of = |kind, culprit| Scope::charged(&Fault::new(kind, culprit, "x"), &cluster, None);
        let pve1 = || Culprit::Node(NodeName::new("pve1"));
        assert_eq!(of(FaultKind::Broken, pve1()), Some(node("pve1")));
        assert_eq!(of(FaultKind::Contention, pve1()), Some(node("pve1")));
        assert_eq!(of(FaultKind::UnknownOutcome, pve1()), None);
        let nfs = || Culprit::Storage("nfs".into());
        assert_eq!(
            of(FaultKind::Capacity, nfs()),
            Some(Scope::Storage(cluster.clone(), None, "nfs".into()))
        );
        assert_eq!(of(FaultKind::Contention, nfs()), None);
        let cloud = || Culprit::Cloud(CloudId::new("c"));
        let denied = FaultKind::Denied { privilege: None, path: None };
        assert_eq!(of(denied, cloud()), Some(Scope::Cloud(CloudId::new("c"))));
        assert_eq!(of(FaultKind::Unreachable, cloud()), None);
        assert_eq!(of(FaultKind::Broken, Culprit::Template), None);
    }

    // Invariant: a place's breaker closes only that place and allows one trial.

    #[test]
    fn a_tripped_node_is_closed_and_its_neighbour_is_not() {
        let board = tripped();
        let why = board.closed(&node("pve1"), at(0).mono).unwrap();
        assert!(why.starts_with("no route; its breaker is open until 2027"), "{why}");
        assert_eq!(board.closed(&node("pve2"), at(0).mono), None);
        let (trial, due) = (AgentId::new("trial"), at(120).mono);
        assert_eq!(board.closed(&node("pve1"), due), None);
        assert_eq!(
            board.playing::<role::Cluster>().started(&[node("pve1"), node("pve2")], &trial, due),
            [node("pve1")]
        );
        assert!(board.closed(&node("pve1"), due).unwrap().contains("single agent"));
        assert_eq!(board.left(&trial), [node("pve1")]);
        board.playing::<role::Cluster>().started(&[node("pve1")], &trial, due);
        assert_eq!(board.succeeded(&[node("pve1")]), [node("pve1")]);
        assert_eq!(board.closed(&node("pve1"), due), None);
    }

    // Invariant: a breaker survives the service. Records from before there were places mean
    // templates.

    #[test]
    fn a_board_is_restored_from_what_it_recorded() {
        let (board, mut journal_state) = (tripped(), JournalState::default());
        let body = board.record(&node("pve1"), at(0)).unwrap();
        let written = serde_json::to_string(&body).unwrap();
        let body: Body = serde_json::from_str(&written).unwrap();
        let wall_time = at(0).wall;
        journal_state.apply(&Record { version: RECORD_VERSION, seq: 1, epoch: 1, wall_time, body });
        assert!(journal_state.breakers.is_empty());
        let kept: JournalState =
            serde_json::from_str(&serde_json::to_string(&journal_state).unwrap()).unwrap();
        let again = Shared::<Board, role::Herd>::default();
        again.restore(&kept, at(60));
        assert!(again.closed(&node("pve1"), at(119).mono).is_some());
        assert_eq!(again.closed(&node("pve1"), at(120).mono), None);
        board.succeeded(&[node("pve1")]);
        let body = board.record(&node("pve1"), at(130)).unwrap();
        journal_state.apply(&Record { version: RECORD_VERSION, seq: 2, epoch: 1, wall_time, body });
        assert!(journal_state.places.is_empty());
    }

    #[test]
    fn names_are_read_as_they_are_spelled_and_the_cluster_may_be_left_out() {
        let storage = |own: Option<&str>| {
            Scope::Storage(ClusterId::new(CLUSTER), own.map(NodeName::new), "fast".into())
        };
        let cloud = Scope::Cloud(CloudId::new("rack"));
        for scope in [node("pve1"), storage(None), storage(Some("pve2")), cloud] {
            assert_eq!(scope.to_string().parse(), Ok(scope.clone()));
            assert!(scope.answers_to(&scope.short()));
        }
        assert!("disk:sda".parse::<Scope>().is_err() && "node:pve1".parse::<Scope>().is_err());
    }
}
