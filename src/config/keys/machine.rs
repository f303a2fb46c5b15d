//! Keys of each entry of `machines`.

use std::collections::BTreeSet;

use drover_model::declared::OnRemoval;

use super::guest::{NIC, SNIPPETS};
use super::image::HARDWARE;
use super::placement::MOST_MEMORY;
use super::{
    Key, LAST_VMID, LONG, Raw, Table, choice, flag, mapping, mappings, text, texts, value, whole,
    zero_or,
};

/// The ways to say what a machine is made of.
static SOURCES: [&str; 6] =
    ["templateVmId", "templateName", "templateNamePattern", "templateTag", "image", "iso"];

table! {
    /// Keys of each entry of `machines`. A machine that is cloned has the keys of agents, which the same
    /// code reads.
    MACHINE, one_of: SOURCES => RawMachine {
        "cloud" => cloud: String,
            text().required().filled("the cloud is blank", "name a key of cloudConfigurations")
                .eg(r#""primary""#),
            "one of cloudConfigurations: the cloud that the machine is on";
        "templateVmId", whole(100..=LAST_VMID).eg("9000"),
            "VMID of the template image; exactly one of these six keys is given";
        "templateName", text().check(value::filled).eg(r#""debian-13""#),
            "name of the template image, as for agents";
        "templateNamePattern", text().check(value::pattern).eg(r"'debian-13-\d+'"),
            "regular expression for its whole name, as for agents";
        "templateTag", text().check(value::template_tag).eg(r#""golden""#),
            "tag of the template image, as for agents";
        "image", text().check(value::filled).eg(r#""debian""#),
            "one of images, as for agents; newer versions change no machine that is there";
        "iso" => iso: Option<String>,
            text().check(value::iso_volume).eg(r#""local:iso/opnsense.iso""#),
            "ISO image on a storage: the machine begins with an empty disk and boots from it";
        "storage" => storage: Option<String>,
            text().check(value::storage).eg(r#""local-lvm""#),
            "with iso: the storage of the disk; required";
        "hardware", mapping(&HARDWARE).eg("{bios: SEABIOS}"),
            "with iso: virtual hardware; unset: the defaults of its keys, with a screen";
        "node" => node: Option<String>, text().eg(r#""pve1""#),
            "node of the machine; unset: that of the template image; required with iso; drover never \
             moves a machine";
        "power" => power: String, choice(&["RUNNING", "STOPPED"]).or_text("RUNNING"),
            "what the machine is kept at";
        "correct" => correct: Vec<String>, texts().or_empty().check(value::correction),
            "differences that drover puts right by itself: POWER, SIZE, CREATE (make it again when it \
             is gone); the others are only shown";
        "onRemoval" => on_removal: OnRemoval, choice(&["KEEP", "STOP", "DELETE"]).or_text("KEEP"),
            "what becomes of the guest when the machine leaves the configuration: it stays, it is shut \
             down and stays, or it is destroyed";
        "cloneStrategy", choice(&["FULL", "LINKED"]).or_text("FULL"),
            "FULL copies the disks, LINKED shares those of the template image";
        "targetStorage", text().or_text("").check(value::storage_or_none),
            "storage of a full clone; blank: that of the template image";
        "targetPool" => target_pool: String, text().or_text(""), "resource pool of the machine; blank: none";
        "cores" => cores: u32, whole(0..=8192).or(0), "processor cores; 0: as the guest has them";
        "memoryMb" => memory_mb: u32, zero_or(16..=MOST_MEMORY).or(0), "memory in MiB; 0: as the guest has it";
        "diskSizeGb" => disk_size_gb: u32, whole(0..=131_072).or(0),
            "size of the boot disk in GiB, which never shrinks; 0: as the guest has it; required with \
             iso";
        "bridge" => bridge: String, text().or_text("").check(value::bridge),
            "bridge of net0; blank: that of the template image";
        "vlan" => vlan: u16, whole(0..=4094).or(0), "VLAN tag of net0; 0: as in the template image";
        "networks", mappings(&NIC), "all network cards, as for agents";
        "onBoot" => on_boot: bool, flag().or_flag(false), "true: the machine starts when its node boots";
        "credentialsId",
            text().filled("the id is blank", "name an sshKey").eg(r#""agent-key""#),
            "an sshKey of credentials: cloud-init gives its public key to the login; drover does not \
             log in; required without iso";
        "ciUser", text().or_text(""), "cloud-init user; blank: that of the image";
        "ipConfig", text().or_text("ip=dhcp").check(value::ip_config),
            "cloud-init ipconfig0; blank: as in the template image";
        "ipConfigs", texts().or_empty().check(value::ip_config),
            "cloud-init ipconfig1 and so on, for further network cards";
        "ciUpgrade", flag().or_flag(false),
            "true: cloud-init upgrades all packages at the first boot";
        "nameserver", text().or_text("").check(value::nameserver),
            "cloud-init DNS servers; blank: those of the node";
        "searchDomain", text().or_text(""), "cloud-init DNS search domains; blank: those of the node";
        "cloudInitCustom", mapping(&SNIPPETS).eg(r#"{user: "local:snippets/gitea.yaml"}"#),
            "snippets on a storage, as for agents";
        "tags" => tags: BTreeSet<String>, texts().or_empty().check(value::tag), "Proxmox tags, beside drover's own";
        "description" => description: String, text().or_text(""), "text for the notes";
        "cloneTimeoutSec" => clone_timeout_sec: u64, whole(1..=LONG).or(1800),
            "seconds for the clone, or for a new disk";
        "shutdownTimeoutSec" => shutdown_timeout_sec: u64, whole(1..=LONG).or(180),
            "seconds that the guest has to shut down; drover never stops a machine hard to correct it";
    }
}
