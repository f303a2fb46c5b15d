//! What tests of pages share.

use drover_api::Role;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::frame::{Frame, Tab};

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
    }
}

/// An answer of the API.
pub(crate) fn out<T: DeserializeOwned>(json: Value) -> T {
    serde_json::from_value(json).unwrap_or_else(|error| panic!("{error}"))
}
