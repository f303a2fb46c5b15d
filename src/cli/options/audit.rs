//! Options of `drover audit`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use super::read::read_span;
use crate::cli::list_options::ListOptions;

/// Which records are listed.
#[derive(Debug, Clone, Default, Args)]
pub struct AuditOptions {
    /// Only records of this time, such as 2h or 7d
    #[arg(long, value_name = "TIME", value_parser = read_span)]
    pub since: Option<Duration>,
    /// Only records of this principal, such as token:ci or uid:1000
    #[arg(long, value_name = "PRINCIPAL")]
    pub by: Option<String>,
    /// Only calls about this: an agent, a lease, a template, or a word of a path such as `retire`
    #[arg(long, value_name = "NAME")]
    pub about: Option<String>,
    /// The newest so many [default: 200]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub limit: Option<u32>,
    #[command(flatten)]
    pub list: ListOptions,
}

/// What to do with the audit log.
#[derive(Debug, Clone, Subcommand)]
pub enum AuditAction {
    /// Check the chain of hashes in the files of this machine; needs no running service
    Verify {
        /// A file of the audit log, or its folder [default: the folder in the state directory of the
        /// configuration]
        #[arg(value_name = "FILE")]
        path: Option<PathBuf>,
        /// The hash of a record that must be there, such as the last one of an earlier check: it shows whether
        /// the end was cut off
        #[arg(long, value_name = "HASH", value_parser = read_hash)]
        holds: Option<String>,
    },
}

/// A hash as a check prints it.
fn read_hash(text: &str) -> Result<String, String> {
    let is_hash = text.len() == 64 && text.bytes().all(|one| one.is_ascii_hexdigit());
    let fault =
        || "it must have 64 hexadecimal digits, as `drover audit verify` prints them".to_owned();
    is_hash.then(|| text.to_ascii_lowercase()).ok_or_else(fault)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Invariant: what cannot be a hash is refused before anything is read.

    #[test]
    fn a_hash_has_64_hexadecimal_digits_of_either_case() {
        assert_eq!(read_hash(&"aF".repeat(32)), Ok("af".repeat(32)));
        for wrong in ["", "af", &"af".repeat(33), &"ag".repeat(32)] {
            assert!(read_hash(wrong).is_err_and(|why| why.contains("64 hexadecimal digits")));
        }
    }
}
