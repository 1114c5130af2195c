//! The processor's atomics, with a scheduling point of shuttle before each operation.
//!
//! They have the same size and representation, so zeroed memory still is a table of them. Shuttle
//! runs one thread at a time, so every ordering acts as sequential consistency here. The loom tests
//! check that the orderings suffice. Outside an execution of shuttle these are the processor's
//! plain atomics.

use core::time::Duration;

pub use core::sync::atomic::{Ordering, fence};
use shuttle::rand::RngCore;

/// One of this many weak exchanges fails spuriously, as on hardware.
const FAILS_ONE_IN: u64 = 8;

/// Whether this thread belongs to an execution of shuttle.
pub(crate) fn in_an_execution() -> bool {
    shuttle::current::try_get_current_task().is_some()
}

/// A scheduling point: another thread may run now.
#[inline]
pub(crate) fn point() {
    if in_an_execution() {
        // Shuttle has no time, so this is only a scheduling point.
        shuttle::thread::sleep(Duration::ZERO);
    }
}

/// Lets another thread run now, if any can.
pub(super) fn let_others_run() {
    if in_an_execution() {
        shuttle::thread::yield_now();
    } else {
        std::thread::yield_now();
    }
}

fn fails_for_no_reason() -> bool {
    in_an_execution() && shuttle::rand::thread_rng().next_u64().is_multiple_of(FAILS_ONE_IN)
}

macro_rules! atomic {
    ($name:ident $(<$parameter:ident>)?, $value:ty) => {
        /// The atomic of this name, with a scheduling point before each operation.
        #[repr(transparent)]
        #[derive(Debug, Default)]
        pub struct $name $(<$parameter>)? (core::sync::atomic::$name $(<$parameter>)?);

        #[allow(missing_docs)]
        impl $(<$parameter>)? $name $(<$parameter>)? {
            pub const fn new(value: $value) -> Self {
                Self(core::sync::atomic::$name::new(value))
            }
            pub fn get_mut(&mut self) -> &mut $value {
                self.0.get_mut()
            }
            pub fn load(&self, order: Ordering) -> $value {
                point();
                self.0.load(order)
            }
            pub fn store(&self, value: $value, order: Ordering) {
                point();
                self.0.store(value, order);
            }
            pub fn swap(&self, value: $value, order: Ordering) -> $value {
                point();
                self.0.swap(value, order)
            }
            pub fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                point();
                self.0.compare_exchange(current, new, success, failure)
            }
            pub fn compare_exchange_weak(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                point();
                if fails_for_no_reason() {
                    return Err(self.0.load(failure));
                }
                self.0.compare_exchange(current, new, success, failure)
            }
            pub fn fetch_update(
                &self,
                success: Ordering,
                failure: Ordering,
                mut next: impl FnMut($value) -> Option<$value>,
            ) -> Result<$value, $value> {
                let mut seen = self.load(failure);
                while let Some(new) = next(seen) {
                    match self.compare_exchange_weak(seen, new, success, failure) {
                        Ok(was) => return Ok(was),
                        Err(now) => seen = now,
                    }
                }
                Err(seen)
            }
        }
    };
}

macro_rules! arithmetic {
    ($name:ident, $value:ty: $($method:ident)*) => {
        #[allow(missing_docs)]
        impl $name {
            $(
                pub fn $method(&self, value: $value, order: Ordering) -> $value {
                    point();
                    self.0.$method(value, order)
                }
            )*
        }
    };
}

macro_rules! integer {
    ($name:ident, $value:ty) => {
        atomic!($name, $value);
        arithmetic!($name, $value: fetch_add fetch_sub fetch_max fetch_min);
        arithmetic!($name, $value: fetch_and fetch_or fetch_xor);
    };
}

integer!(AtomicU8, u8);
integer!(AtomicU16, u16);
integer!(AtomicU32, u32);
integer!(AtomicU64, u64);
integer!(AtomicUsize, usize);
atomic!(AtomicBool, bool);
arithmetic!(AtomicBool, bool: fetch_and fetch_or fetch_xor);
atomic!(AtomicPtr<T>, *mut T);
