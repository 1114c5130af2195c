//! A value that readers look up without a lock, as with an RCU pointer. It can be withdrawn while
//! they read it; it is freed after they have left.
//!
//! # Why unsafe
//! A reader gets a plain reference; that what it refers to outlives the reader is the protocol.

use core::ptr;
use std::sync::Arc;

use crate::atomic::{AtomicPtr, Ordering};
use crate::{Mutex, Reader, ReaderEpochs};

/// At most one `T`, for the readers it was made with. Each look costs one load and one compare.
pub struct Published<T> {
    current: AtomicPtr<T>,
    readers: Arc<ReaderEpochs>,
    changing: Mutex<()>,
}

// SAFETY: it owns a `T`, allocates `&T` to any thread and gives the `T` itself back to any thread.
unsafe impl<T: Send + Sync> Sync for Published<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Send for Published<T> {}

impl<T> Published<T> {
    /// Nothing yet, to be looked at by `readers`.
    #[must_use]
    pub fn new(readers: Arc<ReaderEpochs>) -> Published<T> {
        Published { current: AtomicPtr::new(ptr::null_mut()), readers, changing: Mutex::new(()) }
    }

    /// What is there now, while `reader` lives. A reader of other epochs, for which nobody would
    /// wait, finds nothing.
    #[inline]
    pub fn get<'p>(&'p self, reader: &'p Reader<'_>) -> Option<&'p T> {
        if !ptr::eq(reader.epochs, &*self.readers) {
            return None;
        }
        // Acquire pairs with the Release in `publish`: what it holds has been written.
        let current = self.current.load(Ordering::Acquire);
        // SAFETY: null, or a leaked box that `withdraw` frees only after every reader of its epochs
        // taken before it was unpublished has been dropped; `reader` is one of them, and found it.
        // Nor can `self` be dropped while it is borrowed.
        unsafe { current.as_ref() }
    }

    /// Puts `value` there; gives it back if something is there already.
    ///
    /// # Errors
    /// The value, unchanged.
    pub fn publish(&self, value: Box<T>) -> Result<(), Box<T>> {
        let _changing = self.changing.lock();
        if !self.current.load(Ordering::Relaxed).is_null() {
            return Err(value);
        }
        // Release pairs with the Acquire in `get`.
        self.current.store(Box::into_raw(value), Ordering::Release);
        Ok(())
    }

    /// Takes away what is there, after everybody who might still see it has left. The calling
    /// thread must not be one of the readers.
    pub fn withdraw(&self) -> Option<Box<T>> {
        let _changing = self.changing.lock();
        // The readers order this with `get`: one that enters later does not see it.
        let current = self.current.swap(ptr::null_mut(), Ordering::Relaxed);
        if current.is_null() {
            return None;
        }
        self.readers.wait_for_readers();
        // SAFETY: it came from `Box::into_raw` in `publish`, nobody can find it any more, and all
        // who had found it have left.
        Some(unsafe { Box::from_raw(current) })
    }
}

impl<T> Drop for Published<T> {
    fn drop(&mut self) {
        let current = self.current.load(Ordering::Relaxed);
        if !current.is_null() {
            // SAFETY: `&mut self`: no reader can exist; it came from `Box::into_raw`.
            drop(unsafe { Box::from_raw(current) });
        }
    }
}
