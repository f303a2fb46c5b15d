//! Writes an image with one directory: ISO 9660 (ECMA-119) with Rock Ridge names, and Joliet beside
//! it.

const SECTOR: usize = 2048;
/// The first sector after the system area.
const SYSTEM_AREA_SECTORS: usize = 16;
/// The sectors of the path tables (little-endian, big-endian) for ISO 9660 and for Joliet, and of
/// the two root directories.
const PATH_TABLES: [u32; 2] = [19, 20];
const JOLIET_PATH_TABLES: [u32; 2] = [21, 22];
const ROOT_SECTOR: u32 = 23;
const JOLIET_ROOT_SECTOR: u32 = 24;
/// The first sector of file contents.
const FIRST_FILE_SECTOR: u32 = 25;

/// A file: its ISO 9660 name, its full name, its contents.
type File<'a> = (&'a str, &'a str, &'a [u8]);

/// The length of a directory record before the name.
const RECORD_HEADER_BYTES: usize = 33;

/// An image with these files. They must be in the order of their names, and few enough for a
/// directory of one sector.
pub(super) fn image(label: &str, files: &[File<'_>]) -> Vec<u8> {
    let mut next = FIRST_FILE_SECTOR;
    let places: Vec<u32> = files
        .iter()
        .map(|(_, _, content)| {
            let place = next;
            next += sectors(content.len());
            place
        })
        .collect();
    let mut image = vec![0; SYSTEM_AREA_SECTORS * SECTOR];
    add(&mut image, &descriptor(1, label, next, ROOT_SECTOR, PATH_TABLES));
    add(&mut image, &descriptor(2, label, next, JOLIET_ROOT_SECTOR, JOLIET_PATH_TABLES));
    add(&mut image, b"\xffCD001\x01");
    for (root, joliet) in [(ROOT_SECTOR, false), (JOLIET_ROOT_SECTOR, true)] {
        debug_assert_eq!(image.len() / SECTOR, if joliet { 21 } else { 19 });
        add(&mut image, &path_table(root.to_le_bytes(), 1_u16.to_le_bytes()));
        add(&mut image, &path_table(root.to_be_bytes(), 1_u16.to_be_bytes()));
    }
    for (root, joliet) in [(ROOT_SECTOR, false), (JOLIET_ROOT_SECTOR, true)] {
        add(&mut image, &directory(root, joliet, files, &places));
    }
    for (_, _, content) in files {
        add(&mut image, content);
    }
    image
}

/// Appends bytes and fills their last sector with zeros.
fn add(image: &mut Vec<u8>, bytes: &[u8]) {
    image.extend_from_slice(bytes);
    image.resize(image.len().next_multiple_of(SECTOR), 0);
}

fn sectors(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(SECTOR)).unwrap_or(u32::MAX)
}

/// A number in both byte orders.
fn both32(number: u32) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&number.to_le_bytes());
    bytes[4..].copy_from_slice(&number.to_be_bytes());
    bytes
}

fn both16(number: u16) -> [u8; 4] {
    let [low, high] = number.to_le_bytes();
    [low, high, high, low]
}

/// A Joliet text: UCS-2, big-endian.
fn wide(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_be_bytes).collect()
}

/// A volume descriptor: type 1 is the primary one, type 2 is Joliet's.
fn descriptor(kind: u8, label: &str, sectors: u32, root: u32, tables: [u32; 2]) -> Vec<u8> {
    let joliet = kind == 2;
    let filled = |text: &str, length: usize| {
        let mut bytes = if joliet { wide(text) } else { text.as_bytes().to_vec() };
        let blank: &[u8] = if joliet { &[0, b' '] } else { b" " };
        while bytes.len() + blank.len() <= length {
            bytes.extend_from_slice(blank);
        }
        bytes.resize(length, 0);
        bytes
    };
    let mut bytes = vec![kind];
    bytes.extend_from_slice(b"CD001\x01\0");
    bytes.extend(filled("LINUX", 32));
    bytes.extend(filled(label, 32));
    bytes.extend_from_slice(&[0; 8]);
    bytes.extend(both32(sectors));
    let mut letters = [0; 32];
    if joliet {
        // UCS-2 level 3.
        letters[..3].copy_from_slice(b"%/E");
    }
    bytes.extend_from_slice(&letters);
    bytes.extend(both16(1));
    bytes.extend(both16(1));
    bytes.extend(both16(2048));
    bytes.extend(both32(10));
    bytes.extend_from_slice(&tables[0].to_le_bytes());
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(&tables[1].to_be_bytes());
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend(record(root, 2048, true, &[0], &[]));
    for text in ["", "", "", "DROVER"] {
        bytes.extend(filled(text, 128));
    }
    for _ in 0..3 {
        bytes.extend(filled("", 37));
    }
    for _ in 0..4 {
        // No time is set.
        bytes.extend_from_slice(b"0000000000000000\0");
    }
    bytes.push(1);
    bytes
}

