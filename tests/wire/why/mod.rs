//! What an operator reads at night: the answer of `drover why` (or of the command that a case is about)
//! beside the lines of the journal and the way to the cause on the page, one case a test, each as a golden text.

mod capacity;
mod clusters;
mod guests;
mod seat;
mod stage;
mod stand;
