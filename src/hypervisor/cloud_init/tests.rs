#![expect(clippy::unwrap_used, reason = "tests")]

use drover_model::seed::SeedSpec;

use super::*;
use crate::testing::{marks, spec};

fn seeded(seed: SeedSpec) -> TemplateSpec {
    let mut spec = spec();
    spec.labels = ["linux".to_owned(), "x64".to_owned()].into();
    spec.cloud_init.seed = Some(seed);
    spec
}

fn guest() -> VmConfig {
    VmConfig::new([
        ("name", marks().name("ci")),
        ("ciuser", "ci".into()),
        ("sshkeys", "ssh-ed25519%20AAAA%2Fb%2Bc%3D%20drover%20key".into()),
        ("ciupgrade", "0".into()),
        ("searchdomain", "example.com".into()),
    ])
}

fn reported(seed: SeedSpec) -> CloudInitTexts {
    texts(&seeded(seed), &marks(), "pve1", &guest()).unwrap().unwrap()
}

// Invariant: without the operator's own texts, a disc says the same as Proxmox's own drive.

#[test]
fn without_user_data_a_guest_hears_what_it_always_did() {
    let seed = reported(SeedSpec::default());
    insta::assert_snapshot!(seed.user_data, @r"
    #cloud-config
    hostname: ci-linux-7k2m9qxw-4f8z1c3px9t2vkab
    manage_etc_hosts: true
    fqdn: ci-linux-7k2m9qxw-4f8z1c3px9t2vkab.example.com
    user: ci
    ssh_authorized_keys:
    - ssh-ed25519 AAAA/b+c= drover key
    chpasswd:
      expire: false
    users:
    - default
    package_upgrade: false
    ");
    insta::assert_snapshot!(seed.meta_data, @r"
    instance-id: drover-4f8z1c3px9t2vkab
    local-hostname: ci-linux-7k2m9qxw-4f8z1c3px9t2vkab
    public-keys:
    - ssh-ed25519 AAAA/b+c= drover key
    ");
    assert_eq!(seed.network_config, None);
    assert_eq!(texts(&spec(), &marks(), "pve1", &guest()).unwrap(), None);
}

// Invariant: every placeholder of drover's own has a value, and an operator's value may use it.

#[test]
fn all_names_are_filled_in() {
    let all: Vec<String> =
        BUILT_IN_PLACEHOLDERS.iter().map(|name| format!("{name}=${{{name}}}")).collect();
    let user_data = Some(format!("{}\n${{mine}}\n", all.join("\n")));
    let values = [("mine".to_owned(), "run-${vmid} $${x}".to_owned())].into();
    let seed = reported(SeedSpec { user_data, values, ..SeedSpec::default() });
    insta::assert_snapshot!(seed.user_data, @r"
    agent=4f8z1c3px9t2vkab
    cloud=primary
    hostname=ci-linux-7k2m9qxw-4f8z1c3px9t2vkab
    installation=7k2m9qxw
    instanceId=drover-4f8z1c3px9t2vkab
    labels=linux,x64
    node=pve1
    searchDomain=example.com
    sshPublicKey=ssh-ed25519 AAAA/b+c= drover key
    template=linux
    user=ci
    vmid=101
    run-101 ${x}
    ");
}

// Invariant: whatever the meta data says, id and name belong to this guest alone.

#[test]
fn meta_data_keeps_what_it_says_and_has_an_id_of_its_own() {
    let own = |text: &str| SeedSpec { meta_data: Some(text.into()), ..SeedSpec::default() };
    let seed = reported(own("{local-hostname: \"${vmid}\", role: builder}"));
    insta::assert_snapshot!(seed.meta_data, @r"
    local-hostname: '101'
    role: builder
    instance-id: drover-4f8z1c3px9t2vkab
    public-keys:
    - ssh-ed25519 AAAA/b+c= drover key
    ");
    let wrong = texts(&seeded(own("- a")), &marks(), "pve1", &guest());
    assert_eq!(wrong, Err(TextsError::MetaData));
}

#[test]
fn a_name_without_a_value_is_reported_with_its_text() {
    let seed = SeedSpec { network_config: Some("a: ${nobody}".into()), ..SeedSpec::default() };
    let wrong = texts(&seeded(seed), &marks(), "pve1", &guest()).unwrap_err();
    assert_eq!(wrong.to_string(), "networkConfig: `${nobody}` has no value");
}
