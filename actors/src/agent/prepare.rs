//! Prepares a guest over SSH, step by step. Each step has a name that is shown while it runs.
//!
//! Every step may run again: one step after a lost connection, and all of them after a restart.

use std::net::IpAddr;
use std::time::Duration;

use drover_model::fact::What;
use drover_model::fault::{Culprit, Fault, FaultKind};
use drover_model::os::Os;
use drover_model::ports::Ran;
use drover_model::spec::{JavaDistribution, StepSpec, StepWork, TemplateSpec};
use drover_model::strip::stripped;
use drover_model::time::Moment;
use drover_scripts::guest;
use drover_scripts::windows;

use crate::agent::event::Call;
use crate::agent::mind::{Mind, Out};
use crate::agent::provision::GREET_PAUSE;
use crate::agent::state::{PrepareStep, State};
use crate::ran::{can_pass, describe_failure, last_chars};
use crate::reset_stats::ResetStats;

/// The most characters of warnings that are shown.
const WARNINGS_SHOWN: usize = 300;
/// A step that uses all the time ends this much before the deadline, so that its last output
/// arrives.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// How long a guest in which a step failed may take to say what a person must know of it.
const REPORT_LIMIT: Duration = Duration::from_secs(5);
/// The same for Windows, whose PowerShell starts slowly.
const REPORT_LIMIT_WINDOWS: Duration = Duration::from_secs(20);

impl PrepareStep {
    /// The next step. `None` when the guest is ready.
    fn next(self, spec: &TemplateSpec) -> Option<Self> {
        let all = Self::all(spec);
        let at = all.iter().position(|step| *step == self)?;
        all.get(at + 1).copied()
    }

    /// The steps of a template in order.
    pub(super) fn all(spec: &TemplateSpec) -> Vec<Self> {
        let java = match spec.java.distribution {
            JavaDistribution::None => None,
            JavaDistribution::Openjdk | JavaDistribution::Corretto => Some(Self::Java),
        };
        let own = (0..spec.steps.len()).map(Self::Own);
        let ready = spec.ready_command.as_ref().map(|_| Self::ReadyCommand);
        let clean = spec.reset.as_ref().map(|_| Self::Snapshot);
        // Windows has no cloud-init.
        let init = (!spec.os.is_windows()).then_some(Self::CloudInit);
        let first = init.into_iter().chain([Self::RemoteFs]);
        first.chain(java).chain(own).chain(ready).chain(clean).collect()
    }

    pub(super) fn first(spec: &TemplateSpec) -> Self {
        Self::all(spec).first().copied().unwrap_or(Self::RemoteFs)
    }

    pub(super) fn name(self, spec: &TemplateSpec) -> &str {
        match self {
            Self::CloudInit => "cloud-init",
            Self::RemoteFs => "remoteFs",
            Self::Java => "Java",
            Self::Own(at) => spec.steps.get(at).map_or("", |step| step.name.as_str()),
            Self::ReadyCommand => "readyCommand",
            Self::Snapshot => "snapshot",
            Self::Report => "report of the guest",
        }
    }

    /// Whether the step runs drover's own script, whose output marks warnings.
    fn warns(self) -> bool {
        match self {
            Self::CloudInit | Self::RemoteFs | Self::Java => true,
            Self::Own(_) | Self::ReadyCommand | Self::Snapshot | Self::Report => false,
        }
    }
}

impl Mind {
    /// SSH answers: starts the first step.
    pub(super) fn prepare(&mut self, out: &mut Out) {
        self.report.forget_warnings();
        let first = PrepareStep::first(&self.spec);
        self.enter(State::Preparing(first), out);
        self.show_step(first);
        self.act(out);
    }

    pub(super) fn prepare_call(&self, step: PrepareStep, now: Moment) -> Option<Call> {
        let address = self.address()?;
        let left = self.timers.left(now).unwrap_or(self.spec.limits.prepare);
        let limit = left.saturating_sub(LAST_WORDS).max(left / 2);
        let command = match step {
            PrepareStep::CloudInit => guest::cloud_init(),
            PrepareStep::RemoteFs => match self.spec.os {
                Os::Linux => guest::remote_fs(&self.spec),
                Os::Windows(_) => windows::remote_fs(&self.spec),
            },
            PrepareStep::Java => guest::java(&self.spec.java)?,
            PrepareStep::Own(at) => {
                return Some(own_call(self.spec.steps.get(at)?, address, limit));
            }
            PrepareStep::ReadyCommand => self.spec.ready_command.clone()?,
            PrepareStep::Snapshot => return Some(Call::Snapshot),
            PrepareStep::Report => {
                return Some(match self.spec.os {
                    Os::Linux => Call::Run(address, guest::report(), REPORT_LIMIT),
                    Os::Windows(_) => Call::Run(address, windows::report(), REPORT_LIMIT_WINDOWS),
                });
            }
        };
        Some(Call::Run(address, command, limit))
    }

