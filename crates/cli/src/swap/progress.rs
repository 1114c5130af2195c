//! Prints the progress of reading back from swap devices on standard error.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use units::human;

use host::swaps;
use service::failure::say;

/// How often the progress is printed.
const TELL: Duration = Duration::from_secs(2);

/// Prints the progress of reading back on standard error, until it is dropped.
pub struct Progress {
    end: Option<Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Progress {
    /// Begins to print the progress of these names and block devices.
    #[must_use]
    pub fn begin(devices: Vec<(String, PathBuf)>) -> Progress {
        let (end, ended) = channel();
        let thread = thread::Builder::new().name("progress".into());
        let thread = match devices.is_empty() {
            true => None,
            // Reading back works without a thread that prints.
            false => thread.spawn(move || tell(&devices, &ended)).ok(),
        };
        Progress { end: Some(end), thread }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.end = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn tell(devices: &[(String, PathBuf)], ended: &Receiver<()>) {
    let left = |path: &Path| swaps::find(path).map_or(0, |active| active.used);
    let devices: Vec<_> = devices.iter().map(|it| (it, left(&it.1))).collect();
    while ended.recv_timeout(TELL) == Err(RecvTimeoutError::Timeout) {
        for (device, first) in &devices {
            let now = left(&device.1);
            if now > 0 {
                let (name, first) = (&device.0, (*first).max(now));
                let (now, first) = (human(now), human(first));
                say(&format!("rampack: {name}: {now} of {first} still to be read back\n"));
            }
        }
    }
}
