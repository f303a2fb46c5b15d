//! The insides of simulated guests: nothing but an address, an SSH server that greets, or one whose
//! sessions run real commands.
//!
//! All answer for the guest agent. Proxmox's own waits and refusals around the agent are the
//! door's.

mod address;
mod answers;
mod greeter;
mod none;
mod process;

use std::str::FromStr;

pub use greeter::GreeterGuests;
pub use none::{NoneGuests, NoneOptions, Quirk};
pub use process::{Isolation, IsolationError, KnownCommands, ProcessGuests, ProcessOptions};

/// What runs when a simulated machine runs (`--guests`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuestKind {
    /// An address only.
    None,
    /// An SSH server that greets and runs nothing.
    Greeter,
    /// An SSH server with real commands in a folder of its own.
    Process,
    /// A real QEMU guest.
    Qemu,
}

/// A kind of guests that there is not.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GuestKindError {
    /// No such word.
    #[error("`{0}` is no kind of guests: say none, greeter or process")]
    Unknown(String),
    /// Known, and not to be had here.
    #[error("guests of kind `qemu` are not available: say none, greeter or process")]
    Unavailable,
}

impl FromStr for GuestKind {
    type Err = GuestKindError;

    fn from_str(word: &str) -> Result<Self, GuestKindError> {
        match word {
            "none" => Ok(Self::None),
            "greeter" => Ok(Self::Greeter),
            "process" => Ok(Self::Process),
            "qemu" => Err(GuestKindError::Unavailable),
            word => Err(GuestKindError::Unknown(word.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Invariant: a kind of guests is known or refused with what to say.

    #[test]
    fn kinds_are_parsed_and_qemu_is_refused() {
        assert_eq!("none".parse(), Ok(GuestKind::None));
        assert_eq!("greeter".parse(), Ok(GuestKind::Greeter));
        assert_eq!("process".parse(), Ok(GuestKind::Process));
        assert_eq!("qemu".parse::<GuestKind>(), Err(GuestKindError::Unavailable));
        assert_eq!("kvm".parse::<GuestKind>(), Err(GuestKindError::Unknown("kvm".to_owned())));
    }
}
