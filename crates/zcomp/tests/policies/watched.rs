//! A codec that knows its contexts apart, and may be without memory for them.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use zcomp::{CodecError, Compressor, Context, Corrupt, Params, Stream, Zstd};

pub type Page = [u8; 4096];

/// What happens at a certain moment.
pub type Action = Box<dyn FnOnce() + Send>;

/// What a context is asked for its number by.
const WHO: Page = [0xa5; 4096];

/// zstd, or whatever: contexts have numbers.
pub struct Watched {
    inner: Box<dyn Compressor>,
    next: AtomicU64,
    /// Of the contexts asked for from now on, one in so many is made; 0 for none.
    pub one_in: AtomicU64,
    asked: AtomicU64,
    /// What happens while the next context is made, once; it fails then.
    pub meanwhile: Mutex<Option<Action>>,
}

impl Watched {
    pub fn zstd() -> Watched {
        Watched::of(Box::new(Zstd::new(&Params::default()).unwrap()))
    }

    pub fn of(inner: Box<dyn Compressor>) -> Watched {
        let (next, one_in, asked) = (0.into(), 1.into(), 0.into());
        Watched { inner, next, one_in, asked, meanwhile: Mutex::new(None) }
    }

    /// A context that says it is number `number`.
    pub fn numbered(&self, number: u64) -> Result<Box<dyn Context>, CodecError> {
        Ok(Box::new(Numbered { number, inner: self.inner.context()? }))
    }
}

impl Compressor for Watched {
    fn name(&self) -> &'static str {
        "watched"
    }

    fn context(&self) -> Result<Box<dyn Context>, CodecError> {
        let no_memory = || Err(CodecError("watched: no memory for a context".into()));
        if let Some(action) = self.meanwhile.lock().unwrap().take() {
            action();
            return no_memory();
        }
        let one_in = self.one_in.load(Ordering::Relaxed);
        let asked = self.asked.fetch_add(1, Ordering::Relaxed);
        if one_in == 0 || !asked.is_multiple_of(one_in) {
            return no_memory();
        }
        self.numbered(self.next.fetch_add(1, Ordering::Relaxed))
    }
}

struct Numbered {
    number: u64,
    inner: Box<dyn Context>,
}

impl Context for Numbered {
    fn compress(&mut self, page: &Page, into: &mut [u8]) -> Option<usize> {
        if *page == WHO {
            into[..8].copy_from_slice(&self.number.to_ne_bytes());
            return Some(8);
        }
        self.inner.compress(page, into)
    }

    fn decompress(&mut self, bytes: &[u8], page: &mut Page) -> Result<(), Corrupt> {
        self.inner.decompress(bytes, page)
    }
}

/// The number of a stream's context.
pub fn number(stream: &mut Stream) -> u64 {
    let bytes = stream.compress(&WHO).expect("a number fits");
    u64::from_ne_bytes(bytes.try_into().expect("a number has eight bytes"))
}
