//! Hears which pages of swap space the kernel frees.
//!
//! Linux tells a block device of freed swap by whole free clusters only. Here a small program in
//! the kernel (BPF, `program`) runs whenever it frees pages, and sets their bits in memory that is
//! shared with this process. It runs at the beginning of a function that frees: before that, a page
//! is nobody's, and after that the kernel may give it out again.
//!
//! Another program learns which swap type swap space gets. It stays: a type that the kernel gives
//! to other swap space later is not heard of any more.
//!
//! It needs kprobes, BTF and Linux 5.12, and CAP_SYS_ADMIN, or CAP_BPF with CAP_PERFMON.

use std::fs;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use sync::atomic::{AtomicU64, Ordering};

use crate::resident::thread_id;
use crate::time::nanoseconds_since_start;

mod bpf;
mod btf;
mod program;

use bpf::{Probe, Shared};
use btf::{Btf, Parameter};
use program::{Arguments, BITS, CALLER, FUNCTION, GIVEN, HEARD, OURS, PLACE, RECORD, TYPES};

const TYPES_OF_THE_KERNEL: &str = "/sys/kernel/btf/vmlinux";
const DRIVER: &str = "/sys/bus/event_source/devices/kprobe/type";
/// Functions that are called for all pages that are freed, the best first. The kernel's own zswap
/// hears of pages by the first (Linux with CONFIG_ZSWAP, any version since 6.6). The others are
/// what older and newer kernels have beside it.
const FREEING: [&str; 4] =
    ["zswap_invalidate", "swap_entries_free", "swap_entry_range_free", "swap_entry_free"];
/// Functions that a swapon calls with the new type.
const GIVING: [&str; 2] = ["swap_cgroup_swapon", "zswap_swapon"];
/// The layout of the memory and the order of [`FREEING`], beside the number of the function.
const LAYOUT: u64 = 1 << 32;
/// The clock of the kernel's program may be a little behind ours.
const SLACK: u64 = 1_000_000;

/// Why frees cannot be heard, for the user.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unheard(pub String);

/// A thread that has swap space swapped on, as the kernel's program sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Caller {
    /// Its process.
    pub process: u32,
    /// Its own number.
    pub thread: u32,
}

impl Caller {
    /// The calling thread.
    #[must_use]
    pub fn this() -> Caller {
        Caller { process: std::process::id(), thread: thread_id().cast_unsigned() }
    }

    fn packed(self) -> u64 {
        u64::from(self.process) << 32 | u64::from(self.thread)
    }
}

/// The bits of freed pages. A drop ends the programs in the kernel.
pub struct Frees {
    function: &'static str,
    pages: u64,
    // Dropped in this order: the programs before their memory.
    running: Vec<OwnedFd>,
    shared: Shared,
    map: OwnedFd,
}

/// A moment before a swapon: see [`Frees::hear`].
#[derive(Clone, Copy, Debug)]
pub struct Before(u64);

impl Before {
    /// Now.
    #[must_use]
    pub fn now() -> Before {
        Before(nanoseconds_since_start())
    }
}

