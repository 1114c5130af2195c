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
#[path = "loom/event_count.rs"]
mod event_count;
#[path = "loom/futex.rs"]
mod futex;
#[path = "loom/mutex.rs"]
mod mutex;
#[path = "loom/owned.rs"]
mod owned;
#[path = "loom/owner.rs"]
mod owner;
#[path = "loom/published.rs"]
mod published;
#[path = "loom/reader_epochs.rs"]
mod reader_epochs;
#[path = "loom/retired.rs"]
mod retired;
#[path = "loom/rwlock.rs"]
mod rwlock;
#[path = "loom/shared.rs"]
mod shared;
#[path = "loom/slots.rs"]
mod slots;

use std::panic::{AssertUnwindSafe, catch_unwind};

use loom::model::Builder;

/// Every interleaving.
fn every(model: impl Fn() + Send + Sync + 'static) {
    Builder::new().check(model);
}

/// Every interleaving with at most `preemptions` switches away from a thread that could go on.
fn bounded(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

/// Loom must find fault with the model; what it says must contain one of `complaints`.
fn refused(complaints: &[&str], model: impl Fn() + Send + Sync + 'static) {
    let checked = catch_unwind(AssertUnwindSafe(|| bounded(3, model)));
    let payload = checked.expect_err("loom passed a model that is broken on purpose");
    let said = payload
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| payload.downcast_ref::<&str>().copied())
        .unwrap_or("");
    assert!(
        complaints.iter().any(|complaint| said.contains(complaint)),
        "loom refused the model, but for another reason: {said}"
    );
}

/// What loom says when two accesses to a cell are not ordered.
const RACE: &[&str] = &["Causality violation"];
/// What loom says when every thread that is left sleeps.
const DEADLOCK: &[&str] = &["deadlock"];
