//! A branch of a repository with the templates, drawn by dice of its own for a part of the seeds: commits,
//! moves by force, syncs, returns to what was applied. Each brings all templates at once and undoes what
//! operators set. The repository itself, its faults and its crashes are the wire tier's.

use drover_model::ambient::Dice;

use super::draw::{index, one_of};
use super::plan::{Deed, Event, Plan, TemplateConf};

/// The last moment at which something happens to the branch, in milliseconds.
const LATEST: u64 = 900_000;
/// Between a commit and the sync that takes it, at most.
const SYNC_WITHIN: u64 = 30_000;

/// All templates, by number.
type Templates = [Option<TemplateConf>; 3];

/// Has some of the seeds changed by commits.
pub fn lay(seed: u64, plan: &mut Plan) {
    let mut dice = Dice::from_number(seed).fork("branch");
    if dice.below(3) > 0 {
        return;
    }
    let count = plan.stage.templates.iter().flatten().count();
    for _ in 0..2 + dice.below(6) {
        let at = dice.below(LATEST);
        let then = at + 1 + dice.below(SYNC_WITHIN);
        let mut push = |at, deed| plan.events.push(Event { at, deed });
        match dice.below(6) {
            0 => push(at, Deed::RollBack(index(&mut dice, 3))),
            1 => {
                push(at, Deed::ForceMove(1 + index(&mut dice, 2)));
                push(then, Deed::Sync);
            }
            _ => {
                for _ in 0..1 + dice.below(2) {
                    let which = index(&mut dice, count);
                    let before = plan.stage.templates[which].clone();
                    let conf = before.filter(|_| dice.below(6) > 0);
                    let conf = conf.map(|before| changed(&mut dice, plan.stage.nodes, before));
                    push(at, Deed::Commit(which, conf));
                }
                push(then, Deed::Sync);
            }
        }
    }
    plan.events.sort_by_key(|event| event.at);
}

/// Another version of a template.
fn changed(dice: &mut Dice, nodes: usize, before: TemplateConf) -> TemplateConf {
    TemplateConf {
        source: index(dice, nodes),
        cap: one_of(dice, &[0, 2, 3, 4]),
        min: one_of(dice, &[0, before.min]),
        uses: one_of(dice, &[0, 1, 2]),
        idle: one_of(dice, &[1, 2, 4]),
        full: dice.below(4) == 0,
        ..before
    }
}

/// The branch and what was applied of it.
#[derive(Debug)]
pub(super) struct Branch {
    /// Each commit's templates, the newest last; never empty.
    commits: Vec<Templates>,
    applied: Vec<Templates>,
}

impl Branch {
    /// A branch whose first commit is applied.
    pub(super) fn of(first: Templates) -> Self {
        Self { commits: vec![first.clone()], applied: vec![first] }
    }

    /// One more commit, in which a template is another one, or not there.
    pub(super) fn commit(&mut self, number: usize, conf: Option<TemplateConf>) {
        let mut next = self.head();
        next[number] = conf;
        self.commits.push(next);
    }

    /// Somebody moves it back by so many commits.
    pub(super) fn move_back(&mut self, by: usize) {
        self.commits.truncate(self.commits.len().saturating_sub(by).max(1));
    }

    fn head(&self) -> Templates {
        self.commits.last().cloned().unwrap_or_default()
    }

    /// A sync takes what it has.
    pub(super) fn sync(&mut self) -> Templates {
        self.applied.push(self.head());
        self.head()
    }

    /// A return to what was applied so many times before the last.
    pub(super) fn roll_back(&mut self, before: usize) -> Templates {
        let at = self.applied.len().saturating_sub(2 + before);
        let to = self.applied.get(at).cloned().unwrap_or_default();
        self.applied.push(to.clone());
        to
    }
}
