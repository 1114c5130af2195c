//! A step before each operation on an atomic, at which the process can end: a test looks at what it
//! left in memory that outlives it.

use core::sync::atomic::{AtomicU64, Ordering};

/// Steps until the process ends; 0: it goes on.
static ENDS_AFTER: AtomicU64 = AtomicU64::new(0);

/// Something that an engine does wrongly, so that a test of recovery must find it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flaw {
    /// A slot names an object whose bytes are not there yet.
    CommitsFirst,
    /// What a slot names is given up while the slot still names it.
    FreesFirst,
    /// The number of descriptors in use is not kept.
    ForgetsDescriptors,
    /// A new codec is not kept.
    ForgetsCodecs,
    /// A new size of a device is not kept.
    ForgetsSizes,
    /// A new limit of a memcg is not kept.
    ForgetsLimits,
    /// A page leaves the cache of swap areas before its device has it.
    LeavesFirst,
    /// A store that replaces a page ends before the new page is in its place.
    AnswersFirst,
    /// A slot names a part of a shared object that its entry does not have yet.
    NamesFirst,
    /// Recovery does not look at the life of an entry.
    IgnoresLives,
    /// What is known of the segments of a log is not kept.
    ForgetsSegments,
}

static FLAW: AtomicU64 = AtomicU64::new(0);

/// Lets the process end (without any clean-up) before step `steps` from now, counted from 1; 0
/// never. Returns how many steps were left. One thread makes steps.
pub fn end_after(steps: u64) -> u64 {
    ENDS_AFTER.swap(steps, Ordering::Relaxed)
}

/// Gives the engine a flaw.
pub fn set_flaw(flaw: Flaw) {
    FLAW.store(flaw as u64 + 1, Ordering::Relaxed);
}

/// Takes the flaw away.
pub fn set_no_flaw() {
    FLAW.store(0, Ordering::Relaxed);
}

/// Whether the engine has this flaw.
#[must_use]
pub fn has(flaw: Flaw) -> bool {
    FLAW.load(Ordering::Relaxed) == flaw as u64 + 1
}

/// The variable of the environment that names the file of [`point`].
pub const POINT: &str = "RAMPACK_KILL_POINT";

/// A named place in a program. If the file that [`POINT`] names has this name in it, the process
/// ends here; with the word `panics` behind the name, the thread panics. The file is removed first,
/// so the next process goes on.
///
/// # Panics
/// If it is asked for.
pub fn point(name: &str) {
    let Some(file) = std::env::var_os(POINT) else { return };
    let Ok(asked) = std::fs::read_to_string(&file) else { return };
    let (asked, how) = asked.split_once(' ').unwrap_or((&asked, ""));
    // Of several threads one removes it.
    if asked != name || std::fs::remove_file(&file).is_err() {
        return;
    }
    match how {
        "" => std::process::abort(),
        how => panic!("{name} {how}"),
    }
}

pub(super) fn step() {
    match ENDS_AFTER.load(Ordering::Relaxed) {
        0 => {}
        1 => std::process::abort(),
        left => ENDS_AFTER.store(left - 1, Ordering::Relaxed),
    }
}

pub(super) fn fails_for_no_reason() -> bool {
    false
}
