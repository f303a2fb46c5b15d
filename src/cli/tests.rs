//! The command line against a real service socket with a scripted herd.
