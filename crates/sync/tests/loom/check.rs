//! What loom is asked about a model, and what it must say. The models of `research` use it, too.

use std::panic::{AssertUnwindSafe, catch_unwind};

use loom::model::Builder;

/// Every interleaving.
pub fn every(model: impl Fn() + Send + Sync + 'static) {
    Builder::new().check(model);
}

/// Every interleaving with at most `preemptions` switches away from a thread that could go on.
pub fn bounded(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

/// Loom must find fault with the model; what it says must contain one of `complaints`.
pub fn refused(complaints: &[&str], model: impl Fn() + Send + Sync + 'static) {
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
pub const RACE: &[&str] = &["Causality violation"];
/// What loom says when every thread that is left sleeps.
pub const DEADLOCK: &[&str] = &["deadlock"];
