//! What happens to a daemon while it runs: signals, and clients that ask it to end.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use rampack::control::ControlError;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP};
use signal_hook::iterator::{Handle, Signals};
use signal_hook::low_level::emulate_default_handler;

use crate::failure::say;
use crate::swap::signals;

/// Somebody wants the daemon to end.
#[derive(Debug)]
pub enum Event {
    /// A signal: Ctrl-C, `kill`, a service manager, or a terminal that is gone.
    Signal,
    /// A client of the control socket, who waits for the answer.
    Asked {
        /// Devices are to be taken from their users.
        force: bool,
        /// Where it waits.
        reply: Sender<Result<(), ControlError>>,
    },
}

/// Events, and `SIGINT`, `SIGTERM` and `SIGHUP` among them until this is dropped. While the process
/// serves swap space `SIGQUIT` is one of them, and Ctrl-Z does not suspend it; at other times they
/// do what they usually do.
pub struct Events {
    sender: Sender<Event>,
    receiver: Receiver<Event>,
    handle: Handle,
}

impl Events {
    /// Begins to listen; to be called before anything is made that a signal should clean up.
    ///
    /// # Errors
    /// What the system reports.
    pub fn listen() -> io::Result<Events> {
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP])?;
        let handle = signals.handle();
        let (sender, receiver) = channel();
        let events = Events { sender: sender.clone(), receiver, handle };
        thread::Builder::new().name("signals".into()).spawn(move || {
            for signal in signals.forever() {
                if asks_for_the_end(signal) && sender.send(Event::Signal).is_err() {
                    return;
                }
            }
        })?;
        Ok(events)
    }

    /// Where others tell of events.
    #[must_use]
    pub fn sender(&self) -> Sender<Event> {
        self.sender.clone()
    }

    /// The next event, or `None` when none came in time.
    #[must_use]
    pub fn wait(&self, time: Duration) -> Option<Event> {
        match self.receiver.recv_timeout(time) {
            Ok(event) => Some(event),
            Err(RecvTimeoutError::Timeout) => None,
            // Cannot be while this holds a sender; nobody could stop the daemon then.
            Err(RecvTimeoutError::Disconnected) => Some(Event::Signal),
        }
    }
}

/// Does what a signal does that is no event.
fn asks_for_the_end(signal: i32) -> bool {
    match signal {
        SIGTSTP if signals::are_held() => {
            let answer = || {
                say("rampack: not suspended: whoever has pages in its swap space would wait for \
                     it; Ctrl-C reads them back and ends it\n");
            };
            // On a thread of its own: a terminal that is held must not hold up the next signal.
            let _ = thread::Builder::new().name("answer".into()).spawn(answer);
            false
        }
        SIGTSTP | SIGQUIT if !signals::are_held() => {
            // Nothing is left to do if even this is refused.
            let _ = emulate_default_handler(signal);
            false
        }
        _ => true,
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        self.handle.close();
    }
}
