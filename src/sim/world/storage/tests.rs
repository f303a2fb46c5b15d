//! The rules of each type of storage for its volumes.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::*;

fn storage(kind: &str) -> Storage {
    let text = format!("{{name: s, type: {kind}, content: [images]}}");
    Storage::new(serde_yaml::from_str(&text).unwrap())
}

fn disk(vmid: u32) -> VolumeRequest {
    VolumeRequest { vmid, purpose: VolumePurpose::Disk, format: None, size: 1 << 30 }
}

// Invariant (book: proxmox, section 23, item 6): linked clones follow the rules of the storage
// type.

#[test]
fn volumes_are_named_as_their_storage_names_them() {
    let cases = [
        ("dir", "s:100/base-100-disk-0.raw", "s:100/base-100-disk-0.raw/101/vm-101-disk-0.qcow2"),
        ("zfspool", "s:base-100-disk-0", "s:base-100-disk-0/vm-101-disk-0"),
        ("lvmthin", "s:base-100-disk-0", "s:vm-101-disk-0"),
    ];
    for (kind, base, linked) in cases {
        let mut storage = storage(kind);
        let (volid, _) = storage.allocate("n", &disk(100), 0).unwrap();
        let base_volid = storage.make_base("n", &volid).unwrap();
        assert_eq!(base_volid, base);
        assert_eq!(storage.link("n", &base_volid, 101, 0).unwrap().0, linked);
    }
}

#[test]
fn plain_lvm_makes_no_bases_and_fills_up() {
    let mut storage = storage("lvm");
    storage.spec.size_bytes = 3 << 29;
    let (volid, _) = storage.allocate("n", &disk(100), 0).unwrap();
    assert_eq!(storage.make_base("n", &volid), None);
    let error = storage.allocate("n", &disk(101), 0).unwrap_err();
    assert!(error.contains("insufficient free space"), "{error}");
}

// Invariant (book: proxmox, section 23, item 9): a base in use is kept, except where the storage
// does not know the link.

#[test]
fn a_base_in_use_cannot_be_freed_except_on_lvm_thin() {
    for (kind, refused) in [("dir", true), ("lvmthin", false)] {
        let mut storage = storage(kind);
        let (volid, _) = storage.allocate("n", &disk(100), 0).unwrap();
        let base = storage.make_base("n", &volid).unwrap();
        storage.link("n", &base, 101, 0).unwrap();
        assert_eq!(storage.free("n", &base).is_err(), refused, "{kind}");
    }
}

#[test]
fn a_local_storage_has_its_own_volumes_on_each_node() {
    let mut storage = storage("dir");
    let (volid, _) = storage.allocate("a", &disk(100), 0).unwrap();
    assert!(storage.volume("b", &volid).is_none());
    storage.spec.shared = true;
    let (volid, _) = storage.allocate("a", &disk(100), 0).unwrap();
    assert!(storage.volume("b", &volid).is_some());
}
