//! Names that leave drover: hashed with a salt, so that nobody outside learns them and equal ones stay
//! equal within one trace.

use sha2::{Digest as _, Sha256};

use crate::{DemandKind, Line};

/// Bytes of a hash that are shown, as two digits each.
const SHOWN: usize = 8;

/// What hashes names of one trace. It is made at random and kept nowhere.
pub struct Salt([u8; 32]);

impl Salt {
    pub const fn new(random: [u8; 32]) -> Self {
        Self(random)
    }

    /// What stands for a name.
    pub fn hashed(&self, name: &str) -> String {
        let digest = Sha256::new().chain_update(self.0).chain_update(name).finalize();
        digest.iter().take(SHOWN).map(|byte| format!("{byte:02x}")).collect()
    }

    /// The same line without names of people and jobs: owners, groups, and the jobs of sources.
    #[must_use]
    pub fn without_names(&self, line: Line) -> Line {
        match line {
            Line::Demand(mut demand) => {
                for name in [&mut demand.owner, &mut demand.group, &mut demand.name] {
                    *name = name.take().map(|name| self.hashed(&name));
                }
                // The ids of leases and runners are drover's own, and at random.
                if demand.kind == DemandKind::Job {
                    demand.id = self.hashed(&demand.id);
                }
                Line::Demand(demand)
            }
            line @ (Line::Trace(_)
            | Line::Agent(_)
            | Line::Configuration(_)
            | Line::Service(_)
            | Line::End(_)) => line,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Invariant: equal names stay equal in one trace, and nobody who has two traces can join them.

    #[test]
    fn names_are_equal_under_one_salt_and_differ_under_another() {
        let (one, other) = (Salt::new([1; 32]), Salt::new([2; 32]));
        assert_eq!(one.hashed("anna"), one.hashed("anna"));
        assert_ne!(one.hashed("anna"), one.hashed("bert"));
        assert_ne!(one.hashed("anna"), other.hashed("anna"));
        assert_eq!(one.hashed("anna").len(), 2 * SHOWN);
    }
}
