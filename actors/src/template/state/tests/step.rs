//! Steps of the template's mind as the tests speak of them.

use drover_model::ports::Calendar;
use drover_model::size::Size;

use super::*;

impl TemplateMind {
    pub(super) fn opened(&mut self) {
        self.effects_of(Event::Opened, at(0), 0);
    }

    pub(super) fn stop(&mut self) {
        self.effects_of(Event::Stopped, at(0), 0);
    }

    pub(super) fn supplied(&mut self, supply: Supply) {
        self.effects_of(Event::Supplied(supply), at(0), 0);
    }

    pub(super) fn look(&mut self, calendar: &dyn Calendar, now: Now) {
        let window = self.window(calendar, now);
        self.effects_of(Event::Scheduled(window), now, 0);
    }

    pub(super) fn adopted(&mut self, agent: &AgentId, entry: &AgentEntry, now: Now) {
        self.effects_of(Event::Adopted(agent.clone(), Box::new(entry.clone())), now, 0);
    }

    pub(super) fn applied(&mut self, spec: Option<Arc<TemplateSpec>>, now: Now) -> Vec<Effect> {
        self.effects_of(Event::Applied(spec), now, 0)
    }

    pub(super) fn reserved(
        &mut self,
        slots: u32,
        asked: Option<u32>,
        draw: &mut dyn FnMut() -> AgentId,
        now: Now,
    ) -> Vec<Effect> {
        let count = self.startable(slots, asked.is_some(), now.mono);
        let ids = (0..count).map(|_| draw()).collect();
        let asked = asked.map(|count| (Size::NONE, count));
        self.effects_of(Event::Reserved { slots, asked, ids }, now, 0)
    }

    pub(super) fn reported(&mut self, report: &AgentReport, now: Now) -> Vec<Effect> {
        self.effects_of(Event::Reported(Box::new(report.clone())), now, 0)
    }

    /// What is sent away, and how many go now or later.
    pub(super) fn reaps(&mut self, all: bool, reason: &Reason) -> (Vec<Effect>, u32) {
        let mut effects = self.effects_of(Event::Reap { all, reason: reason.clone() }, at(0), 0);
        let Some(Effect::Reaped(count)) = effects.pop() else { panic!("no number") };
        (effects, count)
    }

    pub(super) fn settle(&mut self, now: Moment) -> Vec<Effect> {
        self.effects_of(Event::Tick, Now { mono: now, wall: at(0).wall }, 0)
    }

    pub(super) fn news(&mut self, now: Moment) -> Option<TemplateNews> {
        let now = Now { mono: now, wall: at(0).wall };
        match self.effects_of(Event::Publish, now, 0).pop() {
            Some(Effect::News(news)) => Some(*news),
            None => None,
            Some(other) => panic!("{other:?}"),
        }
    }
}
