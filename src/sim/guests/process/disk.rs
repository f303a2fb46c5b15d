//! A guest's disk: a folder of folders, its host key, its users.
//!
//! Guests are hostile: whatever stands on a disk may be a link that points out of it. Files of
//! ours replace what stands in their place, and reads refuse links.

use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use drover_ssh::{PrivateKey, PublicKey};
use percent_encoding::percent_decode_str;
use rand::TryRng;
use rand::rngs::SysRng;
use secrecy::{ExposeSecret, SecretString};

use super::windows::LoginShell;
use crate::guest::GuestBoot;

/// No file that the host reads from a guest is longer.
const FILE_BYTES_MAX: u64 = 256 * 1024;

/// The folders a guest finds as its own.
pub(super) const FOLDERS: [&str; 6] = ["etc", "home", "opt", "srv", "tmp", "var"];

/// The folder that is `/usr/local` to a guest that has its own.
pub(super) const USR_LOCAL: &str = "usr-local";

/// One guest's place beneath the host's folder.
#[derive(Debug, Clone)]
pub(super) struct Disk {
    place: PathBuf,
}

impl Disk {
    pub(super) fn new(root: &Path, vmid: u32) -> Self {
        Self { place: root.join(vmid.to_string()) }
    }

    /// The folder that the guest's own folders are in.
    pub(super) fn folder(&self) -> PathBuf {
        self.place.join("disk")
    }

    /// The folder for the first process's pipe, where nothing isolates the guest.
    pub(super) fn run_folder(&self) -> PathBuf {
        self.place.join("run")
    }

    /// Does what firmware and cloud-init would: folders, names, keys. Returns the host key.
    pub(super) fn prepare(&self, boot: &GuestBoot, inside: &Inside) -> io::Result<PrivateKey> {
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
        self.make_folder(&inside.home[1..], 0o755)?;
        self.make_folder(&format!("{USR_LOCAL}/bin"), 0o755)?;
        std::fs::create_dir_all(self.run_folder())?;

        let key = self.host_key(boot)?;
        let public = key.public_line(&format!("root@{}", inside.hostname));
        self.put("etc/ssh/ssh_host_ed25519_key.pub", format!("{public}\n").as_bytes(), 0o644)?;
        self.write_names(inside)?;
        self.write_java(inside)?;
        self.authorize(boot, inside)?;
        Ok(key)
    }

    fn write_names(&self, inside: &Inside) -> io::Result<()> {
        let Inside { hostname, user, home, .. } = inside;
        let nobody = "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n";
        let root = if user == "root" { "" } else { "root:x:0:0:root:/root:/bin/sh\n" };
        let passwd = format!("{root}{user}:x:1000:1000::{home}:/bin/sh\n{nobody}");
        let group = format!("root:x:0:\n{user}:x:1000:\nnogroup:x:65534:\n");
        let mac = inside.mac.as_deref().unwrap_or_default().to_lowercase();
        let address = inside.address;
        let hosts = format!("127.0.0.1 localhost\n{address} {hostname}\n");
        self.put("etc/hostname", format!("{hostname}\n").as_bytes(), 0o644)?;
        self.put("etc/hosts", hosts.as_bytes(), 0o644)?;
        self.put("etc/passwd", passwd.as_bytes(), 0o644)?;
        self.put("etc/group", group.as_bytes(), 0o644)?;
        let traits = inside.traits.iter().map(String::as_str).collect::<Vec<_>>().join(" ");
        let known = format!("address={address}\nmac={mac}\ntraits='{traits}'\n");
        self.put("etc/guest.env", known.as_bytes(), 0o644)?;
        Ok(())
    }

    /// What an image brings along: `java-17` on PATH, `jvm-17` off it.
    fn write_java(&self, inside: &Inside) -> io::Result<()> {
        for (place, major) in inside.traits.iter().filter_map(|word| word.split_once('-')) {
            let path = match place {
                "java" => "opt/bin/java".to_owned(),
                "jvm" => format!("opt/jvm-{major}/bin/java"),
                _ => continue,
            };
            self.make_folder(path.trim_end_matches("/java"), 0o755)?;
            let said =
                format!("#!/bin/sh\necho 'openjdk version \"{major}.0.1\" 2026-01-20' >&2\n");
            self.put(&path, said.as_bytes(), 0o755)?;
        }
        Ok(())
    }

    /// The host key lies beside the folders the guest sees, as a guest's own is readable to its
    /// root only; a first boot makes a new one.
    fn host_key(&self, boot: &GuestBoot) -> io::Result<PrivateKey> {
        let file = self.folder().join("hostkey");
        if (boot.boot > 1 || boot.resumed) && file.exists() {
            return PrivateKey::load(&file, None).map_err(io::Error::other);
        }
        let mut seed = [0; 32];
        SysRng.try_fill_bytes(&mut seed).map_err(io::Error::other)?;
        let key = PrivateKey::from_seed(&seed, "");
        let text: SecretString = key.to_openssh().map_err(io::Error::other)?;
        self.put("hostkey", text.expose_secret().as_bytes(), 0o600)?;
        Ok(key)
    }

    /// Adds the configuration's keys to those that stand in the user's file already.
    fn authorize(&self, boot: &GuestBoot, inside: &Inside) -> io::Result<()> {
        let encoded = boot.config.get("sshkeys").map(String::as_str).unwrap_or_default();
        let wanted = percent_decode_str(encoded).decode_utf8_lossy().into_owned();
        let name = inside.authorized_keys();
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
        self.put(&name, lines.as_bytes(), 0o600)
    }

