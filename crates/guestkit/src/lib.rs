//! What the programs of the guest are made of: `hog` fills memory with pages that it can check and
//! checks them, `mon` says every few seconds how the machine's memory is. `docs/TESTING.md` says
//! how the guest is started.
//!
//! * [`pattern`]: what is in a page.
//! * [`lossy`]: memory in which pages may be lost, which is found out and counted.
//! * [`order`]: in which order pages are visited.
//! * [`proc`]: reading `/proc` without asking for memory.
//! * [`options`]: the command line of both programs.

pub mod lossy;
pub mod options;
pub mod order;
pub mod pattern;
pub mod proc;
