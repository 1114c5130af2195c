//! The processes of a soak, as their parent sees them.

use std::env;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::de::DeserializeOwned;
use sync::Mutex;

use super::layout::Part;
use crate::interrupt;
use crate::processes::{Running, last_words};

/// Time that a part has to end: it reads all of its pages first.
const LEAVING: Duration = Duration::from_secs(300);
/// Time that the server has to clean up when its parent ends early.
const CLEARING: Duration = Duration::from_secs(60);

/// A process that says lines of JSON.
pub struct Child<T> {
    name: String,
    running: Running,
    complaints: File,
    /// What it said last, and when.
    said: Arc<Mutex<Option<(T, Instant)>>>,
}

impl<T: DeserializeOwned + Clone + Send + 'static> Child<T> {
    /// Starts `part` as the process `name`. Each thing that it says is passed to `hear`.
    ///
    /// # Errors
    /// It does not start.
    pub fn start(
        name: String,
        part: &Part,
        hear: impl Fn(&T) + Send + 'static,
    ) -> Result<Child<T>> {
        let program = env::current_exe().context("cannot find this program")?;
        let complaints = tempfile::tempfile().context("cannot make a temporary file")?;
        let mut command = Command::new(program);
        command.args(["run", "--part", &serde_json::to_string(part)?]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(complaints.try_clone()?);
        // A process group of its own: Ctrl-C reaches only the parent, which ends the others.
        command.process_group(0);
        let mut running = match part {
            Part::Server(_) => Running::start_gently(&mut command, CLEARING)?,
            Part::Client(_) => Running::start(&mut command)?,
        };
        let output = running.child().stdout.take().context("its output")?;
        let said = Arc::new(Mutex::new(None));
        let last = said.clone();
        thread::spawn(move || {
            // A line that was cut off by a kill is left out.
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if let Ok(told) = serde_json::from_str::<T>(&line) {
                    hear(&told);
                    *last.lock() = Some((told, Instant::now()));
                }
            }
        });
        Ok(Child { name, running, complaints, said })
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.running.id()
    }

    /// What it said last, if that was after `since`.
    pub fn said_since(&self, since: Instant) -> Option<T> {
        let said = self.said.lock();
        said.as_ref().filter(|(_, when)| *when > since).map(|(told, _)| told.clone())
    }

    /// What it said last.
    pub fn said(&self) -> Option<T> {
        self.said.lock().as_ref().map(|(told, _)| told.clone())
    }

    /// Succeeds while it runs.
    ///
    /// # Errors
    /// It has ended; the message has what it said.
    pub fn check(&mut self) -> Result<()> {
        match self.running.check() {
            Ok(()) => Ok(()),
            Err(error) => bail!("{}: {error:#}: {}", self.name, self.words()),
        }
    }

    fn words(&self) -> String {
        self.complaints.try_clone().map_or_else(|error| error.to_string(), last_words)
    }

    /// Kills it and waits until it is gone.
    pub fn kill(self) {
        self.running.kill();
    }

    /// Asks it to end, and waits until it has.
    ///
    /// # Errors
    /// It fails, or does not end; the message has what it said.
    pub fn end(&mut self) -> Result<()> {
        drop(self.running.child().stdin.take());
        let running = &mut self.running;
        let status =
            interrupt::wait_for(&self.name, LEAVING, || Ok(running.child().try_wait()?))?;
        match status.success() {
            true => Ok(()),
            false => bail!("{}: {status}: {}", self.name, self.words()),
        }
    }
}
