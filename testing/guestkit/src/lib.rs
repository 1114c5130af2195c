//! The parts of the guest's programs. `hog` fills memory with pages and checks them. `mon` prints
//! the state of the machine's memory every few seconds. `halt` stops a process for a while,
//! and `hush` a device. `nbdlink` gives the kernel's NBD client its connections. `first` is PID 1.
//! `docs/internals/testing.md` says how to start the guest.
//!
//! * [`pattern`]: the contents of a page.
//! * [`lossy`]: memory that detects and counts lost pages.
//! * [`order`]: the order in which a program visits pages.
//! * [`proc`]: a reader of `/proc` that allocates no memory.
//! * [`mapped`]: a mapped device that is suspended for a while.
//! * [`process`]: the system calls by which a program protects itself and stops another process.
//! * [`options`]: the command line of the programs.

pub mod lossy;
pub mod mapped;
pub mod options;
pub mod order;
pub mod pattern;
pub mod proc;
pub mod process;
