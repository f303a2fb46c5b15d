//! Keys of each entry of `machines`.

use drover_model::declared::OnRemoval;

use super::guest::{NIC, SNIPPETS};
use super::placement::MOST_MEMORY;
use super::{
    Key, LAST_VMID, LONG, Raw, Table, choice, flag, mapping, mappings, text, texts, value, whole,
    zero_or,
};

/// The ways to say what a machine is cloned from.
static SOURCES: [&str; 5] =
    ["templateVmId", "templateName", "templateNamePattern", "templateTag", "image"];

table! {
    /// Keys of each entry of `machines`. Those without a field are the keys of agents, which the same
    /// code reads.
    MACHINE, one_of: SOURCES => RawMachine {
        "cloud" => cloud: String,
            text().required().filled("the cloud is blank", "name a key of cloudConfigurations")
                .eg(r#""primary""#),
            "one of cloudConfigurations: the cloud that the machine is on";
        "templateVmId", whole(100..=LAST_VMID).eg("9000"),
            "VMID of the template image; exactly one of these five keys is given";
        "templateName", text().check(value::filled).eg(r#""debian-13""#),
            "name of the template image, as for agents";
        "templateNamePattern", text().check(value::pattern).eg(r"'debian-13-\d+'"),
            "regular expression for its whole name, as for agents";
        "templateTag", text().check(value::template_tag).eg(r#""golden""#),
            "tag of the template image, as for agents";
        "image", text().check(value::filled).eg(r#""debian""#),
            "one of images, as for agents; newer versions change no machine that is there";
        "node", text().eg(r#""pve1""#),
            "node of the machine; unset: that of the template image; drover never moves a machine";
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
        "targetPool", text().or_text(""), "resource pool of the machine; blank: none";
        "cores", whole(0..=8192).or(0), "processor cores; 0: as the guest has them";
        "memoryMb", zero_or(16..=MOST_MEMORY).or(0), "memory in MiB; 0: as the guest has it";
        "diskSizeGb", whole(0..=131_072).or(0),
            "size of the boot disk in GiB, which never shrinks; 0: as the guest has it";
        "bridge", text().or_text("").check(value::bridge),
            "bridge of net0; blank: that of the template image";
        "vlan", whole(0..=4094).or(0), "VLAN tag of net0; 0: as in the template image";
        "networks", mappings(&NIC), "all network cards, as for agents";
        "onBoot", flag().or_flag(false), "true: the machine starts when its node boots";
        "credentialsId",
            text().required().filled("the id is blank", "name an sshKey").eg(r#""agent-key""#),
            "an sshKey of credentials: cloud-init gives its public key to the login; drover does not \
             log in";
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
        "tags", texts().or_empty().check(value::tag), "Proxmox tags, beside drover's own";
        "description", text().or_text(""), "text for the notes";
        "cloneTimeoutSec", whole(1..=LONG).or(1800), "seconds for the clone";
        "shutdownTimeoutSec", whole(1..=LONG).or(180),
            "seconds that the guest has to shut down; drover never stops a machine hard to correct it";
    }
}
