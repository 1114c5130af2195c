//! Which thread serves which queues.

use std::io::{self, ErrorKind};

/// How many entries the queues of CPUs have that are there.
pub(crate) struct Entries {
    /// All together, within the other bounds.
    all: usize,
    /// The least and the most of a queue whose CPU has a thread.
    own: (usize, usize),
    /// The least of another one.
    other: usize,
}

/// For one disk, which takes all memory at the beginning.
pub(crate) const OF_SWAP: Entries = Entries { all: 64, own: (2, 8), other: 1 };
/// For many disks. A request that waits keeps its entry, and where none is left the kernel keeps
/// all later requests of the CPU, whatever they are for: so there are several times those that a
/// loop device may have under way. An entry takes memory with data, and gives it back when
/// its thread has had nothing to do for a moment.
pub(crate) const OF_MOUNT: Entries = Entries { all: 512, own: (32, 64), other: 32 };
/// The most queues of CPUs without a thread: each takes the memory of its entries.
const MOST_OTHERS: usize = 32;

/// What one thread serves.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Part {
    /// The CPU that it is bound to; none if this process may not run on any that exists.
    pub(crate) cpu: Option<usize>,
    /// The number of a queue for each entry.
    pub(crate) queues: Vec<u16>,
}

/// A thread for each CPU in `allowed`, for the queues of `possible` CPUs: the kernel begins when
/// each of them has an entry. A thread serves the queue of its own CPU, and the queues of others
/// that could exist are dealt out. CPUs below `present` are there.
///
/// # Errors
/// Many more CPUs could exist than there are.
pub(crate) fn parts(
    entries: &Entries,
    (possible, present): (usize, usize),
    allowed: &[usize],
) -> io::Result<Vec<Part>> {
    let allowed: Vec<usize> = allowed.iter().copied().filter(|cpu| *cpu < possible).collect();
    let others = possible - allowed.len();
    if others > MOST_OTHERS || u16::try_from(possible).is_err() {
        let why = format!(
            "{possible} CPUs could exist and {} may be used: each of the others wants memory",
            allowed.len()
        );
        return Err(io::Error::new(ErrorKind::Unsupported, why));
    }
    let Entries { all, own: (least, most), other } = *entries;
    let own = (all / allowed.len().max(1)).clamp(least, most);
    let foreign = (all / present.max(1)).clamp(other, own);
    let threads = allowed.len().max(1);
    let mut parts: Vec<Part> = (0..threads)
        .map(|thread| Part { cpu: allowed.get(thread).copied(), queues: Vec::new() })
        .collect();
    for queue in 0..possible {
        let (thread, entries) = match allowed.iter().position(|cpu| *cpu == queue) {
            Some(thread) => (thread, own),
            None => (queue % threads, if queue < present { foreign } else { 1 }),
        };
        parts[thread].queues.extend((0..entries).map(|_| queue as u16));
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(possible: usize, present: usize, allowed: &[usize]) -> io::Result<Vec<Part>> {
        super::parts(&OF_SWAP, (possible, present), allowed)
    }

    #[test]
    fn the_queues_of_a_mount_have_more_entries() {
        let entries = |cpus: usize, allowed: &[usize]| {
            let parts = super::parts(&OF_MOUNT, (cpus, cpus), allowed).unwrap();
            parts.iter().map(|part| part.queues.len()).sum::<usize>()
        };
        assert_eq!(entries(2, &[0, 1]), 2 * 64);
        assert_eq!(entries(2, &[1]), 2 * 64);
        assert_eq!(entries(8, &[0]), 8 * 64);
        assert_eq!(entries(24, &[3]), 64 + 23 * 32);
        assert_eq!(entries(64, &(0..64).collect::<Vec<_>>()), 64 * 32);
    }

    #[test]
    fn each_queue_has_entries_and_each_cpu_its_own_thread() {
        let part = |cpu, queues: &[u16]| Part { cpu, queues: queues.to_vec() };
        assert_eq!(parts(2, 2, &[0, 1]).unwrap(), [part(Some(0), &[0; 8]), part(Some(1), &[1; 8])]);
        // A CPU that this process may not use, and one that does not exist yet.
        let entries = [&[0; 8][..], &[1; 8], &[2]].concat();
        assert_eq!(parts(3, 2, &[1]).unwrap(), [part(Some(1), &entries)]);
        assert_eq!(parts(2, 1, &[7]).unwrap(), [part(None, &[&[0; 8][..], &[1]].concat())]);
        let of_20 = parts(20, 16, &[1]).unwrap();
        assert_eq!((of_20.len(), of_20[0].queues.len()), (1, 8 + 15 * 4 + 4));
        let many: Vec<usize> = (0..100).collect();
        let dealt = parts(130, 130, &many).unwrap();
        assert_eq!((dealt.len(), &dealt[5].queues[..]), (100, &[5, 5, 105][..]));
        let refused = parts(240, 2, &[0, 1]).unwrap_err().to_string();
        assert!(refused.starts_with("240 CPUs could exist and 2 may be used"), "{refused}");
    }
}