    /// The keys that may log in at this moment.
    pub(super) fn authorized_keys(&self, inside: &Inside) -> Vec<PublicKey> {
        let lines = self.read(&inside.authorized_keys()).unwrap_or_default();
        lines.lines().filter_map(|line| PublicKey::parse(line).ok()).collect()
    }

    /// Where a path of the guest lies on the host; none when it leads out of the disk.
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

    /// Whether a folder stands there.
    pub(super) fn has_folder(&self, name: &str) -> bool {
        self.locate(name).is_some_and(|path| path.is_dir())
    }

    /// Puts a file there that a server of the guest's took, for its user alone.
    pub(super) fn receive(&self, name: &str, content: &[u8]) -> io::Result<()> {
        let out = || io::Error::other("it leads out of the disk");
        self.locate(name).ok_or_else(out)?;
        self.put(name, content, 0o700)
    }

    fn read(&self, name: &str) -> io::Result<String> {
        let out = || io::Error::other("it leads out of the disk");
        let path = self.locate(name).ok_or_else(out)?;
        // Opening a pipe would wait for its other end.
        if !path.symlink_metadata()?.is_file() {
            return Err(io::Error::other("it is no plain file"));
        }
        let mut text = String::new();
        std::fs::File::open(path)?.take(FILE_BYTES_MAX).read_to_string(&mut text)?;
        Ok(text)
    }

    /// Replaces a file, and anything on the way that is no folder.
    fn put(&self, name: &str, content: &[u8], mode: u32) -> io::Result<()> {
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
            let stands = path.symlink_metadata().is_ok_and(|kind| kind.is_dir());
            if !stands {
                remove(&path)?;
                std::fs::DirBuilder::new().mode(mode).create(&path)?;
            }
        }
        Ok(())
    }

    pub(super) fn snapshot(&self, name: &str) -> io::Result<()> {
        let to = self.place.join("snapshots").join(name);
        remove(&to)?;
        // A guest that never booted has an empty disk.
        if self.folder().exists() {
            copy(&self.folder(), &to)
        } else {
            std::fs::create_dir_all(&to)
        }
    }

    pub(super) fn rollback(&self, name: &str) -> io::Result<()> {
        let from = self.place.join("snapshots").join(name);
        if !from.exists() {
            return Err(io::Error::other("the snapshot was never taken"));
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

/// What a guest knows about itself.
#[derive(Debug, Clone)]
pub(super) struct Inside {
    pub vmid: u32,
    pub hostname: String,
    pub user: String,
    pub home: String,
    pub mac: Option<String>,
    pub address: std::net::Ipv4Addr,
    /// What is special about it: `x` for each of its tags `guest-x`.
    pub traits: Vec<String>,
}

/// The package managers of guests that are bare machines of one family.
const FAMILIES: [&str; 4] = ["apt", "dnf", "zypper", "apk"];

impl Inside {
    /// Reads a boot's configuration.
    ///
    /// # Errors
    /// The reason, when it can not be a guest's.
    pub(super) fn new(boot: &GuestBoot, address: std::net::Ipv4Addr) -> Result<Self, String> {
        let user = boot.config.get("ciuser").map_or("debian", String::as_str).to_owned();
        let plain = |word: &str| {
            let good = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
            (1..=63).contains(&word.len())
                && word.chars().all(good)
                && !word.starts_with(['-', '.'])
        };
        if !plain(&user) {
            return Err(format!("ciuser `{user}` can not be a user of a process guest"));
        }
        if !plain(&boot.hostname) {
            return Err(format!("`{}` can not be the name of a process guest", boot.hostname));
        }
        let home = if user == "root" { "/root".to_owned() } else { format!("/home/{user}") };
        let (vmid, hostname, mac) = (boot.vmid, boot.hostname.clone(), boot.mac.clone());
        let tags = boot.config.get("tags").map(String::as_str).unwrap_or_default();
        let traits = tags.split([';', ',', ' ']).filter_map(|tag| tag.strip_prefix("guest-"));
        let traits = traits.filter(|word| plain(word)).map(str::to_owned).collect();
        Ok(Self { vmid, hostname, user, home, mac, address, traits })
    }

    /// The package manager it has alone, when it is to look like a machine of one family: without
    /// the host's Java, and with a `/usr/local` of its own.
    pub fn family(&self) -> Option<&str> {
        self.traits.iter().map(String::as_str).find(|word| FAMILIES.contains(word))
    }

    /// The login shell of a guest of Windows; none of any other.
    pub fn windows(&self) -> Option<LoginShell> {
        self.traits.iter().find_map(|word| match word.as_str() {
            "windows" => Some(LoginShell::Cmd),
            "windows-powershell" => Some(LoginShell::Powershell),
            _ => None,
        })
    }

    fn authorized_keys(&self) -> String {
        format!("{}/.ssh/authorized_keys", &self.home[1..])
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match path.symlink_metadata() {
        Ok(kind) if kind.is_dir() => {
            let removed = std::fs::remove_dir_all(path);
            if removed.is_ok() {
                return removed;
            }
            // A guest may have taken its own rights away, or be dying while it writes.
            open_up(path);
            std::fs::remove_dir_all(path)
        }
        Ok(_) => std::fs::remove_file(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

fn open_up(folder: &Path) {
    // What can not be opened shows when it can not be removed.
    let _kept = std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o700));
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            open_up(&entry.path());
        }
    }
}

/// Copies a tree; links stay links, pipes and sockets are left out.
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
            std::fs::copy(&source, &target)?;
        }
    }
    std::fs::set_permissions(to, mode)
}
