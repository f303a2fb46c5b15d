//! Software emulation, or the hardware's own virtualisation once it has proved itself.
//!
//! A present `/dev/kvm` proves nothing: on some nested hosts guests start under it and then hang.
//! So a guest is booted from an image first, and its agent must open its port in time.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::{Inner, QemuError};
use crate::guest::GuestBoot;

/// How long the probe's guest may take to boot, many times what it takes under KVM.
const PROBE_TIMEOUT: Duration = Duration::from_secs(20);
const PROBE_LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// No guest of a cluster has this VMID.
const PROBE_VMID: u32 = 0;

/// How QEMU runs a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Accelerator {
    /// Software emulation (TCG).
    Emulation,
    Kvm,
}

/// Which accelerator is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AcceleratorChoice {
    /// Software emulation, which works everywhere.
    #[default]
    Tcg,
    /// KVM, and no simulator without it.
    Kvm,
    /// KVM where a guest boots under it, else software emulation.
    Auto,
}

impl Inner {
    /// Settles which accelerator guests get.
    pub(super) async fn choose_accelerator(
        &self,
        choice: AcceleratorChoice,
    ) -> Result<Accelerator, QemuError> {
        match choice {
            AcceleratorChoice::Tcg => return Ok(Accelerator::Emulation),
            AcceleratorChoice::Kvm | AcceleratorChoice::Auto => {}
        }
        match (self.probe_kvm().await, choice) {
            (Ok(()), _) => Ok(Accelerator::Kvm),
            (Err(reason), AcceleratorChoice::Kvm) => Err(QemuError::Kvm(reason)),
            (Err(reason), AcceleratorChoice::Auto | AcceleratorChoice::Tcg) => {
                tracing::warn!(%reason, "guests are emulated: none boots under KVM");
                Ok(Accelerator::Emulation)
            }
        }
    }

    async fn probe_kvm(&self) -> Result<(), String> {
        let image = self.images.first().ok_or("there is no image to boot")?;
        let config = [("scsi0", "probe:disk"), ("agent", "1"), ("boot", "order=scsi0")];
        let boot = GuestBoot {
            vmid: PROBE_VMID,
            node: String::new(),
            hostname: "probe".to_owned(),
            config: config.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
            mac: None,
            boot: 1,
            resumed: false,
            config_from_disc: false,
            discs: Vec::new(),
        };
        let disk = self.disks.overlay(image).await?;
        let disks = BTreeMap::from([("scsi0".to_owned(), disk)]);
        let machine = self.launch(&boot, &disks, None, Accelerator::Kvm).await?;
        let booted = timeout(PROBE_TIMEOUT, async {
            while machine.is_running() {
                if machine.agent_has_opened().await {
                    return Ok(());
                }
                sleep(PROBE_LOOK_INTERVAL).await;
            }
            Err("QEMU ended".to_owned())
        });
        let outcome = booted.await;
        machine.kill();
        outcome.unwrap_or_else(|_| {
            Err(format!("a guest did not boot within {} s", PROBE_TIMEOUT.as_secs()))
        })
    }
}
