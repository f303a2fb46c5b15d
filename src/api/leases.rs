//! Leases: how one is asked for, and what is answered.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use drover_model::phase::LeasePhase;
use serde::{Deserialize, Serialize};

use crate::{MachineSize, SshOut};

/// What a lease is asked for with; one of `template`, `labels` and `labelExpression`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct LeaseIn {
    /// A template, `cloud/template` or its bare name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// Labels that the template must carry, all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labels: Option<Vec<String>>,
    /// An expression that must hold for the template's labels, as in Jenkins, such as
    /// `linux && (x64 || !slow)`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label_expression: Option<String>,
    /// The size of the machine, within the `sizeLabels` of its template and in the place of what labels
    /// say of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overrides: Option<MachineSize>,
    /// How long it lasts from the grant; 3600 when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl_seconds: Option<u64>,
    /// How long it waits for an agent before it ends, at most 30 days; as `service.leases` says when
    /// absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_wait_seconds: Option<u64>,
    /// For whom; the caller when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// A public key that may log in while the lease lasts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ssh_public_key: Option<String>,
    /// The same caller, key and body answer the same lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// Text for the machine, at most 65536 bytes: in the login user's `~/.drover-lease/ID/user-data`
    /// before the lease is ready, removed at its end, and shown by nobody.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub user_data: Option<Opaque>,
    /// The same as any bytes, in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub user_data_base64: Option<Opaque>,
}

/// Text that nobody is shown.
#[derive(Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Opaque(pub String);

impl std::fmt::Debug for Opaque {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Opaque({} bytes)", self.0.len())
    }
}

impl LeaseIn {
    /// Brings these bytes to the machine: as text where they are one.
    pub fn bring(&mut self, bytes: Vec<u8>) {
        match String::from_utf8(bytes) {
            Ok(text) => self.user_data = Some(Opaque(text)),
            Err(other) => {
                self.user_data_base64 = Some(Opaque(STANDARD.encode(other.as_bytes())));
            }
        }
    }
}

/// How a lease is made longer.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct RenewIn {
    /// How long it lasts from this moment.
    pub ttl_seconds: u64,
}

// Not `LeaseStatus`: the owner is hidden from others, the login of the agent is added for those whose
// lease it is, and times are spelled.
/// A lease, its state and what it waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct LeaseOut {
    /// The id of the lease.
    pub id: String,
    pub state: LeasePhase,
    /// Its agent, once granted.
    pub agent: Option<String>,
    /// For whom; blank where the lease is not the caller's.
    pub owner: String,
    /// The principal that asked for it.
    pub principal: String,
    /// The group whose lease it is too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// What was asked for, in words.
    #[serde(default)]
    pub wants: String,
    /// When it was asked for (RFC 3339); left out where that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_at: Option<String>,
    /// When it runs out (RFC 3339), once granted.
    pub expires_at: Option<String>,
    /// When it ended (RFC 3339); left out while it has not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<String>,
    /// Why it waits or ended.
    pub detail: String,
    /// How to log in, once ready; null where the lease is not the caller's.
    pub ssh: Option<SshOut>,
}

/// The answer to a list of leases.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LeasesOut {
    /// Live ones and the last that ended, by id.
    pub leases: Vec<LeaseOut>,
    /// There are more: list them with `after` set to this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}
