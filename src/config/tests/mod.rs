//! The whole configuration from text to spec: defaults, faults, layers, the files in `configs/`.
