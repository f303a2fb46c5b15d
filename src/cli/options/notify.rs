//! Options of `drover notify`.

use clap::Subcommand;

/// What is done with channels of notifications.
#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum NotifyAction {
    /// Send a test message, and print what the other side answered
    #[command(after_help = "Exit codes: 0 every message was taken, 1 one was not.\n\
                            The page of the book: `drover help notifications`")]
    Test {
        /// Name of the channel in `service.notify`; without it: all channels
        channel: Option<String>,
    },
}
