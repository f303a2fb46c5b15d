//! Options that name a store, those of `drover shard-config`, and what is done with members.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use drover_config::{Environment, KEY_VARIABLE, STORE_VARIABLE};

/// Which store several drovers share.
#[derive(Debug, Clone, Default, Args)]
pub struct StorePlace {
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
}

/// Which store several drovers share, and the key of its members.
#[derive(Debug, Clone, Default, Args)]
pub struct StoreOptions {
    #[command(flatten)]
    pub place: StorePlace,
    /// File of the key that all members have, where the configuration has no service.clusterKey
    #[arg(long, value_name = "FILE", env = "DROVER_CLUSTER_KEY_FILE")]
    pub cluster_key_file: Option<PathBuf>,
}

/// Kinds of object stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Storage {
    S3,
    Gcs,
}

impl StorePlace {
    /// The address of the store; none where the configuration says it.
    pub fn address(&self) -> Option<String> {
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

impl StoreOptions {
    /// The variables of this process, and over them the options.
    pub fn environment(&self) -> Environment {
        let key = self.cluster_key_file.as_ref().map(|path| path.display().to_string());
        let given = [(STORE_VARIABLE, self.place.address()), (KEY_VARIABLE, key)];
        given.into_iter().fold(
            Environment::of_process(),
            |environment, (name, value)| match value {
                Some(value) => environment.with(name, &value),
                None => environment,
            },
        )
    }
}

/// What to do with the members of a store.
#[derive(Debug, Clone, Subcommand)]
pub enum MembersAction {
    /// Take a silent member out of the list that is gone for good; it comes back when it starts again
    Forget {
        /// The name of the member
        member: String,
    },
}

/// What to do with the configuration in a store.
#[derive(Debug, Clone, Subcommand)]
pub enum ShardConfigAction {
    /// Check a configuration, say what changes, and put it into the store: its members take it within
    /// seconds
    Put(ShardPutOptions),
    /// Print the files of the configuration in the store, or write them into a new folder to edit them
    Get {
        /// The folder; without it the files are printed
        #[arg(value_name = "DIR")]
        directory: Option<PathBuf>,
        #[command(flatten)]
        store: StoreOptions,
    },
    /// Say which configuration is in the store: its number, who put it there and when, and its files
    Show(StoreOptions),
}

/// Options of `shard-config put`.
#[derive(Debug, Clone, Default, Args)]
pub struct ShardPutOptions {
    /// The YAML file, or the directory of them [default: what --config names, else /etc/drover]
    #[arg(value_name = "PATH")]
    pub path: Option<PathBuf>,
    /// Refuse it unless this is the number of the configuration in the store, 0 for none [default: the one
    /// that `get` wrote beside the files, else any]
    #[arg(long, value_name = "NUMBER")]
    pub expect: Option<u64>,
    /// Say what would change, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Replace what is in the store although it cannot be read
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    pub store: StoreOptions,
}

#[cfg(test)]
mod tests {
    use super::*;

    // Invariant: the parts of an address make that address.

    #[test]
    fn an_address_is_given_whole_or_in_parts() {
        let whole = StorePlace { store: Some("etcd://a/b".into()), ..StorePlace::default() };
        assert_eq!(whole.address().as_deref(), Some("etcd://a/b"));
        let parts = StorePlace {
            storage: Some(Storage::Gcs),
            bucket: Some("ci".into()),
            ..StorePlace::default()
        };
        assert_eq!(parts.address().as_deref(), Some("gs://ci/drover"));
        let place = StorePlace { storage: Some(Storage::S3), shard: Some("lab".into()), ..parts };
        assert_eq!(place.address().as_deref(), Some("s3://ci/lab"));
        let shard = StoreOptions { place, ..StoreOptions::default() };
        assert_eq!(shard.environment().get(STORE_VARIABLE), Some("s3://ci/lab"));
    }
}
