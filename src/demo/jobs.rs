//! The demo's batch: real shell commands for leased machines.

/// What a job is expected to come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It ends with this status.
    Exits(u32),
    /// Its machine is killed while it runs.
    LosesItsMachine,
}

/// One job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Job {
    /// Its name.
    pub name: &'static str,
    /// What it runs.
    pub command: &'static str,
    /// What it comes to.
    pub fate: Fate,
}

/// The batch, in order.
pub const BATCH: [Job; 6] = [
    Job { name: "hello", command: "echo \"hello from $(hostname)\"", fate: Fate::Exits(0) },
    Job {
        name: "count",
        command: "i=0; while [ $i -lt 20000 ]; do i=$((i + 1)); done; echo counted to $i",
        fate: Fate::Exits(0),
    },
    Job {
        name: "build",
        command: "mkdir -p out && for n in 1 2 3; do echo \"object $n\" > out/$n.o; done; \
                  cat out/*.o | wc -l",
        fate: Fate::Exits(0),
    },
    Job {
        name: "fails",
        command: "echo 'assertion failed: left == right' >&2; exit 3",
        fate: Fate::Exits(3),
    },
    Job { name: "doomed", command: "echo started; sleep 60", fate: Fate::LosesItsMachine },
    Job { name: "report", command: "date -u; echo done", fate: Fate::Exits(0) },
];

/// Whether a command is one of the demo's own, which may run without isolation.
pub fn is_ours(command: &str) -> bool {
    BATCH.iter().any(|job| job.command == command)
}
