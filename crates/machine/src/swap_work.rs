//! The background work of a cache of swap areas.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use zswap::{Work, Zswap};

/// The time before the next try when nothing could be written back.
const LATER: Duration = Duration::from_millis(100);

/// Writes pages back when the cache comes near its limit, until `ended` receives or closes. A
/// notification of the event of the cache wakes it. Before each step it calls `other`, for what
/// else may wait for devices. A thread of the caller does nothing else.
pub fn work_of_swap(zswap: &Zswap, ended: &Receiver<()>, other: impl Fn()) {
    let is_ended = |time| ended.recv_timeout(time) != Err(RecvTimeoutError::Timeout);
    loop {
        let ticket = zswap.event().ticket();
        if is_ended(Duration::ZERO) {
            return;
        }
        other();
        match zswap.work(host::cpu()) {
            Work::Again => {}
            Work::Later if is_ended(LATER) => return,
            Work::Later => {}
            Work::Idle => zswap.event().wait(ticket),
        }
    }
}
