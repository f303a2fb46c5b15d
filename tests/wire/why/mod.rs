//! What an operator reads at night: the answer of `drover why` (or of the command that a case is about)
//! beside the lines of the journal, one case a test, each as a golden text.

mod capacity;
mod clusters;
mod guests;
mod stage;
