//! Random plans over a real repository: commits, broken ones, force-moves, syncs, returns, overrides,
//! edited copies, crashes. What runs is what was applied last, and nobody's machine is touched.

use std::fs;
use std::path::PathBuf;

use drover_model::ambient::Dice;
use serde_json::{Value, json};

use crate::harness::{Service, Sim, Site, world};
use crate::parity::{guest_of, leased};
use crate::repo::{Repo, alarms, ended, eventually};

/// Things that happen in one plan.
const STEPS: usize = 40;

/// What a commit's file has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Text {
    /// A template with a cap, and with cores: others make another version of it.
    Template {
        cap: u64,
        cores: u64,
    },
    /// There is no cloud in it.
    Nothing,
    Broken,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Commit {
    id: String,
    text: Text,
}

struct Storm {
    dice: Dice,
    sim: Sim,
    site: Site,
    repo: Repo,
    service: Option<Service>,
    /// The branch, the newest commit last.
    branch: Vec<Commit>,
    /// What was applied, the newest last.
    applied: Vec<Commit>,
    pinned: bool,
    gone: bool,
    /// The cap that somebody set.
    set: Option<u64>,
    /// The cap in the copy that somebody edited.
    edited: Option<u64>,
    /// Agents whose machines somebody uses, with the configuration of each machine.
    held: Vec<(String, Value, Value)>,
    /// What happened, for a failure.
    steps: Vec<String>,
}

impl Storm {
    fn begin(seed: u64) -> (tempfile::TempDir, Self) {
        let (dir, sim, site) = world();
        let repo = Repo::new(&site, &sim);
        let text = Text::Template { cap: 4, cores: 2 };
        let begin = Commit { id: repo.commit("Begin", &written(&repo, text)), text };
        let service = Some(Service::start(&site));
        site.json(&["sync"]);
        let held = leased(&site, ["linux", "linux"]);
        let held = held.map(|(lease, agent)| {
            let guest = guest_of(&sim, &agent);
            (lease, agent, guest)
        });
        let storm = Self {
            dice: Dice::from_number(seed),
            sim,
            site,
            repo,
            service,
            branch: vec![begin.clone()],
            applied: vec![begin],
            pinned: false,
            gone: false,
            set: None,
            edited: None,
            held: held.into(),
            steps: vec![format!("seed {seed}")],
        };
        (dir, storm)
    }

    fn below(&mut self, most: usize) -> usize {
        usize::try_from(self.dice.below(u64::try_from(most).unwrap())).unwrap()
    }

    fn in_force(&self) -> &Commit {
        self.applied.last().unwrap()
    }

    fn step(&mut self) {
        match self.below(12) {
            0 | 1 => self.commit(0),
            2 => {
                let away = 1 + self.below(self.branch.len());
                self.commit(away.min(self.branch.len() - 1));
            }
            3 => {
                self.gone = !self.gone;
                self.repo.set_gone(self.gone);
                self.steps.push(format!("gone: {}", self.gone));
            }
            4 | 5 => self.sync(),
            6 => self.back(),
            7 => self.to(),
            8 => self.set(),
            9 => self.edit(),
            10 => self.crash(),
            _ => self.plan(),
        }
        self.check();
    }

    /// One more commit, in place of so many of the newest.
    fn commit(&mut self, in_place_of: usize) {
        if self.gone {
            return;
        }
        let text = match self.below(6) {
            0 => Text::Broken,
            1 => Text::Nothing,
            _ => Text::Template { cap: 3 + self.dice.below(7), cores: 1 + self.dice.below(3) },
        };
        self.branch.truncate(self.branch.len() - in_place_of);
        let from = self.branch.last().unwrap().id.clone();
        self.repo.git(&["reset", "-q", "--hard", &from]);
        let subject = format!("Commit {}", self.steps.len());
        let id = self.repo.commit(&subject, &written(&self.repo, text));
        self.steps.push(format!("{id:.7} in place of {in_place_of}: {text:?}"));
        self.branch.push(Commit { id, text });
    }

