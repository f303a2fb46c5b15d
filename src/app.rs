//! The only place where parts are joined: start order, drain, stop.
