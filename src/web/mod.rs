//! The lease API and the status routes.
