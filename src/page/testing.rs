//! What tests of pages share.

use std::sync::Arc;

use drover_api::{Remedies, Role, ValueOut};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::frame::{Frame, Tab};
use crate::hints::Hints;

/// The frame of somebody with this role.
pub(crate) fn frame(role: Role) -> Frame {
    Frame {
        tab: Tab::Herd,
        principal: "token:ops".to_owned(),
        role,
        csrf: "0123".to_owned(),
        has_session: true,
        looks: 1,
        clusters: [("9f31c0aa52e7d410".to_owned(), vec!["lab".to_owned()])].into(),
        version: "0.1.0",
        hints: Arc::new(hints()),
    }
}

/// Values in force, and a page of remedies.
fn hints() -> Hints {
    let value = |path: &str, value: &str, origin: &str| ValueOut {
        path: path.to_owned(),
        value: value.to_owned(),
        origin: origin.to_owned(),
    };
    let values = [
        value("cloudConfigurations.lab.apiUrl", "https://pve1:8006", "drover.yaml:5"),
        value("cloudConfigurations.lab.instanceCap", "8", "drover.yaml:9"),
        value("agentConfigurations.linux.instanceCap", "4", "default"),
        value("agentConfigurations.linux.memoryMb", "2048", "drover.yaml:14"),
        value("demand.git.url", "https://git.lan", "drover.yaml:22"),
    ];
    let page =
        "## No node takes an agent\n\n| it says | do |\n|---|---|\n| `MiB are needed` | less |\n";
    Hints::of(&values, Remedies::of(page))
}

/// An answer of the API.
pub(crate) fn out<T: DeserializeOwned>(json: Value) -> T {
    serde_json::from_value(json).unwrap_or_else(|error| panic!("{error}"))
}
