//! The hosts of simulated guests: what runs inside a virtual machine of the cluster.
//!
//! | module | a guest is | for |
//! |---|---|---|
//! | `stub` (`--guests none`) | an address and a simulated agent | thousands in virtual time |
//! | `greeter` | a stub and a real SSH server that runs nothing | a thousand on one computer |
//! | `process` | a real SSH server whose sessions run real commands in a folder | whole jobs |
//! | `qemu` | a real machine | real systems, disks and memory |
//!
//! Each kind is a [`GuestHost`](crate::guest::GuestHost). In: boots, shutdown requests, agent calls
//! and disk operations of the world. Out: answers of the agent in the form of `qemu-ga`, addresses,
//! and whether the guest still runs. The world adds Proxmox's own timeouts and refusals.
//!
//! A host owns the disks, addresses and host keys of its guests. A guest that cannot start gives
//! the text after `start failed: `. Guests of every host misbehave by tags and orders
//! ([`Trouble`]); stub guests have further ways ([`Quirk`]).
//!
//! Files beside this one: `address` (addresses and seeded values), `answers` (the agent's answers)
//! and `spawner` (the thread that starts processes), which several kinds use.

mod address;
mod answers;
mod greeter;
mod process;
mod qemu;
mod spawner;
mod stub;
mod troubles;

use std::str::FromStr;

pub use greeter::GreeterGuests;
pub use process::{Isolation, IsolationError, KnownCommands, ProcessGuests, ProcessOptions};
pub use qemu::{AcceleratorChoice, QemuError};
pub(crate) use qemu::{Image, QemuGuests, QemuOptions, read_images};
pub use stub::{Quirk, StubGuests, StubOptions};
pub use troubles::{Trouble, TroubleError, TroubledGuests};

/// What runs inside a simulated machine (`--guests`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuestKind {
    /// An address only.
    None,
    /// An SSH server that accepts logins and runs nothing.
    Greeter,
    /// An SSH server whose sessions run real commands in a folder of the guest's own.
    Process,
    /// A real machine of QEMU.
    Qemu,
}

/// A word that names no kind of guests.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown kind of guests `{0}`; the kinds are none, greeter, process and qemu")]
pub struct GuestKindError(String);

impl FromStr for GuestKind {
    type Err = GuestKindError;

    fn from_str(word: &str) -> Result<Self, GuestKindError> {
        match word {
            "none" => Ok(Self::None),
            "greeter" => Ok(Self::Greeter),
            "process" => Ok(Self::Process),
            "qemu" => Ok(Self::Qemu),
            word => Err(GuestKindError(word.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Invariant: an unknown kind of guests is refused with the list of kinds.

    #[test]
    fn kinds_are_parsed_and_unknown_ones_refused() {
        assert_eq!("none".parse(), Ok(GuestKind::None));
        assert_eq!("greeter".parse(), Ok(GuestKind::Greeter));
        assert_eq!("process".parse(), Ok(GuestKind::Process));
        assert_eq!("qemu".parse(), Ok(GuestKind::Qemu));
        assert_eq!("kvm".parse::<GuestKind>(), Err(GuestKindError("kvm".to_owned())));
    }
}