impl Frees {
    /// Bits for `pages` pages, and the programs that set them. Nothing is heard before
    /// [`Frees::hear`].
    ///
    /// # Errors
    /// What this kernel lacks, or the right that this process lacks.
    pub fn of(pages: u64) -> Result<Frees, Unheard> {
        let driver = driver()?;
        if !sees_all_processes() {
            let text = "this process is in a PID namespace of its own: the kernel's programs know \
                        its threads by other numbers";
            return Err(Unheard(text.into()));
        }
        let types = fs::read(TYPES_OF_THE_KERNEL).map_err(|error| no_types(&error))?;
        let (freeing, giving) = functions(&types)?;
        let (map, shared) = memory(pages)?;
        let probe = |name| Probe { driver, name, offset: 0, process: None };
        let number = map.as_raw_fd();
        let given = program::given(number).ok_or_else(|| no_such("swapon"))?;
        let given = run(&given, giving.iter().map(|name| (*name, probe(name))))?.1;
        let mut last = no_such("freed pages");
        for (function, arguments) in freeing {
            let code = program::frees(number, arguments, pages);
            match run(&code, [(function, probe(FREEING[function]))].into_iter()) {
                Ok((_, freed)) => {
                    let written = LAYOUT | function as u64;
                    shared.words()[FUNCTION / 8].store(written, Ordering::Relaxed);
                    let (function, running) = (FREEING[function], vec![given, freed]);
                    return Ok(Frees { function, pages, running, shared, map });
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// The same of another process, which is dead, by its [`Frees::descriptors`] in any order.
    /// Pages that were freed meanwhile have their bits.
    ///
    /// # Errors
    /// They are not those of so many pages.
    pub fn of_kept(mut running: Vec<OwnedFd>, pages: u64) -> Result<Frees, Unheard> {
        let wrong = || Unheard("what the daemon before left for it cannot be used".into());
        let is_map = |fd: &OwnedFd| {
            let name = fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()));
            name.is_ok_and(|name| name.as_os_str() == "anon_inode:bpf-map")
        };
        let map = running.iter().position(is_map).ok_or_else(wrong)?;
        let map = running.swap_remove(map);
        let shared = Shared::of(&map, bytes_for(pages).ok_or_else(wrong)? as usize);
        let shared = shared.map_err(|_| wrong())?;
        let function = shared.words()[FUNCTION / 8].load(Ordering::Relaxed) ^ LAYOUT;
        let function = *FREEING.get(function as usize).ok_or_else(wrong)?;
        Ok(Frees { function, pages, running, shared, map })
    }

    /// What another process needs for [`Frees::of_kept`]: as long as somebody has them, the
    /// programs run.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        [&self.map].into_iter().chain(&self.running).map(OwnedFd::as_fd)
    }

    /// Hears from now on of pages of the swap space that `caller` has swapped on after `before`:
    /// page 0 there has the first bit of `bits`.
    ///
    /// # Errors
    /// The kernel's program has not seen that call; its pages are not heard of then.
    pub fn hear(&self, caller: Caller, before: Before, bits: Range<u64>) -> Result<(), Unheard> {
        let words = self.shared.words();
        let record = |swap: usize| swap * RECORD / 8;
        let given = |swap: usize| {
            // The time comes first: if others are given the type meanwhile, it is not the last.
            // Acquire pairs with the order in which the kernel's program writes.
            let time = words[record(swap) + GIVEN / 8].load(Ordering::Acquire);
            let by = words[record(swap) + CALLER / 8].load(Ordering::Relaxed);
            let is_it = by == caller.packed() && time >= before.0.saturating_sub(SLACK);
            is_it.then_some((time, record(swap)))
        };
        let unseen = "the programs in the kernel did not see the call of swapon(2), as in a PID \
                      namespace of its own";
        let newest = (0..TYPES).filter_map(given).max();
        let (time, at) = newest.ok_or_else(|| Unheard(unseen.into()))?;
        let place = place(&bits);
        if bits.end > self.pages || bits.end >> 31 != 0 {
            return Err(Unheard("there are no bits for this swap space".into()));
        }
        // A type has one place for good: the kernel reads it beside the time, in any order.
        let found =
            words[at + PLACE / 8].compare_exchange(0, place, Ordering::Relaxed, Ordering::Relaxed);
        if found.is_err_and(|there| there != place) {
            return Err(Unheard("its swap type belonged to another part of the device".into()));
        }
        // Release pairs with the kernel's program, which reads it before the place. A type that was
        // given away meanwhile has another time, and stays unheard.
        words[at + OURS / 8].store(time, Ordering::Release);
        Ok(())
    }

    /// Hears no more of the swap space with these bits, which was swapped off.
    pub fn forget(&self, bits: &Range<u64>) {
        let words = self.shared.words();
        for at in (0..TYPES).map(|swap| swap * RECORD / 8) {
            if words[at + PLACE / 8].load(Ordering::Relaxed) == place(bits) {
                words[at + OURS / 8].store(0, Ordering::Relaxed);
            }
        }
    }

    /// The function of the kernel that tells of freed pages.
    #[must_use]
    pub fn function(&self) -> &'static str {
        self.function
    }

    /// The pages that were heard of so far.
    #[must_use]
    pub fn heard(&self) -> u64 {
        self.shared.words()[HEARD / 8].load(Ordering::Relaxed)
    }
}

/// The bits, 64 in a word.
impl AsRef<[AtomicU64]> for Frees {
    fn as_ref(&self) -> &[AtomicU64] {
        let first = BITS / 8;
        &self.shared.words()[first..first + self.pages.div_ceil(64) as usize]
    }
}

/// Bits in the form that the kernel's program reads.
fn place(bits: &Range<u64>) -> u64 {
    bits.start << 32 | bits.end.saturating_sub(bits.start)
}

