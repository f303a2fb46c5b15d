//! `drover top` on a pseudo-terminal: what an operator sees and does, and how the terminal is given back.

use std::io::{Read, Write as _};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use crate::harness::{Events, Kept, Service, WAIT_LIMIT, world};
use crate::members::{Members, etcd};

const COLUMNS: usize = 100;
const ROWS: usize = 30;

/// Runs a program on a pseudo-terminal of 30 rows and 100 columns: what is read is typed, and what it shows is
/// written as it came. SIGTERM goes to the program, and its exit code is given.
const TERMINAL: &str = r#"
import fcntl, os, pty, select, signal, struct, sys, termios
pid, fd = pty.fork()
if pid == 0:
    fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
    os.execv(sys.argv[1], sys.argv[1:])
signal.signal(signal.SIGTERM, lambda *_: os.kill(pid, signal.SIGTERM))
while True:
    for one in select.select([fd, 0], [], [])[0]:
        try:
            piece = os.read(one, 65536)
        except OSError:
            piece = b""
        if one == fd and not piece:
            sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) & 255)
        os.write(1 if one == fd else fd, piece)
"#;

/// A terminal: the cells of its screen, and all that was written to it.
struct Terminal {
    program: Kept,
    keys: ChildStdin,
    output: Receiver<Vec<u8>>,
    cells: Vec<Vec<char>>,
    /// The row and the column of the cursor.
    cursor: (usize, usize),
    /// What came and is not a whole character or order yet.
    pending: String,
    raw: Vec<u8>,
}

impl Terminal {
    /// Runs a command on it.
    fn start(wanted: &Command) -> Self {
        let mut command = Command::new("python3");
        command.args(["-c", TERMINAL]).arg(wanted.get_program()).args(wanted.get_args());
        command.env("TERM", "xterm-256color").env_remove("NO_COLOR");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut program = Kept(command.spawn().unwrap());
        let keys = program.0.stdin.take().unwrap();
        let mut shown = program.0.stdout.take().unwrap();
        let (sender, output) = channel();
        std::thread::spawn(move || {
            let mut piece = [0; 65536];
            while let Ok(length) = shown.read(&mut piece) {
                if length == 0 || sender.send(piece[..length].to_vec()).is_err() {
                    return;
                }
            }
        });
        let cells = vec![vec![' '; COLUMNS]; ROWS];
        let (cursor, pending, raw) = ((0, 0), String::new(), Vec::new());
        Self { program, keys, output, cells, cursor, pending, raw }
    }

    fn types(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
        self.keys.flush().unwrap();
    }

    fn screen(&self) -> String {
        let lines =
            self.cells.iter().map(|row| row.iter().collect::<String>().trim_end().to_owned());
        lines.collect::<Vec<_>>().join("\n")
    }

    /// Reads until the screen is as it is wanted, and gives it.
    fn until(&mut self, what: &str, wanted: impl Fn(&str) -> bool) -> String {
        let deadline = Instant::now() + WAIT_LIMIT;
        loop {
            let screen = self.screen();
            if wanted(&screen) {
                return screen;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            match self.output.recv_timeout(left) {
                Ok(piece) => self.take(&piece),
                Err(_) => panic!("{what}; the screen:\n{screen}"),
            }
        }
    }

    /// Reads until a question stands so long that keys answer it.
    fn until_it_is_asked(&mut self, question: &str) {
        self.until_it_has(question);
        let shown = Instant::now();
        // The screen is drawn again each second.
        self.until("the question stands", |_| shown.elapsed() > Duration::from_millis(400));
    }

    fn until_it_has(&mut self, text: &str) -> String {
        self.until(&format!("no `{text}`"), |screen| screen.contains(text))
    }

    /// Reads to the end, and gives the exit code and whether the terminal was given back.
    fn end(mut self) -> (Option<i32>, bool) {
        let deadline = Instant::now() + WAIT_LIMIT;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.output.recv_timeout(left) {
                Ok(piece) => self.take(&piece),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => panic!("it does not end:\n{}", self.screen()),
            }
        }
        let raw = String::from_utf8_lossy(&self.raw).into_owned();
        let is_back = ["\u{1b}[?1049l", "\u{1b}[?25h"].iter().all(|order| raw.contains(order));
        (self.program.wait(), is_back)
    }

    /// Does what the bytes order: cursor, clearing, and texts.
    fn take(&mut self, piece: &[u8]) {
        self.raw.extend_from_slice(piece);
        // A character may be cut in two by a read; what came is read again as a whole.
        let whole = String::from_utf8_lossy(&self.raw).into_owned();
        if whole.ends_with('\u{fffd}') {
            return;
        }
        let known = self.pending.len();
        self.pending = whole;
        let fresh = self.pending[known..].to_owned();
        let mut rest = fresh.as_str();
        while let Some(c) = rest.chars().next() {
            if let Some(order) = rest.strip_prefix('\u{1b}') {
                let order = order.strip_prefix('[').unwrap_or(order);
                let Some(end) = order.find(|c: char| c.is_ascii_alphabetic()) else {
                    // The order goes on in the next piece, which may begin with its second character.
                    self.pending.truncate(self.pending.len() - rest.len());
                    return;
                };
                self.order(&order[..end], order.as_bytes()[end]);
                rest = &order[end + 1..];
                continue;
            }
            rest = &rest[c.len_utf8()..];
            let (row, column) = self.cursor;
            if let Some(cell) = self.cells.get_mut(row).and_then(|row| row.get_mut(column)) {
                *cell = c;
            }
            self.cursor.1 += 1;
        }
    }

