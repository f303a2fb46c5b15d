//! Tests of the mind.
