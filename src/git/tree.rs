//! The entries of a folder in a commit, as `git ls-tree -z` lists them.

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    Folder,
    Link,
    Submodule,
}

impl Kind {
    /// Why it cannot be what was asked for.
    pub(super) fn refusal(self) -> &'static str {
        match self {
            Self::File => "a file, not a folder",
            Self::Folder => "a folder, not a file",
            Self::Link => "a symbolic link, not a file",
            Self::Submodule => "a submodule, not a file",
        }
    }
}

/// One entry of a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) kind: Kind,
    pub(super) object: String,
    /// The name in bytes as git has it: not always UTF-8.
    pub(super) path: Vec<u8>,
}

/// Reads a listing; lines that are not entries are left out.
pub(super) fn entries(listing: &[u8]) -> Vec<Entry> {
    listing.split(|byte| *byte == 0).filter_map(entry).collect()
}

fn entry(line: &[u8]) -> Option<Entry> {
    let tab = line.iter().position(|byte| *byte == b'\t')?;
    let (about, path) = line.split_at_checked(tab)?;
    let about = std::str::from_utf8(about).ok()?;
    let mut words = about.split(' ');
    let (mode, _, object) = (words.next()?, words.next()?, words.next()?);
    let kind = match mode {
        "040000" => Kind::Folder,
        "120000" => Kind::Link,
        "160000" => Kind::Submodule,
        _ => Kind::File,
    };
    Some(Entry { kind, object: object.to_owned(), path: path.get(1..)?.to_owned() })
}

/// Whether a name is one of a visible YAML file.
pub(super) fn is_yaml(name: &[u8]) -> bool {
    !name.starts_with(b".") && (name.ends_with(b".yaml") || name.ends_with(b".yml"))
}
