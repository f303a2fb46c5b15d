//! Options of `drover run`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Options of `run`.
#[derive(Debug, Clone, Default, Args)]
pub struct RunOptions {
    /// Exit with 1 when a cloud cannot be reached at the start
    #[arg(long)]
    pub strict: bool,
    /// Directory of the journal [default: $STATE_DIRECTORY, else /var/lib/drover]
    #[arg(long, value_name = "DIR", env = "DROVER_STATE_DIR")]
    pub state_dir: Option<PathBuf>,
    /// Store that several drovers share, in place of service.store: etcd://…, s3://… or gs://…
    #[arg(long, value_name = "ADDRESS", env = "DROVER_STORE", conflicts_with_all = ["storage", "bucket", "shard"])]
    pub store: Option<String>,
    /// The same in parts: the kind of an object store
    #[arg(long, value_name = "KIND", requires = "bucket")]
    pub storage: Option<Storage>,
    /// The bucket of that object store
    #[arg(long, value_name = "BUCKET", requires = "storage")]
    pub bucket: Option<String>,
    /// The prefix of this herd in the bucket [default: drover]
    #[arg(long, value_name = "PREFIX", requires = "storage")]
    pub shard: Option<String>,
    /// Name of this member of a store [default: the machine's name]
    #[arg(long, visible_alias = "id", value_name = "NAME", env = "DROVER_MEMBER")]
    pub member: Option<String>,
    /// URL where other members of the store reach this one [default: by service.listen]
    #[arg(long, value_name = "URL", env = "DROVER_ADVERTISE")]
    pub advertise: Option<String>,
}

/// Kinds of object stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Storage {
    S3,
    Gcs,
}

impl RunOptions {
    /// The address of the store; none where the configuration says it.
    pub fn store_address(&self) -> Option<String> {
        let scheme = match self.storage {
            Some(Storage::S3) => "s3",
            Some(Storage::Gcs) => "gs",
            None => return self.store.clone(),
        };
        let bucket = self.bucket.as_deref().unwrap_or_default();
        let shard = self.shard.as_deref().unwrap_or("drover");
        Some(format!("{scheme}://{bucket}/{shard}"))
    }
}
