//! The arguments of `drover image`.

use clap::{Args, Subcommand};

use super::ListOptions;

/// What to do with images.
#[derive(Debug, Clone, Subcommand)]
pub enum ImageAction {
    /// Build an image on its nodes, where its version is not there, and follow that
    Build(BuildImageOptions),
    /// End a build that runs, and destroy what it made
    Cancel {
        /// The build, as `image build` and `image list` name it, or the image of the only one
        build: String,
    },
    /// List images, their versions, and builds that run
    List(ListOptions),
    /// Remove versions beyond `keep` that nothing uses
    Prune {
        /// Print what would be removed and what stays, and why; change nothing
        #[arg(long)]
        dry_run: bool,
        /// Remove versions of images that left the configuration too
        #[arg(long)]
        unconfigured: bool,
    },
    /// Mark an existing template as a version of an image; that gives it another name
    Import {
        /// The VMID of the template
        vmid: u32,
        /// The image, `cloud/image` or its bare name
        #[arg(long = "as", value_name = "IMAGE")]
        image: String,
        /// Print what the template would become; change nothing
        #[arg(long)]
        dry_run: bool,
    },
}

/// Options of `image build`.
#[derive(Debug, Clone, Args)]
pub struct BuildImageOptions {
    /// The image, `cloud/image` or its bare name
    pub image: String,
    /// One node, in place of those of the image
    #[arg(long)]
    pub node: Option<String>,
    /// A value for a variable of the image
    #[arg(long = "var", value_name = "NAME=VALUE", value_parser = read_variable)]
    pub variables: Vec<String>,
    /// Build the same recipe again, for newer packages; once a day
    #[arg(long)]
    pub afresh: bool,
    /// Print what would be built; change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Do not wait for the end of the build
    #[arg(long, conflicts_with = "dry_run")]
    pub no_wait: bool,
}

fn read_variable(text: &str) -> Result<String, String> {
    match text.split_once('=') {
        Some((name, _)) if !name.trim().is_empty() => Ok(text.to_owned()),
        _ => Err("write it as NAME=VALUE".to_owned()),
    }
}
