//! Who may do what.

use std::fmt;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// What a caller may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub enum Role {
    /// Reads the status of everything.
    Viewer,
    /// Takes and ends leases, retires agents, reconciles.
    Operator,
    /// May do everything, as root on the socket.
    Admin,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Admin => "admin",
        })
    }
}

/// Who makes a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WhoAmIOut {
    /// Whose leases are its own: `token:NAME`, `openid:NAME` or `uid:N`.
    pub principal: String,
    pub role: Role,
    /// The group whose leases are its own, too; null where it is in none.
    pub group: Option<String>,
    /// The file or directory that the service reads, as an absolute path.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub configuration: Option<PathBuf>,
}

/// A local user or group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    /// A user by number.
    Uid(u32),
    /// A group by number: the process's effective group, not its supplementary ones.
    Gid(u32),
}
