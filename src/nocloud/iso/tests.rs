#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use super::*;

fn texts() -> CloudInitTexts {
    CloudInitTexts {
        user_data: "#cloud-config\nhostname: one\n".into(),
        meta_data: "instance-id: one\n".into(),
        network_config: Some("version: 2\n".into()),
    }
}

// Invariant: what was written is read back, whatever its length.

#[test]
fn an_image_holds_the_texts_under_their_names() {
    let disc = read(&texts().image()).unwrap();
    assert_eq!(disc.label, LABEL);
    let names: Vec<&str> = disc.files.keys().map(String::as_str).collect();
    assert_eq!(names, ["meta-data", "network-config", "user-data"]);
    assert_eq!(disc.text("user-data").unwrap(), texts().user_data);
    assert_eq!(disc.text("meta-data").unwrap(), texts().meta_data);
    assert_eq!(disc.text("network-config").unwrap(), "version: 2\n");
}

#[test]
fn texts_of_no_length_and_across_sectors_are_whole() {
    for length in [0, 1, 2047, 2048, 2049, 70_000] {
        let user_data: String = ('a'..='z').cycle().take(length).collect();
        let seed =
            CloudInitTexts { user_data, meta_data: "m".repeat(length), network_config: None };
        let image = seed.image();
        assert_eq!(image.len() % 2048, 0);
        let disc = read(&image).unwrap();
        assert_eq!(disc.text("user-data").unwrap(), seed.user_data, "{length}");
        assert_eq!(disc.text("meta-data").unwrap(), seed.meta_data, "{length}");
        assert_eq!(disc.files.len(), 2);
    }
}

#[test]
fn the_same_texts_make_the_same_bytes() {
    assert_eq!(texts().image(), texts().image());
}

#[test]
fn names_are_found_without_joliet_too() {
    let mut image = texts().image();
    // The second descriptor has an unknown type.
    image[17 * 2048] = 7;
    let disc = read(&image).unwrap();
    assert_eq!(disc.text("network-config").unwrap(), "version: 2\n");
    assert_eq!(disc.text("user-data").unwrap(), texts().user_data);
}

// Invariant: a damaged image reads as none or with fewer files, and never panics.

#[test]
fn broken_images_are_read_without_harm() {
    let image = texts().image();
    assert!(read(b"").is_none());
    assert!(read(&image[..16 * 2048]).is_none());
    for cut in (0..image.len()).step_by(509) {
        read(&image[..cut]);
    }
    for at in (16 * 2048..26 * 2048).step_by(7) {
        let mut broken = image.clone();
        broken[at] ^= 0xff;
        read(&broken);
    }
}
