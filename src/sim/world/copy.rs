//! Copying drives: linking to a base, or moving the bytes with their progress in the log.

use std::sync::Arc;
use std::time::Duration;

use super::Cluster;
use super::clone::Job;
use super::conf::{self, Drive, print_size};
use super::storage::{Order, Purpose, Storage, name_of};
use super::worker::Worker;

impl Cluster {
    /// Copies one drive for a clone: the drive as the clone has it.
    pub(super) async fn copy_drive(
        self: &Arc<Self>,
        worker: &Worker,
        job: &Job,
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
        job: &Job,
        base: &str,
    ) -> Result<String, String> {
        let storage = conf::storage_of(base).unwrap_or_default().to_owned();
        let spread = self.latency.clone_linked;
        let made = self.in_storage(&job.node, &storage, Some(worker), spread, |state| {
            let now = state.clock.unix();
            state.storage_mut(&storage)?.link(&job.node, base, job.newid, now)
        });
        let (volid, lines) = made.await?;
        lines.iter().for_each(|line| worker.log(line));
        Ok(volid)
    }

    async fn copy_volume(
        self: &Arc<Self>,
        worker: &Worker,
        job: &Job,
        drive: &Drive,
    ) -> Result<(String, u64), String> {
        let own = drive.storage().unwrap_or_default();
        let storage = job.storage.as_deref().unwrap_or(own).to_owned();
        let order = self.order_copy(job, drive, &storage)?;
        let cloudinit = order.purpose == Purpose::Cloudinit;
        let size = order.size;
        let spread = self.latency.allocate;
        let made = self.in_storage(&job.node, &storage, Some(worker), spread, |state| {
            let now = state.clock.unix();
            state.storage_mut(&storage)?.allocate(&job.node, &order, now)
        });
        let (volid, line) = made.await?;
        worker.log(line);
        if !cloudinit
            && let Err(error) = self.transfer(worker, &drive.file, &volid, job.bandwidth).await
        {
            self.free_all(&job.node, &[volid], None).await;
            return Err(error);
        }
        Ok((volid, size))
    }

    fn order_copy(&self, job: &Job, drive: &Drive, storage: &str) -> Result<Order, String> {
        let state = self.state();
        let target = state.storage(storage)?;
        let Some(volume) = state.storage_of(&drive.file)?.volume(&job.node, &drive.file) else {
            return Err(format!("volume '{}' does not exist", drive.file));
        };
        let purpose = if drive.is_cloudinit() { Purpose::Cloudinit } else { Purpose::Disk };
        let wanted = job.format.clone().unwrap_or_else(|| volume.format.clone());
        let format = target.has_format(&wanted).then_some(wanted);
        Ok(Order { vmid: job.newid, purpose, format, size: volume.size })
    }

    /// Copies data from volume to volume without holding the storage lock.
    pub(crate) async fn transfer(
        &self,
        worker: &Worker,
        from: &str,
        to: &str,
        bandwidth: Option<u64>,
    ) -> Result<(), String> {
        let (size, command, mut span) = {
            let mut state = self.state();
            let source = state.storage_of(from)?;
            let size = source.volume(&worker.node, from).map_or(0, |volume| volume.size);
            let command = convert(source, from, state.storage_of(to)?, to, bandwidth);
            let slow = state.faults.slowness(&worker.node);
            let rate = self.latency.copy_bytes_per_second;
            (size, command, rate.transfer(size, &mut state.dice).mul_f64(slow))
        };
        if let Some(limit) = bandwidth {
            span = span.max(Duration::from_secs_f64(size as f64 / (limit * 1024) as f64));
        }
        worker.log(progress(0, size));
        // Few steps: a log that grows, without a timer for each percent.
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

/// The command line that copies a volume.
fn convert(
    source: &Storage,
    from: &str,
    target: &Storage,
    to: &str,
    bandwidth: Option<u64>,
) -> String {
    let place = |storage: &Storage, volid: &str| {
        if storage.is_files() {
            storage.path(volid)
        } else {
            format!("/dev/pve/{}", name_of(volid))
        }
    };
    let format =
        |volid: &str| volid.rsplit_once('.').map_or("raw", |(_, suffix)| suffix).to_owned();
    let rate = bandwidth.map(|limit| format!("-r {limit}K ")).unwrap_or_default();
    format!(
        "/usr/bin/qemu-img convert -p -n {rate}-f {} -O {} {} zeroinit:{}",
        format(from),
        format(to),
        place(source, from),
        place(target, to)
    )
}

fn progress(done: u64, size: u64) -> String {
    let percent = if size == 0 { 100.0 } else { done as f64 * 100.0 / size as f64 };
    format!("transferred {} of {} ({percent:.2}%)", human(done), human(size))
}

fn human(bytes: u64) -> String {
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
