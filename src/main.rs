//! drover's entry: arguments in, exit code out.

use std::process::ExitCode;

fn main() -> ExitCode {
    drover::cli::main()
}
