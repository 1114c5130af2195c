//! The processor's atomics, with a step before each operation.
//!
//! They have the same size and representation, so zeroed memory still is a table of them.

pub use core::sync::atomic::{Ordering, fence};

#[cfg(killed)]
use super::killed::{fails_for_no_reason, step};
#[cfg(not(killed))]
use super::scheduled::{fails_for_no_reason, point as step};

macro_rules! atomic {
    ($name:ident $(<$parameter:ident>)?, $value:ty) => {
        /// The atomic of this name, with a step before each operation.
        #[repr(transparent)]
        #[derive(Debug, Default)]
        pub struct $name $(<$parameter>)? (core::sync::atomic::$name $(<$parameter>)?);

        #[allow(missing_docs)]
        impl $(<$parameter>)? $name $(<$parameter>)? {
            pub const fn new(value: $value) -> Self {
                Self(core::sync::atomic::$name::new(value))
            }
            /// Without steps.
            #[allow(dead_code)]
            pub(crate) fn plain(&self) -> &core::sync::atomic::$name $(<$parameter>)? {
                &self.0
            }
            pub fn get_mut(&mut self) -> &mut $value {
                self.0.get_mut()
            }
            pub fn load(&self, order: Ordering) -> $value {
                step();
                self.0.load(order)
            }
            pub fn store(&self, value: $value, order: Ordering) {
                step();
                self.0.store(value, order);
            }
            pub fn swap(&self, value: $value, order: Ordering) -> $value {
                step();
                self.0.swap(value, order)
            }
            pub fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                step();
                self.0.compare_exchange(current, new, success, failure)
            }
            pub fn compare_exchange_weak(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                step();
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
                    step();
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
