//! Services of the operating system for the engine: memory, the current CPU, threads that may wait,
//! swapping, and data about the process and its machine.
//!
//! Only this crate, the program and the frontends may use libc. The crates below take memory as a
//! [`pagealloc::MemoryProvider`] and CPUs as numbers; tests simulate both.

mod cpu;
mod heap;
mod memfd;
mod memory;
mod mmap;
mod oom;
mod pressure;
mod privileges;
mod resident;
pub mod sandbox;
mod secret;
mod stack;
mod swap;
mod time;
mod waiters;
mod watermarks;

pub use cpu::{allowed_cpus, cpu, cpus, online_cpus, pin_to_cpu};
pub use heap::{Heap, return_freed_memory};
pub use memfd::{KEY_BYTES, KeptRegion, KeptSecret, Memfds, NamedMemory};
pub use memory::{anonymous_bytes, available_memory, page_bytes, resident_bytes, total_memory};
pub use mmap::{Mmap, MmapAhead};
pub use oom::OomKiller;
pub use pressure::{MemoryStall, Pressure, PressureEnd, Waited};
pub use privileges::drop_privileges;
pub use resident::{Faults, make_resident, thread_faults, thread_id};
pub use sandbox::{NoFiles, Role, Sandbox, enter};
pub use secret::Secret;
pub use stack::{SERVING_STACK, touch_stack};
pub use swap::{
    HIGHEST_PRIORITY, is_io_flusher, lock_memory, oom_score, set_io_flusher, set_oom_score,
    set_real_time, swap_off, swap_on, unlock_memory,
};
pub use time::{seconds_since_start, thread_cpu_time};
pub use waiters::{Task, Waiters};
pub use watermarks::{Above, Watermark, Watermarks};

#[cfg(test)]
mod tests;
