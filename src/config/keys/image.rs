//! Keys of each entry of `images`.

use std::collections::BTreeMap;

use super::agent::UPLOAD;
use super::placement::MOST_MEMORY;
use super::{
    Key, LAST_VMID, LONG, Raw, Table, choice, flag, mapping, mappings, names, text, texts, value,
    whole, zero_or,
};

/// What an image begins with; exactly one is given.
static SOURCE_KEYS: [&str; 4] = ["url", "iso", "templateVmId", "templateName"];

table! {
    /// Keys of each entry of `images`.
    IMAGE => RawImage {
        "cloudIds" => cloud_ids: Vec<String>,
            texts().required().eg(r#"["primary"]"#)
                .filled("no cloud is listed", "list at least one key of cloudConfigurations"),
            "keys of cloudConfigurations: the clouds that the image is built on";
        "source", mapping(&SOURCE).eg(r#"{templateVmId: 9000}"#),
            "what the image begins with; unset: its versions are only imported";
        "hardware", mapping(&HARDWARE).eg("{bios: OVMF}"),
            "virtual hardware of an image from a URL; unset: the defaults of its keys";
        "cores" => cores: u32, whole(1..=8192).or(2), "processor cores";
        "memoryMb" => memory_mb: u32, zero_or(16..=MOST_MEMORY).or(2048),
            "memory in MiB; 0: that of Proxmox or of the copied template";
        "diskSizeGb" => disk_size_gb: u32, whole(0..=131_072).or(0),
            "size of the boot disk in GiB; 0: that of the source; required with an iso";
        "storage" => storage: String,
            text().required().check(value::storage).eg(r#""local-lvm""#),
            "storage of the image's disks";
        "importStorage" => import_storage: String,
            text().or_text("local").check(value::storage),
            "storage that the source is downloaded to; its content must include import, or iso";
        "downloadBy" => download_by: String, choice(&["NODE", "DROVER"]).or_text("NODE"),
            "who downloads the source; DROVER uploads it, for nodes without internet";
        "downloadProxy" => download_proxy: Option<String>,
            text().check(value::proxy).eg("http://proxy.lan:3128"),
            "with DROVER the URL of the HTTP proxy; none: no proxy; unset: HTTPS_PROXY, HTTP_PROXY \
             and NO_PROXY";
        "nodes" => nodes: Vec<String>, texts().or_empty().check(value::filled),
            "nodes that get a version each; empty: one node that has the storage";
        "targetPool" => target_pool: String, text().or_text(""),
            "resource pool of the image; blank: none";
        "credentialsId" => credentials_id: String,
            text().required().filled("the id is blank", "name an sshKey").eg(r#""agent-key""#),
            "an sshKey: the login user that cloud-init makes for the build, and its key";
        "packages" => packages: Vec<String>, texts().or_empty().check(value::package),
            "packages to install, first of all";
        "files", mappings(&UPLOAD), "files to copy into the guest, after the packages";
        "runners", mappings(&RUNNER), "CI runners to install, after the files";
        "commands" => commands: Vec<String>, texts().or_empty().check(value::filled),
            "commands for the login shell, in order, last of all; no secrets";
        "variables" => variables: BTreeMap<String, String>, names().or_empty(),
            "values for ${name} in source, packages, runners and commands; `--var`, the variable \
             DROVER_VAR_name and variablesFile win, in this order";
        "variablesFile" => variables_file: Option<String>, text().eg(r#""files/debian.vars""#),
            "file with lines name=value, relative to this file; unset: none";
        "netplan" => netplan: bool, flag().or_flag(true),
            "true: where the guest has netplan, its clones use DHCP on every card called en* or eth*";
        "cleanCommands" => clean_commands: Vec<String>, texts().or_empty().check(value::filled),
            "commands before drover removes host keys, machine-id and cloud-init's state";
        "ipConfig" => ip_config: String, text().or_text("ip=dhcp").check(value::ip_config),
            "cloud-init ipconfig0 of the guest while it is built";
        "nameserver" => nameserver: String, text().or_text("").check(value::nameserver),
            "DNS servers while it is built; blank: those of the node";
        "guestNetworks" => guest_networks: Vec<String>, texts().or_empty().check(value::cidr),
            "CIDRs for the guest's address; empty: drover takes any usable address";
        "sshPort" => ssh_port: u16, whole(1..=65_535).or(22), "SSH port while it is built";
        "keep" => keep: u32, whole(0..=1000).or(1),
            "old versions that stay beside the newest; one in use always stays";
        "rebuildAfterDays" => rebuild_after_days: u32, whole(0..=3650).or(0),
            "days after which drover builds the same recipe again by itself, once it was built; 0: \
             never";
        "buildWhenMissing" => build_when_missing: bool, flag().or_flag(false),
            "true: drover builds it by itself where a template that is wanted finds no version; false: \
             `drover image build` alone does";
        "vmidFloor" => vmid_floor: u32, whole(100..=LAST_VMID).or(9000),
            "lowest VMID of a version";
        "pullTimeoutMinutes" => pull_timeout_minutes: u64, whole(1..=LONG).or(120),
            "minutes for the download of the source";
        "lockTimeoutMinutes" => lock_timeout_minutes: u64, whole(1..=LONG).or(130),
            "minutes a build waits while another one downloads the same source";
        "buildTimeoutMinutes" => build_timeout_minutes: u64, whole(1..=LONG).or(150),
            "minutes for a build in all";
        "startupWaitSeconds" => startup_wait_seconds: u64, whole(1..=LONG).or(900),
            "seconds from the start of the guest to the first SSH login";
    }
}

table! {
    /// Keys of `source`.
    SOURCE, one_of: SOURCE_KEYS => RawSource {
        "url" => url: Option<String>,
            text().check(value::download).eg(r#""https://cloud.debian.org/images/cloud/…qcow2""#),
            "disk image that the node downloads: qcow2, raw, vmdk or ova";
        "iso" => iso: Option<String>,
            text().check(value::iso).eg(r#""local:iso/ubuntu-24.04-autoinstall.iso""#),
            "ISO image with an installer that asks nothing: its URL, or its volume on a storage";
        "userData",
            text().eg(r##""#cloud-config\nautoinstall: {version: 1, shutdown: poweroff}\n""##),
            "with iso: its answers, a #cloud-config with autoinstall; unset: drover's own for Ubuntu";
        "checksum" => checksum: Option<String>, text().check(value::filled).eg(r#""9bc6028870ae…""#),
            "its checksum in hexadecimal digits; required with a URL";
        "checksumAlgorithm" => checksum_algorithm: String,
            choice(&["md5", "sha1", "sha224", "sha256", "sha384", "sha512"]).or_text("sha256"),
            "what kind of checksum that is";
        "templateVmId" => template_vm_id: Option<u32>, whole(100..=LAST_VMID).eg("8000"),
            "VMID of a template image that is copied in full";
        "templateName" => template_name: Option<String>,
            text().check(value::filled).eg(r#""debian-13-base""#),
            "name of such a template image; the newest on the node";
    }
}

table! {
    /// Keys of `hardware`.
    HARDWARE => RawHardware {
        "machine" => machine: String, text().or_text("q35").check(value::filled),
            "Proxmox's machine type";
        "bios" => bios: String, choice(&["OVMF", "SEABIOS"]).or_text("OVMF"),
            "OVMF: UEFI with an EFI disk";
        "cpu" => cpu: String, text().or_text("host").check(value::filled), "Proxmox's CPU type";
        "scsi" => scsi: String,
            text().or_text("virtio-scsi-single").check(value::filled),
            "controller of the disk";
        "serial" => serial: bool, flag().or_flag(true),
            "true: the screen is a serial console, as most cloud images want it";
        "osType" => os_type: String, text().or_text("l26").check(value::filled),
            "Proxmox's ostype";
        "bridge" => bridge: String, text().or_text("vmbr0").check(value::bridge),
            "bridge of the network card";
        "vlan" => vlan: u16, whole(0..=4094).or(0), "VLAN tag of the network card; 0: none";
    }
}

table! {
    /// Keys of each item of `runners`.
    RUNNER => RawImageRunner {
        "system" => system: String,
            choice(&["github", "gitea", "forgejo", "gitlab", "woodpecker", "buildbot", "jenkins"])
                .required().eg("gitea"),
            "the CI system; jenkins installs Java";
        "version" => version: String, text().required().check(value::filled).eg(r#""0.2.13""#),
            "version of the runner, without v, or latest; for jenkins the major version of Java";
        "url" => url: String, text().or_text(""),
            "download in place of the usual one; blank: the usual one";
        "sha256" => sha256: String, text().or_text(""),
            "SHA-256 of the download; blank: not checked";
    }
}
