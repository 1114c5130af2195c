//! The threads that carry out requests to the control tree.
//!
//! The threads that read the requests have no privileges, and so have all threads that they start.
//! Commands need privileges: they mount, and attach loop devices. So a reader hands each request
//! over to a thread that was there before it, which starts others for requests at once. Requests
//! for one node, such as an attribute of a device that hangs, leave threads to others.

use std::io;
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};

use host::{Task, Waiters};

/// The most requests at once; later ones wait for their turn.
const MOST: usize = 16;

/// The way to the threads. They end when all copies of it are dropped.
#[derive(Clone)]
pub(super) struct Privileged(Sender<(u64, Task)>);

impl Privileged {
    /// Starts the first thread, with the privileges of the calling one.
    ///
    /// # Errors
    /// When no thread can be started.
    pub(super) fn start() -> io::Result<(Privileged, JoinHandle<()>)> {
        let (sender, tasks) = channel::<(u64, Task)>();
        let run = move || {
            let waiters = Waiters::new("tree-control", MOST);
            for (node, task) in tasks {
                // Without another thread it happens here.
                if let Err(task) = waiters.take_of(Some(node), task) {
                    task();
                }
            }
        };
        let thread = thread::Builder::new().name("tree-requests".into()).spawn(run)?;
        Ok((Privileged(sender), thread))
    }

    /// Has `work` for `node` carried out. It is dropped when the thread is gone, and so is the
    /// reply in it, which is an error then.
    pub(super) fn run(&self, node: u64, work: impl FnOnce() + Send + 'static) {
        let _ = self.0.send((node, Box::new(work)));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_node_that_hangs_leaves_threads_to_others() {
        let (privileged, thread) = Privileged::start().unwrap();
        let (end, gate) = channel::<()>();
        let gate = Arc::new(Mutex::new(gate));
        for _ in 0..2 * MOST {
            let gate = gate.clone();
            privileged.run(7, move || assert!(gate.lock().unwrap().recv().is_err()));
        }
        let (done, is_done) = channel();
        privileged.run(8, move || done.send(()).unwrap());
        let answered = is_done.recv_timeout(Duration::from_secs(20));
        drop((end, privileged));
        thread.join().unwrap();
        answered.expect("another node waited for it");
    }
}
