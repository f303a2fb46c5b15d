//! Where a service listens, by its configuration: also by one that is broken just now.
//!
//! In: the files that somebody named. Out: the socket of the service that runs by them, or why it is not
//! known. Commands ask that service, so a file that is damaged must never lead to another one. The usual
//! socket is certain only where the files are whole and name none. Where they are not, a service there
//! must prove that it runs by them before it is asked anything else ([`Socket::doubt`]).
//!
//! - `service.socket` is named, whatever other sections contain: that one.
//! - The YAML has a syntax fault: the one path that a line `socket:` of `service` gives, read as text.
//! - No socket is named: the usual one, unless the files have other faults and no `service` either. Then
//!   the section may have been lost, as in a file that was cut off: the usual one is in doubt.

use std::fs;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use super::fault::{self, Fault};
use super::keys::SERVICE;
use super::layer::Layer;
use super::source::Sources;
use super::top::Top;
use super::{Environment, LoadError, load};

/// Sockets beside a configuration that are looked at.
const SOCKETS_MAX: usize = 16;

/// Where a service listens.
#[derive(Debug)]
pub struct Socket {
    pub path: PathBuf,
    /// Why another service may listen there: the files have faults, and no line of theirs speaks of a
    /// socket. `None` where the socket is certain.
    pub doubt: Option<LoadError>,
}

impl Socket {
    fn certain(path: PathBuf) -> Self {
        Self { path, doubt: None }
    }
}

/// The socket of the API as a configuration names it, whatever other sections contain.
///
/// # Errors
/// [`LoadError`] where the files cannot be read, or have faults and speak of a socket in a way that
/// cannot be read.
pub fn socket(path: &Path, environment: &Environment) -> Result<Socket, LoadError> {
    let found = named(path, environment);
    let beside = beside(path);
    match found {
        Err(error) if beside.exists() => Ok(Socket { path: beside, doubt: Some(error) }),
        Err(LoadError::Faults { faults, sources }) => {
            let speaks = sources.files().iter().any(|file| file.text.contains("socket"));
            let doubt = LoadError::Faults { faults, sources };
            match speaks {
                true => Err(doubt),
                false => Ok(Socket { path: default_socket(environment), doubt: Some(doubt) }),
            }
        }
        Err(error @ (LoadError::Missing { .. } | LoadError::Io { .. })) => Err(error),
        Ok(path) => Ok(Socket::certain(path)),
    }
}

/// Where else the service of a configuration may listen that names another socket by now, which only a
/// restart applies. It must prove that it runs by that configuration.
pub fn elsewhere(path: &Path, environment: &Environment) -> Vec<PathBuf> {
    let is_socket = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_socket());
    let entries = fs::read_dir(folder(path)).into_iter().flatten().flatten();
    let mut all: Vec<PathBuf> =
        entries.filter(is_socket).map(|entry| entry.path()).take(SOCKETS_MAX).collect();
    all.sort();
    all.push(default_socket(environment));
    all
}

/// Where `drover init` puts the socket of a configuration in a folder of its own.
fn beside(path: &Path) -> PathBuf {
    folder(path).join("drover.sock")
}

/// The folder of a configuration.
fn folder(path: &Path) -> &Path {
    let file = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    if path.is_dir() { path } else { file.unwrap_or(Path::new(".")) }
}

