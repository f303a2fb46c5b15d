//! The Proxmox VE client.
