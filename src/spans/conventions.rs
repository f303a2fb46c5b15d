//! Names of attributes, by the semantic conventions of OpenTelemetry 1.43.0, in which the `cicd` and `vcs`
//! groups are release candidates; and drover's own, beneath `drover`.

use drover_model::phase::AgentPhase;

/// The version of the semantic conventions that attributes follow, as OTLP says it.
pub const CONVENTIONS: &str = "https://opentelemetry.io/schemas/1.43.0";

pub const SERVICE_NAME: &str = "service.name";
pub const SERVICE_VERSION: &str = "service.version";
pub const SERVICE_INSTANCE_ID: &str = "service.instance.id";
pub const SYSTEM_COMPONENT: &str = "cicd.system.component";
pub const WORKER_ID: &str = "cicd.worker.id";
pub const WORKER_NAME: &str = "cicd.worker.name";
pub const WORKER_STATE: &str = "cicd.worker.state";
pub const PIPELINE_NAME: &str = "cicd.pipeline.name";
pub const PIPELINE_RUN_ID: &str = "cicd.pipeline.run.id";
pub const PIPELINE_RUN_URL: &str = "cicd.pipeline.run.url.full";
pub const TASK_NAME: &str = "cicd.pipeline.task.name";
pub const TASK_RUN_ID: &str = "cicd.pipeline.task.run.id";
pub const TASK_RUN_URL: &str = "cicd.pipeline.task.run.url.full";
pub const TASK_RUN_RESULT: &str = "cicd.pipeline.task.run.result";
pub const REPOSITORY_NAME: &str = "vcs.repository.name";
pub const REPOSITORY_URL: &str = "vcs.repository.url.full";
pub const HEAD_NAME: &str = "vcs.ref.head.name";
pub const HEAD_REVISION: &str = "vcs.ref.head.revision";
pub const ERROR_TYPE: &str = "error.type";
pub const EXIT_CODE: &str = "process.exit.code";

pub const CLOUD: &str = "drover.cloud";
pub const TEMPLATE: &str = "drover.template";
pub const NODE: &str = "drover.node";
pub const VMID: &str = "drover.vmid";
pub const USES: &str = "drover.agent.uses";
pub const REASON: &str = "drover.agent.reason";
pub const PHASE: &str = "drover.agent.phase";
pub const LEASE: &str = "drover.lease.id";
pub const WANTS: &str = "drover.lease.wants";
pub const LEASE_END: &str = "drover.lease.end";
pub const SOURCE: &str = "drover.source";
pub const JOBS: &str = "drover.jobs";

/// What a job's result is where drover knows it: a job that went well or failed is its system's to say.
pub(crate) const CANCELLATION: &str = "cancellation";
pub(crate) const ERROR: &str = "error";
pub(crate) const TIMEOUT: &str = "timeout";

/// The value of [`WORKER_STATE`] in a phase.
pub(crate) fn worker_state(phase: AgentPhase) -> &'static str {
    match phase {
        AgentPhase::Ready => "available",
        AgentPhase::Leased | AgentPhase::Draining => "busy",
        AgentPhase::Queued
        | AgentPhase::Cloning
        | AgentPhase::InDoubt
        | AgentPhase::Configuring
        | AgentPhase::Booting
        | AgentPhase::Connecting
        | AgentPhase::Preparing
        | AgentPhase::Resetting
        | AgentPhase::Held
        | AgentPhase::Retiring
        | AgentPhase::Stranded
        | AgentPhase::Gone => "offline",
    }
}
