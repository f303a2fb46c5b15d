//! The demo's batch: real shell commands for leased machines.

/// The expected outcome of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpectedOutcome {
    /// The job ends with this exit status.
    Exits(i32),
    /// The demo kills the VM while the job runs, and `drover lease` reports the loss.
    LosesItsVm,
}

/// The exit status of `drover lease` where the machine of a running command was lost.
const LEASE_LOST: i32 = 75;

/// A command of the batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Work {
    pub name: &'static str,
    pub command: &'static str,
    pub expected: ExpectedOutcome,
    /// Whether the service is killed only while this job runs.
    pub outlives_service: bool,
}

/// A job of the batch: its name is the owner of its lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// Unique in the batch.
    pub name: String,
    pub work: Work,
}

impl Job {
    /// Whether this exit status is the expected one; none when a signal ended the command.
    pub fn expects(&self, exit: Option<i32>) -> bool {
        let expected = match self.work.expected {
            ExpectedOutcome::Exits(status) => status,
            ExpectedOutcome::LosesItsVm => LEASE_LOST,
        };
        exit == Some(expected)
    }

    pub fn loses_its_vm(&self) -> bool {
        self.work.expected == ExpectedOutcome::LosesItsVm
    }

    /// Whether it ends with an exit status other than 0 on purpose.
    pub fn fails_on_purpose(&self) -> bool {
        !matches!(self.work.expected, ExpectedOutcome::Exits(0) | ExpectedOutcome::LosesItsVm)
    }
}

/// The first `count` jobs of the batch, which repeats.
pub fn batch(count: u32) -> Vec<Job> {
    let jobs = WORK.iter().cycle().zip(0..count as usize);
    jobs.map(|(work, index)| {
        let round = index / WORK.len() + 1;
        let name = match round {
            1 => work.name.to_owned(),
            round => format!("{}-{round}", work.name),
        };
        Job { name, work: *work }
    })
    .collect()
}

const fn work(name: &'static str, command: &'static str, expected: ExpectedOutcome) -> Work {
    Work { name, command, expected, outlives_service: false }
}

const WORK: [Work; 6] = [
    work("hello", "echo \"hello from $(hostname)\"", ExpectedOutcome::Exits(0)),
    Work {
        outlives_service: true,
        ..work(
            "compile",
            "for n in 1 2 3 4 5 6 7 8; do echo \"compiled $n of 8\"; sleep 1; done; echo linked",
            ExpectedOutcome::Exits(0),
        )
    },
    work(
        "count",
        "i=0; while [ $i -lt 20000 ]; do i=$((i + 1)); done; echo counted to $i",
        ExpectedOutcome::Exits(0),
    ),
    work("fails", "echo 'assertion failed: left == right' >&2; exit 3", ExpectedOutcome::Exits(3)),
    Work {
        outlives_service: true,
        ..work("loses-vm", "echo started; sleep 60", ExpectedOutcome::LosesItsVm)
    },
    work(
        "package",
        "mkdir -p out && for n in 1 2 3; do echo \"object $n\" > out/$n.o; done; \
         echo \"packed $(cat out/*.o | wc -l) objects\"",
        ExpectedOutcome::Exits(0),
    ),
];

/// Whether a command is a job of the demo, which can run without isolation.
pub fn is_demo_job(command: &str) -> bool {
    WORK.iter().any(|work| work.command == command)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Invariant: each job has a name of its own, and only the outcome of its story is expected.

    #[test]
    fn a_batch_that_repeats_numbers_its_jobs() {
        let names: Vec<String> = batch(8).into_iter().map(|job| job.name).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let expected =
            ["hello", "compile", "count", "fails", "loses-vm", "package", "hello-2", "compile-2"];
        assert_eq!(names, expected);
    }

    #[test]
    fn a_job_that_loses_its_vm_is_not_as_expected_when_its_command_was_killed() {
        let jobs = batch(6);
        let expected: Vec<Vec<bool>> = jobs
            .iter()
            .map(|job| [Some(0), Some(3), Some(75), None].map(|exit| job.expects(exit)).to_vec())
            .collect();
        let exits_0 = vec![true, false, false, false];
        let exits_3 = vec![false, true, false, false];
        let lost = vec![false, false, true, false];
        assert_eq!(
            expected,
            [exits_0.clone(), exits_0.clone(), exits_0.clone(), exits_3, lost, exits_0]
        );
    }
}
