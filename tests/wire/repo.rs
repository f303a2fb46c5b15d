//! A real git repository with part of a site's configuration.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::harness::{Sim, Site};

/// A repository beside a site whose machine has no cloud of its own.
pub struct Repo {
    pub dir: tempfile::TempDir,
    /// The configuration of the first commit.
    pub template: String,
}

impl Repo {
    /// One that the site's service reads as a folder.
    pub fn new(site: &Site, sim: &Sim) -> Self {
        Self::reached(site, sim, |dir| format!("repository: '{}'", dir.display()))
    }

    /// One that the site's service reaches by these keys; they may need its folder.
    pub fn reached(site: &Site, sim: &Sim, keys: impl Fn(&Path) -> String) -> Self {
        let yaml = site.yaml(sim, "");
        let at = yaml.find("cloudDefaults:").unwrap();
        let (own, git) = yaml.split_at(at);
        let ca = format!("{}/ca.pem", site.dir.path().display());
        let repo = Self { dir: tempfile::tempdir().unwrap(), template: git.replace(&ca, "ca.pem") };
        repo.git(&["init", "-q", "-b", "main"]);
        fs::create_dir(repo.dir.path().join("ci")).unwrap();
        fs::copy(site.dir.path().join("ca.pem"), repo.dir.path().join("ci/ca.pem")).unwrap();
        repo.commit("Begin", &repo.template);
        let sync = format!("  configSync: {{{}, path: ci/cloud.yaml}}\n", keys(repo.dir.path()));
        site.write_yaml(&own.replace("service:\n", &format!("service:\n{sync}")));
        repo
    }

    pub fn git(&self, args: &[&str]) -> String {
        let out = Command::new("git")
            .current_dir(self.dir.path())
            .args(["-c", "user.name=Ann", "-c", "user.email=ann@example.com"])
            .args(args)
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .output()
            .unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap().trim().to_owned()
    }

    pub fn head(&self) -> String {
        self.git(&["rev-parse", "HEAD"])
    }

    pub fn file(&self) -> PathBuf {
        self.dir.path().join("ci/cloud.yaml")
    }

    /// Commits a text of the configuration and gives the commit's id.
    pub fn commit(&self, subject: &str, text: &str) -> String {
        fs::write(self.file(), text).unwrap();
        self.git(&["add", "-A"]);
        self.git(&["commit", "-q", "--allow-empty", "-m", subject]);
        self.head()
    }

    pub fn with_cap(&self, cap: u32) -> String {
        self.template.replace("instanceCap: 4", &format!("instanceCap: {cap}"))
    }

    /// Takes it away, or brings it back.
    pub fn set_gone(&self, gone: bool) {
        let (here, away) = (self.dir.path(), self.dir.path().with_extension("moved"));
        let (from, to) = if gone { (here, &*away) } else { (&*away, here) };
        fs::rename(from, to).unwrap();
    }
}

/// The cap of the only template, as soon as it is shown.
pub fn cap(site: &Site) -> Value {
    let shown = |site: &Site| site.json(&["templates"])["templates"][0].clone();
    let template = eventually(|| shown(site), Value::is_object);
    template["cap"].clone()
}

/// What is looked at, once it is as wanted; after a minute as it is.
pub fn eventually<T>(look: impl Fn() -> T, wanted: impl Fn(&T) -> bool) -> T {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let seen = look();
        if wanted(&seen) || Instant::now() > deadline {
            return seen;
        }
    }
}

/// The text of each alarm, a line each.
pub fn alarms(site: &Site) -> String {
    let out = site.json(&["alarms"]);
    let texts = out["alarms"].as_array().unwrap().iter();
    texts.map(|one| format!("{}\n", one["text"].as_str().unwrap())).collect()
}

/// The exit code of a command, with what it printed.
pub fn ended(site: &Site, args: &[&str]) -> (i32, String) {
    let out = site.cli(args);
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    (out.status.code().unwrap(), text + &String::from_utf8_lossy(&out.stderr))
}
