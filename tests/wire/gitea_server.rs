//! A real Gitea: its server alone, with its API.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::harness::{Kept, Lines};
use crate::open::free_port;

/// A Gitea of its own for one test.
pub struct Gitea {
    pub url: String,
    pub token: String,
    _child: Kept,
    /// What it says is read for as long as it lives.
    _lines: Lines,
    _dir: tempfile::TempDir,
}

impl Gitea {
    /// Starts one; `tests/all` has built it.
    pub fn start() -> Self {
        let tool = |name: &str| {
            let path = std::env::var_os(name).map(PathBuf::from);
            path.unwrap_or_else(|| panic!("{name} is not set: run the tests by tests/all"))
        };
        let (program, assets) = (tool("DROVER_TEST_GITEA"), tool("DROVER_TEST_GITEA_ASSETS"));
        let dir = tempfile::tempdir().unwrap();
        let port = free_port();
        let url = format!("http://127.0.0.1:{port}");
        fs::write(dir.path().join("app.ini"), settings(dir.path(), &assets, port)).unwrap();
        let gitea = |args: &[&str]| {
            let mut command = Command::new(&program);
            command.arg("-c").arg(dir.path().join("app.ini")).args(args).stdin(Stdio::null());
            command.env("GITEA_I_AM_BEING_UNSAFE_RUNNING_AS_ROOT", "true");
            command.env("HOME", dir.path()).current_dir(dir.path());
            command
        };
        let done = |args: &[&str]| {
            let out = gitea(args).output().unwrap();
            let said = String::from_utf8_lossy(&out.stdout).into_owned();
            assert!(out.status.success(), "{said}{}", String::from_utf8_lossy(&out.stderr));
            said
        };
        done(&["migrate"]);
        let user = ["--username", "drover", "--password", "Test-only-1"];
        let mail = ["--email", "drover@example.com", "--must-change-password=false"];
        done(&[&["admin", "user", "create", "--admin"], &user[..], &mail[..]].concat());
        let name = ["--username", "drover", "--token-name", "t", "--scopes", "all", "--raw"];
        let said = done(&[&["admin", "user", "generate-access-token"], &name[..]].concat());
        // What it logs meanwhile stands beside it.
        let is_token =
            |line: &&str| line.len() == 40 && line.bytes().all(|b| b.is_ascii_hexdigit());
        let token = said.lines().map(str::trim).find(is_token).unwrap().to_owned();
        let mut child = gitea(&["web"]);
        let mut child = Kept(child.stdout(Stdio::piped()).spawn().unwrap());
        let mut lines = Lines::of("gitea", child.0.stdout.take().unwrap());
        lines.until(|line| line.contains("Starting new Web server"));
        let gitea = Self { url, token, _child: child, _lines: lines, _dir: dir };
        // The line comes just before it listens.
        gitea.call("GET", "/api/healthz", None);
        gitea
    }

    /// A token of the same user that may do this and nothing else.
    pub fn narrow(&mut self, scopes: &str) {
        let mut curl = Command::new("curl");
        curl.args(["-sS", "-u", "drover:Test-only-1", "-H", "Content-Type: application/json"]);
        let body = json!({ "name": "narrow", "scopes": [scopes] }).to_string();
        let url = format!("{}/api/v1/users/drover/tokens", self.url);
        let out = curl.args(["-d", &body, &url]).output().unwrap();
        let made: Value = serde_json::from_slice(&out.stdout).unwrap();
        self.token = made["sha1"].as_str().unwrap().to_owned();
    }

    /// Calls its API and gives the JSON it answers with; null for nothing.
    pub fn call(&self, method: &str, path: &str, body: Option<Value>) -> Value {
        let mut curl = Command::new("curl");
        curl.args(["-sS", "--retry", "20", "--retry-connrefused", "--retry-delay", "0"]);
        curl.args(["-X", method, "-H", &format!("Authorization: token {}", self.token)]);
        if let Some(body) = body {
            curl.args(["-H", "Content-Type: application/json", "-d", &body.to_string()]);
        }
        let out = curl.arg(format!("{}{path}", self.url)).output().unwrap();
        assert!(out.status.success(), "{method} {path}: {out:?}");
        serde_json::from_slice(&out.stdout).unwrap_or(Value::Null)
    }

    /// A repository with this workflow, whose push begins its jobs.
    pub fn repository(&self, name: &str, workflow: &str) {
        let body = json!({ "name": name, "auto_init": true, "default_branch": "main" });
        self.call("POST", "/api/v1/user/repos", Some(body));
        self.workflow(name, workflow);
    }

