//! What the engine is given by the system: memory from the operating system, the CPU one runs on,
//! threads that may wait, swapping, and what a process can learn about itself and its machine.
//!
//! With the program and the frontends this is the only crate that may use libc. Everything below it
//! takes memory as a [`pagealloc::MemoryProvider`] and CPUs as numbers, and tests pretend both.

mod cpu;
mod heap;
mod memory;
mod mmap;
mod oom;
mod pressure;
mod resident;
mod stack;
mod swap;
mod waiters;
mod watermarks;

pub use cpu::{allowed_cpus, cpu, cpus, online_cpus, pin_to_cpu};
pub use heap::Heap;
pub use memory::{available_memory, page_bytes, resident_bytes, total_memory};
pub use mmap::{Mmap, MmapAhead};
pub use oom::OomKiller;
pub use pressure::{MemoryStall, Pressure, PressureEnd, Waited};
pub use resident::{Faults, make_resident, thread_faults, thread_id};
pub use stack::{SERVING_STACK, touch_stack};
pub use swap::{
    HIGHEST_PRIORITY, is_io_flusher, lock_memory, oom_score, set_io_flusher, set_oom_score,
    set_real_time, swap_off, swap_on, unlock_memory,
};
pub use waiters::{Task, Waiters};
pub use watermarks::{Above, Watermark, Watermarks};

#[cfg(test)]
mod tests;
