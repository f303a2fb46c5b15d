//! Templates whose agents are containers, drawn by dice of their own for a part of the seeds. They keep
//! all that machines keep; their clones come one after another, and they take no orders.

use drover_model::ambient::Dice;

use super::plan::{Deed, Found, Plan, TemplateConf};
use super::run::Play;

/// The id of the container's template of the first node; those of the others follow.
pub const TEMPLATES_FROM: usize = 9100;

/// Has some templates of some seeds make containers.
pub fn lay(seed: u64, plan: &mut Plan) {
    let mut dice = Dice::from_number(seed).fork("containers");
    if dice.below(6) > 0 {
        return;
    }
    let made = [(); 3].map(|()| dice.below(2) == 0);
    for (conf, made) in plan.stage.templates.iter_mut().zip(made) {
        conf.iter_mut().filter(|_| made).for_each(to_container);
    }
    for event in &mut plan.events {
        // A reload may turn it into a template of machines for a while.
        if let Deed::Template(number, Some(conf)) = &mut event.deed
            && made[*number]
            && dice.below(4) > 0
        {
            to_container(conf);
        }
    }
}

fn to_container(conf: &mut TemplateConf) {
    (conf.container, conf.found, conf.image, conf.target) = (true, Found::Id, false, None);
}

impl Play {
    /// Administrators take the lock away that a killed clone left on a container's template, where drover
    /// says that it stands in the way.
    pub(super) fn unlock_templates(&self) {
        let view = self.world.view();
        let locked = |paused: &String| paused.contains("CT is locked (disk)");
        if !view.templates().iter().any(|one| one.paused.as_ref().is_some_and(locked)) {
            return;
        }
        for vmid in (TEMPLATES_FROM..).take(self.plan.stage.nodes) {
            let vmid = u32::try_from(vmid).unwrap();
            self.world.sides.at(0).set_config(vmid, "lock", None);
        }
    }
}
