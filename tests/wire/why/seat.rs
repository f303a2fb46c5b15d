//! The page as somebody uses it who is woken at night and knows nothing else: from the first page by what it
//! shows to the cause and to what helps. The clicks of each case and what is read in the end are a golden text.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Instant;

use regex_lite::Regex;

use super::stage::{Stage, TOKEN, masked};
use crate::browser::Browser;
use crate::harness::note;

/// The most clicks from the first page.
const CLICKS_MAX: usize = 3;
/// Times as the page shows them.
const WHENS: &str =
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d|in N (s|min|h)|N (s|min|h) ago|for N (s|min|h)( more| now)?";

/// How a cause is found.
pub struct Way {
    pub case: &'static str,
    /// What is clicked on, from the first page on.
    clicks: &'static [&'static str],
    /// Where both stand in the end.
    place: &'static str,
    cause: &'static [&'static str],
    /// The key, command or button that helps.
    remedy: &'static str,
}

const fn way(
    case: &'static str,
    clicks: &'static [&'static str],
    place: &'static str,
    cause: &'static [&'static str],
    remedy: &'static str,
) -> Way {
    Way { case, clicks, place, cause, remedy }
}

/// What waits, and why.
const WAITS: &str = "#waits tr";
const ALARMS: &str = "#alarms li";
/// Leads from what waits to the whole answer.
const WHY: &str = "#waits th a";
/// What keeps a template from each node, in the whole answer.
const NODES: &str = "#why > section.why:last-of-type";
const OPEN: &str = "its agents failed, so drover tries the next one";
const AGAIN: &str = "Try again now";

/// A way for each case. The last one of the field's table, a service that does not start, has no page.
pub const WAYS: [Way; 24] = [
    way(
        "one_endpoint_down_of_one",
        &[],
        ALARMS,
        &["cloud lab", "no endpoint of cloud lab answers any more", "broke off"],
        "check on a node that pveproxy runs",
    ),
    way("one_endpoint_down_of_three", &[WHY], NODES, &["pve1", "it is offline"], "pvecm status"),
    way(
        "memory_above_any_node",
        &[WHY],
        NODES,
        &["it has 65536 MiB of memory, 70000 MiB are needed"],
        "lower memoryMb",
    ),
    way(
        "label_nobody_has",
        &[WHY],
        NODES,
        &["it lacks the label gpu, which nodeSelector now", "requires: drop it there"],
        "in nodeLabels",
    ),
    way("missing_vmid", &[], WAITS, &["has no guest 9100: check templateVmId", OPEN], AGAIN),
    way(
        "cap_eaten_by_a_minimum",
        &[],
        WAITS,
        &["cloud lab is full: 1 of 1 (instanceCap"],
        "once instanceCap of cloud lab is raised",
    ),
    way("ready_command", &[], WAITS, &["exit status 3", "last: the image has no docker"], AGAIN),
    way(
        "storage_lock",
        &[],
        WAITS,
        // While the next one is tried, the last one that failed has the cause.
        &[
            "storage local-lvm was locked for longer",
            "got timeout",
            "drover tries it again by itself",
        ],
        "clonesPerStorage",
    ),
    way(
        "no_space",
        &[],
        WAITS,
        &["no space for a disk of", "Insufficient free space", OPEN],
        "targetStorages",
    ),
    way(
        "wrong_guest_networks",
        &[],
        WAITS,
        &["the guest has no address in 10.0.0.0/8 that drover may use"],
        "set guestNetworks",
    ),
    way("wrong_ssh_port", &[], WAITS, &["nothing listens on port 2299", OPEN], "sshPort"),
    way(
        "user_disabled",
        &[],
        ALARMS,
        &["refused the login drover@pve!ci"],
        "that its user is enabled",
    ),
    way(
        "privilege_gone",
        &[],
        WAITS,
        &["needs the privilege VM.Clone on /vms/9000"],
        "give drover@pve!ci a role with it there",
    ),
    way("all_drained", &[], "#kept-out li", &["drained", "pve1"], "Use pve1 again"),
    way("pool_of_a_dead_address", &[], WAITS, &["nothing listens on port 2299", OPEN], "sshPort"),
    way("gitea_silent", &[], ALARMS, &["source git", "does not answer at http"], "drover doctor"),
    way(
        "backup_lock",
        &["#tiles a[href='/agents']"],
        "#agents tr",
        &["is locked by Proxmox (backup)"],
        "qm unlock",
    ),
    way("no_quorum", &[], ALARMS, &["has no quorum for"], "pvecm status on a node"),
    way(
        "certificate_changed",
        &[],
        ALARMS,
        &["the nodes show a certificate that drover does not know", "saw SHA-256"],
        "put the new /etc/pve/pve-root-ca.pem where caFile",
    ),
    way("template_full", &[], WAITS, &["lab/linux is full: 1 of 1"], "Leases says who has them"),
    way(
        "configuration_broken",
        &[],
        "#refused",
        &["drover.yaml:34:18", "expected a whole number, found text", "^^^^"],
        "give a number from 0 to 1000000",
    ),
    way(
        "machine_lost_under_its_job",
        &[],
        "#look li[id^=lost]",
        &["lease lost", "lost: node pve2 is offline, and its SSH does not answer"],
        "ask for a new lease",
    ),
    way(
        "node_maintenance",
        &[WHY],
        NODES,
        &["pve1", "it is in maintenance"],
        "ha-manager crm-command node-maintenance disable",
    ),
    way(
        "cloud_gone_at_resync",
        &[],
        ALARMS,
        &["cloud lab", "no endpoint of cloud lab answers any more"],
        "check on a node that pveproxy runs",
    ),
];

