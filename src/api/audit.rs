//! Records of the audit log.

use serde::{Deserialize, Serialize};

/// Records of the audit log, the oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct AuditOut {
    pub records: Vec<AuditRecordOut>,
    /// Why no record can be written now; null where one can.
    pub trouble: Option<String>,
}

/// A record of the audit log. Only a call has a method, and what follows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct AuditRecordOut {
    /// The number of the record.
    pub seq: u64,
    /// When it was made.
    pub at: String,
    /// `call`, `configurationApplied`, `configurationRefused`, `signal`, `sync`, `started`, `stopped`,
    /// `terminalOpened`, `terminalEnded`, `tornLine`, `removed`, `lost` or `leftOut`.
    pub kind: String,
    /// Who asked: `token:NAME`, `openid:NAME`, `uid:N`, `source:NAME` or `agent:ID`; null where nobody is known.
    pub principal: Option<String>,
    /// The role of the caller.
    pub role: Option<String>,
    /// Where the call came from.
    pub peer: Option<String>,
    /// The member of the store that forwarded the call.
    pub member: Option<String>,
    /// The method of the call.
    pub method: Option<String>,
    /// The path of the call's route; null where no route has it.
    pub route: Option<String>,
    /// What the path names.
    pub object: Option<String>,
    /// The status of the answer; null where the call ended without one.
    pub status: Option<u16>,
    /// The id of the request, which its answer has in the header `x-request-id`.
    pub request: Option<String>,
    /// What a record says that is no call.
    pub detail: Option<String>,
    /// The hash of the record before.
    pub prev: String,
    /// The hash of this record.
    pub hash: String,
}