    fn sync(&mut self) {
        let head = self.branch.last().unwrap().clone();
        let (code, said) = self.said(&["sync"]);
        if self.gone {
            assert_eq!(code, 1, "{said}\n{:#?}", self.steps);
        } else if head.text == Text::Broken {
            assert_eq!(code, 2, "{said}\n{:#?}", self.steps);
        } else {
            assert_eq!(code, 0, "{said}\n{:#?}", self.steps);
            self.pinned = false;
            self.applies(head);
        }
    }

    fn back(&mut self) {
        let now = self.in_force().id.clone();
        let before = self.applied.iter().rev().find(|commit| commit.id != now).cloned();
        let (code, said) = self.said(&["sync", "--back"]);
        assert_eq!(code, i32::from(before.is_none()), "{said}\n{:#?}", self.steps);
        if let Some(before) = before {
            self.pinned = true;
            self.applies(before);
        }
    }

    fn to(&mut self) {
        let mut known = self.applied.clone();
        known.extend(self.branch.iter().cloned());
        let to = known.swap_remove(self.below(known.len()));
        let kept = self.applied.contains(&to);
        let (code, said) = self.said(&["sync", "--to", &to.id]);
        if !kept && self.gone {
            assert_eq!(code, 1, "{said}\n{:#?}", self.steps);
        } else if to.text == Text::Broken {
            assert_eq!(code, 2, "{said}\n{:#?}", self.steps);
        } else {
            assert_eq!(code, 0, "{said}\n{:#?}", self.steps);
            self.pinned = true;
            self.applies(to);
        }
    }

    fn applies(&mut self, commit: Commit) {
        (self.set, self.edited) = (None, None);
        self.applied.push(commit);
    }

    fn set(&mut self) {
        let cap = 3 + self.dice.below(7);
        let (code, said) =
            self.said(&["templates", "set", "linux", "--instance-cap", &cap.to_string()]);
        let there = matches!(self.in_force().text, Text::Template { .. });
        assert_eq!(code == 0, there, "{said}\n{:#?}", self.steps);
        if there {
            self.set = Some(cap);
        }
    }

    fn edit(&mut self) {
        let Text::Template { cores, .. } = self.in_force().text else { return };
        let cap = 3 + self.dice.below(7);
        let copy = self.folder().join("in-force/files/ci/cloud.yaml");
        fs::write(copy, written(&self.repo, Text::Template { cap, cores })).unwrap();
        assert_eq!(self.said(&["reload"]).0, 0, "{:#?}", self.steps);
        self.edited = Some(cap);
    }

    /// The power goes amid a sync: what it wrote before it counted is there at the next start.
    fn crash(&mut self) {
        drop(self.service.take());
        let folder = self.folder();
        let draft = folder.join("draft/tree/ci");
        fs::create_dir_all(&draft).unwrap();
        fs::write(draft.join("cloud.yaml"), "half of a fi").unwrap();
        let new = folder.join("in-force.new");
        if self.below(2) == 0 && new.symlink_metadata().is_err() {
            std::os::unix::fs::symlink("applied/9999-000000000000", new).unwrap();
        }
        self.steps.push("crash".to_owned());
        self.service = Some(Service::start(&self.site));
    }

    fn plan(&mut self) {
        let head = self.branch.last().unwrap().text;
        let (code, said) = self.said(&["plan", "--git"]);
        if self.gone || head == Text::Broken {
            assert_eq!(code, 1, "{said}\n{:#?}", self.steps);
        } else {
            assert!(code == 0 || code == 3, "{said}\n{:#?}", self.steps);
            let other = (self.running() != head) || self.set.is_some() || self.edited.is_some();
            assert_eq!(code == 3, other, "{said}\n{:#?}", self.steps);
        }
    }

    /// What the commit in force has.
    fn running(&self) -> Text {
        self.in_force().text
    }

