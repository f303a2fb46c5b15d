//! A scripted transport.
