//! drover's entry: arguments in, exit code out.

fn main() {}
