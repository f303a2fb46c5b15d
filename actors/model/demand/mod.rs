//! Demand of sources: how they are configured, what is told of them, what their runners say.

pub mod report;
pub mod spec;
pub mod words;
