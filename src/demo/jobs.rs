//! The demo's batch: real shell commands for leased machines.

/// The expected outcome of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpectedOutcome {
    /// The job ends with this exit status.
    Exits(u32),
    /// The demo kills the VM while the job runs.
    LosesItsVm,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Job {
    pub name: &'static str,
    pub command: &'static str,
    pub expected: ExpectedOutcome,
}

pub const BATCH: [Job; 6] = [
    Job {
        name: "hello",
        command: "echo \"hello from $(hostname)\"",
        expected: ExpectedOutcome::Exits(0),
    },
    Job {
        name: "count",
        command: "i=0; while [ $i -lt 20000 ]; do i=$((i + 1)); done; echo counted to $i",
        expected: ExpectedOutcome::Exits(0),
    },
    Job {
        name: "build",
        command: "mkdir -p out && for n in 1 2 3; do echo \"object $n\" > out/$n.o; done; \
                  cat out/*.o | wc -l",
        expected: ExpectedOutcome::Exits(0),
    },
    Job {
        name: "fails",
        command: "echo 'assertion failed: left == right' >&2; exit 3",
        expected: ExpectedOutcome::Exits(3),
    },
    Job {
        name: "loses-vm",
        command: "echo started; sleep 60",
        expected: ExpectedOutcome::LosesItsVm,
    },
    Job { name: "report", command: "date -u; echo done", expected: ExpectedOutcome::Exits(0) },
];

/// Whether a command is a job of the demo, which can run without isolation.
pub fn is_demo_job(command: &str) -> bool {
    BATCH.iter().any(|job| job.command == command)
}
