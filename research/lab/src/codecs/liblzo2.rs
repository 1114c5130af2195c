//! liblzo2's `lzo1x_1_compress` and `lzo1x_decompress_safe`, where the library is installed. The
//! program looks for it at run time, so nothing depends on it.
//!
//! # Why unsafe
//! It loads a library by name and calls it. Each call passes whole slices with their lengths.

use std::ffi::{CStr, c_int, c_uint, c_void};
use std::ptr::null_mut;
use std::sync::OnceLock;

use units::{PAGE_SIZE, Page};
use zcomp::{Context, Corrupt};

/// Its name in results.
pub const NAME: &str = "liblzo2";
/// The file of the library.
pub const FILE: &str = "liblzo2.so.2";

const FILE_C: &CStr = c"liblzo2.so.2";

/// Source, its length, target, its length before and after, working memory; 0 is success. The
/// lengths are as wide as addresses (`lzo_uint`).
// SAFETY: the type alone calls nothing; a value of it comes from the library by name.
type Work = unsafe extern "C" fn(*const u8, usize, *mut u8, *mut usize, *mut c_void) -> c_int;

/// `LZO1X_1_MEM_COMPRESS`: 2^14 places of a word at most.
const WORKING_MEMORY: usize = (1 << 14) * size_of::<usize>();

/// The largest output of a page, by lzo's documentation.
const BOUND: usize = PAGE_SIZE + PAGE_SIZE / 16 + 64 + 3;

/// The library. It stays loaded.
#[derive(Clone, Copy)]
pub struct Library {
    compress: Work,
    decompress: Work,
}

impl Library {
    /// Loads the library. `None` if it is not installed, or is not the expected one.
    pub fn open() -> Option<Library> {
        static LIBRARY: OnceLock<Option<Library>> = OnceLock::new();
        *LIBRARY.get_or_init(Library::load)
    }

    fn load() -> Option<Library> {
        // SAFETY: the name is a C string. The library's initialisers only fill tables.
        let library = unsafe { libc::dlopen(FILE_C.as_ptr(), libc::RTLD_NOW) };
        if library.is_null() {
            return None;
        }
        let find = |name: &CStr| {
            // SAFETY: the library was loaded and is never unloaded; the name is a C string.
            let symbol = unsafe { libc::dlsym(library, name.as_ptr()) };
            (!symbol.is_null()).then_some(symbol)
        };
        let version = find(c"lzo_version")?;
        // SAFETY: `unsigned lzo_version(void)`, since lzo 1.
        let version =
            unsafe { std::mem::transmute::<*mut c_void, extern "C" fn() -> c_uint>(version) };
        if version() < 0x2000 {
            return None;
        }
        let work = |name: &CStr| {
            // SAFETY: both functions have this signature (lzo1x.h), from version 2 on.
            find(name).map(|symbol| unsafe { std::mem::transmute::<*mut c_void, Work>(symbol) })
        };
        Some(Library {
            compress: work(c"lzo1x_1_compress")?,
            decompress: work(c"lzo1x_decompress_safe")?,
        })
    }

    /// A context like our codecs'.
    pub fn context(self) -> Box<dyn Context> {
        Box::new(Lzo1x { library: self, memory: vec![0; WORKING_MEMORY / 8] })
    }
}

struct Lzo1x {
    library: Library,
    memory: Vec<u64>,
}

impl Context for Lzo1x {
    fn compress(&mut self, page: &Page, into: &mut [u8]) -> Option<usize> {
        let into = into.get_mut(..BOUND)?;
        let mut length = into.len();
        // SAFETY: the compressor reads a page, writes at most `BOUND` bytes, which exist, and uses
        // working memory of the size it asks for.
        let result = unsafe {
            (self.library.compress)(
                page.as_ptr(),
                PAGE_SIZE,
                into.as_mut_ptr(),
                &raw mut length,
                self.memory.as_mut_ptr().cast(),
            )
        };
        (result == 0).then_some(length)
    }

    fn decompress(&mut self, bytes: &[u8], page: &mut Page) -> Result<(), Corrupt> {
        let mut length = PAGE_SIZE;
        // SAFETY: the decompressor called "safe" reads and writes within the lengths it is given,
        // whatever the bytes are; it needs no working memory.
        let result = unsafe {
            (self.library.decompress)(
                bytes.as_ptr(),
                bytes.len(),
                page.as_mut_ptr(),
                &raw mut length,
                null_mut(),
            )
        };
        if result == 0 && length == PAGE_SIZE { Ok(()) } else { Err(Corrupt) }
    }
}
