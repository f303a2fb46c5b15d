//! A guest as the path of a call names it.

/// A guest's VMID, with the path that its type has (`/qemu/` or `/lxc/`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GuestId {
    /// The number that virtual machines and containers share.
    pub vmid: u32,
    /// Whether it is a container.
    pub container: bool,
}

impl GuestId {
    /// The id of a container.
    pub fn container(vmid: u32) -> Self {
        Self { vmid, container: true }
    }

    /// The part of a path below its node, such as `qemu/101`.
    pub(crate) fn path(self) -> String {
        let kind = if self.container { "lxc" } else { "qemu" };
        format!("{kind}/{}", self.vmid)
    }
}

/// A VMID alone is that of a virtual machine.
impl From<u32> for GuestId {
    fn from(vmid: u32) -> Self {
        Self { vmid, container: false }
    }
}
