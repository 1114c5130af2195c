//! A step before each operation on an atomic, at which the process can end: a test looks at what it
//! left in memory that outlives it.

use core::sync::atomic::{AtomicU64, Ordering};

/// Steps until the process ends; 0: it goes on.
static ENDS_AFTER: AtomicU64 = AtomicU64::new(0);

/// Lets the process end (without any clean-up) before step `steps` from now, counted from 1; 0
/// never. Returns how many steps were left. One thread makes steps.
pub fn end_after(steps: u64) -> u64 {
    ENDS_AFTER.swap(steps, Ordering::Relaxed)
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
