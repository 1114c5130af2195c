//! The binary: it sets the allocator and calls the library of this package.

use std::process::ExitCode;

/// The allocator. A daemon that serves swap space has its memory locked.
#[global_allocator]
static HEAP: host::Heap = host::Heap;

fn main() -> ExitCode {
    cli::main()
}
