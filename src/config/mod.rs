//! The YAML, checked and watched.
