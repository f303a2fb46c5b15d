//! Keys of `service.leases` and of those who may use the socket.

use drover_model::tenant::LeaseLimits;

use super::{Key, Kind, LONG, Preset, Shape, key, text, whole};

/// The most that a count of leases may be.
const MANY: u64 = 1_000_000;

const fn most(name: &'static str, most: u64, about: &'static str) -> Key {
    key(name, Kind::Whole(1, most), Preset::Unset, about)
}

/// The keys of `service.leases`.
pub(crate) static LEASES: Shape = Shape {
    keys: &[
        whole(
            "maxWaiting",
            1,
            MANY,
            LeaseLimits::WAITING as u64,
            "leases that wait for an agent at once; one more is refused",
        ),
        whole(
            "maxWaitingPerPrincipal",
            1,
            MANY,
            LeaseLimits::WAITING_EACH as u64,
            "the same, of one principal (a token, or a user of the socket)",
        ),
        whole(
            "maxWaitSeconds",
            1,
            LONG,
            LeaseLimits::WAIT_SECONDS as u64,
            "how long a lease waits for an agent before it ends, where its request does not say",
        ),
        key("quotas", Kind::Mappings(&QUOTA), Preset::Empty, "what principals and groups may have"),
    ],
    one_of: &[],
};

/// The keys of each entry of `service.leases.quotas`.
pub(crate) static QUOTA: Shape = Shape {
    keys: &[
        text("principal", Preset::Unset, "whose: a principal, such as `token:ci` or `uid:1000`"),
        text("group", Preset::Unset, "whose: all of a group, together"),
        most("maxLeases", MANY, "leases at once, those that wait too; unset: no limit"),
        most("maxWaiting", MANY, "leases that wait at once; unset: no limit of its own"),
        most("maxCores", 8192, "processor cores of one machine; unset: no limit"),
        most("maxMemoryMB", 100_000_000, "memory of one machine in MiB; unset: no limit"),
        most("maxDiskGB", 1_000_000, "primary disk of one machine in GiB; unset: no limit"),
    ],
    one_of: &["principal", "group"],
};

/// The keys of each entry of `service.peers`.
pub(crate) static PEER: Shape = Shape {
    keys: &[
        key("uid", Kind::Whole(0, u32::MAX as u64), Preset::Unset, "a user, by number"),
        key("gid", Kind::Whole(0, u32::MAX as u64), Preset::Unset, "a group, by number"),
        key(
            "role",
            Kind::Choice(&["viewer", "operator", "admin"]),
            Preset::Text("operator"),
            "what they may do",
        ),
        text("group", Preset::Unset, "the group whose leases are theirs too; unset: none"),
    ],
    one_of: &["uid", "gid"],
};
