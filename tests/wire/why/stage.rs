//! A service whose journal is kept, and answers in which nothing of this one run is left.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Instant;

use regex_lite::Regex;

use super::seat::Seat;
use crate::harness::{Service, Sim, Site, WAIT_LIMIT};

/// What a golden text does not say, since each run has its own.
const MASKS: &[(&str, &str)] = &[
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "TIME"),
    (r"127\.0\.0\.1:\d+", "ENDPOINT"),
    // How a connection to a node that is down ends is up to the moment.
    (r"(Connection reset by peer|Connection refused) \(os error \d+\)|tls handshake eof", "CUT"),
    // Which call finds out first is, too.
    (r"asked for GET /[^: ]+", "asked for GET PATH"),
    // How often it was met is up to the speed of this machine.
    (r" \(\d+ times since TIME\)", ""),
    (r"127\.\d+\.\d+\.\d+", "ADDRESS"),
    (r"([0-9A-F]{2}:){31}[0-9A-F]{2}", "FINGERPRINT"),
    (r"UPID:[^ `]+", "UPID"),
    (r"`[0-9a-f]{16}`", "`CLUSTER`"),
    (r"\b[0-9a-z]{16}\b", "ID"),
    (r"/tmp/\.tmp\w+", "DIR"),
    (r"\b100\d\d\b", "VMID"),
    (r"\b\d+(\.\d+)? (ms|s|min|h)\b", "N $2"),
];

/// Whether a clone of the last moment is taken back by now is up to the moment, too.
const COUNTS: &str =
    r"\d+ of 4 living, \d+ on their way(, \d+ held up)?, 0 free, \d+ busy, room for \d+";

/// What the page takes for a login.
pub const TOKEN: &str = "a-token-of-the-page";

/// A case on its stage.
pub struct Stage {
    pub sim: Sim,
    /// The folder of the service.
    pub site: Site,
    /// The service, where it runs.
    pub service: Option<Service>,
    /// The browser of all cases.
    pub seat: Seat,
    dir: tempfile::TempDir,
}

impl Stage {
    /// A cluster, and a configuration for it.
    pub fn new(options: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let sim = Sim::start_with(dir.path(), &[&["--guests", "process"], options].concat());
        let site = Site::new(&sim);
        let stage = Self { sim, site, service: None, seat: Seat::taken(), dir };
        stage.configure("", |yaml| yaml);
        stage
    }

    /// Writes the configuration: keys of the template, and a change of the whole text. Calls give up
    /// soon, failures count at once, and what failed rests for longer than a case lasts.
    pub fn configure(&self, template: &str, change: impl Fn(String) -> String) {
        let yaml = self.site.yaml(&self.sim, template).replace(
            "startVmId: 10000",
            "startVmId: 10000\n    callTimeoutSec: 5\n    connectTimeoutSec: 2\n    \
             operationTimeoutSec: 60",
        );
        self.write_yaml(&change(yaml));
    }

    /// Writes the whole text, with a page for people.
    pub fn write_yaml(&self, yaml: &str) {
        let token = self.secret("page-token", TOKEN);
        let page = format!(
            "service:\n  listen: \"127.0.0.1:0\"\n  tokens: [{{name: ops, role: admin, secretFile: \
             \"{token}\"}}]\n"
        );
        self.site.write_yaml(&yaml.replace("service:\n", &page));
    }

    /// The address of the page.
    pub fn page(&self) -> String {
        let journal = self.journal();
        let line = journal.lines().find(|line| line.contains("API served")).unwrap();
        let (_, address) = line.split_once("addr=").unwrap();
        let address = address.split_whitespace().next().unwrap().trim_matches('"');
        format!("http://{address}")
    }

    /// Starts the service, whose journal is kept.
    pub fn start(&mut self) {
        let said = std::fs::File::create(self.journal_file()).unwrap();
        let mut service =
            Service::spawn_under(&["env", "LOG_FORMAT=text"], &self.site, Stdio::from(said));
        service.hear("READY=1");
        service.drain();
        self.service = Some(service);
    }

    fn journal_file(&self) -> PathBuf {
        self.dir.path().join("journal")
    }

    pub fn faults(&self, text: &str) {
        let file = self.dir.path().join("faults.yaml");
        std::fs::write(&file, text).unwrap();
        self.sim.order(&format!("faults {}", file.display()));
    }

    /// A file of the configuration's folder.
    pub fn secret(&self, name: &str, text: &str) -> String {
        self.site.write_secret(name, text);
        self.site.dir.path().join(name).display().to_string()
    }

    /// What a command says on both of its streams.
    pub fn said(&self, args: &[&str]) -> String {
        let config = self.site.config().display().to_string();
        let out = self.site.cli(&[&["--config", &config], args].concat());
        format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr))
    }

    /// Asks until an answer has a part, and gives it.
    pub fn until(&self, args: &[&str], part: &str) -> String {
        let deadline = Instant::now() + WAIT_LIMIT;
        loop {
            let said = self.said(args);
            if said.contains(part) {
                return said;
            }
            assert!(
                Instant::now() < deadline,
                "`drover {}` never says `{part}`, but:\n{said}\njournal:\n{}",
                args.join(" "),
                self.journal()
            );
        }
    }

    /// Waits for a line of the journal that has all of these parts: reasons are logged within seconds.
    fn says(&self, parts: &[&str]) {
        let deadline = Instant::now() + WAIT_LIMIT;
        let is_it = |line: &str| parts.iter().all(|part| line.contains(part));
        while !self.journal().lines().any(is_it) {
            assert!(
                Instant::now() < deadline,
                "no line of the journal has all of {parts:?}:\n{}",
                masked(&self.journal())
            );
            // Each call takes the service a moment.
            self.said(&["jobs"]);
        }
    }

    /// What the journal says.
    pub fn journal(&self) -> String {
        std::fs::read_to_string(self.journal_file()).unwrap_or_default()
    }

    /// A case whose answer is there.
    pub fn answers(self, answer: impl Into<String>) -> Staged {
        Staged { stage: self, answer: answer.into() }
    }
}

/// A stage on which something waits, and what `drover` says of it.
pub struct Staged {
    pub stage: Stage,
    pub answer: String,
}

impl Staged {
    /// Compares what was answered with its golden text, looks for each of these parts in one line of the
    /// journal's, and finds the cause on the page.
    pub fn ends(self, case: &str, journal: &[&[&str]]) -> Stage {
        let Self { stage, answer } = self;
        insta::with_settings!({snapshot_path => "../../golden/why", prepend_module_to_snapshot => false, omit_expression => true}, {
            let counts = Regex::new(COUNTS).unwrap();
            insta::assert_snapshot!(case, counts.replace_all(&masked(&answer), "COUNTS"));
        });
        for parts in journal {
            stage.says(parts);
        }
        let twice = |line: &&str| line.matches("agent=").count() > 1;
        assert_eq!(stage.journal().lines().find(twice), None, "a line names its agent twice");
        stage.seat.solves(case, &stage);
        stage
    }
}

/// A text without what only one run has.
pub fn masked(text: &str) -> String {
    MASKS.iter().fold(text.to_owned(), |text, (pattern, name)| {
        Regex::new(pattern).unwrap().replace_all(&text, *name).into_owned()
    })
}
