//! Memory for a key: locked, in no core dump, in no child process, and wiped at the end.
//!
//! # Why unsafe
//! The memory is a mapping of its own, because mlock(2) and madvise(2) work on whole pages. The
//! value is written to it and dropped in it by address.

use std::hint::black_box;
use std::io;
use std::ops::Deref;
use std::ptr::{self, NonNull};

use crate::memory::page_bytes;

/// A value in locked memory. Any number of threads may read it.
pub struct Secret<T> {
    value: NonNull<T>,
    bytes: usize,
}

// SAFETY: the mapping belongs to the process, and this is its only owner.
unsafe impl<T: Send> Send for Secret<T> {}
// SAFETY: the value is only read while it is shared.
unsafe impl<T: Sync> Sync for Secret<T> {}

impl<T> Secret<T> {
    /// Makes a value in locked memory. `make` may leave copies of it on the stack of this thread;
    /// the part of the stack that it can have used is overwritten.
    ///
    /// # Errors
    /// `ENOMEM` or `EPERM` when the memory cannot be had or locked (`ulimit -l`), and the errors of
    /// `make`.
    pub fn new(make: impl FnOnce() -> io::Result<T>) -> io::Result<Secret<T>> {
        const { assert!(align_of::<T>() <= 4096) };
        let bytes = size_of::<T>().max(1).next_multiple_of(page_bytes() as usize);
        // SAFETY: a new private mapping at an address that the system chooses overlaps no other.
        let address = unsafe {
            libc::mmap(
                ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        let Some(memory) = NonNull::new(address).filter(|_| address != libc::MAP_FAILED) else {
            return Err(io::Error::last_os_error());
        };
        let memory = Memory { memory: memory.cast(), bytes };
        memory.protect()?;
        let value = memory.memory.cast::<T>();
        fill(value, make)?;
        wipe_stack();
        std::mem::forget(memory);
        Ok(Secret { value, bytes })
    }
}

/// A frame of its own, below which `make` runs.
#[inline(never)]
fn fill<T>(value: NonNull<T>, make: impl FnOnce() -> io::Result<T>) -> io::Result<()> {
    // SAFETY: the mapping is large enough, page-aligned, and nobody else knows it yet.
    unsafe { value.write(make()?) };
    Ok(())
}

/// Overwrites the stack below the caller.
#[inline(never)]
fn wipe_stack() {
    let mut room = [0u8; 16 << 10];
    black_box(&mut room);
}

/// A mapping that is wiped and unmapped when it is dropped.
struct Memory {
    memory: NonNull<u8>,
    bytes: usize,
}

impl Memory {
    fn protect(&self) -> io::Result<()> {
        let address = self.memory.as_ptr().cast();
        // SAFETY: the mapping is ours; locking changes no contents.
        if unsafe { libc::mlock(address, self.bytes) } != 0 {
            return Err(io::Error::last_os_error());
        }
        for advice in [libc::MADV_DONTDUMP, libc::MADV_DONTFORK] {
            // SAFETY: as above; both change what becomes of the mapping elsewhere.
            if unsafe { libc::madvise(address, self.bytes, advice) } != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        for n in 0..self.bytes {
            // SAFETY: the bytes are ours, and mapped until the call below. Volatile, because the
            // compiler may leave out a write that nobody reads.
            unsafe { self.memory.add(n).write_volatile(0) };
        }
        // SAFETY: the mapping is ours, and no reference into it is left.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), self.bytes) };
    }
}

impl<T> Deref for Secret<T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: the value was written when this was made, and is dropped with it.
        unsafe { self.value.as_ref() }
    }
}

impl<T> Drop for Secret<T> {
    fn drop(&mut self) {
        // SAFETY: the value is dropped once, and not used afterwards.
        unsafe { self.value.drop_in_place() };
        drop(Memory { memory: self.value.cast(), bytes: self.bytes });
    }
}

impl<T> std::fmt::Debug for Secret<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}
