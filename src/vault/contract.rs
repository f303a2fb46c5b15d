//! For tests: what every [`Vault`] and every [`Register`] must do, asked through its own port.

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use super::{Register, Vault, Version};

/// Opens an empty vault, or the same one once more.
pub type OpenVault<'a> = &'a mut dyn FnMut() -> Box<dyn Vault>;
/// Opens an empty register, or the same one once more.
pub type OpenRegister<'a> = &'a mut dyn FnMut() -> Box<dyn Register>;

/// What every vault must do.
pub const VAULT: [fn(OpenVault<'_>); 2] =
    [what_is_put_is_there_until_it_is_removed, a_list_has_the_names_of_one_folder];

/// What every register must do.
pub const REGISTER: [fn(OpenRegister<'_>); 2] =
    [a_write_that_knows_another_version_changes_nothing, no_version_comes_again];

/// What was put is read by everybody, also where it is put again.
pub fn what_is_put_is_there_until_it_is_removed(open: OpenVault<'_>) {
    let (vault, other) = (open(), open());
    assert_eq!(vault.get("call-in.key").unwrap(), None);
    vault.remove("call-in.key").unwrap();
    for bytes in [&b"first"[..], b"", b"\0\xffthird"] {
        vault.put("call-in.key", bytes).unwrap();
        assert_eq!(other.get("call-in.key").unwrap().as_deref(), Some(bytes));
    }
    let large = vec![7; 300_000];
    vault.put("user-data/k3x", &large).unwrap();
    assert_eq!(other.get("user-data/k3x").unwrap(), Some(large));
    other.remove("user-data/k3x").unwrap();
    assert_eq!(vault.get("user-data/k3x").unwrap(), None);
    other.remove("user-data/k3x").unwrap();
}

/// A list is complete, sorted, and of one folder.
pub fn a_list_has_the_names_of_one_folder(open: OpenVault<'_>) {
    let vault = open();
    assert_eq!(vault.list("user-data").unwrap(), Vec::<String>::new());
    let names: Vec<String> = (0..23).map(|number| format!("n{number:02}.a_b-c")).collect();
    for name in names.iter().rev() {
        vault.put(&format!("user-data/{name}"), name.as_bytes()).unwrap();
    }
    vault.put("user-data-of-others/x", b"x").unwrap();
    assert_eq!(vault.list("user-data").unwrap(), names);
    vault.remove("user-data/n07.a_b-c").unwrap();
    assert_eq!(vault.list("user-data").unwrap().len(), 22);
    assert_eq!(vault.list("user").unwrap(), Vec::<String>::new(), "a part of a name");
}

/// Of two who know the same version, one writes.
pub fn a_write_that_knows_another_version_changes_nothing(open: OpenRegister<'_>) {
    let (one, two) = (open(), open());
    assert_eq!(one.read("leader").unwrap(), None);
    let nobody = Version("0".to_owned());
    assert_eq!(two.write("leader", Some(&nobody), b"x").unwrap(), None);
    assert_eq!(one.read("leader").unwrap(), None);
    let first = one.write("leader", None, b"one").unwrap().unwrap();
    assert_eq!(two.write("leader", None, b"two").unwrap(), None, "it is there");
    let read = two.read("leader").unwrap().unwrap();
    assert_eq!((read.bytes.as_slice(), &read.version), (&b"one"[..], &first));
    let second = two.write("leader", Some(&first), b"two").unwrap().unwrap();
    assert_eq!(one.write("leader", Some(&first), b"one").unwrap(), None, "two wrote since");
    assert_eq!(one.read("leader").unwrap().unwrap().bytes, b"two");
    one.write("leader", Some(&second), b"one").unwrap().unwrap();
}

/// Not even where the same bytes are written again.
pub fn no_version_comes_again(open: OpenRegister<'_>) {
    let register = open();
    let first = register.write("leader", None, b"same").unwrap().unwrap();
    let second = register.write("leader", Some(&first), b"other").unwrap().unwrap();
    let third = register.write("leader", Some(&second), b"same").unwrap().unwrap();
    assert_ne!(first, third);
    assert_eq!(register.write("leader", Some(&first), b"x").unwrap(), None);
    assert_eq!(register.read("leader").unwrap().unwrap().version, third);
}
