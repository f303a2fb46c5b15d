//! What the system says of a process.

/// A moment of a process's life.
#[derive(Debug, Clone, Copy, Default)]
pub struct Usage {
    /// Resident memory in bytes.
    pub memory: f64,
    /// Seconds on the processor so far.
    pub cpu: f64,
    /// Bytes it had written to disk so far.
    pub disk: f64,
}

/// Ticks a second in `/proc`, the same on every Linux that drover runs on.
const TICKS: f64 = 100.0;

impl Usage {
    /// What was used since an earlier moment.
    pub fn less(&self, before: &Self) -> Self {
        Self {
            memory: self.memory - before.memory,
            cpu: self.cpu - before.cpu,
            disk: self.disk - before.disk,
        }
    }

    /// What a process uses now.
    pub fn of(pid: u32) -> Self {
        let read =
            |name: &str| std::fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
        let field = |text: &str, name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            let word = line.and_then(|line| line.split_whitespace().next());
            word.and_then(|word| word.parse::<f64>().ok()).unwrap_or_default()
        };
        let stat = read("stat");
        // The name may hold blanks; the fields after it do not.
        let fields: Vec<&str> =
            stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks = |index: usize| fields.get(index).and_then(|word| word.parse::<f64>().ok());
        Self {
            memory: field(&read("status"), "VmRSS:") * 1024.0,
            cpu: (ticks(11).unwrap_or_default() + ticks(12).unwrap_or_default()) / TICKS,
            disk: field(&read("io"), "write_bytes:"),
        }
    }
}
