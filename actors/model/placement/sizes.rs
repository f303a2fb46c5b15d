//! How big guests are.

use serde::{Deserialize, Serialize};

use crate::spec::TemplateSpec;

/// How big a guest is; zero for what is not known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Sizes {
    pub cores: u32,
    /// Memory, in MiB.
    pub memory_mb: u64,
    /// The disk it boots from, in GiB, rounded up.
    pub disk_gb: u64,
}

impl Sizes {
    /// What a clone of a template of these sizes has by its spec; a disk is never shrunk.
    pub fn cloned(self, spec: &TemplateSpec) -> Self {
        Self {
            cores: spec.cores.unwrap_or(self.cores),
            memory_mb: spec.memory_mb.map_or(self.memory_mb, u64::from),
            disk_gb: self.disk_gb.max(spec.disk_gb.map_or(0, u64::from)),
        }
    }
}
