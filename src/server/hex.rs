//! Bytes as text.

/// Bytes as hexadecimal digits, lower case.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
