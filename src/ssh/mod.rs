//! SSH into agents.