fn no_types(error: &io::Error) -> Unheard {
    Unheard(match error.kind() {
        io::ErrorKind::NotFound => {
            "this kernel does not describe its types (BTF, CONFIG_DEBUG_INFO_BTF)".into()
        }
        _ => format!("{TYPES_OF_THE_KERNEL}: {error}"),
    })
}

fn no_such(what: &str) -> Unheard {
    Unheard(format!("this kernel has no known function for {what}"))
}

/// Is this process in the first PID namespace? Its inode is the same in any Linux
/// (`PROC_PID_INIT_INO`).
fn sees_all_processes() -> bool {
    fs::read_link("/proc/self/ns/pid").is_ok_and(|name| name.as_os_str() == "pid:[4026531836]")
}

/// The number of the driver of kprobes.
fn driver() -> Result<u32, Unheard> {
    let text = fs::read_to_string(DRIVER);
    text.ok().and_then(|text| text.trim().parse().ok()).ok_or_else(|| {
        Unheard("this kernel has no kprobes for perf_event_open(2) (CONFIG_KPROBE_EVENTS)".into())
    })
}

/// Numbers in [`FREEING`], with the places of arguments, and some of [`GIVING`].
type Functions = (Vec<(usize, Arguments)>, Vec<&'static str>);

/// The functions of this kernel that free pages, with the places of their arguments, and those that
/// a swapon calls.
fn functions(types: &[u8]) -> Result<Functions, Unheard> {
    let unread = || Unheard(format!("{TYPES_OF_THE_KERNEL} cannot be read by this program"));
    let types = Btf::read(types).ok_or_else(unread)?;
    let freeing = |n: usize| Some((n, arguments(&types.function(FREEING[n])?)?));
    let freeing: Vec<_> = (0..FREEING.len()).filter_map(freeing).collect();
    let takes_type = |name: &&'static str| {
        let first = types.function(name).and_then(|all| all.first().copied());
        first == Some(Parameter::Integer(4))
    };
    let giving: Vec<_> = GIVING.into_iter().filter(takes_type).collect();
    match (freeing.is_empty(), giving.is_empty()) {
        (true, _) => Err(no_such("freed pages")),
        (_, true) => Err(no_such("swapon")),
        _ => Ok((freeing, giving)),
    }
}

/// The places of the arguments of a function with such parameters: it has one `swp_entry_t`, and
/// perhaps a number of pages behind it.
fn arguments(parameters: &[Parameter]) -> Option<Arguments> {
    let entry = parameters.iter().position(|it| *it == Parameter::Entry)?;
    let (before, behind) = (&parameters[..entry], &parameters[entry + 1..]);
    let count = match behind {
        [] => None,
        [Parameter::Integer(4)] => Some(program::argument(entry + 1)?),
        _ => return None,
    };
    let is_known = before.iter().all(|it| *it == Parameter::Other);
    is_known.then_some(Arguments { entry: program::argument(entry)?, count })
}

/// Bytes of the memory for so many pages.
fn bytes_for(pages: u64) -> Option<u32> {
    let bytes = BITS as u64 + pages.div_ceil(64).checked_mul(8)?;
    u32::try_from(bytes.next_multiple_of(BITS as u64)).ok()
}

fn memory(pages: u64) -> Result<(OwnedFd, Shared), Unheard> {
    let refused = |error: io::Error| {
        Unheard(match error.raw_os_error() {
            Some(libc::EPERM) => "bpf(2) is not allowed here: it needs CAP_BPF".into(),
            _ => format!("the kernel has no memory for the bits of freed pages: {error}"),
        })
    };
    let too_large = || refused(io::Error::from_raw_os_error(libc::E2BIG));
    let bytes = bytes_for(pages).ok_or_else(too_large)?;
    let map = bpf::make_map(bytes).map_err(refused)?;
    let shared = Shared::of(&map, bytes as usize).map_err(refused)?;
    Ok((map, shared))
}

/// Loads a program and has it run at the first of these that can be had.
fn run<'a, W: Copy>(
    code: &[u64],
    probes: impl Iterator<Item = (W, Probe<'a>)>,
) -> Result<(W, OwnedFd), Unheard> {
    let program = bpf::load(code).map_err(|error| {
        Unheard(format!("the kernel refuses the program that hears of freed pages: {error}"))
    })?;
    let mut last = no_such("swap space");
    for (which, probe) in probes {
        match bpf::attach(&probe, &program) {
            Ok(event) => return Ok((which, event)),
            Err(error) => {
                last = Unheard(format!("no probe can be had on {}: {error}", probe.name));
            }
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests;
