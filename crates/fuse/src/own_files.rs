//! Requests of this process to files that it serves itself.
//!
//! A process that is killed in the middle of such a request could not end: the request waits for an
//! answer that no thread gives any more, and the thread that waits keeps the descriptors of the
//! connection open. So a thread without descriptors makes the request. When the other threads have
//! ended, the connection ends, the request fails, and this thread ends too.

use std::fs::{self, Metadata};
use std::io;
use std::path::Path;
use std::thread;

/// The metadata of a file that this process may serve itself. Starts a thread for the request.
///
/// # Errors
/// Those of the request, or of the start of a thread.
pub(crate) fn metadata(path: &Path) -> io::Result<Metadata> {
    let path = path.to_owned();
    without_descriptors(move || fs::metadata(path))?
}

/// Runs `work` on a thread of its own that has no open file.
fn without_descriptors<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let run = move || {
        // Before Linux 5.9 the thread keeps its descriptors.
        let _ = host::close_all_of_this_thread();
        work()
    };
    let thread = thread::Builder::new().name("own-files".into()).spawn(run)?;
    thread.join().map_err(|_| io::Error::other("the thread of the request panicked"))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::io::Read;
    use std::path::Path;

    use super::{metadata, without_descriptors};

    /// The numbers of the open files of this thread.
    fn open() -> Vec<String> {
        let files = fs::read_dir("/proc/thread-self/fd").unwrap();
        files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn the_thread_has_no_files_and_the_others_keep_theirs() {
        let mut zero = File::open("/dev/zero").unwrap();
        assert!(open().len() > 1);
        // The listing itself has a descriptor.
        assert_eq!(without_descriptors(open).unwrap(), ["0"]);
        zero.read_exact(&mut [1]).unwrap();
    }

    #[test]
    fn the_answer_is_that_of_the_file() {
        assert!(metadata(Path::new("/proc")).unwrap().is_dir());
        let error = metadata(Path::new("/nonexistent/file")).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
    }
}
