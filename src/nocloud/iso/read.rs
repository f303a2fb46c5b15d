//! Reads the root directory of an image, for simulated guests. An image may come from anybody, so
//! nothing in it is trusted: what cannot be read counts as missing.

use std::collections::BTreeMap;

const SECTOR: usize = 2048;
/// The most volume descriptors that are read.
const DESCRIPTORS_MAX: usize = 16;
/// The most directory entries that are read.
const ENTRIES_MAX: usize = 64;

/// The contents of a disc's root directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disc {
    pub label: String,
    /// The files by their full names: from Joliet if present, else from Rock Ridge, else from ISO
    /// 9660.
    pub files: BTreeMap<String, Vec<u8>>,
}

impl Disc {
    /// A file as text; bytes that are not UTF-8 are replaced.
    pub fn text(&self, name: &str) -> Option<String> {
        self.files.get(name).map(|bytes| String::from_utf8_lossy(bytes).into_owned())
    }
}

/// Reads an image; none when it is not ISO 9660.
pub fn read(image: &[u8]) -> Option<Disc> {
    let mut plain = None;
    let mut joliet = None;
    for at in 16..16 + DESCRIPTORS_MAX {
        let Some(sector) = image.get(at * SECTOR..(at + 1) * SECTOR) else { break };
        if &sector[1..6] != b"CD001" {
            break;
        }
        match sector[0] {
            1 => plain = plain.or(Some(sector)),
            2 if matches!(&sector[88..91], b"%/@" | b"%/C" | b"%/E") => joliet = Some(sector),
            255 => break,
            _ => {}
        }
    }
    let plain = plain?;
    let label = String::from_utf8_lossy(&plain[40..72]).trim_end().to_owned();
    let files = entries(image, joliet.unwrap_or(plain), joliet.is_some());
    Some(Disc { label, files })
}

fn number(bytes: &[u8], at: usize) -> Option<usize> {
    let four: [u8; 4] = bytes.get(at..at + 4)?.try_into().ok()?;
    usize::try_from(u32::from_le_bytes(four)).ok()
}

fn extent<'a>(image: &'a [u8], record: &[u8]) -> Option<&'a [u8]> {
    let start = number(record, 2)?.checked_mul(SECTOR)?;
    image.get(start..start.checked_add(number(record, 10)?)?)
}

fn entries(image: &[u8], volume: &[u8], joliet: bool) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    let Some(directory) = extent(image, &volume[156..190]) else { return files };
    let mut at = 0;
    for _ in 0..ENTRIES_MAX {
        let Some(length) = directory.get(at).map(|length| usize::from(*length)) else { break };
        if length == 0 {
            // The rest of a sector is empty.
            at = (at / SECTOR + 1) * SECTOR;
            continue;
        }
        let Some(record) = directory.get(at..at + length) else { break };
        at += length;
        let is_file = record.get(25).is_some_and(|flags| flags & 2 == 0);
        if let (true, Some(name), Some(content)) =
            (is_file, name(record, joliet), extent(image, record))
        {
            files.insert(name, content.to_vec());
        }
    }
    files
}

fn name(record: &[u8], joliet: bool) -> Option<String> {
    let length = usize::from(*record.get(32)?);
    let id = record.get(33..33 + length)?;
    if joliet {
        let letters = id.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]));
        let name = char::decode_utf16(letters).map(|letter| letter.unwrap_or('\u{fffd}'));
        return Some(unversioned(&name.collect::<String>()));
    }
    let beside = record.get(33 + length + usize::from(length % 2 == 0)..).unwrap_or_default();
    let plain = || unversioned(&String::from_utf8_lossy(id).to_lowercase());
    Some(true_name(beside).unwrap_or_else(plain))
}

/// The Rock Ridge name, if there is one.
fn true_name(mut beside: &[u8]) -> Option<String> {
    let mut name = Vec::new();
    while let Some((head, length)) = beside.get(..2).zip(beside.get(2)) {
        let entry = beside.get(..usize::from(*length).max(4))?;
        if head == b"NM" {
            name.extend_from_slice(entry.get(5..).unwrap_or_default());
        }
        beside = &beside[entry.len()..];
    }
    (!name.is_empty()).then(|| String::from_utf8_lossy(&name).into_owned())
}

fn unversioned(name: &str) -> String {
    name.split(';').next().unwrap_or_default().trim_end_matches('.').to_owned()
}
