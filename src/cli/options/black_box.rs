//! Options of `drover blackbox`.

use clap::Args;

use crate::cli::list_options::ViewOptions;

/// Whose black box is shown.
#[derive(Debug, Clone, Default, Args)]
#[command(after_help = "The page of the book: `drover help troubleshooting`")]
pub struct BlackBoxOptions {
    /// The id of the agent; `drover agents --gone` lists those that went
    pub agent: String,
    /// How it is shown
    #[command(flatten)]
    pub view: ViewOptions,
}
