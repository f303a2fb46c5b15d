//! A guest's disk: a folder on the host with the guest's folders, host key and users.
//!
//! Guests are not trusted: anything on a disk can be a link that points outside. The host replaces
//! what is in the place of its files, and refuses to read through links.

use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use drover_ssh::{PrivateKey, PublicKey};
use percent_encoding::percent_decode_str;
use rand::TryRng;
use rand::rngs::SysRng;
use secrecy::{ExposeSecret, SecretString};

use super::identity::GuestIdentity;
use crate::guest::GuestBoot;

/// The most bytes that the host reads from a guest's file.
const FILE_BYTES_MAX: u64 = 256 * 1024;

/// The top-level folders on a guest's disk.
pub(super) const FOLDERS: [&str; 6] = ["etc", "home", "opt", "srv", "tmp", "var"];

/// The folder that is `/usr/local` in guests with their own.
pub(super) const USR_LOCAL_FOLDER: &str = "usr-local";

/// The disk of one guest, below the folder of all guests.
#[derive(Debug, Clone)]
pub(super) struct Disk {
    place: PathBuf,
}

impl Disk {
    pub(super) fn new(root: &Path, vmid: u32) -> Self {
        Self { place: root.join(vmid.to_string()) }
    }

    /// The folder that contains the guest's top-level folders.
    pub(super) fn folder(&self) -> PathBuf {
        self.place.join("disk")
    }

    /// The folder for the first process's pipe, for guests without a namespace.
    pub(super) fn run_folder(&self) -> PathBuf {
        self.place.join("run")
    }

    /// Does the work of firmware and cloud-init: folders, names, keys. Returns the host key.
    pub(super) fn prepare(
        &self,
        boot: &GuestBoot,
        identity: &GuestIdentity,
    ) -> io::Result<PrivateKey> {
        for name in FOLDERS {
            self.make_folder(name, 0o755)?;
        }
        let tmp = self.folder().join("tmp");
        if !boot.resumed {
            std::fs::remove_dir_all(&tmp)?;
        }
        self.make_folder("tmp", 0o755)?;
        std::fs::set_permissions(&tmp, std::fs::Permissions::from_mode(0o1777))?;
        for name in ["var/log", "var/lib", "var/tmp", "var/cache", "etc/ssh"] {
            self.make_folder(name, 0o755)?;
        }
        self.make_folder(&identity.home[1..], 0o755)?;
        self.make_folder(&format!("{USR_LOCAL_FOLDER}/bin"), 0o755)?;
        std::fs::create_dir_all(self.run_folder())?;

        let key = self.host_key(boot)?;
        let public = key.public_line(&format!("root@{}", identity.hostname));
        self.replace_file(
            "etc/ssh/ssh_host_ed25519_key.pub",
            format!("{public}\n").as_bytes(),
            0o644,
        )?;
        self.write_names(identity)?;
        self.write_java(identity)?;
        self.add_authorized_keys(boot, identity)?;
        Ok(key)
    }

    fn write_names(&self, identity: &GuestIdentity) -> io::Result<()> {
        let GuestIdentity { hostname, user, home, .. } = identity;
        let nobody = "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n";
        let root = if user == "root" { "" } else { "root:x:0:0:root:/root:/bin/sh\n" };
        let passwd = format!("{root}{user}:x:1000:1000::{home}:/bin/sh\n{nobody}");
        let group = format!("root:x:0:\n{user}:x:1000:\nnogroup:x:65534:\n");
        let mac = identity.mac.as_deref().unwrap_or_default().to_lowercase();
        let address = identity.address;
        let hosts = format!("127.0.0.1 localhost\n{address} {hostname}\n");
        self.replace_file("etc/hostname", format!("{hostname}\n").as_bytes(), 0o644)?;
        self.replace_file("etc/hosts", hosts.as_bytes(), 0o644)?;
        self.replace_file("etc/passwd", passwd.as_bytes(), 0o644)?;
        self.replace_file("etc/group", group.as_bytes(), 0o644)?;
        let traits = identity.traits.iter().map(String::as_str).collect::<Vec<_>>().join(" ");
        let known = format!("address={address}\nmac={mac}\ntraits='{traits}'\n");
        self.replace_file("etc/guest.env", known.as_bytes(), 0o644)?;
        Ok(())
    }

    /// Installs Java as an image would contain it: `java-17` on PATH, `jvm-17` outside it.
    fn write_java(&self, identity: &GuestIdentity) -> io::Result<()> {
        for (place, major) in identity.traits.iter().filter_map(|word| word.split_once('-')) {
            let path = match place {
                "java" => "opt/bin/java".to_owned(),
                "jvm" => format!("opt/jvm-{major}/bin/java"),
                _ => continue,
            };
            self.make_folder(path.trim_end_matches("/java"), 0o755)?;
            let said =
                format!("#!/bin/sh\necho 'openjdk version \"{major}.0.1\" 2026-01-20' >&2\n");
            self.replace_file(&path, said.as_bytes(), 0o755)?;
        }
        Ok(())
    }

    /// The private host key is outside the folders that the guest sees, as only a guest's root can
    /// read it. A first boot makes a new one.
    fn host_key(&self, boot: &GuestBoot) -> io::Result<PrivateKey> {
        let file = self.folder().join("hostkey");
        if (boot.boot > 1 || boot.resumed) && file.exists() {
            return PrivateKey::load(&file, None).map_err(io::Error::other);
        }
        let mut seed = [0; 32];
        SysRng.try_fill_bytes(&mut seed).map_err(io::Error::other)?;
        let key = PrivateKey::from_seed(&seed, "");
        let text: SecretString = key.to_openssh().map_err(io::Error::other)?;
        self.replace_file("hostkey", text.expose_secret().as_bytes(), 0o600)?;
        Ok(key)
    }

