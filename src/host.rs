//! How this machine is called.

/// The name of this machine; empty where the system does not say it.
pub fn host_name() -> String {
    let text = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    text.trim().to_owned()
}
