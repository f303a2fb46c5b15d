//! The small disc images from which cloud-init learns what a guest is (its data source `NoCloud`):
//! a volume named `cidata` with the files `user-data`, `meta-data` and, if needed,
//! `network-config`.
//!
//! The format is simple enough to be written here: ISO 9660 with Rock Ridge names, which Linux
//! reads, and Joliet names, which Windows reads. An image holds no time, so the same texts always
//! give the same bytes.

mod read;
mod write;

pub use read::{Disc, read};

/// The volume label by which cloud-init finds the disc.
pub const LABEL: &str = "cidata";

/// The texts for cloud-init.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CloudInitTexts {
    pub user_data: String,
    pub meta_data: String,
    /// None leaves the network to the image's own defaults.
    pub network_config: Option<String>,
}

impl CloudInitTexts {
    /// The disc image; its length is a multiple of 2,048.
    pub fn image(&self) -> Vec<u8> {
        let network = self.network_config.as_ref();
        // In the order of their ISO 9660 names, as a directory requires.
        let files = [
            Some(("METADATA.;1", "meta-data", self.meta_data.as_bytes())),
            network.map(|text| ("NETCONF.;1", "network-config", text.as_bytes())),
            Some(("USERDATA.;1", "user-data", self.user_data.as_bytes())),
        ];
        write::image(LABEL, &files.into_iter().flatten().collect::<Vec<_>>())
    }
}

/// A disc image with this label and one file, whose name has at most eight characters and an ending
/// of three; such as the boot loader's settings of a simulated installer.
pub fn disc_with(label: &str, name: &str, content: &[u8]) -> Vec<u8> {
    let short = format!("{};1", name.to_ascii_uppercase());
    write::image(label, &[(&short, name, content)])
}

#[cfg(test)]
mod tests;
