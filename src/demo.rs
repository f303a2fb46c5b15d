//! `drover demo`: the simulated cluster and a herd on it.
