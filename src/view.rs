//! The read side, folded from facts.
