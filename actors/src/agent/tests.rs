//! Tests of the body.
