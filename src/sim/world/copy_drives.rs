//! Copying drives: link a volume to a base, or copy its bytes and log the progress.

use std::sync::Arc;
use std::time::Duration;

use super::Cluster;
use super::clone::CloneJob;
use super::conf::{self, Drive, print_size};
use super::storage::{Storage, VolumePurpose, VolumeRequest, volume_name};
use super::worker::Worker;

impl Cluster {
    /// Copies one drive for a clone; returns the drive of the clone.
    pub(super) async fn copy_drive(
        self: &Arc<Self>,
        worker: &Worker,
        job: &CloneJob,
        key: &str,
        drive: &Drive,
    ) -> Result<Drive, String> {
        let volid = drive.file.clone();
        let mut copy = drive.clone();
        copy.options.remove("snapshot");
        if !job.full && !drive.is_cloudinit() && !key.starts_with("tpmstate") {
            worker.log(format!("create linked clone of drive {key} ({volid})"));
            copy.file = self.link_drive(worker, job, &volid).await?;
            return Ok(copy);
        }
        worker.log(format!("create full clone of drive {key} ({volid})"));
        let (file, size) = self.copy_volume(worker, job, drive).await?;
        copy.file = file;
        copy.options.insert("size".into(), print_size(size));
        Ok(copy)
    }

    async fn link_drive(
        self: &Arc<Self>,
        worker: &Worker,
        job: &CloneJob,
        base: &str,
    ) -> Result<String, String> {
        let storage = conf::storage_name(base).unwrap_or_default().to_owned();
        let spread = self.latency.clone_linked;
        let created = self.with_storage_lock(&job.node, &storage, Some(worker), spread, |state| {
            let now = state.clock.unix();
            state.storage_mut(&storage)?.link(&job.node, base, job.newid, now)
        });
        let (volid, lines) = created.await?;
        lines.iter().for_each(|line| worker.log(line));
        Ok(volid)
    }

    async fn copy_volume(
        self: &Arc<Self>,
        worker: &Worker,
        job: &CloneJob,
        drive: &Drive,
    ) -> Result<(String, u64), String> {
        let own = drive.storage().unwrap_or_default();
        let storage = job.storage.as_deref().unwrap_or(own).to_owned();
        let request = self.volume_request(job, drive, &storage)?;
        let cloudinit = request.purpose == VolumePurpose::Cloudinit;
        let size = request.size;
        let spread = self.latency.allocate;
        let created = self.with_storage_lock(&job.node, &storage, Some(worker), spread, |state| {
            let now = state.clock.unix();
            state.storage_mut(&storage)?.allocate(&job.node, &request, now)
        });
        let (volid, line) = created.await?;
        worker.log(line);
        if !cloudinit
            && let Err(error) = self.transfer(worker, &drive.file, &volid, job.bandwidth_kib).await
        {
            self.free_volumes(&job.node, &[volid], None).await;
            return Err(error);
        }
        Ok((volid, size))
    }

    fn volume_request(
        &self,
        job: &CloneJob,
        drive: &Drive,
        storage: &str,
    ) -> Result<VolumeRequest, String> {
        let state = self.state();
        let target = state.storage(storage)?;
        let Some(volume) = state.storage_of(&drive.file)?.volume(&job.node, &drive.file) else {
            return Err(format!("volume '{}' does not exist", drive.file));
        };
        let purpose =
            if drive.is_cloudinit() { VolumePurpose::Cloudinit } else { VolumePurpose::Disk };
        let wanted = job.format.clone().unwrap_or_else(|| volume.format.clone());
        let format = target.has_format(&wanted).then_some(wanted);
        Ok(VolumeRequest { vmid: job.newid, purpose, format, size: volume.size })
    }

    /// Waits as long as copying a volume takes, without the storage lock, and logs the progress.
    pub(crate) async fn transfer(
        &self,
        worker: &Worker,
        from: &str,
        to: &str,
        bandwidth_kib: Option<u64>,
    ) -> Result<(), String> {
        let (size, command, mut span) = {
            let mut state = self.state();
            let source = state.storage_of(from)?;
            let size = source.volume(&worker.node, from).map_or(0, |volume| volume.size);
            let command = convert_command(source, from, state.storage_of(to)?, to, bandwidth_kib);
            let slow = state.faults.slowness(&worker.node);
            let rate = self.latency.copy_bytes_per_second;
            (size, command, rate.transfer(size, &mut state.random).mul_f64(slow))
        };
        if let Some(limit) = bandwidth_kib {
            span = span.max(Duration::from_secs_f64(size as f64 / (limit * 1024) as f64));
        }
        worker.log(progress(0, size));
        // A few steps make the log grow without a timer for each percent.
        let steps = if span < Duration::from_secs(2) { 1 } else { 8 };
        for step in 1..=steps {
            if !worker.sleep(span / steps).await {
                return Err(format!(
                    "copy failed: command '{command}' failed: interrupted by signal"
                ));
            }
            worker.log(progress(size * u64::from(step) / u64::from(steps), size));
        }
        Ok(())
    }
}

/// The `qemu-img` command line in Proxmox's error messages.
fn convert_command(
    source: &Storage,
    from: &str,
    target: &Storage,
    to: &str,
    bandwidth_kib: Option<u64>,
) -> String {
    let path_of = |storage: &Storage, volid: &str| {
        if storage.is_file_based() {
            storage.path(volid)
        } else {
            format!("/dev/pve/{}", volume_name(volid))
        }
    };
    let format =
        |volid: &str| volid.rsplit_once('.').map_or("raw", |(_, suffix)| suffix).to_owned();
    let rate = bandwidth_kib.map(|limit| format!("-r {limit}K ")).unwrap_or_default();
    format!(
        "/usr/bin/qemu-img convert -p -n {rate}-f {} -O {} {} zeroinit:{}",
        format(from),
        format(to),
        path_of(source, from),
        path_of(target, to)
    )
}

fn progress(done: u64, size: u64) -> String {
    let percent = if size == 0 { 100.0 } else { done as f64 * 100.0 / size as f64 };
    format!("transferred {} of {} ({percent:.2}%)", human_size(done), human_size(size))
}

fn human_size(bytes: u64) -> String {
    let mut value = bytes as f64;
    let mut unit = "B";
    for larger in ["KiB", "MiB", "GiB", "TiB"] {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = larger;
    }
    format!("{value:.1} {unit}")
}
