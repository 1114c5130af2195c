//! Services of the operating system for the engine: memory, the current CPU, threads that may wait,
//! swapping, and data about the process and its machine.
//!
//! This crate alone uses the C library, and has the `unsafe` code that calls of the system need.
//! Other crates of the product use its safe functions, and those of rustix. The crates below take
//! memory as a [`pagealloc::MemoryProvider`] and CPUs as numbers; tests simulate both.

mod child;
mod connect;
mod cpu;
mod descriptors;
mod frees;
mod groups;
mod heap;
mod holders;
mod ioctl;
mod jobs;
mod line;
mod memfd;
mod memory;
mod message;
mod mmap;
mod mounts;
mod numbers;
mod oom;
mod others_memory;
mod peer;
mod poll;
mod pressure;
mod printable;
mod privileges;
mod process;
mod program;
mod resident;
pub mod sandbox;
mod secret;
mod signals;
mod stack;
mod started;
mod swap;
pub mod swaps;
mod time;
mod waiters;
mod watermarks;

pub use child::ask;
pub use connect::{SOCKET_PATH_MAX, connect_at_once, is_listening, keeps_listening};
pub use cpu::{allowed_cpus, cpu, cpus, online_cpus, pin_to_cpu, possible_cpus};
pub use descriptors::{
    FIRST_PASSED, close_all_of_this_thread, close_on_exec, copy_for_programs, copy_of_inherited,
    inherited, own_descriptors, place, replace_descriptor,
};
pub use frees::{Before, Caller, Frees, Unheard};
pub use groups::{Controller, GroupLimit, group_limits};
pub use heap::{Heap, return_freed_memory};
pub use holders::{Holder, command_of, holders, is_open};
pub use ioctl::{
    LoopSetup, add_partition, device_bytes, device_is_read_only, discard, encoded_device,
    fuse_clone, loop_add, loop_clear, loop_configure, loop_file, loop_get_free, loop_keep,
    loop_remove, loop_set_capacity,
};
pub use jobs::{Jobs, Mailbox};
pub use memfd::{KEY_BYTES, KeptRegion, KeptSecret, Memfds, NamedMemory};
pub use memory::{
    allow_descriptors, allow_stack, has_room_for, kernel_zswap, limits_on_memory, machine_memory,
    page_bytes, resident_bytes, total_memory,
};
pub use message::{IN_MESSAGE, Received, receive_message, send_message, send_now};
pub use mmap::{Mmap, MmapAhead, Pages};
pub use mounts::{
    Mounted, Unmount, covering, device_numbers, fuse_connections, mount, mounts, mounts_at,
    own_mounts, parse_mounts, try_user_namespace, unescape, unmount,
};
pub use numbers::{errno, flags, signal};
pub use oom::OomKiller;
pub use others_memory::read_memory_of;
pub use peer::{Peer, peer_of};
pub use poll::{For, wait, wait_until};
pub use pressure::{MemoryStall, Pressure, PressureEnd, Waited};
pub use printable::printable;
pub use privileges::drop_privileges;
pub use process::{
    effective_group, effective_user, free_bytes_of, in_user_namespace, is_at, is_ending, locker,
    mark_as_storage_daemon, no_core_dumps, owner, try_lock,
};
pub use program::{Program, ended, in_a_copy};
pub use resident::{Faults, make_resident, thread_faults, thread_id};
pub use sandbox::{NoFiles, Role, Sandbox, enter};
pub use secret::Secret;
pub use signals::{Disposition, Signals, ignore, is_ignored, restore};
pub use stack::{SERVING_STACK, touch_stack};
pub use started::Started;
pub use swap::{
    HIGHEST_PRIORITY, is_io_flusher, lock_memory, map_of_others, oom_score, set_io_flusher,
    set_oom_score, set_real_time, swap_off, swap_on, unlock_memory,
};
pub use time::{seconds_since_start, thread_cpu_time};
pub use waiters::{Task, Waiters};
pub use watermarks::{Above, Watermark, Watermarks};

/// Numbers of devices (makedev(3)).
pub use rustix::fs::{major, makedev, minor};

/// Bytes of this process for the C interface of another crate (readv(2)).
pub use libc::iovec;

#[cfg(test)]
mod tests;
