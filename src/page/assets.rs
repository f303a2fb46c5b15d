//! Style, script and icon, compiled in. Their addresses change with their bytes, so that browsers may keep
//! them for good.

/// A file of the page.
#[derive(Debug, Clone, Copy)]
pub struct Asset {
    /// Its name in `/assets/`.
    pub name: &'static str,
    /// The value of `Content-Type`.
    pub kind: &'static str,
    pub text: &'static str,
}

const ASSETS: [Asset; 4] = [
    Asset {
        name: "page.css",
        kind: "text/css; charset=utf-8",
        text: include_str!("assets/page.css"),
    },
    Asset {
        name: "page.js",
        kind: "text/javascript; charset=utf-8",
        text: include_str!("assets/page.js"),
    },
    Asset {
        name: "terminal.js",
        kind: "text/javascript; charset=utf-8",
        text: include_str!("assets/terminal.js"),
    },
    Asset { name: "icon.svg", kind: "image/svg+xml", text: include_str!("assets/icon.svg") },
];

/// The file of that name.
pub fn asset(name: &str) -> Option<&'static Asset> {
    ASSETS.iter().find(|one| one.name == name)
}

/// The address of a file, with a mark of its bytes.
pub(crate) fn address(name: &str) -> String {
    let mark = asset(name).map_or(0, |one| mark(one.text.as_bytes()));
    format!("/assets/{name}?{mark:016x}")
}

/// FNV-1a, 64 bits: no secret, and the same for the same bytes in every build.
fn mark(bytes: &[u8]) -> u64 {
    let start = 0xcbf2_9ce4_8422_2325;
    bytes.iter().fold(start, |mark, byte| (mark ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}
