//! The small disc images that tell cloud-init what a guest is (its data source `NoCloud`): a volume
//! called `cidata` with `user-data`, `meta-data` and perhaps `network-config`.
//!
//! Written here, since it takes so little: ISO 9660 with the names of Rock Ridge, which Linux
//! reads, and of Joliet, which Windows does. An image says nothing of when it was made, so that the
//! same texts make the same bytes.

mod read;
mod write;

pub use read::{Disc, read};

/// The label by which cloud-init knows the volume.
pub const LABEL: &str = "cidata";

/// What cloud-init is to be told.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SeedTexts {
    /// `user-data`.
    pub user_data: String,
    /// `meta-data`.
    pub meta_data: String,
    /// `network-config`; none for what the image makes of its network cards by itself.
    pub network_config: Option<String>,
}

impl SeedTexts {
    /// The disc image; its length is a multiple of 2,048.
    pub fn image(&self) -> Vec<u8> {
        let network = self.network_config.as_ref();
        // In the order of their names, in which a directory holds them.
        let files = [
            Some(("METADATA.;1", "meta-data", self.meta_data.as_bytes())),
            network.map(|text| ("NETCONF.;1", "network-config", text.as_bytes())),
            Some(("USERDATA.;1", "user-data", self.user_data.as_bytes())),
        ];
        write::image(LABEL, &files.into_iter().flatten().collect::<Vec<_>>())
    }
}

#[cfg(test)]
mod tests;
