//! Members of a store: several drovers of which one leads.

use serde::{Deserialize, Serialize};

/// A drover that shares a store with others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct MemberOut {
    pub name: String,
    /// The URL where other members reach it.
    pub url: String,
    /// The version of its drover.
    pub drover: String,
    /// `leader`, `standby`, `unfit` (it does not lead, and `detail` says why), or `silent`.
    pub role: String,
    /// Why it does not lead; null where it can.
    pub detail: Option<String>,
    /// Why it cannot use its newest configuration; null where it can.
    #[serde(default)]
    pub refused: Option<String>,
    /// For how many seconds nothing was heard of it; null where it is live.
    pub silent_seconds: Option<u64>,
    /// The beginning of the digest of its configuration.
    pub configuration: String,
}

/// The members of a store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct MembersOut {
    /// The store that they share.
    pub store: String,
    /// The member that leads; null where none does.
    pub leader: Option<String>,
    /// Who led last, where none leads because that one fell silent; null otherwise.
    #[serde(default)]
    pub last_leader: Option<LastLeaderOut>,
    /// Rises with each change of leader.
    pub term: u64,
    /// All members, by name.
    pub members: Vec<MemberOut>,
}

/// A member that led, and that does not renew the leader lease any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct LastLeaderOut {
    pub name: String,
    /// When it renewed last, by its own clock.
    pub silent_since: String,
}

/// Another member is to lead.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct TransferIn {
    /// The member that is to lead; null for any that can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
}

/// A member hands over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct TransferOut {
    /// Who hands over to whom.
    pub detail: String,
}
