//! Writing an image of one directory: ISO 9660 (ECMA-119), Rock Ridge beside its names, and Joliet.

/// Bytes of a sector.
const SECTOR: usize = 2048;
/// The first sector that is not the system's own.
const FIRST: usize = 16;
/// The sectors of the two path tables, the one of Joliet's, and the two directories.
const TABLE: [u32; 2] = [19, 20];
const JOLIET_TABLE: [u32; 2] = [21, 22];
const ROOT: u32 = 23;
const JOLIET_ROOT: u32 = 24;
/// Where files begin.
const FILES: u32 = 25;

/// A file by its name of ISO 9660 and its true one, and what is in it.
type File<'a> = (&'a str, &'a str, &'a [u8]);

/// The bytes of a record's beginning, before the name.
const RECORD: usize = 33;

/// An image that holds these files, which are in the order of their names and few enough for one
/// sector to list.
pub fn image(label: &str, files: &[File<'_>]) -> Vec<u8> {
    let mut next = FILES;
    let places: Vec<u32> = files
        .iter()
        .map(|(_, _, content)| {
            let place = next;
            next += sectors(content.len());
            place
        })
        .collect();
    let mut image = vec![0; FIRST * SECTOR];
    add(&mut image, &descriptor(1, label, next, ROOT, TABLE));
    add(&mut image, &descriptor(2, label, next, JOLIET_ROOT, JOLIET_TABLE));
    add(&mut image, b"\xffCD001\x01");
    for (root, joliet) in [(ROOT, false), (JOLIET_ROOT, true)] {
        debug_assert_eq!(image.len() / SECTOR, if joliet { 21 } else { 19 });
        add(&mut image, &path_table(root.to_le_bytes(), 1_u16.to_le_bytes()));
        add(&mut image, &path_table(root.to_be_bytes(), 1_u16.to_be_bytes()));
    }
    for (root, joliet) in [(ROOT, false), (JOLIET_ROOT, true)] {
        add(&mut image, &directory(root, joliet, files, &places));
    }
    for (_, _, content) in files {
        add(&mut image, content);
    }
    image
}

/// Appends what fills whole sectors.
fn add(image: &mut Vec<u8>, bytes: &[u8]) {
    image.extend_from_slice(bytes);
    image.resize(image.len().next_multiple_of(SECTOR), 0);
}

fn sectors(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(SECTOR)).unwrap_or(u32::MAX)
}

/// A number in both orders of bytes.
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

/// A text of Joliet's: two bytes a letter, the higher first.
fn wide(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_be_bytes).collect()
}

/// The descriptor of a volume: of kind 1 the plain one, of kind 2 Joliet's.
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
        // Level 3 of UCS-2.
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
        // No time at all.
        bytes.extend_from_slice(b"0000000000000000\0");
    }
    bytes.push(1);
    bytes
}

/// The table of directories: there is the root alone, which is its own parent.
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

/// An entry of a directory; `beside` is Rock Ridge's.
fn record(place: u32, size: u32, directory: bool, name: &[u8], beside: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0, 0];
    bytes.extend(both32(place));
    bytes.extend(both32(size));
    // The first moment of 1970.
    bytes.extend_from_slice(&[70, 1, 1, 0, 0, 0, 0]);
    bytes.push(if directory { 2 } else { 0 });
    bytes.extend_from_slice(&[0, 0]);
    bytes.extend(both16(1));
    bytes.push(u8::try_from(name.len()).unwrap_or(u8::MAX));
    debug_assert_eq!(bytes.len(), RECORD);
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

/// An entry of System Use Sharing.
fn entry(signature: [u8; 2], content: &[u8]) -> Vec<u8> {
    let length = u8::try_from(content.len() + 4).unwrap_or(u8::MAX);
    [&signature, &[length, 1][..], content].concat()
}

fn starts_sharing() -> Vec<u8> {
    entry(*b"SP", &[0xbe, 0xef, 0])
}

/// That the entries are Rock Ridge's.
fn names_extension() -> Vec<u8> {
    let (id, about, source) = ("RRIP_1991A", "ROCK RIDGE", "IEEE P1282");
    let length = |text: &str| u8::try_from(text.len()).unwrap_or(u8::MAX);
    let head = [length(id), length(about), length(source), 1];
    entry(*b"ER", &[&head, id.as_bytes(), about.as_bytes(), source.as_bytes()].concat())
}

/// Everybody may read, and it is root's.
fn attributes(directory: bool) -> Vec<u8> {
    let (mode, links) = if directory { (0o040_555, 2) } else { (0o100_444, 1) };
    entry(*b"PX", &[both32(mode), both32(links), both32(0), both32(0)].concat())
}

fn true_name(name: &str) -> Vec<u8> {
    entry(*b"NM", &[&[0], name.as_bytes()].concat())
}