    /// Adds the keys of the configuration to those in the user's file.
    fn add_authorized_keys(&self, boot: &GuestBoot, identity: &GuestIdentity) -> io::Result<()> {
        let encoded = boot.config.get("sshkeys").map(String::as_str).unwrap_or_default();
        let wanted = percent_decode_str(encoded).decode_utf8_lossy().into_owned();
        let name = identity.authorized_keys();
        let mut lines = self.read(&name).unwrap_or_default();
        for line in wanted.lines().map(str::trim).filter(|line| !line.is_empty()) {
            if !lines.lines().any(|old| old.trim() == line) {
                if !lines.is_empty() && !lines.ends_with('\n') {
                    lines.push('\n');
                }
                lines.push_str(line);
                lines.push('\n');
            }
        }
        self.replace_file(&name, lines.as_bytes(), 0o600)
    }

    /// The keys that can log in now.
    pub(super) fn authorized_keys(&self, identity: &GuestIdentity) -> Vec<PublicKey> {
        let lines = self.read(&identity.authorized_keys()).unwrap_or_default();
        lines.lines().filter_map(|line| PublicKey::parse(line).ok()).collect()
    }

    /// The path on the host of a path in the guest; none for a path that leads outside the disk.
    pub(super) fn locate(&self, path: &str) -> Option<PathBuf> {
        let mut place = self.folder();
        for part in Path::new(path).components() {
            match part {
                Component::RootDir | Component::CurDir => {}
                Component::Normal(name) => place.push(name),
                Component::ParentDir | Component::Prefix(_) => return None,
            }
            if place.is_symlink() {
                return None;
            }
        }
        Some(place)
    }

    /// Whether a path of the guest is a folder.
    pub(super) fn has_folder(&self, name: &str) -> bool {
        self.locate(name).is_some_and(|path| path.is_dir())
    }

    /// Writes a file that the guest's SFTP server received, readable by its user only.
    pub(super) fn receive(&self, name: &str, content: &[u8]) -> io::Result<()> {
        let out = || io::Error::other("it leads outside the disk");
        self.locate(name).ok_or_else(out)?;
        self.replace_file(name, content, 0o700)
    }

    fn read(&self, name: &str) -> io::Result<String> {
        let out = || io::Error::other("it leads outside the disk");
        let path = self.locate(name).ok_or_else(out)?;
        // Opening a pipe waits for its other end.
        if !path.symlink_metadata()?.is_file() {
            return Err(io::Error::other("it is not a regular file"));
        }
        let mut text = String::new();
        std::fs::File::open(path)?.take(FILE_BYTES_MAX).read_to_string(&mut text)?;
        Ok(text)
    }

    /// Creates or replaces a file, and replaces everything on its path that is not a folder.
    fn replace_file(&self, name: &str, content: &[u8], mode: u32) -> io::Result<()> {
        if let Some((folder, _)) = name.rsplit_once('/') {
            self.make_folder(folder, 0o700)?;
        }
        let path = self.folder().join(name);
        remove(&path)?;
        let mut options = std::fs::OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(mode).open(&path)?;
        io::Write::write_all(&mut file, content)
    }

    fn make_folder(&self, name: &str, mode: u32) -> io::Result<()> {
        let mut path = self.folder();
        std::fs::create_dir_all(&path)?;
        for part in name.split('/') {
            path.push(part);
            let is_folder = path.symlink_metadata().is_ok_and(|kind| kind.is_dir());
            if !is_folder {
                remove(&path)?;
                std::fs::DirBuilder::new().mode(mode).create(&path)?;
            }
        }
        Ok(())
    }

    pub(super) fn snapshot(&self, name: &str) -> io::Result<()> {
        let to = self.place.join("snapshots").join(name);
        remove(&to)?;
        // The disk of a guest that never booted is empty.
        if self.folder().exists() {
            copy(&self.folder(), &to)
        } else {
            std::fs::create_dir_all(&to)
        }
    }

    pub(super) fn rollback(&self, name: &str) -> io::Result<()> {
        let from = self.place.join("snapshots").join(name);
        if !from.exists() {
            return Err(io::Error::other("there is no such snapshot"));
        }
        remove(&self.folder())?;
        copy(&from, &self.folder())
    }

    pub(super) fn clone_to(&self, other: &Self) -> io::Result<()> {
        remove(&other.folder())?;
        if self.folder().exists() { copy(&self.folder(), &other.folder()) } else { Ok(()) }
    }

    pub(super) fn remove(&self) -> io::Result<()> {
        remove(&self.place)
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match path.symlink_metadata() {
        Ok(kind) if kind.is_dir() => {
            let removed = std::fs::remove_dir_all(path);
            if removed.is_ok() {
                return removed;
            }
            // A guest can remove its own permissions, or write while it ends.
            make_writable(path);
            std::fs::remove_dir_all(path)
        }
        Ok(_) => std::fs::remove_file(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

fn make_writable(folder: &Path) {
    // A folder that stays closed shows when it cannot be removed.
    let _kept = std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o700));
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            make_writable(&entry.path());
        }
    }
}

/// Copies a tree. Links stay links; pipes and sockets are skipped.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let mode = from.symlink_metadata()?.permissions();
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type()?;
        if kind.is_dir() {
            copy(&source, &target)?;
        } else if kind.is_symlink() {
            std::os::unix::fs::symlink(std::fs::read_link(&source)?, &target)?;
        } else if kind.is_file() {
            match std::fs::copy(&source, &target) {
                // A guest that runs may remove what was there a moment ago.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                copied => drop(copied?),
            }
        }
    }
    std::fs::set_permissions(to, mode)
}
