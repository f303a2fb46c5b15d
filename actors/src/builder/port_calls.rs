//! Turns a call of a build's mind into a call of a port.

use drover_model::container::GuestType;
use drover_model::fault::Fault;
use drover_model::id::{CloudId, NodeName, Upid};
use drover_model::image::{ImageSource, IsoImage, Recipe};
use drover_model::ports::{
    CloneCall, ConfigureCall, CreateCall, EjectCall, FileKind, FinishCall, NewDisk, Ports,
    PullCall, SealCall, ShellTarget, VmRef,
};
use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;

use super::event::{Answer, Call};
use super::mind::{Mind, SHUTDOWN};

/// The limit of one try to log in.
const GREET_LIMIT: std::time::Duration = std::time::Duration::from_secs(10);

fn accepted(result: Result<Upid, Fault>) -> Answer {
    Answer::Accepted(result.map(Some))
}

/// What a source is called on a storage: its checksum keeps it apart from others of its name.
fn file_name(url: &str, checksum: &str, kind: FileKind) -> String {
    let last = url.split(['?', '#']).next().unwrap_or(url).rsplit('/').next().unwrap_or_default();
    let (stem, ending) = last.rsplit_once('.').unwrap_or((last, "qcow2"));
    // Images of Ubuntu and others are qcow2 and called `.img`, which Proxmox does not import.
    let ending = match (kind, ending) {
        (FileKind::Iso, _) => "iso",
        (FileKind::DiskImage, "raw" | "vmdk" | "ova") => ending,
        (FileKind::DiskImage, _) => "qcow2",
    };
    let short = checksum.get(..12).unwrap_or(checksum);
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' };
    let stem: String = stem.chars().map(plain).take(100).collect();
    format!("{stem}-{short}.{ending}")
}

/// The call that brings a build's source to its place; none where nothing is brought.
pub(crate) fn pull_call(recipe: &Recipe, node: &NodeName, cloud: CloudId) -> Option<PullCall> {
    let (kind, url, checksum, algorithm) = match recipe.spec.source.as_ref()? {
        ImageSource::Url { url, checksum, algorithm } => {
            (FileKind::DiskImage, url, checksum, algorithm)
        }
        ImageSource::Iso { iso: IsoImage::Url { url, checksum, algorithm }, .. } => {
            (FileKind::Iso, url, checksum, algorithm)
        }
        ImageSource::Iso { iso: IsoImage::Volume(_), .. } | ImageSource::Template(_) => {
            return None;
        }
    };
    Some(PullCall {
        cloud,
        node: node.clone(),
        storage: recipe.spec.import_storage.clone(),
        url: url.clone(),
        checksum: checksum.clone(),
        algorithm: algorithm.clone(),
        kind,
        file: file_name(url, checksum, kind),
        by: recipe.spec.downloader.clone(),
        // A download that outlives its build holds up the next one.
        limit: recipe.spec.limits.pull.min(recipe.spec.limits.build),
    })
}

/// What the disk of the guest begins with; none where a template image is copied.
fn new_disk(recipe: &Recipe, node: &NodeName, cloud: &CloudId) -> Option<NewDisk> {
    let pulled = pull_call(recipe, node, cloud.clone()).map(|call| call.volume());
    match recipe.spec.source.as_ref()? {
        ImageSource::Url { .. } => pulled.map(NewDisk::CopyOf),
        ImageSource::Iso { iso: IsoImage::Volume(volume), disk_gb } => {
            Some(NewDisk::InstalledFrom { iso: volume.clone(), gib: *disk_gb })
        }
        ImageSource::Iso { iso: IsoImage::Url { .. }, disk_gb } => {
            pulled.map(|iso| NewDisk::InstalledFrom { iso, gib: *disk_gb })
        }
        ImageSource::Template(_) => None,
    }
}