/// The socket that is certain.
fn named(path: &Path, environment: &Environment) -> Result<PathBuf, LoadError> {
    let sources = Sources::read(path).map_err(|(path, source)| LoadError::Io { path, source })?;
    let mut faults = Vec::new();
    let layer = match Top::of(&sources, &mut Vec::new()) {
        Ok(top) => top
            .local("service")
            .map(|entry| Layer::check(&entry.value, entry.place, "service", &SERVICE, &mut faults)),
        Err(fault) => {
            faults.push(*fault);
            None
        }
    };
    if !faults.is_empty() {
        let mut found = sources.files().iter().filter_map(|file| written(&file.text));
        if let (Some(only), None) = (found.next(), found.next()) {
            return Ok(only);
        }
        fault::hide(&mut faults, &sources);
        return Err(LoadError::Faults { faults, sources });
    }
    let named = layer.as_ref().and_then(|layer| layer.text("socket"));
    if let Some(named) = named.filter(|text| !text.is_empty()) {
        return Ok(PathBuf::from(named));
    }
    // What git manages names no socket, and callers may not read it.
    let loaded = match sources.files() {
        [] => load::loaded(path, Ok(sources), environment),
        [..] => load::check_taken(sources, environment),
    };
    match loaded.result {
        Err(LoadError::Faults { faults, sources })
            if layer.is_none() && !faults.iter().all(is_of_another_file) =>
        {
            Err(LoadError::Faults { faults, sources })
        }
        Err(error @ (LoadError::Missing { .. } | LoadError::Io { .. })) => Err(error),
        Ok(_) | Err(LoadError::Faults { .. }) => Ok(default_socket(environment)),
    }
}

/// Where a service listens whose configuration names no socket.
pub(super) fn default_socket(environment: &Environment) -> PathBuf {
    let run = environment.directory("RUNTIME_DIRECTORY").unwrap_or("/run/drover".into());
    run.join("drover.sock")
}

/// Whether a fault is of a file beside the YAML, such as a secret that only the service's user may read,
/// or of a variable that only the service has.
fn is_of_another_file(fault: &Fault) -> bool {
    ["cannot be read", "others can read", "is not set", "systemd did not start"]
        .iter()
        .any(|words| fault.message.contains(words))
}

