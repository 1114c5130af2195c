//! A value that readers look up without a lock, like an RCU pointer. It can be withdrawn while
//! readers read it, and is freed after they have left.
//!
//! # Why unsafe
//! A reader gets a plain reference. The protocol ensures that the value outlives the reader.

use core::ptr;
use std::sync::Arc;

use crate::atomic::{AtomicPtr, Ordering};
use crate::{Mutex, Reader, ReaderEpochs};

/// At most one `T`, for the readers it was made with. Each lookup costs one load and one compare.
pub struct Published<T> {
    current: AtomicPtr<T>,
    readers: Arc<ReaderEpochs>,
    changing: Mutex<()>,
}

// SAFETY: it owns a `T`, hands out `&T` to any thread and gives the `T` itself back to any thread.
unsafe impl<T: Send + Sync> Sync for Published<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Send for Published<T> {}

impl<T> Published<T> {
    /// Makes an empty place for `readers`.
    #[must_use]
    pub fn new(readers: Arc<ReaderEpochs>) -> Published<T> {
        Published { current: AtomicPtr::new(ptr::null_mut()), readers, changing: Mutex::new(()) }
    }

    /// The present value, while `reader` lives. A reader of other epochs finds nothing, because no
    /// withdrawal would wait for it.
    #[inline]
    pub fn get<'p>(&'p self, reader: &'p Reader<'_>) -> Option<&'p T> {
        if !ptr::eq(reader.epochs, &*self.readers) {
            return None;
        }
        // Acquire pairs with the Release in `publish`: the value has been written.
        let current = self.current.load(Ordering::Acquire);
        // SAFETY: `current` is null or a leaked box. `withdraw` frees that box only after every
        // reader of its epochs that entered before the swap has been dropped. `reader` found the
        // box, so it is one of them. `self` cannot be dropped while it is borrowed.
        unsafe { current.as_ref() }
    }

    /// Whether there was a value a moment ago.
    #[inline]
    #[must_use]
    pub fn is_there(&self) -> bool {
        !self.current.load(Ordering::Relaxed).is_null()
    }

    /// Publishes `value`.
    ///
    /// # Errors
    /// The value, unchanged, if a value is published already.
    pub fn publish(&self, value: Box<T>) -> Result<(), Box<T>> {
        let _changing = self.changing.lock();
        if !self.current.load(Ordering::Relaxed).is_null() {
            return Err(value);
        }
        // Release pairs with the Acquire in `get`.
        self.current.store(Box::into_raw(value), Ordering::Release);
        Ok(())
    }

    /// Withdraws the value, after all readers that may still see it have left. The calling thread
    /// must not be a reader.
    pub fn withdraw(&self) -> Option<Box<T>> {
        let _changing = self.changing.lock();
        // The readers order this with `get`: a reader that enters later does not see the value.
        let current = self.current.swap(ptr::null_mut(), Ordering::Relaxed);
        if current.is_null() {
            return None;
        }
        self.readers.wait_for_readers();
        // SAFETY: it came from `Box::into_raw` in `publish`. No reader can find it any more, and
        // all readers that found it have left.
        Some(unsafe { Box::from_raw(current) })
    }
}

impl<T> Drop for Published<T> {
    fn drop(&mut self) {
        let current = self.current.load(Ordering::Relaxed);
        if !current.is_null() {
            // SAFETY: `&mut self`: no reader can exist. The pointer came from `Box::into_raw`.
            drop(unsafe { Box::from_raw(current) });
        }
    }
}
