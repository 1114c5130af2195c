//! Tells a service manager that the daemon is ready, that it stops, and that it is alive
//! (sd_notify(3), sd_watchdog_enabled(3)).
//!
//! Without `NOTIFY_SOCKET` in the environment nothing here does anything. It names a socket by a
//! path, or, with `@` in front, by an abstract name.

use std::env;
use std::ffi::OsString;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use kept::Store;

const SOCKET: &str = "NOTIFY_SOCKET";
/// The longest time before a daemon that did not answer, or was not heard, is asked again.
const SOON: Duration = Duration::from_secs(1);

/// How long a service manager that does not read is waited for. Without a `READY=1` it ends the
/// daemon, after 90 seconds if it is systemd.
const READY: Duration = Duration::from_secs(90);
const STOPPING: Duration = Duration::from_secs(1);

/// Tells that everything the daemon was started for is there.
pub fn ready() {
    tell("READY=1", READY);
}

/// Tells that the daemon ends, and that nothing will keep it from that.
pub fn stopping() {
    tell("STOPPING=1", STOPPING);
}

/// Was the service manager told, or is there none?
fn tell(state: &str, time: Duration) -> bool {
    let Some(address) = env::var_os(SOCKET) else { return true };
    let told = Store::at(&address).and_then(|manager| manager.tell(state, time));
    if let Err(error) = &told {
        tracing::warn!("cannot tell the service manager {state}: {error}");
    }
    told.is_ok()
}

/// Tells the service manager again and again that the daemon is alive, until it is dropped.
pub struct Watchdog {
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    /// Starts if the service manager wants to be told. `answers` says whether the daemon answers
    /// now; it may wait for the answer. It is asked twice in each time that the service manager
    /// waits, and soon again where the daemon did not answer.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn start(answers: impl Fn() -> bool + Send + 'static) -> io::Result<Watchdog> {
        let wanted = period(env::var_os("WATCHDOG_USEC"), env::var_os("WATCHDOG_PID"));
        let (Some(period), true) = (wanted, env::var_os(SOCKET).is_some()) else {
            return Ok(Watchdog { end: None, thread: None });
        };
        let (end, ended) = channel();
        let alive = move || prove(period, &ended, answers, || tell("WATCHDOG=1", Duration::ZERO));
        let thread = thread::Builder::new().name("watchdog".into()).spawn(alive)?;
        Ok(Watchdog { end: Some(end), thread: Some(thread) })
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.end = None;
        if let Some(thread) = self.thread.take() {
            // The panic hook has reported the panic of the thread.
            let _ = thread.join();
        }
    }
}

/// Gives `sign`, which says whether it was heard, for each answer, until `ended` is.
fn prove(
    period: Duration,
    ended: &Receiver<()>,
    answers: impl Fn() -> bool,
    sign: impl Fn() -> bool,
) {
    loop {
        let next = match answers() && sign() {
            true => period / 2,
            false => (period / 2).min(SOON),
        };
        if ended.recv_timeout(next) != Err(RecvTimeoutError::Timeout) {
            return;
        }
    }
}

/// How long the service manager waits for a sign of life; `None` if it does not wait for this
/// process.
fn period(usec: Option<OsString>, pid: Option<OsString>) -> Option<Duration> {
    let number = |text: OsString| text.to_str()?.parse::<u64>().ok();
    if pid.is_some_and(|pid| number(pid) != Some(std::process::id().into())) {
        return None;
    }
    usec.and_then(number).filter(|usec| *usec > 0).map(Duration::from_micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_sign_for_each_answer_and_for_nothing_else() {
        use std::cell::RefCell;
        let answers = [true, false, false, true, true, false];
        let (end, ended) = channel();
        let (end, seen) = (RefCell::new(Some(end)), RefCell::new(String::new()));
        let answer = || {
            let asked = seen.borrow().matches(['y', 'n']).count();
            if asked + 1 == answers.len() {
                *end.borrow_mut() = None;
            }
            seen.borrow_mut().push(if answers[asked] { 'y' } else { 'n' });
            answers[asked]
        };
        let sign = || {
            seen.borrow_mut().push('!');
            true
        };
        prove(Duration::from_millis(2), &ended, answer, sign);
        assert_eq!(*seen.borrow(), "y!nny!y!n");
    }

    #[test]
    fn a_watchdog_is_for_the_process_that_it_names() {
        let of = |usec: &str, pid: Option<u32>| {
            period(Some(usec.into()), pid.map(|pid| pid.to_string().into()))
        };
        let own = std::process::id();
        assert_eq!(of("3000000", None), Some(Duration::from_secs(3)));
        assert_eq!(of("3000000", Some(own)), Some(Duration::from_secs(3)));
        assert_eq!(of("3000000", Some(own + 1)), None);
        for text in ["0", "", "-1", "soon"] {
            assert_eq!(of(text, None), None, "{text}");
        }
        assert_eq!(period(None, None), None);
    }
}
