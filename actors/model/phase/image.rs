//! The life of a build.

use super::words;

words! {
    /// Where the build of an image is in its life.
    ///
    /// ```text
    /// Queued → Pulling → Creating → Configuring → Installing → Booting → Connecting
    ///   → Provisioning → Cleaning → ShuttingDown → Converting → Verifying → Sealing → Done
    /// ```
    ///
    /// Any of them may end in Removing and Failed. A version that is pruned begins at Removing and
    /// ends in Removed.
    ImagePhase, "image phase" {
        /// It waits for another build that brings the same source to the same place.
        Queued = "Queued",
        /// Its source is brought to the node.
        Pulling = "Pulling",
        /// Its guest is made.
        Creating = "Creating",
        /// Cloud-init, sizes and tags are being set.
        Configuring = "Configuring",
        /// The installer of an ISO image installs the guest.
        Installing = "Installing",
        /// The guest starts and gets its address.
        Booting = "Booting",
        /// SSH is being reached.
        Connecting = "Connecting",
        /// Its steps run over SSH.
        Provisioning = "Provisioning",
        /// What no clone may have is removed.
        Cleaning = "Cleaning",
        /// The guest shuts down.
        ShuttingDown = "ShuttingDown",
        /// The guest becomes a template.
        Converting = "Converting",
        /// The template is checked.
        Verifying = "Verifying",
        /// The template gets the marks of an image.
        Sealing = "Sealing",
        /// The guest is destroyed.
        Removing = "Removing",
        /// The version is there.
        Done = "Done",
        /// The build came to nothing.
        Failed = "Failed",
        /// The version was pruned.
        Removed = "Removed",
    }
}

impl ImagePhase {
    /// Whether nothing more happens.
    pub const fn is_over(self) -> bool {
        match self {
            Self::Done | Self::Failed | Self::Removed => true,
            Self::Queued
            | Self::Pulling
            | Self::Creating
            | Self::Configuring
            | Self::Installing
            | Self::Booting
            | Self::Connecting
            | Self::Provisioning
            | Self::Cleaning
            | Self::ShuttingDown
            | Self::Converting
            | Self::Verifying
            | Self::Sealing
            | Self::Removing => false,
        }
    }
}
