//! The options of `rampack fsck`.

use clap::Args;

use super::values::number;

pub(super) const FSCK_NOTES: &str = "\
The devices of a daemon under `rampack keep`, or of a service with FileDescriptorStoreMax=, are in \
descriptors that outlive the daemon. This maps them privately and recovers them there, as the next \
daemon would, and tells what cannot be right. docs/internals/kept-state.md explains the \
numbers. It needs root, and memory for a part of the tables.

No daemon may serve meanwhile: it is dead and its keeper waits, or it is stopped.

Exit codes, as of fsck(8): 0 clean, 4 errors were found and left, 8 not checked, 2 the command \
line was wrong.

Example: kill -STOP PID; rampack fsck --pid PID; kill -CONT PID";

/// `rampack fsck`.
#[derive(Args, Debug)]
pub struct Fsck {
    /// The process that has the descriptors: the keeper, or a stopped daemon [default: the daemon
    /// of the root directory]
    #[arg(long, value_name = "PID", value_parser = number(1..=u32::MAX))]
    pub pid: Option<u32>,
    /// Read every page as well, those on backing devices included.
    #[arg(long)]
    pub contents: bool,
    /// Print one JSON object.
    #[arg(long, short = 'J')]
    pub json: bool,
}
