//! Readiness, watchdog and status towards systemd.