    fn folder(&self) -> PathBuf {
        self.site.dir.path().join("state/config-sync")
    }

    fn said(&mut self, args: &[&str]) -> (i32, String) {
        let (code, said) = ended(&self.site, args);
        self.steps.push(format!("{} -> {code}", args.join(" ")));
        (code, said)
    }

    fn check(&self) {
        let steps = &self.steps;
        let status = self.site.json(&["sync", "--status"]);
        assert_eq!(status["inForce"]["commit"], json!(self.in_force().id), "{steps:#?}");
        assert_eq!(status["pinned"], json!(self.pinned), "{steps:#?}");
        let wanted: Vec<u64> = match self.running() {
            Text::Template { cap, .. } => vec![self.set.or(self.edited).unwrap_or(cap)],
            Text::Nothing => Vec::new(),
            Text::Broken => panic!("a broken file is in force: {steps:#?}"),
        };
        // What comes into force is shown a moment later.
        let caps = eventually(|| self.caps(), |caps| *caps == wanted);
        assert_eq!(caps, wanted, "{steps:#?}");
        let changed = self.set.is_some() || self.edited.is_some_and(|cap| [cap] != self.own_cap());
        let is_shown = |alarms: &String| alarms.contains("instanceCap") == changed;
        let alarms = eventually(|| alarms(&self.site), is_shown);
        assert_eq!(alarms.contains("instanceCap"), changed, "{alarms}\n{steps:#?}");
        let leases = self.site.json(&["leases"]);
        for (lease, agent, guest) in &self.held {
            let leases = leases["leases"].as_array().unwrap();
            let own = leases.iter().find(|one| one["id"] == json!(lease)).unwrap();
            assert_eq!(
                (&own["state"], &own["agent"]),
                (&json!("ready"), &agent["id"]),
                "{steps:#?}"
            );
            assert_eq!(guest_of(&self.sim, agent), *guest, "{steps:#?}");
        }
    }

    fn caps(&self) -> Vec<u64> {
        let out = self.site.json(&["templates"]);
        let templates = out["templates"].as_array().unwrap().iter();
        // One that left the configuration stays until its last agent is gone.
        let managed = templates.filter(|one| one["managedBy"] == json!(self.in_force().id));
        managed.filter_map(|one| one["cap"].as_u64()).collect()
    }

    fn own_cap(&self) -> [u64; 1] {
        match self.running() {
            Text::Template { cap, .. } => [cap],
            Text::Nothing | Text::Broken => [0],
        }
    }
}

fn written(repo: &Repo, text: Text) -> String {
    match text {
        Text::Template { cap, cores } => repo.template.replace(
            "instanceCap: 4",
            &format!("instanceCap: {cap}\n    instanceMin: 3\n    cores: {cores}"),
        ),
        Text::Nothing => "cloudConfigurations: {}\n".to_owned(),
        Text::Broken => repo.template.replace("instanceCap", "instnaceCap"),
    }
}

// Invariant: whatever happens to the repository and whatever people do, what runs is what was applied last
// with what people set since, and nobody's machine is touched.

#[test]
fn syncs_force_moves_overrides_returns_and_crashes_leave_the_last_commit_and_all_leases() {
    for seed in 0..3 {
        let (_dir, mut storm) = Storm::begin(seed);
        for _ in 0..STEPS {
            storm.step();
        }
        if storm.gone {
            storm.repo.set_gone(false);
            storm.gone = false;
        }
        for (lease, ..) in std::mem::take(&mut storm.held) {
            storm.site.json(&["release", &lease]);
        }
        let text = Text::Nothing;
        let id = storm.repo.commit("End", &written(&storm.repo, text));
        storm.branch.push(Commit { id, text });
        storm.sync();
        storm.check();
        storm.site.until_empty();
        assert!(storm.sim.guests().into_iter().all(|vmid| vmid < 10_000), "{:#?}", storm.steps);
    }
}
