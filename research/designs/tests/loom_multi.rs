//! The policy `multi` under loom: its list, its reservations and its queue.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p rampack-designs --test loom_multi --release`, in a target
//! directory of its own. Without `--cfg loom` this file is empty. Parking is modelled by the crate
//! `sync`: a wake-up that is lost is a deadlock, and loom reports it.
//!
//! Beside it a copy with one flaw at a time, which loom must refuse, and which passes without one.
#![cfg(loom)]

#[path = "loom_multi/copy.rs"]
mod copy;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use copy::{Copy, Flaw};
use designs::streams::MultiStreams;
use loom::model::Builder;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;
use units::{Cpu, Page};
use zcomp::{CodecError, Compressor, Context, Corrupt, Streams};

/// A manner of allocating: the crate's, or a copy with a flaw.
trait Manner: Send + Sync + 'static {
    /// Runs `work` with a stream.
    fn with(&self, work: impl FnOnce());
    fn limit(&self, count: usize);
    fn count(&self) -> usize;
}

impl Manner for MultiStreams {
    fn with(&self, work: impl FnOnce()) {
        let _stream = self.get(Cpu(0));
        work();
    }
    fn limit(&self, count: usize) {
        Streams::limit(self, count).expect("any number will do");
    }
    fn count(&self) -> usize {
        Streams::count(self)
    }
}

/// A codec with memory for so many contexts.
struct Codec(AtomicUsize);

impl Codec {
    fn with_memory_for(contexts: usize) -> Arc<Codec> {
        Arc::new(Codec(AtomicUsize::new(contexts)))
    }

    fn take_memory(&self) -> bool {
        let less = |left: usize| left.checked_sub(1);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }
}

impl Compressor for Codec {
    fn name(&self) -> &'static str {
        "codec"
    }
    fn context(&self) -> Result<Box<dyn Context>, CodecError> {
        if self.take_memory() { Ok(Box::new(Nothing)) } else { Err(CodecError("none".into())) }
    }
}

struct Nothing;

impl Context for Nothing {
    fn compress(&mut self, _: &Page, _: &mut [u8]) -> Option<usize> {
        None
    }
    fn decompress(&mut self, _: &[u8], _: &mut Page) -> Result<(), Corrupt> {
        Err(Corrupt)
    }
}

/// Threads that use streams, and how many may do so at once.
struct StreamUsers<M> {
    streams: M,
    users: AtomicUsize,
    most: usize,
}

impl<M: Manner> StreamUsers<M> {
    fn new(streams: M, most: usize) -> Arc<StreamUsers<M>> {
        Arc::new(StreamUsers { streams, users: AtomicUsize::new(0), most })
    }

    fn use_one(&self) {
        self.streams.with(|| {
            let users = self.users.fetch_add(1, Ordering::Relaxed) + 1;
            assert!(users <= self.most, "too many streams are allocated");
            self.users.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

/// `users` threads use a stream each, while this one does `meanwhile` and then the same.
fn run<M: Manner>(stream_users: &Arc<StreamUsers<M>>, users: usize, meanwhile: impl FnOnce(&M)) {
    let others: Vec<_> = (0..users)
        .map(|_| {
            let stream_users = stream_users.clone();
            thread::spawn(move || stream_users.use_one())
        })
        .collect();
    meanwhile(&stream_users.streams);
    stream_users.use_one();
    others.into_iter().for_each(|other| other.join().expect("no thread of the model panics"));
}

fn bounded(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

fn multi(limit: usize, memory: usize) -> MultiStreams {
    let codec: Arc<dyn Compressor> = Codec::with_memory_for(memory);
    MultiStreams::new(&codec, limit).expect("there is memory for the first one")
}

#[test]
fn one_stream_is_passed_on() {
    bounded(3, || run(&StreamUsers::new(multi(1, 1), 1), 1, |_| {}));
    bounded(2, || run(&StreamUsers::new(multi(1, 1), 1), 2, |_| {}));
}

#[test]
fn streams_are_made_up_to_the_limit() {
    bounded(2, || {
        let stream_users = StreamUsers::new(multi(2, 9), 2);
        run(&stream_users, 2, |_| {});
        assert!((1..=2).contains(&Manner::count(&stream_users.streams)));
    });
}

#[test]
fn without_memory_everybody_waits_for_a_turn() {
    bounded(3, || run(&StreamUsers::new(multi(2, 1), 1), 1, |_| {}));
    bounded(2, || run(&StreamUsers::new(multi(3, 1), 1), 2, |_| {}));
}

#[test]
fn a_limit_may_be_raised_under_those_who_wait() {
    bounded(2, || {
        run(&StreamUsers::new(multi(1, 2), 2), 2, |streams| Manner::limit(streams, 2));
    });
}

/// Lowers the limit to one with a stream in hand, which comes back then.
fn lower_while_lent(streams: &impl Manner) {
    streams.with(|| streams.limit(1));
}

#[test]
fn a_limit_may_be_lowered_under_those_who_grow() {
    for memory in [1, 2] {
        bounded(3, move || {
            let stream_users = StreamUsers::new(multi(2, memory), 2);
            run(&stream_users, 1, lower_while_lent);
            assert_eq!(Manner::count(&stream_users.streams), 1);
        });
        bounded(2, move || {
            run(&StreamUsers::new(multi(2, memory), 2), 2, |streams| Manner::limit(streams, 1));
        });
    }
}

fn copies(flaw: Flaw) {
    let copy = move |limit, memory| Copy::new(flaw, limit, Codec::with_memory_for(memory));
    bounded(3, move || run(&StreamUsers::new(copy(1, 0), 1), 1, |_| {}));
    bounded(3, move || {
        run(&StreamUsers::new(copy(2, 0), 2), 1, lower_while_lent);
    });
    bounded(3, move || {
        run(&StreamUsers::new(copy(2, 1), 2), 1, lower_while_lent);
    });
    bounded(3, move || run(&StreamUsers::new(copy(2, 2), 2), 2, |_| {}));
}

fn refused(flaw: Flaw, complaint: &str) {
    let checked = catch_unwind(AssertUnwindSafe(|| copies(flaw)));
    let payload = checked.expect_err("loom passed a model that is broken on purpose");
    let said = payload
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| payload.downcast_ref::<&str>().copied())
        .unwrap_or("");
    assert!(said.contains(complaint), "loom refused the model, but for another reason: {said}");
}

#[test]
fn a_faithful_copy_passes() {
    copies(Flaw::None);
}

#[test]
fn forgetting_to_ring_is_found() {
    refused(Flaw::NeverRings, "deadlock");
}

#[test]
fn a_ticket_taken_too_late_is_found() {
    refused(Flaw::LateTicket, "deadlock");
}

/// As Linux 3.15 did.
#[test]
fn counting_a_stream_that_is_not_there_yet_is_found() {
    refused(Flaw::CountsReservations, "deadlock");
}

#[test]
fn growing_without_a_reservation_is_found() {
    refused(Flaw::ReservesNothing, "too many streams are allocated");
}
