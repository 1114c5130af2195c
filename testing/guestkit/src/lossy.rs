//! Memory that survives lost pages. A thread that touches a page which swap cannot read back gets a
//! SIGBUS. The handler here maps an empty page, counts the loss, and the thread goes on.
//!
//! # Why unsafe
//! The module maps memory, has a signal handler that replaces a lost page by an empty one, and
//! accesses memory that the handler may change.

use std::io;
use std::mem::{self, MaybeUninit};
use std::ptr;

use sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};

use crate::pattern::Page;

/// Bytes of a page.
const PAGE: usize = mem::size_of::<Page>();

/// The beginning and the end of the memory, for the signal handler. A process has one such memory.
static BEGIN: AtomicUsize = AtomicUsize::new(0);
static END: AtomicUsize = AtomicUsize::new(0);
/// Pages that were lost.
static LOST: AtomicU64 = AtomicU64::new(0);

/// A private mapping for one thread.
pub struct Lossy {
    begin: *mut Page,
    pages: usize,
}

impl Lossy {
    /// Maps `pages` pages without huge pages, and installs the handler of SIGBUS.
    ///
    /// # Errors
    /// The error of the system call; and an error if the process has such a memory already.
    pub fn new(pages: usize) -> io::Result<Lossy> {
        if pages == 0 || END.load(Ordering::Relaxed) != 0 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at a place of the kernel's choice touches no other memory.
        let begin = unsafe { libc::mmap(ptr::null_mut(), pages * PAGE, access, flags, -1, 0) };
        if begin == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the advice is for the mapping just made, and changes no contents.
        unsafe { libc::madvise(begin, pages * PAGE, libc::MADV_NOHUGEPAGE) };
        BEGIN.store(begin as usize, Ordering::Relaxed);
        END.store(begin as usize + pages * PAGE, Ordering::Relaxed);
        // SAFETY: all zero is an action without flags and with an empty mask.
        let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
        action.sa_sigaction = on_bus as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        // SAFETY: the handler has the form that SA_SIGINFO asks for, and does only what a signal
        // handler may: system calls and atomics.
        if unsafe { libc::sigaction(libc::SIGBUS, &action, ptr::null_mut()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Lossy { begin: begin.cast(), pages })
    }

    /// The number of pages.
    #[must_use]
    pub fn pages(&self) -> usize {
        self.pages
    }

    /// Copies page `number` out. False if the page was lost; it is an empty page from now on.
    ///
    /// # Panics
    /// If `number` is out of range.
    #[must_use]
    pub fn read(&self, number: usize, into: &mut Page) -> bool {
        assert!(number < self.pages, "page {number} of {}", self.pages);
        watched(|| {
            // SAFETY: the page is inside the mapping, which lives as long as `self`. The handler
            // may change the page during the copy; the copy is volatile, so the compiler assumes
            // nothing about it.
            unsafe { *into = ptr::read_volatile(self.begin.add(number)) }
        })
    }

    /// Copies page `number` in. False if the page was lost meanwhile.
    ///
    /// # Panics
    /// If `number` is out of range.
    #[must_use]
    pub fn write(&mut self, number: usize, from: &Page) -> bool {
        assert!(number < self.pages, "page {number} of {}", self.pages);
        watched(|| {
            // SAFETY: as in `read`; only this thread has the mapping.
            unsafe { ptr::write_volatile(self.begin.add(number), *from) }
        })
    }
}

/// The number of pages lost in this process so far.
#[must_use]
pub fn lost() -> u64 {
    LOST.load(Ordering::Relaxed)
}

/// Runs `touch`. True if no page was lost meanwhile.
fn watched(touch: impl FnOnce()) -> bool {
    let before = lost();
    // Pairs with the other fence: `touch` stays between the two loads of the count. Only a signal
    // handler of this thread changes the count.
    fence(Ordering::SeqCst);
    touch();
    fence(Ordering::SeqCst);
    lost() == before
}

extern "C" fn on_bus(_: libc::c_int, information: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid siginfo to a handler with SA_SIGINFO. For SIGBUS it has an
    // address.
    let at = unsafe { (*information).si_addr() } as usize;
    if at < BEGIN.load(Ordering::Relaxed) || at >= END.load(Ordering::Relaxed) {
        let message = b"hog: a page of its own was lost\n";
        // SAFETY: the calls write a constant and end the process.
        unsafe {
            libc::write(2, message.as_ptr().cast(), message.len());
            libc::_exit(4);
        }
    }
    LOST.fetch_add(1, Ordering::Relaxed);
    let place = (at & !(PAGE - 1)) as *mut libc::c_void;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: the page is in `Lossy`'s mapping and its contents are lost. An empty page takes its
    // place. mmap is a plain system call, which a handler may make.
    let mapped = unsafe { libc::mmap(place, PAGE, access, flags, -1, 0) };
    if mapped == libc::MAP_FAILED {
        // SAFETY: the call ends the process, which cannot go on.
        unsafe { libc::_exit(4) };
    }
}

#[cfg(test)]
mod tests {
    use super::{Lossy, PAGE, lost};
    use crate::pattern::WORDS;

    #[test]
    fn a_lost_page_is_counted_and_the_others_stay() {
        let mut memory = Lossy::new(8).unwrap();
        assert_eq!(memory.pages(), 8);
        assert!(Lossy::new(8).is_err(), "one in a process");
        for number in 0..8 {
            assert!(memory.write(number, &[number as u64; WORDS]));
        }
        // A page of a file that has become too short is lost in the same way.
        let file = std::env::temp_dir().join(format!("guestkit-lossy-{}", std::process::id()));
        let empty =
            std::fs::File::options().read(true).write(true).create_new(true).open(&file).unwrap();
        let _ = std::fs::remove_file(&file);
        let flags = libc::MAP_SHARED | libc::MAP_FIXED;
        let fd = std::os::fd::AsRawFd::as_raw_fd(&empty);
        // SAFETY: replaces page 3 of the mapping above, which only `read` and `write` touch.
        let place =
            unsafe { libc::mmap(memory.begin.add(3).cast(), PAGE, libc::PROT_READ, flags, fd, 0) };
        assert_ne!(place, libc::MAP_FAILED);
        let mut page = [1; WORDS];
        assert!(!memory.read(3, &mut page));
        assert_eq!((lost(), page), (1, [0; WORDS]));
        assert!(memory.write(3, &[9; WORDS]));
        for number in 0..8 {
            assert!(memory.read(number, &mut page));
            assert_eq!(page, [if number == 3 { 9 } else { number as u64 }; WORDS]);
        }
    }
}