/// One browser for all cases that run at a time: the first to use it opens it, and it goes with the last.
#[derive(Clone)]
pub struct Seat(Arc<OnceLock<Mutex<Browser>>>);

static SHARED: Mutex<Weak<OnceLock<Mutex<Browser>>>> = Mutex::new(Weak::new());

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A case that failed left it at some page, and each begins at the first.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Seat {
    /// A place at the browser of all.
    pub fn taken() -> Self {
        let mut shared = locked(&SHARED);
        let known = shared.upgrade().unwrap_or_default();
        *shared = Arc::downgrade(&known);
        Self(known)
    }

    /// Logs in at a stage, where nobody else uses the browser, and begins at the first page.
    pub fn sits_at(&self, stage: &Stage) -> Sitting<'_> {
        let base = stage.page();
        let open = || Mutex::new(Browser::open(&base, (1280, 900)));
        let mut browser = locked(self.0.get_or_init(open));
        browser.moves_to(&base);
        browser.go("/");
        if browser.place() != "/" {
            browser.put("#token", TOKEN);
            browser.click("form.login button");
        }
        browser.until_text("#live", "live");
        Sitting(browser)
    }

    /// Finds the cause of a case and what helps, and compares the way there with its golden text.
    pub fn solves(&self, case: &str, stage: &Stage) {
        let way = WAYS.iter().find(|way| way.case == case);
        let way = way.unwrap_or_else(|| panic!("{case} has no way on the page"));
        assert!(way.clicks.len() <= CLICKS_MAX, "{case}: {} clicks", way.clicks.len());
        let seat = self.sits_at(stage);
        let start = Instant::now();
        let mut path = seat.0.place();
        for css in way.clicks {
            seat.clicks(css);
            path += &format!(" > {}", seat.0.place());
        }
        let parts = || way.cause.iter().chain([&way.remedy]);
        for part in parts() {
            seat.shows(way.place, part);
        }
        let text = seat.text(way.place);
        for part in parts() {
            assert!(text.contains(part), "{case}: {part} is gone: {text}");
        }
        seat.0.shoot(&format!("seat-{case}"));
        // A page of the case before may complain that its service is gone.
        let base = stage.page();
        let own = seat.0.complaints().into_iter().filter(|line| line.contains(&base));
        assert_eq!(own.collect::<Vec<_>>(), Vec::<String>::new());
        let (clicks, took) = (way.clicks.len(), start.elapsed().as_millis());
        note(&format!("page, {case}: found after {clicks} clicks, {took} ms"));
        let whens = Regex::new(WHENS).unwrap();
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let text = masked(&lines.collect::<Vec<_>>().join("\n"));
        let text = whens.replace_all(&text, "WHEN");
        // How often it was tried is up to the moment, and so is which call finds out first.
        let times = Regex::new(r" \(\d+ times WHEN\)").unwrap();
        let text = times.replace_all(&text, "");
        let calls = Regex::new(r"for GET /\S+: https").unwrap();
        let text = calls.replace_all(&text, "for GET PATH: https");
        let shown = format!("clicks {}: {}\n{text}", way.clicks.len(), masked(&path));
        insta::with_settings!({snapshot_path => "../../golden/seat", prepend_module_to_snapshot => false, omit_expression => true}, {
            insta::assert_snapshot!(case, shown);
        });
    }
}

/// Somebody who sits at the browser.
pub struct Sitting<'a>(MutexGuard<'a, Browser>);

impl Sitting<'_> {
    /// Clicks on what the page shows.
    pub fn clicks(&self, css: &str) {
        self.0.click(css);
    }

    /// Waits until the first place of that kind has this.
    pub fn shows(&self, css: &str, text: &str) {
        self.0.until_text(css, text);
    }

    /// Waits until the first place of that kind has this no more.
    pub fn lacks(&self, css: &str, text: &str) {
        self.0.until_no_text(css, text);
    }

    pub fn text(&self, css: &str) -> String {
        self.0.text(css)
    }

    /// Looks whether this page is shown.
    pub fn leads_to(&self, place: &str) {
        assert_eq!(self.0.place(), place);
    }
}
