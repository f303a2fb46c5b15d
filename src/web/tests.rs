//! The API over real sockets, with a scripted herd.
