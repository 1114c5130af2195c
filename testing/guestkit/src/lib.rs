//! What the programs of the guest are made of: `hog` fills memory with pages that it can check and
//! checks them, `mon` says every few seconds how the machine's memory is, `halt` stops a process
//! for a while. `docs/TESTING.md` says how the guest is started.
//!
//! * [`pattern`]: what is in a page.
//! * [`lossy`]: memory in which pages may be lost, which is found out and counted.
//! * [`order`]: in which order pages are visited.
//! * [`proc`]: reading `/proc` without asking for memory.
//! * [`process`]: what a program does to watch without memory, and to stop another.
//! * [`options`]: the command line of both programs.

pub mod lossy;
pub mod options;
pub mod order;
pub mod pattern;
pub mod proc;
pub mod process;