    fn order(&mut self, numbers: &str, order: u8) {
        let number = |at: usize| numbers.split(';').nth(at).and_then(|one| one.parse().ok());
        match order {
            b'H' => self.cursor = (number(0).unwrap_or(1) - 1, number(1).unwrap_or(1) - 1),
            b'J' => self.cells.iter_mut().for_each(|row| row.fill(' ')),
            // Colours, and the modes of the terminal.
            b'm' | b'h' | b'l' => {}
            other => {
                panic!("an order that this terminal does not know: {numbers}{}", other as char)
            }
        }
    }
}

// Invariant: the screen shows what happens as it happens, runs what was confirmed, and survives its service.

#[test]
fn an_operator_follows_an_agent_retires_it_and_sees_the_service_go_and_come_back() {
    let (_dir, _sim, site) = world();
    let mut service = Service::start(&site);
    let mut events = Events::follow(&site);
    let mut top = Terminal::start(&site.command(["top", "agents"]));
    top.until_it_has("live");
    let started = site.json(&["provision", "linux"]);
    let agent = started["agents"][0].as_str().unwrap().to_owned();
    let short = agent[..6].to_owned();
    events.until("agent", |fact| fact["agent"]["state"] == "Ready");
    top.until("the agent is Ready", |screen| {
        screen.lines().any(|line| line.starts_with(&short) && line.contains("Ready"))
    });
    // What it is, where its time went, and what happened to it.
    top.types("\n");
    top.until("its detail", |screen| screen.contains("TIME") && screen.contains("Booting"));
    top.types("G");
    top.until("its events", |screen| screen.contains(&format!("drover retire {agent}")));
    top.types("\u{1b}");
    top.until("the list again", |screen| !screen.contains("NEXT"));
    // A question that is not answered with yes changes nothing.
    top.types("t");
    top.until_it_is_asked(&format!("drover retire {agent}  y: run it"));
    top.types("n");
    top.until_it_has("nothing was changed");
    top.types("t");
    top.until_it_is_asked("y: run it");
    top.types("y");
    events.until("agentGone", |fact| fact["agent"]["id"] == *agent);
    top.until("the agent is gone", |screen| screen.contains("─ agents: 0"));
    top.types(":herd\n");
    top.until("the herd", |screen| screen.contains("cloud lab") && screen.contains("lab/linux"));

    service.child.signal("TERM");
    assert_eq!(service.child.wait(), Some(0));
    let screen = top.until_it_has("NOT REACHED for");
    assert!(screen.contains("lab/linux") && screen.contains("data of"), "{screen}");
    let _service = Service::start(&site);
    top.until("live again", |screen| screen.contains("live") && !screen.contains("NOT REACHED"));
    top.types("q");
    assert_eq!(top.end(), (Some(0), true));
}

// Invariant: while no member of a store leads the screen says so, and goes on with the next leader.

#[test]
fn a_screen_on_a_standby_follows_the_next_leader() {
    let Some(store) = etcd() else { return };
    let (_dir, sim, site) = world();
    let yaml = site.yaml(&sim, "");
    let mut members = Members::start(store, site, &yaml);
    let leader = members.leader();
    let asked = members.other(leader);
    let mut top = Terminal::start(&members.command(asked, &["top", "members"]));
    top.until("both members", |screen| screen.contains("leader") && screen.contains("standby"));
    top.until_it_has("live");
    members.kill(leader);
    top.until_it_has("NO MEMBER LEADS");
    top.until("live again", |screen| {
        screen.lines().next().is_some_and(|head| head.ends_with("live"))
    });
    top.types("q");
    assert_eq!(top.end(), (Some(0), true));
}

// Invariant: the terminal is given back at each end.

#[test]
fn the_terminal_is_given_back_after_ctrl_c_and_after_a_signal() {
    let (_dir, _sim, site) = world();
    // Without a service, too.
    let mut top = Terminal::start(&site.command(["top", "--readonly"]));
    let screen = top.until_it_has("NOT REACHED");
    assert!(screen.contains("READ ONLY"), "{screen}");
    top.types("\u{3}");
    assert_eq!(top.end(), (Some(130), true));
    let mut top = Terminal::start(&site.command(["top"]));
    top.until_it_has("NOT REACHED");
    top.program.signal("TERM");
    assert_eq!(top.end(), (Some(143), true));
}

// Invariant: without a terminal it draws nothing, and names what does.

#[test]
fn without_a_terminal_it_names_the_command_that_prints() {
    let (_dir, _sim, site) = world();
    for words in [&["top"][..], &["--json", "top"]] {
        let out = site.cli(words);
        let said = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{said}");
        assert!(said.contains("drover status --watch") && out.stdout.is_empty(), "{said}");
    }
    let out = site.cli(&["top", "moons"]);
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.code() == Some(2) && said.contains("address-pools"), "{said}");
}
