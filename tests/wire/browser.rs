//! A real Chromium, driven over WebDriver (W3C, WebDriver, 2018) by Debian's chromedriver.
//!
//! The browser has a profile of its own in a folder that goes with it, and reaches loopback alone.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::harness::{Kept, Lines, WAIT_LIMIT};

/// The name under which WebDriver gives an element.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";
/// How long a page is asked again for what is to be there.
const PAUSE: Duration = Duration::from_millis(50);

/// A window of Chromium.
pub struct Browser {
    runtime: tokio::runtime::Runtime,
    http: reqwest::Client,
    /// The address of its session.
    session: String,
    base: String,
    _driver: Kept,
    _profile: tempfile::TempDir,
}

/// A program of the tests that `tests/all` installed.
pub fn tool(name: &str) -> PathBuf {
    let path = std::env::var_os(name).map(PathBuf::from);
    path.unwrap_or_else(|| panic!("{name} is not set: run the tests by tests/all"))
}

impl Browser {
    /// Opens a window of this size on a service at `base`.
    pub fn open(base: &str, (width, height): (u32, u32)) -> Self {
        let profile = tempfile::tempdir().unwrap();
        let mut command = std::process::Command::new(tool("DROVER_TEST_CHROMEDRIVER"));
        command.args(["--port=0", "--allowed-ips=127.0.0.1"]).stdin(Stdio::null());
        command.env("HOME", profile.path()).stderr(Stdio::null());
        let mut driver = Kept(command.stdout(Stdio::piped()).spawn().unwrap());
        let mut lines = Lines::of("chromedriver", driver.0.stdout.take().unwrap());
        let line = lines.until(|line| line.contains("started successfully on port"));
        let port: u16 = line.trim_end_matches('.').rsplit(' ').next().unwrap().parse().unwrap();
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).enable_all().build().unwrap();
        rustls::crypto::ring::default_provider().install_default().ok();
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        let mut browser = Self {
            runtime,
            http,
            session: format!("http://127.0.0.1:{port}/session"),
            base: base.to_owned(),
            _driver: driver,
            _profile: profile,
        };
        let folder = browser._profile.path().display().to_string();
        let arguments = json!([
            "--headless=new",
            // The tests may run as root, whom Chromium gives no sandbox; it opens our own pages alone.
            "--no-sandbox",
            "--disable-dev-shm-usage",
            "--disable-background-networking",
            "--no-first-run",
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
            format!("--user-data-dir={folder}/profile"),
            format!("--window-size={width},{height}"),
        ]);
        let saves_to = json!({ "download.default_directory": format!("{folder}/saved") });
        let wanted = json!({ "capabilities": { "alwaysMatch": {
            "goog:chromeOptions": { "args": arguments, "prefs": saves_to },
            "goog:loggingPrefs": { "browser": "ALL" },
        }}});
        let session = browser.call("POST", "", Some(wanted));
        let id = session["sessionId"].as_str().unwrap();
        browser.session = format!("{}/{id}", browser.session);
        browser
    }

    fn ask(&self, method: &str, path: &str, body: Option<Value>) -> Result<Value, Value> {
        let url = format!("{}{path}", self.session);
        let request = self.http.request(method.parse().unwrap(), url).timeout(WAIT_LIMIT);
        let request = match body {
            Some(body) => request.json(&body),
            None => request,
        };
        let answer: Value =
            self.runtime.block_on(async { request.send().await.unwrap().json().await.unwrap() });
        match answer["value"].get("error") {
            Some(_) => Err(answer["value"].clone()),
            None => Ok(answer["value"].clone()),
        }
    }

    fn call(&self, method: &str, path: &str, body: Option<Value>) -> Value {
        self.ask(method, path, body).unwrap_or_else(|error| panic!("{method} {path}: {error}"))
    }

    /// What the page put into the clipboard (W3C, Clipboard API; Permissions, section 6.1).
    pub fn copied(&self) -> String {
        let readable = json!({ "descriptor": { "name": "clipboard-read" }, "state": "granted" });
        self.call("POST", "/permissions", Some(readable));
        self.wait_for("navigator.clipboard.readText()").as_str().unwrap().to_owned()
    }

    /// What the page saved under this name, once it is whole.
    pub fn saved(&self, name: &str) -> String {
        let path = self._profile.path().join("saved").join(name);
        // Chromium writes it under another name until it is whole.
        self.until(name, || std::fs::read_to_string(&path).map_err(|error| error.to_string()))
    }

    /// Shows another service from here on.
    pub fn moves_to(&mut self, base: &str) {
        base.clone_into(&mut self.base);
    }

    /// Goes to a path of the service.
    pub fn go(&self, path: &str) {
        self.call("POST", "/url", Some(json!({ "url": format!("{}{path}", self.base) })));
    }

    /// The path and query of the page that is shown.
    pub fn place(&self) -> String {
        let url = self.call("GET", "/url", None);
        url.as_str().unwrap().strip_prefix(&self.base).unwrap().to_owned()
    }

    /// What a script of the tests gives.
    pub fn run(&self, script: &str) -> Value {
        self.call("POST", "/execute/sync", Some(json!({ "script": script, "args": [] })))
    }

    /// What a promise of a script of the tests gives.
    pub fn wait_for(&self, script: &str) -> Value {
        let script = format!(
            "const done = arguments[arguments.length - 1]; ({script}).then(done, (e) => done('' + e))"
        );
        self.call("POST", "/execute/async", Some(json!({ "script": script, "args": [] })))
    }

    fn find(&self, css: &str) -> Result<String, Value> {
        let body = json!({ "using": "css selector", "value": css });
        let found = self.ask("POST", "/element", Some(body))?;
        Ok(found[ELEMENT].as_str().unwrap().to_owned())
    }

    /// Does something again until it gives what is wanted; what it gave last is in the fault.
    pub fn until<T>(&self, what: &str, mut look: impl FnMut() -> Result<T, String>) -> T {
        let end = Instant::now() + WAIT_LIMIT;
        loop {
            match look() {
                Ok(found) => return found,
                Err(text) if Instant::now() >= end => {
                    panic!("{what}: {text}; at {}: {}", self.place(), self.text("body"))
                }
                // A browser shows nothing that a test could wait on instead.
                Err(_) => std::thread::sleep(PAUSE),
            }
        }
    }

    /// Clicks on the first element of that kind, once it is there.
    pub fn click(&self, css: &str) {
        self.until(&format!("a click on {css}"), || {
            let element = self.find(css).map_err(|error| error.to_string())?;
            let path = format!("/element/{element}/click");
            self.ask("POST", &path, Some(json!({}))).map_err(|error| error.to_string())
        });
    }

    /// Types into the first element of that kind.
    pub fn put(&self, css: &str, text: &str) {
        let element = self.until(css, || self.find(css).map_err(|error| error.to_string()));
        self.call("POST", &format!("/element/{element}/value"), Some(json!({ "text": text })));
    }

    /// Presses keys, whatever has the focus.
    pub fn press(&self, keys: &str) {
        let actions: Vec<Value> = keys
            .chars()
            .flat_map(|key| ["keyDown", "keyUp"].map(|kind| json!({ "type": kind, "value": key })))
            .collect();
        let keyboard = json!({ "type": "key", "id": "keys", "actions": actions });
        self.call("POST", "/actions", Some(json!({ "actions": [keyboard] })));
    }

    /// Holds all keys but the last, presses that one, and lets go.
    pub fn chord(&self, keys: &[char]) {
        let action = |kind: &str, key: &char| json!({ "type": kind, "value": key });
        let down = keys.iter().map(|key| action("keyDown", key));
        let actions: Vec<Value> =
            down.chain(keys.iter().rev().map(|key| action("keyUp", key))).collect();
        let keyboard = json!({ "type": "key", "id": "keys", "actions": actions });
        self.call("POST", "/actions", Some(json!({ "actions": [keyboard] })));
    }

    /// Gives the window another size.
    pub fn resize(&self, width: u32, height: u32) {
        let size = json!({ "width": width, "height": height });
        self.call("POST", "/window/rect", Some(size));
    }

    /// The text of the first element of that kind; blank where there is none.
    pub fn text(&self, css: &str) -> String {
        let script = format!(
            "const e = document.querySelector({}); return e ? e.innerText : ''",
            json!(css)
        );
        self.run(&script).as_str().unwrap_or_default().to_owned()
    }

    /// Waits until the text of an element has this.
    pub fn until_text(&self, css: &str, wanted: &str) -> String {
        self.until(&format!("`{wanted}` in {css}"), || {
            let text = self.text(css);
            if text.contains(wanted) { Ok(text) } else { Err(format!("it has `{text}`")) }
        })
    }

    /// Waits until the text of an element has this no more.
    pub fn until_no_text(&self, css: &str, unwanted: &str) {
        self.until(&format!("no `{unwanted}` in {css}"), || {
            let text = self.text(css);
            if text.contains(unwanted) { Err(format!("it has `{text}`")) } else { Ok(()) }
        });
    }

    /// What the browser complains of: faults of scripts, what the page's policy refuses, what was not loaded.
    pub fn complaints(&self) -> Vec<String> {
        let log = self.call("POST", "/se/log", Some(json!({ "type": "browser" })));
        let lines = log.as_array().into_iter().flatten();
        lines.map(|line| line["message"].as_str().unwrap_or_default().to_owned()).collect()
    }

    /// Keeps what is shown as a file, where the tests have a folder for that.
    pub fn shoot(&self, name: &str) {
        let Some(folder) = std::env::var_os("DROVER_TEST_SHOTS") else { return };
        let shot = self.call("GET", "/screenshot", None);
        let bytes = STANDARD.decode(shot.as_str().unwrap()).unwrap();
        std::fs::write(Path::new(&folder).join(format!("{name}.png")), bytes).unwrap();
    }

    /// Shows pages as to somebody who likes dark ones.
    pub fn darken(&self) {
        let features = json!([{ "name": "prefers-color-scheme", "value": "dark" }]);
        let parameters =
            json!({ "cmd": "Emulation.setEmulatedMedia", "params": { "features": features } });
        self.call("POST", "/goog/cdp/execute", Some(parameters));
    }

    /// The rules of axe-core that the page breaks, each with the places.
    pub fn barriers(&self) -> Vec<String> {
        let axe = std::fs::read_to_string(tool("DROVER_TEST_AXE")).unwrap();
        self.run(&axe);
        let found = self.wait_for("axe.run(document, {resultTypes: ['violations']})");
        let broken = found["violations"].as_array().unwrap_or_else(|| panic!("{found}"));
        let places = |rule: &Value| {
            let nodes = rule["nodes"].as_array().into_iter().flatten();
            nodes.map(|node| node["html"].to_string()).collect::<Vec<_>>().join(" ")
        };
        broken
            .iter()
            .map(|rule| format!("{}: {} {}", rule["id"], rule["help"], places(rule)))
            .collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The driver takes its browser along.
        let _ = self.ask("DELETE", "", None);
    }
}
