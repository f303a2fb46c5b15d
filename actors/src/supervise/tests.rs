//! Tests of supervision.
