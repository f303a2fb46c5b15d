//! Tests of the channels of notifications.

use serde::{Deserialize, Serialize};

/// Which channel sends a test message.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NotifyTestIn {
    /// Its name; unset: all channels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
}

/// What came of test messages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NotifyTestsOut {
    /// One for each channel.
    pub channels: Vec<NotifyTestOut>,
}

/// What came of the test message of one channel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NotifyTestOut {
    /// The name of the channel.
    pub channel: String,
    /// `webhook`, `mail` or `ntfy`.
    pub via: String,
    /// Whether the other side took the message, for everybody.
    pub taken: bool,
    /// What the other side answered, or why there is no answer.
    pub answer: String,
}