/// The future of a call's answer through this cloud. `None` where the mind knows too little for it.
pub(super) fn make(
    call: Call,
    mind: &Mind,
    cloud: CloudId,
    ports: &Ports,
) -> Option<LocalBoxFuture<'static, Answer>> {
    let pve = &ports.hypervisor;
    let recipe = mind.birth.recipe.clone();
    let node = mind.birth.node.clone();
    let guest = GuestType::Vm;
    let vm = || {
        let (cloud, node) = (cloud.clone(), node.clone());
        Some(VmRef { cloud, node, vmid: mind.vmid()?, guest })
    };
    let marks = mind.marks.clone();
    let target = |address| {
        let (machine, host_keys) = (mind.machine()?, mind.host_keys.clone());
        Some(ShellTarget { address, ssh: machine.ssh.clone(), os: machine.os, host_keys })
    };
    Some(match call {
        Call::Pull => pve
            .pull(pull_call(recipe.as_deref()?, &node, cloud)?)
            .map(Answer::Accepted)
            .boxed_local(),
        Call::Await(upid, limit) => {
            pve.await_task(&cloud, &upid, limit).map(Answer::TaskEnded).boxed_local()
        }
        Call::Locate => {
            let recipe = recipe?;
            let Some(ImageSource::Template(sought)) = &recipe.spec.source else { return None };
            pve.locate(&cloud, sought, None).map(Answer::Located).boxed_local()
        }
        Call::Create => {
            let (marks, machine, recipe) = (marks?, mind.machine()?.clone(), recipe?);
            match new_disk(&recipe, &node, &cloud) {
                Some(disk) => {
                    let spec = &recipe.spec;
                    let (hardware, storage) = (spec.hardware.clone(), spec.storage.clone());
                    let call =
                        CreateCall { cloud, node, marks, hardware, disk, storage, spec: machine };
                    pve.create(call).map(accepted).boxed_local()
                }
                None => {
                    let home = machine.node.clone()?;
                    let target = Some(node).filter(|node| *node != home);
                    let call = CloneCall { cloud, node: home, target, marks, spec: machine };
                    pve.clone_vm(call).map(accepted).boxed_local()
                }
            }
        }
        Call::Look => pve.look(&vm()?).map(Answer::Looked).boxed_local(),
        Call::Configure => {
            let spec = mind.machine()?.clone();
            let call = ConfigureCall { vm: vm()?, marks: marks?, spec };
            pve.configure(call).map(Answer::Configured).boxed_local()
        }
        Call::Eject => {
            let call = EjectCall { vm: vm()?, marks: marks?, disc: mind.disc() };
            pve.eject(call).map(Answer::Ejected).boxed_local()
        }
        Call::Start => pve.start(&vm()?).map(accepted).boxed_local(),
        Call::Address => {
            let networks = &mind.machine()?.guest_networks;
            pve.address(&vm()?, mind.mac.as_deref(), networks).map(Answer::Addressed).boxed_local()
        }
        Call::HostKeys => {
            pve.host_keys(&vm()?, mind.machine()?.os).map(Answer::HostKeys).boxed_local()
        }
        Call::Greet(address) => {
            ports.shell.greet(target(address)?, GREET_LIMIT).map(Answer::Greeted).boxed_local()
        }
        Call::Run(address, command, limit) => {
            ports.shell.run(target(address)?, command, limit).map(Answer::Ran).boxed_local()
        }
        Call::Upload(address, upload, limit) => {
            ports.shell.upload(target(address)?, upload, limit).map(Answer::Ran).boxed_local()
        }
        Call::Shutdown => pve.shutdown(&vm()?, SHUTDOWN).map(accepted).boxed_local(),
        Call::Finish => {
            let storage = recipe?.spec.storage.clone();
            let call = FinishCall { vm: vm()?, marks: marks?, storage, disc: mind.disc() };
            pve.finish(call).map(Answer::Accepted).boxed_local()
        }
        Call::Check => pve.shortcomings(&vm()?).map(Answer::Checked).boxed_local(),
        Call::Seal => {
            let (image, version) = (&mind.birth.image, &mind.birth.version);
            let description =
                format!("Version {version} of image {}, built by drover.", image.name);
            let to = mind.sealed.clone()?;
            let dry_run = false;
            let call = SealCall { vm: vm()?, from: marks, to, description, dry_run };
            pve.seal(call).map(Answer::Sealed).boxed_local()
        }
        Call::Fence => {
            let observed = pve.fence(&vm()?, &mind.marks_on_guest()?);
            observed.map(|seen| Answer::Accepted(seen.map(|_| None))).boxed_local()
        }
        Call::Stop => pve.stop(&vm()?).map(accepted).boxed_local(),
        Call::Destroy => pve.destroy(&vm()?).map(accepted).boxed_local(),
        Call::IdTaken => pve.id_taken(&cloud, mind.vmid()?).map(Answer::IdSeen).boxed_local(),
        Call::Leftovers => {
            pve.leftovers(&vm()?, &mind.volumes, None).map(Answer::Leftovers).boxed_local()
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    // Invariant: a source is brought under a name that Proxmox imports and that shows its content.

    #[test]
    fn a_file_is_called_after_its_url_and_its_checksum() {
        let sum = "abcdef0123456789";
        let cases = [
            (
                "https://a/debian-13-genericcloud-amd64.qcow2",
                "debian-13-genericcloud-amd64-abcdef012345.qcow2",
            ),
            (
                "https://a/noble-server-cloudimg-amd64.img?x=1",
                "noble-server-cloudimg-amd64-abcdef012345.qcow2",
            ),
            ("https://a/disk.raw", "disk-abcdef012345.raw"),
            ("https://a/b%20c.qcow2", "b_20c-abcdef012345.qcow2"),
        ];
        for (url, file) in cases {
            assert_eq!(file_name(url, sum, FileKind::DiskImage), file);
        }
        let iso = file_name("https://a/ubuntu-24.04-live.iso?x", sum, FileKind::Iso);
        assert_eq!(iso, "ubuntu-24.04-live-abcdef012345.iso");
    }
}
