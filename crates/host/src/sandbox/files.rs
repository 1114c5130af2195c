//! Refuses to open files, by landlock(7).
//!
//! The filter of calls refuses most of this too. Landlock also holds where no filter looks: an
//! io_uring can open files without a call of open(2).

use std::io;

use landlock::{
    ABI, Access, AccessFs, AccessNet, Ruleset, RulesetAttr, RulesetError, RulesetStatus,
};

/// Does landlock refuse to open files?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoFiles {
    /// The process chose no sandbox.
    NotAsked,
    /// The kernel has no landlock (Linux 5.13, and `landlock` among its security modules).
    NoLandlock,
    /// Files cannot be opened; the kernel knows some rights less than this program.
    Partly,
    /// Files cannot be opened, nor TCP connections made.
    Fully,
}

fn failed(error: &RulesetError) -> io::Error {
    io::Error::other(format!("landlock: {error}"))
}

/// The latest version of landlock that this asks for. An older kernel does what it knows.
const VERSION: ABI = ABI::V5;

/// The calling thread, and those that it starts, open no file any more.
pub(super) fn open_none() -> io::Result<NoFiles> {
    let rules = Ruleset::default()
        .handle_access(AccessFs::from_all(VERSION))
        .and_then(|rules| rules.handle_access(AccessNet::from_all(VERSION)))
        .and_then(Ruleset::create)
        .and_then(|rules| rules.restrict_self());
    match rules.map_err(|error| failed(&error))?.ruleset {
        RulesetStatus::FullyEnforced => Ok(NoFiles::Fully),
        RulesetStatus::PartiallyEnforced => Ok(NoFiles::Partly),
        RulesetStatus::NotEnforced => Ok(NoFiles::NoLandlock),
    }
}

/// What [`open_none`] would return, without an effect on the calling thread.
pub(super) fn known() -> io::Result<NoFiles> {
    let asked = std::thread::Builder::new().name("sandbox-trial".into()).spawn(open_none)?;
    asked.join().unwrap_or_else(|_| Err(io::Error::other("the trial panicked")))
}
