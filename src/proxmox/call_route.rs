//! What kind of call a call is, and how it ended, in fixed words: for figures about calls.
//!
//! A path names nodes, guests and storages, which are many. Its route has these names left out, so that
//! calls that do the same count together.

use crate::error::Call;
use crate::transport::{Reply, TransportError};

/// One kind of call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallRoute {
    /// The method and the path, with `*` for what differs from call to call and `GUEST` for
    /// `qemu/VMID` and `lxc/VMID`.
    pub name: &'static str,
}

/// Every route that this client uses, and last the one for all other calls.
pub const ROUTES: [CallRoute; 36] = [
    CallRoute { name: "GET /version" },
    CallRoute { name: "GET /access/permissions" },
    CallRoute { name: "POST /access/ticket" },
    CallRoute { name: "GET /cluster/mapping/*" },
    CallRoute { name: "GET /cluster/nextid" },
    CallRoute { name: "GET /cluster/resources" },
    CallRoute { name: "GET /cluster/status" },
    CallRoute { name: "GET /cluster/tasks" },
    CallRoute { name: "GET /nodes/*/certificates/info" },
    CallRoute { name: "GET /nodes/*/tasks" },
    CallRoute { name: "GET /nodes/*/tasks/*/log" },
    CallRoute { name: "GET /nodes/*/tasks/*/status" },
    CallRoute { name: "GET /nodes/*/storage" },
    CallRoute { name: "GET /nodes/*/storage/*/content" },
    CallRoute { name: "DELETE /nodes/*/storage/*/content/*" },
    CallRoute { name: "POST /nodes/*/storage/*/download-url" },
    CallRoute { name: "POST /nodes/*/storage/*/upload" },
    CallRoute { name: "POST /nodes/*/qemu" },
    CallRoute { name: "POST /nodes/*/lxc" },
    CallRoute { name: "POST /nodes/*/aplinfo" },
    CallRoute { name: "DELETE /nodes/*/GUEST" },
    CallRoute { name: "GET /nodes/*/GUEST/agent/*" },
    CallRoute { name: "POST /nodes/*/GUEST/clone" },
    CallRoute { name: "GET /nodes/*/GUEST/config" },
    CallRoute { name: "PUT /nodes/*/GUEST/config" },
    CallRoute { name: "GET /nodes/*/GUEST/interfaces" },
    CallRoute { name: "GET /nodes/*/GUEST/pending" },
    CallRoute { name: "PUT /nodes/*/GUEST/resize" },
    CallRoute { name: "GET /nodes/*/GUEST/status/current" },
    CallRoute { name: "POST /nodes/*/GUEST/status/*" },
    CallRoute { name: "GET /nodes/*/GUEST/snapshot" },
    CallRoute { name: "POST /nodes/*/GUEST/snapshot" },
    CallRoute { name: "DELETE /nodes/*/GUEST/snapshot/*" },
    CallRoute { name: "POST /nodes/*/GUEST/snapshot/*/rollback" },
    CallRoute { name: "POST /nodes/*/GUEST/template" },
    OTHER_ROUTE,
];

const OTHER_ROUTE: CallRoute = CallRoute { name: "other" };

impl CallRoute {
    /// The route of a call; the last one where no other fits.
    pub fn of(call: &Call) -> Self {
        let fits = |route: &Self| {
            let (method, pattern) = route.name.split_once(' ')?;
            (method == call.method.as_str() && fits(pattern, &call.path)).then_some(*route)
        };
        ROUTES.iter().find_map(fits).unwrap_or(OTHER_ROUTE)
    }
}

/// Whether a path is what a pattern says, part by part.
fn fits(pattern: &str, path: &str) -> bool {
    let mut parts = path.split('/');
    let each = pattern.split('/').all(|wanted| match (wanted, parts.next()) {
        ("GUEST", Some("qemu" | "lxc")) => {
            parts.next().is_some_and(|id| id.bytes().all(|byte| byte.is_ascii_digit()))
        }
        ("*", Some(part)) => !part.is_empty(),
        (wanted, part) => part == Some(wanted),
    });
    each && parts.next().is_none()
}

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CallOutcome {
    /// Proxmox did what was asked.
    Done,
    /// Proxmox refused: a status of 300 to 594.
    Refused,
    /// The node that does the work did not answer its front end (595 to 599), or a proxy before Proxmox
    /// got no answer (502 to 504).
    Overloaded,
    /// No answer came within the time limit.
    TimedOut,
    /// The connection was not made, or broke.
    Broken,
    /// The call waited too long for its turn, and was not sent.
    Unsent,
}

