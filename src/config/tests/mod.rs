//! The whole configuration from text to spec: defaults, faults, layers, the files in `configs/`.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test says what it expects")]

mod broken;
mod cases;
mod changes;
mod copies;
mod files;
mod forms;
mod golden;
mod images;
mod limits;
mod managed;
mod reference;
mod schema;
mod secrets;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use drover_api::{ExcerptOut, faults_of};
use drover_model::id::{CloudId, TemplateId};
use drover_model::spec::TemplateSpec;

use super::{Checked, Environment, LoadError, Sources, check, load};

/// A directory with secrets, which is the directory of the checked configuration.
struct Scene {
    dir: tempfile::TempDir,
    environment: Environment,
}

impl Scene {
    fn new() -> Self {
        let scene = Self { dir: tempfile::tempdir().unwrap(), environment: Environment::default() };
        let keys = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/keys");
        let secret = ["app_pkcs1", "ed25519", "ed25519_locked", "ed25519_pkcs8", "ecdsa", "rsa"];
        for name in secret {
            scene.put(name, 0o600, &fs::read_to_string(keys.join(name)).unwrap());
        }
        scene.put("ca.pem", 0o644, &fs::read_to_string(keys.join("ca.pem")).unwrap());
        scene.put("wide", 0o644, &fs::read_to_string(keys.join("ed25519")).unwrap());
        scene.put("token", 0o600, "5f0c8d36-8b0e-4f6e-9c57-2d0f3c1a7b11\n");
        scene.put("jenkins", 0o600, "11f0a7bd5c\n");
        scene.put("git", 0o600, "d6b1c1a4f1c54bb7a4b4\n");
        scene.put("passphrase", 0o600, "correct horse\n");
        // The example of age's own tests.
        let age = "AGE-SECRET-KEY-1GFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPQ4EGAEX\n";
        scene.put("age", 0o600, age);
        scene.put("empty", 0o600, "\n");
        scene
    }

    fn put(&self, name: &str, mode: u32, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn with(variables: &[(&str, &str)]) -> Self {
        Self { environment: Environment::of(variables), ..Self::new() }
    }

    /// Checks a text as if it were a file of the directory.
    fn check(&self, text: &str) -> Result<Checked, LoadError> {
        self.check_files(&[("drover.yaml", text)])
    }

    fn check_files(&self, files: &[(&str, &str)]) -> Result<Checked, LoadError> {
        let files: Vec<_> =
            files.iter().map(|(name, text)| (self.path(name), *name, *text)).collect();
        check(Sources::of_texts(&files), &self.environment)
    }

    /// A text that has no fault.
    fn good(&self, text: &str) -> Checked {
        self.check(text).unwrap_or_else(|error| panic!("{}", error.render()))
    }

    /// The rendered faults of a text; the directory is shown as `/etc/drover`.
    fn faults(&self, text: &str) -> String {
        self.shown(self.check(text).expect_err("it has no fault"))
    }

    fn shown(&self, error: LoadError) -> String {
        is_read_back(&error);
        self.placed(&error.render())
    }

    /// A text with the directory as `/etc/drover`.
    fn placed(&self, text: &str) -> String {
        text.replace(&self.dir.path().display().to_string(), "/etc/drover")
    }
}

/// What is drawn for people is read back by its parts, as the page and the API have it.
fn is_read_back(error: &LoadError) {
    let LoadError::Faults { .. } = error else { return };
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let drawn = error.render();
    let (found, wanted) = (faults_of(&drawn), error.located());
    assert_eq!(found.len(), wanted.len(), "{drawn}");
    for (found, wanted) in found.into_iter().zip(wanted) {
        let key = wanted.key.map(|key| format!("{key}: ")).unwrap_or_default();
        let what = words(&format!("{key}{}", wanted.what));
        assert_eq!(found.help.as_deref().map(words), wanted.help.as_deref().map(words), "{drawn}");
        if found.file.is_none() {
            // Its line is too long to be drawn, and its place stands before it, if it has one.
            assert!(found.what.ends_with(&what), "{what}: {found:?}");
            continue;
        }
        assert_eq!((words(&found.what), found.file), (what, wanted.file), "{drawn}");
        assert_eq!((found.line, found.column), (wanted.line, wanted.column), "{drawn}");
        let is_there = |line: &ExcerptOut| Some(line.number) == wanted.line;
        assert!(found.excerpt.iter().any(is_there), "{drawn}");
    }
}

/// A configuration with these lines at a place of `cases/around.yaml`.
fn with(place: &str, lines: &str) -> String {
    cases::Text::of(place, lines).yaml()
}

fn with_cloud(lines: &str) -> String {
    with("cloud", lines)
}

fn with_agent(lines: &str) -> String {
    with("agent", lines)
}

/// A template of [`with_agent`], on its cloud.
fn template<'a>(checked: &'a Checked, name: &str) -> &'a TemplateSpec {
    &checked.herd.templates[&TemplateId::new(CloudId::new("c"), name)]
}

/// Compares a golden file, named from the root of the repository, with the text that it must have,
/// or writes it.
fn is_generated(file: &str, wanted: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(file);
    if std::env::var_os("DROVER_WRITE").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, wanted).unwrap();
    }
    let found = fs::read_to_string(&path).unwrap();
    let help = "run `DROVER_WRITE=1 cargo test -p drover-config`";
    let mut case = "";
    for (at, (found, wanted)) in found.lines().zip(wanted.lines()).enumerate() {
        case = found.strip_prefix("=== ").unwrap_or(case);
        assert_eq!(found, wanted, "line {} of {file}, {case}: {help}", at + 1);
    }
    assert!(found == wanted, "{file} is shorter or longer: {help}");
}
