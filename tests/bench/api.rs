//! The way to ask a service over loopback.

use std::time::{Duration, Instant};

use serde_json::Value;

/// What the service knows its caller by.
pub const TOKEN: &str = "bench-bench-bench-bench-bench-bench";

/// The longest that anything is waited for.
const WAIT_LIMIT: Duration = Duration::from_secs(240);
/// Between two looks at the service.
const LOOK: Duration = Duration::from_millis(250);

/// The service's API over loopback.
pub struct Api {
    port: u16,
    client: reqwest::Client,
    runtime: tokio::runtime::Runtime,
}

impl Api {
    /// The way to a service on this port.
    pub fn new(port: u16) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Self { port, client: crate::client(None), runtime }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Runs something on the runtime of the calls.
    pub fn wait<F: Future>(&self, future: F) -> F::Output {
        self.runtime.block_on(future)
    }

    /// The answer's JSON (null where it has none); none for a failure.
    pub fn get(&self, path: &str) -> Option<Value> {
        self.send(self.client.get(self.url(path)))
    }

    /// Asks for something that must be done.
    pub fn post(&self, path: &str, body: &Value) -> Value {
        let request = self.client.post(self.url(path)).body(body.to_string());
        self.send(request).unwrap_or_else(|| panic!("POST {path} failed"))
    }

    pub fn delete(&self, path: &str) {
        let gone = self.send(self.client.delete(self.url(path)));
        assert!(gone.is_some(), "DELETE {path} failed");
    }

    fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    fn send(&self, request: reqwest::RequestBuilder) -> Option<Value> {
        let answer = async {
            let answer = request.bearer_auth(TOKEN).send().await.ok()?;
            let well = answer.status().is_success();
            let text = answer.text().await.ok()?;
            well.then(|| serde_json::from_str(&text).unwrap_or(Value::Null))
        };
        self.wait(answer)
    }

    /// Looks again and again until there is something to see.
    pub fn until<T>(&self, what: &str, look: impl Fn(&Self) -> Option<T>) -> T {
        let deadline = Instant::now() + WAIT_LIMIT;
        loop {
            if let Some(seen) = look(self) {
                return seen;
            }
            let seen = || self.get("/v1/templates").unwrap_or_default();
            assert!(Instant::now() < deadline, "never: {what}; {}", seen());
            std::thread::sleep(LOOK);
        }
    }
}
