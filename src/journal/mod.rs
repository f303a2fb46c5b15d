//! The compare-and-set journal.