impl CallOutcome {
    /// Every way in which a call can end.
    pub const ALL: [Self; 6] =
        [Self::Done, Self::Refused, Self::Overloaded, Self::TimedOut, Self::Broken, Self::Unsent];

    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Refused => "refused",
            Self::Overloaded => "overloaded",
            Self::TimedOut => "timeout",
            Self::Broken => "broken",
            Self::Unsent => "unsent",
        }
    }

    /// The outcome of a call that was sent.
    pub fn of(outcome: &Result<Reply, TransportError>) -> Self {
        match outcome {
            Ok(reply) => match reply.status {
                200..300 => Self::Done,
                502..=504 | 595..=599 => Self::Overloaded,
                _ => Self::Refused,
            },
            Err(TransportError::TimedOut(_)) => Self::TimedOut,
            Err(
                TransportError::Connect(_)
                | TransportError::BrokeOff(_)
                | TransportError::Certificate(_)
                | TransportError::Closed(_)
                | TransportError::TooLarge(_)
                | TransportError::Broken(_),
            ) => Self::Broken,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::Method;

    fn route(method: Method, path: &str) -> &'static str {
        CallRoute::of(&Call::new(method, path)).name
    }

    // Invariant: a call has one route, and no route has the name of a node, guest or storage.

    #[test]
    fn calls_of_different_nodes_and_guests_have_one_route() {
        for (method, path, expected) in [
            (Method::Get, "/nodes/pve1/qemu/101/config", "GET /nodes/*/GUEST/config"),
            (Method::Get, "/nodes/pve2/lxc/7/config", "GET /nodes/*/GUEST/config"),
            (Method::Put, "/nodes/pve1/qemu/101/config", "PUT /nodes/*/GUEST/config"),
            (Method::Delete, "/nodes/pve1/qemu/101", "DELETE /nodes/*/GUEST"),
            (Method::Post, "/nodes/pve1/qemu", "POST /nodes/*/qemu"),
            (Method::Post, "/nodes/a/qemu/9/status/stop", "POST /nodes/*/GUEST/status/*"),
            (Method::Get, "/nodes/a/tasks/UPID:a:1/status", "GET /nodes/*/tasks/*/status"),
        ] {
            assert_eq!(route(method, path), expected);
        }
    }

    #[test]
    fn a_call_that_no_route_fits_is_counted_with_the_others() {
        for path in ["/pools", "/nodes/pve1/qemu/x/config", "/nodes//tasks", "/version/x", "/"] {
            assert_eq!(route(Method::Get, path), "other", "{path}");
        }
        assert_eq!(route(Method::Post, "/version"), "other");
    }

    #[test]
    fn each_route_is_found_by_a_path_of_its_own() {
        for one in ROUTES {
            let Some((method, pattern)) = one.name.split_once(' ') else { continue };
            let method = [Method::Get, Method::Post, Method::Put, Method::Delete]
                .into_iter()
                .find(|known| known.as_str() == method);
            let path = pattern.replace("GUEST", "lxc/100").replace('*', "x");
            assert_eq!(method.map(|method| route(method, &path)), Some(one.name));
        }
    }

    // Invariant: an outcome says who failed.

    #[test]
    fn a_refusal_differs_from_a_node_that_does_not_answer() {
        let reply = |status| {
            Ok(Reply { status, reason: String::new(), content_type: None, body: Vec::new().into() })
        };
        for (status, outcome) in [
            (200, CallOutcome::Done),
            (401, CallOutcome::Refused),
            (500, CallOutcome::Refused),
            (503, CallOutcome::Overloaded),
            (596, CallOutcome::Overloaded),
        ] {
            assert_eq!(CallOutcome::of(&reply(status)), outcome, "{status}");
        }
        let late = Err(TransportError::TimedOut(std::time::Duration::from_secs(60)));
        assert_eq!(CallOutcome::of(&late), CallOutcome::TimedOut);
    }
}
