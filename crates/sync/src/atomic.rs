//! The atomics of the workspace. Normally they are the processor's; under `--cfg loom` they are the
//! model checker's. Under `--cfg shuttle` and `--cfg killed` they are the processor's, with a step
//! before each operation, at which another thread runs or the process ends.

#[cfg(not(any(loom, shuttle, killed)))]
pub use core::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};
#[cfg(killed)]
pub mod killed;
#[cfg(shuttle)]
mod scheduled;
#[cfg(any(shuttle, killed))]
mod stepped;
#[cfg(loom)]
pub use loom::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};
#[cfg(shuttle)]
pub(crate) use scheduled::{in_an_execution, point};
#[cfg(any(shuttle, killed))]
pub use stepped::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};

/// A store-load barrier right after an atomic read-modify-write.
///
/// On x86 that instruction is itself a full barrier, so only the compiler is held back
/// (crossbeam-epoch relies on this too). Elsewhere, and under loom, this is a `SeqCst` fence.
#[inline]
pub fn barrier_after_rmw() {
    // Each caller's comment says what the barrier pairs with; this function only renames a fence.
    #[cfg(all(not(loom), any(target_arch = "x86_64", target_arch = "x86")))]
    core::sync::atomic::compiler_fence(Ordering::SeqCst);
    #[cfg(any(loom, not(any(target_arch = "x86_64", target_arch = "x86"))))]
    fence(Ordering::SeqCst);
}

/// Tells the processor that this thread waits for another thread.
#[inline]
pub fn spin_hint() {
    #[cfg(not(any(loom, shuttle)))]
    core::hint::spin_loop();
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(shuttle)]
    scheduled::let_others_run();
}
