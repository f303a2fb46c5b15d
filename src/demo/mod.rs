//! `drover demo`: a simulated cluster, the real service on it, and a small batch of real jobs.

pub mod board;
pub mod jobs;
pub mod waterfall;
