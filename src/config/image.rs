//! Images: each entry of `images`, on each of its clouds, as an [`ImageSpec`].
//!
//! What a recipe installs becomes steps over SSH, in this order: packages, files, runners, commands,
//! netplan. `installer.rs` is about ISO images. Variables stay in the texts until a build fills them in, since a caller may give values.

mod installer;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use drover_hypervisor::download::checks_sums_of;
use drover_model::addresses::AddressSource;
use drover_model::id::{CloudId, NodeName, TemplateId, VmId};
use drover_model::image::{
    Bios, Downloader, Hardware, ImageLimits, ImageSource, ImageSpec, IsoImage, Recipe, Route,
    unfilled_variable,
};
use drover_model::os::Os;
use drover_model::seed::SeedSpec;
use drover_model::spec::{
    CloneStrategy, CloudInitSpec, JavaDistribution, JavaSpec, LimitSpec, NetworkSpec, SshSpec,
    StepSpec, StepWork, TemplateSpec,
};
use drover_model::template_image::Sought;
use drover_scripts::{guest, image};

use super::addresses::fixed;
use super::cloud::CheckedCloud;
use super::context::Context;
use super::credential::{Credential, Credentials, SshKeySpec, resolve};
use super::fault::Fault;
use super::keys::{HARDWARE, RawHardware, RawImage, RawImageRunner, RawSource};
use super::layer::Layer;
use super::prepare;
use super::template::CheckedTemplate;
use super::top::{ONE_HALF, other_half};

