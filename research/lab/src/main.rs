//! The program `rampack-lab`.

use std::process::ExitCode;

fn main() -> ExitCode {
    lab::main()
}
