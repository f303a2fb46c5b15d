//! Declared machines: long-lived guests that the YAML describes (`machines:`), and that drover makes and
//! keeps as they are described.
//!
//! A guest of such a machine carries marks of [`Kind::Machine`](crate::marks::Kind::Machine), whose agent
//! is the id of this one making of it, and whose template is the machine's name. It is nobody's agent.

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::id::{DeclaredName, Generation};
use crate::image::Hardware;
use crate::phase::{DriftKind, Power};
use crate::spec::TemplateSpec;

/// What becomes of the guest of a machine that leaves the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum OnRemoval {
    /// It stays as it is.
    Keep,
    /// It is shut down, and stays.
    Stop,
    Delete,
}

/// A new guest with an empty disk that boots from an ISO image. Somebody installs it at its console, or
/// the image does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Installer {
    /// Proxmox's volume id of the ISO image.
    pub iso: String,
    /// The storage of the disk.
    pub storage: String,
    /// The size of the disk in GiB, as it is made.
    pub disk_gb: u32,
    pub hardware: Hardware,
}

/// One machine as it is declared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeclaredSpec {
    pub name: DeclaredName,
    /// What it is cloned from, and how it is configured; `cloud/name` is its id. Once a clone is
    /// intended, `source` and `node` say which template image that was.
    pub template: TemplateSpec,
    /// What it is installed from, in place of a template image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub installer: Option<Installer>,
    /// [`Power::Running`] or [`Power::Stopped`].
    pub power: Power,
    /// What drover puts right by itself.
    pub correct: BTreeSet<DriftKind>,
    pub on_removal: OnRemoval,
}

impl DeclaredSpec {
    /// Whether two declarations differ in nothing but the configuration that they are from.
    pub fn is_same(&self, other: &Self) -> bool {
        let bare = |spec: &Self| {
            let template =
                TemplateSpec { generation: Generation::default(), ..spec.template.clone() };
            Self { template, ..spec.clone() }
        };
        bare(self) == bare(other)
    }
}

/// A difference between a machine and its declaration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Drift {
    pub kind: DriftKind,
    /// What differs, such as `cores` or `net0`.
    pub what: String,
    pub declared: String,
    pub found: String,
    /// Why drover does not put it right; none where it does.
    pub stays: Option<Cow<'static, str>>,
}
