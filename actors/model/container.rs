//! Containers (LXC) as agents: which type a guest has, and what a template says of containers alone.
//!
//! Proxmox counts virtual machines and containers in one space of VMIDs. Their calls differ in the
//! path, and in what a running or a locked guest answers (book: proxmox, section 18).

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::spec::TemplateSpec;
use crate::template_image::Sought;

/// Whether a guest is a virtual machine or a container (`guestType`).
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "UPPERCASE")]
pub enum GuestType {
    /// A virtual machine; also where a journal or a guest's marks do not say it.
    #[default]
    Vm,
    Container,
}

impl GuestType {
    /// Whether it is a virtual machine.
    pub fn is_vm(&self) -> bool {
        *self == Self::Vm
    }

    /// Whether it is a container.
    pub fn is_container(self) -> bool {
        self == Self::Container
    }

    /// The type of a guest that a list shows.
    pub fn of_listed(container: bool) -> Self {
        if container { Self::Container } else { Self::Vm }
    }

    /// Proxmox's command for such guests on their node.
    pub fn tool(self) -> &'static str {
        match self {
            Self::Vm => "qm",
            Self::Container => "pct",
        }
    }

    /// Proxmox's command that opens the console of such a guest on its node.
    pub fn console(self) -> &'static str {
        match self {
            Self::Vm => "qm terminal",
            Self::Container => "pct console",
        }
    }
}

impl fmt::Display for GuestType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Vm => "virtual machine",
            Self::Container => "container",
        })
    }
}

/// What a template says of its containers beyond what it says of any guest.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerSpec {
    /// Whether containers may run inside (`nesting`); a clone also has what its template has.
    #[serde(default)]
    pub nesting: bool,
    /// Swap in MiB; none for the template's, or Proxmox's default.
    #[serde(default)]
    pub swap_mb: Option<u32>,
    /// What the containers are made of; none for clones of a template.
    #[serde(default)]
    pub create: Option<CreateSpec>,
}

/// Containers that are made of an OS template instead of being cloned.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CreateSpec {
    /// The archive of its files.
    pub template: OsTemplate,
    /// Whether root in the container is an ordinary user of the node.
    pub unprivileged: bool,
}

/// An archive of a container's files on a storage (`osTemplate`).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OsTemplate {
    /// The storage that it is on.
    pub storage: String,
    /// Its file name there.
    pub file: String,
    /// Where the node downloads it if it is missing; none for Proxmox's own list of templates.
    #[serde(default)]
    pub download: Option<Download>,
}

impl OsTemplate {
    /// Proxmox's volume id, `STORAGE:vztmpl/FILE`.
    pub fn volume(&self) -> String {
        format!("{}:vztmpl/{}", self.storage, self.file)
    }
}

/// A download that a node checks.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Download {
    pub url: String,
    /// The checksum, in hexadecimal digits.
    pub checksum: String,
    /// What kind of checksum it is, as Proxmox names it.
    pub algorithm: String,
}

impl TemplateSpec {
    /// The type of its guests.
    pub fn guest(&self) -> GuestType {
        GuestType::of_listed(self.container.is_some())
    }

    /// How its containers are made where they are not cloned.
    pub fn create(&self) -> Option<&CreateSpec> {
        self.container.as_ref()?.create.as_ref()
    }

    /// By what its template is found.
    pub fn sought(&self) -> Sought {
        if let Some(create) = self.create() {
            return Sought::Os(create.template.clone());
        }
        let by = self.search.clone().unwrap_or(Sought::Id(self.source));
        match self.guest() {
            GuestType::Vm => by,
            GuestType::Container => Sought::Container(Box::new(by)),
        }
    }

    /// The same for a guest of this type: what is left of a template that changed its type.
    #[must_use]
    pub fn of_type(self, guest: GuestType) -> Self {
        if self.guest() == guest {
            return self;
        }
        let container = guest.is_container().then(ContainerSpec::default);
        Self { container, reset: None, ..self }
    }
}
