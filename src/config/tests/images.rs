//! Images: what a recipe comes to, where values of variables come from, and what is wrong with it.

use std::collections::BTreeMap;

use drover_model::addresses::AddressSource;
use drover_model::image::{Bios, ImageSource, ImageSpec, Recipe};
use drover_model::spec::StepWork;
use drover_model::template_image::Sought;
use insta::assert_snapshot;

use super::*;

/// An image `debian` with these keys, as flow YAML.
fn with_image(keys: &str) -> String {
    format!(
        "{}images:\n  debian: {{cloudIds: [c], storage: thin, credentialsId: ssh, {keys}}}\n",
        with_cloud("{}")
    )
}

fn image(checked: &Checked) -> &ImageSpec {
    &checked.herd.images[&TemplateId::new(CloudId::new("c"), "debian")]
}

fn names(spec: &ImageSpec) -> Vec<&str> {
    spec.machine.steps.iter().map(|step| step.name.as_str()).collect()
}

// Invariant: a recipe has hardware for a cloud image where nothing is said, and its steps in order.

#[test]
fn defaults_are_those_of_a_cloud_image() {
    let checked = Scene::new().good(&with_image(""));
    let spec = image(&checked);
    let hardware = &spec.hardware;
    assert_eq!((&*hardware.machine, hardware.bios, &*hardware.cpu), ("q35", Bios::Ovmf, "host"));
    assert_eq!((&*hardware.scsi, hardware.serial), ("virtio-scsi-single", true));
    assert_eq!((spec.vmid_floor.0, spec.keep, &*spec.import_storage), (9000, 1, "local"));
    let limits = &spec.limits;
    let minutes = [limits.pull, limits.lock, limits.build].map(|limit| limit.as_secs() / 60);
    assert_eq!(minutes, [120, 130, 150]);
    assert_eq!((spec.source.clone(), names(spec)), (None, vec!["netplan"]));
    assert_eq!(spec.machine.address, AddressSource::GuestAgent);
    assert_eq!(spec.machine.ssh.user, "ci");
    let seed = spec.machine.cloud_init.seed.as_ref().unwrap();
    assert!(seed.user_data.as_ref().unwrap().contains("qemu-guest-agent"));
    let cloud = &checked.herd.clouds[&CloudId::new("c")];
    assert!(cloud.image_storages.contains(&seed.storage), "its disc images are looked after");
}

#[test]
fn steps_run_in_the_order_packages_files_runners_commands() {
    let scene = Scene::new();
    scene.put("ci.conf", 0o644, "a: b\n");
    let checked = scene.good(&with_image(
        "packages: [git], files: [{from: ci.conf, to: /etc/ci.conf}], commands: [id, pwd], \
         runners: [{system: gitea, version: 0.2.13}, {system: jenkins, version: '21'}], \
         source: {templateName: base}, ipConfig: 'ip=10.0.0.5/24,gw=10.0.0.1'",
    ));
    let spec = image(&checked);
    assert_eq!(
        names(spec),
        [
            "packages",
            "file /etc/ci.conf",
            "runner gitea 0.2.13",
            "runner jenkins 21",
            "command 1",
            "command 2",
            "netplan"
        ]
    );
    assert_eq!(spec.source, Some(ImageSource::Template(Sought::Name("base".into()))));
    assert_eq!(spec.machine.address, AddressSource::Fixed("10.0.0.5".parse().unwrap()));
}

// Invariant: a flag wins over the environment, that over the file, that over the recipe.

#[test]
fn values_of_variables_come_from_the_first_that_gives_one() {
    let scene = Scene::with(&[("DROVER_VAR_b", "env"), ("DROVER_VAR_c", "env")]);
    scene.put("debian.vars", 0o644, "# of the team\na = file\nb=file\nc=file\n\n");
    let checked = scene.good(&with_image(
        "variables: {a: own, b: own, c: own, d: own}, variablesFile: debian.vars, netplan: false, \
         commands: ['${a} ${b} ${c} ${d} ${e}']",
    ));
    let given = BTreeMap::from([("c".to_owned(), "flag".to_owned())]);
    let recipe = Recipe::new(image(&checked), &given).unwrap();
    let work = &recipe.spec.machine.steps[0].work;
    assert_eq!(*work, StepWork::Run("file env flag own ${e}".into()));
}

// Invariant: what is wrong is shown in its place.

#[test]
fn what_is_wrong_with_images_is_shown() {
    let scene = Scene::new();
    scene.put("bad.vars", 0o644, "a=b\nnonsense\n");
    let text = format!(
        "{}agentConfigurations:\n  \
           t: {{cloudIds: [c], credentialsId: ssh, image: debain}}\n\
         images:\n  \
           debian: {{cloudIds: [c, d], storage: thin, credentialsId: ssh, variablesFile: bad.vars, \
             source: {{url: 'https://a/b.qcow2'}}}}\n  \
           two: {{cloudIds: [c], storage: thin, credentialsId: api, \
             source: {{url: 'https://a/b.qcow2', checksum: xyz, templateVmId: 9}}}}\n  \
           sum: {{cloudIds: [c], storage: thin, credentialsId: ssh, \
             source: {{url: 'https://a/b.qcow2', checksum: xyz}}, \
             runners: [{{system: jenkins, version: new}}]}}\n",
        with_cloud("{}")
    );
    assert_snapshot!(scene.faults(&text));
}
