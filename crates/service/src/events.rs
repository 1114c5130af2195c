//! Events of a running daemon: signals, and clients that ask it to end.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use control::ControlError;
use host::{ignore, is_ignored};
use signal_hook::SigId;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1};
use signal_hook::flag;
use signal_hook::iterator::{Handle, Signals};
use signal_hook::low_level::{emulate_default_handler, unregister};
use sync::atomic::{AtomicBool, Ordering};

use crate::failure::say;
use crate::successor::Successor;
use crate::swap::signals;

/// A request to end the daemon, or its program.
#[derive(Debug)]
pub enum Event {
    /// A signal: Ctrl-C.
    Signal,
    /// A signal of a service manager, or of `kill`: `SIGTERM`. Nobody sends it again.
    Terminated,
    /// A service manager is to restart the daemon: `SIGUSR1`, its `RestartKillSignal=`
    /// (systemd.kill(5)). It keeps what outlives the daemon; after a stop it does not.
    Restart,
    /// A client of the control socket asks, and waits for the answer.
    Asked {
        /// Take devices from their users.
        force: bool,
        /// The channel on which the client waits.
        reply: Sender<Result<(), ControlError>>,
    },
    /// A client asks for another program in place of this one.
    Upgrade {
        /// The program, which was checked.
        program: Successor,
        /// The channel on which the client waits for a refusal.
        reply: Sender<ControlError>,
    },
}

/// Receives events. `SIGINT`, `SIGTERM` and `SIGUSR1` are events until this is dropped. While the
/// process serves swap space, `SIGQUIT` is an event too, and Ctrl-Z does not suspend the process.
/// At other times both do what they usually do. A signal that the process was started to ignore, as
/// by nohup(1), stays ignored. `SIGHUP` is ignored from now on, also by another program in this
/// process: a terminal that is gone is no reason to give up what is stored.
pub struct Events {
    sender: Sender<Event>,
    receiver: Receiver<Event>,
    /// Those that were looked at, and come next.
    seen: RefCell<VecDeque<Event>>,
    /// A signal has come that may not be an event yet. The handler itself sets it.
    told: Arc<AtomicBool>,
    flags: Vec<SigId>,
    handle: Handle,
}

impl Events {
    /// Begins to listen. Call it before anything is made that a signal should clean up.
    ///
    /// # Errors
    /// The error of the system call.
    pub fn listen() -> io::Result<Events> {
        ignore(SIGHUP)?;
        let wanted = [SIGINT, SIGTERM, SIGUSR1, SIGQUIT, SIGTSTP];
        let is_heard = |signal: &i32| !is_ignored(*signal);
        let told = Arc::new(AtomicBool::new(false));
        let heard = [SIGINT, SIGTERM, SIGUSR1].into_iter().filter(is_heard);
        let flags = heard.map(|signal| flag::register(signal, told.clone()));
        let flags = flags.collect::<io::Result<_>>()?;
        let mut signals = Signals::new(wanted.into_iter().filter(is_heard))?;
        let handle = signals.handle();
        let (sender, receiver) = channel();
        let seen = RefCell::default();
        let events =
            Events { sender: sender.clone(), receiver, seen, told: told.clone(), flags, handle };
        thread::Builder::new().name("signals".into()).spawn(move || {
            for signal in signals.forever() {
                if !asks_for_the_end(signal) {
                    continue;
                }
                let event = match signal {
                    SIGTERM => Event::Terminated,
                    SIGUSR1 => Event::Restart,
                    _ => Event::Signal,
                };
                if sender.send(event).is_err() {
                    return;
                }
                // The event is there in its place: pairs with `has_signal`, which sees it then.
                told.store(false, Ordering::Release);
            }
        })?;
        Ok(events)
    }

    /// The channel to which other threads send events.
    #[must_use]
    pub fn sender(&self) -> Sender<Event> {
        self.sender.clone()
    }

    /// Is one of the next events a signal? One that has come to this process counts at once.
    #[must_use]
    pub fn has_signal(&self) -> bool {
        self.has(|event| !matches!(event, Event::Asked { .. } | Event::Upgrade { .. }))
    }

    /// Does one of the next events ask for the end? A signal counts as there.
    #[must_use]
    pub fn is_to_end(&self) -> bool {
        self.has(|event| !matches!(event, Event::Upgrade { .. }))
    }

    fn has(&self, which: impl Fn(&Event) -> bool) -> bool {
        // Pairs with the thread of the signals.
        if self.told.load(Ordering::Acquire) {
            return true;
        }
        let mut seen = self.seen.borrow_mut();
        seen.extend(self.receiver.try_iter());
        seen.iter().any(which)
    }

    /// The next event, or `None` when none came within `time`.
    #[must_use]
    pub fn wait(&self, time: Duration) -> Option<Event> {
        if let Some(event) = self.seen.borrow_mut().pop_front() {
            return Some(event);
        }
        match self.receiver.recv_timeout(time) {
            Ok(event) => Some(event),
            Err(RecvTimeoutError::Timeout) => None,
            // This cannot happen while this holds a sender. If it did, no request could stop the
            // daemon.
            Err(RecvTimeoutError::Disconnected) => Some(Event::Signal),
        }
    }
}

/// Is `signal` an event? If not, this does what the signal does.
fn asks_for_the_end(signal: i32) -> bool {
    match signal {
        SIGTSTP if signals::are_held() => {
            let answer = || {
                say("rampack: not suspended: whoever has pages in its swap space would wait for \
                     it; Ctrl-C reads them back and ends it\n");
            };
            // On a thread of its own: a stopped terminal must not delay the next signal.
            let _ = thread::Builder::new().name("answer".into()).spawn(answer);
            false
        }
        SIGTSTP | SIGQUIT if !signals::are_held() => {
            // If even this fails, nothing is left to do.
            let _ = emulate_default_handler(signal);
            false
        }
        _ => true,
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        for id in self.flags.drain(..) {
            unregister(id);
        }
        self.handle.close();
    }
}

#[cfg(test)]
mod tests {
    use signal_hook::low_level::raise;

    use super::*;

    #[test]
    fn a_signal_counts_before_it_is_an_event() {
        let events = Events::listen().unwrap();
        assert!(!events.has_signal() && !events.is_to_end());
        let (reply, _answer) = channel();
        events.sender().send(Event::Asked { force: false, reply }).unwrap();
        assert!(!events.has_signal() && events.is_to_end());
        assert!(matches!(events.wait(Duration::ZERO), Some(Event::Asked { .. })));
        // The handler runs before this returns.
        raise(SIGINT).unwrap();
        assert!(events.has_signal());
        let event = events.wait(Duration::from_secs(60));
        assert!(matches!(event, Some(Event::Signal)), "{event:?}");
    }
}
