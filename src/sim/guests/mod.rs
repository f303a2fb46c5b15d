//! The insides of simulated guests.