/// The absolute path at `socket:` of the section `service`, read without YAML; none where it is not plain.
fn written(text: &str) -> Option<PathBuf> {
    let mut inside = false;
    let mut found = None;
    for line in text.lines() {
        let code = line.split(" #").next().unwrap_or_default().trim_end();
        if code.trim().is_empty() || code.trim_start().starts_with('#') {
            continue;
        }
        let mut given = None;
        if !code.starts_with([' ', '\t', '-']) {
            let rest = code.strip_prefix("service:");
            inside = rest.is_some();
            // A section in one line: `service: {socket: /run/other.sock}`.
            let one_line = rest.and_then(|rest| rest.trim().strip_prefix('{')?.strip_suffix('}'));
            let mut keys = one_line.into_iter().flat_map(|keys| keys.split(','));
            given = keys.find_map(|key| key.trim().strip_prefix("socket:"));
        } else if inside {
            given = code.trim_start().strip_prefix("socket:");
        }
        let Some(given) = given else { continue };
        let plain = given.trim().trim_matches(['"', '\'']);
        let odd = |c: char| c.is_control() || "\"'\\{}[]&*!|>".contains(c);
        if !plain.starts_with('/') || plain.contains(odd) || found.is_some() {
            return None;
        }
        found = Some(PathBuf::from(plain));
    }
    found
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test says what it expects")]

    use super::*;

    const WHOLE: &str = "cloudConfigurations:\n  a: {name: A, apiUrl: \"https://127.0.0.1:1\", \
        credentialsId: t}\ncredentials:\n  t: {kind: proxmoxToken, tokenId: a@pve!a, secret: x-y-z}\n";
    const NAMED: &str = "service:\n  logLevel: info\n  socket: \"/run/b/drover.sock\" # ours\n";

    fn read(text: &str) -> Result<Socket, LoadError> {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("drover.yaml");
        std::fs::write(&file, text).unwrap();
        socket(&file, &Environment::default())
    }

    /// The socket that a text leads to for certain.
    fn found(text: &str) -> Result<String, String> {
        match read(text) {
            Ok(Socket { path, doubt: None }) => Ok(path.display().to_string()),
            Ok(Socket { doubt: Some(error), .. }) | Err(error) => Err(error.render()),
        }
    }

    // Invariant: a configuration that is not whole never leads to a socket that it does not name.

    #[test]
    fn a_configuration_that_is_broken_elsewhere_still_names_its_socket() {
        let own = Ok("/run/b/drover.sock".to_owned());
        assert_eq!(found(&format!("{WHOLE}{NAMED}")), own);
        for broken in
            ["agentConfigurations:\n  linux: [\n", "a: b: c\n", "x: \"unended\n", "\t- x\n"]
        {
            assert_eq!(found(&format!("{WHOLE}{NAMED}{broken}")), own, "{broken}");
            assert_eq!(found(&format!("{NAMED}{WHOLE}{broken}")), own, "{broken}");
        }
        let flow = "service: {logLevel: info, socket: /run/b/drover.sock}\nx: [\n";
        assert_eq!(found(flow), own);
        assert_eq!(found(&format!("{NAMED}  nope: 1\n")), own, "another key of it is wrong");
    }

    #[test]
    fn a_configuration_that_is_cut_off_or_empty_leads_to_no_socket() {
        let cut = |at: &str| WHOLE.split(at).next().unwrap().to_owned();
        for text in ["", "\n", "# nothing\n", "cloudConf", "service: {logLevel: info}\n"] {
            found(text).unwrap_err();
        }
        for text in [cut("credentials:"), cut("kind:"), cut("secret:"), cut("apiUrl")] {
            found(&text).unwrap_err();
        }
        for line in [
            "# socket: /run/a.sock",
            "  socket: run/a.sock",
            "  socket: *anchor",
            "  socket: /run/a.sock\n  socket: /run/b.sock",
            "socket: /run/a.sock",
        ] {
            found(&format!("{WHOLE}service:\n{line}\nx: [\n")).unwrap_err();
        }
        let dir = tempfile::tempdir().unwrap();
        for gone in [dir.path().to_owned(), dir.path().join("drover.yaml")] {
            socket(&gone, &Environment::default()).unwrap_err();
        }
    }

    // Invariant: a configuration that is lost says nothing of a service that runs by it.

    #[test]
    fn a_socket_beside_a_configuration_that_is_lost_is_asked_in_doubt() {
        let folder = tempfile::tempdir().unwrap();
        let own = folder.path().join("drover.sock");
        std::fs::write(&own, "").unwrap();
        for lost in [None, Some(""), Some("x: [\n"), Some("service: {socket: 1")] {
            if let Some(text) = lost {
                std::fs::write(folder.path().join("drover.yaml"), text).unwrap();
            }
            let Socket { path, doubt } = socket(folder.path(), &Environment::default()).unwrap();
            assert!(path == own && doubt.is_some(), "{lost:?}");
        }
    }

    // Invariant: the usual socket is in doubt where a section may be lost, and is none where the files
    // speak of one.

    #[test]
    fn a_broken_configuration_that_speaks_of_no_socket_leads_to_the_usual_one_in_doubt() {
        let usual = Path::new("/run/drover/drover.sock");
        for broken in ["x: [\n", "agentConfigurations:\n\tlinux: 1\n", "nope: 1\n"] {
            let Socket { path, doubt } = read(&format!("{WHOLE}{broken}")).unwrap();
            assert!(path == usual && doubt.is_some(), "{broken}");
        }
        for line in ["  socket: *anchor", "  sockets: /run/b.sock", "  # the socket: /run/b.sock"] {
            read(&format!("{WHOLE}service:\n{line}\nx: [\n")).unwrap_err();
        }
    }

    #[test]
    fn a_whole_configuration_without_a_socket_means_the_usual_one() {
        let usual = Ok("/run/drover/drover.sock".to_owned());
        assert_eq!(found(WHOLE), usual);
        let secret = WHOLE.replace("secret: x-y-z", "secretFile: /nowhere/token");
        assert_eq!(found(&secret), usual, "only the service's user may read it");
        assert_eq!(found(&format!("{WHOLE}service: {{}}\nagentConfigurations: 5\n")), usual);
    }
}
