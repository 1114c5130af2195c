//! Serves one file that the kernel may swap to.
//!
//! When there is no free memory, the kernel waits for its swap space, so a serving thread must not
//! wait for memory: a page fault in it would wait for writeback that only this thread can do. So
//! this file is served without the library that serves the other files. The threads have all their
//! memory before they begin: a stack and a buffer, written page by page. Then they read requests,
//! carry them out and answer them, and do nothing else.
//!
//! Two more conditions: the caller locks the memory of the process (`mlockall(2)`), and the device
//! does not allocate.
//!
//! The root of the mount is the file itself, so no name is looked up.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use block::BlockDevice;
use units::Cpu;

use self::answer::File;
use self::buffer::Buffer;
use crate::place::{ENDING, Place};
use crate::{Error, sys};

mod answer;
mod buffer;
mod connection;
mod reply;
mod serve;
pub mod wire;

pub(crate) use connection::remove_point;

/// How a [`SwapFile`] is served.
#[derive(Clone, Copy, Debug)]
pub struct SwapFileOptions {
    /// The number of serving threads; at least one.
    pub threads: usize,
    /// Returns the CPU of the calling thread. Must neither allocate nor wait.
    pub cpu: fn() -> Cpu,
    /// Each thread calls it once, before it serves; it may set the thread's priority.
    pub begin: fn(),
}

impl Default for SwapFileOptions {
    fn default() -> SwapFileOptions {
        SwapFileOptions { threads: 2, cpu: sys::current_cpu, begin: || {} }
    }
}

/// One file, served by its own threads, which never allocate and never wait for memory. Any thread
/// that does not serve it may call every method. Dropping it unmounts it, by force if needed.
pub struct SwapFile {
    place: Place,
    file: Arc<File>,
    threads: Vec<JoinHandle<()>>,
    ids: Vec<i32>,
}

impl SwapFile {
    /// Serves `device`, the outermost device of its chain, as the file `at`, to root only. It makes
    /// an empty file there as the mount point and removes it in the end; the directory must exist.
    /// The size of the file is the size of the device now, which must not change. All threads have
    /// their memory when this returns.
    ///
    /// # Errors
    /// [`Error`] names the missing thing: FUSE, the permission, or a file to mount on.
    pub fn serve(
        at: &Path,
        device: Arc<dyn BlockDevice>,
        options: SwapFileOptions,
    ) -> Result<SwapFile, Error> {
        let owner = sys::owner();
        let page = host::page_bytes() as usize;
        let size = connection::largest(page);
        let file = Arc::new(File::new(device, options.cpu, owner));
        let path = connection::prepare(at)?;
        let opened = connection::open(path.clone(), owner, page, &mut Buffer::new(size, page));
        let (place, channel) = opened.inspect_err(|_| remove_point(&path))?;
        // From here on, dropping `swap` undoes everything.
        let mut swap = SwapFile { place, file, threads: Vec::new(), ids: Vec::new() };
        let mut channels = Vec::new();
        for _ in 1..options.threads {
            channels.push(connection::another(&channel)?);
        }
        channels.push(channel);
        swap.start(channels, options.begin, (size, page))?;
        // The kernel learns the size here. The answer shows that the threads serve.
        fs::metadata(swap.path()).map_err(Error::system("reach the new file"))?;
        Ok(swap)
    }

    fn start(
        &mut self,
        channels: Vec<fs::File>,
        begin: fn(),
        (size, page): (usize, usize),
    ) -> Result<(), Error> {
        let (ready, is_ready) = mpsc::channel();
        let doing = || Error::system("start the threads of the file");
        for (number, channel) in channels.into_iter().enumerate() {
            let (file, ready) = (self.file.clone(), ready.clone());
            let run = move || {
                let mut buffer = Buffer::new(size, page);
                get_ready(begin, ready);
                serve::serve(&channel, &file, &mut buffer);
            };
            let thread = thread::Builder::new();
            let thread = thread.name(format!("swap-io-{number}")).stack_size(host::SERVING_STACK);
            self.threads.push(thread.spawn(run).map_err(doing())?);
        }
        drop(ready);
        for _ in 0..self.threads.len() {
            // Only a thread that panicked sends nothing.
            let id = is_ready.recv().map_err(std::io::Error::other);
            self.ids.push(id.map_err(doing())?);
        }
        Ok(())
    }

    /// The file, as an absolute path without links.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.place.at
    }

    /// The numbers of the serving threads, as in /proc/self/task.
    #[must_use]
    pub fn threads(&self) -> &[i32] {
        &self.ids
    }

    /// How many opens it has now; a loop device on it counts as one.
    #[must_use]
    pub fn open_count(&self) -> u64 {
        self.file.open_count()
    }

    /// Is it still served? False after another process unmounted or aborted it.
    #[must_use]
    pub fn is_served(&self) -> bool {
        self.threads.iter().any(|thread| !thread.is_finished())
    }

    /// Unmounts the file and waits until its threads have ended. With `force` it unmounts even if
    /// the file is open: requests under way and later ones fail. Does nothing the second time.
    ///
    /// # Errors
    /// [`Error::Busy`] if it is open and `force` is not given; nothing has changed then.
    pub fn unmount(&mut self, force: bool) -> Result<(), Error> {
        let backoff =
            if self.place.is_mounted() { self.place.take_down(force, || {})? } else { ENDING };
        self.join(backoff);
        remove_point(&self.place.at);
        Ok(())
    }

    fn join(&mut self, backoff: Duration) {
        let end = Instant::now() + backoff;
        while self.is_served() && Instant::now() < end {
            thread::sleep(Duration::from_millis(1));
        }
        for thread in self.threads.drain(..).filter(JoinHandle::is_finished) {
            // The panic hook has reported a panic of this thread.
            let _ = thread.join();
        }
    }
}

impl Drop for SwapFile {
    fn drop(&mut self) {
        let _ = self.unmount(true);
    }
}

/// The last preparation of a thread before it serves.
fn get_ready(begin: fn(), ready: Sender<i32>) {
    host::touch_stack();
    begin();
    // The receiver is gone if another thread could not be started; the mount is gone then too.
    let _ = ready.send(host::thread_id());
}

/// Answers one request in memory, for fuzzing and tests. A request is cut off at the longest
/// length. None if the request has no answer.
#[must_use]
pub fn drive(request: &[u8], device: Arc<dyn BlockDevice>) -> Option<Vec<u8>> {
    let page = host::page_bytes() as usize;
    let mut buffer = Buffer::new(connection::largest(page), page);
    let room = buffer.request();
    let length = request.len().min(room.len());
    room[..length].copy_from_slice(&request[..length]);
    let file = File::new(device, || Cpu(0), (0, 0));
    let answer = serve::respond(&file, &mut buffer, length)?;
    let mut bytes = answer.reply.bytes().to_vec();
    bytes.extend_from_slice(buffer.data(answer.data).unwrap_or_default());
    Some(bytes)
}

#[cfg(test)]
mod tests;
