//! The simulator's door: HTTP, schema, access control.
