//! The simulated cluster itself: nodes, storages, guests, tasks, locks.