    pub(super) fn prepared(&mut self, step: PrepareStep, ran: Result<Ran, Fault>, out: &mut Out) {
        if let Ok(ran) = &ran {
            out.observe(What::Step {
                agent: self.agent.clone(),
                template: self.spec.id.clone(),
                step: step.name(&self.spec).to_owned(),
                ms: u64::try_from(self.in_flight.age(out.now.mono).as_millis()).unwrap_or(u64::MAX),
                exit: ran.exit,
                log: ran.said(),
            });
        }
        if let Some((failed, fault)) = self.failed_step.take() {
            // It goes from there: by its last part, people look for the cause.
            self.state = State::Preparing(failed);
            // Whatever the guest said of itself, or did not: the step failed.
            return self.fail(fault, out);
        }
        match ran {
            Ok(Ran { exit: Some(0), tail }) => {
                if step.warns() {
                    self.report.warn(guest::warnings(&stripped(&tail)));
                }
                self.prepare_next(step, out);
            }
            Ok(ran) => {
                let text = describe_failure(step.name(&self.spec), &ran);
                let fault = Fault::new(FaultKind::Broken, Culprit::Template, text);
                self.step_failed(step, fault, out);
            }
            Err(fault) if can_pass(&fault.kind) => {
                let text = format!("{}: {}", step.name(&self.spec), fault.text);
                self.hinder(Fault { text, ..fault });
                self.retry_in(GREET_PAUSE, out);
            }
            Err(fault) => self.fail(fault, out),
        }
    }

    /// A step failed. Before the machine goes, its guest says what a person must know of it; where little
    /// time is left it goes at once.
    fn step_failed(&mut self, failed: PrepareStep, fault: Fault, out: &mut Out) {
        let left = self.timers.left(out.now.mono).unwrap_or(self.spec.limits.prepare);
        let limit = if self.spec.os.is_windows() { REPORT_LIMIT_WINDOWS } else { REPORT_LIMIT };
        if left < 2 * limit {
            return self.fail(fault, out);
        }
        self.failed_step = Some((failed, fault));
        let step = PrepareStep::Report;
        self.tries.start_again();
        self.state = State::Preparing(step);
        self.report.say(format!("a step failed; {}", step.name(&self.spec)));
        self.act(out);
    }

    pub(super) fn prepare_next(&mut self, step: PrepareStep, out: &mut Out) {
        let Some(next) = step.next(&self.spec) else {
            if let Some(started) = self.timers.take_clone_start() {
                self.learn(ResetStats::Made(out.now.mono - started), out);
            }
            self.enter(State::Ready, out);
            self.report.say(last_chars(&self.report.warnings(), WARNINGS_SHOWN));
            return self.lease_over(out);
        };
        self.report.waterfall_mut().step_on(&phase(step, &self.spec), out.now);
        self.tries.start_again();
        self.state = State::Preparing(next);
        self.show_step(next);
        self.act(out);
    }

    fn show_step(&mut self, step: PrepareStep) {
        let all = PrepareStep::all(&self.spec);
        let at = all.iter().position(|other| *other == step).map_or(0, |at| at + 1);
        self.report.say(format!("step {at} of {}: {}", all.len(), step.name(&self.spec)));
    }
}

/// The step's part of the waterfall.
pub(super) fn phase(step: PrepareStep, spec: &TemplateSpec) -> String {
    format!("Preparing: {}", step.name(spec))
}

/// The call of a step of the template's own.
fn own_call(step: &StepSpec, address: IpAddr, limit: Duration) -> Call {
    let limit = step.timeout.min(limit);
    match &step.work {
        StepWork::Run(command) => Call::Run(address, command.clone(), limit),
        StepWork::Upload(upload) => Call::Upload(address, upload.clone(), limit),
        StepWork::Packages(names) => Call::Run(address, guest::packages(names), limit),
    }
}