/// The beginning of variables of the environment that give values.
const VARIABLE: &str = "DROVER_VAR_";
/// What cloud-init does in the guest that is built: a login, and the guest agent, which most cloud
/// images lack and without which Proxmox does not know the guest's address.
const USER_DATA: &str = "#cloud-config
hostname: ${hostname}
manage_etc_hosts: true
user: ${user}
users: [default]
ssh_authorized_keys: [\"${sshPublicKey}\"]
chpasswd: {expire: false}
package_update: true
packages: [qemu-guest-agent]
runcmd:
  - [sh, -c, \"systemctl enable --now qemu-guest-agent || service qemu-guest-agent start || true\"]
";

/// The images, each on each of its clouds.
pub(super) type Images = BTreeMap<TemplateId, ImageSpec>;

/// Makes all images.
pub(super) fn images(
    entries: &[(String, Layer)],
    clouds: &BTreeMap<CloudId, CheckedCloud>,
    credentials: &Credentials,
    cx: &mut Context<'_>,
) -> Images {
    let mut images = Images::new();
    for (name, layer) in entries {
        for spec in image_on_clouds(name, layer, clouds, credentials, cx) {
            images.insert(spec.id.clone(), spec);
        }
    }
    images
}

/// Checks that the images of templates exist on their clouds.
pub(super) fn check_named<'a>(
    templates: impl Iterator<Item = &'a CheckedTemplate>,
    images: &Images,
    faults: &mut Vec<Fault>,
) {
    for template in templates {
        let layer = &template.layer;
        let Some(name) = layer.text("image") else { continue };
        let missing = template.specs.iter().find(|spec| {
            let sought = spec.search == Some(Sought::Image(name.to_owned()));
            sought && !images.contains_key(&TemplateId::new(spec.id.cloud.clone(), name))
        });
        let Some(spec) = missing else { continue };
        let cloud = &spec.id.cloud;
        let known: BTreeSet<&str> = images.keys().map(|id| &*id.name).collect();
        let fault = if known.contains(name) {
            let message = format!("image `{name}` is not on cloud `{cloud}`");
            layer.fault("image", message).help("add the cloud to the cloudIds of the image")
        } else {
            let fault = layer.fault("image", format!("unknown image `{name}`"));
            fault.known_in("images", name, known.iter().copied())
        };
        faults.push(fault);
    }
}

fn image_on_clouds(
    name: &str,
    layer: &Layer,
    clouds: &BTreeMap<CloudId, CheckedCloud>,
    credentials: &Credentials,
    cx: &mut Context<'_>,
) -> Vec<ImageSpec> {
    let Some(raw) = layer.typed::<RawImage>(&mut cx.faults) else { return Vec::new() };
    let nested = layer.nested("source");
    let answers = nested.first().and_then(|layer| installer::answers(layer, cx));
    let source = nested.first().and_then(|source_layer| source(source_layer, cx));
    let source = source.and_then(|source| installer::with_disk(source, &raw, layer, cx));
    let hardware = layer.nested("hardware").first();
    let none = Layer::empty(layer.place, format!("{}.hardware", layer.path), &HARDWARE);
    let hardware = hardware.unwrap_or(&none).typed::<RawHardware>(&mut cx.faults).map(hardware_of);
    let id = Some(&*raw.credentials_id).filter(|id| !id.trim().is_empty());
    let key =
        id.and_then(|id| resolve(layer, id, credentials, "sshKey", Credential::as_ssh_key, cx));
    let downloader = downloader(&raw, source.as_ref(), layer, cx);
    let steps = steps(&raw, layer, cx);
    let variables = variables(&raw, layer, cx);
    let mut specs = Vec::new();
    for (at, id) in raw.cloud_ids.iter().enumerate() {
        let Some(cloud) = clouds.get(&CloudId::new(id)) else {
            let known = clouds.keys().map(CloudId::as_str);
            let fault = layer.item_fault("cloudIds", at, format!("unknown cloud `{id}`"));
            cx.faults.push(fault.known_in("cloudConfigurations", id, known));
            continue;
        };
        let named = format!("cloud `{id}`");
        if let Some(why) = other_half(layer, &named, cloud.layer.place, cx) {
            cx.faults.push(layer.item_fault("cloudIds", at, why).help(ONE_HALF));
            continue;
        }
        let Some((key, hardware)) = key.zip(hardware.clone()) else { continue };
        let id = TemplateId::new(cloud.spec.id.clone(), name);
        let mut machine = machine(id.clone(), &raw, &steps, &hardware, cloud, key);
        if let (Some(ImageSource::Iso { .. }), Some(seed)) = (&source, &mut machine.cloud_init.seed)
        {
            let own = || installer::ANSWERS.to_owned();
            seed.user_data = Some(answers.clone().unwrap_or_else(own));
        }
        let spec = ImageSpec {
            id,
            source: source.clone(),
            hardware,
            machine,
            variables: variables.clone(),
            clean: clean(&raw.clean_commands),
            nodes: raw.nodes.iter().map(NodeName::new).collect(),
            storage: raw.storage.clone(),
            import_storage: installer::storage_of(source.as_ref())
                .unwrap_or_else(|| raw.import_storage.clone()),
            downloader: downloader.clone(),
            vmid_floor: VmId(raw.vmid_floor),
            keep: raw.keep,
            rebuild_days: (raw.rebuild_after_days > 0).then_some(raw.rebuild_after_days),
            build_missing: raw.build_when_missing,
            limits: ImageLimits {
                pull: minutes(raw.pull_timeout_minutes),
                lock: minutes(raw.lock_timeout_minutes),
                build: minutes(raw.build_timeout_minutes),
            },
        };
        match (&Recipe::new(&spec, &BTreeMap::new()), nested.first()) {
            (Err(fault), Some(source)) => {
                let sum = "SHA256SUMS or SHA512SUMS beside the file has the whole line of digits";
                cx.faults.push(source.fault("checksum", fault.to_string()).help(sum));
                break;
            }
            (Ok(recipe), Some(source))
                if let Some(name) = recipe.spec.source.as_ref().and_then(unfilled_variable) =>
            {
                cx.faults.push(unknown_variable(source, name));
                break;
            }
            (Ok(_) | Err(_), _) => specs.push(spec),
        }
    }
    specs
}

/// A variable in a source's address that the image does not have.
fn unknown_variable(source: &Layer, name: &str) -> Fault {
    let key = if source.has("iso") { "iso" } else { "url" };
    let fault = source.fault(key, format!("no value for the variable `${{{name}}}`"));
    fault.help(format!("add `{name}` to the `variables` of the image, or write the value here"))
}

fn minutes(number: u64) -> Duration {
    Duration::from_secs(number * 60)
}

fn source(layer: &Layer, cx: &mut Context<'_>) -> Option<ImageSource> {
    layer.chosen().map_err(|fault| cx.faults.push(fault)).ok()?;
    let raw: RawSource = layer.typed(&mut cx.faults)?;
    if let Some(vmid) = raw.template_vm_id {
        return Some(ImageSource::Template(Sought::Id(VmId(vmid))));
    }
    if let Some(name) = raw.template_name {
        return Some(ImageSource::Template(Sought::Name(name)));
    }
    let is_iso = raw.iso.is_some();
    if let Some(volume) = raw.iso.as_ref().filter(|iso| !iso.contains("://")) {
        return Some(ImageSource::Iso { iso: IsoImage::Volume(volume.clone()), disk_gb: 0 });
    }
    let url = raw.url.or(raw.iso)?;
    let Some(checksum) = raw.checksum else {
        let fault = layer.fault("checksum", "`checksum` is missing");
        cx.faults.push(fault.help(
            "add the checksum that the publisher lists beside the disk image (SHA256SUMS or \
             SHA512SUMS), and checksumAlgorithm where it is not sha256",
        ));
        return None;
    };
    let checksum = checksum.to_ascii_lowercase();
    let is_sum = checksum.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !is_sum && !checksum.contains("${") {
        let fault = layer.fault("checksum", "the checksum has other characters than 0-9 and a-f");
        cx.faults.push(fault.help("copy it from the publisher's list"));
        return None;
    }
    let algorithm = raw.checksum_algorithm;
    Some(match is_iso {
        true => {
            let iso = IsoImage::Url { url, checksum, algorithm };
            ImageSource::Iso { iso, disk_gb: 0 }
        }
        false => ImageSource::Url { url, checksum, algorithm },
    })
}

/// Who downloads the source.
fn downloader(
    raw: &RawImage,
    source: Option<&ImageSource>,
    layer: &Layer,
    cx: &mut Context<'_>,
) -> Downloader {
    if raw.download_by != "DROVER" {
        if raw.download_proxy.is_some() {
            let fault = layer.fault("downloadProxy", "`downloadProxy` is for `downloadBy: DROVER`");
            cx.faults.push(fault.help(
                "remove it: nodes download through the `http_proxy` of the datacenter's options",
            ));
        }
        return Downloader::Node;
    }
    if let Some(
        ImageSource::Url { algorithm, .. }
        | ImageSource::Iso { iso: IsoImage::Url { algorithm, .. }, .. },
    ) = source
        && !checks_sums_of(algorithm)
    {
        let message = format!("drover does not check sums of kind `{algorithm}`");
        let fault = layer.fault("downloadBy", message);
        cx.faults.push(fault.help("give the SHA-256 or SHA-512 checksum of the disk image"));
    }
    Downloader::Drover(match raw.download_proxy.as_deref() {
        None => Route::Environment,
        Some("none") => Route::Direct,
        Some(url) => Route::Proxy(url.to_owned()),
    })
}

/// The virtual hardware of a guest that is made new.
pub(super) fn hardware_of(raw: RawHardware) -> Hardware {
    Hardware {
        machine: raw.machine,
        bios: if raw.bios == "OVMF" { Bios::Ovmf } else { Bios::Seabios },
        cpu: raw.cpu,
        scsi: raw.scsi,
        serial: raw.serial,
        os_type: raw.os_type,
        bridge: raw.bridge,
        vlan: (raw.vlan > 0).then_some(raw.vlan),
    }
}

/// The steps of a recipe, in the order in which they run. Each may take all of a build's time.
fn steps(raw: &RawImage, layer: &Layer, cx: &mut Context<'_>) -> Vec<StepSpec> {
    let timeout = minutes(raw.build_timeout_minutes);
    let step = |name: String, work: StepWork| StepSpec { name, work, timeout };
    let mut steps = Vec::new();
    if !raw.packages.is_empty() {
        steps.push(step("packages".to_owned(), StepWork::Packages(raw.packages.clone())));
    }
    for file in layer.nested("files") {
        if let Some(upload) = prepare::upload(file, cx) {
            steps.push(step(format!("file {}", upload.to), StepWork::Upload(upload)));
        }
    }
    for runner in layer.nested("runners") {
        let Some(raw) = runner.typed::<RawImageRunner>(&mut cx.faults) else { continue };
        if let Some(command) = install(&raw, runner, cx) {
            let name = format!("runner {} {}", raw.system, raw.version);
            steps.push(step(name, StepWork::Run(command)));
        }
    }
    for (at, command) in raw.commands.iter().enumerate() {
        steps.push(step(format!("command {}", at + 1), StepWork::Run(command.clone())));
    }
    if raw.netplan {
        steps.push(step("netplan".to_owned(), StepWork::Run(image::netplan())));
    }
    steps
}

/// The command that installs a runner.
fn install(raw: &RawImageRunner, layer: &Layer, cx: &mut Context<'_>) -> Option<String> {
    if raw.system != "jenkins" {
        return Some(image::runner(&raw.system, &raw.version, &raw.url, &raw.sha256));
    }
    let Ok(major) = raw.version.parse() else {
        let message = format!("`{}` is not a major version of Java", raw.version);
        cx.faults.push(layer.fault("version", message).help("write a number, such as `21`"));
        return None;
    };
    guest::java(&JavaSpec {
        distribution: JavaDistribution::Openjdk,
        major,
        path: "java".to_owned(),
        options: String::new(),
        repository: None,
        repository_key: None,
    })
}

/// The values of variables: the environment over a file over the configuration.
fn variables(raw: &RawImage, layer: &Layer, cx: &mut Context<'_>) -> BTreeMap<String, String> {
    const KEY: &str = "variablesFile";
    let mut values = raw.variables.clone();
    if let Some(name) = &raw.variables_file
        && let Some(text) = cx.open_file(layer, KEY, name)
    {
        for (at, line) in text.lines().enumerate().filter(|(_, line)| !is_note(line)) {
            let Some((name, value)) = line.split_once('=') else {
                let message = format!("line {} of the file is not `name=value`", at + 1);
                cx.faults.push(layer.fault(KEY, message).help("write one variable in each line"));
                continue;
            };
            values.insert(name.trim().to_owned(), value.trim().to_owned());
        }
    }
    for (name, value) in &mut values {
        if let Some(given) = cx.environment.get(&format!("{VARIABLE}{name}")) {
            given.clone_into(value);
        }
    }
    values
}

/// Whether a line of a file of variables says nothing.
fn is_note(line: &str) -> bool {
    let line = line.trim();
    line.is_empty() || line.starts_with('#')
}

/// What runs before the shutdown.
fn clean(commands: &[String]) -> String {
    let own = commands.iter().map(|command| format!("{{ {command}\n}} && "));
    format!("{}{}", own.collect::<String>(), image::clean())
}

/// How the guest is configured, logged in to and prepared while it is built.
fn machine(
    id: TemplateId,
    raw: &RawImage,
    steps: &[StepSpec],
    hardware: &Hardware,
    cloud: &CheckedCloud,
    key: &SshKeySpec,
) -> TemplateSpec {
    let given = |text: &str| Some(text.trim().to_owned()).filter(|text| !text.is_empty());
    let bare = TemplateSpec::bare(id, VmId(0));
    let build = minutes(raw.build_timeout_minutes);
    TemplateSpec {
        clone: CloneStrategy::Full,
        target_storage: Some(raw.storage.clone()),
        target_pool: given(&raw.target_pool),
        cores: Some(raw.cores),
        memory_mb: (raw.memory_mb > 0).then_some(raw.memory_mb),
        disk_gb: (raw.disk_size_gb > 0).then_some(raw.disk_size_gb),
        network: NetworkSpec { bridge: Some(hardware.bridge.clone()), vlan: hardware.vlan },
        os: Os::Linux,
        ssh: SshSpec {
            credentials_id: raw.credentials_id.clone(),
            user: key.username.clone(),
            port: raw.ssh_port,
            public_key: key.public_line.clone(),
        },
        cloud_init: CloudInitSpec {
            user: Some(key.username.clone()),
            ip_config: given(&raw.ip_config),
            nameserver: given(&raw.nameserver),
            seed: Some(SeedSpec {
                storage: cloud.iso_storage.clone(),
                user_data: Some(USER_DATA.to_owned()),
                ..SeedSpec::default()
            }),
            ..CloudInitSpec::default()
        },
        address: fixed(&raw.ip_config).map_or(AddressSource::GuestAgent, AddressSource::Fixed),
        guest_networks: raw.guest_networks.clone(),
        steps: steps.to_vec(),
        limits: LimitSpec {
            call: cloud.call_timeout,
            operation: cloud.spec.operation_timeout,
            clone: build,
            startup: Duration::from_secs(raw.startup_wait_seconds),
            prepare: build,
            ..bare.limits.clone()
        },
        ..bare
    }
}
