//! The locks and readers of this crate under loom, which tries every interleaving of a few threads
//! and every value a weakly ordered load may return.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p rampack-sync --test loom --release`, in a target
//! directory of its own. Without `--cfg loom` this file is empty.
//!
//! Parking is modelled (see `park.rs`): a sleeper is blocked until it is woken, so a wake-up that
//! gets lost is a deadlock, and loom reports it. What a lock guards is a [`loom::cell::UnsafeCell`],
//! so an access that is not ordered after the one before it is reported even when the two never
//! overlap in time.
//!
//! Each protocol has negative controls: copies with one flaw, which loom must refuse. Beside them
//! the same copy without a flaw must pass, so that it is the flaw that is refused.
//!
//! What loom cannot say: it treats a `SeqCst` access as `AcqRel` (the crate has none, only `SeqCst`
//! fences), and orders two such fences as if a lock were passed from one to the other, which is more
//! than the language promises: a race between what only they keep apart is not seen. A weak
//! compare-exchange never fails for no reason, and parking orders sleeper and waker. On x86
//! `barrier_after_rmw` holds back only the compiler; the model checks the fence that it is elsewhere.
//! Three threads are bounded to two or three preemptions, two mostly are not bounded.
#![cfg(loom)]

#[path = "loom/bitlock.rs"]
mod bitlock;
#[path = "loom/check.rs"]
mod check;
#[path = "loom/event_count.rs"]
mod event_count;
#[path = "loom/futex.rs"]
mod futex;
#[path = "loom/mutex.rs"]
mod mutex;
#[path = "loom/published.rs"]
mod published;
#[path = "loom/reader_epochs.rs"]
mod reader_epochs;
#[path = "loom/retired.rs"]
mod retired;

use check::{DEADLOCK, RACE, bounded, every, refused};
