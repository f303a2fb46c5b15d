//! Whether a held agent lets its operator in.

use super::words;

words! {
    /// Whether a held agent lets in the operator who asked for the hold.
    LoginPhase, "state of a login" {
        /// The operator's key is not in the guest yet.
        Opening = "opening",
        /// drover has put the key into the guest.
        Open = "open",
        /// drover cannot put the key into the guest; its console is left.
        Closed = "closed",
    }
}