/// The table of directories: only the root, which is its own parent.
fn path_table(root: [u8; 4], parent: [u8; 2]) -> Vec<u8> {
    let mut bytes = vec![1, 0];
    bytes.extend_from_slice(&root);
    bytes.extend_from_slice(&parent);
    bytes.extend_from_slice(&[0, 0]);
    bytes
}

fn directory(root: u32, joliet: bool, files: &[File<'_>], places: &[u32]) -> Vec<u8> {
    let own = |first: bool| match (joliet, first) {
        (true, _) => Vec::new(),
        (false, true) => [starts_sharing(), attributes(true), names_extension()].concat(),
        (false, false) => attributes(true),
    };
    let mut bytes = record(root, 2048, true, &[0], &own(true));
    bytes.extend(record(root, 2048, true, &[1], &own(false)));
    for ((short, name, content), place) in files.iter().zip(places) {
        let size = u32::try_from(content.len()).unwrap_or(u32::MAX);
        let (id, beside) = if joliet {
            (wide(name), Vec::new())
        } else {
            (short.as_bytes().to_vec(), [attributes(false), true_name(name)].concat())
        };
        bytes.extend(record(*place, size, false, &id, &beside));
    }
    bytes
}

/// A directory record; `beside` holds its Rock Ridge entries.
fn record(place: u32, size: u32, directory: bool, name: &[u8], beside: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0, 0];
    bytes.extend(both32(place));
    bytes.extend(both32(size));
    // The start of 1970.
    bytes.extend_from_slice(&[70, 1, 1, 0, 0, 0, 0]);
    bytes.push(if directory { 2 } else { 0 });
    bytes.extend_from_slice(&[0, 0]);
    bytes.extend(both16(1));
    bytes.push(u8::try_from(name.len()).unwrap_or(u8::MAX));
    debug_assert_eq!(bytes.len(), RECORD_HEADER_BYTES);
    bytes.extend_from_slice(name);
    if name.len().is_multiple_of(2) {
        bytes.push(0);
    }
    bytes.extend_from_slice(beside);
    if !bytes.len().is_multiple_of(2) {
        bytes.push(0);
    }
    bytes[0] = u8::try_from(bytes.len()).unwrap_or(u8::MAX);
    bytes
}

/// An entry of the System Use Sharing Protocol.
fn entry(signature: [u8; 2], content: &[u8]) -> Vec<u8> {
    let length = u8::try_from(content.len() + 4).unwrap_or(u8::MAX);
    [&signature, &[length, 1][..], content].concat()
}

fn starts_sharing() -> Vec<u8> {
    entry(*b"SP", &[0xbe, 0xef, 0])
}

/// Announces Rock Ridge.
fn names_extension() -> Vec<u8> {
    let (id, about, source) = ("RRIP_1991A", "ROCK RIDGE", "IEEE P1282");
    let length = |text: &str| u8::try_from(text.len()).unwrap_or(u8::MAX);
    let head = [length(id), length(about), length(source), 1];
    entry(*b"ER", &[&head, id.as_bytes(), about.as_bytes(), source.as_bytes()].concat())
}

/// Owned by root, readable by everybody.
fn attributes(directory: bool) -> Vec<u8> {
    let (mode, links) = if directory { (0o040_555, 2) } else { (0o100_444, 1) };
    entry(*b"PX", &[both32(mode), both32(links), both32(0), both32(0)].concat())
}

fn true_name(name: &str) -> Vec<u8> {
    entry(*b"NM", &[&[0], name.as_bytes()].concat())
}
