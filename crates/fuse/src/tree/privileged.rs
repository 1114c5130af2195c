//! The threads that carry out requests to the control tree.
//!
//! The threads that read the requests have no privileges, and so have all threads that they start.
//! Commands need privileges: they mount, and attach loop devices. So a reader hands each request
//! over to a thread that was there before it, which starts others for requests at once.

use std::io;
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};

use host::{Task, Waiters};

/// The most requests at once; later ones wait for their turn.
const MOST: usize = 16;

/// The way to the threads. They end when all copies of it are dropped.
#[derive(Clone)]
pub(super) struct Privileged(Sender<Task>);

impl Privileged {
    /// Starts the first thread, with the privileges of the calling one.
    ///
    /// # Errors
    /// When no thread can be started.
    pub(super) fn start() -> io::Result<(Privileged, JoinHandle<()>)> {
        let (sender, tasks) = channel::<Task>();
        let run = move || {
            let waiters = Waiters::new("tree-control", MOST);
            for task in tasks {
                // Without another thread it happens here.
                if let Err(task) = waiters.take(task) {
                    task();
                }
            }
        };
        let thread = thread::Builder::new().name("tree-requests".into()).spawn(run)?;
        Ok((Privileged(sender), thread))
    }

    /// Has `work` carried out. It is dropped when the thread is gone, and so is the reply in it,
    /// which is an error then.
    pub(super) fn run(&self, work: impl FnOnce() + Send + 'static) {
        let _ = self.0.send(Box::new(work));
    }
}