    /// Pushes a workflow, which begins its jobs.
    pub fn workflow(&self, name: &str, workflow: &str) {
        let content = base64(workflow.as_bytes());
        let body = json!({ "content": content, "message": "ci", "branch": "main" });
        let path = format!("/api/v1/repos/drover/{name}/contents/.gitea/workflows/ci.yml");
        self.call("POST", &path, Some(body));
    }

    /// Its jobs by name, each with how it ended.
    pub fn conclusions(&self) -> BTreeMap<String, String> {
        let jobs = self.call("GET", "/api/v1/admin/actions/jobs?limit=50", None);
        let jobs = jobs["jobs"].as_array().cloned().unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
        jobs.iter().map(|job| (text(&job["name"]), text(&job["conclusion"]))).collect()
    }

    /// Signs what happens to jobs and sends it there.
    pub fn hook(&self, name: &str, url: &str, secret: &str) {
        let config = json!({ "url": url, "content_type": "json", "secret": secret });
        let body = json!({
            "type": "gitea", "active": true, "events": ["workflow_job"], "config": config,
        });
        let made = self.call("POST", &format!("/api/v1/repos/drover/{name}/hooks"), Some(body));
        assert!(made["id"].is_u64(), "{made}");
    }

    /// Cancels the run of the one job that is under way, as its page does: there is no call for that.
    pub fn cancel(&self) {
        let jobs = self.call("GET", "/api/v1/admin/actions/jobs?status=in_progress", None);
        let page = jobs["jobs"][0]["html_url"].as_str().unwrap().to_owned();
        let (run, _) = page.split_once("/jobs/").unwrap();
        let dir = tempfile::tempdir().unwrap();
        let cookies = dir.path().join("cookies");
        for (url, form) in [
            (format!("{}/user/login", self.url), "user_name=drover&password=Test-only-1"),
            (format!("{run}/cancel"), ""),
        ] {
            let mut curl = Command::new("curl");
            curl.args(["-sS", "--fail", "-A", "Mozilla/5.0", "-d", form, "-b"]);
            let out = curl.arg(&cookies).arg("-c").arg(&cookies).arg(&url).output().unwrap();
            assert!(out.status.success(), "{url}: {}", String::from_utf8_lossy(&out.stderr));
        }
        assert_eq!(self.conclusions(), [("it".to_owned(), "cancelled".to_owned())].into());
    }

    /// How many runners it knows.
    pub fn runners(&self) -> usize {
        let all = self.call("GET", "/api/v1/admin/actions/runners", None);
        all["runners"].as_array().map_or(0, Vec::len)
    }
}

fn base64(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

fn settings(dir: &Path, assets: &Path, port: u16) -> String {
    let user = String::from_utf8(Command::new("id").arg("-un").output().unwrap().stdout).unwrap();
    format!(
        "RUN_MODE = prod\nRUN_USER = {user}\nWORK_PATH = {dir}\n\
         [server]\nHTTP_ADDR = 127.0.0.1\nHTTP_PORT = {port}\n\
         ROOT_URL = http://127.0.0.1:{port}/\nDISABLE_SSH = true\nOFFLINE_MODE = true\n\
         STATIC_ROOT_PATH = {assets}\nAPP_DATA_PATH = {dir}/data\n\
         [database]\nDB_TYPE = sqlite3\nPATH = {dir}/gitea.db\n\
         [repository]\nROOT = {dir}/repos\nDEFAULT_BRANCH = main\n\
         [security]\nINSTALL_LOCK = true\nSECRET_KEY = test-only\n\
         [actions]\nENABLED = true\nDEFAULT_ACTIONS_URL = self\nZOMBIE_TASK_TIMEOUT = 5s\n\
         [indexer]\nISSUE_INDEXER_TYPE = db\n[webhook]\nALLOWED_HOST_LIST = loopback\n\
         [queue]\nTYPE = channel\n[cron.update_checker]\nENABLED = false\n\
         [service]\nDISABLE_REGISTRATION = true\n[log]\nMODE = console\nLEVEL = Info\n",
        user = user.trim(),
        dir = dir.display(),
        assets = assets.display(),
    )
}

/// One job that runs this.
pub fn job(run: &str) -> String {
    format!("on: [push]\njobs:\n  it:\n    runs-on: linux\n    steps:\n      - run: {run}\n")
}
