//! Which machine this is: digests of `/etc/machine-id` and of the hardware addresses of its network
//! cards, none of which needs a right to read.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use drover_model::machine::Machine;
use sha2::{Digest, Sha256};

/// Network cards looked at.
const CARDS_MOST: usize = 64;

/// Reads this machine.
pub fn read() -> Machine {
    read_at(Path::new("/"))
}

fn read_at(root: &Path) -> Machine {
    let id = fs::read_to_string(root.join("etc/machine-id")).unwrap_or_default();
    let id = Some(id.trim()).filter(|id| id.len() == 32).map(|id| digest("machine-id", id));
    Machine { id, cards: cards(&root.join("sys/class/net")) }
}

/// The cards that are hardware, of the machine or of its hypervisor: bridges, bonds and the like
/// have addresses that change.
fn cards(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().take(CARDS_MOST);
    let address = |path: &Path| {
        path.join("device").exists().then_some(())?;
        let text = fs::read_to_string(path.join("address")).ok()?;
        let text = text.trim().to_lowercase();
        (text.len() == 17 && text != "00:00:00:00:00:00").then(|| digest("card", &text))
    };
    entries.filter_map(|entry| address(&entry.path())).collect()
}

/// 16 hexadecimal digits that reveal nothing of what they are made of.
fn digest(kind: &str, text: &str) -> String {
    let digest = Sha256::digest(format!("drover/{kind}/{text}"));
    digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_read_from_its_id_and_its_real_cards() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(read_at(root.path()), Machine::default(), "nothing is there");
        let net = root.path().join("sys/class/net");
        for (name, address, real) in [
            ("eth0", "52:54:00:AB:cd:01\n", true),
            ("vmbr0", "52:54:00:ab:cd:02\n", false),
            ("lo", "00:00:00:00:00:00\n", true),
        ] {
            fs::create_dir_all(net.join(name)).unwrap();
            fs::write(net.join(name).join("address"), address).unwrap();
            if real {
                fs::create_dir(net.join(name).join("device")).unwrap();
            }
        }
        fs::create_dir_all(root.path().join("etc")).unwrap();
        fs::write(root.path().join("etc/machine-id"), "0123456789abcdef0123456789abcdef\n")
            .unwrap();
        let machine = read_at(root.path());
        assert_eq!(machine.cards, [digest("card", "52:54:00:ab:cd:01")].into());
        let id = machine.id.unwrap();
        assert!(id.len() == 16 && !id.starts_with("0123"), "{id}");
    }
}
