//! The files of the demo: keys, the configuration, and the folder of all.

use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use drover_ssh::PrivateKey;
use secrecy::ExposeSecret as _;

use super::cluster::DemoCluster;
use super::fault::DemoError;
use super::leftovers;

/// The value that the story makes wrong, and the wrong one.
const RIGHT_VALUE: &str = "instanceCap: 3";
const WRONG_VALUE: &str = "instanceCap: three";

pub struct DemoFiles {
    folder: tempfile::TempDir,
    yaml: String,
    page: Page,
}

/// Where people find the operator's page, and how they log in.
#[derive(Debug, Clone)]
pub struct Page {
    port: u16,
    token: String,
}

impl Page {
    /// A port that is free, and a token that nobody knows.
    fn new() -> io::Result<Self> {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let token = rand::random::<[u8; 16]>().iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Self { port, token })
    }

    /// The address, and the token.
    pub fn shown(&self) -> String {
        format!("http://127.0.0.1:{}/ (token {})", self.port, self.token)
    }
}

impl DemoFiles {
    /// Removes the folders of dead demos, and makes one for this demo.
    ///
    /// # Errors
    /// When the folder cannot be made.
    pub fn create() -> Result<Self, DemoError> {
        leftovers::remove_dead(&std::env::temp_dir(), Path::new("/proc"));
        let folder = tempfile::Builder::new().prefix(leftovers::PREFIX).tempdir();
        let folder = folder.map_err(DemoError::system)?;
        leftovers::claim(folder.path()).map_err(DemoError::system)?;
        let page = Page::new().map_err(DemoError::system)?;
        Ok(Self { folder, yaml: String::new(), page })
    }

    /// Writes keys and the configuration for the service on this cluster.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn write(&mut self, cluster: &DemoCluster) -> Result<(), DemoError> {
        let dir = self.folder.path();
        let key = PrivateKey::from_seed(&rand::random(), "drover-demo");
        let text = key.to_openssh().map_err(|error| DemoError::system(io::Error::other(error)))?;
        self.yaml = include_str!("demo.yaml")
            .replace("DIR", &dir.display().to_string())
            .replace("PORT", &self.page.port.to_string())
            .replace("URL", &cluster.url());
        let write = || {
            write_private(&dir.join("agent-key"), text.expose_secret())?;
            write_private(&dir.join("proxmox-token"), &cluster.token_secret)?;
            write_private(&dir.join("page-token"), &self.page.token)?;
            std::fs::write(dir.join("ca.pem"), cluster.ca_pem())?;
            self.write_yaml(&self.yaml)
        };
        write().map_err(DemoError::system)
    }

    /// Writes a wrong value into the configuration.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn break_yaml(&self) -> Result<(), DemoError> {
        let broken = self.yaml.replacen(RIGHT_VALUE, WRONG_VALUE, 1);
        self.write_yaml(&broken).map_err(DemoError::system)
    }

    /// Writes the configuration as it was.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn repair_yaml(&self) -> Result<(), DemoError> {
        self.write_yaml(&self.yaml).map_err(DemoError::system)
    }

    /// The wrong value, and the number of its line.
    pub fn wrong_line(&self) -> (&'static str, usize) {
        let line = self.yaml.lines().position(|line| line.contains(RIGHT_VALUE));
        (WRONG_VALUE, line.map_or(0, |index| index + 1))
    }

    /// A reader never sees a half-written file.
    fn write_yaml(&self, text: &str) -> io::Result<()> {
        let new = self.folder.path().join("drover.yaml.new");
        std::fs::write(&new, text)?;
        std::fs::rename(new, self.yaml_file())
    }

    pub fn page(&self) -> &Page {
        &self.page
    }

    pub fn guests(&self) -> PathBuf {
        self.folder.path().join("guests")
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("drover.sock")
    }

    pub fn notify_socket(&self) -> PathBuf {
        self.folder.path().join("notify")
    }

    pub fn yaml_file(&self) -> PathBuf {
        self.folder.path().join("drover.yaml")
    }

    pub fn log_file(&self) -> PathBuf {
        self.folder.path().join("drover.log")
    }

    /// Removes the folder, or leaves it and gives its path.
    ///
    /// # Errors
    /// When the folder cannot be removed.
    pub fn end(self, keep: bool) -> Result<Option<PathBuf>, DemoError> {
        if keep {
            leftovers::keep(self.folder.path());
            return Ok(Some(self.folder.keep()));
        }
        self.folder.close().map_err(DemoError::system)?;
        Ok(None)
    }
}

fn write_private(path: &Path, text: &str) -> io::Result<()> {
    use std::io::Write as _;
    let mut file =
        std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())
}
