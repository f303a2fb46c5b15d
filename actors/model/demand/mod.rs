//! Demand of sources: how they are configured, what is reported of them, what their runners say.

pub mod report;
pub mod spec;
pub mod words;
